"""BLEU, ROUGE-L and METEOR as lmqg computes them: the questions normalised, the references as they are.

They are here to reproduce published numbers. They are not fair: where the references are not in the form of the Penn
Treebank, a question does not match itself. The BLEU-4 of the German questions of XQuAD against themselves is 0.119.

Source: Ushio, Alva-Manchego, Camacho-Collados, "Generative Language Models for Paragraph-Level Question Generation",
EMNLP 2022; code asahi417/lm-question-generation, `automatic_evaluation_tool`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rewards.base import Inputs
from rewards.overlap.base import OverlapMetric
from rewards.overlap.bleu import Bleu
from rewards.overlap.meteor import Meteor15
from rewards.overlap.rouge import RougeL
from rewards.sets import PUBLISHED_OPTIONS

_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}


def normalised_as_published(text: str) -> str:
    """Return a question as lmqg's `text_normalization` writes it, close to Penn Treebank tokens in lower case.

    >>> normalised_as_published('Who wrote "Faust" (1808)?')
    "who wrote `` faust '' -lrb -1808 -rrb - ?"
    """
    text = text.lower()
    for bracket, name in _BRACKETS.items():
        text = text.replace(bracket, name)
    for sign in ("'s", "?", ",", "'", "$", "%"):
        text = _after_one_space(re.escape(sign), text)
    text = re.sub('"([^"]+)"', r"`` \1 ''", text)
    for sign in ("[.].{2}", "-.{2}"):
        text = _after_one_space(sign, text)
    return text


def _after_one_space(pattern: str, text: str) -> str:
    """The text with one space before each match; runs of white space are looked at once, also those before others."""
    return re.sub(rf"\s*+({pattern})?", lambda match: f" {match[1]}" if match[1] else match[0], text)


class _NormalisedQuestions(OverlapMetric):
    """The words of normalised questions, and of references as they are, both without white space around them."""

    def _rows(self, inputs: Inputs) -> tuple[list[Sequence[str]], list[list[Sequence[str]]]]:
        questions = [normalised_as_published(text.strip()) for text in inputs.questions]
        references = [tuple(text.strip() for text in group) for group in inputs.references]
        return super()._rows(replace(inputs, questions=questions, references=references))

    def choices(self) -> Mapping[str, object]:
        options = super().choices()  # type: ignore[safe-super]  # that of the metric that it is mixed into
        return {**options, "normalise": "lmqg", "sides": "questions"}


class LmqgBleu(_NormalisedQuestions, Bleu):
    """lmqg's BLEU, 0 to 1: the captioning scripts' on words between white space; its number is that of the corpus."""

    name = "lmqg_bleu"

    def __init__(self, order: int = 4) -> None:
        super().__init__(order, "coco", tokenize="ascii_space")


class LmqgRougeL(_NormalisedQuestions, RougeL):
    """lmqg's ROUGE-L, 0 to 1: beta = 1.2, on words between single spaces; its number is the mean of the questions."""

    name = "lmqg_rouge_l"

    def __init__(self) -> None:
        super().__init__("coco", tokenize="space")


class LmqgMeteor(_NormalisedQuestions, Meteor15):
    """lmqg's METEOR: METEOR 1.5 in English whatever the language, with the options of `Meteor15`."""

    name = "lmqg_meteor"

    def __init__(self, jar: str | Path | None = None, *, java: str = "java") -> None:
        super().__init__(jar, java=java, tokenize="space")


PUBLISHED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{f"{prefix}bleu{order}": (f"lmqg_bleu{order}", {}) for prefix in ("", "coco_") for order in range(1, 5)},
    **{name: ("lmqg_rouge_l", {}) for name in ("rouge_l", "rougeL", "coco_rouge_l")},
    **{name: ("lmqg_meteor", {}) for name in ("meteor", "meteor15")},
    **{name: (name, options) for name, options in PUBLISHED_OPTIONS.items()},
}  # for each metric of the papers of lmqg the name and the options under which its published numbers were computed
