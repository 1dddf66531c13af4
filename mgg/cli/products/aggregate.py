"""``mgg aggregate``: check and time products."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from mgg import config
from mgg.cli.names import completes
from mgg.cli.options import (
    BACKEND,
    EMULATE,
    FOLDER,
    THREADS,
    CommaList,
    common,
    counted,
    grids_of,
    median_of,
    say,
    say_refused,
    show,
    split_assignments,
)
from mgg.errors import InputError
from mgg.network import Network

if TYPE_CHECKING:
    from mgg.records import AggregateRecord

_AGGREGATE = config.AggregateConfig()
_AUTO = "auto"


def _chosen(techniques: list[str], assignments: Iterable[str], variants: Iterable[str]) -> list[tuple[str, Any]]:
    """Each technique of --technique with each of its sets of options from --set and --variant."""
    from mgg.aggregate.variants import expand

    techniques = [name for name in techniques if name != _AUTO]
    if assignments and not techniques:
        raise InputError("--set: technique auto picks at default options; name the technique that has this option")
    plain, qualified = split_assignments(assignments, techniques)
    grids = grids_of(variants, techniques)
    return [(name, options) for name in techniques for options in expand(name, plain | qualified[name], grids[name])]


def _of_faults(record: AggregateRecord) -> str:
    """The part of a line about page faults, if they were requested."""
    if record.faults_untold:
        return f"  page faults not counted: {record.faults_untold}"
    if record.page_faults is None or record.migrated_bytes is None:
        return ""
    return f"  {record.page_faults:g} page faults, {record.migrated_bytes:.0f} bytes of pages moved"


def _of_profile(record: AggregateRecord) -> str:
    """The part of a line about a profile, if one was requested."""
    if record.profile_untold:
        return f"  not profiled: {record.profile_untold}"
    if record.occupancy is None or record.occupancy_limit is None or record.sm_utilization is None:
        return ""
    reached = f"occupancy {record.occupancy:.1%} of {record.occupancy_limit:.1%}"
    return f"  {reached}, SM utilization {record.sm_utilization:.1%}"


@click.command()
@click.argument("layout", type=FOLDER)
@click.option(
    "--technique", "techniques", type=CommaList(), required=True, shell_complete=completes("techniques"),
    help="technique, or several: mgg,halo (mgg list techniques); auto: the cost model picks one",
)  # fmt: skip
@click.option("--dim", "dims", type=CommaList(int), required=True, help="embedding columns, or several: 16,64")
@click.option(
    "--dtype", "dtypes", type=CommaList(choices=get_args(config.Dtype)), default=_AGGREGATE.dtypes,
    help=f"type of the embeddings, or both: fp32,bf16  [default: {','.join(_AGGREGATE.dtypes)}]",
)  # fmt: skip
@click.option("--transpose", is_flag=True, help="the transposed (backward) product")
@click.option("--set", "assignments", multiple=True, metavar="[TECHNIQUE.]KEY=VALUE", help="option of a technique")
@click.option(
    "--variant", "variants", multiple=True, metavar="TECHNIQUE[:KEY=VALUE[,VALUE...]]...",
    help="time a technique with these options on top of --set; lists stand for all combinations;"
    " may be repeated, for example --variant mgg --variant mgg:ps=2,4:dist=1,8",
)  # fmt: skip
@BACKEND
@THREADS
@counted(
    _AGGREGATE, "how often to measure everything, each time on new plans; the first launch is checked",
    "untimed products per launch", "timed products per launch",
)  # fmt: skip
@EMULATE
@click.option("--no-check", is_flag=True, help="skip the comparison with a float64 product")
@click.option("--breakdown", is_flag=True, help="also time each product with its transfers left out")
@click.option("--faults", is_flag=True, help="also count page faults of GPUs, for techniques over unified memory")
@click.option("--profile", is_flag=True, help="also measure occupancy and SM utilization, by Nsight Compute (ncu)")
@click.option("--out", type=FOLDER, required=True, help="file of records (JSON lines); records of the same layout stay")
@click.option("--replace", is_flag=True, help="replace the records in --out instead")
@common
def aggregate(
    layout: Path, techniques: list[str], dims: list[int], dtypes: list[str], transpose: bool,
    assignments: tuple[str, ...], variants: tuple[str, ...], backend: str, threads: int, launches: int, warmup: int,
    iterations: int, network: Network | None, no_check: bool, breakdown: bool, faults: bool, profile: bool, out: Path,
    replace: bool, as_json: bool,
) -> None:  # fmt: skip
    """Check and time the aggregation of LAYOUT; more than one PE: mpiexec -n P mgg aggregate ..."""
    from mgg.aggregate.job import AggregateJob
    from mgg.aggregate.measure import TimingProtocol

    chosen = _chosen(techniques, assignments, variants)
    direction = "transpose" if transpose else "forward"
    protocol = TimingProtocol(direction, warmup, iterations, not no_check, breakdown, faults, launches=launches)
    job = AggregateJob(
        layout, backend, dims, dtypes, protocol, _AUTO in techniques, out, replace, profile, network, threads
    )
    records, refused = job.run(chosen)
    say_refused(refused)
    if faults and not any(record.faults_untold or record.page_faults is not None for record in records):
        say("mgg: --faults: nothing counted: technique mgg_uvm alone is over unified memory", err=True)
    # All records have the job's machine. Of techniques that run on threads of rank 0, other ranks have none.
    if records and (machine := records[0].machine).oversubscribed(pes := records[0].pes):
        units = f"{len(machine.gpus)} GPUs" if machine.gpus else f"{machine.cores} cores"
        say(f"mgg: {pes} PEs take turns on {units}: these times do not show how it scales", err=True)
    if as_json:
        show({"out": str(out), "records": [record.model_dump() for record in records]}, True)
        return
    for record in records:
        line = f"D={record.dim} P={record.pes}  {median_of(record)}  {record.bytes_wire} bytes on the wire"
        checked = record.error is not None and record.tolerance is not None
        line += f"  check passed, {record.error:.1e} of {record.tolerance:.0e}" if checked else "  not checked"
        if record.predicted is not None:
            line += f"  predicted {record.predicted * 1e3:.3f} ms{', picked by auto' if record.chosen else ''}"
        line += _of_faults(record) + _of_profile(record)
        if record.emulated is not None:
            line += f"  {record.emulated}"
        changed = {key: value for key, value in record.options.items() if record.defaults.get(key) != value}
        given = f" ({', '.join(f'{key}={value}' for key, value in changed.items())})" if changed else ""
        dtype = f" {record.dtype}" if len(dtypes) > 1 else ""
        show({f"{record.technique}{given} {record.direction}{dtype}": line}, False)
