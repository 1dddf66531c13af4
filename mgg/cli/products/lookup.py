"""``mgg lookup``: check and time embedding lookups."""

from __future__ import annotations

from pathlib import Path

import click

from mgg import config
from mgg.cli.options import BACKEND, FOLDER, CommaList, common, counted, median_of, say_refused, show, whole

_LOOKUP = config.LookupConfig()
_MOST = 1 << 24


@click.command()
@click.argument("data", type=FOLDER)
@click.option(
    "--sides", type=CommaList(choices=config.LOOKUP_SIDES), default=",".join(config.LOOKUP_SIDES), show_default=True,
    help="ways to look up rows (docs/concepts/lookup.md); the first is compared with each other one",
)  # fmt: skip
@whole("--dim", 1, config.MAX_DIM, _LOOKUP.dim, "columns of the tables")
@click.option(
    "--batches", type=CommaList(int, most=_MOST), default=",".join(map(str, _LOOKUP.batches)), show_default=True,
    help="samples per batch over all PEs, or several sizes: 1024,2048",
)  # fmt: skip
@BACKEND
@whole(
    "--pes", 1, config.MAX_PES, None,
    "number of PEs; must equal the ranks of mpiexec or srun  [default: the ranks, else 1]",
)  # fmt: skip
@counted(
    _LOOKUP, "how often to measure everything, each time on new tables; the first launch is checked",
    "untimed batches per launch", "timed batches per launch",
)  # fmt: skip
@click.option("--no-check", is_flag=True, help="skip the comparison with float64 sums")
@click.option("--out", type=FOLDER, help="file of records (JSON lines); records of the same samples stay")
@click.option("--replace", is_flag=True, help="replace the records in --out instead")
@common
def lookup(
    data: Path, sides: list[str], dim: int, batches: list[int], backend: str, pes: int | None, launches: int,
    warmup: int, iterations: int, no_check: bool, out: Path | None, replace: bool, as_json: bool,
) -> None:  # fmt: skip
    """Check and time lookups of DATA, samples of mgg generate criteo-like or mgg criteo.

    More than one PE: mpiexec -n P mgg lookup ..., or --backend simulated --pes P.
    """
    from mgg.lookup.job import LookupJob
    from mgg.lookup.measure import LookupProtocol
    from mgg.records.lookup import by_side, crossovers
    from mgg.records.lookup import told as sentence

    protocol = LookupProtocol(dim, sorted(batches), warmup, iterations, launches, not no_check)
    records, refused = LookupJob(data, backend, pes, sides, protocol, out, replace).run()
    found = crossovers(by_side(records))
    say_refused(refused)
    if as_json:
        facts = {"records": [each.model_dump() for each in records], "crossovers": [each._asdict() for each in found]}
        show({"out": None if out is None else str(out), **facts}, True)
        return
    for record in records:
        line = (
            f"{median_of(record)}  quartiles {record.q1 * 1e3:.3f} and {record.q3 * 1e3:.3f}  {record.rate:.4g} rows/s"
        )
        line += f"  {record.bytes_wire // record.timed} bytes  {record.remote_share:.1%} remote  {record.transport}"
        show({f"{record.side} batch={record.batch} D={record.dim} P={record.pes}": line}, False)
    for each in found:
        show({"crossover": sentence(each)}, False)
