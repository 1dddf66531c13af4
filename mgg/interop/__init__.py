"""Bridges to PyTorch, PyTorch Geometric and DGL (docs/interop.md): the only part of MGG that imports them.

``run`` starts the PEs, ``aggregate`` is A X as a differentiable function, ``use`` lets layers of PyTorch Geometric
aggregate through it, ``shards`` makes a graph folder of a PyTorch Geometric or DGL graph.
"""

try:
    import torch as _torch  # noqa: F401 - here, so that one line says what is missing
except ImportError as error:
    raise ImportError(f"mgg.interop needs PyTorch ({error}): pip install 'mgg[torch]'") from None

from mgg.interop.convert import shards
from mgg.interop.convolutions import use
from mgg.interop.graph import Graph, aggregate, run

__all__ = ["Graph", "aggregate", "run", "shards", "use"]
