"""MGG's scheme: rows cut into neighbor partitions, one remote row fetched per arc (MGG 4, 5); techniques share it."""
