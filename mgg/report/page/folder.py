"""The report folder: page, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mgg.errors import InputError
from mgg.files import Kind, replace_folder
from mgg.report.figures import files
from mgg.report.page.render import Page, render
from mgg.report.papers.catalogue import FORESEEN, check_figure
from mgg.report.tables import choice, jobs, mgg_sweep, requests
from mgg.report.tables.collect import collect
from mgg.report.tables.columns import TABLES
from mgg.report.tables.comparisons import compare
from mgg.report.tables.compute import compute, to_arrow
from mgg.schema import nearest

PAGE = "index.html"
#: Marker: a file that only reports have. With index.html as marker, a web site could be replaced.
KIND = Kind(
    "machines.parquet",
    (PAGE, *files.FOLDERS.values(), *(f"{name}.{suffix}" for name in TABLES for suffix in ("csv", "parquet"))),
)


def write(
    paths: Sequence[Path],
    out: Path,
    title: str,
    figures: Sequence[str],
    notes: Mapping[str, str],
    job_file: Path | None,
) -> None:
    """Write the report of ``paths``; see ``mgg.report.build``."""
    for name in figures:
        check_figure(name)
    if unused := [name for name in notes if name not in figures]:
        raise InputError(f"note on {unused[0]!r}: this figure is not shown; {nearest(unused[0], figures)}")
    rows = compute(collect(paths))
    rows["figures"] = compare(
        [name for name in dict.fromkeys(figures) if name not in FORESEEN], rows["aggregate"], rows["training"]
    )
    rows["choices"] = choice.compute(rows["aggregate"])
    rows["knobs"] = mgg_sweep.compute(rows["aggregate"])
    rows["jobs"] = jobs.compute(jobs.read_jobs(job_file))
    rows["requests"] = requests.compute(rows["jobs"])
    tables = {name: to_arrow(name, rows[name]) for name in TABLES}
    page = render(rows, title, [(name, notes.get(name, "")) for name in dict.fromkeys(figures)])
    with replace_folder(out, KIND) as folder:
        _fill(folder, page, tables)


def _fill(folder: Path, page: Page, tables: dict[str, pa.Table]) -> None:
    (folder / PAGE).write_text(page.html, encoding="utf-8")
    for name in files.FOLDERS.values():
        (folder / name).mkdir()
    for path, text in files.files(page.illustrated).items():
        (folder / path).write_text(text, encoding="utf-8")
    for name, table in tables.items():
        pa.csv.write_csv(table, folder / f"{name}.csv")
        pa.parquet.write_table(table, folder / f"{name}.parquet")
