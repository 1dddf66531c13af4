"""What a machine is and what a job may use of it: probes, facts for records, cores, memory, topology, Slurm."""
