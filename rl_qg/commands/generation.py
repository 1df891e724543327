"""The commands that make training data: answers, questions, and their selection."""

import logging
from functools import partial
from pathlib import Path

from rl_qg.commands.metrics import (
    check_filters,
    check_reranker,
    load_reranker,
    load_reward,
    needs_models,
    with_metrics,
)
from rl_qg.commands.miniatures import answers_with_miniature, one_miniature
from rl_qg.commands.outputs import check_writable, json_lines, required
from rl_qg.data.examples import report_limit
from rl_qg.data.reading import report_line as data_line
from rl_qg.data.reading import source_names
from rl_qg.data.splits import take, training_spans
from rl_qg.data.streaming import Examples, stream_examples
from rl_qg.runtime.processes import processes
from rl_qg.settings import Settings

log = logging.getLogger(__name__)


def answers(settings: Settings) -> None:
    from rl_qg.data.passages import Passages, passage_keys
    from rl_qg.generation.propose_answers import propose_answers, report_line

    options = answers_with_miniature(settings)
    output = json_lines(options.output, "answers.jsonl")
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


def generate(settings: Settings) -> None:
    from rl_qg.generation.generate import generate as run_generation

    output = json_lines(settings.generate.output, "questions.jsonl")
    check_reranker(settings)
    state = processes(settings.training.use_cpu)
    stream, limit = training_spans(settings.data), settings.generate.max_answers
    examples: Examples = (
        stream
        if limit is None
        else take(list(stream), limit, settings.seed, "generate.max_answers", "answers are asked about")
    )
    with state.main_process_first():
        model_path = one_miniature(settings.model.path, examples, settings)
    lines = run_generation(
        model_path,
        examples,
        output,
        settings=settings.generate,
        seed=settings.seed,
        state=state,
        sources=stream.hashes,
        accept_changed_data=settings.accept_changed_data,
        reranker=load_reranker(settings, examples, state),
        language=settings.model.language,
    )
    log.info("done: %d questions for %d answers in %s", lines, len(examples), output)


def trim(settings: Settings) -> None:
    from rl_qg.asking.models import generator_path
    from rl_qg.generation.trim import report_line
    from rl_qg.generation.trim import trim as run_trimming

    folder = Path(settings.output_dir)
    check_writable(folder / "trim.json")
    note = run_trimming(generator_path(settings.model.path), folder, settings.trim)
    log.info("%s\ndone: the model is in %s", report_line(note), folder)


def augment(settings: Settings) -> None:
    from rl_qg.augmentation.augment import augment as run_augmentation
    from rl_qg.augmentation.augment import check_inputs

    options = settings.augment
    questions = required(options.questions, "questions", "questions.jsonl")
    output = required(options.output, "output", "augmented.json")
    check_filters(settings)
    check_writable(output)
    check_inputs(output, [questions, *source_names(options.gold)])
    state = processes(settings.training.use_cpu or not needs_models(settings))
    gold: Examples = []
    if options.gold:
        gold = stream_examples(options.gold, role="train", hotpotqa_context=settings.data.hotpotqa_context)
        log.info("gold: %s", data_line(gold.report))
    report = run_augmentation(
        questions,
        gold,
        output,
        settings=with_metrics(settings, state),
        state=state,
        load_metric=partial(load_reward, state=state, placement=settings.training.reward_placement),
    )
    what = "kept questions are added"
    report_limit("augment.num_samples", options.num_samples, report["sampled"], report["kept"], what)
    log.info(
        "done: %d questions added to %d human ones in %s; report and data card beside it",
        *(report["sampled"], report["gold"], output),
    )
