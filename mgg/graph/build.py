"""Stage graph: raw files or a generator -> a graph folder."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mgg.config import explain, nearest
from mgg.errors import InputError, MachineError
from mgg.files import refuse_foreign
from mgg.graph.csr import is_symmetric, symmetrized
from mgg.graph.datasets import catalog, find
from mgg.graph.manifest import KIND, Manifest, Sha256
from mgg.graph.retrieve import SOURCE_FILE, check_sha256, retrieve
from mgg.graph.sources import GraphData, find_loader, generators
from mgg.graph.store import write_graph


class _Source(BaseModel):
    """``source.yaml`` of a folder that ``mgg retrieve`` made."""

    model_config = ConfigDict(extra="forbid")

    name: str
    loader: str
    licence: str
    files: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")], Sha256]


def build(
    source: str | Path,
    out: str | Path,
    *,
    loader: str | None = None,
    symmetrize: bool = False,
    order: Literal["natural"] = "natural",
) -> Manifest:
    """Make the graph folder ``out``.

    Args:
        source: the name of a data set (a string), or a file or folder; a folder that ``mgg retrieve`` made says
            itself how it is read, anything else needs ``loader``. Write ``./NAME`` for a folder called like a data set.
        out: the graph folder; one that exists is replaced when the new one is whole.
        loader: which reader to use.
        symmetrize: add the reverse of every arc.
        order: how nodes are numbered; ``natural`` is the source's order.

    Raises:
        InputError: unknown name (with the nearest ones), or files that are not what the loader expects.
    """
    if order != "natural":
        raise InputError(f"unknown order {order!r}; {nearest(order, ['natural'])}")
    refuse_foreign(Path(out), KIND)
    if isinstance(source, str) and source in catalog():
        with tempfile.TemporaryDirectory(prefix="mgg-") as scratch:
            retrieve(source, Path(scratch) / source)
            return _from_path(Path(scratch) / source, out, loader, symmetrize)
    if not Path(source).exists():
        raise _unknown(str(source))
    return _from_path(Path(source), out, loader, symmetrize)


def generate(
    name: str, out: str | Path, *, scale: float | None = None, seed: int | None = None, shuffle: bool = False
) -> Manifest:
    """Make the graph folder ``out`` with a generator.

    Args:
        name: planted, reddit-like, products-like, orkut-like or web-like.
        out: the graph folder; one that exists is replaced when the new one is whole.
        scale: size as a share of the full graph, 1 by default.
        seed: of the random draws; the generator's own by default.
        shuffle: permute the node ids, which hides the communities.

    Raises:
        InputError: unknown name (with the nearest ones), or a scale or seed that cannot be.
    """
    known = generators()
    if name not in known:
        raise InputError(f"unknown generator {name!r}; {nearest(name, known)}")
    scale = 1.0 if scale is None else float(scale)
    seed = known[name].seed if seed is None else seed
    if not (math.isfinite(scale) and scale > 0):
        raise InputError(f"{name}: scale must be above 0, found {scale}")
    if seed < 0:
        raise InputError(f"{name}: seed must not be negative, found {seed}")
    refuse_foreign(Path(out), KIND)
    with _enough_memory(f"{name} at scale {scale}"):
        data = known[name].make(scale, seed, shuffle)
    return _write(data, out, name, {"generator": name, "scale": scale, "seed": seed, "shuffle": shuffle})


@contextmanager
def _enough_memory(what: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise MachineError(f"{what}: does not fit into this machine's memory") from None


def _unknown(source: str) -> InputError:
    if "/" in source or "." in source:
        return InputError(f"{source}: no such file or folder")
    try:
        find(source)
    except InputError as error:
        return error
    return InputError(f"{source}: no such file or folder")


def _from_path(path: Path, out: str | Path, loader: str | None, symmetrize: bool) -> Manifest:
    described = path / SOURCE_FILE
    if described.is_file():
        made = _read_source(described)
        for file, sha256 in made.files.items():
            check_sha256(path / file, sha256)
        loader = loader or made.loader
        name, source = made.name, {"licence": made.licence, "files": made.files}
    elif loader is None:
        raise InputError(f"{path}: has no {SOURCE_FILE}, so --loader must say how to read it")
    else:
        name, source = path.resolve().name, {}
    with _enough_memory(str(path)):
        data = find_loader(loader)(path)
    if symmetrize and not data.symmetric and not is_symmetric(data.csr):
        data = GraphData(symmetrized(data.csr), True, data.features, data.labels, data.splits, data.classes)
    expected = catalog().get(name) if described.is_file() else None
    if expected is not None and loader == expected.loader:
        expected.check(name, data, symmetrize)
    return _write(data, out, name, {"loader": loader, **source})


def _read_source(path: Path) -> _Source:
    try:
        return _Source.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, _Source)}; run mgg retrieve again") from None


def _write(data: GraphData, out: str | Path, name: str, source: dict[str, Any]) -> Manifest:
    return write_graph(
        out,
        data.csr,
        name=name,
        source=source,
        features=data.features,
        labels=data.labels,
        splits=data.splits,
        classes=data.classes,
        symmetric=data.symmetric,
    )
