"""All stages: (answers) -> data -> CE -> SCST -> questions -> filter -> augment -> QA -> report.

    rl-qg pipeline preset=quickstart output_dir=runs/first

Stages meet through files in the run folder. A stage whose result exists is not run again. So the same command
continues an interrupted run, and a stage runs again when its result is deleted.
"""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from accelerate import PartialState

from rl_qg.augmentation.data_card import check_dataset_name
from rl_qg.augmentation.stage import augment, check_questions, report_path
from rl_qg.commands.load_filters import check_filters, check_numbers, with_metrics
from rl_qg.commands.load_metrics import load_reward
from rl_qg.commands.load_reranker import check_reranker, load_reranker
from rl_qg.commands.open_run import OpenRun, open_run
from rl_qg.commands.training_commands import check_generator, train_generator
from rl_qg.commands.unlabelled_passages import check_unlabelled
from rl_qg.data.examples import QAExample
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import answer_spans, take
from rl_qg.evaluation.compare_generators import evaluate_generators
from rl_qg.generation.stage import generate
from rl_qg.readers.stage import compare, train_reader
from rl_qg.reports.hub import publish
from rl_qg.reports.page import write_report
from rl_qg.runtime.processes import from_main, processes
from rl_qg.settings import Settings

log = logging.getLogger(__name__)


def pipeline(settings: Settings) -> None:
    """Check everything that can be checked early, then run all stages."""
    check_generator(settings)
    check_late_stages(settings, processes(settings.training.use_cpu))
    run_pipeline(open_run(settings))


def check_late_stages(settings: Settings, state: PartialState) -> None:
    """Raise `InputError` for what a late stage would refuse, before the first one has taken hours."""
    check_filters(settings)
    check_numbers(settings)
    check_reranker(settings)
    check_dataset_name(settings.augment.hub_dataset)
    check_unlabelled(settings, state)


def run_pipeline(run: OpenRun) -> Path:
    """Run every stage that is not done; return the report's path."""
    folder, settings, splits = run.folder, run.settings, run.splits
    stages = 7
    _log_stage(1, stages, "train the generator: cross-entropy, then by reward")
    generator = train_generator(run)
    if run.state.is_main_process:
        _log_stage(2, stages, "compare both generators on held-out passages")
        _evaluate(run)
    run.state.wait_for_everyone()

    _log_stage(3, stages, "generate questions for every answer")
    spans = answer_spans([*splits.gold, *splits.unlabelled])
    questions = folder / "questions.jsonl"
    generate(
        str(generator),
        spans,
        questions,
        settings=settings.generate,
        seed=settings.seed,
        state=run.state,
        sources=splits.hashes,
        accept_changed_data=settings.accept_changed_data,
        reranker=load_reranker(settings, [*splits.gold, *splits.unlabelled], run.state),
    )

    qa, augmented = folder / "qa", folder / "augmented.json"
    _log_stage(4, stages, "train a reader on gold alone")
    _train_reader(run, splits.gold, qa / "gold")  # before the filters, one of which may use it

    _log_stage(5, stages, "filter, sample and merge with the human questions")
    _augment(run, questions, augmented)

    _log_stage(6, stages, "train a reader on gold with synthetic questions")
    _train_reader(run, read_examples(augmented, role="train").examples, qa / "augmented")

    report = folder / "report.html"
    if run.state.is_main_process:
        compare(qa / "gold", qa / "augmented", qa / "comparison.json")
        _log_stage(7, stages, "write the report")
        write_report([folder], report)
        log.info("done: open %s", report)
    run.state.wait_for_everyone()
    return report


def _augment(run: OpenRun, questions: Path, augmented: Path) -> None:
    accept = run.settings.accept_changed_data

    def is_done() -> bool:
        if not (augmented.exists() and report_path(augmented).exists()):
            return False
        check_questions(questions, augmented, accept_changed_data=accept)
        return True

    if from_main(run.state, is_done):
        return
    augment(
        questions,
        run.splits.gold,
        augmented,
        settings=with_metrics(run.settings, run.state),
        state=run.state,
        load_metric=partial(load_reward, state=run.state, placement=run.settings.training.reward_placement),
    )


def _train_reader(run: OpenRun, examples: Sequence[QAExample], folder: Path) -> None:
    settings = run.settings
    train_reader(
        examples,
        run.splits.validation,
        settings=settings.qa,
        output_dir=folder,
        use_cpu=settings.training.use_cpu,
        precision=settings.training.precision,
        accept_changed_data=settings.accept_changed_data,
    )


def _evaluate(run: OpenRun) -> None:
    output = run.folder / "evaluation.json"
    models = {name: run.folder / name for name in ("ce", "scst") if (run.folder / name).exists()}
    if output.exists() or not models:
        return
    settings = run.settings
    evaluate_generators(
        models,
        take(run.splits.validation, settings.evaluation.max_examples, settings.data.seed),
        run.reward(),
        output,
        held_out=run.held_out(),
        max_new_tokens=settings.scst.max_new_tokens,
        batch_size=settings.evaluation.batch_size,
        device=run.state.device,
    )
    publish(run.folder, settings.training.hub_model)  # the model cards show the results


def _log_stage(number: int, total: int, text: str) -> None:
    log.info("[%d/%d] %s", number, total, text)
