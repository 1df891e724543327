"""The statistics of ratings: whose count, scores of systems, and how certain they are."""
