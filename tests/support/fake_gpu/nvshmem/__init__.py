"""As much of nvshmem4py as the backend nvshmem calls."""
