"""Answers that a generator writes, sentence by sentence: a model trained with `model.task=answers` or `multitask`.

Each sentence of a passage is marked in turn, as in training, and the model writes the answers in it (answer extraction
of Ushio et al. 2023, with any number of answers a sentence). An answer counts if it stands in its sentence.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.tasks import parse_answers, row_tasks, sentence_rows
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.text.occurrences import occurrences
from rl_qg.text.spans import Span, select_spans

BEAMS = 4
MAX_NEW_TOKENS = 64
ROWS = 16  # sentences that are decoded together


class GeneratedAnswers:
    """Proposes what a generator writes as answers of each sentence.

    Args:
        generator: trained for answers.
        limit: maximum number of spans of a passage (None: all).
        beams: of the search; its best text counts.
        rows: sentences that are decoded together.

    `left_out` counts the answers so far that do not stand in their sentence.

    Raises:
        InputError: the generator was trained for another task.
    """

    def __init__(
        self, generator: CandidateGenerator, limit: int | None, *, beams: int = BEAMS, rows: int = ROWS
    ) -> None:
        if "answers" not in row_tasks(generator.task):
            raise InputError(
                f"the generator was trained with model.task={generator.task}, and cannot propose answers; train one "
                "with model.task=answers or multitask"
            )
        self._generator, self._limit, self._beams, self._rows = generator, limit, beams, rows
        self.left_out = 0
        self.made_by: dict[str, Any] = {"beams": beams}

    def __call__(self, contexts: Sequence[str]) -> list[list[Span]]:
        """For each passage its spans, best first: those of likely texts. An answer of a text of probability p has the
        score p.
        """
        rows = [row for number, context in enumerate(contexts) for row in sentence_rows(str(number), context)]
        found: list[list[Span]] = [[] for _ in contexts]
        for start in range(0, len(rows), self._rows):
            part = rows[start : start + self._rows]
            groups = self._generator.candidates(
                part, self._beams, max_new_tokens=MAX_NEW_TOKENS, top_p=None, temperature=1.0
            )
            for row, (best, *_) in zip(part, groups, strict=True):
                sentence, passage = row.answers[0], int(row.id.partition(":")[0])
                for answer in parse_answers(best.question):
                    places = occurrences(sentence.text, answer)
                    self.left_out += not places
                    for first, last in places[:1]:
                        found[passage].append(
                            Span(sentence.start + first, sentence.start + last, "generated", math.exp(best.logprob))
                        )
        return [select_spans(text, spans, self._limit) for text, spans in zip(contexts, found, strict=True)]


def load_generated_answers(path: str, limit: int | None, *, device: torch.device) -> GeneratedAnswers:
    """The answers of the generator in a folder, for `answers.method=generator`.

    Raises:
        InputError: no folder is given, or it holds no generator of answers.
    """
    if not path:
        raise InputError("answers.generator has no value; give a model trained with model.task=answers or multitask")
    generated = GeneratedAnswers(CandidateGenerator(path, device=device, rows=BEAMS * ROWS), limit)
    weights = {file.name: file_hash(file) for file in sorted(Path(path).expanduser().glob("*.safetensors"))}
    generated.made_by |= {"generator": weights or path}
    return generated
