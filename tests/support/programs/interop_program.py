"""``interop.aggregate``, a vertex program, and their derivatives.

``python interop_program.py BACKEND OUT LAYOUT... [fail]`` runs them on ranks; with ``fail`` rank 1 raises an error.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np

from mgg import vertex as V
from mgg.graph.csr import Csr
from support.graphs import matrix, relative_error
from support.models.pyg import interop, torch
from support.programs.spmm_program import inputs
from support.ranks import mpiexec

#: Rows of this width are padded on GPUs.
WIDTH = 41


def derivatives(graph: interop.Graph) -> dict[str, np.ndarray]:
    """This PE's rows of x, g, ``y`` = A x, ``by_x``, the gradient A^T g of <A x, g>, and ``by_g``.

    The last is the gradient by g of <A^T g, x>, which is A x again: backward of backward.
    """
    nodes = graph.node_ids.cpu().numpy()
    x, g = (torch.tensor(inputs(nodes + k, WIDTH), device=graph.device, requires_grad=True) for k in (0, 1000))
    y = interop.aggregate(graph, x)
    (by_x,) = torch.autograd.grad(y, x, g, create_graph=True)
    (by_g,) = torch.autograd.grad(by_x, g, x.detach())
    tensors = {"x": x, "g": g, "y": y, "by_x": by_x, "by_g": by_g}
    return {"nodes": nodes} | {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


@V.program
def summed(v):
    """A x."""
    return V.sum(e.weight * e.src.x for e in v.inedges)


def by_program(graph: interop.Graph) -> dict[str, np.ndarray]:
    """``y`` and ``by_x`` of the same x and g as ``derivatives``, by a vertex program in float64."""
    nodes = graph.node_ids.numpy()
    x, g = (torch.tensor(inputs(nodes + k, WIDTH), dtype=torch.float64, requires_grad=True) for k in (0, 1000))
    y = interop.apply(graph, summed, x, {})
    (by_x,) = torch.autograd.grad(y, x, g)
    return {"program": y.detach().numpy(), "program by_x": by_x.numpy()}


def whole(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The rows of all PEs in the order of the nodes, by name."""
    order = np.argsort(np.concatenate([part["nodes"] for part in parts]))
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


def assert_right(parts: list[dict[str, np.ndarray]], csr: Csr) -> None:
    """Compare the ``derivatives`` of all PEs with float64 products."""
    found, a = whole(parts), matrix(csr)
    assert relative_error(found["y"], a, found["x"]) <= 1e-6
    assert relative_error(found["by_x"], a.T.tocsr(), found["g"]) <= 1e-6
    assert relative_error(found["by_g"], a, found["x"]) <= 1e-6
    if "program" in found:
        assert relative_error(found["program"], a, found["x"]) <= 1e-13
        assert relative_error(found["program by_x"], a.T.tocsr(), found["g"]) <= 1e-13


def on_ranks(
    backend: str, ranks: int, out: Path, folders: list[Path], fail: bool = False, **environment: str
) -> subprocess.CompletedProcess:
    """Run the program on ranks: rank r writes ``OUT/NUMBER-r.npz`` for each layout."""
    arguments = [__file__, backend, str(out), *map(str, folders), *["fail"] * fail]
    return mpiexec(ranks, arguments, timeout=120, **environment)


def _main(backend: str, out: str, *folders: str) -> None:
    def program(graph: interop.Graph, number: int) -> None:
        if folders[-1] == "fail" and graph.world.rank == 1:
            interop.aggregate(graph, torch.zeros(graph.rows, 1, device="meta"))
        found = derivatives(graph) | ({} if graph.world.gpu else by_program(graph))
        np.savez(Path(out) / f"{number}-{graph.world.rank}.npz", **found)

    for number, folder in enumerate(name for name in folders if name != "fail"):
        interop.run(folder, partial(program, number=number), width=WIDTH, backend=backend)


if __name__ == "__main__":
    _main(*sys.argv[1:])
