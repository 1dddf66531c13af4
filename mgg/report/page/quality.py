"""The section on partitions: balance, cut and communication volumes, as in CoLa's tables 2 and 3."""

from __future__ import annotations

from mgg.report.page.parts import Cell, Grid, Part, Section, pivot, table
from mgg.report.tables.compute import Row, Rows, group
from mgg.report.tables.numbers import count

#: Largest number of PEs whose pairs are readable as a table.
MOST_PAIRED = 16
SHADES = 8
#: Columns of volumes between workgroups.
_BETWEEN = ("vi_cg", "vi_fr", "vi_fc", "vi_cola")
#: By column of table quality: its heading, and what a cell shows, its tooltip last.
_COLUMNS = {
    "imbalance": ("imbalance", "{imbalance:n}\n\nworkgroups: {workgroup_imbalance:n}"),
    "edge_cut": ("edge cut", "{edge_cut:,}\n{edge_cut_share:%}"),
    "halo_rows": ("halo rows", "{halo_rows:,}\n\nlargest PE: {halo_rows_max:,}"),
    "v_cg": ("V_CG", "{v_cg:MiB}\n\n{redundant_cg:%} beyond V_FC"),
    "v_fr": ("V_FR", "{v_fr:MiB}\n\n{redundant_fr:%} beyond V_FC"),
    "v_fc": ("V_FC", "{v_fc:MiB}"),
    "v_cover": ("V_cover", "{v_cover:MiB}\n\n{covered:%} of V_FC"),
    **{name: (name.upper().replace("COLA", "CoLa"), f"{{{name}:MiB}}") for name in _BETWEEN},
}


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section, with a part for each graph; None if no partition was given."""
    rows = [_told(row) for row in tables["quality"] if row["pes"] > 1]
    if not rows:
        return None
    parts = []
    for (graph,), found in group(rows, "graph").items():
        halos = [row for row in tables["halos"] if row["graph"] == graph and 2 < row["pes"] <= MOST_PAIRED]
        schemes = group(halos, "scheme").values()
        parts.append(Part(graph, "", [_volumes(found, graph), *(_heat(each, graph) for each in schemes)]))
    intro = (
        "Volumes of one product, all PEs; nothing ran. Small: % of arcs; a pointer tells shares of "
        "volumes. A dash: one workgroup, or not counted."
    )
    return Section("quality", "Partitions", intro, parts, folded=True)


def _told(row: Row) -> Row:
    """Return a row of table quality without what one workgroup does not have."""
    single = ("workgroup_imbalance", *_BETWEEN) if row["pes"] <= row["workgroup"] else ()
    covered = row["v_cover"] / row["v_fc"] if row["v_cover"] is not None and row["v_fc"] else None
    return row | dict.fromkeys(single) | {"covered": covered}


def _volumes(rows: Rows, name: str) -> Grid:
    def heading(row: Row) -> str:
        group_ = count(row["workgroup"], "PE")
        return f"{row['scheme']}, workgroups of {group_}, D\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{row['dim']}"

    columns = [shown for column, shown in _COLUMNS.items() if any(row[column] is not None for row in rows)]
    caption, by = f"{name}: balance, cut and volumes (MiB) of one product", ["scheme", "workgroup", "dim"]
    return table(caption, "PEs", columns, rows, lambda row: str(row["pes"]), by=by, heading=heading)


def _heat(halos: Rows, name: str) -> Grid:
    """Return the halo rows between pairs of a scheme for the most PEs that are readable."""
    pes = max(row["pes"] for row in halos)
    rows = [row for row in halos if row["pes"] == pes]
    most = max(row["rows"] for row in rows)

    def cell(row: Row) -> Cell:
        if row["pe"] == row["owner"]:
            return Cell("")
        heat = -(-SHADES * row["rows"] // most) if most else 0
        return Cell("", heat=heat, hint=f"PE {row['pe']} needs {row['rows']:,} rows of PE {row['owner']}")

    caption = f"{name}, {rows[0]['scheme']}, {pes} PEs: rows that each PE (left) needs of each owner (top)"
    rows = sorted([*rows, *({"pe": pe, "owner": pe} for pe in range(pes))], key=lambda row: row["pe"])
    return pivot(f"{caption}, at most {most:,}", "PE", rows, "pe", "owner", cell, at=lambda _: "", dense=True)
