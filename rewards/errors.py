"""The one error that bad input to a metric raises."""


class MetricInputError(ValueError):
    """Bad input to a metric: one line that says what was wrong, where, and what to do."""
