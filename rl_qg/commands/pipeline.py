"""All stages: (answers) -> data -> CE -> SCST -> questions -> filter -> augment -> readers -> report.

Stages meet through files in the run folder. A stage whose result exists is not run again. So the same command
continues an interrupted run, and a stage runs again when its result is deleted.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rl_qg.augmentation.augment import augment, build_filters, check_questions
from rl_qg.augmentation.funnel import FilterResources, measures_of
from rl_qg.commands.compose import leaves
from rl_qg.commands.generation import check_filters, check_numbers, with_metrics
from rl_qg.commands.runs import OUTPUTS, OpenRun, check_unlabelled, open_run
from rl_qg.commands.training import check_generator, train_generator
from rl_qg.data.examples import QAExample, report_limit
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import answer_spans, take
from rl_qg.evaluation.compare_generators import evaluate_generators
from rl_qg.generation.generate import generate
from rl_qg.generation.published import check_repository
from rl_qg.miniatures.cache import is_miniature
from rl_qg.miniatures.packaged import packaged_folder
from rl_qg.readers.comparison import compare_readers, count_updates, count_windows
from rl_qg.readers.reader import load_tokenizer
from rl_qg.readers.train_reader import train_readers as train_all
from rl_qg.reports.model_card import publish
from rl_qg.reports.report import write_report
from rl_qg.reports.run_files import read_run
from rl_qg.reports.views import outcome_text
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_record, report_path
from rl_qg.runtime.processes import processes
from rl_qg.runtime.ranks import from_main
from rl_qg.scoring.metrics import load_pair_reward, load_reranker, load_reward
from rl_qg.settings import AugmentSettings, QASettings, Settings

# The late stages answer one question: is a reader better with the questions of the generator that learned from a
# reward than with those of the CE generator that it began as, or with human questions alone? So both generators get
# the same answers, settings, filters and seed, both add as many questions, and all readers make as many updates.

log = logging.getLogger(__name__)
GOLD, CE = "gold", "ce"


@dataclass(frozen=True)
class Arm:
    """A generator of a run, and the files of its questions; `name` is that of its model's and its reader's folder."""

    name: str
    model: Path
    questions: Path
    augmented: Path


def generators_of(run: OpenRun, final: Path) -> list[Arm]:
    """The CE generator, where the run has trained it and another after it, and the final one."""
    folder = run.folder
    arms = [Arm(final.name, final, folder / "questions.jsonl", folder / "augmented.json")]
    if final.name == CE:
        log.info("one generator alone (stages=ce): there is no reader on questions of another")
    elif (folder / CE / "config.json").exists():
        arms = [Arm(CE, folder / CE, folder / "questions.ce.jsonl", folder / "augmented.ce.json"), *arms]
    else:
        log.info("no generator in %s: there is no reader on its questions (stages=both trains it)", folder / CE)
    return arms


def answers_asked(run: OpenRun) -> list[QAExample]:
    """The answers that questions are generated for, each span once: all of the training data, or a seeded sample."""
    spans, limit = answer_spans([*run.splits.gold, *run.splits.unlabelled]), run.settings.generate.max_answers
    return take(spans, limit, run.settings.seed, "generate.max_answers", "answers are asked about")


def generate_questions(run: OpenRun, arms: Sequence[Arm]) -> int:
    """Write the candidates of each generator for the same answers; return how many each of them has."""
    settings, spans, lines = run.settings, answers_asked(run), 0
    reranker = load_reranker(settings, [*run.splits.gold, *run.splits.unlabelled], run.state)
    for arm in arms:
        log.info("questions of the generator in %s", arm.model)
        lines = generate(
            str(arm.model),
            spans,
            arm.questions,
            settings=settings.generate,
            seed=settings.seed,
            state=run.state,
            sources=run.splits.hashes,
            accept_changed_data=settings.accept_changed_data,
            reranker=reranker,
        )
    return lines


def augment_equally(run: OpenRun, arms: Sequence[Arm]) -> None:
    """Filter the questions of each generator and add as many of each: those of the one that keeps fewer.

    A file that exists, with the right number of questions, is not written again.
    """
    settings = with_metrics(run.settings, run.state)
    accept = run.settings.accept_changed_data
    while (step := from_main(run.state, partial(_next_augmentation, arms, settings, accept))) is not None:
        arm, count = arms[step[0]], step[1]
        # The data of the final generator are published; those of the other are there to be compared with.
        hub_dataset = settings.hub_dataset if arm is arms[-1] else None
        augment(
            arm.questions,
            run.splits.gold,
            arm.augmented,
            settings=replace(settings, num_samples=count, hub_dataset=hub_dataset),
            state=run.state,
            load_metric=partial(load_reward, state=run.state, placement=run.settings.training.reward_placement),
        )
    if run.state.is_main_process:
        counts = {arm.name: read_record(report_path(arm.augmented)) for arm in arms}
        kept = ", ".join(f"{name} {report['kept']:,}" for name, report in counts.items())
        fewest = min(report["kept"] for report in counts.values())
        added, limit = counts[arms[-1].name]["sampled"], settings.num_samples
        report_limit("augment.num_samples", limit, added, fewest, "kept questions of each generator are added")
        log.info("%d questions of each generator are added (kept: %s)", added, kept)


def _next_augmentation(
    arms: Sequence[Arm], settings: AugmentSettings, accept_changed_data: bool
) -> tuple[int, int] | None:
    """The number of an arm whose data are missing or of another size, and the size; None when all are there."""
    reports = {number: report for number, arm in enumerate(arms) if (report := _report(arm, arms, settings))}
    size = min([settings.num_samples, *(report["kept"] for report in reports.values())])
    for number, arm in enumerate(arms):
        if number not in reports or reports[number]["sampled"] != size:
            return number, size
        check_questions(arm.questions, arm.augmented, accept_changed_data=accept_changed_data)
    return None


def _report(arm: Arm, arms: Sequence[Arm], settings: AugmentSettings) -> dict[str, Any] | None:
    """The report of an arm's augmented data; None where they are missing, or were made with other settings.

    The run folder refuses other settings once the data of the final generator exist (`rl_qg.commands.runs`).
    """
    if not (arm.augmented.exists() and report_path(arm.augmented).exists()):
        return None
    report: dict[str, Any] = read_record(report_path(arm.augmented))
    if "kept" not in report:  # the process was killed while it wrote the data
        return None
    made_with, now = report.get("settings", {}), json.loads(json.dumps(asdict(settings)))
    same = all(now.get(key) == value for key, value in made_with.items() if key != "num_samples")
    return report if same or arm is arms[-1] else None


def train_readers(run: OpenRun, arms: Sequence[Arm], candidates: int) -> dict[str, Path]:
    """Train the readers on gold alone and on gold with each generator's questions; compare them. Returns the folder of
    each reader. `candidates` is how many questions each generator has written.
    """
    data: dict[str, Sequence[QAExample]] = {GOLD: run.splits.gold} if run.splits.gold else {}
    data |= {arm.name: read_examples(arm.augmented, role="train").examples for arm in arms}
    folders = {name: run.folder / "qa" / name for name in data}
    for name, examples in data.items():
        log.info("reader %s: %d questions", name, len(examples))
    train_all(
        {folders[name]: examples for name, examples in data.items()},
        run.splits.validation,
        settings=_with_updates(run, data, candidates),
        use_cpu=run.settings.training.use_cpu,
        precision=run.settings.training.precision,
        accept_changed_data=run.settings.accept_changed_data,
    )
    if run.state.is_main_process and len(folders) > 1:
        compare_readers(folders, run.folder / "qa" / "comparison.json")
    return folders


def use_reader(filters: Any, folder: Path) -> bool:
    """Whether filters, or the options of one, name the reader that the run in `folder` trains on gold questions."""
    reader = (folder / "qa" / GOLD).resolve()
    texts = (one for one in leaves(filters) if one and isinstance(one, str))
    return any(Path(text).expanduser().resolve() == reader for text in texts)


def _with_updates(run: OpenRun, data: Mapping[str, Sequence[QAExample]], candidates: int) -> QASettings:
    """The readers' settings, for equal updates with those of the reader with most windows. Before a filter that uses
    the first reader the others' data are not known: then gold and as many questions as could be added, each with as
    many windows as gold.
    """
    settings, gold = run.settings.qa, run.splits.gold
    if not settings.equal_updates or settings.max_steps > 0:
        return settings
    if use_reader(run.settings.augment.filters, run.folder):
        share = 1 + min(run.settings.augment.num_samples, candidates) / len(gold)
        windows = from_main(run.state, lambda: round(count_windows(gold, settings) * share))
    else:
        windows = from_main(run.state, lambda: max(count_windows(examples, settings) for examples in data.values()))
    updates = count_updates(windows, settings, run.state.num_processes)
    log.info("each reader makes %d updates", updates)
    return replace(settings, max_steps=updates)


def pipeline(settings: Settings) -> None:
    """Check everything that can be checked early, then run all stages."""
    settings = check_generator(settings)
    state = processes(settings.training.use_cpu)
    check_late_stages(settings, state)
    check_models(settings, state)
    run_pipeline(open_run(settings))


def check_late_stages(settings: Settings, state: PartialState) -> None:
    """Raise `InputError` for what a late stage would refuse, before the first one has taken hours."""
    if not settings.data.train:
        raise InputError("data.train has no value, and the pipeline's readers learn from it; rl-qg train needs none")
    if settings.training.stop_after is not None:
        raise InputError("training.stop_after: the pipeline goes on with the trained generator; use rl-qg train")
    if settings.task not in ("questions", "multitask"):
        asks = "the pipeline asks about given answers; use model.task=questions or multitask, or rl-qg train"
        raise InputError(f"model.task={settings.task}: {asks}")
    if settings.augment.format is not None:
        raise InputError("augment.format: the pipeline writes no second file; use rl-qg export on augmented.json")
    for name in ("questions", "gold", "output"):
        if getattr(settings.augment, name):
            raise InputError(f"augment.{name}: the pipeline names its files itself, in its output_dir; leave it out")
    check_filters(settings)
    check_numbers(settings)
    check_repository("augment.hub_dataset", settings.augment.hub_dataset)
    check_unlabelled(settings, state)


def check_models(settings: Settings, state: PartialState) -> None:
    """Load what late stages will: what orders and filters questions, without the run's own reader, and a tokenizer."""
    folder = Path(settings.output_dir)
    if (folder / OUTPUTS["augment"]).exists():
        return
    if not is_miniature(settings.qa.model.path):
        load_tokenizer(packaged_folder(settings.qa.model.path), max_length=settings.qa.max_length)
    with state.main_process_first():
        load_pair_reward(settings.generate.rerank, settings, state, "generate.rerank")
    load_metric = partial(load_reward, state=state, placement=settings.training.reward_placement)
    given = with_metrics(settings, state).filters
    filters = build_filters({name: options for name, options in given.items() if not use_reader(options, folder)})
    for measure in measures_of(filters, FilterResources(device=state.device, load_metric=load_metric)).values():
        measure.load()


