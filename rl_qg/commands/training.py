"""The commands that train a model: generator, reader, answer extractor, keyphrase predictor, sentence classifiers."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import cast

from rl_qg.commands.runs import OpenRun, check_unlabelled, claim_run, open_run
from rl_qg.data.examples import QAExample, passage_hash
from rl_qg.data.splits import VALIDATION, Splits, load_splits, read_role, take, training_stream
from rl_qg.miniatures.in_settings import with_encoder
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import load_unsharded, processes
from rl_qg.runtime.ranks import from_main
from rl_qg.runtime.run_folder import TRAINED
from rl_qg.scoring.metrics import check_reward_options, reranker_of
from rl_qg.scoring.reward_scorer import Reward, RewardScorer, try_reward
from rl_qg.settings import DataSettings, GenerateSettings, Settings

log = logging.getLogger(__name__)


def train(settings: Settings) -> None:
    settings = check_generator(settings)
    check_unlabelled(settings, processes(settings.training.use_cpu))
    log.info("done: the generator is in %s", train_generator(open_run(settings, reader=False)))


def check_generator(settings: Settings) -> Settings:
    """Refuse what the algorithm cannot do before data are read and models loaded; the settings for this model."""
    from rl_qg.generation.loading import load_config_and_tokenizer
    from rl_qg.miniatures.cache import is_miniature
    from rl_qg.miniatures.packaged import packaged_folder
    from rl_qg.training.best_of_n import check_best_of_n
    from rl_qg.training.config import warn_of_unused, with_format
    from rl_qg.training.stages import check_training
    from rl_qg.training.trl_stages import check_algorithm

    check_precision(settings)
    settings = with_format(settings)
    if settings.task != "questions" and settings.algorithm != "scst":
        raise InputError(
            f"model.task={settings.task}: algorithm={settings.algorithm} trains models that write "
            "questions alone; use algorithm=scst with an encoder-decoder, such as BART or T5"
        )
    checks = {"scst": check_training, "best_of_n": check_best_of_n}
    checks.get(settings.algorithm, check_algorithm)(settings)
    warn_of_unused(settings)
    check_reward_options(settings)
    if not is_miniature(settings.model.path) and not (Path(settings.output_dir) / TRAINED).exists():
        load_config_and_tokenizer(packaged_folder(settings.model.path))  # before miniatures of the reward are made
    return settings


def check_precision(settings: Settings) -> None:
    """Connect the processes, before training arguments exist, which would do it differently; refuse fp16 on a CPU."""
    device = processes(settings.training.use_cpu).device
    if settings.training.precision == "fp16" and device.type == "cpu":
        raise InputError("training.precision=fp16 needs a GPU; use bf16, or no (float32)")


def train_generator(run: OpenRun) -> Path:
    """Train with the algorithm that the settings name; return the folder of the last stage's model."""
    from rl_qg.scoring.task_scorers import SetScorer
    from rl_qg.training.stages import check_task_reward, train as train_seq2seq
    from rl_qg.training.trl_stages import train_causal

    trainers = {"scst": train_seq2seq, "best_of_n": best_of_n}
    trainer = trainers.get(run.settings.algorithm, train_causal)
    reward = None if run.settings.stages == "ce" else run.reward()
    stops = run.settings.training.stop_after is not None  # it is measured there, whatever the stage
    held_out = run.held_out() if reward is not None or stops else None
    if reward is not None and not from_main(run.state, (run.folder / TRAINED).exists):
        check_task_reward(run.settings, reward, held_out)
        scorer = SetScorer if run.settings.task == "sets" else RewardScorer
        # A few human questions; where there are none, any question about a few passages.
        asked = [one for one in (*run.splits.gold[:4], *run.splits.validation[:4]) if one.question][:4]
        asked = asked or [replace(one, question="What is it?") for one in run.splits.unlabelled[:4]]
        for name, metric in (("reward", reward), ("held_out", held_out)):
            if metric is not None:
                try_reward(metric, asked, name, scorer)
        if run.state.is_main_process and scorer is RewardScorer:  # the test is one of single questions
            _check_reward(run, reward)
    run.state.wait_for_everyone()
    return trainer(run.settings, run.splits, reward, held_out)


def _check_reward(run: OpenRun, reward: Reward) -> None:
    """Test the reward; also on questions of the generator where there is one already, and one process trains it."""
    from rl_qg.scoring.separation import check_reward
    from rl_qg.training.stages import check_on_samples, is_checked_at_boundary

    settings, validation, processes = run.settings, run.splits.validation, run.state.num_processes
    if settings.stages == "scst" and settings.task == "questions" and processes == 1:
        check_on_samples(settings, reward, validation, settings.model.path, run.state.device)
        return
    again = is_checked_at_boundary(settings, processes)
    count, seed = settings.evaluation.check_reward, settings.data.seed
    check_reward(reward, validation, run.folder, count=count, seed=seed, again=again)


def best_of_n(settings: Settings, splits: Splits, reward: Reward | None, held_out: Reward | None = None) -> Path:
    from rl_qg.generation.generate import generate
    from rl_qg.training.best_of_n import train_best_of_n
    from rl_qg.training.trl_stages import samples_of

    def write_picks(model_path: str, spans: Sequence[QAExample], output: Path) -> None:
        """Write the best by the reward of the questions that a generator samples for each answer."""
        assert reward is not None  # of the stage that this belongs to
        load_unsharded()
        scst = settings.scst
        generate(
            model_path,
            spans,
            output,
            settings=GenerateSettings(
                engine=settings.generate.engine,
                do_sample=True,
                num_samples=samples_of(settings),
                top_p=scst.top_p,
                temperature=scst.temperature,
                max_new_tokens=scst.max_new_tokens,
                batch_size=settings.generate.batch_size,
                keep=1,
            ),
            seed=settings.seed,
            state=processes(settings.training.use_cpu),
            sources=splits.hashes,
            accept_changed_data=settings.accept_changed_data,
            reranker=replace(reranker_of(reward), strict=scst.on_bad_reward != "skip"),
        )

    return train_best_of_n(settings, splits, reward, held_out, write_picks=write_picks)


