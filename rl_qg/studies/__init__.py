"""Grids of experiments: the parts of `rl_qg.study`."""
