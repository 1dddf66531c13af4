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
            docs/tables.md, and the page's figures as SVG files (``figure_files.FOLDERS``).
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
    from mgg.report.page import folder

    folder.write(paths, out, title, figures, notes, job_file)
