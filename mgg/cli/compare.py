"""``mgg compare``: what became slower or less accurate from one report to another."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from mgg.cli.options import FOLDER, common, show, table
from mgg.errors import CheckError


class Share(click.ParamType):
    """A percentage such as ``5%``, converted to a share."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share: 0.05 for 5%."""
        if isinstance(value, float):
            return value
        try:
            share = float(value.removesuffix("%")) / 100
        except ValueError:
            share = -1.0
        if not (value.endswith("%") and 0 <= share < float("inf")):
            self.fail(f"{value!r} is not a percentage such as 5%", param, ctx)
        return share


@click.command()
@click.argument("first", type=FOLDER, metavar="REPORT_A")
@click.argument("second", type=FOLDER, metavar="REPORT_B")
@click.option("--threshold", type=Share(), default="5%", show_default=True, help="what may be worse without an error")
@common
def compare(first: Path, second: Path, threshold: float, as_json: bool) -> None:
    """Compare two report folders: times of products and epochs, and test accuracies.

    Exit code 4 where something of REPORT_B is slower, or less accurate, than in REPORT_A by more than the threshold.
    """
    from mgg.report.tables.regressions import regressions

    rows = regressions(first, second, threshold)
    counts = Counter(row["result"] for row in rows)
    if as_json:
        show({"first": str(first), "second": str(second), "threshold": threshold, "rows": rows}, True)
    else:
        click.echo(table([_line(row) for row in rows]))
        click.echo(", ".join(f"{number} {result}" for result, number in counts.items()))
    if counts["worse"]:
        raise CheckError(f"{counts['worse']} of {len(rows)} measurements are worse by more than {100 * threshold:.4g}%")


def _line(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table that people read."""
    of = {"aggregate": ("direction", "dim"), "training": ("model", "side", "seed")}[row["table"]]
    what = " ".join(f"{key}={row[key]}" if isinstance(row[key], int) else str(row[key]) for key in of)
    options = row["options"].strip("{}").replace('"', "").replace(": ", "=")
    noise = ", launches overlap" if row["overlap"] and row["result"] != "same" else ""
    change = "" if row["change"] is None else f"{row['change']:+.1%}"
    return {
        "dataset": row["dataset"], "technique": f"{row['technique']} {options}".strip(), "what": what,
        "pes": row["pes"], "dtype": row["dtype"], "measure": row["measure"], "A": row["first"], "B": row["second"],
        "change": change, "result": row["result"] + noise,
    }  # fmt: skip
