"""Commands for models: train, infer, evaluate, vertex."""
