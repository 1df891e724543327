"""One function for each sub-command: settings in, files out."""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from errno import EISDIR
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tqdm import tqdm

from rl_qg.commands.load_filters import check_filters, load_metric, needs_models, with_metrics
from rl_qg.commands.load_metrics import load_metrics
from rl_qg.commands.open_run import Run, load_reward, one_miniature, open_run, reward_with_miniatures
from rl_qg.data.examples import take
from rl_qg.data.splits import Splits, load_splits, load_training, read_role, source_names, training_spans
from rl_qg.data.streaming import Examples, stream_examples
from rl_qg.evaluation.result_pages import check_folder
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer, write_json
from rl_qg.runtime.processes import processes
from rl_qg.runtime.run_folder import check_run_folder, claim_run_folder
from rl_qg.runtime.run_record import check_continuation, run_record, write_run_record
from rl_qg.settings import QAModelSettings, Settings

log = logging.getLogger(__name__)


def pipeline(settings: Settings) -> None:
    """The whole job (see `rl_qg.commands.pipeline_stage`)."""
    from rl_qg.commands.pipeline_stage import check_late_stages, run_pipeline

    _check_generator(settings)
    check_late_stages(settings, processes(settings.training.use_cpu))
    run_pipeline(open_run(settings))


def train(settings: Settings) -> None:
    """Cross-entropy, then learning by reward (see `rl_qg.training.stages` and `rl_qg.training.trl_stages`)."""
    _check_generator(settings)
    log.info("done: the generator is in %s", train_generator(open_run(settings)))


def _check_generator(settings: Settings) -> None:
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


def answers(settings: Settings) -> None:
    """Candidate answers of passages without questions (see `rl_qg.generation.answers.stage`)."""
    from rl_qg.data.passages import Passages, passage_keys
    from rl_qg.generation.answers.stage import propose_answers, report_line

    options = settings.answers
    output = _required(options.output, "output", "answers.jsonl")
    state = processes(settings.training.use_cpu)
    excluded = passage_keys(source_names(options.exclude), options.passages)
    report = propose_answers(
        Passages(source_names(options.input), options.passages, excluded),
        output,
        settings=options,
        state=state,
        accept_changed_data=settings.accept_changed_data,
    )
    log.info("%s\ndone: use them with data.train=%s", report_line(report), output)


def train_answers(settings: Settings) -> None:
    """The model that proposes answers (see `rl_qg.generation.answers.extractor_stage`)."""
    from rl_qg.generation.answers.extractor_stage import METRICS, train_extractor

    _fine_tune(settings, "train_answers", METRICS, train_extractor)
    log.info("done: use it with rl-qg answers method=extractor extractor=%s", settings.output_dir)


def train_kpqa(settings: Settings) -> None:
    """The keyphrase predictor of KPQA (see `rl_qg.readers.kpqa_stage`)."""
    from rl_qg.readers.kpqa_stage import METRICS, train_predictor

    _fine_tune(settings, "train_kpqa", METRICS, train_predictor)
    log.info("done: use it with rl-qg score reward=kpqa reward.model=%s", settings.output_dir)


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


def generate(settings: Settings) -> None:
    """Candidate questions (see `rl_qg.generation.stage`)."""
    from rl_qg.generation.stage import generate as run_generation

    output = _required(settings.generate.output, "output", "questions.jsonl")
    state = processes(settings.training.use_cpu)
    examples = training_spans(settings.data)
    with state.main_process_first():
        model_path = one_miniature(settings.model.path, examples, settings)
    lines = run_generation(
        model_path,
        examples,
        output,
        settings=settings.generate,
        seed=settings.seed,
        state=state,
        sources=examples.hashes,
        accept_changed_data=settings.accept_changed_data,
    )
    log.info("done: %d questions for %d answers in %s", lines, len(examples), output)


def augment(settings: Settings) -> None:
    """Filter, sample, merge (see `rl_qg.augmentation.stage`)."""
    from rl_qg.augmentation.stage import augment as run_augmentation
    from rl_qg.augmentation.stage import check_inputs

    options = settings.augment
    questions = _required(options.questions, "questions", "questions.jsonl")
    output = _required(options.output, "output", "augmented.json")
    check_filters(settings)
    check_inputs(output, [questions, *source_names(options.gold)])
    state = processes(settings.training.use_cpu or not needs_models(settings))
    gold: Examples = stream_examples(options.gold, role="train") if options.gold else []
    run_augmentation(
        questions,
        gold,
        output,
        settings=with_metrics(settings, state),
        state=state,
        load_metric=partial(load_metric, state=state, placement=settings.training.reward_placement),
    )


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


def score(settings: Settings) -> None:
    """Scores for a file of questions (see `rl_qg.evaluation.score`)."""
    from rl_qg.data.question_tables import QuestionTable
    from rl_qg.evaluation.score import score_file

    options = settings.score
    if not options.input:
        raise InputError("input has no value; give one, such as input=questions.jsonl")
    output = _required(options.output, "output", "scored.jsonl")
    source = QuestionTable(options.input, asdict(options.columns))
    _check_writable(output)
    state = processes(settings.training.use_cpu)
    with state.main_process_first():
        models = reward_with_miniatures(settings)
    reward = load_reward(models, state, settings.training.reward_placement)
    score_file(
        reward,
        source,
        output,
        batch_size=options.batch_size,
        state=state,
        accept_changed_data=settings.accept_changed_data,
    )


def evaluate(settings: Settings) -> None:
    """Generated questions under several metrics (see `rl_qg.evaluation.evaluate`)."""
    from rl_qg.evaluation.evaluate import evaluate as run_evaluation

    folder = check_folder(settings.evaluate.output, "evaluation")
    run_evaluation(_metrics(settings, settings.evaluate.metrics), settings.evaluate, folder)


