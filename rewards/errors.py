"""The errors that bad input to a metric raises."""


class MetricInputError(ValueError):
    """Bad input to a metric: one line that says what was wrong, where, and what to do."""


class UnreachableModel(MetricInputError):
    """A model that is no local folder, and that the Hub does not have, or the Hub cannot be reached."""
