"""Finds the roles of columns in edge and node tables: the user's choice first, else names that other programs write.

It knows the names of DGL's CSVDataset, PyTorch Geometric, OGB, pandas, NetworkX, Gephi and Neo4j's import, ignoring
case, ``-``, ``_`` and spaces. Other names that suggest a role are refused, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from mgg.config import Role
from mgg.errors import InputError
from mgg.schema import nearest

Kind = Literal["edges", "nodes"]
ROLES: tuple[str, ...] = get_args(Role)
#: Roles of each kind of table, in addition to ``ignore``; then the roles that several columns may have.
OF_KIND: dict[Kind, tuple[str, ...]] = {
    "edges": ("source", "target", "weight", "type"),
    "nodes": ("id", "label", "split", "train", "validation", "test", "feature"),
}
SEVERAL = ("feature", "ignore")
MASKS = ("train", "validation", "test")


def _each(names: str, *ends: str) -> set[str]:
    return {name + end for name in names.split() for end in ("", *ends)}


#: Names by role, in the form of ``plain``; Neo4j's names begin with ``:``.
_KNOWN: dict[Kind, dict[str, set[str]]] = {
    "edges": {
        "source": _each("source src from start", "id", "node", "nodeid") | {":startid"},
        "target": _each("target dst dest destination to end tgt", "id", "node", "nodeid") | {":endid"},
        "weight": _each("weight edgeweight", "s") | {"w", "wt"},
        "type": _each("type edgetype etype rel relation reltype relationtype", "id") | {":type"},
        "ignore": {"id", "edgeid", "eid", ":ignore"},  # an arc's own number
    },
    "nodes": {
        "id": _each("node vertex", "s", "id", "idx", "index") | {"id", "nid", "vid", "idx", "index", ":id"},
        "label": _each("label nodelabel class nodeclass classlabel", "s") | {"y", ":label"},
        "split": _each("split nodesplit", "s"),
        "train": _each("train training istrain", "mask"),
        "validation": _each("val valid validation isval isvalid dev", "mask"),
        "test": _each("test testing istest", "mask"),
        "ignore": {":ignore"},
    },
}
#: Maximum names in a message.
_SHOWN = 8
#: pandas' names for an index without a name.
_INDEX = {"", "indexlevel0", "unnamed:0"}
_MAY_BE = re.compile(r"id$|mask|labels?$|class(es)?$|split|^target$|^category$|^:")
_NEO4J = re.compile(r"([^:]*):([A-Za-z_]+)(\([^()]*\))?(\[\])?")


def plain(name: str) -> str:
    """Return ``name`` as compared: ``personId:ID(Person)`` becomes ``:id``, ``weight:float`` becomes ``weight``."""
    neo4j = _NEO4J.fullmatch(name.strip())
    if neo4j:
        name = f":{neo4j[2]}" if neo4j[2].isupper() else neo4j[1]
    return re.sub(r"[-_\s]", "", name).lower()


@dataclass(frozen=True)
class ColumnChoice:
    """The user's choice of a table's columns.

    Attributes:
        header: names of the columns of an edge table without a header, in order: ``--columns``.
        roles: role and name of columns: ``--column``.
    """

    header: tuple[str, ...] = ()
    roles: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parsed(cls, header: str | None, assignments: Iterable[str]) -> ColumnChoice:
        """Parse ``--columns`` and ``--column``; raises InputError for a value that is no ROLE=NAME."""
        roles = []
        for assignment in assignments:
            role, given, name = assignment.partition("=")
            if not given:
                raise InputError(f"--column {assignment[:40]!r}: expected ROLE=NAME, for example id=node_id")
            if role not in ROLES:
                raise InputError(f"--column {assignment[:40]!r}: unknown role {role!r}; {nearest(role, ROLES)}")
            roles.append((role, name))
        for role, name in roles:
            if role not in SEVERAL and len({other for same, other in roles if same == role}) > 1:
                raise InputError(f"--column {role}={name}: a table has one column of this role, and two are given")
            if sum(other == name for _, other in roles) > 1 and role != "ignore":
                raise InputError(f"--column {role}={name}: this column is given two roles, or one twice")
        names = tuple(name.strip() for name in header.split(",")) if header else ()
        twice = [name for name in names if names.count(name) > 1 and name != "ignore"]
        if twice or (header and not all(names)):
            problem = f"{twice[0]!r} is there twice" if twice else "a name is empty"
            raise InputError(f"--columns {header}: {problem}; name a column that MGG should not read ignore")
        unread = [("ignore", f"column {number}") for number, name in enumerate(names, 1) if name == "ignore"]
        names = tuple(f"column {number}" if name == "ignore" else name for number, name in enumerate(names, 1))
        return cls(names, (*roles, *unread))

    def __bool__(self) -> bool:
        return bool(self.header or self.roles)


@dataclass
class Placed:
    """The columns of a table by role, in the order of the table; the role ``ignore`` has the columns left out.

    ``by_place``: source and target follow from their places, not from names.
    """

    file: Path
    kind: Kind
    by_role: dict[str, list[str]] = field(default_factory=dict)
    by_place: bool = False

    def one(self, role: str) -> str | None:
        """Return the column of a role that only one column may have, or None."""
        return next(iter(self.by_role.get(role, ())), None)

    def for_manifest(self, places: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return role -> name, for the manifest; ``places``: name -> replacement."""
        facts: dict[str, Any] = {}
        for role in (*OF_KIND[self.kind], "ignore"):
            names = [(places or {}).get(name, name) or "(no name)" for name in self.by_role.get(role, ())]
            if not names:
                continue
            if role in MASKS:
                facts.setdefault("split", []).extend(names)
            elif role == "feature":
                facts["features"] = names[0] if len(names) == 1 else f"{names[0]}..{names[-1]} ({len(names)})"
            elif role == "ignore":
                facts["ignored"] = names
            else:
                facts[role] = names[0]
        return facts


