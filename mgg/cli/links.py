"""``mgg links``: measure what joins the PEs of a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mgg import config
from mgg.cli.options import BACKEND_HELP, BACKENDS, FOLDER, common, show, speaks

if TYPE_CHECKING:
    from mgg.aggregate.costs import Machine

_AGGREGATE = config.AggregateConfig()


@click.command()
@click.option("--pes", type=click.IntRange(1, config.MAX_PES), help="number of PEs without a launcher  [default: 1]")
@click.option(
    "--backend", type=click.Choice(BACKENDS), default=_AGGREGATE.backend, show_default=True, help=BACKEND_HELP
)
@click.option("--refresh", is_flag=True, help="measure anew what was measured before")
@click.option("--out", type=FOLDER, help="file for mgg predict --machine")
@common
def links(pes: int | None, backend: str, refresh: bool, out: Path | None, as_json: bool) -> None:
    """Measure what the links and operators of this job take, and keep it for technique auto; mpiexec -n P mgg links."""
    from mgg.aggregate.machines import found_or_measured, write
    from mgg.backend import World, job_size, launch, together
    from mgg.files import check_file_output

    def program(world: World) -> tuple[Machine, Path | None]:
        if out is not None:
            together(world, lambda: check_file_output(out, "links") if world.rank == 0 else None)
        return found_or_measured(world, refresh)

    found = launch(backend, lambda: pes or job_size() or 1, program)
    machine, kept = found[0]
    if out is not None and speaks():
        write(out, machine)
    if as_json:
        show(machine.model_dump(), True)
        return
    if kept is not None:
        show({"kept": f"measured before, in {kept}; --refresh measures anew"}, False)
    for name, link in machine.links.links.items():
        each = f", {link.message * 1e9:.3g} ns a row" if link.message else ""
        show(
            {name: f"{link.bandwidth / 1e9:.4g} GB/s, {link.latency * 1e6:.3g} us a request{each} ({link.source})"},
            False,
        )
    fitted = " (part of the fitted calls of operators)" if machine.gpu else ""
    show({"barrier": f"{machine.links.barrier * 1e6:.3g} us{fitted}"}, False)
