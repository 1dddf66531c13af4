"""The section on partitions: balance, cut and communication volumes, as in tables 2 and 3 of the CoLa paper."""

from __future__ import annotations

from mgg.report.numbers import ABSENT, count, number, percent
from mgg.report.parts import Cell, Grid, Part, Section
from mgg.report.tables import Row, Rows, graph_names, group

MIB = 2**20
#: Most PEs whose pairs are readable as a table.
MOST_PAIRED = 16
SHADES = 8
_COLUMNS = ["imbalance", "edge cut", "halo rows", "V_CG", "V_FR", "V_FC", "VI_CG", "VI_FR", "VI_FC", "VI_CoLa"]


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
        "How well each graph can be split over PEs, and what one forward product would then move, all PEs together. "
        "Computed from the graph: nothing ran. V is everything that crosses PEs, VI the part that crosses workgroups, "
        "whose links are slower."
    )
    return Section("quality", "Partitions: balance and communication", intro, parts)


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
    note = (
        "Imbalance: arcs of the fullest PE over the mean, below it the same for workgroups; 1 is even. Edge cut: arcs "
        "whose column another PE owns. Halo rows: all PEs, below them the largest PE. Small percentages of volumes: "
        "redundant, beyond V_FC. A dash: all PEs are in one workgroup."
    )
    columns = [*_COLUMNS[:3], *(f"{column} (MiB)" for column in _COLUMNS[3:])]
    return Grid(f"{name}: balance, cut and communication of one product", "PEs", columns, groups, note)


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
        *map(Cell, between),
    ]


def _mib(volume: int) -> str:
    return number(volume / MIB)


def _redundant(share: float | None) -> str:
    return "" if share is None else percent(share)


def _heat(halos: Rows, name: str) -> list[Grid]:
    """For each scheme the pairs of the most PEs that are readable."""
    grids = []
    for (scheme,), found in group((row for row in halos if 2 < row["pes"] <= MOST_PAIRED), "scheme").items():
        pes = max(row["pes"] for row in found)
        at = {(row["pe"], row["owner"]): row["rows"] for row in found if row["pes"] == pes}
        most = max(at.values())
        lines = [(f"PE\N{NO-BREAK SPACE}{p}", [_shaded(at.get((p, q)), most) for q in range(pes)]) for p in range(pes)]
        caption = f"{name}, {scheme}, {pes} PEs: rows that each PE (left) needs of each owner (top)"
        note = "The stronger the shade, the more rows."
        grids.append(Grid(caption, "needs", [f"of {q}" for q in range(pes)], [("", lines)], note, dense=True))
    return grids


def _shaded(rows: int | None, most: int) -> Cell:
    if rows is None:
        return Cell(ABSENT)
    return Cell(f"{rows:,}", heat=-(-SHADES * rows // most) if most else 0)
