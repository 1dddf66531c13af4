"""``mgg describe``: facts of a graph against ones worked out from its arcs, and the layers of models."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from mgg.cli.group import cli
from mgg.errors import InputError, MachineError
from mgg.graph.csr import from_arcs
from mgg.graph.extract import extract
from mgg.graph.store import Graph, write_graph
from mgg.model import build, settings_of
from mgg.model.layer_widths import layers_of
from mgg.records import read_lines
from mgg.records.graph import GraphRecord

SIZES = (5, 9, 12, 30)


@pytest.fixture(scope="module")
def cliques(tmp_path_factory):
    """Four cliques whose nodes are numbered at random, and two nodes without arcs."""
    names = np.random.default_rng(0).permutation(sum(SIZES))
    pairs, first = [], 0
    for size in SIZES:
        mine = names[first : first + size]
        pairs += [(a, b) for a in mine.tolist() for b in mine.tolist() if a != b]
        first += size
    folder = tmp_path_factory.mktemp("extract") / "graph"
    ends = np.array(pairs).T
    write_graph(folder, csr=from_arcs(*ends, n=sum(SIZES) + 2), name="cliques", source={})
    return folder, ends


def test_description_matches_the_arcs(cliques):
    """Nodes of a clique of s that follow one another are (s + 1) / 3 apart on average."""
    folder, (targets, sources) = cliques
    found = extract(Graph.open(folder), 2**40)
    degrees = np.bincount(targets, minlength=58)
    assert (found["nodes"], found["arcs"], found["empty_rows"]) == (58, len(targets), 2)
    assert found["degree_mean"] == pytest.approx(len(targets) / 58)
    assert found["degree_deviation"] == pytest.approx(np.sqrt(np.mean((degrees - len(targets) / 58) ** 2)))
    assert found["degree_largest"] == 29
    assert found["span"] == pytest.approx(np.abs(targets - sources).mean()) and found["reorder_pays"]
    sizes = [*SIZES, 1, 1]
    assert found["communities"] == 6 and found["community_largest"] == 30
    assert found["community_mean"] == pytest.approx(58 / 6)
    assert found["community_deviation"] == pytest.approx(np.std(sizes))
    within = sum(size * (size - 1) * (size + 1) / 3 for size in SIZES)
    assert found["span_rabbit"] == pytest.approx(within / len(targets)) and found["span_rabbit"] < found["span"] / 2


def test_communities_are_optional(cliques):
    """They need the graph in memory; all else one part of it at a time."""
    graph = Graph.open(cliques[0])
    found, whole = extract(graph, None), extract(graph, 2**40)
    assert "communities" not in found and found == {key: value for key, value in whole.items() if key in found}
    assert whole["rabbit_seconds"] > 0
    with pytest.raises(MachineError, match="raise --memory, or leave them out by --no-communities") as refusal:
        extract(graph, 2**20)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("model", "settings", "expected"),
    [
        # Columns fall from 20 to 16 before the sums, and from 16 to 3.
        ("gcn", {}, [(20, [16], "I"), (16, [3], "I")]),
        # A linear map before attention belongs to its layer.
        ("gat", {"heads": 2, "hidden": 4, "output_heads": 1}, [(20, [8], "I"), (8, [3], "I")]),
        ("gcn", {"hidden": 64}, [(20, [20], "II"), (64, [3], "I")]),
        ("sgc", {}, [(20, [20], "II"), (20, [20], "II")]),
    ],
)
def test_layer_types_follow_the_order_of_widths(model, settings, expected):
    chain = build(model, settings_of(model, settings), 20, 3)
    assert [(each["inputs"], each["aggregated"], each["type"]) for each in layers_of(chain, 20)] == expected


def test_describe_writes_a_record(cliques, tmp_path):
    """What the command prints, with the graph's hash; one graph after the other, or in the place of others."""
    graph, out = Graph.open(cliques[0]), tmp_path / "graphs.jsonl"
    run, arguments = CliRunner().invoke, ["describe", str(cliques[0]), "--json", "--out", str(out)]
    facts = json.loads(run(cli, arguments).stdout)
    assert facts.pop("out") == str(out)
    (record,) = read_lines(out, GraphRecord)
    assert (record.dataset, record.graph_hash) == ("cliques", graph.hash)
    assert {name: getattr(record, name) for name in facts} == facts
    run(cli, [*arguments, "--no-communities"])
    assert [each.communities for each in read_lines(out, GraphRecord)] == [6, None]
    run(cli, [*arguments, "--replace"])
    assert len(read_lines(out, GraphRecord)) == 1
    assert "--replace" in str(run(cli, ["describe", str(cliques[0]), "--replace"]).exception)


def test_describe_command_prints_json_and_lines(cliques):
    """JSON, lines for people, and one line for what says nothing."""
    folder = str(cliques[0])
    run = CliRunner().invoke

    arguments = ["describe", folder, "--model", "gcn", "--columns", "20", "--classes", "3", "--set", "hidden=8"]
    facts = json.loads(run(cli, [*arguments, "--no-communities", "--json"]).stdout)
    assert [each["aggregated"] for each in facts["layers"]] == [[8], [3]] and facts["nodes"] == 58
    text = run(cli, arguments).stdout
    assert "layer0: 20 -> 8, aggregates 8: type I\n" in text and "communities: 6\n" in text
    for given, said in (
        (["--columns", "3"], "needs --model"),
        (["--model", "gcn", "--columns", "3"], "--classes"),
        (["--model", "gcn", "--classes", "3"], "no node features"),
    ):
        refused = run(cli, ["describe", folder, "--no-communities", *given])
        assert isinstance(refused.exception, InputError) and said in str(refused.exception)
