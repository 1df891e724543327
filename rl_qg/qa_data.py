"""QA examples under their documented name; the code is in the room `rl_qg.data`."""

from rl_qg.data.examples import (
    Answer as Answer,
    QAExample as QAExample,
    Role as Role,
    as_example as as_example,
    examples_hash as examples_hash,
    passage_hash as passage_hash,
    seeded_rank as seeded_rank,
    write_squad as write_squad,
)
from rl_qg.data.reading import QAData as QAData, read_examples as read_examples, report_line as report_line
from rl_qg.data.splits import Leakage as Leakage, leakage as leakage, sample_labelled as sample_labelled, take as take
from rl_qg.runtime.files import check_unchanged as check_unchanged, file_hash as file_hash
