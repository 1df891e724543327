"""Grids of experiments: jobs, data, analysis, tables."""
