"""MGG's scheme: rows are cut into neighbor partitions, with one remote row fetched per arc (MGG 4, 5)."""
