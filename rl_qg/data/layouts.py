"""Layouts of QA data: which one the rows of a source have, and what records they give.

`rows` reads a file, `records` finds the layout of its rows in the table `LAYOUTS` and parses them; one with a wrong
field becomes a malformed record. Parallel text files, whose layout is known by name, are read by `parallel_records`.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, takewhile, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from rl_qg.data import formats
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import parse_json

FACTS = "facts"
CONTEXTS = (FACTS, "paragraphs", "all")
"""What the passage of a HotpotQA question is: the sentences of its supporting facts; all sentences of the paragraphs
in which these are; or the ten paragraphs that the file gives."""
YES_NO = "yes/no answer"
log = logging.getLogger(__name__)


class RecordOptions(NamedTuple):
    """How records are read."""

    unlabelled: bool = False  # they may lack the fields `question` and `answers`, and SQuAD paragraphs the field `qas`
    hotpotqa_context: str = FACTS  # one of `CONTEXTS`


class Layout(NamedTuple):
    """How the layout is recognised by the first row that can be read, and the records of a row, given its position,
    the id of one without an id, and the options. `join` puts together the records of several rows.
    """

    recognises: Callable[[Any], bool]
    parse: Callable[[Any, str, str, RecordOptions], Iterable[formats.RawRecord]]
    join: Callable[[Iterable[formats.RawRecord]], Iterable[formats.RawRecord]] = iter


DEFAULT = RecordOptions()


def rows(path: Path, options: RecordOptions = DEFAULT) -> formats.Rows:
    """The rows of a file: lines of `.csv` and `.tsv`, rows of `.parquet`, the questions of a `.json` document; any
    other file is JSON lines. A table's row with too few cells is the `InputError` that says so.
    """
    kind = formats.stem_and_kind(path)[1]
    if kind == "json":
        return document_rows(parse_json(formats.whole_file(path), f"{path}"), path, options)
    return formats.READERS.get(kind, formats.json_line_rows)(path)


def document_rows(root: Any, path: Path, options: RecordOptions = DEFAULT) -> formats.Rows:
    if isinstance(root, list) and root and _is_hotpotqa(root[0]):
        return ((f"{path}: [{number - 1}]", number, row) for number, row in enumerate(root, 1))
    if is_squad(root):
        parts = enumerate(_squad_questions(root, path, options), 1)
        return (("" if isinstance(part, InputError) else part.question_at, number, part) for number, part in parts)
    if _is_ms_marco(root):
        return _ms_marco_rows(root, path)
    hint = "; a list is read if its items have HotpotQA's fields, or are SQuAD's articles"
    hint = hint if isinstance(root, list) else ""
    raise InputError(f"{path}: expected a JSON object, got {type(root).__name__}{hint}")


def records(rows: formats.Rows, stem: str, options: RecordOptions = DEFAULT) -> Iterator[formats.RawRecord]:
    """The records of rows; without an id one has that of its row, `<stem>-<number>`."""
    rest, head = iter(rows), list[tuple[str, int, Any]]()
    for item in rest:
        head.append(item)
        if not isinstance(item[2], InputError):
            break
    first = head[-1][2] if head else None
    layout = next(layout for layout in LAYOUTS if layout.recognises(first))
    yield from layout.join(_parsed(chain(head, rest), stem, layout, options))


def _parsed(rows: formats.Rows, stem: str, layout: Layout, options: RecordOptions) -> Iterator[formats.RawRecord]:
    for where, number, row in rows:
        key = f"{stem}-{number}"
        try:
            if isinstance(row, InputError):
                raise row
            found = [*layout.parse(row, where, key, options)]
        except InputError as error:
            record = row.question if isinstance(row, SquadQuestion) else row
            known = record.get("id") if isinstance(record, dict) else None
            found = [formats.malformed_record((str(known) if isinstance(known, str | int) else "") or key, error)]
        yield from found


def _lacks(record: Any, name: str, options: RecordOptions) -> bool:
    return options.unlabelled and isinstance(record, dict) and name not in record


def first_place(answer: str, passage: str) -> int:
    """The position of the first occurrence of `answer` as whole words, else of its first at all; -1 without any. What
    has more than `LONGEST_WORDS` characters is hardly ever a part of other words: its first occurrence is taken.
    """
    answer = answer.strip()
    return next(formats.word_places(answer, passage), passage.find(answer)) if answer else -1


# --- SQuAD's JSON: an object with `data`, or the list of its articles alone, as in the raw files of Du et al. (2017)


class SquadQuestion(NamedTuple):
    """A question of a SQuAD document with what holds it, and the positions of these."""

    article: Any
    paragraph: Any
    question: Any
    article_at: str
    paragraph_at: str
    question_at: str = ""


def is_squad(root: Any) -> bool:
    """Whether a JSON value is read as SQuAD: an object that has no other layout, or a list of SQuAD's articles."""
    if isinstance(root, list):
        return any(isinstance(article, dict) and "paragraphs" in article for article in root)
    return isinstance(root, dict) and not _is_ms_marco(root)


