"""``mgg infer`` gives the logits that PyTorch Geometric has for weights that PyTorch saved."""

import numpy as np
import pyarrow.parquet
import pytest
from support.graphs.train_graphs import layouts_below
from support.models.pyg import Arcs, torch
from support.ranks import mpiexec
from torch.nn.functional import elu, relu
from torch_geometric.nn import GATConv, GCNConv

from mgg.cli import group
from mgg.graph.store import Graph


class Gcn(torch.nn.Module):
    maps = ("conv0.lin.weight=layer0.weight.T", "conv0.bias=layer0.bias", "conv1.lin.weight=layer1.weight.T",
            "conv1.bias=layer1.bias")  # fmt: skip
    settings = ("hidden=10",)

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv0, self.conv1 = GCNConv(inputs, 10), GCNConv(10, outputs)

    def forward(self, x, arcs):
        return self.conv1(relu(self.conv0(x, arcs.edge_index, arcs.edge_weight)), arcs.edge_index, arcs.edge_weight)


class Gat(torch.nn.Module):
    maps = tuple(
        f"conv{k}.{theirs}=layer{k}.{ours}"
        for k in range(2)
        for theirs, ours in (
            ("lin.weight", "weight.T"), ("att_src", "source.reshape"), ("att_dst", "target.reshape"), ("bias", "bias"),
        )
    )  # fmt: skip
    settings = ("hidden=5", "heads=3")

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv0, self.conv1 = GATConv(inputs, 5, heads=3), GATConv(15, outputs, heads=1, concat=False)

    def forward(self, x, arcs):
        return self.conv1(elu(self.conv0(x, arcs.edge_index)), arcs.edge_index)


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    return layouts_below(tmp_path_factory.mktemp)


MODELS = {"gcn": Gcn, "gat": Gat}


def words(model, folder, path):
    made = [word for text in MODELS[model].maps for word in ("--map", text)]
    made += [word for text in MODELS[model].settings for word in ("--set", text)]
    return ["infer", str(folder), "--model", model, "--weights", f"{path}/w.safetensors", "--out", f"{path}/out", *made]


@pytest.mark.parametrize(
    ("model", "graph", "pes"),
    [
        ("gcn", "planted", 1),
        ("gat", "tasks", 1),
        pytest.param("gat", "planted", 2, marks=[pytest.mark.mpi, pytest.mark.slow]),
    ],
)
def test_inferred_logits_match_pyg(model, graph, pes, layouts, tmp_path, capsys):
    from safetensors.torch import save_file  # needs PyTorch, which may not be there

    folder = layouts(graph, pes)
    opened = Graph.open(folder.parent / "graph")
    facts = opened.manifest
    torch.manual_seed(4)
    net = MODELS[model](facts.features, facts.classes or facts.tasks)
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    with torch.no_grad():
        expected = net(torch.tensor(opened.features(0, facts.nodes)), Arcs.of(opened.rows(0, facts.nodes))).numpy()
    if pes == 1:
        group.cli.main(words(model, folder, tmp_path), standalone_mode=False)
        capsys.readouterr()
    else:
        done = mpiexec(pes, ["-m", "mgg.cli", *words(model, folder, tmp_path)])
        assert done.returncode == 0, done.stderr
    table = pyarrow.parquet.read_table(tmp_path / "out/predictions.parquet")
    assert table["node"].to_pylist() == list(range(facts.nodes))
    if graph == "tasks":
        logits = np.array(table["logit"].to_pylist(), np.float32)
        assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
    else:
        ranked = np.sort(expected, axis=1)
        clear = ranked[:, -1] - ranked[:, -2] > 1e-5 * np.abs(expected).max()
        assert clear.mean() > 0.9
        np.testing.assert_array_equal(np.array(table["prediction"])[clear], expected.argmax(axis=1)[clear])
