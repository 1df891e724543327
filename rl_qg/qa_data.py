"""QA examples under their documented name; the code is in the room `rl_qg.data`."""

from rl_qg.data.examples import (
    Answer,
    QAExample,
    Role,
    as_example,
    examples_hash,
    passage_hash,
    seeded_rank,
    write_squad,
)
from rl_qg.data.reading import QAData, read_examples, report_line
from rl_qg.data.splits import Leakage, leakage, sample_labelled, take
from rl_qg.runtime.files import check_unchanged, file_hash

__all__ = [
    "Answer",
    "Leakage",
    "QAData",
    "QAExample",
    "Role",
    "as_example",
    "check_unchanged",
    "examples_hash",
    "file_hash",
    "leakage",
    "passage_hash",
    "read_examples",
    "report_line",
    "sample_labelled",
    "seeded_rank",
    "take",
    "write_squad",
]
