"""The group of all commands, and how an error ends it."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import click

from mgg import __version__
from mgg.cli import stop
from mgg.cli.clean import clean
from mgg.cli.data.describe import describe
from mgg.cli.data.generate import criteo, generate
from mgg.cli.data.graph import graph, graph_gather, graph_scatter, graph_shard, retrieve
from mgg.cli.data.partition import layout, partition
from mgg.cli.demo import demo
from mgg.cli.doctor import doctor
from mgg.cli.init import init
from mgg.cli.names import completion, list_names
from mgg.cli.products.aggregate import aggregate
from mgg.cli.products.links import links
from mgg.cli.products.lookup import lookup
from mgg.cli.products.predict import predict
from mgg.cli.products.tune import tune
from mgg.cli.report import compare, report
from mgg.cli.training.infer import evaluate, infer
from mgg.cli.training.train import train
from mgg.cli.training.vertex import vertex
from mgg.errors import MachineError, MggError, gpu_memory_error, memory_error
from mgg.files import keep_others_out
from mgg.limits import lack_behind


class _InterruptedError(Exception):
    """Ctrl-C. Click would print an empty line for a KeyboardInterrupt."""


#: The commands in the order of the stages, by section of ``mgg --help``.
_SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Start": (doctor, demo, list_names, init, completion),
    "Graphs": (retrieve, graph, generate, describe, partition, layout),
    "Products": (predict, tune, aggregate, links),
    "Training": (vertex, train, evaluate, infer),
    "Embedding lookups": (criteo, lookup),
    "Results": (report, compare, clean),
}
#: Parts of ``mgg graph`` that the workflow runs as separate jobs.
_INTERNAL = (graph_scatter, graph_shard, graph_gather)


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Invoke the command; raise Ctrl-C as an error that click does not handle."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _InterruptedError from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        width = max(len(name) for name in self.commands if not self.commands[name].hidden)
        room = formatter.width - width - 6
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{each.name:{width}}", each.get_short_help_str(room)) for each in commands])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the stages."""
        return list(self.commands)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mgg")
def cli() -> None:
    """Full-graph GNN training and distributed SpMM on every GPU of a cluster, or on CPU ranks."""


for _command in (*(each for section in _SECTIONS.values() for each in section), *_INTERNAL):
    cli.add_command(_command)


def run() -> None:
    """Run the command that ``sys.argv`` names, and end the process."""
    keep_others_out()
    try:
        cli.main(standalone_mode=False, prog_name="mgg")
        code = 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        code = 0
    except click.ClickException as error:
        code = _fail(_usage(error), 2, everywhere=True)
    except (click.Abort, _InterruptedError):
        code = _interrupted()
    except MggError as error:
        reported = lack_behind(error) or error
        code = _fail(str(reported), reported.exit_code, error.everywhere, error.alone)
    except MemoryError as error:
        code = _fail(_memory(error), MachineError.exit_code, everywhere=False)
    except Exception as error:
        lack = lack_behind(error)
        said = ": ".join(filter(None, ("internal error", type(error).__name__, str(error))))
        code = _fail(str(lack or f"{said} (--debug shows where)"), lack.exit_code if lack else 1, everywhere=False)
    sys.stdout.flush()
    if compilers := sys.modules.get("mgg.kernel.compile_ahead"):
        compilers.ahead.cancel()
    sys.exit(code)


def _usage(error: click.ClickException) -> str:
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "mgg"
    return f"{error.format_message()} (see {command} --help)"


def _memory(error: MemoryError) -> str:
    limit = lack_behind(error)
    reason = str(error) or "the operating system gave no more"
    return str(gpu_memory_error(error) or memory_error(str(limit) if limit else reason))


def _interrupted() -> int:
    """Print the line for Ctrl-C; return the exit code."""
    if "--debug" in sys.argv:
        traceback.print_exc()
    return stop.tell()


def _fail(message: str, code: int, everywhere: bool, speaks: bool = False) -> int:
    """Print one line and return ``code``; if this rank failed alone, end the other ranks, too.

    ``everywhere``: every rank fails alike, so rank 0 alone prints. ``speaks``: this rank prints in any case.
    """
    if stop.interrupted.is_set():
        return _interrupted()
    from mgg.backend import abort_job, job_rank, mpi_runs

    if "--debug" in sys.argv:
        traceback.print_exc()
    # Before MPI starts, all ranks have read the same command line and files, so they all fail alike.
    alone = not everywhere and mpi_runs()
    if alone and not message.startswith((f"PE {job_rank()}:", f"PE {job_rank()} (")):
        message = f"PE {job_rank()}: {message}"
    if alone or speaks or job_rank() == 0:
        click.echo(f"mgg: {' '.join(message.split())}", err=True)
    sys.stderr.flush()
    if alone:
        abort_job(code)
    return code
