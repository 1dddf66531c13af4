"""Loss and accuracy against SciPy's log-softmax and finite differences."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax

from mgg.model.loss import correct, cross_entropy, cross_entropy_gradient


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
