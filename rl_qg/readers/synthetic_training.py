"""Readers trained on synthetic questions alone: with given options, or with the best of random trials.

Sources: Ushio, Alva-Manchego, Camacho-Collados, "Generative Language Models for Paragraph-Level Question Generation"
(EMNLP 2022), appendix C, and "An Empirical Comparison of LM-based Question and Answer Generation Methods" (ACL
Findings 2023), whose released code (lmqg) draws the trials.
"""

import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.data.examples import QAExample, passage_hash
from rl_qg.data.splits import take_passages
from rl_qg.readers.stage import SCORES, train_reader
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import read_json
from rl_qg.settings import QASettings, ReaderTrials

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DrawnOptions:
    """Options of a training that are drawn at random."""

    learning_rate: float
    epochs: int
    batch_size: int

    def of(self, settings: QASettings) -> QASettings:
        """The settings of a reader with these options."""
        return replace(settings, **asdict(self))


@dataclass(frozen=True)
class TrainedReader:
    """What readers of several seeds, trained on one file, answered: exact match and F1 in percent, (seeds, questions).

    `trials` has the options of each trial with its scores on synthetic questions; `chosen` those that were used.
    """

    scores: Mapping[str, NDArray[np.float64]]
    questions: int
    chosen: Mapping[str, Any]
    trials: Sequence[Mapping[str, Any]]


def draw_trials(settings: ReaderTrials) -> list[DrawnOptions]:
    """The trials, the same for every file: learning rates even on the logarithmic scale, all draws independent."""
    rng = random.Random(settings.seed)
    low, high = math.log(settings.lowest_rate), math.log(settings.highest_rate)
    return [
        DrawnOptions(math.exp(rng.uniform(low, high)), rng.choice(settings.epochs), rng.choice(settings.batch_sizes))
        for _ in range(settings.count)
    ]


def train_on_synthetic(
    name: str,
    synthetic: Sequence[QAExample],
    gold: Sequence[QAExample],
    *,
    settings: QASettings,
    trials: ReaderTrials,
    folder: Path,
    use_cpu: bool = False,
    precision: str = "no",
    accept_changed_data: bool = False,
    keep_weights: bool = False,
) -> TrainedReader:
    """Train readers on `synthetic`, one for each of `settings.seeds`, and score them on `gold`.

    With `trials.count` the learning rate, the number of epochs and the batch size are those of the trial whose reader,
    trained on a part of the questions, has the highest sum of exact match and F1 on those of other passages (of equal
    ones the first). Human questions decide nothing. A second call goes on where the first one ended.

    Raises:
        InputError: as of `rl_qg.readers.stage.train_reader`; too few passages for trials.
    """
    common = {"use_cpu": use_cpu, "precision": precision, "accept_changed_data": accept_changed_data}
    rows: list[dict[str, Any]] = []
    chosen = settings
    drawn = draw_trials(trials)
    if drawn:
        train, validation = trial_questions(name, synthetic, trials)
        for number, trial in enumerate(drawn):
            log.info("%s: trial %d of %d: %s", name, number + 1, len(drawn), _text_of(trial))
            options = replace(trial.of(settings), seeds=settings.seeds[:1], max_steps=-1)
            place = folder / "trials" / str(number)
            metrics = train_reader(train, validation, settings=options, output_dir=place, **common)  # type: ignore[arg-type]
            _delete_weights(place)
            rows.append({"trial": number, **asdict(trial), **{score: metrics[score] for score in SCORES}})
        best = max(rows, key=lambda row: (row["exact_match"] + row["f1"], -row["trial"]))
        chosen = replace(drawn[best["trial"]].of(settings), max_steps=-1)
        log.info("%s: the best trial is %d: %s", name, best["trial"] + 1, _text_of(drawn[best["trial"]]))
    log.info("%s: reader on %d questions", name, len(synthetic))
    train_reader(synthetic, gold, settings=chosen, output_dir=folder / "reader", **common)  # type: ignore[arg-type]
    if not keep_weights:
        _delete_weights(folder / "reader")
    tables = [read_json(folder / "reader" / f"seed-{seed}" / "question_scores.json") for seed in settings.seeds]
    scores = {
        score: np.array([[100.0 * table[example.id][score] for example in gold] for table in tables])
        for score in SCORES
    }
    used = {key: getattr(chosen, key) for key in ("learning_rate", "epochs", "batch_size", "max_steps")}
    return TrainedReader(scores, len(synthetic), used, rows)


def trial_questions(
    name: str, synthetic: Sequence[QAExample], trials: ReaderTrials
) -> tuple[list[QAExample], list[QAExample]]:
    """The questions that trials train on, and those of other passages that judge them.

    Raises:
        InputError: all questions are about one passage.
    """
    key, seed = "qa_evaluate.trials", trials.seed
    validation = take_passages(synthetic, trials.validation, seed, f"{key}.validation", "questions judge the trials")
    asked = {passage_hash(example.context) for example in validation}
    rest = [example for example in synthetic if passage_hash(example.context) not in asked]
    if not rest:
        raise InputError(
            f"{name}: the {len(synthetic)} questions are about too few passages to set {trials.validation} questions "
            "of other passages aside for the trials; give more questions, a smaller trials.validation, or "
            "trials.count=0"
        )
    return take_passages(rest, trials.train, seed, f"{key}.train", "other questions train the trials"), validation


def _text_of(trial: DrawnOptions) -> str:
    return f"learning rate {trial.learning_rate:.2e}, {trial.epochs} epochs, batches of {trial.batch_size}"


def _delete_weights(folder: Path) -> None:
    """A finished reader is not trained again without them: its scores mark it as finished."""
    for path in folder.glob("*.safetensors"):
        path.unlink(missing_ok=True)  # every process deletes them
