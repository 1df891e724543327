"""Models that settings name `miniature:…`: pretrained on the training text where needed, and replaced by a folder."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample
from rl_qg.data.splits import load_splits, load_training
from rl_qg.miniatures.cache import QUESTIONS, READER, SHIPPED, ensure_miniatures, generator_folder, is_miniature
from rl_qg.miniatures.recipes import PretrainingPassage
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AnswersSettings, DataSettings, QAModelSettings, Settings
from rl_qg.settings.training import WORLD


def with_miniatures(
    settings: Settings, examples: Sequence[QAExample], state: PartialState, *, reader: bool = True
) -> Settings:
    """Replace miniatures by folders in generator, both rewards and, for a command that trains one, the reader; the
    main process pretrains missing ones.
    """
    paths = [settings.model.path, *_texts(settings.reward), *_texts(settings.held_out)]
    paths += [settings.qa.model.path] if reader else []
    wanted = [path for path in paths if is_miniature(path)]
    if not wanted:
        return settings
    with state.main_process_first():
        folders = _folders(wanted, settings, examples)
    return replace(
        settings,
        model=replace(settings.model, path=folders.get(settings.model.path, settings.model.path)),
        qa=replace(settings.qa, model=QAModelSettings(folders.get(settings.qa.model.path, settings.qa.model.path))),
        reward=_replaced(settings.reward, folders),
        held_out=_replaced(settings.held_out, folders),
    )


def reward_with_miniatures(settings: Settings) -> dict[str, Any]:
    """The options of the reward with the miniatures that a run on the same data has; for a single process."""
    wanted = [path for path in _texts(settings.reward) if is_miniature(path)]
    if not wanted:
        return settings.reward
    examples: list[QAExample] = []
    if settings.data.train != WORLD:  # where miniatures are pretrained on other passages
        examples = _training_examples(settings.data)
    return options_with_miniatures(settings.reward, examples, settings)


def _training_examples(data: DataSettings) -> list[QAExample]:
    if not data.validation:
        return load_training(data)
    splits = load_splits(data)
    return [*splits.gold, *splits.unlabelled]


def options_with_miniatures(
    options: dict[str, Any], examples: Iterable[QAExample], settings: Settings
) -> dict[str, Any]:
    """The options of a metric with every miniature replaced by its folder, pretrained on these examples if needed."""
    wanted = [path for path in _texts(options) if is_miniature(path)]
    replaced: dict[str, Any] = _replaced(options, _folders(wanted, settings, examples)) if wanted else options
    return replaced


def one_miniature(path: str, examples: Iterable[QAExample], settings: Settings) -> str:
    """The folder of one miniature, or `path` itself when it is not a miniature."""
    return _folders([path], settings, examples)[path] if is_miniature(path) else path


def answers_with_miniature(settings: Settings) -> AnswersSettings:
    """The settings of `answers` with a miniature as the generator replaced by its folder."""
    return replace(settings.answers, generator=one_miniature(settings.answers.generator, [], settings))


def pretraining_text(data: DataSettings, examples: Iterable[QAExample]) -> list[PretrainingPassage]:
    """What miniatures are pretrained on: the passages of the run's training data, or new ones of the embedded corpus.

    To a metric model that was trained on the very passages it scores, nothing in them is surprising, so the reward
    says little (measured: mean QRelScore 0.009 on seen passages, 0.030 on new ones). The embedded corpus is unlimited,
    so new passages are drawn from it. One in four comes with its questions.
    """
    if data.train != WORLD:
        return pretraining_passages(examples)
    sizes = data.world
    drawn = list(synthetic_examples(5 * sizes.train_passages, seed=sizes.seed, prefix="pretraining"))
    passages = pretraining_passages(drawn)
    return [passage if number % 4 == 0 else replace(passage, questions=()) for number, passage in enumerate(passages)]


def pretraining_passages(examples: Iterable[QAExample]) -> list[PretrainingPassage]:
    """Group neighbouring examples by passage; unlabelled ones have no questions."""
    return [
        PretrainingPassage(context, tuple(example.question for example in group if example.question))
        for context, group in groupby(examples, key=lambda example: example.context)
    ]


def _folders(paths: Sequence[str], settings: Settings, examples: Iterable[QAExample]) -> dict[str, str]:
    """The folder of each miniature, pretrained if it is not in the cache."""
    if READER in paths and settings.data.train != WORLD:
        raise InputError(
            f"{READER} knows the embedded corpus alone; train a reader (rl-qg qa) and set reward_models.reader=FOLDER"
        )
    folders: dict[str, Path] = {READER: SHIPPED / "reader"} if READER in paths else {}
    if QUESTIONS in paths:
        folders[QUESTIONS] = Path(generator_folder(QUESTIONS, settings.miniature.cache_dir))
    if others := [path for path in paths if path not in (QUESTIONS, READER)]:
        folders |= ensure_miniatures(others, pretraining_text(settings.data, examples), settings.miniature)
    return {path: str(folder) for path, folder in folders.items()}


def _texts(options: Any) -> list[str]:
    if isinstance(options, dict):
        return [text for value in options.values() for text in _texts(value)]
    return [options] if isinstance(options, str) else []


def _replaced(options: Any, folders: Mapping[str, str]) -> Any:
    """The same options with every text that is a key of `folders` replaced by its folder."""
    if isinstance(options, dict):
        return {key: _replaced(value, folders) for key, value in options.items()}
    return folders.get(options, options) if isinstance(options, str) else options
