"""QA data: examples, the formats people keep them in, splits, passages, the embedded corpus."""
