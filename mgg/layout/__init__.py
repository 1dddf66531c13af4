"""Stage layout: write each PE's part of a graph, ready to be mapped into memory."""

from mgg.layout.build import build
from mgg.layout.parts import PeLayout, Product
from mgg.layout.store import LayoutManifest, load, read_manifest

__all__ = ["LayoutManifest", "PeLayout", "Product", "build", "load", "read_manifest"]