def run_pipeline(run: OpenRun) -> Path:
    """Run every stage that is not done; return the report's path."""
    folder, begun = run.folder, list[tuple[str, float]]()

    def begin(stage: str) -> None:
        begun.append((stage, time.monotonic()))
        log.info("[%d/6] %s", len(begun), stage)

    begin("train the generator: cross-entropy, then by reward")
    generator = train_generator(run)
    begin("compare both generators on held-out passages")
    if run.state.is_main_process:
        _evaluate(run)
    run.state.wait_for_everyone()

    begin("generate questions with each generator")
    arms = generators_of(run, generator)
    candidates = generate_questions(run, arms)
    if use_reader(run.settings.augment.filters, run.folder):
        train_readers(run, [], candidates)  # on gold alone

    begin("filter, sample and merge with the human questions")
    augment_equally(run, arms)

    begin("train readers on gold alone, and on gold with the questions of each generator")
    train_readers(run, arms, candidates)

    begin("write the report")
    report = folder / "report.html"
    if run.state.is_main_process:
        publish(folder, None if report.exists() else run.settings.training.hub_model)  # cards with the readers' scores
        write_report([folder], report)
        ends = [*(at for _, at in begun[1:]), time.monotonic()]
        for (stage, start), end in zip(begun, ends, strict=True):
            log.info("%6.0f s  %s", end - start, stage)
        print(outcome_text(read_run(folder)))
        log.info("done: open %s", report)
    run.state.wait_for_everyone()
    return report


def _evaluate(run: OpenRun) -> None:
    settings, output = run.settings, run.folder / "evaluation.json"
    models = {name: run.folder / name for name in ("ce", "scst") if (run.folder / name).exists()}
    if output.exists() or not models:
        return
    limit, what = settings.evaluation.max_examples, "validation questions compare the generators"
    evaluate_generators(
        models,
        take(run.splits.judging, limit, settings.data.seed, "evaluation.max_examples", what),
        run.reward(),
        output,
        held_out=run.held_out(),
        choice=run.splits.choice,
        max_new_tokens=settings.scst.max_new_tokens,
        batch_size=settings.evaluation.batch_size,
        device=run.state.device,
    )
    publish(run.folder, settings.training.hub_model)  # the model cards show the results
