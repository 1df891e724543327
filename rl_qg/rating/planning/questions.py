"""The questions of a study: read from the files of several systems, by passage and answer.

A file may have any form that `rl-qg evaluate predictions=…` reads. A passage with its answer is one subject: what the
systems asked about it is compared. Two systems ask the same question where the texts differ in white space alone
(and in the composition of Unicode characters): case counts, since raters see it.
"""

import random
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from rewards.words import QUESTION_MARKS, is_unspaced, separate_unspaced
from rl_qg.data.examples import by_key, passage_hash
from rl_qg.data.question_tables import QuestionTable
from rl_qg.evaluation.references import GoldQuestions
from rl_qg.rating.plan_files import TaskPassage
from rl_qg.runtime.errors import InputError
from rl_qg.text.words import normalised_words, occurrences

# --- Questions made worse on purpose: a run of their words is replaced by words of another passage ---
#
# How many words depends on the length of the question, by one of three published tables: that of the QAScore paper
# (section 4), that of Appraise (its script for WMT17, which takes twice as many characters in Chinese and Japanese),
# and that of crowd-alone, which leaves the words out instead. In scripts without spaces each character counts as a
# word. The first and the last word stay where there are more than two (crowd-alone: the first), and so do the marks
# around a question.

DRAWS = 100  # before a question counts as one that cannot be degraded
_OPENING = "¿¡ \t\r\n\u00a0\u3000"
_CLOSING = QUESTION_MARKS + " \t\r\n\u00a0\u3000"
_UP_TO = ((3, 1), (5, 2), (8, 3), (15, 4), (20, 5))  # words of the question, words replaced
HUMAN = "human"
EMPTY = "empty questions"
FURTHER = "further questions of a system about the same answer"
NOT_FOUND = "questions whose answer is not in the passage"
YES_NO = ("yes", "no")  # answers of HotpotQA that are no part of the passage; nothing is marked