def squad_paragraphs(root: Any, path: Path) -> Iterator[SquadQuestion | InputError]:
    """All paragraphs, each as a part without a question; for an article that has no list of them, what is wrong."""
    articles, name = (root, "") if isinstance(root, list) else (formats.list_field(root, "data", f"{path}"), "data")
    for a, article in enumerate(articles):
        at = f"{path}: {name}[{a}]"
        try:
            paragraphs = formats.list_field(article, "paragraphs", at)
        except InputError as error:
            yield error
        else:
            for p, paragraph in enumerate(paragraphs):
                yield SquadQuestion(article, paragraph, None, at, f"{at}.paragraphs[{p}]")


def _squad_questions(root: Any, path: Path, options: RecordOptions) -> Iterator[SquadQuestion | InputError]:
    for part in squad_paragraphs(root, path):
        try:
            if isinstance(part, InputError):
                raise part
            lacks = _lacks(part.paragraph, "qas", options)
            questions = [] if lacks else formats.list_field(part.paragraph, "qas", part.paragraph_at)
        except InputError as error:
            yield error
        else:
            for q, question in enumerate(questions):
                yield part._replace(question=question, question_at=f"{part.paragraph_at}.qas[{q}]")


def _squad_record(part: SquadQuestion, where: str, key: str, options: RecordOptions) -> Iterator[formats.RawRecord]:
    qa = part.question
    impossible = isinstance(qa, dict) and qa.get("is_impossible") is True
    yield formats.RawRecord(
        id=formats.id_field(qa, where) or key,
        title=formats.text_field(part.article, "title", part.article_at, optional=True),
        context=formats.text_field(part.paragraph, "context", part.paragraph_at),
        question=formats.text_field(qa, "question", where, optional=options.unlabelled),
        answers=() if impossible or _lacks(qa, "answers", options) else _answers(qa, where),
        unusable=formats.IMPOSSIBLE if impossible else "",
        language=_language(qa),
    )


def _language(record: Any) -> str:
    """The field `language` if it is text; other data sets have a field of this name for other things."""
    value = record.get("language") if isinstance(record, dict) else None
    return value if isinstance(value, str) else ""


def _answers(record: Any, where: str) -> tuple[tuple[str, int], ...]:
    value, where = formats.field_of(record, "answers", where), f"{where}: answers"
    if isinstance(value, dict):
        texts, starts = (formats.list_field(value, name, where) for name in ("text", "answer_start"))
        if len(texts) != len(starts):
            raise InputError(f"{where}: {len(texts)} texts but {len(starts)} offsets; give one offset for each text")
        value = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if value is not None and not isinstance(value, list):
        raise InputError(f"{where}: must be a list of objects or an object of lists, got {type(value).__name__}")
    return tuple((formats.text_field(item, "text", where), formats.offset_field(item, where)) for item in value or ())


# --- flat rows of the same fields; those with a field `paragraph` are QG-Bench rows


def _flat_record(row: Any, where: str, key: str, options: RecordOptions) -> Iterator[formats.RawRecord]:
    names = row if isinstance(row, dict) else ()
    one = "answers" not in names and ("answer" in names or "paragraph" in names)
    read = _one_answer if one else _answers
    yield formats.RawRecord(
        id=formats.id_field(row, where) or key,
        title=formats.text_field(row, "title", where, optional=True),
        context=formats.text_field(row, "paragraph" if "paragraph" in names else "context", where),
        question=formats.text_field(row, "question", where, optional=options.unlabelled),
        answers=() if _lacks(row, "answer" if one else "answers", options) else read(row, where),
        language=_language(row),
    )


