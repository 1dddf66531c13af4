"""Loss and accuracy against SciPy's log-softmax and finite differences."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit, log_softmax

from mgg.model.loss import (
    binary_cross_entropy,
    binary_cross_entropy_gradient,
    correct,
    cross_entropy,
    cross_entropy_gradient,
    decisions,
)


@st.composite
def cases(draw):
    rows, classes = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    logits = draw(arrays(np.float64, (rows, classes), elements=st.floats(-50, 50)))
    labels = draw(arrays(np.int32, rows, elements=st.integers(0, classes - 1)))
    chosen = draw(st.lists(st.integers(0, rows - 1), unique=True))
    return logits, labels, np.array(sorted(chosen), np.int64)


@settings(max_examples=60)
@given(cases())
def test_loss_and_gradient(case):
    logits, labels, chosen = case
    logs = log_softmax(logits, axis=1)
    expected = -logs[chosen, labels[chosen]].sum()
    np.testing.assert_allclose(cross_entropy(logits, labels, chosen), expected, rtol=1e-12, atol=1e-12)
    gradient = cross_entropy_gradient(logits, labels, chosen, 7)
    one_hot = np.eye(logits.shape[1])[labels]
    wanted = np.zeros_like(logits)
    wanted[chosen] = ((np.exp(logs) - one_hot) / 7)[chosen]
    np.testing.assert_allclose(gradient, wanted, atol=1e-14)


@settings(max_examples=30)
@given(cases(), st.floats(-1e4, 1e4))
def test_loss_ignores_a_constant(case, constant):
    logits, labels, chosen = case
    found = cross_entropy(logits + constant, labels, chosen)
    np.testing.assert_allclose(found, cross_entropy(logits, labels, chosen), rtol=1e-9, atol=1e-9)


def test_loss_survives_huge_logits_and_unlabeled_rows():
    logits = np.array([[1e30, 0], [0, 1e30], [3, 4]], np.float32)
    labels = np.array([0, 1, -1], np.int32)
    assert cross_entropy(logits, labels, np.array([0, 1])) == 0
    gradient = cross_entropy_gradient(logits, labels, np.array([0, 1]), 2)
    assert gradient.dtype == np.float32
    assert not gradient.any()


def test_correct_counts_the_first_of_equal_logits():
    logits = np.array([[1, 1, 0], [0, 2, 2], [5, 1, 9]], np.float32)
    assert correct(logits, np.array([0, 2, 2]), np.array([0, 1, 2])) == 2
    assert correct(logits, np.array([0, 2, 2]), np.array([], np.int64)) == 0


@settings(max_examples=40)
@given(cases(), st.integers(0, 2**32))
def test_class_weights_scale_the_rows(case, seed):
    logits, labels, chosen = case
    weights = np.random.default_rng(seed).uniform(0.1, 3, logits.shape[1]).astype(np.float32)
    expected = sum(weights[labels[row]] * cross_entropy(logits, labels, np.array([row])) for row in chosen)
    np.testing.assert_allclose(cross_entropy(logits, labels, chosen, weights), expected, rtol=1e-6, atol=1e-12)
    plain = cross_entropy_gradient(logits, labels, chosen, 3)
    found = cross_entropy_gradient(logits, labels, chosen, 3, weights)
    np.testing.assert_allclose(found, plain * weights[labels][:, None], rtol=1e-6, atol=1e-14)


@st.composite
def task_cases(draw):
    rows, tasks = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    logits = draw(arrays(np.float64, (rows, tasks), elements=st.floats(-40, 40)))
    answers = draw(arrays(np.uint8, (rows, tasks), elements=st.sampled_from([0, 1, 255])))
    chosen = draw(st.lists(st.integers(0, rows - 1), unique=True))
    return logits, answers, np.array(sorted(chosen), np.int64)


@settings(max_examples=60)
@given(task_cases())
def test_binary_cross_entropy_matches_its_gradient(case):
    logits, answers, chosen = case
    here = np.zeros(logits.shape, bool)
    here[chosen] = answers[chosen] <= 1
    signed = np.where(answers == 1, logits, -logits)
    expected = np.log1p(np.exp(-signed))[here].sum()
    np.testing.assert_allclose(binary_cross_entropy(logits, answers, chosen), expected, rtol=1e-9, atol=1e-12)
    gradient = binary_cross_entropy_gradient(logits, answers, chosen, 4)
    np.testing.assert_allclose(gradient, np.where(here, expit(logits) - (answers == 1), 0) / 4, atol=1e-14)


def test_binary_cross_entropy_by_hand():
    """log(1 + e^z) is 0.313262, 0.693147 and 1.313262 for z = -1, 0 and 1; what is unknown costs nothing."""
    logits = np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [1.0, -1.0]])
    answers = np.array([[0, 1], [0, 1], [0, 1], [255, 255]], np.uint8)
    costs = [0.313262 + 1.313262, 2 * 0.693147, 1.313262 + 0.313262, 0]
    found = [binary_cross_entropy(logits, answers, np.array([row])) for row in range(4)]
    np.testing.assert_allclose(found, costs, atol=2e-6)
    between = np.array([[-0.5]]), np.array([[0]], np.uint8), np.array([0])
    np.testing.assert_allclose(binary_cross_entropy(*between), 0.474077, atol=1e-6)


@settings(max_examples=40)
@given(task_cases())
def test_decisions_match_scikit_learns_confusion(case):
    logits, answers, chosen = case
    known = answers[chosen] <= 1
    truth, said = answers[chosen][known], logits[chosen][known] > 0
    found = decisions(logits, answers, chosen)
    assert found.tolist() == [(said & (truth == 1)).sum(), (said & (truth == 0)).sum(), (~said & (truth == 1)).sum()]


def test_huge_logits_do_not_overflow():
    logits, answers = np.array([[1e30, -1e30]], np.float32), np.array([[1, 0]], np.uint8)
    assert binary_cross_entropy(logits, answers, np.array([0])) == 0
    assert not binary_cross_entropy_gradient(logits, answers, np.array([0]), 1).any()
