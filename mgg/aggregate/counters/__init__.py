"""Hardware counters of products: profiles by Nsight Compute, page faults of unified memory."""