def _one_answer(row: dict[str, Any], where: str) -> tuple[tuple[str, int], ...]:
    """An answer at `answer_start`; without that at its only occurrence in the passage, else at its first in the
    sentence of a QG-Bench row, else anywhere.
    """
    answer = formats.text_field(row, "answer", where)
    context = formats.text_field(row, "paragraph" if "paragraph" in row else "context", where)
    start = formats.offset_field(row, where) if "answer_start" in row else -1
    if start < 0:
        start = formats.find_once(answer, context)
    if start < 0 and row.get("sentence") is not None:
        sentence = formats.text_field(row, "sentence", where)
        sentence_start, offset = formats.find_once(sentence, context), sentence.find(answer)
        start = sentence_start + offset if sentence_start >= 0 and offset >= 0 else -1
    return ((answer, start),)


# --- HotpotQA: questions whose answers need several paragraphs, as its authors' JSON list or as rows of the same
# fields
# Source: Yang et al., "HotpotQA: A Dataset for Diverse, Explainable Multi-hop Question Answering" (EMNLP 2018). Which
# sentences are the passage: QAScore paper, section 3.3.1.


def _is_hotpotqa(row: Any) -> bool:
    return isinstance(row, dict) and "supporting_facts" in row


def _hotpotqa_record(row: Any, where: str, key: str, options: RecordOptions) -> Iterator[formats.RawRecord]:
    """The title joins those of the supporting paragraphs. Paragraphs come in the order in which the supporting facts
    name them (`all`: in that of the file), sentences in their own order. The answer has no offset in the file: it is
    looked for as a whole word first. Records without an offset that an example needs are `unusable`: the answer is yes
    or no, or a supporting fact is not among the paragraphs (as in the files of the full-wiki setting).
    """
    paragraphs = _pairs(row, "context", "sentences", where)
    for number, (_, sentences) in enumerate(paragraphs):
        if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
            raise InputError(f"{where}: context[{number}]: expected a title and a list of sentences, as in HotpotQA")
    pairs = _pairs(row, "supporting_facts", "sent_id", where)
    for number, (_, index) in enumerate(pairs):
        if type(index) is not int:
            raise InputError(f"{where}: supporting_facts[{number}]: expected a title and the number of a sentence")
    facts = dict.fromkeys(pairs)
    known = {title: sentences for title, sentences in reversed(paragraphs)}  # of two of one title the first
    missing = any(not 0 <= index < len(known.get(title, ())) for title, index in facts)
    titles = [title for title in dict.fromkeys(title for title, _ in facts) if title in known]
    if options.hotpotqa_context == "all":
        chosen = [sentence for _, sentences in paragraphs for sentence in sentences]
    else:
        whole = options.hotpotqa_context == "paragraphs"
        chosen = [
            text for title in titles for index, text in enumerate(known[title]) if whole or (title, index) in facts
        ]
    passage = " ".join(sentence.strip() for sentence in chosen if sentence.strip())
    answer = formats.text_field(row, "answer", where).strip()
    yes_no = answer.lower() in ("yes", "no")
    yield formats.RawRecord(
        id=formats.id_field(row, where, "_id") or formats.id_field(row, where) or key,
        title=" / ".join(titles),
        context=passage,
        question=formats.text_field(row, "question", where),
        answers=((answer, -1 if yes_no else first_place(answer, passage)),),
        unusable=YES_NO if yes_no else "supporting fact not in the file" if missing else "",
        multi_hop=True,
        extra={name: row[name] for name in ("type", "level") if isinstance(row.get(name), str)},
    )


