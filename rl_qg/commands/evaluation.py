"""The commands that score questions, compare metrics and generators, and show results."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rewards.overlap.published_lmqg import PUBLISHED
from rewards.sets import PUBLISHED_OPTIONS
from rl_qg.commands.outputs import (
    check_own_json,
    check_own_page,
    check_writable,
    flat_rows,
    part_of,
    question_table,
    required,
)
from rl_qg.data.examples import Role
from rl_qg.data.splits import load_training, read_role, take
from rl_qg.miniatures.in_settings import reward_with_miniatures
from rl_qg.pages.results import check_folder
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import check_distinct_files, write_json, write_text, writing
from rl_qg.scoring.metrics import load_metrics, load_reward, metric_options, processes_for, published_options
from rl_qg.scoring.reward_scorer import Reward
from rl_qg.settings import Settings

log = logging.getLogger(__name__)


def score(settings: Settings) -> None:
    from rl_qg.scoring.score_file import score_file

    options = settings.score
    output, source = flat_rows(options.output, "scored.jsonl"), question_table(options, settings)
    state = processes_for([settings.reward], settings.training)
    with state.main_process_first():
        options_of_reward = reward_with_miniatures(settings)
    reward = load_reward(options_of_reward, state, settings.training.reward_placement)
    score_file(
        reward,
        source,
        output,
        batch_size=options.batch_size,
        state=state,
        accept_changed_data=settings.accept_changed_data,
        part=part_of(settings),
    )


def export(settings: Settings) -> None:
    from rl_qg.asking.exports import export_file

    options = settings.export
    output, source = required(options.output, "output", f"{options.format}.jsonl"), question_table(options, settings)
    check_distinct_files([output], source.paths)
    log.info("%s\ndone: %s", export_file(source, output, options, use_cpu=settings.training.use_cpu), output)


def evaluate(settings: Settings) -> None:
    """Generated questions (`rl_qg.evaluation.evaluate`) or pairs (`rl_qg.evaluation.pairs`) by several metrics."""
    options = settings.evaluate
    folder = check_folder(options.output, "evaluation", name="evaluate")
    published = {name: PUBLISHED[name] for name in (PUBLISHED_OPTIONS if options.pairs else PUBLISHED)}
    entries = published_options(options.metrics, published) if options.compat == "lmqg" else options.metrics
    if options.pairs:
        from rl_qg.evaluation.pairs import evaluate_pairs

        return evaluate_pairs(_metrics(settings, entries), options, folder)
    from rl_qg.evaluation.evaluate import evaluate as run_evaluation, language_of_files

    page = Path(options.page)
    if options.page:
        from rl_qg.reports.set_view import TITLE, write_set_page  # plots

        check_writable(page)
        check_own_page(page, TITLE)
    options = replace(options, language=language_of_files(options))
    run_evaluation(_metrics(settings, entries, language=options.language), options, folder)
    if options.page:
        write_set_page(folder, page)
        log.info("done: open %s", page)


def correlate(settings: Settings) -> None:
    from rl_qg.judging.correlate import correlate as run_correlation
    from rl_qg.judging.tables import judgement_plots

    options = settings.correlate
    folder = check_folder(options.output, "correlation", name="correlate")
    run_correlation(_metrics(settings, options.metrics, optional=options.provided), options, folder, judgement_plots)


def robustness(settings: Settings) -> None:
    from rl_qg.judging.robustness import robustness as run_robustness

    options = settings.robustness
    folder = check_folder(options.output, "robustness", name="robustness")
    metrics = _metrics(settings, options.metrics, optional=bool(options.supervised))
    classifiers = {}
    if options.supervised:
        named = [options.supervised] if isinstance(options.supervised, str) else options.supervised
        if isinstance(named, list):
            named = [{"_target_": one} if isinstance(one, str) else one for one in named]
        for label, given in metric_options(named, {}, key="supervised").items():
            classifiers[label] = _built("supervised", given, settings)
    by = options.paraphraser
    paraphraser = _built("paraphraser", by, settings) if isinstance(by, Mapping) else None
    use_cpu = settings.training.use_cpu
    run_robustness(metrics, options, folder, classifiers=classifiers, paraphraser=paraphraser, use_cpu=use_cpu)


def _built(key: str, options: Mapping[str, Any], settings: Settings) -> Any:
    """An object of the class that `_target_` names, with the other options, and folders in place of miniatures."""
    from rl_qg.augmentation.augment import import_target

    target = str(options.get("_target_", ""))
    found = import_target(f"robustness.{key}={target}", target)
    complete = reward_with_miniatures(replace(settings, reward=dict(options)))
    try:
        return found(**{name: value for name, value in complete.items() if name != "_target_"})
    except TypeError as error:
        raise InputError(f"robustness.{key}={target}: {error}") from None


def _metrics(
    settings: Settings, entries: Sequence[Any], *, optional: bool = False, language: str = "en"
) -> dict[str, Reward]:
    """The metrics of a list, in one process, for a language; none where the list is empty and may be."""
    if optional and not entries:
        return {}
    state = processes_for(metric_options(entries, settings.reward_models).values(), settings.training)
    return load_metrics(entries, settings, state, language=language)


def separate(settings: Settings) -> None:
    from rl_qg.scoring.separation import separation, write_separation

    options = settings.separate
    role: Role = "validation" if settings.data.validation else "train"
    folder = check_folder(options.output, "separation", name="separation", key="pairs")
    pool = [example for example in read_role(settings.data, role, allow_unlabelled=True).examples if example.question]
    if not pool:
        raise InputError(f"data.{role}: no example has a question; the test needs human questions")
    examples = take(pool, options.max_examples, options.seed, "separate.max_examples")
    sampler = _sampler(settings)  # what is wrong with the generator is said before the reward is loaded
    record = separation(
        _reward(settings), examples, pool=pool, seed=options.seed, resamples=options.resamples, sampler=sampler
    )
    write_separation(folder, record)


def _sampler(settings: Settings) -> Any:
    """What samples the questions of `separate.model.path`; None without one."""
    from rl_qg.asking.models import generator_path, reader_path, ways_of
    from rl_qg.generation.generator import CandidateGenerator
    from rl_qg.runtime.processes import processes
    from rl_qg.scoring.separation import sampler

    options, scst, state = settings.separate, settings.scst, processes(settings.training.use_cpu)
    if not options.model.path:
        return None
    on_cpu = state.device.type == "cpu"
    generator = CandidateGenerator(generator_path(options.model.path), device=state.device, independent=on_cpu)
    if "pipeline" not in ways_of(generator.encoder.prompt, options.model.path):
        raise InputError(
            f"model.path={options.model.path}: this model writes pairs, and the test asks about given answers; give "
            "one of model.task=questions or multitask"
        )
    exact = {"_target_": "rewards.ReaderScore", "model": reader_path(options.reader), "measure": "exact_match"}
    return sampler(
        options.model.path,
        generator,
        options.samples,
        max_new_tokens=scst.max_new_tokens,
        top_p=scst.top_p,
        temperature=scst.temperature,
        seed=options.seed,
        reader=load_reward(exact, state, settings.training.reward_placement) if options.reader else None,
    )


def explain(settings: Settings) -> None:
    """One score and what it comes from (`rewards.relevance.explanation`, `rewards.faithfulness`)."""
    options = settings.explain
    output = required(options.output, "output", "why.html", ".html")
    for key in ("question", "context"):
        if not getattr(options, key):
            raise InputError(f'{key} has no value; give the text, such as {key}="…"')
    check_writable(output)
    check_own_json(output.with_suffix(".json"), ("score", "signature"), beside=output)
    reward: Any = _reward(settings)
    if not hasattr(reward, "explain"):
        raise InputError(
            f"reward {getattr(reward, 'name', type(reward).__name__)} has no explanation; use reward=qrelscore or "
            "reward=faithfulness"
        )
    explanation = reward.explain(options.question, options.context)
    with writing(output):
        write_json(output.with_suffix(".json"), explanation.to_dict())
        write_text(output, explanation.to_html())
    log.info("%s\ndone: open %s", explanation.summary, output)


def baselines(settings: Settings) -> None:
    """Baselines of QRelScore for these models and data (`rewards.relevance.baselines`)."""
    from rewards.relevance.baselines import PARTS, estimate_baselines

    options = settings.baselines
    output = required(options.output, "output", "baselines.json")
    check_writable(output)
    check_own_json(output, PARTS)
    reward: Any = _reward(settings)
    if not set(PARTS) <= set(getattr(reward, "part_names", ())):
        raise InputError("baselines are those of QRelScore; use reward=qrelscore")
    if getattr(reward, "baselines", None) is not None:
        raise InputError("reward.baselines is set; estimate baselines without it")
    training = load_training(settings.data)
    examples = [example for example in training if example.question]
    if without := len(training) - len(examples):
        log.info("%d of %d examples have no question and are left out", without, len(training))
    with ProgressBar(total=options.pairs, desc="baselines", unit="pair") as bar:
        estimates = estimate_baselines(
            reward,
            [example.question for example in examples],
            [example.context for example in examples],
            pairs=options.pairs,
            seed=options.seed,
            progress=bar.update,
        )
    with writing(output):
        write_json(output, estimates)
    errors: Any = estimates["standard_error"]
    means = ", ".join(f"{part} {estimates[part]:.4f} (standard error {errors[part] or 0:.4f})" for part in PARTS)
    log.info("%s: means of %d pairs, of %d drawn", means, estimates["pairs"], estimates["drawn"])
    log.info("done: use them with reward.baselines=%s", output)


def _reward(settings: Settings) -> Any:
    """The reward of the settings, for a command that runs in one process."""
    state = processes_for([settings.reward], settings.training)
    return load_reward(reward_with_miniatures(settings), state, settings.training.reward_placement)


def report(arguments: Sequence[str]) -> None:
    from rl_qg.commands.compose import split_outputs
    from rl_qg.reports.report import write_report

    runs, outputs = split_outputs(arguments)
    if not runs or any(name.startswith("-") for name in runs):
        raise InputError("give run folders and output=FILE, such as rl-qg report runs/a output=report.html")
    output = required(["report.html", *outputs][-1], "output", "report.html", ".html")
    check_writable(output)
    check_own_page(output, "rl-qg report")
    write_report([Path(run) for run in runs], output)
    log.info("done: open %s", output)


def qa_evaluate(settings: Settings) -> None:
    from rl_qg.commands.training import check_precision
    from rl_qg.evaluation.qa_evaluation import evaluate_by_readers

    output = required(settings.qa_evaluate.output, "output", "qa.json", ".json")
    check_precision(settings)
    if settings.qa.impossible:
        raise InputError("qa.impossible=true: only rl-qg qa learns from questions without an answer")
    check_writable(output)
    check_own_json(output, ("systems", "gold"))
    evaluate_by_readers(settings, output)
