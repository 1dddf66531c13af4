"""The table of faults: python benchmarks/faults.py RECORD.

RECORD is what the fault tests wrote (`make test-faults`), JSON lines: fault and case of each that was injected; then,
once weights and tables were those of an undisturbed run, the same with the seconds of the command that recovered and
what it had to compute again. Rows of Markdown go to standard output.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import click
from common import head, row


def rows(records: Sequence[Path]) -> list[str]:
    """A row a fault: injected and recovered, the slowest recovery, the most that was lost."""
    found: dict[str, list[dict]] = defaultdict(list)
    for line in [line for record in records for line in record.read_text(encoding="utf-8").splitlines()]:
        each = json.loads(line)
        found[each["fault"]].append(each)
    table = [head("fault", "injected", "recovered", "slowest, s", "median, s", "most work lost")]
    for fault, each in found.items():
        done = [one for one in each if "seconds" in one]
        seconds = [one["seconds"] for one in done] or [math.nan]
        lost = max((one["lost"] for one in done), key=lost_seconds, default="")
        times = f"{max(seconds):.1f}", f"{statistics.median(seconds):.1f}"
        table.append(row(fault, len(each) - len(done), len(done), *times, lost or "-"))
    return table


def lost_seconds(lost: str) -> float:
    """Seconds in ``3 epochs, 0.12 s`` or ``0.5 s``; 0 where it says no number."""
    words = lost.removesuffix(" s").split()
    try:
        return float(words[-1])
    except (IndexError, ValueError):
        return 0.0


@click.command()
@click.argument("records", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(records: tuple[Path, ...]) -> None:
    """Rows of Markdown of RECORDS."""
    click.echo("\n".join(rows(records)))


if __name__ == "__main__":
    main()
