"""``interop.aggregate`` on GPUs: products and gradients of CUDA tensors, on NVSHMEM ranks."""

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout
from support.models.pyg import torch
from support.programs.interop_program import assert_right, on_ranks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU: a CPU wheel, or no driver"),
]

NAMES = ("directed", "weighted", "empty rows", "row of 10,000 arcs", "more PEs than nodes")


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_products_and_gradients_of_cuda_tensors(pes, tmp_path):
    graphs = {name: awkward_graphs()[name] for name in NAMES}
    folders = [make_layout(tmp_path / name, csr, pes) for name, csr in graphs.items()]
    done = on_ranks("nvshmem", pes, tmp_path, folders)
    assert done.returncode == 0, done.stderr
    for number, csr in enumerate(graphs.values()):
        assert_right([dict(np.load(tmp_path / f"{number}-{rank}.npz")) for rank in range(pes)], csr)
