"""What the commands share: options, types of values, and printing of results."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import click

from mgg import config, origin
from mgg.errors import InputError
from mgg.network import Network
from mgg.schema import nearest

F = TypeVar("F", bound=Callable[..., Any])
FOLDER = click.Path(path_type=Path)


class Number(click.FloatRange):
    """A number in a range. Comparisons let NaN into every range, so it is refused separately."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


def _network(context: click.Context, parameter: click.Parameter, value: str | None) -> Network | None:
    try:
        return None if value is None else Network.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


EMULATE = click.option(
    "--emulate-network", "network", callback=_network, metavar="BANDWIDTH,LATENCY",
    help="limit traffic between workgroups to this bandwidth per PE and this latency, for example 20GB/s,5us"
    " (docs/concepts/emulation.md)",
)  # fmt: skip
SECONDS = Number(0, config.MAX_SECONDS, min_open=True)


def usual(option: str, default: Any, text: str, *, name: str | None = None, **others: Any) -> Callable[[F], F]:
    """An option with a default, which --help shows; ``name``: of the command's argument, if it is another."""
    names = (option,) if name is None else (option, name)
    return click.option(*names, default=default, show_default=True, help=text, **others)


def whole(option: str, least: int, most: int | None, default: int | None, text: str) -> Callable[[F], F]:
    """An option that takes a whole number."""
    return usual(option, default, text, type=click.IntRange(least, most))


