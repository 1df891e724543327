"""QA examples under their documented name; the code is in `rl_qg.data.examples`."""

from rl_qg.data.examples import Answer, Leakage, QAData, QAExample, leakage, read_examples, take, write_squad

__all__ = ["Answer", "Leakage", "QAData", "QAExample", "leakage", "read_examples", "take", "write_squad"]
