"""Which folder is meant by the name of a generator (a run, a folder, a model of the Hub, or one that comes with the
package), and what those who read its questions must know of it.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from rewards import ReaderScore
from rl_qg.asking.documents import paragraphs
from rl_qg.asking.pairs import AskRequest
from rl_qg.data.splits import WORLD
from rl_qg.generation.prompts import ABOUT_ANSWERS, Prompt
from rl_qg.miniatures.cache import PREFIX, QUESTIONS, SHIPPED, generator_folder, is_miniature
from rl_qg.miniatures.packaged import ENGLISH, packaged_folder, packaged_reader
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_yaml
from rl_qg.runtime.run_folder import CONFIG
from rl_qg.text.languages import AUTO, OTHER, check_language, code_of

log = logging.getLogger(__name__)

IMPOSSIBLE = 0.5  # p(impossible) from which a reader refuses, as in the paper on sets and its code
RUNS = ("runs/quickstart", "runs/first")  # what is used where no model is named, else a packaged one
NO_READER = "none"
PACKAGED_SCORE = 0.55  # seven of ten questions above were usable, a fifth of the others (experiments/usability)
STAGES = ("scst", "ce")  # folders of a run; the first that exists is used

WAYS_OF_TASK = {"questions": ("pipeline",), "multitask": ("multitask", "pipeline"), "pairs": ("end2end",)}
CORPUS_WARNING = (
    "knows only the embedded corpus, on which it was trained: its questions about other texts are mostly nonsense, "
    "and its scores say nothing about them; give another model with model.path=…"
)


def generator_path(path: str | Path) -> str:
    """The folder or Hub name to load: of a run its `scst/`, else its `ce/`."""
    name = str(path)
    if name == QUESTIONS:
        return generator_folder(name)
    if is_miniature(name):
        return _packaged(name, "model.path", "generation_config.json", also=(QUESTIONS,))
    name = os.path.expanduser(packaged_folder(name))
    folder = Path(name)
    stages = [folder / stage for stage in STAGES if (folder / stage / "config.json").is_file()]
    return str(stages[0]) if stages and not (folder / "config.json").is_file() else name


def reader_path(path: str | Path) -> str:
    name = str(path)
    return _packaged(name, "reader", "config.json") if is_miniature(name) else packaged_folder(name)


def chosen_reader(reader: str | Path | None, model: str | Path) -> str:
    """What checks the pairs of a model: `reader`, else the one that comes with a packaged generator; "" for none."""
    if not reader:
        return packaged_reader(str(model))
    return "" if str(reader) == NO_READER else str(reader)


def abstaining_reader(path: str, device: torch.device) -> ReaderScore:
    """A reader whose class token takes part. That of a reader which has not learned to abstain means nothing; but the
    configuration of those of SQuAD 2 does not say that they have.
    """
    reader = ReaderScore(path, abstain=True, device=device)
    if not getattr(reader.model.model.config, "abstains", False):
        log.warning(
            "reader %s: its configuration does not say that it has learned to abstain; if it is not one of SQuAD 2, "
            "train one with rl-qg qa qa.unanswerable=0.5",
            path,
        )
    return reader


def _packaged(name: str, key: str, file: str, also: Sequence[str] = ()) -> str:
    """The folder of a packaged miniature that has this file; `also` are others that the message names."""
    folder = SHIPPED / name.removeprefix(PREFIX)
    if not (folder / file).is_file():
        known = sorted([*also, *(PREFIX + place.parent.name for place in SHIPPED.glob(f"*/{file}"))])
        raise InputError(f"{key}={name}: the package has {', '.join(known)}")
    return str(folder)


def default_generator() -> str:
    """A run of the README in the working directory, else the packaged generator of English text."""
    return next((name for name in RUNS if generator_path(name) != name), ENGLISH)


def chosen_generator(path: str) -> str:
    """The generator of a command: `path`, or `default_generator` where it is empty. Says which, and warns of it."""
    name = path or default_generator()
    generator_path(name)  # what is refused needs no warning
    log.info("model: %s%s", name, "" if path else ", for model.path has no value")
    if warning := corpus_warning(name):
        log.warning("warning: %s", warning)
    return name


def corpus_warning(path: str | Path) -> str:
    """A sentence about a model that was trained on the embedded corpus: a packaged miniature, or the model of a run
    with `data.train=world`. "" for another model.
    """
    return f"{path} {CORPUS_WARNING}" if is_miniature(str(path)) or _trained_on(path) == WORLD else ""


def least_score(request: AskRequest, model: str) -> float:
    """From which score on pairs are kept: as requested, else as a reading of the packaged generator's pairs suggests.
    Answers that were given are asked about in any case.
    """
    if request.min_score is not None:
        return request.min_score
    return PACKAGED_SCORE if model == ENGLISH and request.answers is None else 0.0


def check_text(model: str, text: str, name: str, language: str = "en") -> None:
    """`InputError` where most of a text, called `name`, or its `language` is not what a packaged generator reads."""
    if model == ENGLISH and code_of(language) not in ("en", AUTO, OTHER):
        raise InputError(f"language={language}: {model} asks about English texts alone; give another model.path=…")
    if model == ENGLISH and isinstance(text, str):
        check_language((part.text for part in paragraphs(text)), name)


def model_note(path: str) -> dict[str, str]:
    """Which model answers, and its warning if there is one, as fields of what it writes."""
    warning = corpus_warning(path)
    return {"model": path, **({"warning": warning} if warning else {})}


def _trained_on(path: str | Path) -> object:
    """`data.train` of the run that a model is of; None where that is not known."""
    folder = Path(generator_path(path))
    configs = [place / CONFIG for place in (folder, folder.parent) if (place / CONFIG).is_file()]
    if not configs or not (folder / "config.json").is_file():
        return None
    try:
        data = read_yaml(configs[0]).get("data")
    except InputError:
        return None  # it need not be the file of a run
    return data.get("train") if isinstance(data, Mapping) else None


def ways_of(prompt: Prompt, name: str) -> tuple[str, ...]:
    """The ways in which a model makes pairs, the usual one first."""
    ways = WAYS_OF_TASK.get(prompt.task, ())
    if ways and prompt.input not in ABOUT_ANSWERS:
        raise InputError(
            f"model.path={name}: was trained with model.input={prompt.input} and asks about no given answer, "
            "so it makes no pairs; use rl-qg generate, or a model with model.input=paragraph_answer or sentence_answer"
        )
    if not ways:
        does = "extracts answers and asks no questions"
        if prompt.task == "sets":
            does = f"writes sets without answers (give strategy={prompt.granularity}_{prompt.mode} for these)"
        raise InputError(
            f"model.path={name}: this model {does}; give one that was trained with model.task=questions, multitask or "
            "pairs"
        )
    return ways
