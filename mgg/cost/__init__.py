"""Predict the time of products on a machine: cost terms, links, operator rates, machines (docs/concepts/costs.md)."""
