"""Calling rewards and metrics."""
