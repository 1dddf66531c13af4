"""Vertex programs: what one vertex does, written once, worked off on any number of PEs."""
