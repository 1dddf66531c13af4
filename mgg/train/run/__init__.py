"""The folder of a training run: its identity, its lock, checkpoints, records, weights and predictions."""
