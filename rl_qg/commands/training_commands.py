"""The commands that train a model: generator, reader, answer extractor and keyphrase predictor."""

import logging
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from rl_qg.commands.open_run import Run, one_miniature, open_run
from rl_qg.data.splits import Splits, load_splits, read_role, take
from rl_qg.runtime.processes import processes
from rl_qg.runtime.run_folder import check_run_folder, claim_run_folder
from rl_qg.runtime.run_record import check_continuation, run_record, write_run_record
from rl_qg.settings import QAModelSettings, Settings

log = logging.getLogger(__name__)


def train(settings: Settings) -> None:
    """Cross-entropy, then learning by reward (see `rl_qg.training.stages` and `rl_qg.training.trl_stages`)."""
    check_generator(settings)
    log.info("done: the generator is in %s", train_generator(open_run(settings)))


def check_generator(settings: Settings) -> None:
    """Refuse what the algorithm cannot do before data are read and models loaded."""
    from rl_qg.training.stages import check_training
    from rl_qg.training.trl_config import check_algorithm
    from rl_qg.training.trl_stages import ALGORITHMS

    processes(settings.training.use_cpu)  # before the training arguments, which would let them meet as they do
    check = check_algorithm if settings.algorithm in ALGORITHMS else check_training
    check(settings)


def train_generator(run: Run) -> Path:
    """Train with the algorithm that the settings name; return the folder of the last stage's model."""
    from rl_qg.training.stages import train as train_seq2seq
    from rl_qg.training.trl_stages import ALGORITHMS, train_causal

    trainer = train_causal if run.settings.algorithm in ALGORITHMS else train_seq2seq
    reward = None if run.settings.stages == "ce" else run.reward()
    return trainer(run.settings, run.splits, reward, None if reward is None else run.held_out())


def train_answers(settings: Settings) -> None:
    """The model that proposes answers (see `rl_qg.generation.answers.extractor_stage`)."""
    from rl_qg.generation.answers.extractor_stage import METRICS, train_extractor

    _fine_tune(settings, "train_answers", METRICS, train_extractor)
    log.info("done: use it with rl-qg answers method=extractor extractor=%s", settings.output_dir)


def train_kpqa(settings: Settings) -> None:
    """The keyphrase predictor of KPQA (see `rl_qg.readers.keyphrase_predictor`)."""
    from rl_qg.readers.keyphrase_predictor import METRICS, train_predictor

    _fine_tune(settings, "train_kpqa", METRICS, train_predictor)
    log.info("done: use it with rl-qg score reward=kpqa reward.model=%s", settings.output_dir)


def qa(settings: Settings) -> None:
    """The extractive reader (see `rl_qg.readers.stage`)."""
    from rl_qg.readers.stage import train_reader

    data = settings.data
    folder = Path(settings.output_dir)
    state = processes(settings.training.use_cpu)
    chosen = {"data": asdict(data), "qa": asdict(settings.qa)}
    begun = check_run_folder(folder, chosen)
    train, held_out = read_role(data, "train", allow_unlabelled=True), read_role(data, "validation")
    gold = take(train.examples, data.max_train, data.seed)
    validation = take(held_out.examples, data.max_validation, data.seed)
    hashes = {**train.hashes, **held_out.hashes}
    if begun:
        trained = (folder / "qa_metrics.json").exists()
        check_continuation(folder, hashes, accept=settings.accept_changed_data, trained=trained)
    state.wait_for_everyone()
    if state.is_main_process:
        claim_run_folder(folder, chosen)
        record = run_record(chosen, command=sys.argv, seed=settings.qa.seeds[0], data=hashes, leakage={})
        write_run_record(folder, record)
    with state.main_process_first():
        reader = one_miniature(settings.qa.model.path, gold, settings)
    train_reader(
        gold,
        validation,
        settings=replace(settings.qa, model=QAModelSettings(reader)),
        output_dir=folder,
        use_cpu=settings.training.use_cpu,
        precision=settings.training.precision,
        accept_changed_data=settings.accept_changed_data,
    )


def _fine_tune(settings: Settings, section: str, metrics: str, train: Callable[..., object]) -> None:
    """Train the encoder of a section of the settings on its QA data; `metrics` is the file that says it is trained."""
    own = getattr(settings, section)
    splits, path = _fine_tuning(settings, section, own.model.path, metrics)
    train(
        splits.gold,
        splits.validation,
        settings=replace(own, model=QAModelSettings(path)),
        output_dir=Path(settings.output_dir),
        seed=settings.seed,
        use_cpu=settings.training.use_cpu,
        precision=settings.training.precision,
    )


def _fine_tuning(settings: Settings, section: str, model: str, metrics: str) -> tuple[Splits, str]:
    """Claim or resume the folder of an encoder that is trained on QA data; return the data and the encoder's path.

    `metrics` is the file that says that it is trained.
    """
    data, folder = settings.data, Path(settings.output_dir)
    state = processes(settings.training.use_cpu)
    chosen = {"data": asdict(data), section: asdict(getattr(settings, section)), "seed": settings.seed}
    chosen |= {"precision": settings.training.precision}
    begun = check_run_folder(folder, chosen)
    splits = load_splits(data)
    if begun:
        trained = (folder / metrics).exists()
        check_continuation(folder, splits.hashes, accept=settings.accept_changed_data, trained=trained)
    state.wait_for_everyone()
    if state.is_main_process:
        claim_run_folder(folder, chosen)
        record = run_record(
            chosen, command=sys.argv, seed=settings.seed, data=splits.hashes, leakage=dict(splits.leakage)
        )
        write_run_record(folder, record)
    with state.main_process_first():
        return splits, one_miniature(model, splits.gold, settings)
