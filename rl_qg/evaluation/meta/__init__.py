"""How good metrics are: agreement with people, and robustness."""
