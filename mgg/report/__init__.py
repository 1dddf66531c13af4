"""Stage report: one page and its tables from the records of aggregate and train; needs neither GPU nor MPI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mgg.files import Kind, replace_folder
from mgg.report.collect import collect
from mgg.report.columns import TABLES
from mgg.report.page import render
from mgg.report.tables import compute, to_arrow

__all__ = ["build"]

PAGE = "index.html"
#: A file that no folder but a report has; index.html alone would let a web site be replaced.
KIND = Kind("machines.parquet", (PAGE, *(f"{name}.{suffix}" for name in TABLES for suffix in ("csv", "parquet"))))


def build(paths: Sequence[Path], out: Path, title: str) -> None:
    """Write the report of ``paths`` into the folder ``out``, which replaces an earlier report.

    Args:
        paths: files of AggregateRecord lines (``.jsonl``) and run folders of training, in any order; the same records
            give the same bytes.
        out: the folder; gets ``index.html``, which needs nothing beside it and no network, and for each table of
            docs/report.md a CSV and a Parquet file.
        title: heading of the page.

    Raises:
        InputError: no records, an unreadable or altered record (names file and line), two different results of one
            measurement (names both files), or ``out`` is something else than a report.
        MachineError: the disk is full or fails. After any error the old report is as it was.
    """
    rows = compute(collect(paths))
    tables = {name: to_arrow(name, rows[name]) for name in TABLES}
    page = render(rows, title)
    with replace_folder(out, KIND) as folder:
        _write(folder, page, tables)


def _write(folder: Path, page: str, tables: dict[str, pa.Table]) -> None:
    (folder / PAGE).write_text(page, encoding="utf-8")
    for name, table in tables.items():
        pa.csv.write_csv(table, folder / f"{name}.csv")
        pa.parquet.write_table(table, folder / f"{name}.parquet")