def replaced_words(count: int, table: str) -> int:
    """How many of the words of a question are replaced (crowd_alone: left out). `count`: words of the question."""
    if table == "appraise" and count in (2, 3):
        return 2
    if table == "crowd_alone" and count < 2:
        return 0
    for longest, replaced in _UP_TO:
        if count <= longest:
            return replaced
    return {"qascore": count // 5, "appraise": count // 4, "crowd_alone": -(-count // 5)}[table]


class Degrader:
    """Degrades questions with words of the passages of a study. `passages`: texts by the name of the passage."""

    def __init__(self, passages: Mapping[str, str], table: str) -> None:
        self._passages = passages
        self._names = sorted(passages)
        self._table = table

    def degraded(self, question: str, passage: str, rng: random.Random) -> str | None:
        """The question made worse, its words others than before, case and punctuation aside; None where that cannot be
        done in `DRAWS` draws. `passage`: the name of its own passage, from which no words are taken.
        """
        start = len(question) - len(question.lstrip(_OPENING))
        end = max(start, len(question.rstrip(_CLOSING)))
        body = question[start:end]
        parts = separate_unspaced(body).split()
        characters = 2 * sum(map(is_unspaced, parts)) > len(parts)  # most of it is in a script without spaces
        places = _pieces(body, characters)
        first, last = (1, len(places) - 1) if len(places) > 2 else (0, len(places))  # what may change, end excluded
        if self._table == "crowd_alone":
            first, last = 1, len(places)
        count = replaced_words(len(places), self._table) * (2 if characters and self._table == "appraise" else 1)
        count = min(count, last - first)
        if count < 1:
            return None
        for _ in range(DRAWS):
            at = rng.randint(first, last - count)
            left, right = places[at][0], places[at + count - 1][1]
            words = "" if self._table == "crowd_alone" else self._words(count, passage, characters, rng)
            if words is None:
                continue
            text = _joined(body[:left], words, body[right:])
            if normalised_words(text) != normalised_words(body):
                return question[:start] + text + question[end:]
        return None

    def _words(self, count: int, passage: str, characters: bool, rng: random.Random) -> str | None:
        """So many words in a row of another passage; None where the one that is drawn will not do."""
        name = rng.choice(self._names)
        text = self._passages[name]
        places = _pieces(text, characters)
        if name == passage or len(places) < count:
            return None
        at = rng.randint(0, len(places) - count)
        return " ".join(text[places[at][0] : places[at + count - 1][1]].split())


def _pieces(text: str, characters: bool) -> Sequence[tuple[int, int]]:
    """Start and end of each word between white space, or of each character of a script without spaces."""
    places, end = [], 0
    for piece in (separate_unspaced(text) if characters else text).split():
        start = text.index(piece, end)
        end = start + len(piece)
        places.append((start, end))
    return places


def _joined(before: str, words: str, after: str) -> str:
    """The three parts; where nothing is put in, with one space less."""
    if words:
        return before + words + after
    return before.rstrip() + after if before[-1:].isspace() and (not after or after[0].isspace()) else before + after


@dataclass(frozen=True)
class Subject:
    """A passage with its answer, and the question of each system about it."""

    item: str
    passage: TaskPassage
    answer: str
    answer_start: int | None
    questions: dict[str, str]
    row_id: Any = None  # of the first row about it

    def asked(self) -> list[tuple[str, tuple[str, ...]]]:
        """Its different questions, each with the systems that asked it, in their order."""
        systems = by_key((question, system) for system, question in self.questions.items())
        return [(question, tuple(names)) for question, names in systems.items()]


@dataclass
class StudyQuestions:
    """What the files hold: subjects by id, the systems in their order, and what was left out, by reason."""

    systems: list[str]
    subjects: list[Subject]
    left_out: Counter[str] = field(default_factory=Counter)


class _Row(NamedTuple):
    """A row of a file, its offset as the file has it."""

    system: str
    id: Any
    title: str
    context: str
    answer: str
    start: int | None
    question: str


def read_questions(questions: Any, gold: str = "") -> StudyQuestions:
    """The questions of all systems: of a file, a list of them, or `{system: file}`. Without a name a row's `system`
    counts, else the name of its file. `gold`: QA data whose questions are those of the system `human`; "": none.
    """
    left_out = Counter[str]()
    rows = [row for file in _files(questions) for row in _rows(*file, left_out)]
    if not rows:
        raise InputError("questions: the files hold no question that can be rated; check them")
    systems = list(dict.fromkeys(row.system for row in rows))
    subjects = _by_subject(rows, left_out)
    if gold:
        if HUMAN in systems:
            raise InputError(f"questions: a system is called {HUMAN}, as are the questions of gold={gold}; rename it")
        systems.append(HUMAN)
        known = GoldQuestions(gold, "validation")
        for subject in subjects:
            questions, _ = known.find(subject.row_id, subject.passage.context, subject.answer)
            if texts := [text for text in map(_one_line, questions) if text]:
                subject.questions[HUMAN] = texts[0]
                left_out[FURTHER] += len(texts) - 1
        if not any(HUMAN in subject.questions for subject in subjects):
            raise InputError(f"gold={gold}: has no question about a passage and answer of the systems; check the file")
    return StudyQuestions(systems, subjects, left_out)


def _files(questions: Any) -> list[tuple[str, Any, bool]]:
    """The name and source of each file, and whether the name was given; else its rows may name their system."""
    if isinstance(questions, Mapping) and questions:
        return [(_system_name("questions", str(name)), source, True) for name, source in questions.items()]
    paths = questions if isinstance(questions, list) else [questions]
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise InputError(
            "questions has no value; give the files of the systems, such as questions={ce: ce.jsonl, scst: scst.jsonl}"
        )
    names = [Path(path).name.partition(".")[0] for path in paths]
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"questions: {count} files are called {name}; give names: questions={{ce: …, scst: …}}")
    return [(name, path, False) for name, path in zip(names, paths, strict=True)]


