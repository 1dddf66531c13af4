"""Models that are vertex programs: the same loss and gradients on any number of PEs, the same bits, mistakes told."""

import numpy as np
import pytest
from support.programs.train_program import assert_close, gradients, run
from support.vertex.docs import MODELS, SMALL, written

from mgg.errors import NOT_ENOUGH_MEMORY, InputError, MachineError

HEAD = """from mgg import vertex as V
from mgg.model.module import Chain
from mgg.model.program import VertexLayer, Weight
from mgg.model.settings import LayeredSettings as Settings

"""
#: What the models of the docs have none of: extremes, deviations, weights and degrees, dropout of sources, a program
#: that calls one, two layers of which the second one's input has two axes.
MIXED = f"""{HEAD}
@V.program
def spread(v, W, rate):
    rows = [V.dropout(e.src.x @ W, rate) for e in v.inedges]
    return V.concat(V.max(rows), V.min(rows), V.std(rows))


@V.program
def mixed(v, W, b, rate):
    near = V.mean(e.weight * V.tanh(e.src.x - v.x) for e in v.inedges)
    return V.concat(V.relu(spread(v, W, rate) + b), near / (1 + v.degree))


@V.program
def by_head(v, W):
    shares = V.softmax(V.dot(u.x, v.x) for u in v.innbs)
    return V.mean_of_heads(V.sum(s * u.x for s, u in zip(shares, v.innbs)) + 0.5 * v.x) @ W


def build(settings, sizes):
    columns, width = sizes.features, 3 * settings.hidden + sizes.features
    first = {{"W": Weight((columns, settings.hidden)), "b": Weight((3 * settings.hidden,), "ones"), "rate": 0.3}}
    second = {{"W": Weight((width // 2, sizes.classes))}}
    return Chain(
        VertexLayer("first", mixed, columns, first, place=3),
        VertexLayer("second", by_head, width, second, shape=(2, width // 2)),
    )
"""
NAMES = [*MODELS, "mixed"]


def graph_of(name):
    return "typed" if name == "my_relational" else "directed"


def model_of(name, folder):
    if name in MODELS:
        return written(folder, name)
    (folder / f"{name}.py").write_text(MIXED, encoding="utf-8")
    return str(folder / f"{name}.py")


def options_of(name, folder):
    return {"model": model_of(name, folder), "technique": "halo", "settings": SMALL.get(name, {"hidden": 4}), "seed": 3}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "my_gcn")) for name in NAMES])
def test_programs_do_not_depend_on_pes_fusion_or_schedule(name, layouts, tmp_path):
    options = {**options_of(name, tmp_path), "epoch": 5}
    expected = gradients("simulated", layouts(graph_of(name), 1), 1, **options)[0]
    assert len(expected) > 2 and all(np.abs(array).max() > 0 for array in expected.values())
    turned = {**options, "settings": options["settings"] | {"backward": "turned"}}
    ways = [(2, options), (4, options), (1, options | {"fused": False}), (2, options | {"fused": False})]
    if name in ("my_gcn", "my_recurrent"):
        with pytest.raises(InputError, match=f"setting backward=turned: in model {name} no gradients go from arcs to"):
            gradients("simulated", layouts("directed", 2), 2, **turned)
    else:
        ways += [(1, turned), (4, turned)]
    for pes, way in ways:
        for found in gradients("simulated", layouts(graph_of(name), pes), pes, **way):
            assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("technique", ["broadcast", "mgg", "cola"])
def test_turned_gradients_agree_between_techniques(technique, layouts, tmp_path):
    options = {**options_of("my_gatv2", tmp_path), "epoch": 5}
    expected = gradients("simulated", layouts("directed", 1), 1, **options)[0]
    options |= {"settings": options["settings"] | {"backward": "turned"}, "technique": technique}
    for found in gradients("simulated", layouts("directed", 4), 4, **options):
        assert_close(found, expected)


@pytest.mark.parametrize("rate", [0.0, 0.7])
def test_evaluation_applies_no_dropout(rate, layouts, tmp_path):
    """Of one epoch that learns next to nothing, the scores are those of the first weights, whatever the rate."""
    settings = {"hidden": 4, "dropout": rate, "learning_rate": 1e-12}
    options = {**options_of("my_gcn", tmp_path), "settings": settings, "epochs": 1}
    scored = run("simulated", layouts("directed", 2), 2, **options)[0].record
    plain = run("simulated", layouts("directed", 2), 2, **{**options, "settings": settings | {"dropout": 0.0}})[
        0
    ].record
    assert scored.test_accuracy == plain.test_accuracy
    assert (scored.loss == plain.loss) == (rate == 0.0)


