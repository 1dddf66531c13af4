"""Commands around models: train, infer, evaluate, vertex."""
