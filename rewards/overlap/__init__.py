"""Words and characters in common with references or the passage: BLEU, GLEU, chrF, ROUGE-L, METEOR, Q-metrics."""
