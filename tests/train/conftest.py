"""Small graphs with features, labels and splits, laid out for any number of PEs."""

from functools import cache

import pytest
from support.graphs import make_layout
from support.graphs.train_graphs import layouts_below
from support.models.simulated_gcn import GRAPHS
from support.ranks.stopped import Runs


@pytest.fixture(scope="session")
def layouts(tmp_path_factory):
    """``layouts(name, pes)``: the folder of a layout."""
    return layouts_below(tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """``folders(name, pes)``: a layout of a graph that the simulation in NumPy trains."""

    @cache
    def folder(name, pes):
        csr, data = GRAPHS[name]()
        return make_layout(tmp_path_factory.mktemp("simulated"), csr, pes, **data)

    return folder


@pytest.fixture
def runs(layouts, tmp_path):
    return Runs(layouts, tmp_path)
