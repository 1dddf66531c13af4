"""Comparisons of the papers' figures and tables with the records."""
