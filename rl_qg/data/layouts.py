"""QA data as parallel text files, line N of one belonging to line N of the others: three layouts, known by name.

- Du, Shao, Cardie, "Learning to Ask" (ACL 2017): `src-NAME.txt` (sentences) or `para-NAME.txt` (paragraphs) with
  `tgt-NAME.txt` (questions). There are no answers.
- Zhou et al., "Neural Question Generation from Text: A Preliminary Study" (NLPCC 2017): `NAME.source.txt` (sentences),
  `NAME.target.txt` (questions) and `NAME.bio` (a tag B, I or O for each token: the answer).
- The files with which lmqg's NQG baseline was evaluated: `sentence-NAME.txt`, `question-NAME.txt`, `answer-NAME.txt`.

Each file may also be gzipped.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from rl_qg.data.formats import (
    IMPOSSIBLE,
    RawRecord,
    Rows,
    field_of,
    find_once,
    id_field,
    list_field,
    malformed_record,
    records_of_rows,
    text_field,
    text_lines,
)
from rl_qg.runtime.errors import InputError

# HotpotQA: questions whose answers need several paragraphs, as its authors' JSON list or as rows of the same fields.
#
# Source: Yang et al., "HotpotQA: A Dataset for Diverse, Explainable Multi-hop Question Answering" (EMNLP 2018). Which
# sentences are the passage: QAScore paper, section 3.3.1.


FACTS = "facts"
CONTEXTS = (FACTS, "paragraphs", "all")
"""What the passage of a question is: the sentences of its supporting facts; all sentences of the paragraphs in which
these are; or the ten paragraphs that the file gives."""

YES_NO = "yes/no answer"
_SHOWN = ("type", "level")  # fields that a table of questions shows
_Paragraphs = Sequence[tuple[str, Sequence[str]]]


def is_hotpotqa(root: Any) -> bool:
    """Whether a JSON value is a list of HotpotQA questions."""
    return isinstance(root, list) and bool(root) and isinstance(root[0], dict) and "supporting_facts" in root[0]


def hotpotqa_records(rows: Rows, stem: str, context: str = FACTS) -> Iterator[RawRecord]:
    """Yield one record a question.

    The title joins those of the supporting paragraphs. Paragraphs come in the order in which the supporting facts name
    them (`all`: in that of the file), sentences in their own order. The answer has no offset in the file: it is looked
    for as a whole word first. Records without an offset that an example needs are `unusable`: the answer is yes or no,
    or a supporting fact is not among the paragraphs (as in the files of the full-wiki setting).
    """

    def parse(row: Any, where: str, key: str) -> Iterator[RawRecord]:
        paragraphs = list(_paragraphs(row, where))
        facts = _facts(row, where)
        known = {title: sentences for title, sentences in reversed(paragraphs)}  # of two of one title the first
        missing = any(not 0 <= index < len(known.get(title, ())) for title, index in facts)
        titles = [title for title in dict.fromkeys(title for title, _ in facts) if title in known]
        passage = _passage(paragraphs, known, titles, facts, context)
        answer = text_field(row, "answer", where)
        yes_no = answer.strip().lower() in ("yes", "no")
        yield RawRecord(
            id=id_field(row, where, "_id") or id_field(row, where) or key,
            title=" / ".join(titles),
            context=passage,
            question=text_field(row, "question", where),
            answers=((answer, -1 if yes_no else first_place(answer, passage)),),
            unusable=YES_NO if yes_no else "supporting fact not in the file" if missing else "",
            multi_hop=True,
            extra={name: row[name] for name in _SHOWN if isinstance(row.get(name), str)},
        )

    return records_of_rows(rows, stem, parse)


def first_place(answer: str, passage: str) -> int:
    """The position of the first occurrence of `answer` as whole words, else of its first at all; -1 without any."""
    answer = answer.strip()
    if not answer:
        return -1
    whole = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", passage)
    return whole.start() if whole else passage.find(answer)


def _passage(
    paragraphs: _Paragraphs,
    known: dict[str, Sequence[str]],
    titles: Sequence[str],
    facts: Sequence[tuple[str, int]],
    context: str,
) -> str:
    if context == "all":
        sentences = [sentence for _, part in paragraphs for sentence in part]
    elif context == "paragraphs":
        sentences = [sentence for title in titles for sentence in known[title]]
    else:
        wanted = set(facts)
        sentences = [
            sentence for title in titles for index, sentence in enumerate(known[title]) if (title, index) in wanted
        ]
    return " ".join(sentence.strip() for sentence in sentences if sentence.strip())


def _paragraphs(row: Any, where: str) -> Iterator[tuple[str, Sequence[str]]]:
    """The paragraphs, as pairs of title and sentences; or as columns of them, as on the Hub."""
    for number, (title, sentences) in enumerate(_pairs(row, "context", "sentences", where)):
        if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
            raise InputError(f"{where}: context[{number}]: expected a title and a list of sentences, as in HotpotQA")
        yield title, sentences


def _facts(row: Any, where: str) -> list[tuple[str, int]]:
    facts = _pairs(row, "supporting_facts", "sent_id", where)
    for number, (_, index) in enumerate(facts):
        if type(index) is not int:
            raise InputError(f"{where}: supporting_facts[{number}]: expected a title and the number of a sentence")
    return list(dict.fromkeys(facts))


def _pairs(row: Any, name: str, second: str, where: str) -> list[tuple[str, Any]]:
    value = field_of(row, name, where)
    if isinstance(value, dict):
        at = f"{where}: {name}"
        titles, items = list_field(value, "title", at), list_field(value, second, at)
        value = [list(pair) for pair in zip(titles, items, strict=False)] if len(titles) == len(items) else None
    if not isinstance(value, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        raise InputError(f"{where}: field {name!r} must be a list of pairs that begin with a title, as in HotpotQA")
    return [(pair[0], pair[1]) for pair in value]


# Question-answer pairs in lmqg's form: all pairs of a passage as one text, `question: q, answer: a | question: …`.
#
# Its data sets (`lmqg/qag_*`) have it in the field `questions_answers`, its prediction files have one passage a line.
# Source: lmqg 0.1.2 (`qa_aligned_f1_score.py`, `language_model.py`). A `|` or `, answer: ` within a question or an
# answer loses pairs in this form; the project's own models use separators of their own, which cannot.


FIELD = "questions_answers"
SEPARATOR = " | "
QUESTION, ANSWER = "question: ", ", answer: "
MALFORMED = "malformed question-answer pair"

Rule = Literal["metric", "model"]


@dataclass(frozen=True)
class LmqgPairs:
    """The pairs of one passage.

    Args:
        pairs: question and answer, in the order of the text, exact repetitions included.
        malformed: the parts that are no pair, which lmqg leaves out without a word.
    """

    pairs: list[tuple[str, str]]
    malformed: list[str]


def split_pairs(text: str, rule: Rule = "metric") -> LmqgPairs:
    """Read the pairs of a text as lmqg does, which has two rules.

    Args:
        text: of one passage; a blank one has no pairs.
        rule: `metric`, that of its QAAligned score: parts are cut at ` | `, begin with `question: ` and have
            `, answer: ` exactly once; nothing is stripped. `model`, that of its models' output: parts are cut at `|`,
            have `question: ` anywhere (each is taken out) and `, answer: ` exactly once; both texts are stripped.
    """
    segments = (text.split(SEPARATOR if rule == "metric" else SEPARATOR.strip())) if text.strip() else []
    pairs, malformed = list[tuple[str, str]](), list[str]()
    for segment in segments:
        question, *answers = segment.split(ANSWER)
        is_question = segment.startswith(QUESTION) if rule == "metric" else QUESTION in segment
        if len(answers) != 1 or not is_question:
            malformed.append(segment)
        elif rule == "metric":
            pairs.append((question[len(QUESTION) :], answers[0]))
        else:
            pairs.append((question.replace(QUESTION, "").strip(), answers[0].strip()))
    return LmqgPairs(pairs, malformed)


def is_lmqg(row: object) -> bool:
    """Whether a row has pairs in this form, and no question of its own."""
    return isinstance(row, dict) and FIELD in row and "question" not in row


def lmqg_records(rows: Rows, stem: str) -> Iterator[RawRecord]:
    """Yield one record a pair, with an offset where the answer occurs once; parts that are no pair are unusable."""

    def parse(row: Any, where: str, key: str) -> Iterator[RawRecord]:
        context = text_field(row, "paragraph" if "paragraph" in row else "context", where)
        read = split_pairs(text_field(row, FIELD, where))
        name = id_field(row, where) or key
        for at, (question, answer) in enumerate(read.pairs, 1):
            place = find_once(answer, context)
            yield RawRecord(f"{name}-{at}", "", context, question, ((answer, place if place >= 0 else -1),))
        for at, _ in enumerate(read.malformed, 1):
            yield RawRecord(f"{name}-malformed-{at}", "", context, "", (), unusable=MALFORMED)

    return records_of_rows(rows, stem, parse)


# SubjQA: questions about reviews, as the CSV files of its authors (`SubjQA/<domain>/splits/{train,dev,test}.csv`).
#
# Source: Bjerva et al., "SubjQA: A Dataset for Subjectivity and Review Comprehension" (EMNLP 2020). A question about a
# review (`q_review_id`) has a row for each person who answered it. Counted so, its answerable questions are as many as
# QG-Bench publishes (Table 1: restaurants 823, 129 and 136).


NOT_FOUND = "ANSWERNOTFOUND"
"""The last word of every review, to which the spans of unanswerable questions point."""
_SPAN = re.compile(r"\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)")


def is_subjqa(row: object) -> bool:
    """Whether a row has SubjQA's columns."""
    return isinstance(row, dict) and {"review", "human_ans_spans", "human_ans_indices"} <= row.keys()


