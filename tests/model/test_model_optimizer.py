"""Adam against the published recursion in float64, and the first weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgg.model.arrays import HostArrays
from mgg.model.initialization import initial_weights
from mgg.model.module import Parameter
from mgg.model.named_views import joined
from mgg.model.optimizer import Adam


def reference(weight, gradients, rate, decay, decoupled):
    """Kingma and Ba, algorithm 1, with the gradient of an L2 penalty, or AdamW; float64, moments as plain sums."""
    for t in range(1, len(gradients) + 1):
        if t == 1:
            first, second = np.zeros_like(weight), np.zeros_like(weight)
        g = gradients[t - 1] + (0 if decoupled else decay) * weight
        weight = weight * (1 - (rate * decay if decoupled else 0))
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        weight = weight - rate * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return weight


@pytest.mark.parametrize("decoupled", [False, True], ids=["adam", "adamw"])
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40), rate=st.floats(1e-4, 0.1), decay=st.floats(0, 0.1))
def test_adam_follows_its_formula(decoupled, seed, steps, rate, decay):
    rng = np.random.default_rng(seed)
    parameters = [Parameter("a", (3, 4), "glorot", decay), Parameter("b", (5,), "zeros")]
    start = {"a": rng.normal(size=(3, 4)), "b": rng.normal(size=5)}
    gradients = {name: rng.normal(size=(steps, *value.shape)) for name, value in start.items()}
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 1e-4)):
        weights = joined({name: value.astype(dtype) for name, value in start.items()})
        adam = Adam(HostArrays(), parameters, weights, decoupled=decoupled)
        for step in range(steps):
            mine = np.concatenate([value[step].ravel() for value in gradients.values()])
            adam.step(mine, adam.rates(step + 1, rate), np.ones(1))
            adam.step(mine, adam.rates(step + 1, rate), np.zeros(1))  # not allowed: nothing changes
        for parameter in parameters:
            name = parameter.name
            expected = reference(start[name], gradients[name], rate, parameter.decay, decoupled)
            assert weights[name].dtype == dtype
            np.testing.assert_allclose(weights[name], expected, rtol=tolerance, atol=tolerance)


def test_decay_acts_only_on_its_parameter():
    parameters = [Parameter("a", (2,), "ones", 0.5), Parameter("b", (2,), "ones")]
    weights = joined(initial_weights(parameters, 0))
    Adam(HostArrays(), parameters, weights).step(np.zeros(4), Adam.rates(1, 0.01), np.ones(1))
    assert (weights["a"] < 1).all()
    assert (weights["b"] == 1).all()


def test_glorot_draws_within_its_bounds():
    parameters = [Parameter("a", (300, 200), "glorot"), Parameter("b", (300, 200), "glorot")]
    weights = initial_weights(parameters, 3)
    limit = np.sqrt(6 / 500)
    for weight in weights.values():
        assert weight.dtype == np.float32
        assert np.abs(weight).max() <= limit
        assert np.isclose(weight.std(), limit / np.sqrt(3), rtol=0.01)
    assert abs(np.corrcoef(weights["a"].ravel(), weights["b"].ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("seed", [0, 1])
def test_initial_weights_depend_only_on_the_seed(seed):
    parameters = [Parameter("a", (4, 4), "glorot"), Parameter("b", (2,), "ones"), Parameter("c", (2,), "zeros")]
    first, again = initial_weights(parameters, seed), initial_weights(parameters, seed)
    other = initial_weights(parameters, seed + 1)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["a"], other["a"])
    assert first["b"].tolist() == [1, 1]
    assert first["c"].tolist() == [0, 0]
