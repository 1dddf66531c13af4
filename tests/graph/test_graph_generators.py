import pytest

from mgg.graph.sources import generators


@pytest.mark.parametrize("name", generators())
def test_a_generator_says_whether_its_nodes_have_labels(name):
    made = generators()[name]
    data = made.make(0.001 if name != "planted" else 0.1, made.seed, False)
    assert (data.labels is not None) == made.labels
