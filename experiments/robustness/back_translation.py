r"""The same question in other words by back-translation: into another language and back, by two seq2seq models.

    PYTHONPATH=. rl-qg robustness input=dev.json metrics=[rouge_l] output=DIR \
        'paraphraser={_target_: experiments.robustness.back_translation.BackTranslation, languages: [fr, de]}'

Source: QRelScore, Appendix C: MarianMT models, and French, German, Chinese, Spanish and Russian between. The text does
not say whether a question goes through one of the languages or through all; `each` is either. Translations are kept in
files: after a kill no batch is translated twice.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rewards.signature import folder_hash
from rl_qg.judging.paraphrases import seq2seq
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.kept_scores import kept_scores, texts_hash

KEY = "robustness.paraphraser"
LANGUAGES = ("fr", "de", "zh", "es", "ru")
_TARGET = {"zh": ">>cmn_Hans<< "}  # opus-mt-en-zh writes several variants of Chinese, and is told which
_BATCH = 16
_Write = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class Pivot:
    """A language between: the models into it and back, and text before each question for the first of them."""

    name: str
    to: str
    back: str
    prefix: str = ""


class BackTranslation:
    """Paraphrases of questions, each with the name of the language between.

    Args:
        languages: codes of `LANGUAGES` (Helsinki-NLP's opus-mt models), or pairs of any seq2seq models: mappings {to,
            back}, also with `prefix`.
        each: how many of them are drawn for a question; None: all.
    """

    def __init__(self, languages: Any = LANGUAGES, each: int | None = 1) -> None:
        entries = languages if isinstance(languages, list | tuple) else [languages]
        self.pivots = [_pivot(entry, number) for number, entry in enumerate(entries)]
        if len({pivot.name for pivot in self.pivots}) < len(self.pivots):
            raise InputError(f"{KEY}: languages: the same language or pair of models twice; name each once")
        if each is not None and each < 1:
            raise InputError(f"{KEY}: each={each}: give at least 1, or null for all languages")
        self.each = each or len(self.pivots)
        self.made_by = f"back-translation by {', '.join(f'{pivot.to} and {pivot.back}' for pivot in self.pivots)}"

    def paraphrases(
        self, questions: Sequence[str], folder: Path, *, seed: int, use_cpu: bool
    ) -> list[list[tuple[str, str]]]:
        """For each question its back-translations, each with the language between; they are kept in `folder`."""
        count = len(self.pivots)
        drawn = [
            random.Random(f"{seed} languages {number}").sample(range(count), min(self.each, count))
            for number in range(len(questions))
        ]
        paraphrases: list[list[tuple[str, str]]] = [[] for _ in questions]
        for index, pivot in enumerate(self.pivots):
            numbers = [number for number, own in enumerate(drawn) if index in own]
            texts = [questions[number] for number in numbers]
            for number, text in zip(numbers, _through(pivot, texts, folder, use_cpu), strict=True):
                paraphrases[number].append((text, pivot.name))
        return paraphrases


def _pivot(entry: Any, number: int) -> Pivot:
    if isinstance(entry, str) and entry in LANGUAGES:
        opus = "Helsinki-NLP/opus-mt"
        return Pivot(entry, f"{opus}-en-{entry}", f"{opus}-{entry}-en", _TARGET.get(entry, ""))
    if isinstance(entry, dict) and {"to", "back"} <= entry.keys() <= {"to", "back", "prefix"}:
        models = {key: str(value) for key, value in entry.items()}
        name = texts_hash([models["to"], models["back"], models.get("prefix", "")])
        return Pivot(f"pair-{name}", **models)
    raise InputError(
        f"{KEY}: languages[{number}]: {entry!r} is none of {', '.join(LANGUAGES)}, and no pair "
        "{to: MODEL, back: MODEL}"
    )


def _through(pivot: Pivot, texts: Sequence[str], folder: Path, use_cpu: bool) -> list[str]:

    @cache
    def models() -> tuple[_Write, _Write]:
        to, back = (seq2seq(model, KEY, use_cpu=use_cpu) for model in (pivot.to, pivot.back))
        return to, back

    def batch(start: int, end: int) -> list[str]:
        to, back = models()
        return back(to([pivot.prefix + text for text in texts[start:end]]))

    weights = [folder_hash(Path(model)) for model in (pivot.to, pivot.back) if Path(model).is_dir()]
    note = {**asdict(pivot), "weights": weights, "texts": texts_hash(texts)}
    path = folder / f"{pivot.name}.jsonl"
    return kept_scores(path, note, len(texts), batch, batch_size=_BATCH, unit="question")
