"""Results for people: HTML pages, tables and drawings."""
