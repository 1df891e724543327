"""Whether a question can be understood without its passage."""

import re
from collections.abc import Mapping
from functools import cache

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError, language_of, packaged

_QUOTED = re.compile(r'"[^"]*"|“[^“”]*”|«[^«»]*»|„[^„“”]*[“”]')


class Standalone(Metric):
    """1.0 for a question that names what it asks about, else 0.0: a gate for a product of metrics.

    "What does the author say about it?" is a question to somebody who has the passage open; a search engine, or a
    reader trained without the passage, cannot know which author.

    Source: the need: Choi et al., "Decontextualization: Making Sentences Stand-Alone", TACL 2021; the rules are this
    project's (`rewards/standalone.toml`). Each is a part, 1.0 where it holds:

    - ``no_text``: no passage, article or review, author or narrator, unless the question says which.
    - ``no_this``: no "this" or "these" without anything before it.
    - ``no_pronoun``: no "he", "she", "they", "his", "her", "their" as subject or before it, where the sentence cannot
      say who that is.
    - ``no_speaker``: no "I", "me", "my": the writer of the passage.

    Of other languages the rules are known that are certain: ``part_names`` says which. Texts in quotes are cut. What
    no word gives away is not seen: "What did the king do?", "How long did it last?".
    docs/explanation/metrics.md has precision, and the shares of human questions that pass.

    Raises `MetricInputError` for a language without rules.
    """

    name = "standalone"
    bounds = (0.0, 1.0)
    needs = frozenset()

    def __init__(self, language: str = "en") -> None:
        self.language = language_of(self.name, language)
        self._rules = rules_of(language)
        self.part_names = tuple(self._rules)

    def choices(self) -> Mapping[str, object]:
        return {"language": self.language}

    def compute(self, inputs: Inputs) -> MetricResult:
        texts = [" ".join(_QUOTED.sub('"…"', question).split()) for question in inputs.questions]
        parts = {name: [float(not rule.search(text)) for text in texts] for name, rule in self._rules.items()}
        return MetricResult([min(row) for row in zip(*parts.values(), strict=True)], parts)


def known_languages() -> list[str]:
    return sorted(packaged("standalone.toml"))


@cache
def rules_of(language: str) -> dict[str, re.Pattern[str]]:
    """The patterns of a language, which match what a question may not have, by the part that is then 0."""
    if language not in known_languages():
        raise MetricInputError(
            f"standalone: no rules are known for language {language!r}; they are for {', '.join(known_languages())}"
        )
    return {name: re.compile(pattern, re.VERBOSE) for name, pattern in packaged("standalone.toml")[language].items()}