def bundle(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator."""
    return lambda command: functools.reduce(lambda found, option: option(found), reversed(options), command)


def counted(defaults: Any, launches: str, warmup: str, iterations: str) -> Callable[[F], F]:
    """The options of commands that time something: how often; ``defaults`` are a section of the config."""
    return bundle(
        whole("--launches", 1, config.MAX_PRODUCTS, defaults.launches, launches),
        whole("--warmup", 0, config.MAX_PRODUCTS, defaults.warmup, warmup),
        whole("--iterations", 1, config.MAX_PRODUCTS, defaults.iterations, iterations),
    )


#: The sections aggregate, lookup and train of the config have the same defaults of these two.
BACKEND = usual(
    "--backend", config.AggregateConfig().backend,
    "simulated: threads; mpi: CPU ranks; nvshmem: GPUs; auto: GPUs where each PE has one, else CPUs",
    type=click.Choice(get_args(config.Backend)),
)  # fmt: skip
THREADS = whole(
    "--threads", 1, config.MAX_THREADS, config.AggregateConfig().threads,
    "threads of each CPU PE for row-wise products and vertex programs; results have the same bits with any number",
)  # fmt: skip


class CommaList(click.ParamType):
    """Values separated by commas."""

    name = "list"

    def __init__(self, item: type = str, choices: Sequence[str] = (), most: int = config.MAX_DIM):
        self.item = item
        self.choices = choices
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        """Return the values without duplicates."""
        if isinstance(value, list):
            return value
        try:
            items = [self.item(part.strip()) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a comma-separated list of whole numbers", param, ctx)
        if self.item is int and not 1 <= min(items) <= max(items) <= self.most:
            self.fail(f"{value!r} holds a number that is not in 1..{self.most}", param, ctx)
        for each in items:
            if self.choices and each not in self.choices:
                self.fail(f"{each!r} is not one of {', '.join(self.choices)}", param, ctx)
        return list(dict.fromkeys(items))


def common(command: F) -> F:
    """Add the options that every command has, and note the values of the others for its records (mgg/origin.py)."""

    @functools.wraps(command)
    def begun(**options: Any) -> Any:
        origin.begin(click.get_current_context().info_name or "", options)
        return command(**options)

    # The group reads --debug where it handles errors.
    debug = click.option("--debug", is_flag=True, expose_value=False, help="show the traceback of an error")
    as_json = click.option("--json", "as_json", is_flag=True, help="print one JSON object on standard output")
    return cast("F", as_json(debug(begun)))


def speaks() -> bool:
    """Whether this is rank 0, which alone prints. Read from the launcher's variables, so it works before MPI starts."""
    from mgg.backend import job_rank

    return job_rank() == 0


def say(text: str, err: bool = False) -> None:
    """Print text on rank 0."""
    if speaks():
        click.echo(text, err=err)


def say_refused(refused: Iterable[Exception]) -> None:
    """Print a line about each case that could not be measured."""
    for error in refused:
        say(f"mgg: not measured: {' '.join(str(error).split())}", err=True)


def median_of(record: Any) -> str:
    """The median time of a record, with the spread of its launches if there are several."""
    line = f"{record.median * 1e3:.3f} ms"
    if len(record.launches) > 1:
        line += f" ({record.low * 1e3:.3f} to {record.high * 1e3:.3f} in {len(record.launches)} launches)"
    return line


def show(values: dict[str, Any], as_json: bool) -> None:
    """Print a result: one exact JSON object, or for people one line per value, floats with four digits."""
    if not speaks():
        return
    if as_json:
        click.echo(json.dumps(values))
        return
    for key, value in values.items():
        if isinstance(value, list) and len(value) > 8 and all(isinstance(each, (int, float)) for each in value):
            click.echo(f"{key}: {min(value):.10g} to {max(value):.10g} ({len(value)} values, --json has them)")
        else:
            click.echo(f"{key}: {value:.4g}" if isinstance(value, float) else f"{key}: {value}")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows with the same keys for people: a header, then aligned columns; None is left empty."""
    names = list(rows[0]) if rows else []
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [bool(rows) and all(isinstance(row[name], (int, float, type(None))) for row in rows) for name in names]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in cells
    )


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def assignments_of(pairs: Iterable[str]) -> dict[str, Any]:
    """Parse ``key=value`` pairs; values are YAML scalars (true, 3, 0.5, 5e-4, null, text).

    Raises:
        InputError: a pair without key or value, a value of another type, or a key that is given twice.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set {pair}: expected key=value")
        value = config.scalar(text)
        if not text.strip() or not isinstance(value, (bool, int, float, str, type(None))):
            raise InputError(f"--set {pair}: the value must be a number, true, false, none or text")
        if key in values:
            raise InputError(f"--set {pair}: {key} is already set to {values[key]}; leave one of the two out")
        values[key] = value
    return values


def split_assignments(
    pairs: Iterable[str], techniques: Iterable[str], model: str | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split assignments into plain ones and, by technique, those written ``technique.key=value``.

    ``model.key`` counts as plain ``key``.

    Raises:
        InputError: a pair that cannot be parsed, or an owner that is neither the model nor one of the techniques.
    """
    plain: dict[str, Any] = {}
    qualified: dict[str, Any] = {model: plain} if model else {}
    qualified |= {name: {} for name in techniques}
    for key, value in assignments_of(pairs).items():
        owner, dot, option = key.partition(".")
        if not dot:
            plain[key] = value
        elif owner in qualified:
            qualified[owner][option] = value
        else:
            lack = "is neither the model nor the technique" if model else "is not among those named"
            raise InputError(
                f"--set {key}: {'' if model else 'technique '}{owner!r} {lack}; {nearest(owner, qualified)}"
            )
    return plain, qualified


def grids_of(texts: Iterable[str], techniques: Iterable[str]) -> dict[str, list[Any]]:
    """The option grids of each technique from --variant, written ``technique:key=value,value:key=value``.

    Raises:
        InputError: a text that cannot be parsed, or a technique that is not among ``techniques``.
    """
    from mgg.aggregate.variants import parse

    grids: dict[str, list[Any]] = {name: [] for name in techniques}
    for text in texts:
        name, grid = parse(text)
        if name not in grids:
            raise InputError(f"--variant {text}: technique {name!r} is not among those named; {nearest(name, grids)}")
        grids[name].append(grid)
    return grids
