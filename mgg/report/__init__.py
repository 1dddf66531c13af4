"""Stage report: a page and its tables, made from the records of aggregate and train without GPU or MPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

__all__ = ["build"]


def build(
    paths: Sequence[Path],
    out: Path,
    title: str,
    figures: Sequence[str] = (),
    notes: Mapping[str, str] = MappingProxyType({}),
    job_file: Path | None = None,
) -> None:
    """Write the report of ``paths`` into the folder ``out``, which replaces an earlier report.

    Args:
        paths: files of AggregateRecord or PredictionRecord lines (``.jsonl``) and run folders of training, in any
            order; the same records give the same bytes.
        out: the output folder. It gets a self-contained ``index.html``, a CSV and a Parquet file for each table of
            docs/reference/tables.md, and the page's figures as SVG files (``figure_files.FOLDERS``).
        title: the page's heading.
        figures: names in ``experiments.EXPERIMENTS`` or ``foreseen.FORESEEN``: the papers' figures and tables to
            compare with these records.
        notes: for each figure, a remark shown below it.
        job_file: JobRecord lines of the workflow's jobs; a missing file counts as empty.

    Raises:
        InputError: an unknown figure, a note on a figure that is not shown, no records, an unreadable or altered
            record (names file and line), two different results of one measurement (names both files), or ``out`` is
            not a report folder.
        MachineError: the disk is full or fails. After any error the old report is unchanged.
    """
    # Imported late: each workflow process reads names from this package and should not wait for matplotlib.
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from mgg.errors import InputError
    from mgg.files import Kind, replace_folder
    from mgg.report.figures import files
    from mgg.report.page.render import render
    from mgg.report.papers.catalogue import FORESEEN, check_figure
    from mgg.report.tables import choice, jobs, mgg_sweep
    from mgg.report.tables.collect import collect
    from mgg.report.tables.columns import TABLES
    from mgg.report.tables.comparisons import compare
    from mgg.report.tables.compute import compute, to_arrow
    from mgg.schema import nearest

    for name in figures:
        check_figure(name)
    if unused := [name for name in notes if name not in figures]:
        raise InputError(f"note on {unused[0]!r}: this figure is not shown; {nearest(unused[0], figures)}")
    shown = list(dict.fromkeys(figures))
    rows = compute(collect(paths))
    rows["figures"] = compare([name for name in shown if name not in FORESEEN], rows["aggregate"], rows["training"])
    rows |= {"choices": choice.compute(rows["aggregate"]), "mgg_sweep": mgg_sweep.compute(rows["aggregate"])}
    rows["jobs"] = jobs.compute(jobs.read_jobs(job_file))
    rows["requests"] = jobs.compute_requests(rows["jobs"])
    page = render(rows, title, [(name, notes.get(name, "")) for name in shown])
    of_tables = [f"{name}.{suffix}" for name in (*TABLES, "knobs") for suffix in ("csv", "parquet")]
    # Marker: a file that only reports have. With index.html as marker, a web site could be replaced. Reports of schema
    # version 3 have a table knobs.
    with replace_folder(out, Kind("machines.parquet", ("index.html", *files.FOLDERS.values(), *of_tables))) as folder:
        for name in files.FOLDERS.values():
            (folder / name).mkdir()
        for path, text in {"index.html": page.html, **files.files(page.illustrated)}.items():
            (folder / path).write_text(text, encoding="utf-8")
        for name in TABLES:
            table = to_arrow(name, rows[name])
            pa.csv.write_csv(table, folder / f"{name}.csv")
            pa.parquet.write_table(table, folder / f"{name}.parquet")
