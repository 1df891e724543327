"""Similarity of token embeddings: BERTScore, MoverScore, and KPQA, which weights tokens."""
