"""Stand-ins for CuPy, cuda.core and nvshmem4py on hosts without GPUs: as much of them as PEs with GPUs call.

Device arrays are strict arrays, symmetric memory is that of MPI windows, and a stream does its work at once. It stands
still where a GPU's would: behind a barrier or signal that does not come. What GPUs there are says FAKE_GPUS (4).
"""
