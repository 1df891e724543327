"""From candidate questions to a larger training set: measures, filters, sampling."""
