"""QA-based evaluation: what the readers of several generators, each taught by its questions alone, answer right; with
intervals, paired tests, and the correlation with metrics of the same generators.

It writes `qa.json` and `qa.html`; `qa/` holds the readers' answers and scores, and goes on after an interruption.

Source: Zhang and Bansal, "Addressing Semantic Drift in Question Generation for Semi-Supervised Question Answering"
(EMNLP 2019); as in lmqg (`rl_qg.readers.train_reader`).
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from rewards.signature import format_signature
from rl_qg.data.examples import QAExample, examples_hash, passage_hash, report_limit
from rl_qg.data.reading import QAData, read_examples, source_names
from rl_qg.data.splits import take
from rl_qg.evaluation.predictions import NOTES, Rows, test_table, with_better
from rl_qg.miniatures.in_settings import with_encoder
from rl_qg.pages.results import Page, Table, as_text, estimate_text, joined_rows, p_text, template_lines, write_page
from rl_qg.readers.train_reader import TrainedReader, train_on_synthetic
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import as_written, read_json, write_json, writing
from rl_qg.runtime.processes import processes
from rl_qg.scoring.kept_scores import FILE, ScoreDraws, paired_difference, write_draws
from rl_qg.settings import QAEvaluateSettings, Settings
from rl_qg.stats.correlation import COEFFICIENTS, SYMBOLS, SYSTEMS, correlated_systems
from rl_qg.stats.intervals import PERCENT, Floats, PassageDraws, estimate, few_passages

log = logging.getLogger(__name__)
EM, F1 = "qa_em", "qa_f1"
NAMES = {EM: "exact_match", F1: "f1"}
WORDS = {EM: "exact match", F1: "F1"}
FORM = "readers"


@dataclass(frozen=True)
class System:
    """A generator: the readers taught by each of its files, one file for each of its seeds, by the file's name."""

    name: str
    readers: Mapping[str, TrainedReader]

    def table(self, score: str) -> Floats:
        """(seeds, questions): of several files one row each, the mean over its readers; of one its readers."""
        tables = [reader.scores[NAMES[score]] for reader in self.readers.values()]
        return np.stack([table.mean(axis=0) for table in tables]) if len(tables) > 1 else tables[0]


def qa_record(
    systems: Sequence[System], gold: Sequence[QAExample], *, resamples: int, seed: int
) -> tuple[dict[str, Any], list[ScoreDraws]]:
    """`systems`, `scores` and `tests`, in percent (points), and the draws behind them.

    Intervals are bootstraps over the passages of `gold` crossed with seeds: those of the generator where it has
    several files, else those of the reader. A test of as many seeds is paired by question and seed, with the degrees
    of freedom of the differences; Holm's correction is over all pairs of both scores.
    """
    groups = [passage_hash(example.context) for example in gold]
    items, passages = examples_hash(gold)[:16], len(set(groups))
    draws: dict[tuple[str, str], ScoreDraws] = {}
    scores: Rows = []
    for system in systems:
        seeds = len(system.table(EM))
        of_passages = PassageDraws(groups, seeds=seeds, resamples=resamples, seed=seed)
        units = of_passages.units_of()
        for score in NAMES:
            table = system.table(score)
            values, degrees = of_passages.means_over_seeds(table), of_passages.degrees_over_seeds(table)
            kept = FORM, items, passages, seed, True, values, units, seeds - 1.0 if seeds > 1 else None
            draws[system.name, score] = ScoreDraws(system.name, score, *kept)
            cells = estimate(values, len(gold), passages=units, degrees=degrees, bounds=PERCENT).to_dict()
            row = {"predictions": system.name, "by": "all", "kind": "", "metric": score, "form": FORM}
            scores.append({**row, **cells, "seeds": seeds})
    tests: Rows = []
    for (first, second), score in product(combinations(systems, 2), NAMES):
        a, b = first.table(score), second.table(score)
        of_gap = of_passages.degrees_over_seeds(a - b) if a.shape == b.shape else None
        names = {"metric": score, "form": FORM, "predictions": first.name, "against": second.name}
        one, two = draws[first.name, score], draws[second.name, score]
        tests.append({**names, **paired_difference(one, two, of_gap, bounds=PERCENT)})
    return {
        "gold": {"questions": len(gold), "passages": passages, "items": items},
        "systems": {system.name: _system(system) for system in systems},
        "scores": scores,
        "tests": with_better(tests, lambda row: row["value"] > 0),
    }, list(draws.values())


