"""What ran where: machines, graphs and their properties, how graphs were split, and the quality of partitions."""

from __future__ import annotations

from mgg.report.page.parts import Cell, Grid, Part, Section, chapter, grid, read
from mgg.report.papers.catalogue import stand_in
from mgg.report.tables.compute import Row, Rows, group
from mgg.report.tables.numbers import ABSENT, count

#: Largest number of PEs whose pairs are readable as a table.
MOST_PAIRED = 16
SHADES = 8


def described(found: dict[str, Rows]) -> Section | None:
    """Return the section on described graphs, one line per graph; None if no graph was described."""
    rows = [
        row
        | {"share": row["span_rabbit"] / row["span"] if row["span_rabbit"] is not None and row["span"] else None}
        | {"test": "renumber" if row["reorder_pays"] else "leave it"}
        for row in found["described"]
    ]
    return chapter("described", [Part("Graphs", "", [grid("described", rows)])] if rows else [])


def ran(found: dict[str, Rows], folded: bool) -> Section:
    """Return the section on machines, graphs and splits."""
    machines, graphs = found["machines"], [row | {"real": stand_in(row["dataset"])} for row in found["graphs"]]
    note = "Stand-ins are generated: their numbers are not those of the real graphs."
    note *= any(row["real"] for row in graphs)
    grids = [_machines(machines)] * bool(machines) + [grid("graphs", graphs, note=note)]
    # The section on partitions may cover splits of the timed products.
    told = {(row["graph"], row["scheme"], "forward", row["pes"]) for row in found["quality"]}
    splits = [row for row in found["partitions"] if row["pes"] > 1]
    splits = [row for row in splits if (row["graph"], row["scheme"], row["direction"], row["pes"]) not in told]
    grids += [grid("splits", splits)] * bool(splits)
    return Section("where", "What ran where" if machines else "Graphs", "", [Part("", "", grids)], folded)


def _machines(rows: Rows) -> Grid:
    """Return one column per machine, because its properties are sentences rather than numbers."""

    def told(row: Row) -> Row:
        low, high = row["cores_min"], row["cores_max"]
        cores = str(low) if low == high else f"{low} to {high}, by job"
        records = f"{count(row['timings'], 'timing')}, {count(row['runs'], 'training run')}"
        others = {"place": row["place"] or "by hand", "gpus": row["gpus"] or ABSENT, "commit": row["commit"] or ""}
        # The top of the page already says what ran on the only one.
        return row | others | {"cores": cores, "records": records * (len(rows) > 1)}

    made, machines = read("tables")["machines"], [told(row) for row in rows]
    lines = [(name, [Cell(text.format_map(row)) for row in machines]) for name, text in made["columns"].items()]
    lines = [(name, cells) for name, cells in lines if any(cell.text for cell in cells)]
    return Grid(made["caption"], made["corner"], [row["machine"] for row in rows], [("", lines)], prose=True)


def partitions(found: dict[str, Rows]) -> Section | None:
    """Return the section on partitions: balance, cut and volumes, as in CoLa's tables 2 and 3; None without any."""
    rows = [_volumes(row) for row in found["quality"] if row["pes"] > 1]
    parts = []
    for (graph,), alike in group(rows, "graph").items():
        halos = [row for row in found["halos"] if row["graph"] == graph and 2 < row["pes"] <= MOST_PAIRED]
        heats = [_heat(each) for each in group(halos, "scheme").values()]
        parts.append(Part(graph, "", [grid("partitions", alike, graph=graph), *heats]))
    return chapter("quality", parts, folded=True)


def _volumes(row: Row) -> Row:
    """Return a row of table quality without what one workgroup does not have."""
    single = ("workgroup_imbalance", "vi_cg", "vi_fr", "vi_fc", "vi_cola") if row["pes"] <= row["workgroup"] else ()
    covered = row["v_cover"] / row["v_fc"] if row["v_cover"] is not None and row["v_fc"] else None
    return row | dict.fromkeys(single) | {"covered": covered, "group": count(row["workgroup"], "PE")}


def _heat(halos: Rows) -> Grid:
    """Return the halo rows between pairs of a scheme for the most PEs that are readable."""
    pes = max(row["pes"] for row in halos)
    most = max(row["rows"] for row in halos if row["pes"] == pes)
    rows = [row | {"heat": -(-SHADES * row["rows"] // (most or 1))} for row in halos if row["pes"] == pes]
    rows += [{"pe": pe, "owner": pe, "rows": None} for pe in range(pes)]
    rows.sort(key=lambda row: row["pe"])
    return grid("halos", rows, graph=halos[0]["graph"], scheme=halos[0]["scheme"], pes=pes, most=f"{most:,}")
