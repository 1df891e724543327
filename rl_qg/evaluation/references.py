"""Human questions as the references of generated ones: joined by id, or by passage and answer.

`rl-qg generate` writes the id of the example that a question was made for, so the human question of that example is
its reference. Questions from elsewhere, or about answers that `rl-qg answers` chose, have other ids: their references
are all human questions about the same passage and answer.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rewards.base import MetricResult
from rewards.sets import PUBLISHED_OPTIONS
from rl_qg.data.examples import passage_hash, sentence_of
from rl_qg.data.formats import IMPOSSIBLE, RawRecord, is_hub_name
from rl_qg.data.reading import malformed_line, raw_records, without_malformed
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash
from rl_qg.scoring.kept_scores import MetricRow
from rl_qg.scoring.reward_scorer import Reward

log = logging.getLogger(__name__)
BY_ID, BY_ANSWER, BY_PASSAGE = "id", "passage and answer", "passage"


class HumanSources:
    """One source of human questions or a list of them, in any form that `data.train` takes; of the Hub a `split`."""

    remedy = "give a file, such as references=train.json, or a list of files"

    def __init__(self, sources: Any, split: str) -> None:
        self.sources = list(sources) if isinstance(sources, list | tuple) else [sources]
        if not self.sources or not all(isinstance(source, str) and source for source in self.sources):
            raise InputError(f"references={sources!r}: {self.remedy}")
        self._split, self.malformed = split, list[str]()

    def __str__(self) -> str:
        return ", ".join(self.sources)

    def hashes(self) -> dict[str, str]:
        """SHA-256 of each file; of a Hub data set there is none."""
        files = [source for source in self.sources if not is_hub_name(source)]
        return {source: file_hash(Path(source).expanduser()) for source in files}

    def records(self) -> Iterator[RawRecord]:
        """All but malformed ones, which are then in `malformed` and in the log."""
        for source in self.sources:
            yield from without_malformed(source, raw_records(source, self._split), self.malformed)
        if self.malformed:
            log.warning("%s", malformed_line(self, self.malformed))


class GoldQuestions(HumanSources):
    """The questions of some sources.

    Questions that the passage does not answer (SQuAD 2) are left out. An id joins where the record's passage and
    answer are the row's, as far as the row has them: where a file has no ids they are numbers, which another file of
    the same name has too. An id of several records joins nothing.
    """

    def __init__(self, sources: Any, split: str = "train") -> None:
        super().__init__(sources, split)
        # Question, passage and answers of each record.
        self._by_id: defaultdict[str, set[tuple[str, str, frozenset[str]]]] = defaultdict(set)
        self._by_answer: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self._by_passage: defaultdict[str, list[str]] = defaultdict(list)
        self.used: set[tuple[str, str]] = set()  # passage and question of what was joined
        for record in self.records():
            question = record.question.strip()
            if not question or record.unusable == IMPOSSIBLE:
                continue
            passage, answers = passage_hash(record.context), frozenset(text.strip() for text, _ in record.answers)
            human = question, passage, answers
            if human not in self._by_id[record.id]:  # a record that two sources share is one
                self._by_passage[passage].append(question)
            self._by_id[record.id].add(human)
            for answer in answers:
                self._by_answer[passage, answer][question] = None
        if not self._by_id:
            raise InputError(f"{self}: holds no question; check the file")

    @property
    def passages(self) -> int:
        return len(self._by_passage)

    @property
    def unused(self) -> int:
        return len({(key, text) for key, texts in self._by_passage.items() for text in texts} - self.used)

    def of_passage(self, context: str) -> tuple[str, ...]:
        """All human questions about a passage; one that people asked of several answers is there as often."""
        questions = tuple(self._by_passage.get(passage := passage_hash(context), ()))
        self.used |= {(passage, question) for question in questions}
        return questions

    def find(self, example_id: object, context: str | None, answer: str | None) -> tuple[tuple[str, ...], str]:
        """The references of a question and how they were joined: `BY_ID`, `BY_ANSWER`, or no references and ""."""
        passage = None if context is None else passage_hash(context)
        answer = (answer or "").strip()
        same_id = self._by_id.get("" if example_id is None else str(example_id), set())
        for question, of_passage, answers in same_id if len(same_id) == 1 else ():
            if passage in (None, of_passage) and (not answer or answer in answers):  # as far as they are known
                self.used.add((of_passage, question))
                return (question,), BY_ID
        questions = self._by_answer.get((passage, answer)) if passage and answer else None
        self.used.update((passage or "", question) for question in questions or ())
        return (tuple(questions), BY_ANSWER) if questions else ((), "")


def grouped_rows(rows: Sequence[MetricRow], level: str, aggregation: str) -> list[MetricRow]:
    """The rows that lmqg scores: one for each distinct sentence or passage (in lower case), in the order of their
    first rows, against all human questions about it.

    `level` is answer (the rows as they are), sentence or paragraph; `aggregation` says which of a group's questions is
    scored: first, last, long, short or middle (of the questions by length in bytes the one after half of them).

    Source: asahi417/lm-question-generation, `automatic_evaluation.py`. The published tables of question generation are
    of level `sentence`, with the first question of each sentence.
    """
    for row in rows:
        if not row.references:
            raise InputError(f"{row.where}: 'references' is missing, and compat=lmqg needs it; add references=FILE")
    if level == "answer":
        return [*rows]
    groups: dict[str, list[MetricRow]] = {}
    for row in rows:
        key = row.sentence if level == "sentence" else row.context
        if key is None:
            column = "sentence" if level == "sentence" else "context"
            raise InputError(
                f"{row.where}: {column!r} is missing or no text, and level={level} needs it; add it "
                f"(columns.{column}=… names another field), or score with level=answer"
            )
        groups.setdefault(key.strip().lower(), []).append(row)
    return [_one_row(group, aggregation) for group in groups.values()]


def stated_sentence(start: int | None, context: str | None, answer: str | None) -> str | None:
    """Return the sentence of an answer that is at `start` of its passage, else None."""
    if start is None or not context or not answer or not context.startswith(answer, start):
        return None
    first, end = sentence_of(context, start, start + len(answer))
    return context[first:end]


def _one_row(group: Sequence[MetricRow], aggregation: str) -> MetricRow:
    questions = [row.question for row in group]
    by_length = sorted(questions, key=lambda text: len(text.strip().encode()))
    chosen = {
        "first": questions[0],
        "last": questions[-1],
        "long": by_length[-1],
        "short": by_length[0],
        "middle": by_length[len(by_length) // 2],
    }[aggregation]
    references = tuple(text for row in group for text in row.references or ())
    return replace(group[0], question=chosen, references=references)


class FirstReference:
    """A metric that is given the first of several references alone, as lmqg gives its BERTScore and MoverScore."""

    def __init__(self, metric: Any) -> None:
        self.metric = metric
        self.signature = f"{getattr(metric, 'signature', type(metric).__name__)}|references:first"

    def __getattr__(self, name: str) -> Any:
        if name == "metric":
            raise AttributeError(name)  # of a copy that is being made
        return getattr(self.metric, name)  # what it needs, which side is better, whether it scores all rows at once

    def score(self, *columns: Any, references: Sequence[Sequence[str]] | None = None, **named: Any) -> MetricResult:
        first = None if references is None else [group[:1] for group in references]
        return self.metric.score(*columns, references=first, **named)


def as_published(metrics: Mapping[str, Reward]) -> dict[str, Reward]:
    """Return the metrics by label; those that lmqg gives one reference alone get the first, others are as they are."""
    return {
        label: FirstReference(metric) if getattr(metric, "name", "") in PUBLISHED_OPTIONS else metric
        for label, metric in metrics.items()
    }
