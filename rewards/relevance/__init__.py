"""Relevance to the passage, without references: QRelScore, QAScore, BARTScore."""
