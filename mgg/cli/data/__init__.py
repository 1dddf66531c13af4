"""Commands that lead from a source to layouts: retrieve, graph, generate, describe, partition, layout, criteo."""
