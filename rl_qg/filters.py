"""Rules that decide which candidate questions are good enough to train on.

A rule looks at one record of `questions.jsonl` and says whether it rejects it; a `Funnel` asks rules in order and
counts. The paper's rules compare `words`, and their length limits count what stands between white space: both expect a
script that writes spaces.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_qg.qa_data import passage_hash

Record = Mapping[str, Any]

_WORD = re.compile(r"\d+(?:[.,:]\d+)+|\w+")


def words(text: str) -> list[str]:
    """Split a text into words for comparison: case, punctuation and Unicode form do not count.

    A number keeps its inner separators (`1,000`, `5.5`, `10:30`), so that `5` is not a word of `5.5`. Articles stay:
    without them the answer "The Who" would be a word of every question that begins with "who".
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def contains_words(part: str, whole: str) -> bool:
    """Say whether the words of `part` stand next to each other in `whole`; a part without words never does.

    >>> contains_words("art", "Who threw the party?"), contains_words("New York", "Is new york's mayor tall?")
    (False, True)
    """
    wanted, there = words(part), words(whole)
    return bool(wanted) and any(there[i : i + len(wanted)] == wanted for i in range(len(there) - len(wanted) + 1))


def question_key(context: str, question: str) -> bytes:
    """Return 16 bytes that are equal for the same words asked of the same passage."""
    return hashlib.sha256(f"{passage_hash(context)} {' '.join(words(question))}".encode()).digest()[:16]


@dataclass(frozen=True)
class Rule:
    """One reason to drop a record, and the test for it."""

    reason: str
    rejects: Callable[[Record], bool]


class Funnel:
    """Asks rules in order; the first that rejects a record gives the reason.

    `counts` holds, for each reason in the order of the rules, how many records it has dropped; `seen` and `kept` the
    records before and after.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.seen = self.kept = 0
        self.counts = {rule.reason: 0 for rule in self.rules}

    def keeps(self, record: Record) -> bool:
        """Say whether every rule lets the record pass, and count the answer."""
        self.seen += 1
        for rule in self.rules:
            if rule.rejects(record):
                self.counts[rule.reason] += 1
                return False
        self.kept += 1
        return True


def paper_rules(gold_keys: Collection[bytes], *, min_words: int, max_words: int) -> list[Rule]:
    """The rules of the QRelScore paper's augmentation, cheap ones first.

    `gold_keys` are the `question_key`s of the human questions. Of candidates with the same key the first passes,
    whatever its answer: that rule remembers what it let through, so it belongs after every other one.
    """
    passed: set[bytes] = set()

    def key(record: Record) -> bytes:
        return question_key(record["context"], record["question"])

    def repeats(record: Record) -> bool:
        before = len(passed)
        passed.add(key(record))
        return len(passed) == before

    return [
        Rule("empty", lambda record: not words(record["question"])),
        Rule("too short", lambda record: len(record["question"].split()) < min_words),
        Rule("too long", lambda record: len(record["question"].split()) > max_words),
        Rule("answer in question", lambda record: contains_words(record["answer"], record["question"])),
        Rule("duplicate of gold", lambda record: key(record) in gold_keys),
        Rule("duplicate of candidate", repeats),
    ]
