"""What docs/guides/vertex.md shows and says: its models train, its commands run, its table is whole."""

import json
import re
import shlex

import pytest
from click.testing import CliRunner
from support.graphs.train_graphs import layouts_below
from support.ranks import mpiexec
from support.vertex.docs import COMMANDS, DOCS, FILES, MODELS, PYTHON, SMALL, written

from mgg import vertex as V
from mgg.cli.group import cli
from mgg.errors import InputError
from mgg.records import read_run


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    return layouts_below(tmp_path_factory.mktemp)


def mgg(*arguments):
    """What the command prints; its error goes on."""
    done = CliRunner().invoke(cli, [str(each) for each in arguments], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout


def settings(name):
    return [word for key, value in SMALL[name].items() for word in ("--set", f"{key}={value}")]


def test_documented_blocks_are_models_or_parts_of_one():
    assert list(FILES) == ["my_gcn", "my_gatv2", "my_gated", "my_recurrent", "my_arcs", "my_relational", "train_gcn"]
    assert list(MODELS) == list(FILES)[:6]
    parts = [block for block in PYTHON if block not in FILES.values()]
    assert len(parts) == 1 and parts[0] in MODELS["my_gcn"]


def test_documented_table_has_every_function():
    documented = set(re.findall(r"[`@]V\.(\w+)", DOCS))
    assert documented == set(V.__all__)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "my_arcs"])
def test_explain_prints_values_with_lines_and_formulas(name, tmp_path):
    """Each value with its line, the gradients by name, and columns as the formulas have them."""
    relations = ["--relations", 3] if name == "my_relational" else []
    path = written(tmp_path, name)
    text = mgg("vertex", "explain", path, "--columns", 6, "--classes", 3, *relations, *settings(name))
    first, second = text.split("\n\n")
    assert first.startswith("layer layer0, program ") and second.startswith("layer layer1, program ")
    fetched = {
        "my_gcn": ("8 columns", "6 columns"),  # products: the gradient's columns cross, too
        "my_gatv2": ("6 columns", "3 columns"),  # h or W_source h, 8 and 3 columns, whichever is narrower
        "my_gated": ("6 columns", "4 columns"),  # h, which is narrower than both of its projections
        "my_recurrent": ("8 columns", "8 columns"),  # products, as above
        "my_relational": ("6 columns", "4 columns"),  # h
    }[name]
    for text, columns in zip((first, second), fetched, strict=True):
        assert f"\nfetched from other PEs, a halo row: {columns}: " in text
        assert text.rstrip().endswith("\narrays of all arcs, inputs apart: none")
        (gradients,) = re.findall(r"^  gradients (.*)$", text, re.MULTILINE)
        program = MODELS[name].split("def ")[1]
        names = re.match(r"\w+\(v, (.*?)\):", program)[1].split(", ")
        assert [each.split()[0] for each in gradients.split(", ")] == ["x", *(n for n in names if n != "rate")]
    lines = {int(number) for number in re.findall(rf"# {name}\.py, line (\d+)$", first, re.MULTILINE)}
    body = [
        k for k, line in enumerate(MODELS[name].splitlines(), 1) if "v.x" in line or "u.x" in line or "e.src" in line
    ]
    assert lines >= set(body)


def test_explain_lists_kept_arc_values(tmp_path):
    path = written(tmp_path, "my_arcs")
    first, second = mgg("vertex", "explain", path, "--columns", 6, "--classes", 3, *settings("my_arcs")).split("\n\n")
    (kept,) = re.findall(r"^  return %\d+ %(\d+)$", first, re.MULTILINE)
    (gradient,) = re.findall(r"^  gradients f %(\d+), x ", second, re.MULTILINE)
    for text, value in ((first, kept), (second, gradient)):
        assert text.rstrip().endswith(f"\narrays of all arcs, inputs apart: %{value} [4]")


def test_explain_prints_json(tmp_path):
    path = written(tmp_path, "my_gcn")
    facts = json.loads(mgg("vertex", "explain", path, "--classes", 3, "--json"))
    assert (facts["model"], facts["columns"], facts["classes"], facts["relations"]) == ("my_gcn", 16, 3, 0)
    assert [(each["layer"], each["program"]) for each in facts["layers"]] == [("layer0", "gcn"), ("layer1", "gcn")]
    assert all(each["text"] in mgg("vertex", "explain", path, "--classes", 3) for each in facts["layers"])


@pytest.mark.parametrize(
    ("model", "arguments", "said"),
    [
        (
            "gat",
            ["--set", "attention=product"],
            r"^model 'gat': has no layer that is a vertex program \(VertexLayer, docs/guides/vertex\.md\)$",
        ),
        ("my_gcn", ["--set", "hiden=3"], "setting of model my_gcn: hiden: unknown field"),
        ("my_relational", [], r"my_relational\.py, line 10: .*shape \(0, 16, 16\) of W: .*types of arcs"),
        ("my_gatv2", ["--set", "gcn.hidden=3"], "'gcn' is neither the model"),
    ],
)
def test_explain_refuses_invalid_input(model, arguments, said, tmp_path):
    path = model if model == "gat" else written(tmp_path, model)
    with pytest.raises(InputError, match=said) as caught:
        mgg("vertex", "explain", path, *arguments)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_documented_models_train_on_one_and_two_pes(name, layouts, tmp_path):
    graph = "typed" if name == "my_relational" else "planted"
    curves = []
    for pes in (1, 2):
        out = tmp_path / f"run{pes}"
        options = ["--backend", "simulated", "--epochs", 40, *settings(name), "--out", out]
        mgg("train", layouts(graph, pes), "--model", written(tmp_path, name), *options)
        run, epochs = read_run(out)
        assert (run.model, run.pes) == (name, pes)
        curves.append([epoch.loss for epoch in epochs])
    assert curves[0][:5] == pytest.approx(curves[1][:5], rel=1e-4)
    # Dropout makes single epochs noisy.
    assert sum(curves[0][-10:]) < 0.97 * sum(curves[0][:10])


@pytest.mark.slow
@pytest.mark.mpi
def test_documented_commands_run(tmp_path):
    """As they stand, but for fewer epochs; of two ranks the curve of one."""
    for name in MODELS:
        written(tmp_path, name)
    for line in COMMANDS:
        words = shlex.split(line.replace("--epochs 100", "--epochs 3"))
        ranks = int(words[2]) if words[0] == "mpiexec" else 1
        words = words[words.index("mgg") + 1 :]
        done = mpiexec(ranks, ["-m", "mgg.cli", *words], cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        if words[0] == "vertex":
            shown = DOCS.partition("GATv2 above:")[2].split("```")[1].strip().splitlines()
            assert len(shown) == 3 and all(each in done.stdout.splitlines() for each in shown)
    curves = [[epoch.loss for epoch in read_run(tmp_path / f"run{pes}")[1]] for pes in (1, 2)]
    assert curves[0] == pytest.approx(curves[1], rel=1e-5)
