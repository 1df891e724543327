"""Metrics beside people: how far they agree."""
