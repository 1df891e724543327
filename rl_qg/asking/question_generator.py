"""Questions for people who do not train: a trained generator, and texts in, question-answer pairs out.

from rl_qg import QuestionGenerator
generator = QuestionGenerator.from_pretrained("RUN/scst")
generator.ask(text, number=5)
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import torch

from rl_qg.asking.pairs import AnswerSpan, QAPair, QAPairs
from rl_qg.data.examples import Answer, QAExample
from rl_qg.generation.answers.rules import rule_spans
from rl_qg.generation.generator import CandidateGenerator

WAYS = ("pipeline", "multitask", "end2end")
"""How pairs are made: answers by rules or a model, then questions; both by one model; or all pairs at once."""


class QuestionGenerator:
    """Asks questions about texts. `from_pretrained` makes one.

    Args:
        generator: writes the questions.
        batch_size: answers that are decoded together.
    """

    def __init__(self, generator: CandidateGenerator, *, batch_size: int = 16) -> None:
        self._generator = generator
        self._batch_size = batch_size

    @classmethod
    def from_pretrained(
        cls, path: str | Path, *, device: str | torch.device | None = None, batch_size: int = 16
    ) -> "QuestionGenerator":
        """Load a run (its `scst/`, else its `ce/`), a folder, or a model of the Hub.

        Raises:
            InputError: there is no such folder or model, or it generates no questions.
        """
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return cls(CandidateGenerator(path, device=place, rows=batch_size), batch_size=batch_size)

    @overload
    def ask(  # type: ignore[overload-overlap]  # a text is a sequence of texts for the type checker
        self,
        texts: str,
        answers: Sequence[str | AnswerSpan] | None = None,
        *,
        number: int | None = 5,
        language: str = "en",
        seed: int | None = None,
    ) -> QAPairs: ...
    @overload
    def ask(
        self,
        texts: Sequence[str],
        answers: Sequence[Sequence[str | AnswerSpan] | None] | None = None,
        *,
        number: int | None = 5,
        language: str = "en",
        seed: int | None = None,
    ) -> list[QAPairs]: ...
    def ask(
        self,
        texts: str | Sequence[str],
        answers: Any = None,
        *,
        number: int | None = 5,
        language: str = "en",
        seed: int | None = None,
    ) -> QAPairs | list[QAPairs]:
        """Question-answer pairs of a text, or of each text of a list, best first.

        Args:
            texts: one text, or several.
            answers: what to ask about: texts, or spans; for several texts one list (or None) each. By default they
                are proposed.
            number: of pairs for each text; None: all.
            language: of the texts, an ISO 639-1 code.
            seed: None for the best questions; a number draws other ones, the same for the same number.
        """
        if isinstance(texts, str):
            return self._ask_one(texts, answers, number)
        given = [None] * len(texts) if answers is None else answers
        return [self._ask_one(text, chosen, number) for text, chosen in zip(texts, given, strict=True)]

    def _ask_one(self, text: str, answers: Sequence[str | AnswerSpan] | None, number: int | None) -> QAPairs:
        spans = [
            AnswerSpan(answer, text.find(answer)) if isinstance(answer, str) else answer
            for answer in answers
            or [AnswerSpan(text[s.start : s.end], s.start, s.kind, s.score) for s in rule_spans(text, number)]
        ]
        pairs = []
        for span in spans:
            example = QAExample(str(span.start), "", text, "", (Answer(span.text, span.start),))
            best = self._generator.candidates([example], 4, max_new_tokens=64, top_p=None, temperature=1.0)[0][0]
            words = max(1, len(best.question.split()))
            pairs.append(
                QAPair(best.question, span.text, span.start, round(math.exp(best.logprob / words), 4), best.logprob)
            )
        return QAPairs(sorted(pairs, key=lambda pair: -pair.score)[:number])
