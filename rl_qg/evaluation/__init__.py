"""How good questions are: rewards and metrics over files, and generators compared."""
