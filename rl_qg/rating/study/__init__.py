"""A study: its database, who rates what, and its ratings as files."""
