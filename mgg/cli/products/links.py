"""``mgg links``: measure the links between the PEs of a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mgg.cli.options import BACKEND, FOLDER, common, show, speaks, whole
from mgg.config import MAX_PES
from mgg.errors import InputError

if TYPE_CHECKING:
    from mgg.cost.product import MachineModel


@click.command()
@whole("--pes", 1, MAX_PES, None, "number of PEs without a launcher  [default: 1]")
@BACKEND
@click.option("--refresh", is_flag=True, help="measure again, even if this machine was measured before")
@click.option("--latency", is_flag=True, help="measure transfers of 0.25 to 8 MiB instead, row by row and at once")
@click.option("--out", type=FOLDER, help="file for mgg predict --machine; with --latency records for mgg report")
@click.option("--replace", is_flag=True, help="with --latency: replace the records in --out")
@common
def links(
    pes: int | None, backend: str, refresh: bool, latency: bool, out: Path | None, replace: bool, as_json: bool
) -> None:  # fmt: skip
    """Measure the links and operators of this job, and keep the result for technique auto; mpiexec -n P mgg links."""
    if latency:
        if refresh:
            raise InputError("links: --latency measures every time: leave out --refresh")
        _latency(pes, backend, out, replace, as_json)
        return
    if replace:
        raise InputError("links: --replace needs --latency; without it --out is always replaced")
    from mgg.backend import World, job_size, launch, together
    from mgg.cost.machines import found_or_measured, write
    from mgg.files import check_file_output

    def program(world: World) -> tuple[MachineModel, Path | None]:
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
        text = f"{link.bandwidth / 1e9:.4g} GB/s, {link.latency * 1e6:.3g} us per request"
        text += f", {link.message * 1e9:.3g} ns per row" if link.message else ""
        show({name: f"{text} ({link.source})"}, False)
    fitted = " (part of the fitted calls of operators)" if machine.gpu else ""
    show({"barrier": f"{machine.links.barrier * 1e6:.3g} us{fitted}"}, False)


def _latency(pes: int | None, backend: str, out: Path | None, replace: bool, as_json: bool) -> None:
    """Measure transfers of several sizes, print them and write their records."""
    from mgg.backend import World, job_size, launch, together
    from mgg.cost.latency import measure
    from mgg.records import add_lines, check_lines_output
    from mgg.records.latency import LatencyRecord

    def program(world: World) -> list[LatencyRecord]:
        if out is not None:
            together(
                world, lambda: check_lines_output(out, LatencyRecord, replace=replace) if world.rank == 0 else None
            )
        return measure(world)

    records = launch(backend, lambda: pes or job_size() or 1, program)[0]
    if out is not None and speaks():
        add_lines(out, records, replace=replace)
    if as_json:
        show({"records": [record.model_dump() for record in records]}, True)
        return
    for record in records:
        name = f"{record.link}, {record.bytes / 2**20:g} MiB, {record.grain}"
        show({name: f"{record.median * 1e6:.4g} us, {record.bytes / record.median / 1e9:.4g} GB/s"}, False)
