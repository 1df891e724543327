"""Candidate answers: the parts of `rl_qg.answers` and `rl_qg.train_answers`."""