def subjqa_records(rows: Rows, stem: str) -> Iterator[RawRecord]:
    """Yield one record a question with its distinct answers; first the malformed rows. The rows are held in memory:
    those of a question are not together.

    Of an answer the text at its indices counts: the column `human_ans_spans` has it tokenised. The passage ends before
    the word `ANSWERNOTFOUND`.
    """
    questions: dict[str, RawRecord] = {}
    for where, number, row in rows:
        try:
            record = _record(row, where, f"{stem}-{number}")
        except InputError as error:
            yield malformed_record(f"{stem}-{number}", error)
            continue
        known = questions.get(record.id, record)
        answers = tuple(dict.fromkeys([*known.answers, *record.answers]))
        questions[record.id] = RawRecord(
            record.id, record.title, record.context, record.question, answers, "" if answers else IMPOSSIBLE
        )
    yield from questions.values()


def _record(row: Any, where: str, key: str) -> RawRecord:
    """One row, with one answer or none."""
    if isinstance(row, InputError):
        raise row
    review = text_field(row, "review", where)
    context = review.rstrip().removesuffix(NOT_FOUND).rstrip()
    answers: tuple[tuple[str, int], ...] = ()
    if text_field(row, "human_ans_spans", where).strip() != NOT_FOUND:
        answers = (_answer(row, where, context),)
    return RawRecord(
        id=text_field(row, "q_review_id", where, optional=True) or key,
        title=text_field(row, "item_id", where, optional=True),
        context=context,
        question=text_field(row, "question", where),
        answers=answers,
    )