def _system(system: System) -> dict[str, Any]:
    files = {}
    for name, reader in system.readers.items():
        em, f1 = (reader.scores[NAMES[score]] for score in (EM, F1))
        files[name] = {
            **{"questions": reader.questions, "em": float(em.mean()), "f1": float(f1.mean())},
            **{"em_of_seeds": em.mean(axis=1).tolist(), "f1_of_seeds": f1.mean(axis=1).tolist()},
            **{"chosen": dict(reader.chosen), "trials": [dict(trial) for trial in reader.trials]},
        }
    return {"em": float(system.table(EM).mean()), "f1": float(system.table(F1).mean()), "files": files}


def metric_values(sources: Sequence[Path], names: Sequence[str]) -> dict[tuple[str, str], dict[str, float]]:
    """For each metric and form the values of the systems `names` in evaluate.json files, higher for better."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    signatures: dict[str, tuple[str, Path]] = {}
    for source in sources:
        path = source / "evaluate.json" if source.is_dir() else source
        if not path.is_file():
            raise InputError(f"evaluations: {path}: no such file; give evaluate.json files of rl-qg evaluate")
        record = read_json(path)
        if not isinstance(record, dict) or not {"scores", "signatures"} <= record.keys():
            raise InputError(f"evaluations: {path}: is no result of rl-qg evaluate; give its evaluate.json")
        with as_written(path):
            rows = [row for row in record["scores"] if row.get("by") == "all" and row["predictions"] in names]
            for row in rows:  # what is read of it below
                _ = record["signatures"][row["metric"]], row["form"], 0 + (row.get("value") or 0)
        if not rows:
            raise InputError(
                f"evaluations: {path}: has none of the generators {', '.join(names)}; name both alike, such as "
                "predictions={ce: ce.jsonl}"
            )
        for row in rows:
            metric = row["metric"]
            signature, where = signatures.setdefault(metric, (record["signatures"][metric], path))
            if signature != record["signatures"][metric]:
                raise InputError(f"evaluations: {where} and {path}: metric {metric} has other options; give one label")
            if row.get("value") is None:
                continue
            of_systems = values.setdefault((metric, row["form"]), {})
            value = row["value"] * (-1 if metric in record.get("lower_is_better", ()) else 1)
            if of_systems.setdefault(row["predictions"], value) != value:
                raise InputError(f"evaluations: {path}: has another {metric} of {row['predictions']}; leave one out")
    return values


def correlations_with_metrics(
    values: Mapping[tuple[str, str], Mapping[str, float]], draws: Sequence[ScoreDraws]
) -> Rows:
    """Each of `COEFFICIENTS` between a metric and a reader's score over systems, with interval and p-value.

    The intervals draw the passages and seeds of the readers' scores; the systems, and the metrics' values, are fixed.
    The p-value takes the systems as drawn.
    """
    rows: Rows = []
    for (metric, form), of_systems in values.items():
        for score in NAMES:
            both = [one for one in draws if one.metric == score and one.predictions in of_systems]
            y = np.stack([one.values for one in both], axis=1)
            x = np.broadcast_to([of_systems[one.predictions] for one in both], y.shape)
            units, degrees = both[0].sample(*both[1:])
            why = f"{len(both)} systems; a correlation needs {SYSTEMS}"
            correlated = correlated_systems(x, y, units, why, degrees)
            about = {"metric": metric, "form": form, "with": score}
            rows += [{**about, "coefficient": name, **correlated.cells(name)} for name in COEFFICIENTS]
    return rows


def few_systems(count: int) -> str:
    if count < SYSTEMS:
        return f"{count} of the generators have metrics: a correlation over systems needs {SYSTEMS}."
    orders = f"one order of {math.factorial(count):,} is that of the metric"
    few = f", which is few: where nothing is related, {orders}" if count < 10 else ""
    return f"{count} systems{few}. Intervals draw passages and seeds of the readers; they hold these systems fixed."


def qa_page(record: Mapping[str, Any]) -> Page:
    few = few_passages(record["gold"]["passages"])
    facts = template_lines("rl_qg.evaluation", "facts_of_readers.txt", **record, notes=NOTES, few=few)
    lines = joined_rows(
        record["scores"],
        {"generator": "predictions"},
        lambda row: {"seeds": str(row["seeds"]), WORDS[row["metric"]]: estimate_text(row, 2)},
    )
    tables = [Table("Readers taught by each generator alone (percent)", lines)]
    note = NOTES["tests_of_readers"]
    tests = [{**row, "score": WORDS[row["metric"]]} for row in record["tests"]]
    tables += test_table("Differences (points)", tests, ("score",), "generators", note, digits=2)

    def cells(row: Mapping[str, Any]) -> dict[str, str]:
        symbol = SYMBOLS[row["coefficient"]]
        texts = {symbol: estimate_text(row, 2), f"p of {symbol}": p_text(row.get("p"))}
        return {"with": WORDS[row["with"]], **texts, "systems": str(row["n"])}

    if record["correlations"]:
        lines = joined_rows(record["correlations"], ("metric", "form", "with"), cells)
        tables.append(Table("Metrics and readers", lines, record["few_systems"]))
    return Page("qa-evaluate", " · ".join(record["systems"]), facts, tables, record["signatures"])


def evaluate_by_readers(settings: Settings, output: Path) -> None:
    options = settings.qa_evaluate
    named, earlier = named_files(options.questions), options.evaluations
    metrics = metric_values([Path(path).expanduser() for path in source_names(earlier, "evaluations")], list(named))
    if not options.data:
        raise InputError("data has no value; give human questions, such as data=dev.json")
    data = read_examples(options.data, role="validation")
    log.info("%s", data.summary())
    gold = take(data.examples, options.max_data, options.seed, "qa_evaluate.max_data", "human questions are used")
    files = {name: {path: _synthetic(path, options, gold) for path in paths} for name, paths in named.items()}
    folder = output.with_suffix("")
    systems = [System(name, _readers(name, own, gold, settings, folder)) for name, own in files.items()]
    if not processes(settings.training.use_cpu).is_main_process:
        return
    record, draws = qa_record(systems, gold, resamples=options.resamples, seed=options.seed)
    record |= {
        "signatures": _signatures(settings),
        "correlations": correlations_with_metrics(metrics, draws),
        "few_systems": few_systems(len({name for values in metrics.values() for name in values})) if metrics else None,
        "data": data.hashes,
        "questions": {name: {path: part.hashes[path] for path, part in own.items()} for name, own in files.items()},
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
    """The files of each generator; those without names are named by their stems."""
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


def _synthetic(path: str, options: QAEvaluateSettings, gold: Sequence[QAExample]) -> QAData:
    """The questions of a file that are used; says how many are not, and how many share a passage with gold ones."""
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
    used = take(examples, options.max_questions, options.seed, "qa_evaluate.max_questions", what)
    return replace(data, examples=used)


def _readers(
    name: str, data: Mapping[str, QAData], gold: Sequence[QAExample], settings: Settings, folder: Path
) -> dict[str, TrainedReader]:
    readers = {}
    for number, (path, synthetic) in enumerate(data.items(), 1):
        readers[path] = train_on_synthetic(
            name if len(data) == 1 else f"{name}, {path}",
            synthetic.examples,
            gold,
            settings=with_encoder(settings.qa, synthetic.examples, settings, processes(settings.training.use_cpu)),
            trials=settings.qa_evaluate.trials,
            folder=folder / quote(name, safe="") / str(number),
            use_cpu=settings.training.use_cpu,
            precision=settings.training.precision,
            accept_changed_data=settings.accept_changed_data,
            keep_weights=settings.qa_evaluate.keep_readers,
        )
    return readers


def _signatures(settings: Settings) -> dict[str, str]:
    """What two results must share to be compared: how a reader is trained."""
    qa, trials = settings.qa, settings.qa_evaluate.trials
    choices: dict[str, object] = {"reader": qa.model.path, "head": qa.head, "unanswerable": f"{qa.unanswerable:g}"}
    if trials.count:
        choices["trials"] = f"{trials.count}/{trials.train}/{trials.validation}/{trials.seed}"
    else:
        choices |= {"lr": f"{qa.learning_rate:g}", "batch": qa.batch_size, "warmup": f"{qa.warmup_fraction:g}"}
        choices |= {"steps": qa.max_steps} if qa.max_steps > 0 else {"epochs": f"{qa.epochs:g}"}
    choices |= {
        "lengths": f"{qa.max_length}/{qa.doc_stride}/{qa.max_answer_length}",
        "questions": settings.qa_evaluate.max_questions or "all",
        "context": settings.qa_evaluate.max_context or "any",
    }
    return {score: format_signature(score, choices) for score in (EM, F1)}
