"""The same question in other words by back-translation: into another language and back, by two seq2seq models.

QRelScore, Appendix C: MarianMT models, and French, German, Chinese, Spanish and Russian between. The text does not say
whether a question goes through one of the languages or through all; `languages_per_question` is either. Translations
are kept in files: after a kill no batch is translated twice.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rewards.signature import folder_hash
from rl_qg.evaluation.meta.paraphrases import seq2seq
from rl_qg.evaluation.metric_scores import kept_scores, texts_hash
from rl_qg.runtime.errors import InputError

KEY = "back_translation"
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


def pivots(given: Any) -> list[Pivot]:
    """The languages between that a setting names: codes of `LANGUAGES`, or mappings {to, back}, also with `prefix`.

    Raises:
        InputError: another code, a mapping without both models or with other keys, or one language twice.
    """
    entries = given if isinstance(given, list | tuple) else [given]
    found = [_pivot(entry, number) for number, entry in enumerate(entries)]
    if len({pivot.name for pivot in found}) < len(found):
        raise InputError(f"{KEY}: the same language or pair of models twice; name each once")
    return found


def _pivot(entry: Any, number: int) -> Pivot:
    if isinstance(entry, str) and entry in LANGUAGES:
        opus = "Helsinki-NLP/opus-mt"
        return Pivot(entry, f"{opus}-en-{entry}", f"{opus}-{entry}-en", _TARGET.get(entry, ""))
    if isinstance(entry, dict) and {"to", "back"} <= entry.keys() <= {"to", "back", "prefix"}:
        models = {key: str(value) for key, value in entry.items()}
        name = texts_hash([models["to"], models["back"], models.get("prefix", "")])
        return Pivot(f"pair-{name}", **models)
    raise InputError(
        f"{KEY}[{number}]: {entry!r} is none of {', '.join(LANGUAGES)}, and no pair {{to: MODEL, back: MODEL}}"
    )


def back_translate(
    questions: Sequence[str], between: Sequence[Pivot], each: int | None, folder: Path, *, seed: int, use_cpu: bool
) -> list[list[tuple[str, str]]]:
    """For each question its back-translations, each with the language between.

    Args:
        questions: the texts.
        between: the languages.
        each: how many of them are drawn for a question; None: all.
        folder: where translations are kept.
        seed: of the draws.
        use_cpu: also where there is a GPU.

    Raises:
        InputError: a model cannot be loaded.
    """
    drawn = [
        sorted(
            random.Random(f"{seed} languages {number}").sample(
                range(len(between)), min(each or len(between), len(between))
            )
        )
        for number in range(len(questions))
    ]
    paraphrases: list[list[tuple[str, str]]] = [[] for _ in questions]
    for index, pivot in enumerate(between):
        numbers = [number for number, own in enumerate(drawn) if index in own]
        texts = [questions[number] for number in numbers]
        for number, text in zip(numbers, _through(pivot, texts, folder, use_cpu), strict=True):
            paraphrases[number].append((text, pivot.name))
    return paraphrases


def _through(pivot: Pivot, texts: Sequence[str], folder: Path, use_cpu: bool) -> list[str]:
    """Each text translated into the language of `pivot` and back; models are loaded where a text is not known yet."""

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
