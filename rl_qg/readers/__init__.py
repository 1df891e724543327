"""Encoders that read: extractive QA readers with EM and F1, token classifiers, the predictor of KPQA."""
