"""The catalogue ``config/datasets.yaml``: each data set's files, their hashes and the expected counts of its graph."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, Field, StrictBool, StrictInt, model_validator

from mgg.config import Loops, refuse_repeats
from mgg.errors import InputError
from mgg.graph.generators import GENERATORS, generators
from mgg.graph.io.archive import relative_name
from mgg.graph.manifest import Sha256
from mgg.graph.sources import LOADERS, loaders
from mgg.schema import Closed, Fixed, nearest, parsed


def _inside(name: str) -> str:
    if relative_name(name) != name:
        raise ValueError("not the name of a file inside the folder")
    return name


#: A file's path relative to its raw folder; may have sub-folders.
FileName = Annotated[str, AfterValidator(_inside)]
Count = Annotated[int, Field(ge=0)]


class RawFile(Fixed):
    """One file of a data set: from the network or out of an installed package."""

    url: str | None = Field(None, description="where to download it")
    package: str | None = Field(None, description="installed Python package that bundles it")
    sha256: Sha256 | None = Field(None, description="hash of its bytes, where known")
    bytes: Count | None = Field(None, description="its size, where known")
    unpack: StrictBool | Annotated[StrictInt, Field(ge=1)] = Field(
        False, description="an archive whose members are the raw files; a number bounds their bytes in all"
    )

    members: dict[str, FileName] | None = Field(
        None, description="members of the archive to take and the names that they get; all of them if absent"
    )
    stand_in: dict[FileName, Sha256] = Field(
        default_factory=dict, description="other files, with their hashes, that the mirror may have in its place"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> RawFile:
        if (self.url is None) == (self.package is None):
            raise ValueError("give url or package")
        if self.url is not None and not re.match(r"(https?://|file:///)", self.url, re.IGNORECASE):
            raise ValueError(f"url {self.url!r} must begin with https:// or, for a file of this machine, file:///")
        if self.members is not None and not self.unpack:
            raise ValueError("members need unpack")
        return self


class Dataset(Fixed):
    """One data set; a count that is null is not known and not checked."""

    title: str = Field(description="what it is")
    loader: str = Field(description="which source of mgg/graph/sources reads its files")
    licence: str = Field(description="terms under which its files may be used")
    homepage: str | None = Field(None, description="page that describes it")
    mirror: str | None = Field(None, description="its folder under $MGG_DATA_DIR")
    undirected: bool = Field(False, description="each arc that the files list stands for both directions")
    nodes: Annotated[int, Field(ge=1)] = Field(description="nodes of the graph")
    edges: Count | None = Field(None, description="arcs that the files list, self-loops and repeats included")
    arcs: Count | None = Field(
        None, description="arcs of the graph as stored: no self-loops, no repeats, an undirected edge counts twice"
    )
    features: Count | None = Field(None, description="feature columns, 0 for none")
    classes: Count | None = Field(None, description="classes, 0 where nodes have no labels")
    tasks: Count | None = Field(None, description="yes-or-no labels of a node, 0 for none")
    files: dict[FileName, RawFile] = Field(min_length=1, description="its published files")

    def expected(self, symmetrized: bool, loops: Loops = "drop") -> dict[str, int]:
        """Return the manifest fields that the graph must have, as far as its publisher states them.

        Args:
            symmetrized: whether the user asked for the reverse of every arc.
            loops: whether the user keeps self-loops, which ``arcs`` does not count.
        """
        stated = {
            "nodes": self.nodes,
            "listed_arcs": self.edges,
            "arcs": self.arcs if loops == "drop" and (self.undirected or not symmetrized) else None,
            "features": self.features,
            "classes": self.classes,
            "tasks": self.tasks,
        }
        return {field: count for field, count in stated.items() if count is not None}


class _File(Closed):
    datasets: dict[str, Dataset]


def find(name: str) -> Dataset:
    """Return the data set ``name``; raises InputError with the nearest names, or if ``name`` is a generator."""
    known = catalog()
    if name in known:
        return known[name]
    if name in generators():
        raise InputError(f"{name} is a generator, not a data set: mgg generate {name} --out GRAPH")
    if name in GENERATORS.broken:
        GENERATORS.find(name)
    raise InputError(f"unknown data set {name!r}; {nearest(name, [*known, *generators()])}")


@cache
def catalog() -> dict[str, Dataset]:
    """Return every data set by name; raises InputError that names a wrong field of the file."""
    path = _path()
    refuse_repeats(path)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from None
    datasets = parsed(_File, values, f"{path}: ").datasets
    for name, dataset in datasets.items():
        if dataset.loader not in {*loaders(), *LOADERS.broken}:  # a broken loader fails when its data are used
            raise InputError(f"{path}: {name}: unknown loader {dataset.loader!r}; {nearest(dataset.loader, loaders())}")
    return datasets


def _path() -> Path:
    """Return the file's path: next to this module in a wheel, under config/ in a checkout."""
    packaged = Path(str(resources.files("mgg.graph"))) / "datasets.yaml"
    return packaged if packaged.is_file() else Path(__file__).parents[2] / "config" / "datasets.yaml"
