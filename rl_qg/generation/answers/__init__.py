"""Candidate answers for passages without questions."""
