"""Conditions of a section's measurements that weaken its comparisons."""

from __future__ import annotations

from mgg.report.papers.catalogue import stand_in
from mgg.report.tables.compute import Rows, shared
from mgg.report.tables.numbers import listing

#: With more stand-ins than this, only the table of graphs names them.
MOST = 4


def remarks(graphs: Rows, rows: Rows) -> list[str]:
    """Return sentences on devices, stand-ins and shared cores of ``rows``, which name machine, graph, device, PEs."""
    sentences = []
    on_cpus = [row["device"] != "GPUs" for row in rows]
    if any(on_cpus):
        these = "These PEs" if all(on_cpus) else "Some of these PEs"
        sentences.append(f"{these} were CPU cores, which move and compute in other ways than the paper's GPUs.")
    sentences += stand_ins(graphs, rows)
    beyond = sorted({row["pes"] for row in rows if row["oversubscribed"]})
    if beyond:
        sentences.append(
            f"With {listing([str(p) for p in beyond])} PEs they shared {shared(rows)}, which blurs all of it."
        )
    return sentences


def stand_ins(graphs: Rows, rows: Rows) -> list[str]:
    """Return a sentence on the generated graphs in ``rows``: the real graph that each stands for, and both sizes."""
    shown = {(row["dataset"], row["graph_hash"]) for row in rows}
    told = []
    for row in graphs:
        real = stand_in(row["dataset"]) if (row["dataset"], row["graph_hash"]) in shown else None
        if real:
            mine = f"{row['nodes']:,} nodes, {row['arcs']:,} arcs"
            told.append(f"{row['dataset']} ({mine}) for {real.name} ({real.nodes:,} nodes, {real.counted})")
    if len(told) > MOST:
        return [f"{len(told)} generated graphs stand for the paper's; table “Graphs” says which for which."]
    return [f"Generated graphs stand for the paper's: {listing(told)}."] if told else []
