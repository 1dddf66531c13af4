"""PEs that have no rows, no arcs, or arcs of few types: every model and technique gives what one PE gives."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from support.graphs import build_layout, typed_csr
from support.models import cases, programmed
from support.programs.train_program import SMALL, able, assert_close, gradients, graphs_for, multiplies, on_ranks

from mgg.aggregate import all_techniques
from mgg.graph.csr import Csr, row_ids
from mgg.model import models
from mgg.partition.schemes import Split

NODES, TYPES = 60, 5
#: First rows of PEs: without rows; ordinary; without arcs; without arcs that end there; with arcs of one type alone
#: that end there, and none that begin there; without rows.
BOUNDS = (0, 0, 20, 30, 40, 60, 60)
PES = len(BOUNDS) - 1
ORDINARY, ALONE, SOURCES, ENDS = range(1, 5)
FAKE_GPU = Path(__file__).parents[2] / "support" / "fake_gpu" / "run.py"
#: Every model; every technique that brings rows for one of them.
PAIRS = [(model, "halo") for model in models() if model != "gatv2"]
PAIRS += [("gatv2", technique) for technique in all_techniques() if able(technique, PES)]


def uneven(types: bool) -> Csr:
    csr = typed_csr(NODES, 900, TYPES, seed=4)
    rows, columns, kinds = row_ids(csr), csr.indices, csr.types
    targets, sources = (np.searchsorted(BOUNDS, each, side="right") - 1 for each in (rows, columns))
    kept = np.isin(targets, (ORDINARY, ENDS)) & np.isin(sources, (ORDINARY, SOURCES))
    kept &= (targets != ENDS) | (kinds == 2)
    if not types:
        kept &= np.append(True, (np.diff(rows) != 0) | (np.diff(columns) != 0))
    indptr = np.append(0, np.cumsum(np.bincount(rows[kept], minlength=NODES))).astype(np.int64)
    return Csr(indptr, columns[kept], None, NODES, kinds[kept] if types else None)


@pytest.fixture(scope="module")
def uneven_layouts(tmp_path_factory):
    """``layouts(name, pes)`` for 1 and ``PES`` of the kinds of graphs of ``graphs_for``."""
    rng = np.random.default_rng(5)
    data = {"labels": rng.integers(0, 3, NODES).astype(np.int32), "splits": rng.integers(1, 4, NODES).astype(np.uint8)}
    featured = data | {"features": rng.random((NODES, 6), np.float32)}
    graphs = {"planted": (False, featured), "typed": (True, featured), "featureless": (True, data)}
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        at = "find_scheme", lambda name: lambda graph, pes: Split(np.array(BOUNDS if pes > 1 else (0, NODES)))
        patch.setattr(sys.modules["mgg.partition.build"], *at)
        for name, (types, node_data) in graphs.items():
            folder = tmp_path_factory.mktemp(name)
            made |= {(name, pes): build_layout(folder, uneven(types), pes, **node_data) for pes in (1, PES)}
    return lambda name, pes: made[name, pes]


@pytest.mark.parametrize(("model", "technique"), cases(PAIRS))
def test_uneven_partitions_have_the_loss_and_gradients_of_one_pe(model, technique, uneven_layouts):
    graph = graphs_for(model)[0]
    options = {"model": model, "settings": SMALL[model], "seed": 3, "epoch": 5}
    expected = gradients("simulated", uneven_layouts(graph, 1), 1, technique="halo", **options)[0]
    for found in gradients("simulated", uneven_layouts(graph, PES), PES, technique=technique, **options):
        assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile the kernels for the host")
def test_uneven_partitions_are_right_on_simulated_gpus(uneven_layouts, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_GPUS", str(PES))
    options = [
        {"model": model, "technique": "halo", "settings": SMALL[model], "folder": str(uneven_layouts(graph, PES))}
        for model, graph in (("gcn", "planted"), ("gat", "planted"), ("pna", "planted"), ("rgcn", "featureless"))
    ]
    made = on_ranks("gradients", PES, tmp_path / "out.npz", options, "nvshmem", [str(FAKE_GPU)])
    for each, found in zip(options, made, strict=True):
        # Generated kernels sum arcs in float32.
        tolerance = 2e-5 if programmed(each["model"]) and not multiplies(each["model"]) else 1e-5
        assert_close(found, gradients("simulated", pes=PES, **each)[0], tolerance)
