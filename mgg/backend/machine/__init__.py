"""Facts about a machine and what a job may use of it: probes, record fields, cores, memory, topology, Slurm."""