def train_answers(settings: Settings) -> None:
    from rl_qg.readers.answer_extractor import METRICS, train_extractor

    _fine_tune(settings, "train_answers", METRICS, train_extractor)
    log.info("done: use it with rl-qg answers method=extractor extractor=%s", settings.output_dir)


def train_kpqa(settings: Settings) -> None:
    from rl_qg.readers.kpqa import METRICS, train_predictor

    read = partial(load_splits, development=settings.train_kpqa.development)
    _fine_tune(settings, "train_kpqa", METRICS, train_predictor, read)
    log.info("done: use it with rl-qg score reward=kpqa reward.model=%s", settings.output_dir)


def train_sentences(settings: Settings) -> None:
    from rl_qg.readers.train_sentences import METRICS, train_sentences as train_classifier

    if settings.data.labelled_fraction < 1 and settings.data.labelled_unit == "questions":
        raise InputError(
            "data.labelled_unit=questions: sentences that were asked about would count as not worth a question; use "
            "data.labelled_unit=passages"
        )
    _fine_tune(settings, "train_sentences", METRICS, train_classifier, partial(load_splits, whole_passages=True))
    log.info("done: the classifier of kind=%s is in %s", settings.train_sentences.kind, settings.output_dir)


def qa(settings: Settings) -> None:
    from rl_qg.readers.train_reader import train_reader

    check_precision(settings)
    relevant = {"data": asdict(settings.data), "qa": asdict(settings.qa)}
    read = partial(_questions_of_readers, impossible=settings.qa.impossible)
    splits = claim_run(settings, relevant, seed=settings.qa.seeds[0], last_file="qa_metrics.json", read=read)
    scores = train_reader(
        splits.gold,
        splits.validation,
        settings=with_encoder(settings.qa, splits.gold, settings, processes(settings.training.use_cpu)),
        output_dir=Path(settings.output_dir),
        use_cpu=settings.training.use_cpu,
        precision=settings.training.precision,
        accept_changed_data=settings.accept_changed_data,
    )
    seeds = ", ".join(map(str, settings.qa.seeds))
    log.info(
        "done: exact match %.1f %%, F1 %.1f %% on %d questions (reader seeds: %s); the reader is in %s",
        *(scores["exact_match"], scores["f1"], scores["total"], seeds, settings.output_dir),
    )


def retrieve(settings: Settings) -> None:
    from rl_qg.readers.retriever import METRICS, read_questions, train_retriever
    from rl_qg.runtime.files import read_record

    _fine_tune(settings, "retrieve", METRICS, train_retriever, lambda data: read_questions(settings.retrieve))
    found = read_record(Path(settings.output_dir) / METRICS)
    for name, measures in found["systems"].items():
        log.info("%-10s%s", name, "  ".join(f"{key} {value['mean']:.3f}" for key, value in measures.items()))
    log.info(
        "done: %d questions among %d passages; intervals are in %s, the encoder beside it",
        *(found["questions"], found["passages"], Path(settings.output_dir) / METRICS),
    )


def _questions_of_readers(data: DataSettings, **kept: bool) -> Splits:
    """All questions of both sources, without the leakage check and the unlabelled part of generator training."""
    train, validation = training_stream(data, unasked=False, **kept), read_role(data, "validation", **kept)
    passages = {passage_hash(example.context) for example in validation.examples}
    passages &= {digest for example in train if (digest := passage_hash(example.context)) in passages}
    if shared := sum(passage_hash(example.context) in passages for example in validation.examples):
        log.warning(
            "data.validation: the passages of %d of %d questions are training passages too: the scores will not say "
            "how the reader does on others",
            shared,
            len(validation.examples),
        )
    return Splits(
        gold=cast(list[QAExample], train),  # which is only iterated
        unlabelled=[],
        validation=take(validation.examples, data.max_validation, data.seed, "data.max_validation", VALIDATION),
        hashes={**train.hashes, **validation.hashes},
        leakage={"validation_questions_on_training_passages": shared},
        report={"train": train.report, "validation": validation.report},
    )


def _fine_tune(
    settings: Settings,
    section: str,
    last_file: str,
    train: Callable[..., object],
    read: Callable[[DataSettings], Splits] = load_splits,
) -> None:
    """Train the encoder of a section of the settings on its QA data; `last_file` exists when it is trained."""
    from rl_qg.readers.fine_tuning import FineTuning

    check_precision(settings)
    options, precision = getattr(settings, section), settings.training.precision
    relevant = {"data": asdict(settings.data), section: asdict(options), "seed": settings.seed, "precision": precision}
    splits = claim_run(settings, relevant, seed=settings.seed, last_file=last_file, read=read)
    options = with_encoder(options, splits.gold, settings, processes(settings.training.use_cpu))
    output_dir, use_cpu = Path(settings.output_dir), settings.training.use_cpu
    train(splits.gold, splits.validation, FineTuning(options, output_dir, settings.seed, use_cpu, precision))
