"""In which language questions are: whether it is the one that was wanted, which is mostly that of the passages."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from rl_qg.evaluation.metric_scores import MetricRow
from rl_qg.text.languages import LANGUAGES, OTHER, language_of, share_in

LOOKED_AT = 200
"""Rows from which the language of a file is found."""
MOSTLY = 0.9
"""Share of a question's letters from which on it is in a script."""


def found_language(rows: Iterable[MetricRow]) -> str:
    """Return the language of most of the first rows: of their passages; where these do not tell, of their references,
    then of the questions themselves; `other` where none tells.
    """
    looked_at = list(islice(rows, LOOKED_AT))
    columns = (
        [row.context or "" for row in looked_at],
        [" ".join(row.references or ()) for row in looked_at],
        [row.question for row in looked_at],
    )
    return next((code for texts in columns if (code := language_of(texts))), OTHER)


def language_shares(rows: Sequence[MetricRow], language: str) -> dict[str, Any]:
    """Return how many questions are in a language and its script; {} of a language without known script.

    - `questions`: those with letters
    - `in_script`: the share of which 90 % of the letters are of the language's scripts, or of words of the passage
    - `in_language`: the share whose language is found to be this one (`rl_qg.text.languages.language_of`)
    - `undecided`: the share of which the words do not tell, as of short questions
    - `others`: how many are found to be in which other language
    """
    known = LANGUAGES.get(language)
    if known is None:
        return {}
    asked = [row for row in rows if any(map(str.isalpha, row.question))]
    found = Counter(language_of(row.question) for row in asked)
    in_script = sum(share_in(row.question, known.scripts, row.context or "") >= MOSTLY for row in asked)
    count = max(len(asked), 1)
    return {
        "language": language,
        "questions": len(asked),
        "in_script": in_script / count,
        "in_language": found[language] / count,
        "undecided": found[""] / count,
        "others": {code: number for code, number in found.most_common() if code not in ("", language)},
    }


def language_table(shares: dict[str, dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield a row for people for each file."""
    for name, share in shares.items():
        others = ", ".join(f"{code} {number:,}" for code, number in share["others"].items())
        yield {
            "file": name,
            "wanted": LANGUAGES[share["language"]].name,
            "questions": f"{share['questions']:,}",
            "in its script": f"{share['in_script']:.1%}",
            "in it": f"{share['in_language']:.1%}",
            "cannot be told": f"{share['undecided']:.1%}",
            "others": others or "none",
        }
