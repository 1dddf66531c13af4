"""Compute kernels of a PE: the operators that techniques and models use."""
