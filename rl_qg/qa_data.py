"""QA examples under their documented name; the code is in the room `rl_qg.data`."""

from rl_qg.data.examples import Answer as Answer
from rl_qg.data.examples import QAExample as QAExample
from rl_qg.data.examples import Role as Role
from rl_qg.data.examples import as_example as as_example
from rl_qg.data.examples import examples_hash as examples_hash
from rl_qg.data.examples import passage_hash as passage_hash
from rl_qg.data.examples import seeded_rank as seeded_rank
from rl_qg.data.examples import write_squad as write_squad
from rl_qg.data.reading import QAData as QAData
from rl_qg.data.reading import read_examples as read_examples
from rl_qg.data.reading import report_line as report_line
from rl_qg.data.splits import Leakage as Leakage
from rl_qg.data.splits import leakage as leakage
from rl_qg.data.splits import sample_labelled as sample_labelled
from rl_qg.data.splits import take as take
from rl_qg.runtime.files import check_unchanged as check_unchanged
from rl_qg.runtime.files import file_hash as file_hash