def _answer(row: Any, where: str, context: str) -> tuple[str, int]:
    indices = field_of(row, "human_ans_indices", where)
    match = _SPAN.fullmatch(indices.strip()) if isinstance(indices, str) else None
    if match is None:
        raise InputError(
            f"{where}: field 'human_ans_indices' must be (start, end), two whole numbers, got {indices!r:.40}"
        )
    start, end = int(match[1]), int(match[2])
    text = context[start:end]
    return text.strip(), start + len(text) - len(text.lstrip())


# MS MARCO question answering: real queries with passages and answers, as its JSON columns or as rows of them.
#
# Source: Bajaj et al., "MS MARCO: A Human Generated MAchine Reading COmprehension Dataset" (2016), the Q&A files of
# version 1.1 (JSON lines) and 2.1 (one JSON object with a column for each field).


COLUMNS = ("query", "query_id", "query_type", "answers", "wellFormedAnswers", "passages")
NO_ANSWER = "no answer present"


def is_ms_marco(root: Any) -> bool:
    """Whether a JSON object has MS MARCO's columns, or a row its fields."""
    return isinstance(root, dict) and "query" in root and "passages" in root


def ms_marco_rows(root: dict[str, Any], path: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield the rows of a file of columns, each an object that maps the number of a row to its value.

    Raises:
        InputError: a column is none, or columns do not have the same rows.
    """
    columns = {name: root[name] for name in COLUMNS if name in root}
    for name, column in columns.items():
        if not isinstance(column, dict):
            raise InputError(f"{path}: field {name!r} must map row numbers to values, got {type(column).__name__}")
    for number, key in enumerate(dict.fromkeys(key for column in columns.values() for key in column), 1):
        where = f"{path}: row {key}"
        for name, column in columns.items():
            if key not in column:
                raise InputError(f"{where}: column {name!r} has no such row; download the file again")
        yield where, number, {name: column[key] for name, column in columns.items()}


def ms_marco_records(rows: Rows, stem: str) -> Iterator[RawRecord]:
    """Yield one record a query.

    The passage joins those that the annotators selected; without any of them the record has no context. An answer is
    looked for as a whole word first; it is often not literally there. The extra fields `query_type` and
    `well_formed_answers` are for tables of questions.
    """

    def parse(row: Any, where: str, key: str) -> Iterator[RawRecord]:
        passage = " ".join(_selected(row, where))
        answers = _texts(row, "answers", where)
        present = [answer for answer in answers if answer.strip(" .").lower() != NO_ANSWER]
        yes_no = bool(present) and all(answer.strip(" .").lower() in ("yes", "no") for answer in present)
        extra = {"well_formed_answers": _texts(row, "wellFormedAnswers", where)} if "wellFormedAnswers" in row else {}
        kind = text_field(row, "query_type", where, optional=True)
        yield RawRecord(
            id=id_field(row, where, "query_id") or key,
            title="",
            context=passage,
            question=text_field(row, "query", where),
            answers=tuple((answer, first_place(answer, passage)) for answer in present),
            unusable=YES_NO if yes_no else "" if present else "no answer",
            extra=extra | ({"query_type": kind} if kind else {}),
        )

    return records_of_rows(rows, stem, parse)


def _texts(row: Any, name: str, where: str) -> list[str]:
    """A list of texts; the text `[]`, as version 2.1 has it, is an empty one."""
    value = field_of(row, name, where)
    texts = [] if value in (None, "[]", "") else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where}: field {name!r} must be a list of texts, as in MS MARCO")
    return [text for text in texts if text.strip()]


def _selected(row: Any, where: str) -> Iterator[str]:
    """The selected passages, from a list of objects; or from columns, as on the Hub."""
    passages, at = field_of(row, "passages", where), f"{where}: passages"
    if isinstance(passages, dict):
        texts, selected = list_field(passages, "passage_text", at), list_field(passages, "is_selected", at)
        if len(texts) != len(selected):
            raise InputError(f"{at}: {len(texts)} texts but {len(selected)} marks of selection; give one for each")
        passages = [{"passage_text": text, "is_selected": mark} for text, mark in zip(texts, selected, strict=True)]
    for number, passage in enumerate(list_field({"passages": passages}, "passages", where)):
        mark = field_of(passage, "is_selected", f"{at}[{number}]")
        if mark not in (0, 1):
            raise InputError(f"{at}[{number}]: field 'is_selected' is {mark!r:.40}; give 0 or 1")
        if mark:
            yield text_field(passage, "passage_text", f"{at}[{number}]").strip()


log = logging.getLogger(__name__)
_IF_THERE = "?"  # before the name of a file that need not be there

# The file of the sentences or paragraphs -> the one of the questions, and the one of the answers if there is one.
_LAYOUTS = {
    r"src-(?P<name>.+)\.txt": ("tgt-{}.txt", ""),
    r"para-(?P<name>.+)\.txt": ("tgt-{}.txt", _IF_THERE + "src-{}.txt"),
    r"(?P<name>.+)\.source\.txt": ("{}.target.txt", "{}.bio"),
    r"sentence-(?P<name>.+)\.txt": ("question-{}.txt", "answer-{}.txt"),
}


@dataclass(frozen=True)
class ParallelFiles:
    """The files of one split; `tagged`: that of the answers has tags instead of texts."""

    name: str
    passages: Path
    questions: Path
    answers: Path | None
    tagged: bool


def parallel_files(path: Path) -> ParallelFiles | None:
    """The files that belong to a file of sentences or paragraphs; None if its name is not that of one.

    Raises:
        InputError: a file that belongs to it is missing.
    """
    name = path.name[:-3] if path.name.endswith(".gz") else path.name
    for pattern, (questions, answers) in _LAYOUTS.items():
        if match := re.fullmatch(pattern, name):
            return ParallelFiles(
                name=match["name"],
                passages=path,
                questions=_companion(path, questions.format(match["name"])),
                answers=_answers(path, answers.format(match["name"])),
                tagged=answers.endswith(".bio"),
            )
    return None


def parallel_records(files: ParallelFiles) -> Iterator[RawRecord]:
    """Yield one record a line, a malformed one where tags do not fit tokens; raise `InputError` where files have
    different lengths.
    """
    paths = [files.passages, files.questions, *([files.answers] if files.answers else [])]
    if files.answers and files.answers.name.startswith("src-"):
        log.warning("%s: has no answers; the sentences of %s stand for them", files.passages, files.answers.name)
    for number, lines in enumerate(zip_longest(*map(text_lines, paths)), 1):
        if None in lines:
            counts = ", ".join(f"{path.name} has {sum(1 for _ in text_lines(path)):,} lines" for path in paths)
            raise InputError(f"{files.passages.parent}: {counts}: line N of one must belong to line N of the others")
        passage, question, *rest = (line.strip() for line in lines)
        answers: tuple[tuple[str, int], ...] = ()
        if rest and files.tagged:
            tokens, tags = ([item for item in line.split(" ") if item] for line in (passage, rest[0]))
            passage = " ".join(tokens)
            try:
                answers = _tagged(tokens, tags, f"{files.answers}: line {number}")
            except InputError as error:
                yield malformed_record(f"{files.name}-{number}", error)
                continue
        elif rest:
            answers = ((rest[0], first_place(rest[0], passage)),)
        yield RawRecord(f"{files.name}-{number}", "", passage, question, answers)


def _tagged(tokens: Sequence[str], tags: Sequence[str], where: str) -> tuple[tuple[str, int], ...]:
    """The tokens from the first B on to the end of its I."""
    if len(tokens) != len(tags) or set(tags) - set("BIO"):
        raise InputError(f"{where}: {len(tags)} tags for {len(tokens)} tokens; give one of B, I, O for each")
    if "B" not in tags:
        return ()
    first = tags.index("B")
    last = first + 1
    while last < len(tags) and tags[last] == "I":
        last += 1
    return ((" ".join(tokens[first:last]), sum(len(token) + 1 for token in tokens[:first])),)


def _answers(path: Path, name: str) -> Path | None:
    if name.startswith(_IF_THERE):
        return _found(path, name.removeprefix(_IF_THERE))
    return _companion(path, name) if name else None


def _companion(path: Path, name: str) -> Path:
    if found := _found(path, name):
        return found
    raise InputError(f"{path}: {name} must lie beside it; the two belong together line by line")


def _found(path: Path, name: str) -> Path | None:
    return next((place for end in ("", ".gz") if (place := path.with_name(f"{name}{end}")).is_file()), None)
