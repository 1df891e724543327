"""The whole job: data -> CE -> SCST -> questions -> filter -> augment -> QA -> report.

    rl-qg pipeline preset=quickstart output_dir=runs/first

Stages meet through files in the run folder. A stage whose result is there is not run again, so the same command after
a kill goes on where it stood, and a stage can be redone by deleting its result.
"""

import logging
from pathlib import Path

from rl_qg.augment import augment, check_questions, report_path
from rl_qg.commands import train_generator
from rl_qg.evaluation import evaluate_generators
from rl_qg.generate import generate
from rl_qg.hub import publish
from rl_qg.preparation import Run
from rl_qg.processes import from_main
from rl_qg.qa import compare, train_reader
from rl_qg.qa_data import read_examples, take
from rl_qg.report import write_report
from rl_qg.splits import answer_spans

log = logging.getLogger(__name__)


def run_pipeline(run: Run) -> Path:
    """Run every stage that is not done; return the report's path."""
    folder, settings, splits = run.folder, run.settings, run.splits
    stages = 6
    _say(1, stages, "train the generator: cross-entropy, then by reward")
    generator = train_generator(run)
    if run.state.is_main_process:
        _say(2, stages, "judge both generators on held-out passages")
        _evaluate(run)
    run.state.wait_for_everyone()

    _say(3, stages, "generate questions for every answer in the training passages")
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
    )

    augmented = folder / "augmented.json"
    _say(4, stages, "filter, sample and merge with the human questions")
    from_main(run.state, lambda: _augment(run, questions, augmented))

    _say(5, stages, "train a reader on gold alone and on gold with synthetic questions")
    qa = folder / "qa"
    both = read_examples(augmented, role="train").examples
    for name, examples in (("gold", splits.gold), ("augmented", both)):
        train_reader(
            examples,
            splits.validation,
            settings=settings.qa,
            output_dir=qa / name,
            use_cpu=settings.training.use_cpu,
            precision=settings.training.precision,
            accept_changed_data=settings.accept_changed_data,
        )
    report = folder / "report.html"
    if run.state.is_main_process:
        compare(qa / "gold", qa / "augmented", qa / "comparison.json")
        _say(6, stages, "write the report")
        write_report([folder], report)
        log.info("done: open %s", report)
    run.state.wait_for_everyone()
    return report


def _augment(run: Run, questions: Path, augmented: Path) -> None:
    if augmented.exists() and report_path(augmented).exists():
        check_questions(questions, augmented, accept_changed_data=run.settings.accept_changed_data)
        return
    options = run.settings.augment
    augment(
        questions,
        run.splits.gold,
        augmented,
        num_samples=options.num_samples,
        min_words=options.min_words,
        max_words=options.max_words,
        seed=options.seed,
    )


def _evaluate(run: Run) -> None:
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
    publish(run.folder, settings.training.hub_model)  # the cards now know the results


def _say(number: int, total: int, text: str) -> None:
    log.info("[%d/%d] %s", number, total, text)


if __name__ == "__main__":
    from rl_qg.cli import main

    main(["pipeline"])
