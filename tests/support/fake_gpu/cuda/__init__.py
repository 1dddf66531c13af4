"""As much of cuda.core as the backend nvshmem calls."""