def sentence(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """Return one line on the columns read, from the manifest: ``source=src, target=dst; nodes: id=id``."""
    return "; ".join(
        ("" if "source" in roles else f"{kind}: ") + ", ".join(_clause(role, names) for role, names in roles.items())
        for kind, roles in columns.items()
        if roles
    )


def _clause(role: str, names: Any) -> str:
    shown = listed(names) + (f" ({len(names)})" if len(names) > _SHOWN else "") if isinstance(names, list) else names
    if role in ("features", "ignored"):
        return f"{role} {shown}"
    return f"split from {shown}" if role == "split" else f"{role}={shown}"


def what_is_read(**kinds: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return ``columns`` for a source that is no table: kind -> role -> names; ``ignored`` lists what was not read.

    Empty roles are left out, and so are kinds without roles.
    """
    for_manifest = {
        kind: {role: list(names) if role == "ignored" else names for role, names in roles.items() if names}
        for kind, roles in kinds.items()
    }
    return {kind: roles for kind, roles in for_manifest.items() if roles}


def known_edges(names: Sequence[str]) -> bool:
    """Return whether these are names of an edge table: they include known names of a source and a target."""
    return all(sum(plain(name) in _KNOWN["edges"][end] for name in names) == 1 for end in ("source", "target"))


def known_nodes(names: Sequence[str]) -> bool:
    """Return whether one of these names has a role in a node table."""
    return any(plain(name) in known for name in names for known in _KNOWN["nodes"].values())


def place(file: Path, kind: Kind, names: Sequence[str], said: ColumnChoice) -> Placed:
    """Give every column of a table its role.

    Raises:
        InputError: names the columns that share a role or might have one, and the options that decide.
    """
    chosen = _chosen(kind, names, said)
    placed = Placed(file, kind)
    unplaced = []
    ids = "id" in chosen.values() or any(plain(name) in _KNOWN["nodes"]["id"] for name in names if name not in chosen)
    for number, name in enumerate(names):
        role = chosen.get(name) or _role(kind, name, first=number == 0, ids=ids)
        taken = role is not None and role not in SEVERAL and role in placed.by_role
        if role is None or taken or (name not in chosen and role not in SEVERAL and role in chosen.values()):
            unplaced.append((name, role))
        else:
            placed.by_role.setdefault(role, []).append(name)
    for name, role in unplaced:
        if role is not None:
            other = placed.one(role)
            clash = role not in chosen.values() and other is not None
            problem = f"and {other!r} may both be the {role}" if clash else ""
            raise _refusal(file, kind, names, name, problem, role if clash else "ignore")
    left = [name for name, _ in unplaced]
    if kind == "nodes":
        _check_nodes(placed, names, left)
        # Features keep the order of the table, whether the user or their names placed them.
        features = {*placed.by_role.get("feature", ()), *left}
        placed.by_role["feature"] = [name for name in names if name in features]
    elif left:
        missing = [end for end in ("source", "target") if end not in placed.by_role]
        if len(missing) == 2 and len(left) == 2 and set(placed.by_role) <= {"ignore"} and not chosen:
            placed.by_role |= {"source": [left[0]], "target": [left[1]]}
            placed.by_place = True
        else:
            raise _refusal(file, kind, names, left[0], "", missing[0] if missing else "weight")
    if kind == "edges" and not {"source", "target"} <= set(placed.by_role):
        missing = [end for end in ("source", "target") if end not in placed.by_role]
        raise InputError(
            f"{_columns_are(file, kind, names)}: none is known as {missing[0]}: --column {missing[0]}=NAME"
        )
    return placed


def check_said(said: ColumnChoice, tables: Mapping[Kind, tuple[Path, Sequence[str]]]) -> None:
    """Raise InputError for a ``--column`` whose name is in no table with such a role."""
    for role, name in said.roles:
        fitting = {kind: table for kind, table in tables.items() if role == "ignore" or role in OF_KIND[kind]}
        if not fitting:
            raise InputError(f"--column {role}={name}: is of a table of nodes, and there is none")
        if not any(_found(name, names) for _, names in fitting.values()):
            where = " and ".join(f"{file} has {listed(names)}" for file, names in fitting.values())
            raise InputError(f"--column {role}={name}: no column is called so: {where}")


def listed(names: Sequence[str]) -> str:
    """Return the first names, for messages."""
    shown = ", ".join(name or "(no name)" for name in names[:_SHOWN])
    return shown + (", ..." if len(names) > _SHOWN else "")


def _found(name: str, names: Sequence[str]) -> str | None:
    """Return the column of that name: exactly, else ignoring case and separators if only one fits; or None."""
    alike = [other for other in names if plain(other) == plain(name)]
    return name if name in names else alike[0] if len(alike) == 1 else None


def _chosen(kind: Kind, names: Sequence[str], said: ColumnChoice) -> dict[str, str]:
    chosen = {}
    for role, name in said.roles:
        found = _found(name, names) if role == "ignore" or role in OF_KIND[kind] else None
        if found is not None:
            chosen[found] = role
    return chosen


def _role(kind: Kind, name: str, *, first: bool, ids: bool) -> str | None:
    if plain(name) in _INDEX and (name or first):
        return "ignore" if kind == "edges" or ids else "id"
    return next((role for role, known in _KNOWN[kind].items() if plain(name) in known), None)


def _check_nodes(placed: Placed, names: Sequence[str], left: list[str]) -> None:
    masks = [placed.by_role[role][0] for role in MASKS if role in placed.by_role]
    split = placed.one("split")
    if split is not None and masks:
        problem = f"and {masks[0]!r} both say the split"
        raise _refusal(placed.file, "nodes", names, split, problem, "ignore")
    for name in left:
        if not name or _MAY_BE.search(plain(name)):
            wanted = "id" if plain(name).endswith("id") or not name else "label"
            raise _refusal(placed.file, "nodes", names, name, "", "train" if "mask" in plain(name) else wanted)


def _columns_are(file: Path, kind: Kind, names: Sequence[str]) -> str:
    form = "; expected source, target[, weight][, type]" if kind == "edges" else ""
    return f"{file}: columns are {listed(names)}{form}"


def _refusal(file: Path, kind: Kind, names: Sequence[str], name: str, problem: str, role: str) -> InputError:
    roles = [role] * (role != "ignore") + ["feature"] * (kind == "nodes") + ["ignore"]
    options = [f"--column {each}={name}" for each in roles]
    what = f"{name!r} {problem}" if problem else f"what is {name!r}?"
    ways = " or ".join(filter(None, (", ".join(options[:-1]), options[-1])))
    return InputError(f"{_columns_are(file, kind, names)}: {what} Say {ways}".replace("? Say", "? say"))
