"""What products take on a machine: terms of the cost model, links, rates of operators, machines (docs/costs.md)."""
