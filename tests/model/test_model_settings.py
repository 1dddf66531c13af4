"""Names, hyperparameters and input features."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from mgg import vertex as V
from mgg.errors import InputError
from mgg.model import build, models, settings_of
from mgg.model.features import prepare_features
from mgg.model.layers import BatchNorm, Linear, Relu
from mgg.model.module import Chain, Residual
from mgg.model.program import VertexLayer, Weight
from mgg.model.zoo import gcn


def test_models_are_found():
    assert {"gcn", "gin"} <= set(models())
    assert "layers" not in models()


def test_gcn_has_the_published_settings():
    published = settings_of("gcn")
    assert (published.hidden, published.dropout, published.learning_rate) == (16, 0.5, 0.01)
    assert published.weight_decay == 5e-4
    chain = build("gcn", published, 1433, 7)
    shapes = {parameter.name: (parameter.shape, parameter.decay) for parameter in chain.parameters}
    assert shapes == {
        "layer0.weight": ((1433, 16), 5e-4),
        "layer0.bias": ((16,), 5e-4),
        "layer1.weight": ((16, 7), 0),
        "layer1.bias": ((7,), 0),
    }
    assert chain.width == 16


@pytest.mark.parametrize(
    ("layers", "widths"),
    [(1, [(16, 5)]), (3, [(16, 32), (32, 32), (32, 5)]), (5, [(16, 32), *[(32, 32)] * 3, (32, 5)])],
)
def test_gcn_of_other_depths_is_built(layers, widths):
    chain = build("gcn", settings_of("gcn", {"layers": layers, "hidden": 32}), 16, 5)
    weights = [each for each in chain.parameters if each.name.endswith("weight")]
    assert [(each.name, each.shape) for each in weights] == [(f"layer{k}.weight", at) for k, at in enumerate(widths)]
    assert [each.decay > 0 for each in weights] == [k == 0 for k in range(layers)]
    kinds = [type(module).__name__ for module in chain.modules]
    assert kinds.count("Relu") == layers - 1 and kinds[-1] == "Bias"


def test_gin_has_the_published_settings():
    chain = build("gin", settings_of("gin"), 500, 3)
    names = {parameter.name for parameter in chain.parameters}
    assert {f"layer{k}.epsilon" for k in range(5)} <= names
    # A bias before a batch normalization would have a gradient of zero.
    assert [name for name in names if name.endswith("bias")] == ["classifier.bias"]
    assert chain.width == 64


def test_none_means_null_for_optional_settings():
    values = settings_of("gcn", {"patience": "none", "row_normalize": "none", "class_weights": "none"})
    assert (values.patience, values.row_normalize, values.class_weights) == (None, None, "none")
    with pytest.raises(InputError, match="hidden: input should be a valid integer, found 'none'"):
        settings_of("gcn", {"hidden": "none"})


@pytest.mark.parametrize(
    ("model", "values", "message"),
    [
        ("gnc", {}, "model 'gnc' is unknown; did you mean .*gcn"),
        ("gcn", {"droput": 0.1}, "setting of model gcn: droput: unknown field; did you mean dropout"),
        ("gcn", {"layers": 0}, "layers: input should be greater than or equal to 1, found 0"),
        ("gcn", {"heads": 3}, "heads: unknown field"),
        ("gcn", {"normalization": "group"}, "normalization: .*, found 'group'"),
        ("gin", {"layers": 0}, "layers: input should be greater than or equal to 1, found 0"),
        ("gcn", {"dropout": 1.0}, "dropout: input should be less than 1, found 1.0"),
        ("gcn", {"hidden": "many"}, "hidden: .*, found 'many'"),
        ("gcn", {"learning_rate": float("nan")}, "learning_rate: "),
    ],
)
def test_invalid_settings_are_named(model, values, message):
    with pytest.raises(InputError, match=message):
        settings_of(model, values)


@pytest.mark.parametrize(("types", "message"), [(0, "have no types"), (5, "5 types of arcs are no relations and as m")])
def test_arc_types_that_are_not_relations_with_inverses_are_refused(types, message):
    with pytest.raises(InputError, match=message):
        build("compgcn", settings_of("compgcn"), 4, 3, 9, types)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), density=st.floats(0, 1))
def test_row_normalization(seed, density):
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(8, 5)) * (rng.random((8, 5)) < density)).astype(np.float32)
    sums = np.abs(x).sum(axis=1)
    expected = x / np.where(sums > 0, sums, 1)[:, None]
    dense = prepare_features(x, as_sparse=False, row_normalize=True)
    csr = prepare_features(x, as_sparse=True, row_normalize=True)
    assert sparse.issparse(csr)
    assert dense.dtype == csr.dtype == np.float32
    np.testing.assert_allclose(dense, expected, rtol=1e-6)
    np.testing.assert_allclose(csr.toarray(), expected, rtol=1e-6)
    np.testing.assert_array_equal(prepare_features(x, as_sparse=True, row_normalize=False).toarray(), x)


TWICE = {
    "parameters": Chain(Linear("a", 4, 3), Relu(), Linear("a", 3, 3)),
    "one module in two places": Chain(*[Linear("a", 4, 4)] * 2),
    "within another": Chain(Residual(Linear("a", 4, 4)), Residual(Chain(Linear("b", 4, 4), Chain(Linear("a", 4, 4))))),
    "running statistics": Chain(BatchNorm("a", 4), BatchNorm("a", 4)),
}


@pytest.mark.parametrize("case", TWICE)
def test_duplicate_layer_names_are_refused(case, monkeypatch):
    monkeypatch.setattr(gcn, "build", lambda settings, sizes: TWICE[case])
    with pytest.raises(
        InputError, match=r"test_model_settings.py:\d+: model gcn: two layers are called 'a' \(a\.\w+\)"
    ):
        build("gcn", settings_of("gcn"), 4, 3)


@V.program
def turned(v, W):
    return v.x @ W


def test_shared_parameters_must_agree(monkeypatch):
    """Layers that share a parameter have it once; two that differ in it are refused, naming both."""

    def chain(settings, sizes):
        weights = [Weight((4, 4), shared="turn.W"), Weight((4, 4), decay=settings.weight_decay, shared="turn.W")]
        return Chain(*(VertexLayer(f"layer{k}", turned, 4, {"W": each}) for k, each in enumerate(weights)))

    monkeypatch.setattr(gcn, "build", chain)
    made = build("gcn", settings_of("gcn", {"weight_decay": 0.0}), 4, 4)
    assert [(each.name, each.shape) for each in made.parameters] == [("turn.W", (4, 4))]
    with pytest.raises(InputError, match=r"turn.W, which layers share, .*decay 0.0 in one .*0.1 in another"):
        build("gcn", settings_of("gcn", {"weight_decay": 0.1}), 4, 4)
