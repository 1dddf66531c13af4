"""aggregate and its derivatives on one PE; ``python interop_program.py LAYOUT OUT [fail]`` runs it on MPI ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from mgg import interop
from support.pyg import torch
from support.spmm_program import inputs

WIDTH = 16


def derivatives(graph: interop.Graph) -> dict[str, np.ndarray]:
    """By name this PE's rows of x, g, A x, the gradient A^T g of <A x, g>, and A x again as that one's gradient by g.

    The last one is the gradient by g of <A^T g, x>: backward of backward.
    """
    nodes = graph.node_ids.numpy()
    x = torch.tensor(inputs(nodes, WIDTH), requires_grad=True)
    g = torch.tensor(inputs(nodes + 1000, WIDTH), requires_grad=True)
    y = interop.aggregate(graph, x)
    (by_x,) = torch.autograd.grad(y, x, g, create_graph=True)
    (by_g,) = torch.autograd.grad(by_x, g, x.detach())
    tensors = {"x": x, "g": g, "y": y, "by_x": by_x, "by_g": by_g}
    return {"nodes": nodes} | {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def _main(folder: str, out: str, fail: str = "") -> None:
    def program(graph: interop.Graph) -> None:
        if fail and graph.world.rank == 1:
            interop.aggregate(graph, torch.zeros(graph.rows, 1, device="meta"))
        np.savez(Path(out) / f"{graph.world.rank}.npz", **derivatives(graph))

    interop.run(folder, program, width=WIDTH, backend="mpi")


if __name__ == "__main__":
    _main(*sys.argv[1:])
