"""Training on MPI ranks gives what the simulated backend gives."""

import numpy as np
import pytest
from support import train_program

from mgg.aggregate import all_techniques
from mgg.model import models

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_loss_and_gradients(pes, layouts, tmp_path):
    options = [
        {
            "model": model,
            "technique": technique,
            "settings": train_program.SMALL[model],
            "epoch": 5,
            "graph": train_program.graphs_for(model)[-1],
        }
        for model in models()
        for technique in all_techniques()
        if train_program.able(technique, pes)
    ]
    graphs = [each.pop("graph") for each in options]
    calls = [{"folder": str(layouts(graph, pes)), **each} for graph, each in zip(graphs, options, strict=True)]
    results = train_program.on_ranks("gradients", pes, tmp_path / "out.npz", calls)
    for graph, each, found in zip(graphs, options, results, strict=True):
        expected = train_program.gradients("simulated", layouts(graph, 1), 1, **each)[0]
        train_program.assert_close(found, expected)


@pytest.mark.sentinel
def test_runs_give_the_bits_of_the_simulated_backend(layouts, tmp_path):
    options = {"model": "gin", "technique": "halo", "settings": {"hidden": 16}, "epochs": 5}
    simulated = train_program.result_arrays(train_program.run("simulated", layouts("planted", 2), 2, **options)[0])
    calls = [{"folder": str(layouts("planted", 2)), **options}] * 2
    for found in train_program.on_ranks("train", 2, tmp_path / "out.npz", calls):
        for name, array in simulated.items():
            np.testing.assert_array_equal(found[name], array)
