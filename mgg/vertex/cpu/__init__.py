"""Vertex programs on CPU ranks: loops over arcs as source, compiled by numba."""
