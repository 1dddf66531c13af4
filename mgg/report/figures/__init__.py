"""Figures as SVG: bars, lines and the timeline of jobs."""
