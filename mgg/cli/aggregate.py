"""``mgg aggregate``: check and time products."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import click

from mgg import config
from mgg.cli.options import BACKEND_HELP, BACKENDS, FOLDER, CommaList, common, show, speaks, split_assignments
from mgg.errors import InputError, MachineError, MggError
from mgg.schema import nearest

_AGGREGATE = config.AggregateConfig()
_AUTO = "auto"


def _chosen(techniques: list[str], assignments: Iterable[str], variants: Iterable[str]) -> list[tuple[str, Any]]:
    """What --technique, --set and --variant name: each technique with each of its sets of options."""
    from mgg.aggregate.variants import expand, parse

    techniques = [name for name in techniques if name != _AUTO]
    if assignments and not techniques:
        raise InputError("--set: technique auto picks at default options; name the technique that has this option")
    plain, qualified = split_assignments(assignments, techniques)
    grids: dict[str, list[Any]] = {name: [] for name in techniques}
    for text in variants:
        name, grid = parse(text)
        if name not in grids:
            raise InputError(f"--variant {text}: technique {name!r} is not among those named; {nearest(name, grids)}")
        grids[name].append(grid)
    return [(name, options) for name in techniques for options in expand(name, plain | qualified[name], grids[name])]


@click.command()
@click.argument("layout", type=FOLDER)
@click.option(
    "--technique",
    "techniques",
    type=CommaList(),
    required=True,
    help="technique, or several: mgg,halo (docs/techniques.md); auto: the one that the cost model picks",
)
@click.option("--dim", "dims", type=CommaList(int), required=True, help="embedding columns, or several: 16,64")
@click.option(
    "--dtype", "dtypes", type=CommaList(choices=get_args(config.Dtype)), default=_AGGREGATE.dtypes,
    help=f"type of the embeddings, or both: fp32,bf16  [default: {','.join(_AGGREGATE.dtypes)}]",
)  # fmt: skip
@click.option("--transpose", is_flag=True, help="the transposed (backward) product")
@click.option("--set", "assignments", multiple=True, metavar="[TECHNIQUE.]KEY=VALUE", help="option of a technique")
@click.option(
    "--variant", "variants", multiple=True, metavar="TECHNIQUE[:KEY=VALUE[,VALUE...]]...",
    help="time a technique with these options on top of --set, instead of once; lists stand for all combinations;"
    " repeat for more, for example --variant mgg --variant mgg:ps=2,4:dist=1,8",
)  # fmt: skip
@click.option(
    "--backend", type=click.Choice(BACKENDS), default=_AGGREGATE.backend, show_default=True, help=BACKEND_HELP
)
@click.option("--warmup", type=click.IntRange(0), default=_AGGREGATE.warmup, show_default=True, help="untimed products")
@click.option(
    "--iterations", type=click.IntRange(1), default=_AGGREGATE.iterations, show_default=True, help="timed ones"
)
@click.option("--no-check", is_flag=True, help="skip the comparison with a float64 product")
@click.option("--breakdown", is_flag=True, help="also time each product with its transfers left out")
@click.option("--out", type=FOLDER, required=True, help="records, JSON lines")
@common
def aggregate(
    layout: Path, techniques: list[str], dims: list[int], dtypes: list[str], transpose: bool,
    assignments: tuple[str, ...], variants: tuple[str, ...], backend: str, warmup: int, iterations: int, no_check: bool,
    breakdown: bool, out: Path, as_json: bool, debug: bool,
) -> None:  # fmt: skip
    """Check and time the aggregation of LAYOUT; more than one PE: mpiexec -n P mgg aggregate ..."""
    from mgg.aggregate import technique
    from mgg.aggregate.measure import Protocol, sweep
    from mgg.backend import World, job_rank, launch, launch_threads, splits, together
    from mgg.layout import load, read_manifest
    from mgg.record import check_lines_output, write_lines

    chosen, auto = _chosen(techniques, assignments, variants), _AUTO in techniques
    direction = "transpose" if transpose else "forward"

    def pes() -> int:
        return read_manifest(layout).pes

    def program(world: World, part: list[Any], earlier: list[Any], last: bool) -> tuple[list[Any], list[MggError]]:
        together(world, lambda: check_lines_output(out) if world.rank == 0 else None)
        mine = together(world, lambda: load(layout, world.rank))
        protocol = Protocol(direction, warmup, iterations, not no_check, breakdown)
        try:
            records, refused = sweep(
                world, mine, part, dims=dims, dtypes=dtypes, protocol=protocol, auto=auto and part is not apart
            )
        except (InputError, MachineError) as error:
            # Of several parts one may be refused as a whole.
            if not error.everywhere or (last and not earlier):
                raise
            records, refused = [], [error]
        if last:
            together(world, lambda: write_lines(out, earlier + records) if world.rank == 0 else None)
        return records, refused

    records: list[Any] = []
    refused: list[MggError] = []
    apart = [each for each in chosen if technique(each[0]).one_process]
    if not (apart and splits(backend, pes, len(apart) == len(chosen) and not auto)):
        apart = []
    if len(apart) < len(chosen) or auto:
        ranks = [each for each in chosen if each not in apart]
        records, refused = launch(backend, pes, lambda world: program(world, ranks, [], not apart))[0]
    if apart:
        try:
            found = launch_threads(pes, lambda world: program(world, apart, records, True))
            records, refused = (records + found[0], refused + found[1]) if found else (records, refused)
        except (InputError, MachineError) as refusal:
            if not records:
                raise
            # What the ranks have measured is kept.
            refused.append(refusal)
            if job_rank() == 0:
                write_lines(out, records)
    if speaks():
        for error in refused:
            click.echo(f"mgg: not measured: {' '.join(str(error).split())}", err=True)
    if as_json:
        show({"out": str(out), "records": [record.model_dump() for record in records]}, True)
        return
    for record in records:
        line = f"D={record.dim} P={record.pes}  {record.median * 1e3:.3f} ms  {record.bytes_wire} bytes on the wire"
        if record.predicted is not None:
            line += f"  foretold {record.predicted * 1e3:.3f} ms{', picked by auto' if record.chosen else ''}"
        told = {key: value for key, value in record.options.items() if record.defaults.get(key) != value}
        given = f" ({', '.join(f'{key}={value}' for key, value in told.items())})" if told else ""
        dtype = f" {record.dtype}" if len(dtypes) > 1 else ""
        show({f"{record.technique}{given} {record.direction}{dtype}": line}, False)
