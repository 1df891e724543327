"""Tasks for raters from the questions of systems."""
