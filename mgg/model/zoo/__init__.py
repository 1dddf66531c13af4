"""The models, one file each; adding a file adds a model."""
