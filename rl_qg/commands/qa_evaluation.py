"""The command `qa-evaluate`: readers taught by the questions of generators alone, scored on human questions.

    rl-qg qa-evaluate data=dev.json 'questions={ce: ce.jsonl, scst: [scst-1.jsonl, scst-2.jsonl]}' output=qa.json

It writes `qa.json` and `qa.html`; `qa/` holds the readers' answers and scores, and goes on after an interruption.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rewards.signature import format_signature
from rl_qg.commands.load_miniatures import one_miniature
from rl_qg.commands.outputs import check_own_json, check_writable, required, writing
from rl_qg.commands.training_commands import check_precision
from rl_qg.data.examples import QAExample, passage_hash, report_limit
from rl_qg.data.reading import QAData, read_examples
from rl_qg.data.splits import take
from rl_qg.evaluation.qa_evaluation import (
    EM,
    F1,
    System,
    correlations_with_metrics,
    few_systems,
    metric_values,
    qa_page,
    qa_record,
)
from rl_qg.evaluation.result_pages import as_text, write_page
from rl_qg.evaluation.score_draws import FILE, write_draws
from rl_qg.readers.synthetic_training import TrainedReader, train_on_synthetic
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import write_json
from rl_qg.runtime.processes import processes
from rl_qg.settings import QAEvaluateSettings, QAModelSettings, Settings

log = logging.getLogger(__name__)
Files = dict[str, dict[str, QAData]]  # by generator and by file


def qa_evaluate(settings: Settings) -> None:
    """Train, score, compare, and write the results."""
    options = settings.qa_evaluate
    output = required(options.output, "output", "qa.json")
    if output.suffix != ".json":
        raise InputError(f"output={output}: the output is JSON; give a name that ends in .json")
    check_precision(settings)
    check_writable(output)
    check_own_json(output, ("systems", "gold"))
    named = named_files(options.questions)
    metrics = metric_values(_paths(options.evaluations), list(named))
    gold = _gold(options)
    files = {name: {path: _synthetic(path, options, gold.examples) for path in paths} for name, paths in named.items()}
    folder = output.with_suffix("")
    systems = [System(name, _readers(name, data, gold, settings, folder)) for name, data in files.items()]
    if not processes(settings.training.use_cpu).is_main_process:
        return
    record, draws = qa_record(systems, gold.examples, resamples=options.resamples, seed=options.seed)
    record |= {
        "signatures": _signatures(settings, gold),
        "correlations": correlations_with_metrics(metrics, draws),
        "few_systems": few_systems(len({name for values in metrics.values() for name in values})) if metrics else None,
        "data": gold.hashes,
        "questions": {name: {path: data.hashes[path] for path, data in own.items()} for name, own in files.items()},
        "settings": asdict(options),
        "reader": asdict(settings.qa),
    }
    with writing(output):
        write_draws(folder / FILE, draws)
        write_json(output, record)
    page = qa_page(record)
    write_page(output.parent, output.stem, page)
    log.info("%s\ndone: open %s", as_text(page), output.with_suffix(".html"))


def named_files(questions: Any) -> dict[str, list[str]]:
    """The files of each generator; those without names are named by their stems.

    Raises:
        InputError: no file, something else than paths, or one name for two generators.
    """
    given = questions
    if isinstance(given, str | list) and given:
        paths = [given] if isinstance(given, str) else given
        given = {Path(str(path)).name.partition(".")[0]: path for path in paths}
        if len(given) < len(paths):
            raise InputError(f"questions={questions}: two files have one name; name the generators: {{a: …, b: …}}")
    if not isinstance(given, Mapping) or not given:
        raise InputError("questions has no value; give a file, such as questions=questions.jsonl, or several by name")
    named = {str(name): paths if isinstance(paths, list) else [paths] for name, paths in given.items()}
    for name, paths in named.items():
        if not paths or not all(isinstance(path, str) and path for path in paths) or len(set(paths)) < len(paths):
            raise InputError(f"questions: {name}={paths}: give a file, or different files as a list")
    return named


def _paths(value: Any) -> list[Path]:
    return [Path(str(path)).expanduser() for path in ([value] if isinstance(value, str) else value or ())]


def _gold(options: QAEvaluateSettings) -> QAData:
    if not options.data:
        raise InputError("data has no value; give human questions, such as data=dev.json")
    data = read_examples(options.data, role="validation")
    log.info("%s", data.summary())
    return replace(
        data,
        examples=take(
            data.examples, options.max_data, options.seed, "qa_evaluate.max_data", "human questions are used"
        ),
    )


def _synthetic(path: str, options: QAEvaluateSettings, gold: Sequence[QAExample]) -> QAData:
    """The questions of a file that are used; says how many are not, and how many share a passage with gold ones.

    Raises:
        InputError: no question is left.
    """
    data = read_examples(path, role="train")
    log.info("%s: %s", path, data.summary())
    examples, what = data.examples, f"questions of {path} are used"
    if (longest := options.max_context) is not None:
        examples = [example for example in examples if len(example.context) <= longest]
        report_limit("qa_evaluate.max_context", longest, len(examples), len(data.examples), what)
        if not examples:
            raise InputError(f"{path}: no passage has at most max_context={longest} characters; raise it")
    passages = {passage_hash(example.context) for example in gold}
    if shared := sum(passage_hash(example.context) in passages for example in examples):
        log.warning(
            "%s: the passages of %d questions are passages of data= too: the scores will not say how readers do on "
            "others",
            *(path, shared),
        )
    return replace(
        data, examples=take(examples, options.max_questions, options.seed, "qa_evaluate.max_questions", what)
    )


def _readers(
    name: str, data: Mapping[str, QAData], gold: QAData, settings: Settings, folder: Path
) -> dict[str, TrainedReader]:
    readers = {}
    state = processes(settings.training.use_cpu)
    for number, (path, synthetic) in enumerate(data.items(), 1):
        with state.main_process_first():
            encoder = one_miniature(settings.qa.model.path, synthetic.examples, settings)
        readers[path] = train_on_synthetic(
            name if len(data) == 1 else f"{name}, {path}",
            synthetic.examples,
            gold.examples,
            settings=replace(settings.qa, model=QAModelSettings(encoder)),
            trials=settings.qa_evaluate.trials,
            folder=folder / quote(name, safe="") / str(number),
            use_cpu=settings.training.use_cpu,
            precision=settings.training.precision,
            accept_changed_data=settings.accept_changed_data,
            keep_weights=settings.qa_evaluate.keep_readers,
        )
    return readers


def _signatures(settings: Settings, gold: QAData) -> dict[str, str]:
    """What two results must share to be compared: the human questions, and how a reader is trained."""
    qa, trials = settings.qa, settings.qa_evaluate.trials
    search = {"trials": f"{trials.count}/{trials.train}/{trials.validation}/{trials.seed}"} if trials.count else {}
    own: dict[str, object] = {
        "lr": f"{qa.learning_rate:g}",
        "batch": qa.batch_size,
        "warmup": f"{qa.warmup_fraction:g}",
    }
    own |= {"steps": qa.max_steps} if qa.max_steps > 0 else {"epochs": f"{qa.epochs:g}"}
    choices = {
        "reader": qa.model.path,
        "head": qa.head,
        "unanswerable": f"{qa.unanswerable:g}",
        **(search or own),
        "lengths": f"{qa.max_length}/{qa.doc_stride}/{qa.max_answer_length}",
        "questions": settings.qa_evaluate.max_questions or "all",
        "context": settings.qa_evaluate.max_context or "any",
    }
    return {score: format_signature(score, choices) for score in (EM, F1)}
