"""The section on partitions: balance, cut and communication volumes, as in CoLa's tables 2 and 3."""

from __future__ import annotations

from mgg.report.page.parts import Cell, Grid, Part, Section
from mgg.report.tables.compute import Row, Rows, group
from mgg.report.tables.numbers import count, number, percent

MIB = 2**20
#: Largest number of PEs whose pairs are readable as a table.
MOST_PAIRED = 16
SHADES = 8
_COLUMNS = (
    "imbalance", "edge cut", "halo rows", "V_CG", "V_FR", "V_FC", "V_cover", "VI_CG", "VI_FR", "VI_FC", "VI_CoLa",
)  # fmt: skip


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section, with a part for each graph; None if no partition was given."""
    rows = [row for row in tables["quality"] if row["pes"] > 1]
    if not rows:
        return None
    parts = []
    for (graph,), found in group(rows, "graph").items():
        halos = [row for row in tables["halos"] if row["graph"] == graph]
        parts.append(Part(graph, "", [_volumes(found, graph), *_heat(halos, graph)]))
    intro = (
        "Volumes of one product, all PEs; nothing ran. Small: % of arcs; a pointer tells shares of "
        "volumes. Empty: one workgroup, or not counted."
    )
    return Section("quality", "Partitions", intro, parts, folded=True)


def _volumes(rows: Rows, name: str) -> Grid:
    groups = []
    for (scheme, workgroup, dim), found in group(rows, "scheme", "workgroup", "dim").items():
        heading = f"{scheme}, workgroups of {count(workgroup, 'PE')}, D\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{dim}"
        groups.append((heading, [(str(row["pes"]), _cells(row)) for row in found]))
    # Drop empty columns.
    kept = [n for n in range(len(_COLUMNS)) if any(cells[n].text for _, lines in groups for _, cells in lines)]
    groups = [(heading, [(pes, [cells[n] for n in kept]) for pes, cells in lines]) for heading, lines in groups]
    columns = [_COLUMNS[n] for n in kept]
    return Grid(f"{name}: balance, cut and volumes (MiB) of one product", "PEs", columns, groups)


def _cells(row: Row) -> list[Cell]:
    several = row["pes"] > row["workgroup"]
    cover = row["v_cover"] / row["v_fc"] if row["v_cover"] is not None and row["v_fc"] else None
    between = [_mib(row[column]) if several else "" for column in ("vi_cg", "vi_fr", "vi_fc", "vi_cola")]
    return [
        Cell(number(row["imbalance"]), hint=f"workgroups: {number(row['workgroup_imbalance'])}" if several else ""),
        Cell(f"{row['edge_cut']:,}", percent(row["edge_cut_share"]).removesuffix(" %")),
        Cell(f"{row['halo_rows']:,}", hint=f"largest PE: {row['halo_rows_max']:,}"),
        Cell(_mib(row["v_cg"]), hint=_of("beyond V_FC", row["redundant_cg"])),
        Cell(_mib(row["v_fr"]), hint=_of("beyond V_FC", row["redundant_fr"])),
        Cell(_mib(row["v_fc"])),
        Cell("") if row["v_cover"] is None else Cell(_mib(row["v_cover"]), hint=_of("of V_FC", cover)),
        *map(Cell, between),
    ]


def _mib(volume: int) -> str:
    return number(volume / MIB)


def _of(what: str, share: float | None) -> str:
    return "" if share is None else f"{percent(share)} {what}"


def _heat(halos: Rows, name: str) -> list[Grid]:
    """Return, for each scheme, the halo rows between pairs for the most PEs that are readable."""
    grids = []
    for (scheme,), found in group((row for row in halos if 2 < row["pes"] <= MOST_PAIRED), "scheme").items():
        pes = max(row["pes"] for row in found)
        at = {(row["pe"], row["owner"]): row["rows"] for row in found if row["pes"] == pes}
        most = max(at.values())
        lines = [(str(p), [_shaded(p, q, at.get((p, q)), most) for q in range(pes)]) for p in range(pes)]
        caption = f"{name}, {scheme}, {pes} PEs: rows that each PE (left) needs of each owner (top), at most {most:,}"
        grids.append(Grid(caption, "PE", [""] * pes, [("", lines)], dense=True))
    return grids


def _shaded(pe: int, owner: int, rows: int | None, most: int) -> Cell:
    if rows is None:
        return Cell("")
    return Cell("", heat=-(-SHADES * rows // most) if most else 0, hint=f"PE {pe} needs {rows:,} rows of PE {owner}")
