"""Folders that every stage of the command line has made."""

import json

import pytest
from support.ranks.commands import mgg


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The digits, and a small graph with labels, taken as far as its layouts. Each command prints one JSON object."""
    folder = tmp_path_factory.mktemp("cli")
    for words in (
        "retrieve digits --out raw",
        "graph raw --out digits",
        "generate planted --scale 0.1 --out graph",
        "partition graph --pes 1 --out part1",
        "partition graph --pes 2 --out part2",
        "layout graph part1 --out layout1",
        "layout graph part2 --out layout2",
    ):
        assert json.loads(mgg(*words.split(), "--json", cwd=folder).stdout)["out"] == words.split()[-1]
    return folder
