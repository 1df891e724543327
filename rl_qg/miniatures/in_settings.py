"""Models named `miniature:…` (pretrained on the training text if needed) or `packaged:…` become folders."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample
from rl_qg.data.splits import load_splits, load_training
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.ranks import Ranks
from rl_qg.settings import AnswersSettings, DataSettings, QAModelSettings, Settings
from rl_qg.settings.training import WORLD

if TYPE_CHECKING:
    from rl_qg.miniatures.recipes import PretrainingPassage

Options = TypeVar("Options")
NAMES = ("miniature:", "packaged:")  # known before PyTorch, which `cache` and `packaged` need, is loaded


def with_miniatures(
    settings: Settings, examples: Sequence[QAExample], state: Ranks, *, reader: bool = True
) -> Settings:
    """Replace miniatures by folders in generator, both rewards and, for a command that trains one, the reader; the
    main process pretrains missing ones.
    """
    models = {"model": settings.model.path, "reward": settings.reward, "held_out": settings.held_out}
    models |= {"qa": settings.qa.model.path} if reader else {}
    with state.main_process_first():
        found: dict[str, Any] = in_folders(models, examples, settings)
    return replace(
        settings,
        model=replace(settings.model, path=found["model"]),
        qa=replace(settings.qa, model=QAModelSettings(found["qa"])) if reader else settings.qa,
        reward=found["reward"],
        held_out=found["held_out"],
    )


def reward_with_miniatures(settings: Settings) -> dict[str, Any]:
    """The options of the reward with the miniatures that a run on the same data has; for a single process."""
    return in_folders(settings.reward, _passages_of(settings.data), settings)


def _passages_of(data: DataSettings) -> Iterator[QAExample]:
    """What miniatures are pretrained on in a run on this data; nothing is read before one is pretrained."""
    if data.validation:
        splits = load_splits(data)
        yield from splits.gold
        yield from splits.unlabelled
    else:
        yield from load_training(data)


def answers_with_miniature(settings: Settings) -> AnswersSettings:
    return replace(settings.answers, generator=in_folders(settings.answers.generator, [], settings))


def with_encoder(options: Any, examples: Iterable[QAExample], settings: Settings, state: Ranks) -> Any:
    """Settings of a fine-tuning with a miniature as the encoder replaced by its folder; all processes call this."""
    with state.main_process_first():
        return replace(options, model=QAModelSettings(in_folders(options.model.path, examples, settings)))


def in_folders(options: Options, examples: Iterable[QAExample], settings: Settings) -> Options:
    """A path, or options of metrics, with every miniature and packaged generator replaced by its folder. A miniature
    that is not in the cache is pretrained on these examples.
    """
    if not (paths := _named(options)):
        return options
    from rl_qg.miniatures.cache import QUESTIONS, READER, SHIPPED, ensure_miniatures, generator_folder, is_miniature
    from rl_qg.miniatures.packaged import is_packaged, packaged_folder

    if READER in paths and settings.data.train != WORLD:
        raise InputError(
            f"{READER} knows the embedded corpus alone; train a reader (rl-qg qa) and set reward_models.reader=FOLDER"
        )
    folders: dict[str, Path] = {READER: SHIPPED / "reader"} if READER in paths else {}
    if QUESTIONS in paths:
        folders[QUESTIONS] = Path(generator_folder(QUESTIONS, settings.miniature.cache_dir))
    folders |= {path: Path(packaged_folder(path, settings.miniature.cache_dir)) for path in paths if is_packaged(path)}
    if others := [path for path in paths if path not in (QUESTIONS, READER) and is_miniature(path)]:
        folders |= ensure_miniatures(others, pretraining_text(settings.data, examples), settings.miniature)
    return _replaced(options, folders)


def _named(options: Any) -> list[str]:
    if isinstance(options, dict):
        return [path for value in options.values() for path in _named(value)]
    return [options] if isinstance(options, str) and options.startswith(NAMES) else []


def _replaced(options: Any, folders: Mapping[str, Path]) -> Any:
    if isinstance(options, dict):
        return {key: _replaced(value, folders) for key, value in options.items()}
    return str(folders[options]) if isinstance(options, str) and options in folders else options


def pretraining_text(data: DataSettings, examples: Iterable[QAExample]) -> "list[PretrainingPassage]":
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


def pretraining_passages(examples: Iterable[QAExample]) -> "list[PretrainingPassage]":
    """Group neighbouring examples by passage; unlabelled ones have no questions."""
    from rl_qg.miniatures.recipes import PretrainingPassage

    return [
        PretrainingPassage(context, tuple(example.question for example in group if example.question))
        for context, group in groupby(examples, key=lambda example: example.context)
    ]
