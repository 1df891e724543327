"""Statistics: intervals, tests, correlation, agreement."""
