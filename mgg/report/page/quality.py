"""The section on partitions: balance, cut and communication volumes, as in tables 2 and 3 of the CoLa paper."""

from __future__ import annotations

from mgg.report.page.parts import Cell, Grid, Part, Section
from mgg.report.tables.compute import Row, Rows, graph_names, group
from mgg.report.tables.numbers import ABSENT, count, number, percent

MIB = 2**20
#: Most PEs whose pairs are readable as a table.
MOST_PAIRED = 16
SHADES = 8
_COLUMNS = [
    "imbalance",
    "edge cut",
    "halo rows",
    "V_CG",
    "V_FR",
    "V_FC",
    "V_cover",
    "VI_CG",
    "VI_FR",
    "VI_FC",
    "VI_CoLa",
]


def section(tables: dict[str, Rows]) -> Section | None:
    """The section, a part for each graph; None where no partition was given."""
    rows = [row for row in tables["quality"] if row["pes"] > 1]
    if not rows:
        return None
    names = graph_names(tables["graphs"])
    parts = []
    for key, found in group(rows, "dataset", "graph_hash").items():
        halos = [row for row in tables["halos"] if (row["dataset"], row["graph_hash"]) == key]
        parts.append(Part(names[key], _intro(found), [_volumes(found, names[key]), *_heat(halos, names[key])]))
    intro = (
        "How well each graph splits over PEs, and what one product would then move, all PEs together; computed, "
        "nothing ran. V is what crosses PEs, VI the part between workgroups. Small: imbalance of workgroups, share of "
        "all arcs, halo of the largest PE, the redundant share of a volume beyond V_FC, of V_cover its share of V_FC. "
        "A dash: one workgroup, or not counted (partition.cover)."
    )
    return Section("quality", "Partitions: balance and communication", intro, parts, folded=True)


def _intro(rows: Rows) -> str:
    best = min(rows, key=lambda row: (-row["pes"], row["v_fc"], row["scheme"]))
    text = f"{best['pes']} PEs, {best['scheme']}: {percent(best['edge_cut_share'])} of the arcs cross PEs"
    if best["redundant_cg"] is not None:
        text += f", and {percent(best['redundant_cg'])} of what a broadcast of all rows moves is not needed"
    return f"{text}."


def _volumes(rows: Rows, name: str) -> Grid:
    groups = []
    for (scheme, workgroup, dim), found in group(rows, "scheme", "workgroup", "dim").items():
        heading = f"{scheme}, workgroups of {count(workgroup, 'PE')}, D\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{dim}"
        groups.append((heading, [(f"{row['pes']}\N{NO-BREAK SPACE}PEs", _cells(row)) for row in found]))
    columns = [*_COLUMNS[:3], *(f"{column} (MiB)" for column in _COLUMNS[3:])]
    # A column of dashes says no more than its heading.
    kept = [n for n in range(len(columns)) if any(cells[n].text != ABSENT for _, lines in groups for _, cells in lines)]
    groups = [(heading, [(pes, [cells[n] for n in kept]) for pes, cells in lines]) for heading, lines in groups]
    columns = [columns[n] for n in kept]
    return Grid(f"{name}: balance, cut and communication of one product", "PEs", columns, groups)


def _cells(row: Row) -> list[Cell]:
    several = row["pes"] > row["workgroup"]
    between = [_mib(row[column]) if several else ABSENT for column in ("vi_cg", "vi_fr", "vi_fc", "vi_cola")]
    return [
        Cell(number(row["imbalance"]), number(row["workgroup_imbalance"]) if several else ""),
        Cell(f"{row['edge_cut']:,}", percent(row["edge_cut_share"])),
        Cell(f"{row['halo_rows']:,}", f"{row['halo_rows_max']:,}"),
        Cell(_mib(row["v_cg"]), _redundant(row["redundant_cg"])),
        Cell(_mib(row["v_fr"]), _redundant(row["redundant_fr"])),
        Cell(_mib(row["v_fc"])),
        Cell(ABSENT) if row["v_cover"] is None else Cell(_mib(row["v_cover"]), _of_rows(row)),
        *map(Cell, between),
    ]


def _mib(volume: int) -> str:
    return number(volume / MIB)


def _of_rows(row: Row) -> str:
    return percent(row["v_cover"] / row["v_fc"]) if row["v_fc"] else ""


def _redundant(share: float | None) -> str:
    return "" if share is None else percent(share)


def _heat(halos: Rows, name: str) -> list[Grid]:
    """For each scheme the pairs of the most PEs that are readable."""
    grids = []
    for (scheme,), found in group((row for row in halos if 2 < row["pes"] <= MOST_PAIRED), "scheme").items():
        pes = max(row["pes"] for row in found)
        at = {(row["pe"], row["owner"]): row["rows"] for row in found if row["pes"] == pes}
        most = max(at.values())
        lines = [(str(p), [_shaded(p, q, at.get((p, q)), most) for q in range(pes)]) for p in range(pes)]
        caption = f"{name}, {scheme}, {pes} PEs: rows that each PE (left) needs of each owner (top)"
        note = f"The stronger the shade, the more rows: {most:,} at most; a pointer tells each."
        grids.append(Grid(caption, "PE", [""] * pes, [("", lines)], note, dense=True))
    return grids


def _shaded(pe: int, owner: int, rows: int | None, most: int) -> Cell:
    if rows is None:
        return Cell("")
    return Cell("", heat=-(-SHADES * rows // most) if most else 0, hint=f"PE {pe} needs {rows:,} rows of PE {owner}")
