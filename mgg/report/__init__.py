"""Stage report: one page and its tables from the records of aggregate and train; needs neither GPU nor MPI."""

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
        out: the folder; gets ``index.html``, which needs nothing beside it and no network, for each table of
            docs/tables.md a CSV and a Parquet file, and the page's figures as SVG files (``figure_files.FOLDERS``).
        title: heading of the page.
        figures: names of ``experiments.EXPERIMENTS`` or ``foreseen.FORESEEN``: figures and tables of papers to set
            beside these records.
        notes: by figure a remark that is shown below it.
        job_file: JobRecord lines of the workflow's jobs; a file that is not there holds none.

    Raises:
        InputError: an unknown figure, a note on a figure that is not shown, no records, an unreadable or altered
            record (names file and line), two different results of one measurement (names both files), or ``out`` is
            something else than a report.
        MachineError: the disk is full or fails. After any error the old report is as it was.
    """
    # The workflow reads names from this package in each of its processes: they do not wait for matplotlib.
    from mgg.report.page import folder

    folder.write(paths, out, title, figures, notes, job_file)
