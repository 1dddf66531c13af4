"""Every wait ends: limits, signs of life, and the name of the PE that is late."""
