"""Bridges to PyTorch, PyTorch Geometric and DGL (docs/guides/interop.md): the only part of MGG that imports them.

``run`` starts the PEs. ``aggregate`` is A X as a differentiable function, ``apply`` is the same for a vertex program
and ``VertexModule`` wraps one as a module. ``use`` makes layers of PyTorch Geometric aggregate through MGG. ``shards``
makes a graph folder from a PyTorch Geometric or DGL graph.
"""

try:
    import torch as _torch  # noqa: F401 - here, so that one line says what is missing
except ImportError as error:
    raise ImportError(f"mgg.interop needs PyTorch ({error}): pip install 'mgg[torch]'") from None

from typing import TYPE_CHECKING, Any

from mgg.interop.convert import shards
from mgg.interop.graph import Graph, aggregate, run
from mgg.interop.vertex import VertexModule, apply

if TYPE_CHECKING:
    from mgg.interop.convolutions import use

__all__ = ["Graph", "VertexModule", "aggregate", "apply", "run", "shards", "use"]


def __getattr__(name: str) -> Any:
    """Import ``use`` on first access: only it needs PyTorch Geometric, which takes seconds to import."""
    if name != "use":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mgg.interop.convolutions import use

    return use
