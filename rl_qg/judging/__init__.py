"""Metrics set beside people and beside each other: parts of evaluate, correlate and robustness."""
