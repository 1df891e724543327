"""Answers that are proposed in a text, for the ways in which answers come first."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from rl_qg.asking.pairs import AnswerSpan
from rl_qg.asking.passages import TextPassage
from rl_qg.asking.selection import spread
from rl_qg.generation.answers.extractor import ExtractorAnswers
from rl_qg.generation.answers.generated import GeneratedAnswers
from rl_qg.generation.answers.rules import rule_spans
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.text.spans import Span

Propose = Callable[[Sequence[str]], list[list[Span]]]
PER_PASSAGE = 20  # answers that a model proposes in a passage, at most
MIN_PROBABILITY = 0.1  # of the extractor, as in the settings of `rl-qg answers`


class AnswerProposals:
    """Proposes answers: by rules or a trained extractor (`pipeline`), or by the generator itself (`multitask`).

    Args:
        generator: of questions; of a multitask model it also writes answers.
        extractor: folder of `rl-qg train-answers`; None: rules.
        device: of the extractor.

    Raises:
        InputError: the folder holds no extractor.
    """

    def __init__(
        self,
        generator: CandidateGenerator,
        *,
        extractor: str | Path | None = None,
        device: torch.device | None = None,
    ) -> None:
        self._by_way: dict[str, Propose] = {"pipeline": _by_rules}
        if extractor is not None:
            place = device or torch.device("cpu")
            self._by_way["pipeline"] = ExtractorAnswers(
                str(extractor), PER_PASSAGE, min_probability=MIN_PROBABILITY, device=place
            )
        self._generator = generator

    def __call__(self, text: str, passages: Sequence[TextPassage], way: str, number: int | None) -> list[AnswerSpan]:
        """The best `number` answers (None: all) of a text's passages, spread over its sentences: the best of each
        sentence come before the second ones.
        """
        propose = self._propose(way)
        if propose is not _by_rules:  # a model takes time: of a very long text read passages at even distances
            passages = evenly(passages, number)
        spans = [
            AnswerSpan(passage.text[span.start : span.end], passage.start + span.start, span.kind, span.score)
            for passage in passages
            for span in propose([passage.text])[0]
        ]
        ordered = sorted(spans, key=lambda span: (-span.score, span.start))
        return [span for span, _ in spread(text, ordered, lambda span: (0, span.start))][:number]

    @property
    def left_out(self) -> int:
        """Answers so far that the generator has written, but that do not stand in their sentence."""
        generated = self._by_way.get("multitask")
        return generated.left_out if isinstance(generated, GeneratedAnswers) else 0

    def _propose(self, way: str) -> Propose:
        if way == "multitask" and way not in self._by_way:
            self._by_way[way] = GeneratedAnswers(self._generator, PER_PASSAGE)
        return self._by_way.get(way, _by_rules)


def evenly(passages: Sequence[TextPassage], most: int | None) -> list[TextPassage]:
    """At most so many passages (None: all), at even distances."""
    if most is None or len(passages) <= most:
        return list(passages)
    return [passages[place * len(passages) // most] for place in range(most)]


def _by_rules(contexts: Sequence[str]) -> list[list[Span]]:
    return [rule_spans(context) for context in contexts]
