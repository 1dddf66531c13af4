"""Small graphs with features, labels and splits, laid out for any number of PEs."""

import pytest
from support.train_graphs import layouts_below


@pytest.fixture(scope="session")
def layouts(tmp_path_factory):
    """``layouts(name, pes)``: the folder of a layout."""
    return layouts_below(tmp_path_factory.mktemp)
