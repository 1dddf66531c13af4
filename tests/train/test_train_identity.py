"""How runs differ, in words: the first field that does, of settings and options all that do."""

import pytest

from mgg.train.run.identity import Identity, difference

MINE = Identity(
    model="gcn", dataset="cora", graph_hash="a" * 64, pes=2, scheme="metis", layout="b" * 64, device="CPUs",
    technique="mgg", options={"ps": 16, "wpb": 2}, seed=0, settings={"hidden": 16, "patience": None, "dropout": 0.5},
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"pes": 4, "seed": 1}, "with pes 4, this run has pes 2"),
        ({"scheme": "equal_nodes"}, "with partition scheme equal_nodes, this run has partition scheme metis"),
        ({"layout": "c" * 64}, "with layout cccccccccccc, this run has layout bbbbbbbbbbbb"),
        ({"device": "GPUs"}, "with device GPUs, this run has device CPUs"),
        ({"weights": "d" * 64}, "with starting weights dddddddddddd, this run has starting weights none"),
        (
            {"model_file": "e" * 64, "seed": 1},
            "with model file of sha256 eeeeeeeeeeee, this run has model file of sha256 none",
        ),
        ({"scheme": None, "layout": None, "device": None}, None),
        (
            {"emulated": "emulated 20 GB/s, 5 us"},
            "with network emulated 20 GB/s, 5 us, this run has network none",
        ),
        ({"options": {"ps": 32, "wpb": 2}}, "whose option ps is 32, this run has 16"),
        (
            {"settings": {"hidden": 8, "patience": 5, "dropout": 0.5}},
            "whose setting hidden is 8, this run has 16; setting patience is 5, this run has none",
        ),
        ({"settings": {"hidden": 16, "dropout": 0.5}}, None),
        ({"settings": {"hidden": 16, "patience": None}}, "whose setting dropout is none, this run has 0.5"),
    ],
)
def test_difference(change, said):
    assert difference(MINE.model_copy(update=change), MINE) == said
