"""The commands that make training data: answers, questions, and their selection."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState

import rewards
from rl_qg.augmentation.augment import build_filters, filter_kind, import_target
from rl_qg.augmentation.candidates import RANDOM
from rl_qg.commands.catalogue import COMMANDS
from rl_qg.commands.compose import split_outputs
from rl_qg.commands.outputs import check_writable, flat_rows, part_of, required
from rl_qg.data.examples import report_limit
from rl_qg.data.parts import Parts, read_parts
from rl_qg.data.reading import report_line as data_line, source_names
from rl_qg.data.splits import take, training_stream
from rl_qg.data.streaming import Examples, stream_examples
from rl_qg.miniatures.in_settings import answers_with_miniature, in_folders, reward_with_miniatures
from rl_qg.miniatures.packaged import is_packaged
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import locked
from rl_qg.runtime.processes import processes
from rl_qg.runtime.ranks import from_main
from rl_qg.scoring.metrics import load_reranker, load_reward, rerank_options
from rl_qg.settings import AugmentSettings, ExportSettings, Settings
from rl_qg.settings.keys import MISSING
from rl_qg.settings.yaml_files import choices, complete_parts, file_options

log = logging.getLogger(__name__)


def answers(settings: Settings) -> None:
    from rl_qg.data.passages import Passages, passage_keys
    from rl_qg.generation.propose_answers import propose_answers, report_line

    options = answers_with_miniature(settings)
    output = flat_rows(options.output, "answers.jsonl")
    state = processes(settings.training.use_cpu)
    excluded = passage_keys(source_names(options.exclude, "exclude"), options.passages)
    report = propose_answers(
        Passages(source_names(options.input, "input"), options.passages, excluded),
        output,
        settings=options,
        state=state,
        accept_changed_data=settings.accept_changed_data,
        part=(part := part_of(settings)),
    )
    if part:
        log.info("done: part %s in %s", part, part.path(output))
    else:
        log.info("%s\ndone: use them with data.train=%s", report_line(report), output)


def generate(settings: Settings) -> None:
    from rl_qg.commands.endpoints import asked_generator
    from rl_qg.generation.generate import generate as run_generation

    output = flat_rows(settings.generate.output, "questions.jsonl")
    rerank_options(settings.generate.rerank, settings, "generate.rerank")
    state = processes(settings.training.use_cpu)
    generator = asked_generator(settings.model.path, settings)
    options = replace(settings.generate, num_beams=1) if generator else settings.generate
    options.check()
    stream, limit = training_stream(settings.data, spans=True), settings.generate.max_answers
    examples: Examples = (
        stream
        if limit is None
        else take(list(stream), limit, settings.seed, "generate.max_answers", "answers are asked about")
    )
    with state.main_process_first():
        model_path = generator.name if generator else in_folders(settings.model.path, examples, settings)
    lines = run_generation(
        model_path,
        examples,
        output,
        settings=options,
        seed=settings.seed,
        state=state,
        sources=stream.hashes,
        accept_changed_data=settings.accept_changed_data,
        reranker=load_reranker(settings, examples, state),
        language=settings.model.language,
        format=settings.model.format,
        part=(part := part_of(settings)),
        generator=generator,
        known_as=settings.model.path if is_packaged(settings.model.path) else None,
    )
    if generator:
        log.info("%d answers without a question", generator.unread)
    if part:
        log.info("done: part %s, %d questions, in %s", part, lines, part.path(output))
    else:
        log.info("done: %d questions for %d answers in %s", lines, len(examples), output)


def trim(settings: Settings) -> None:
    from rl_qg.asking.models import generator_path
    from rl_qg.generation.trim import report_line, trim as run_trimming

    folder = Path(settings.output_dir)
    check_writable(folder / "trim.json")
    note = run_trimming(generator_path(settings.model.path), folder, settings.trim)
    log.info("%s\ndone: the model is in %s", report_line(note), folder)


def augment(settings: Settings) -> None:
    from rl_qg.augmentation.augment import augment as run_augmentation, check_inputs
    from rl_qg.augmentation.in_parts import augment_part

    options = settings.augment
    questions = required(options.questions, "questions", "questions.jsonl")
    output = required(options.output, "output", "augmented.json")
    check_filters(settings)
    for written in (output, *([_beside(output, options.format)] if options.format else [])):
        check_writable(written)
        check_inputs(written, [questions, *source_names(options.gold, "gold")])
    with_models = needs_models(settings)
    state = processes(settings.training.use_cpu or not with_models, computes=with_models)
    gold: Examples = []
    if options.gold:
        gold = stream_examples(options.gold, role="train", hotpotqa_context=settings.data.hotpotqa_context)
        log.info("gold: %s", data_line(gold.report))
    made_by: Any = {"settings": with_metrics(settings, state), "state": state}
    made_by["load_metric"] = partial(load_reward, state=state, placement=settings.training.reward_placement)
    if part := part_of(settings):
        augment_part(questions, gold, output, part, hotpotqa_context=settings.data.hotpotqa_context, **made_by)
        log.info("done: part %s in %s", part, part.path(output, "augment"))
        return
    report = run_augmentation(questions, gold, output, **made_by)
    what = "kept questions are added"
    report_limit("augment.num_samples", options.num_samples, report["sampled"], report["kept"], what)
    done = "done: %d questions added to %d human ones in %s; report and data card beside it"
    log.info(done, report["sampled"], report["gold"], output)
    from_main(state, partial(_export, output, options.format))


def _export(output: Path, form: str | None) -> None:
    """Write an augmented set in a format of `rl-qg export` too, beside it."""
    from rl_qg.commands.evaluation import export

    if form:
        beside = str(_beside(output, form))
        export(Settings(export=ExportSettings(input=str(output), output=beside, format=form)))


def _beside(output: Path, form: str) -> Path:
    ending = {"squad2": ".json", "deepeval": ".json", "anki": ".txt", "csv": "", "gift": ""}.get(form, ".jsonl")
    return output.with_name(f"{output.stem}.{form}{ending}")


def merge(arguments: Sequence[str]) -> None:
    from rl_qg.augmentation.in_parts import merge_augmented
    from rl_qg.generation.generate import merge_questions
    from rl_qg.generation.propose_answers import merge_answers
    from rl_qg.scoring.score_file import merge_scores

    of_commands: Mapping[str, Callable[[Parts, Path], Any]] = {
        "answers": merge_answers,
        "generate": merge_questions,
        "score": merge_scores,
        "augment": merge_augmented,
    }
    paths, outputs = split_outputs(arguments)
    if len(outputs) != 1 or not outputs[0] or not paths or any(name.startswith("-") for name in paths):
        raise InputError("give the parts and one output=FILE, such as " + COMMANDS["merge"].example)
    output = Path(outputs[0])
    with locked([("output", output)]):
        parts = read_parts(paths, output)
        of_commands[parts.command](parts, output)
        _export(output, parts.note["settings"].get("format") if parts.command == "augment" else None)
    log.info("done: %d parts of %d rows are %s", len(parts.paths), parts.wholes[0]["of"], output)


# The filters of the settings: checked early, and completed with the options of their metrics.

GENERATED = ("logprob", "candidate", "answer_start")  # the numbers in each line of `rl-qg generate`


def check_filters(settings: Settings) -> None:
    """Raise `InputError` for an unknown filter, option or metric, before any work begins."""
    build_filters(settings.augment.filters)
    for name, options in settings.augment.filters.items():
        if filter_kind(name, options) == "reward" and options.get("metric") is not None:
            target = str(_metric_options(name, options, settings).get("_target_"))
            where = f"augment.filters.{name}.metric={target}"
            if "." in target:
                import_target(where, target)
            elif target not in rewards.METRICS:
                known = ", ".join(sorted({*choices("reward"), *rewards.METRICS} - {"custom"}))
                raise InputError(f"{where}: no such metric; choose one of {known}, or give a dotted path")


def check_numbers(settings: Settings) -> None:
    """Raise `InputError` where a filter or the sample needs a number that generated candidates will not have."""
    augment, available = settings.augment, [*GENERATED, RANDOM]
    needed = []
    for built in build_filters(augment.filters):
        if _takes_measure(built.name, augment.filters[built.name]):
            available.append(built.name)
        for key in ("by", "field"):
            if (number := getattr(built, key, None)) is not None and number not in available:
                needed.append((f"filters.{built.name}.{key}", number))
    if augment.sampling != "uniform" and augment.sample_by not in available:
        needed.append(("sample_by", augment.sample_by))
    if needed:
        key, number = needed[0]
        raise InputError(f"augment.{key}={number}: candidates have no such number; there is {', '.join(available)}")


def needs_models(settings: Settings) -> bool:
    filters = settings.augment.filters.items()
    return any(_takes_measure(*one) or filter_kind(*one) == "same_meaning" for one in filters)


def with_metrics(settings: Settings, state: PartialState) -> AugmentSettings:
    """The augmentation's settings, in which every reward filter names its metric with all options, and models of
    filters are folders. A filter without a metric has the `reward` of the settings; a name is a file of that group.
    """

    def complete(name: str, options: Any) -> Any:
        if not _takes_measure(name, options):
            return options
        if filter_kind(name, options) == "reward":
            options = {**options, "metric": _metric_options(name, options, settings)}
        with state.main_process_first():
            return reward_with_miniatures(replace(settings, reward=options))

    filters = {name: complete(name, options) for name, options in settings.augment.filters.items()}
    return replace(settings.augment, filters=filters)


def _takes_measure(name: str, options: Any) -> bool:
    """Whether the filter measures candidates with a model; later filters can use the measure by the filter's name."""
    return filter_kind(name, options) in ("reward", "round_trip") and options.get("field") is None


def _metric_options(name: str, options: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    metric, models = options.get("metric"), settings.reward_models
    if metric is None:
        return settings.reward
    if isinstance(metric, Mapping):
        chosen = {str(key): value for key, value in metric.items()}
    else:
        chosen = file_options(metric, models) if metric in choices("reward") else {"_target_": metric}
    if missing := [key for key, value in chosen.items() if value == MISSING]:
        raise InputError(
            f"augment.filters.{name}.metric={metric}: {missing[0]} has no value; give all options, as in "
            f"metric={{_target_: {chosen['_target_']}, {missing[0]}: …}}"
        )
    return complete_parts(chosen, models)