def _rows(name: str, source: Any, named: bool, left_out: Counter[str]) -> Iterator[_Row]:
    table = QuestionTable(source)
    for row in table:
        question, context = table.value(row, "question"), table.value(row, "context")
        if question is None or not context or not context.strip():
            lacking = "question" if question is None else "context"
            raise InputError(f"{row.where}: field {lacking!r} is missing or no text; every question needs it")
        question = _one_line(question)
        if not question:
            left_out[EMPTY] += 1
            continue
        answer, start = table.value(row, "answer") or "", table.answer_start(row)
        if not _is_at(context, answer, start):
            start = None
        if answer and answer not in context and answer.strip().casefold() not in YES_NO:
            left_out[NOT_FOUND] += 1
            continue
        title, system = table.value(row, "title") or "", row.fields.get("system")
        who = name if named else _system_name(row.where, name if system is None else system)
        yield _Row(who, row.fields.get("id"), title, context, answer, start, question)


def _one_line(text: str) -> str:
    return unicodedata.normalize("NFC", " ".join(text.split()))


def _is_at(context: str, answer: str, start: Any) -> bool:
    """Whether an answer is at an offset, which may be of any type."""
    is_place = isinstance(start, int) and not isinstance(start, bool) and start >= 0
    return is_place and bool(answer) and context[start : start + len(answer)] == answer


def _moved(row: _Row, context: str) -> _Row:
    """A row with its passage in other white space, its answer at the same occurrence."""
    places = [start for start, _ in occurrences(context, row.answer)]
    before = [start for start, _ in occurrences(row.context, row.answer)]
    start = places[before.index(row.start)] if row.start in before and len(places) == len(before) else None
    answer = row.answer if start is None else context[start : dict(occurrences(context, row.answer))[start]]
    return row._replace(context=context, answer=answer, start=start)


def _system_name(where: str, given: Any) -> str:
    if not isinstance(given, str) or not given.strip() or not given.isprintable() or "|" in given:
        raise InputError(f"{where}: system {given!r:.40} is no name; give a text on one line without |")
    return given.strip()


def _by_subject(rows: list[_Row], left_out: Counter[str]) -> list[Subject]:
    """What the rows ask about. Answers without a place have that of other files, or the first."""
    places: defaultdict[tuple[str, str], dict[int, None]] = defaultdict(dict)
    hashes: dict[str, str] = {}
    texts: dict[str, str] = {}
    for number, row in enumerate(rows):
        passage = hashes.setdefault(row.context, passage_hash(row.context))
        if row.context != texts.setdefault(passage, row.context):  # in white space: shown as the first row has it
            rows[number] = row = _moved(row, texts[passage])
            hashes[row.context] = passage
        if row.start is not None:
            places[passage, row.answer][row.start] = None
    found: dict[str, Subject] = {}
    for row in rows:
        passage, start = hashes[row.context], row.start
        if start is None and row.answer:
            known = [*places[passage, row.answer]]
            if len(known) != 1 or not _is_at(row.context, row.answer, known[0]):
                # The first place in the passage, as whole words if there is one; nothing shows a yes or no.
                is_shown = row.answer.strip().casefold() not in YES_NO
                found_at = occurrences(row.context, row.answer) if is_shown else ()
                known = [at for at, _ in found_at if _is_at(row.context, row.answer, at)]
            start = known[0] if known else None
        item = sha256(f"{passage}\0{row.answer}\0{start}".encode()).hexdigest()[:16]
        if item not in found:
            found[item] = Subject(item, TaskPassage(passage, row.title, row.context), row.answer, start, {}, row.id)
        of_systems = found[item].questions
        if row.system in of_systems:
            left_out[FURTHER] += 1
        of_systems.setdefault(row.system, row.question)
    return [*found.values()]