def _pairs(row: Any, name: str, second: str, where: str) -> list[tuple[str, Any]]:
    """Pairs of a title and something else, as a list of them; or as columns, as on the Hub."""
    value = formats.field_of(row, name, where)
    if isinstance(value, dict):
        at = f"{where}: {name}"
        titles, items = formats.list_field(value, "title", at), formats.list_field(value, second, at)
        value = [list(pair) for pair in zip(titles, items, strict=False)] if len(titles) == len(items) else None
    if not isinstance(value, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        raise InputError(f"{where}: field {name!r} must be a list of pairs that begin with a title, as in HotpotQA")
    return [(pair[0], pair[1]) for pair in value]


# --- question-answer pairs in lmqg's form: all of a passage as one text, `question: q, answer: a | question: …`
# Its data sets (`lmqg/qag_*`) have it in the field `questions_answers`, its prediction files have one passage a line.
# Source: lmqg 0.1.2 (`qa_aligned_f1_score.py`, `language_model.py`). A `|` or `, answer: ` within a question or an
# answer loses pairs in this form; the project's own models use separators of their own, which cannot.

FIELD = "questions_answers"
SEPARATOR = " | "
QUESTION, ANSWER = "question: ", ", answer: "
MALFORMED = "malformed question-answer pair"


class LmqgPairs(NamedTuple):
    """The pairs of one passage, question and answer, in the order of the text, exact repetitions included; and the
    `malformed` parts that are no pair, which lmqg leaves out without a word.
    """

    pairs: list[tuple[str, str]]
    malformed: list[str]


def split_pairs(text: str) -> LmqgPairs:
    """Read the pairs of the text of one passage as lmqg's QAAligned score does: parts are cut at ` | `, begin with
    `question: ` and have `, answer: ` exactly once; nothing is stripped.
    """
    pairs, malformed = list[tuple[str, str]](), list[str]()
    for segment in text.split(SEPARATOR) if text.strip() else []:
        question, *answers = segment.split(ANSWER)
        if len(answers) == 1 and segment.startswith(QUESTION):
            pairs.append((question[len(QUESTION) :], answers[0]))
        else:
            malformed.append(segment)
    return LmqgPairs(pairs, malformed)


def _lmqg_records(row: Any, where: str, key: str, options: RecordOptions) -> Iterator[formats.RawRecord]:
    context = formats.text_field(row, "paragraph" if "paragraph" in row else "context", where)
    read = split_pairs(formats.text_field(row, FIELD, where))
    name = formats.id_field(row, where) or key
    for at, (question, answer) in enumerate(read.pairs, 1):
        yield formats.RawRecord(
            f"{name}-{at}", "", context, question, ((answer, max(-1, formats.find_once(answer, context))),)
        )
    for at, _ in enumerate(read.malformed, 1):
        yield formats.RawRecord(f"{name}-malformed-{at}", "", context, "", (), unusable=MALFORMED)


# --- SubjQA: questions about reviews, as the CSV files of its authors (`SubjQA/<domain>/splits/{train,dev,test}.csv`)
# Source: Bjerva et al., "SubjQA: A Dataset for Subjectivity and Review Comprehension" (EMNLP 2020). A question about a
# review (`q_review_id`) has a row for each person who answered it. Counted so, its answerable questions are as many as
# QG-Bench publishes (Table 1: restaurants 823, 129 and 136).

NOT_FOUND = "ANSWERNOTFOUND"
"""The last word of every review, to which the spans of unanswerable questions point."""
_SPAN = re.compile(r"\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)")


def _subjqa_record(row: Any, where: str, key: str, options: RecordOptions) -> Iterator[formats.RawRecord]:
    """One row, with one answer or none: the text at its indices (`human_ans_spans` has it tokenised). The passage ends
    before the word `ANSWERNOTFOUND`.
    """
    context = formats.text_field(row, "review", where).rstrip().removesuffix(NOT_FOUND).rstrip()
    answers: tuple[tuple[str, int], ...] = ()
    if formats.text_field(row, "human_ans_spans", where).strip() != NOT_FOUND:
        indices = formats.field_of(row, "human_ans_indices", where)
        match = _SPAN.fullmatch(indices.strip()) if isinstance(indices, str) else None
        if match is None:
            raise InputError(
                f"{where}: field 'human_ans_indices' must be (start, end), two whole numbers, got {indices!r:.40}"
            )
        start, text = int(match[1]), context[int(match[1]) : int(match[2])]
        answers = ((text.strip(), start + len(text) - len(text.lstrip())),)
    yield formats.RawRecord(
        id=formats.text_field(row, "q_review_id", where, optional=True) or key,
        title=formats.text_field(row, "item_id", where, optional=True),
        context=context,
        question=formats.text_field(row, "question", where),
        answers=answers,
    )


def _one_a_question(records: Iterable[formats.RawRecord]) -> Iterator[formats.RawRecord]:
    """One record a question, with the distinct answers of its rows; first the malformed ones. The records are held in
    memory: those of a question are not together.
    """
    questions: dict[str, formats.RawRecord] = {}
    for record in records:
        if record.fault:
            yield record
        else:
            known = questions.get(record.id, record)
            answers = tuple(dict.fromkeys([*known.answers, *record.answers]))
            questions[record.id] = replace(record, answers=answers, unusable="" if answers else formats.IMPOSSIBLE)
    yield from questions.values()


# --- MS MARCO question answering: real queries with passages and answers, as its JSON columns or as rows of them
# Source: Bajaj et al., "MS MARCO: A Human Generated MAchine Reading COmprehension Dataset" (2016), the Q&A files of
# version 1.1 (JSON lines) and 2.1 (one JSON object with a column for each field, which maps row numbers to values).


def _is_ms_marco(row: Any) -> bool:
    return isinstance(row, dict) and "query" in row and "passages" in row


def _ms_marco_rows(root: dict[str, Any], path: Path) -> formats.Rows:
    names = ("query", "query_id", "query_type", "answers", "wellFormedAnswers", "passages")
    columns = {name: root[name] for name in names if name in root}
    for name, column in columns.items():
        if not isinstance(column, dict):
            raise InputError(f"{path}: field {name!r} must map row numbers to values, got {type(column).__name__}")
    for number, key in enumerate(dict.fromkeys(key for column in columns.values() for key in column), 1):
        where = f"{path}: row {key}"
        for name, column in columns.items():
            if key not in column:
                raise InputError(f"{where}: column {name!r} has no such row; download the file again")
        yield where, number, {name: column[key] for name, column in columns.items()}


def _ms_marco_record(row: Any, where: str, key: str, options: RecordOptions) -> Iterator[formats.RawRecord]:
    """The passage joins those that the annotators selected; without any of them the record has no context. An answer
    is looked for as a whole word first; it is often not literally there.
    """
    passage = " ".join(_selected(row, where))
    answers = map(str.strip, formats.texts_field(row, "answers", where))
    present = [answer for answer in answers if answer.strip(" .").lower() != "no answer present"]
    yes_no = bool(present) and all(answer.strip(" .").lower() in ("yes", "no") for answer in present)
    extra: dict[str, Any] = {}
    if "wellFormedAnswers" in row:
        extra["well_formed_answers"] = formats.texts_field(row, "wellFormedAnswers", where)
    if kind := formats.text_field(row, "query_type", where, optional=True):
        extra["query_type"] = kind
    yield formats.RawRecord(
        id=formats.id_field(row, where, "query_id") or key,
        title="",
        context=passage,
        question=formats.text_field(row, "query", where),
        answers=tuple((answer, first_place(answer, passage)) for answer in present),
        unusable=YES_NO if yes_no else "" if present else "no answer",
        extra=extra,
    )


def _selected(row: Any, where: str) -> Iterator[str]:
    """The selected passages, from a list of objects; or from columns, as on the Hub."""
    passages, at = formats.field_of(row, "passages", where), f"{where}: passages"
    if isinstance(passages, dict):
        texts = formats.list_field(passages, "passage_text", at)
        selected = formats.list_field(passages, "is_selected", at)
        if len(texts) != len(selected):
            raise InputError(f"{at}: {len(texts)} texts but {len(selected)} marks of selection; give one for each")
        passages = [{"passage_text": text, "is_selected": mark} for text, mark in zip(texts, selected, strict=True)]
    for number, passage in enumerate(formats.list_field({"passages": passages}, "passages", where)):
        mark = formats.field_of(passage, "is_selected", f"{at}[{number}]")
        if mark not in (0, 1):
            raise InputError(f"{at}[{number}]: field 'is_selected' is {mark!r:.40}; give 0 or 1")
        if mark:
            yield formats.text_field(passage, "passage_text", f"{at}[{number}]").strip()


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda row: isinstance(row, dict) and row.keys() >= {*names}


LAYOUTS = (
    Layout(lambda row: isinstance(row, SquadQuestion), _squad_record),
    Layout(_is_hotpotqa, _hotpotqa_record),
    Layout(_is_ms_marco, _ms_marco_record),
    Layout(lambda row: _has(FIELD)(row) and "question" not in row, _lmqg_records),
    Layout(_has("review", "human_ans_spans", "human_ans_indices"), _subjqa_record, _one_a_question),
    Layout(lambda row: True, _flat_record),
)


def is_flat(row: Any) -> bool:
    return not any(layout.recognises(row) for layout in LAYOUTS[:-1])


# --- parallel text files, line N of one belonging to line N of the others: three layouts, known by name
# - Du, Shao, Cardie, "Learning to Ask" (ACL 2017): `src-NAME.txt` (sentences) or `para-NAME.txt` (paragraphs) with
#   `tgt-NAME.txt` (questions). There are no answers.
# - Zhou et al., "Neural Question Generation from Text: A Preliminary Study" (NLPCC 2017): `NAME.source.txt`
#   (sentences), `NAME.target.txt` (questions) and `NAME.bio` (a tag B, I or O for each token: the answer).
# - The files with which lmqg's NQG baseline was evaluated: `sentence-NAME.txt`, `question-NAME.txt`,
#   `answer-NAME.txt`.
# Each file may also be gzipped.

# The file of the sentences or paragraphs -> the one of the questions, and the one of the answers if there is one, and
# whether that must be there.
_FILES = {
    r"src-(?P<name>.+)\.txt": ("tgt-{}.txt", "", False),
    r"para-(?P<name>.+)\.txt": ("tgt-{}.txt", "src-{}.txt", False),
    r"(?P<name>.+)\.source\.txt": ("{}.target.txt", "{}.bio", True),
    r"sentence-(?P<name>.+)\.txt": ("question-{}.txt", "answer-{}.txt", True),
}


class ParallelFiles(NamedTuple):
    """The files of one split; `tagged`: that of the answers has tags instead of texts."""

    name: str
    passages: Path
    questions: Path
    answers: Path | None
    tagged: bool


def parallel_files(path: Path) -> ParallelFiles | None:
    """The files of a file of sentences or paragraphs; None for others. Raises `InputError` if one is missing."""
    for pattern, (of_questions, of_answers, needs_answers) in _FILES.items():
        if match := re.fullmatch(pattern, path.name.removesuffix(".gz")):
            name = match["name"]
            questions = _beside(path, of_questions.format(name), True)
            answers = _beside(path, of_answers.format(name), needs_answers) if of_answers else None
            assert questions is not None
            return ParallelFiles(name, path, questions, answers, tagged=of_answers.endswith(".bio"))
    return None


def _beside(path: Path, name: str, is_needed: bool) -> Path | None:
    found = [place for end in ("", ".gz") if (place := path.with_name(f"{name}{end}")).is_file()]
    if is_needed and not found:
        raise InputError(f"{path}: {name} must lie beside it; the two belong together line by line")
    return found[0] if found else None


def parallel_records(files: ParallelFiles) -> Iterator[formats.RawRecord]:
    """One record a line, a malformed one where tags do not fit tokens; raise `InputError` where the lengths differ."""
    paths = [files.passages, files.questions, *([files.answers] if files.answers else [])]
    if files.answers and files.answers.name.startswith("src-"):
        log.warning("%s: has no answers; the sentences of %s stand for them", files.passages, files.answers.name)
    for number, lines in enumerate(zip_longest(*map(formats.text_lines, paths)), 1):
        if None in lines:
            counts = ", ".join(f"{path.name} has {sum(1 for _ in formats.text_lines(path)):,} lines" for path in paths)
            raise InputError(f"{files.passages.parent}: {counts}: line N of one must belong to line N of the others")
        passage, question, *rest = (line.strip() for line in lines)
        answers: tuple[tuple[str, int], ...] = ()
        if rest and files.tagged:
            tokens, tags = ([item for item in line.split(" ") if item] for line in (passage, rest[0]))
            passage = " ".join(tokens)
            try:
                answers = _tagged(tokens, tags, f"{files.answers}: line {number}")
            except InputError as error:
                yield formats.malformed_record(f"{files.name}-{number}", error)
                continue
        elif rest:
            answers = ((rest[0], first_place(rest[0], passage)),)
        yield formats.RawRecord(f"{files.name}-{number}", "", passage, question, answers)


def _tagged(tokens: Sequence[str], tags: Sequence[str], where: str) -> tuple[tuple[str, int], ...]:
    if len(tokens) != len(tags) or set(tags) - set("BIO"):
        raise InputError(f"{where}: {len(tags)} tags for {len(tokens)} tokens; give one of B, I, O for each")
    if "B" not in tags:
        return ()
    first = tags.index("B")
    last = first + 1 + sum(1 for _ in takewhile("I".__eq__, tags[first + 1 :]))
    return ((" ".join(tokens[first:last]), sum(len(token) + 1 for token in tokens[:first])),)
