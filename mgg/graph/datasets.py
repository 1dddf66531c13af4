"""``config/datasets.yaml``: where every data set's files are, their hashes and what the graph must look like."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mgg.config import explain, nearest
from mgg.errors import InputError
from mgg.graph.manifest import Sha256
from mgg.graph.sources import GraphData, generators, loaders

FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class RawFile(BaseModel):
    """One file of a data set: from the network or out of an installed package."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str | None = Field(None, description="where to download it")
    package: str | None = Field(None, description="installed Python package that bundles it")
    sha256: Sha256 = Field(description="hash of its bytes")

    @model_validator(mode="after")
    def _one_origin(self) -> RawFile:
        if (self.url is None) == (self.package is None):
            raise ValueError("give url or package")
        return self


class Dataset(BaseModel):
    """One data set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(description="what it is")
    loader: str = Field(description="which source of mgg/graph/sources reads its files")
    licence: str = Field(description="terms under which its files may be used")
    mirror: str | None = Field(None, description="its folder under $MGG_DATA_DIR")
    nodes: int = Field(ge=1, description="nodes of the graph")
    arcs: int = Field(ge=0, description="arcs of the graph as stored: no self-loops, an undirected edge counts twice")
    features: int = Field(ge=0, description="feature columns")
    classes: int = Field(ge=0, description="classes")
    files: dict[FileName, RawFile] = Field(min_length=1, description="its raw files")

    def check(self, name: str, data: GraphData, symmetrized: bool) -> None:
        """Raise InputError if the graph read from this data set's files has other counts than it should."""
        found = {
            "nodes": data.csr.rows,
            "arcs": self.arcs if symmetrized else data.csr.arcs,
            "features": 0 if data.features is None else data.features.shape[1],
            "classes": data.classes or 0,
        }
        for field, count in found.items():
            if count != getattr(self, field):
                raise InputError(
                    f"{name}: the graph has {count} {field}, expected {getattr(self, field)}; check its files"
                )


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    datasets: dict[str, Dataset]


def find(name: str) -> Dataset:
    """The data set ``name``; InputError with the nearest names if there is none, or if ``name`` is a generator."""
    known = catalog()
    if name in known:
        return known[name]
    if name in generators():
        raise InputError(f"{name} is a generator, not a data set: mgg generate {name} --out GRAPH")
    raise InputError(f"unknown data set {name!r}; {nearest(name, [*known, *generators()])}")


@cache
def catalog() -> dict[str, Dataset]:
    """Every data set by name; InputError names the wrong field of the file."""
    path = _path()
    try:
        datasets = _File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))).datasets
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, _File)}") from None
    for name, dataset in datasets.items():
        if dataset.loader not in loaders():
            raise InputError(f"{path}: {name}: unknown loader {dataset.loader!r}; {nearest(dataset.loader, loaders())}")
    return datasets


def _path() -> Path:
    """In a wheel the file lies beside this module; in a checkout it is under config/."""
    packaged = Path(str(resources.files("mgg.graph"))) / "datasets.yaml"
    return packaged if packaged.is_file() else Path(__file__).parents[2] / "config" / "datasets.yaml"
