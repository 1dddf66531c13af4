// Where this is, mgg looks for NVSHMEM's headers and device library.
