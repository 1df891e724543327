"""HotpotQA: questions whose answers need several paragraphs, as its authors' JSON list or as rows of the same fields.

Source: Yang et al., "HotpotQA: A Dataset for Diverse, Explainable Multi-hop Question Answering" (EMNLP 2018). Which
sentences are the passage: QAScore paper, section 3.3.1.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rl_qg.data.formats import RawRecord, Rows, field_of, id_field, list_field, records_of_rows, text_field
from rl_qg.runtime.errors import InputError

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
