"""A graph on one PE in float64, on which models can be differentiated by finite differences."""

import sys
from contextlib import contextmanager

import numpy as np
import pytest
from scipy import sparse
from support.devices import plain
from support.graphs import products, typed_csr

from mgg.graph.csr import Csr
from mgg.model.neighborhood import Neighborhood
from mgg.partition.schemes import Split
from mgg.vertex.cpu import host


class SciPyPlan:
    """The plan's interface around one SciPy product, in any dtype."""

    def __init__(self, matrix):
        self.matrix = matrix
        self.buffer = np.empty(0)

    def input(self, dim):
        self.buffer = np.full((self.matrix.shape[1], dim), np.nan, self.matrix.dtype)
        return self.buffer

    def write(self, dim, values):
        self.input(dim)[:] = values

    def __call__(self, dim):
        assert self.buffer.shape == (self.matrix.shape[1], dim)
        return self.matrix @ self.buffer


def alone(matrix):
    """The product of the only PE."""
    csr = Csr(matrix.indptr.astype(np.int64), matrix.indices, matrix.data, matrix.shape[1])
    return products(csr, np.array([0, csr.rows]))[0]


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch):
    """Loops over arcs are run by Python: nothing has to be compiled."""
    monkeypatch.setattr(host, "compiled", plain.unit)


@pytest.fixture
def neighborhood():
    """Make a neighborhood of a matrix; node ids start at 100, so that ids and row numbers cannot be confused."""

    def make(matrix):
        matrix = sparse.csr_array(matrix)
        return Neighborhood(
            nodes=matrix.shape[0],
            node_ids=100 + np.arange(matrix.shape[0]),
            degrees=matrix.sum(axis=1).astype(np.float64),
            plan=SciPyPlan(matrix),
            transposed=SciPyPlan(sparse.csr_array(matrix.T)),
            total=lambda values: values.copy(),
            product=alone(matrix),
            ids=100 + np.arange(matrix.shape[0]),
            real=np.float64,
        )

    return make


@pytest.fixture
def relational(neighborhood):
    """Make the neighborhood of a directed graph of 12 nodes whose arcs have 3 types, one of them without any arc."""
    csr = typed_csr(12, 40, 2)

    def make():
        graph = neighborhood(np.eye(12))
        graph.product, graph.arc_types = products(csr, np.array([0, 12]))[0], 3
        graph.numbers = np.arange(12)
        return graph

    return make


@pytest.fixture
def directed():
    """A directed, weighted 12-node adjacency with self-loops and an empty row, float64."""
    rng = np.random.default_rng(5)
    matrix = rng.uniform(0.5, 2, (12, 12)) * (rng.random((12, 12)) < 0.3)
    matrix[3] = 0
    return matrix


@pytest.fixture
def split_at():
    """``split_at(bounds)``: while it holds, partitions are cut there."""

    @contextmanager
    def cut(bounds):
        with pytest.MonkeyPatch.context() as patch:
            built = sys.modules["mgg.partition.build"]
            patch.setattr(built, "find_scheme", lambda _: lambda _graph, _pes: Split(np.array(bounds)))
            yield

    return cut


@pytest.fixture(scope="session")
def oracle_layouts(tmp_path_factory):
    """Layouts of the graphs on which models are compared with PyTorch Geometric's."""
    from support.models import pyg

    return pyg.layouts_below(tmp_path_factory.mktemp)
