"""MGG: full-graph GNN training and distributed SpMM on every GPU of a cluster, or on CPU ranks."""

__version__ = "0.1.0"
