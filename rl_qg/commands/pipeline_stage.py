"""All stages: (answers) -> data -> CE -> SCST -> questions -> filter -> augment -> readers -> report.

    rl-qg pipeline preset=quickstart output_dir=runs/first

Stages meet through files in the run folder. A stage whose result exists is not run again. So the same command
continues an interrupted run, and a stage runs again when its result is deleted.
"""

import logging
from pathlib import Path

from accelerate import PartialState

from rl_qg.augmentation.data_card import check_dataset_name
from rl_qg.commands.load_filters import check_filters, check_numbers
from rl_qg.commands.load_reranker import check_reranker
from rl_qg.commands.open_run import OpenRun, open_run
from rl_qg.commands.pipeline_readers import (
    augment_equally,
    filters_use_reader,
    generate_questions,
    generators_of,
    train_reader_of_filters,
    train_readers,
)
from rl_qg.commands.training_commands import check_generator, train_generator
from rl_qg.commands.unlabelled_passages import check_unlabelled
from rl_qg.data.splits import take
from rl_qg.evaluation.compare_generators import evaluate_generators
from rl_qg.reports.hub import publish
from rl_qg.reports.page import write_report
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import processes
from rl_qg.settings import Settings

log = logging.getLogger(__name__)


def pipeline(settings: Settings) -> None:
    """Check everything that can be checked early, then run all stages."""
    check_generator(settings)
    check_late_stages(settings, processes(settings.training.use_cpu))
    run_pipeline(open_run(settings))


def check_late_stages(settings: Settings, state: PartialState) -> None:
    """Raise `InputError` for what a late stage would refuse, before the first one has taken hours."""
    if not settings.data.train:
        raise InputError(
            "data.train has no value, and the pipeline's readers learn from it; rl-qg train can do without"
        )
    if settings.training.stop_after is not None:
        raise InputError("training.stop_after: the pipeline goes on with the trained generator; use rl-qg train")
    if settings.task not in ("questions", "multitask"):
        raise InputError(
            f"model.task={settings.task}: the pipeline asks about given answers; use model.task=questions or "
            "multitask, or rl-qg train"
        )
    check_filters(settings)
    check_numbers(settings)
    check_reranker(settings)
    check_dataset_name(settings.augment.hub_dataset)
    check_unlabelled(settings, state)


def run_pipeline(run: OpenRun) -> Path:
    """Run every stage that is not done; return the report's path."""
    folder, stages = run.folder, 6
    _log_stage(1, stages, "train the generator: cross-entropy, then by reward")
    generator = train_generator(run)
    if run.state.is_main_process:
        _log_stage(2, stages, "compare both generators on held-out passages")
        _evaluate(run)
    run.state.wait_for_everyone()

    _log_stage(3, stages, "generate questions with each generator")
    arms = generators_of(run, generator)
    candidates = generate_questions(run, arms)
    if filters_use_reader(run):
        train_reader_of_filters(run, candidates)

    _log_stage(4, stages, "filter, sample and merge with the human questions")
    augment_equally(run, arms)

    _log_stage(5, stages, "train readers on gold alone, and on gold with the questions of each generator")
    train_readers(run, arms, candidates)

    report = folder / "report.html"
    if run.state.is_main_process:
        _log_stage(6, stages, "write the report")
        publish(folder, None if report.exists() else run.settings.training.hub_model)  # cards with the readers' scores
        write_report([folder], report)
        log.info("done: open %s", report)
    run.state.wait_for_everyone()
    return report


def _evaluate(run: OpenRun) -> None:
    output = run.folder / "evaluation.json"
    models = {name: run.folder / name for name in ("ce", "scst") if (run.folder / name).exists()}
    if output.exists() or not models:
        return
    settings = run.settings
    evaluate_generators(
        models,
        take(
            run.splits.judging,
            settings.evaluation.max_examples,
            settings.data.seed,
            "evaluation.max_examples",
            "validation questions compare the generators",
        ),
        run.reward(),
        output,
        held_out=run.held_out(),
        choice=run.splits.choice,
        max_new_tokens=settings.scst.max_new_tokens,
        batch_size=settings.evaluation.batch_size,
        device=run.state.device,
    )
    publish(run.folder, settings.training.hub_model)  # the model cards show the results


def _log_stage(number: int, total: int, text: str) -> None:
    log.info("[%d/%d] %s", number, total, text)
