"""Files of question-answer pairs, by passage: those of a system, and those that people wrote.

A row of a system's file is one pair (`question`, `answer` and its passage, as `rl-qg ask` and `rl-qg generate` write
them, or SQuAD JSON), or all pairs of a passage: a list of such objects in the field `pairs`, or a text in lmqg's form
in the field `questions_answers` (`rl_qg.data.lmqg_pairs`). A passage whose list or text is empty has no pairs.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewards.pair_sets import Pair
from rl_qg.data.examples import passage_hash
from rl_qg.data.formats import IMPOSSIBLE, MALFORMED_RECORD, is_hub_name
from rl_qg.data.lmqg_pairs import FIELD, MALFORMED, split_pairs
from rl_qg.data.question_tables import QuestionTable, TableRow
from rl_qg.data.reading import malformed_line, without_malformed
from rl_qg.data.sources import raw_records
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash

log = logging.getLogger(__name__)
NO_TEXT = "no question or no answer"


@dataclass
class PairFile:
    """The pairs of a system by passage (its hash), in the order of the file.

    `dropped` counts what is no pair, by reason.
    """

    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, context: str, pairs: Iterable[Pair]) -> None:
        """Add pairs of a passage; none is counted as a passage too."""
        kept = self.pairs.setdefault(passage_hash(context), [])
        for question, answer in pairs:
            if question.strip() and answer.strip():
                kept.append((question, answer))
            else:
                self.dropped[NO_TEXT] += 1


def read_pair_file(source: QuestionTable) -> PairFile:
    """Read the pairs of a system.

    Raises:
        InputError: a row without a passage or without any form of pairs, or a file without rows.
    """
    read = PairFile()
    for row in ProgressBar(source, desc="read", unit="row", leave=False, delay=2):
        context = source.value(row, "context")
        if context is None:
            raise InputError(
                f"{row.where}: field {source.columns['context']!r} is missing or no text; the row has "
                f"{', '.join(map(repr, row.fields))} (columns.context=… names another field)"
            )
        read.add(context, _pairs_of(source, row, read.dropped))
    if not read.pairs:
        raise InputError(f"{source}: holds no row; check the file")
    return read


def _pairs_of(source: QuestionTable, row: TableRow, dropped: Counter[str]) -> list[Pair]:
    """The pairs of a row, in any of the three forms."""
    if isinstance(text := row.fields.get(FIELD), str):
        split = split_pairs(text)
        dropped[MALFORMED] += len(split.malformed)
        return split.pairs
    if isinstance(listed := row.fields.get("pairs"), list):
        pairs = [item for item in listed if isinstance(item, Mapping)]
        texts = [(item.get("question"), item.get("answer")) for item in pairs]
        if len(pairs) < len(listed) or not all(isinstance(text, str) for pair in texts for text in pair):
            raise InputError(f"{row.where}: field 'pairs' must be a list of objects with a question and an answer")
        return [(str(question), str(answer)) for question, answer in texts]
    question, answer = source.value(row, "question"), source.value(row, "answer")
    if question is None:
        raise InputError(
            f"{row.where}: no {source.columns['question']!r}, 'pairs' or {FIELD!r}; the row has "
            f"{', '.join(map(repr, row.fields))}"
        )
    return [(question, answer or "")]


@dataclass(frozen=True)
class HumanPair:
    """A question that people wrote, and all answers that they gave; the first one makes the pair."""

    question: str
    answers: tuple[str, ...]

    @property
    def pair(self) -> Pair:
        """Question and first answer."""
        return self.question, self.answers[0]


class HumanPairs:
    """The human pairs of each passage (its hash), of files in any form that `data.train` takes, or Hub data sets.

    Nothing is taken out where it is repeated. Questions without an answer (SQuAD 2) and malformed pairs are counted in
    `dropped`.

    Raises:
        InputError: no source, one that cannot be read, or none of them holds a pair.
    """

    def __init__(self, sources: Any, split: str = "train") -> None:
        self.sources = list(sources) if isinstance(sources, list | tuple) else [sources]
        if not self.sources or not all(isinstance(source, str) and source for source in self.sources):
            raise InputError(
                f"references={sources!r}: pairs are compared with human ones; give a file, such as "
                "references=dev.json, or a list of files"
            )
        self.pairs: dict[str, list[HumanPair]] = {}
        self.contexts: dict[str, str] = {}
        self.dropped: Counter[str] = Counter()
        faults: list[str] = []
        for source in self.sources:
            for record in without_malformed(source, raw_records(source, split), faults):
                answers = tuple(text.strip() for text, _ in record.answers if text.strip())
                if record.unusable in (IMPOSSIBLE, MALFORMED) or not record.question.strip() or not answers:
                    self.dropped[record.unusable or NO_TEXT] += 1
                    continue
                passage = passage_hash(record.context)
                self.contexts.setdefault(passage, record.context)
                self.pairs.setdefault(passage, []).append(HumanPair(record.question.strip(), answers))
        if faults:
            log.warning("%s", malformed_line(", ".join(self.sources), faults))
            self.dropped[MALFORMED_RECORD] += len(faults)
        if not self.pairs:
            raise InputError(f"{', '.join(self.sources)}: holds no question with an answer; check the file")

    def hashes(self) -> dict[str, str]:
        """SHA-256 of each file; of a Hub data set there is none."""
        files = [source for source in self.sources if not is_hub_name(source)]
        return {source: file_hash(Path(source).expanduser()) for source in files}
