"""Benchmarks: data in one form, divided by paragraph, and tables of transfer between data sets."""
