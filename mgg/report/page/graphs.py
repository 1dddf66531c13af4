"""What ran where: machines, graphs and their properties, and how graphs were split."""

from __future__ import annotations

from mgg.report.page.parts import Cell, Grid, Part, Section, table
from mgg.report.papers.catalogue import stand_in
from mgg.report.tables.compute import Row, Rows
from mgg.report.tables.numbers import ABSENT, count

_DESCRIBED = [
    ("order", "{order}"),
    ("arcs of a row", "{degree_mean:n}\n± {degree_deviation:n}"),
    ("most", "{degree_largest:,}"),
    ("rows without arcs", "{empty_rows:,}"),
    ("communities", "{communities:,}"),
    ("nodes of one", "{community_mean:n}\n± {community_deviation:n}"),
    ("most", "{community_largest:,}"),
    ("span", "{span:n}"),
    ("span in rabbit order", "{span_rabbit:n}\n{share:%}"),
    ("the paper's test", "{test}"),
    ("rabbit order took", "{rabbit_s:q}"),
]
_PARTITIONS = [
    ("imbalance (1 is even)", "{imbalance:n}"),
    ("edge cut, arcs", "{edge_cut:,} ({edge_cut_share:%})"),
    ("halo rows, all PEs", "{halo_rows:,}"),
]
_GRAPHS = [
    ("nodes", "{nodes:,}"), ("arcs", "{arcs:,}"), ("degree", "{arcs_per_node:n}"), ("hash", "{graph_hash:.12}"),
]  # fmt: skip
_STANDS_FOR = ("stands for", "{real.name}\n{real.nodes:,} nodes, {real.counted}")
#: Properties of a machine; those that no machine has are left out.
_MACHINES = {
    "processor": "{cpu}", "cores": "{cores}", "threads per CPU PE": "{threads}", "memory": "{memory_gib} GiB",
    "GPUs": "{gpus}", "system": "{system}", "place": "{place}", "network": "{emulated}", "backends": "{backends}",
    "records": "{records}", "versions": "{versions}", "commit": "{commit}", "id": "{machine_id}",
}  # fmt: skip


def described(tables: dict[str, Rows]) -> Section | None:
    """Return the section on described graphs, one line per graph; None if no graph was described."""
    rows = [
        row
        | {"share": row["span_rabbit"] / row["span"] if row["span_rabbit"] is not None and row["span"] else None}
        | {"test": "renumber" if row["reorder_pays"] else "leave it"}
        for row in tables["described"]
    ]
    if not rows:
        return None
    note = (
        "Behind ±: standard deviations. Communities: those that rabbit order finds at resolution 1. Span: the mean "
        "distance between the ids of an arc's ends, as the nodes are numbered, and in rabbit order with its share of "
        "the former; a random order of n nodes has about n / 3. The paper's test: sqrt(span) > floor(sqrt(n) / 100). "
        "Rabbit order: one core, the graph in memory."
    )
    caption = "What decides how a graph is aggregated"
    grid = table(caption, "graph", _DESCRIBED, rows, "graph", note, words=["order"])
    intro = "By mgg describe: what GNNAdvisor (OSDI'21, section 3) extracts of a graph before it chooses."
    return Section("described", "What the graphs are like", intro, [Part("Graphs", "", [grid])])


def where(tables: dict[str, Rows], folded: bool) -> Section:
    """Return the section on machines, graphs and splits."""
    machines, graphs, splits = tables["machines"], _real(tables["graphs"]), _splits(tables)
    grids = [_machines(machines)] if machines else []
    generated = any(row["real"] for row in graphs)
    note = "Stand-ins are generated: their numbers are not those of the real graphs." if generated else ""
    columns = [*_GRAPHS, *[_STANDS_FOR] * generated]
    grids.append(table("Graphs", "graph", columns, graphs, "graph", note, words=["stands for"]))
    if splits:
        caption, corner, line = "How each graph was split", "PEs, scheme, product", "pes, scheme, direction"
        grids.append(table(caption, corner, _PARTITIONS, splits, line, by=["graph"], heading="graph"))
    return Section("where", "What ran where" if machines else "Graphs", "", [Part("", "", grids)], folded)


def _real(graphs: Rows) -> Rows:
    return [row | {"real": stand_in(row["dataset"])} for row in graphs]


def _splits(tables: dict[str, Rows]) -> Rows:
    """Return how the timed products were split, unless the section on partitions covers it."""
    told = {(row["graph"], row["scheme"], "forward", row["pes"]) for row in tables["quality"]}
    rows = [row for row in tables["partitions"] if row["pes"] > 1]
    return [row for row in rows if (row["graph"], row["scheme"], row["direction"], row["pes"]) not in told]


def _machines(rows: Rows) -> Grid:
    """Return one column per machine, because its properties are sentences rather than numbers."""

    def told(row: Row) -> Row:
        low, high = row["cores_min"], row["cores_max"]
        cores = str(low) if low == high else f"{low} to {high}, by job"
        records = f"{count(row['timings'], 'timing')}, {count(row['runs'], 'training run')}"
        others = {"place": row["place"] or "by hand", "gpus": row["gpus"] or ABSENT, "commit": row["commit"] or ""}
        # The top of the page already says what ran on the only one.
        return row | others | {"cores": cores, "records": records * (len(rows) > 1)}

    machines = [told(row) for row in rows]
    lines = [(name, [Cell(text.format_map(row)) for row in machines]) for name, text in _MACHINES.items()]
    lines = [(name, cells) for name, cells in lines if any(cell.text for cell in cells)]
    return Grid("Machines and software", "machine", [row["machine"] for row in rows], [("", lines)], prose=True)