BODY = """@V.program
def layer(v, W):
    return {expression}


def build(settings, sizes):
    return Chain(VertexLayer("only", layer, sizes.features, {{"W": {weight}}}{more}))
"""
SUM = "V.sum(u.x @ W for u in v.innbs)"
FULL = "Weight((sizes.features, sizes.classes))"
#: Expression, weight, more arguments, the line that is blamed (0: none) and what is said.
MISTAKES = {
    "shape": (SUM, "Weight((sizes.classes, sizes.classes))", "", 8, r"\[40\] a source @ \[4, 4\] for all"),
    "nothing": ("None", FULL, "", 7, "it returns None: return a value of the vertex"),
    "kept": (
        f"({SUM}, V.keep([u.x @ W for u in v.innbs]))", FULL, "", 0,
        r"layer only: program layer keeps 1 values of arcs: name each, .* not keeps=\(\)",
    ),
    "nothing kept": (SUM, FULL, ", keeps=('f',)", 0, r"keeps 0 values of arcs: name each, .* not keeps=\('f',\)"),
    "two values": (f"({SUM}, v.x @ W)", FULL, "", 0, "program layer returns 2 values of the vertex, a layer has one"),
    "nobody keeps": (
        "V.sum(e.f * (e.src.x @ W) for e in v.inedges)", FULL, ", arcs={'f': (4,)}", 0,
        r"layer only: its program reads e\.f, which no layer before it keeps \(keeps=\('f',\)\): to begin with, m",
    ),
    "tuple": (SUM, "(40, 4)", "", 0, r"layer only: parameter W is \(40, 4\): to train it, write Weight\(\(40, 4\)\)"),
    "number": (SUM, "Weight(40)", "", 0, r"Weight\(40\): its shape is a tuple"),
    "init": (SUM, "Weight((40, 4), 'uniform')", "", 0, "Weight of init 'uniform': it is one of glorot, zeros, ones"),
    "axes": (SUM, FULL, ", shape=(3, 4)", 0, r"layer only: shape \(3, 4\) of x: its 12 numbers are not 40 columns"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_program_error_is_one_line_and_writes_nothing(mistake, layouts, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    expression, weight, more, line, said = MISTAKES[mistake]
    path = tmp_path / "mine.py"
    path.write_text(HEAD + BODY.format(expression=expression, weight=weight, more=more), encoding="utf-8")
    options = {"technique": "halo", "epochs": 1, "out": tmp_path / "run"}
    with pytest.raises(InputError, match=said) as caught:
        run("simulated", layouts("directed", 2), 2, model=str(path), **options)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    assert not line or str(caught.value).startswith(f"{path}, line {line}: ")
    assert [each.name for each in tmp_path.iterdir()] == ["mine.py"]


def test_program_beyond_memory_is_refused_before_allocation(layouts, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path, weight = tmp_path / "mine.py", "Weight((sizes.features, 10**11))"
    path.write_text(HEAD + BODY.format(expression=SUM, weight=weight, more=""), encoding="utf-8")
    options = {"technique": "halo", "epochs": 1, "out": tmp_path / "run"}
    with pytest.raises(
        MachineError, match=rf"^{NOT_ENOUGH_MEMORY}: .* needs about \d{{14,}} bytes .* weights \d{{14,}}"
    ):
        run("simulated", layouts("directed", 2), 2, model=str(path), **options)
    assert [each.name for each in tmp_path.iterdir()] == ["mine.py"]


def test_arc_values_of_another_width_are_refused(layouts, tmp_path):
    text = MODELS["my_arcs"].replace('arcs={"f": (hidden,)}', 'arcs={"f": (hidden + 1,)}')
    text = text.replace(
        "others = {name: Weight((hidden, classes))", 'others = {name: Weight((hidden + (name == "C"), classes))'
    )
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    options = {"technique": "halo", "epochs": 1, "settings": {"hidden": 3}, "model": str(tmp_path / "mine.py")}
    with pytest.raises(
        InputError, match=r"layer layer1: e\.f is \(4,\), what an earlier layer keeps as f has 3 n"
    ) as caught:
        run("simulated", layouts("directed", 2), 2, **options)
    assert caught.value.everywhere


def test_added_loops_keep_no_arc_values(layouts, tmp_path):
    (tmp_path / "mine.py").write_text(
        MODELS["my_arcs"].replace("@V.program\ndef first", "@V.program(loops=True)\ndef first")
    )
    with pytest.raises(InputError, match="layer layer0: program first has loops=True: arcs that it adds keep nothing"):
        gradients("simulated", layouts("directed", 1), 1, model=str(tmp_path / "mine.py"), technique="halo")


@pytest.mark.slow
def test_loops_with_typed_arcs_are_refused_on_every_pe(layouts, tmp_path):
    path = tmp_path / "typed.py"
    path.write_text(MODELS["my_gatv2"].replace("place=2 * k + 1)", "place=2 * k + 1, relations=sizes.relations)"))
    options = {**options_of("my_gatv2", tmp_path), "epochs": 1}
    run("simulated", layouts("typed", 4), 4, **options)  # its types do not count
    options |= {"model": str(path), "out": tmp_path / "run"}
    with pytest.raises(
        InputError, match=r"^loops=True: the arcs of this graph have types; add what .* as a t"
    ) as caught:
        run("simulated", layouts("typed", 4), 4, **options)
    assert caught.value.everywhere, "one line, and not one of each rank"
    assert not (tmp_path / "run").exists()


def test_function_without_a_program_is_refused(layouts, tmp_path):
    path = tmp_path / "mine.py"
    text = HEAD + BODY.format(expression=SUM, weight=FULL, more="").replace("@V.program\n", "")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"layer only: <function layer .* is no vertex program: decorate it with @V"):
        gradients("simulated", layouts("directed", 1), 1, model=str(path), technique="halo")
