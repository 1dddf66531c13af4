import pytest

from mgg.graph.generators import generators


@pytest.mark.parametrize("name", generators())
def test_a_generator_says_whether_its_nodes_have_labels(name):
    made = generators()[name]
    data = made.make(0.001 if name != "planted" else 0.1, made.seed, False)
    assert (data.labels is not None) == made.labels


@pytest.mark.parametrize("seed", range(5))
def test_every_class_of_a_small_planted_graph_has_training_nodes(seed):
    data = generators()["planted"].make(0.05, seed, seed % 2 == 1)
    assert set(data.labels[data.splits == 1]) == set(range(data.classes))