def correlate(settings: Settings) -> None:
    """Metrics against what people say (see `rl_qg.evaluation.meta.correlate`)."""
    from rl_qg.evaluation.meta.correlate import correlate as run_correlation

    options = settings.correlate
    folder = check_folder(options.output, "correlation")
    run_correlation(_metrics(settings, options.metrics, optional=options.provided), options, folder)


def robustness(settings: Settings) -> None:
    """Metrics under perturbed questions (see `rl_qg.evaluation.meta.robustness`)."""
    from rl_qg.evaluation.meta.robustness import robustness as run_robustness

    folder = check_folder(settings.robustness.output, "robustness")
    run_robustness(_metrics(settings, settings.robustness.metrics), settings.robustness, folder)


def _metrics(settings: Settings, entries: Sequence[Any], *, optional: bool = False) -> dict[str, Reward]:
    """The metrics of a list, in the one process of a command that judges with several; none where it may be empty."""
    state = processes(settings.training.use_cpu)
    return load_metrics(entries, settings, state) if entries or not optional else {}


def explain(settings: Settings) -> None:
    """One score, token by token (see `rewards.relevance.explanation`)."""
    options = settings.explain
    output = _required(options.output, "output", "why.html")
    if output.suffix != ".html":
        raise InputError(f"output={output}: the explanation is a page; give a name that ends in .html")
    for key in ("question", "context"):
        if not getattr(options, key):
            raise InputError(f'{key} has no value; give the text, such as {key}="…"')
    _check_writable(output)
    reward: Any = _reward_alone(settings)
    if not hasattr(reward, "explain"):
        raise InputError(
            f"reward {getattr(reward, 'name', type(reward).__name__)} has no explanation; use reward=qrelscore"
        )
    explanation = reward.explain(options.question, options.context)
    with _writing(output):
        write_json(output.with_suffix(".json"), explanation.to_dict())
        with atomic_writer(output) as stream:
            stream.write(explanation.to_html())
    log.info(
        "score %.4f (lrm %.4f, grg %.4f)\ndone: open %s", explanation.score, explanation.lrm, explanation.grg, output
    )


def baselines(settings: Settings) -> None:
    """Baselines of QRelScore for these models and data (see `rewards.relevance.baselines`)."""
    from rewards.relevance.baselines import PARTS, estimate_baselines

    options = settings.baselines
    output = _required(options.output, "output", "baselines.json")
    _check_writable(output)
    reward: Any = _reward_alone(settings)
    if not set(PARTS) <= set(getattr(reward, "part_names", ())):
        raise InputError("baselines are those of QRelScore; use reward=qrelscore")
    if getattr(reward, "baselines", None) is not None:
        raise InputError("reward.baselines is set; estimate baselines without it")
    given = load_training(settings.data)
    examples = [example for example in given if example.question]
    if len(examples) < len(given):
        log.info("%d of %d examples have no question and are left out", len(given) - len(examples), len(given))
    with tqdm(total=options.pairs, desc="baselines", unit="pair") as bar:
        found = estimate_baselines(
            reward,
            [example.question for example in examples],
            [example.context for example in examples],
            pairs=options.pairs,
            seed=options.seed,
            progress=bar.update,
        )
    with _writing(output):
        write_json(output, found)
    errors: Any = found["standard_error"]
    means = ", ".join(f"{part} {found[part]:.4f} (standard error {errors[part] or 0:.4f})" for part in PARTS)
    log.info("%s: means of %d pairs, of %d drawn", means, found["pairs"], found["drawn"])
    log.info("done: use them with reward.baselines=%s", output)


def report(arguments: Sequence[str]) -> None:
    """One HTML page of run folders (see `rl_qg.reports.page`)."""
    from rl_qg.reports.page import write_report

    runs, output = list(arguments), "report.html"
    if "--output" in runs[:-1]:
        place = runs.index("--output")
        output = runs[place + 1]
        del runs[place : place + 2]
    if not runs or any(name.startswith("-") for name in runs):
        raise InputError("give run folders and --output FILE, such as rl-qg report runs/a --output report.html")
    write_report([Path(run) for run in runs], Path(output))
    log.info("done: open %s", output)


def study(arguments: Sequence[str]) -> None:
    """A grid of generators, filters, amounts and seeds (see `rl_qg.commands.study_stage`)."""
    from rl_qg.commands.study_stage import run_study

    flags = {"--dry-run": "dry_run", "--tables": "tables_only"}
    chosen = {name: flag in arguments for flag, name in flags.items()}
    file, *overrides = [text for text in arguments if text not in flags] or [""]
    if not file or file.startswith("-") or "=" in file:
        raise InputError("give a study file first, such as rl-qg study experiments/augmentation/study.yaml")
    log.info("done: see %s", run_study(Path(file), overrides, **chosen))


def _reward_alone(settings: Settings) -> Any:
    """The reward of the settings, in the one process of a command that writes little."""
    state = processes(settings.training.use_cpu)
    return load_reward(reward_with_miniatures(settings), state, settings.training.reward_placement)


def _check_writable(output: Path) -> None:
    """Find out before the work that its result cannot be written."""
    with _writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder")
        with TemporaryFile(dir=output.parent):
            pass


@contextmanager
def _writing(output: Path) -> Iterator[None]:
    """Say in one line that an output cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"output={output}: cannot be written ({error.strerror}); name another path") from None


def _required(value: str, key: str, example: str) -> Path:
    if not value:
        raise InputError(f"{key} has no value; give one, such as {key}={example}")
    return Path(value)
