"""Transfer: generators trained on some data and tested on other data, and the table of what they score.

`docs/reference/bench.md` explains the keys of the file. Every job is a plain `rl-qg` command, named by a hash of it
and of the files that it reads.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rl_qg.data.examples import by_key
from rl_qg.data.formats import existing_file
from rl_qg.data.passages import Passages, passage_keys
from rl_qg.pages.results import MINUS, NONE, as_csv, as_markdown, estimate_text
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash, locked, read_record, write_json, write_json_lines, write_text
from rl_qg.runtime.run_folder import git_state, hardware, package_versions
from rl_qg.settings.keys import MISSING
from rl_qg.settings.yaml_files import as_overrides, listed_values
from rl_qg.studies import jobs
from rl_qg.studies.jobs import Compose, Job, JobFile, JobList, JobOutcomes, Values, by_name, device_fault, item
from rl_qg.text.question_types import OTHER, language_fault

PAGE = "docs/reference/bench.md"
FILE = "transfer.json"
log = logging.getLogger(__name__)
CELLS = ("in_domain", "zero_shot", "fine_tuned", "adapted")
"""How a generator for a target came to be: trained on the target's questions; on the source's alone; on the source's,
then on the target's; on the source's, then by reward on the target's passages, without their questions."""
SECTIONS = jobs.READ_BY | {"reward_models": ("train", "evaluate"), "miniature": ("train", "evaluate")}


@dataclass
class Domain:
    """Data of one kind of text, or of one language: a folder with `train.json`, `validation.json` and `test.json`, as
    `rl-qg bench data` writes it. Without a training file it can only be a target, without a test file only a source.

    `unlabelled` are files of passages to adapt to; else those of the training file are, without answers and questions.
    """

    data: str = MISSING
    unlabelled: list[str] = item([], form=listed_values)
    language: str = "en"
    settings: list[str] = item([], form=as_overrides)
    generate: list[str] = item([], form=as_overrides)

    def file(self, split: str) -> Path:
        return Path(self.data) / f"{split}.json"

    def has(self, split: str) -> bool:
        return self.file(split).is_file()


def _domain(value: Any, where: str) -> dict[str, Any]:
    return jobs.written_out(Domain, value if isinstance(value, dict) else {"data": value}, f"{where}.")


@dataclass
class Transfer(JobFile):
    """A transfer file. Overrides are written as on the command line, `key=value`."""

    output_dir: Path = MISSING
    domains: dict[str, Domain] = item(required=True, form=by_name(_domain, f"folders; see {PAGE}"))
    sources: list[str] = item([], required=True, form=listed_values)
    targets: list[str] = item([], required=True, form=listed_values)
    cells: list[str] = item([*CELLS], required=True, form=listed_values, choices=CELLS)
    seeds: list[int] = item([13], required=True, least=0, form=listed_values)
    metrics: list[str] = item(["bleu4", "rouge_l"], required=True, form=listed_values)
    preset: str = "paper"
    settings: list[str] = item([], form=as_overrides)
    adapt: list[str] = item([], form=as_overrides)
    generate: list[str] = item([], form=as_overrides)
    evaluate: list[str] = item([], form=as_overrides)
    devices: list[str] = item(["cpu"], required=True, form=listed_values, fault=device_fault)

    kind, page, shown_keys = "transfer", PAGE, "domains, cells"
    set_itself = "settings: {} is set by the cells themselves (domains, metrics, seeds, output_dir)"

    def own_keys(self) -> Sequence[str]:
        of_data = ("data.train", "data.validation", "data.unlabelled")
        of_results = ("predictions", "references", "metrics", "output", "keep", "generate.keep")
        return (*of_data, *of_results, "model.path", "output_dir", "seed", "stages")

    def overrides(self) -> Sequence[str]:
        of_domains = (text for domain in self.domains.values() for text in (*domain.settings, *domain.generate))
        return [*self.settings, *self.adapt, *self.generate, *self.evaluate, *of_domains]

    def complete(self) -> None:
        for key in ("sources", "targets", "cells", "seeds"):  # a cell that is given twice is one
            setattr(self, key, list(dict.fromkeys(getattr(self, key))))
        self.sources = self.sources or [name for name, domain in self.domains.items() if domain.has("train")]
        self.targets = self.targets or [name for name, domain in self.domains.items() if domain.has("test")]

    def conflicts(self) -> Iterator[str]:
        yield from (f"domains: {fault}" for fault in jobs.name_faults(self.domains))
        for key, split in (("sources", "train"), ("sources", "validation"), ("targets", "test")):
            for name in getattr(self, key):
                if name not in self.domains:
                    yield f"{key}: there is no domain {name}"
                elif not self.domains[name].has(split):
                    yield f"{key}: {self.domains[name].file(split)}: no such file; rl-qg bench data writes it"


@dataclass(frozen=True)
class TransferCell:
    """One generator tested on one target: what it was trained on first (the target itself for `in_domain`), the jobs
    that make it, the last of which is its evaluation (none where it cannot be, for the reason `why`), and how many
    passages of the target's test data are in the data it learned from (`seen`).
    """

    cell: str
    source: str
    target: str
    seed: int
    cross_lingual: bool
    jobs: tuple[Job, ...] = ()
    seen: int = 0
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.cell} {self.source} -> {self.target}, seed {self.seed}"


@dataclass(frozen=True)
class TransferPlan:
    """All cells, and the jobs that make them, each once and after those it needs."""

    cells: tuple[TransferCell, ...]
    jobs: tuple[Job, ...]


def make_plan(transfer: Transfer) -> TransferPlan:
    """Lay out all cells, seed by seed; writes the passages to adapt to, and nothing else."""
    planner, cells = _TransferPlanner(transfer, JobList(transfer.output_dir)), list[TransferCell]()
    for seed in transfer.seeds:
        for target in transfer.targets:
            for cell in transfer.cells:
                others = [name for name in transfer.sources if name != target]
                sources = [target] if cell == "in_domain" else others
                cells += [planner.cell(cell, source, target, seed) for source in sources]
    return TransferPlan(tuple(cells), tuple(planner.listed.jobs.values()))


@dataclass
class _TransferPlanner:
    transfer: Transfer
    listed: JobList
    hash_of: Any = field(default_factory=lambda: cache(file_hash))
    keys_of: Any = field(default_factory=lambda: cache(lambda path: passage_keys([str(path)])))

    def cell(self, cell: str, source: str, target: str, seed: int) -> TransferCell:
        home, away = self.transfer.domains[source], self.transfer.domains[target]
        crosses = home.language != away.language
        if why := self.missing(cell, target):
            return TransferCell(cell, source, target, seed, crosses, why=why)
        learned, made = [home.file("train")], [self.train(source, source, seed)]
        if cell == "fine_tuned":
            made.append(self.train(f"{source}-{target}", target, seed, made[0]))
            learned.append(away.file("train"))
        elif cell == "adapted":
            made.append(self.adapt(source, target, seed, made[0]))
            learned += self.unlabelled(target)
        model, test = made[-1].results / ("scst" if cell == "adapted" else "ce"), away.file("test")
        label, all_of = f"{cell}-{source}-{target}", self.transfer
        own: dict[str, Any] = {"data.max_train": "null", "keep": 1, "seed": seed, "model.path": model}
        own |= {"data.train": test, "output": "{out}/questions.jsonl"}
        specific = [*all_of.generate, *away.generate]
        made.append(self.add("generate", label, seed, specific, own, made[-1], test))
        own = {"predictions": made[-1].results / "questions.jsonl", "references": test}
        own |= {"metrics": f"[{','.join(all_of.metrics)}]", "output": "{out}"}
        language = OTHER if language_fault(away.language) else away.language
        specific = [f"language={language}", *all_of.evaluate]
        made.append(self.add("evaluate", label, seed, specific, own, made[-1], test))
        seen = len(self.keys_of(test) & set[bytes]().union(*map(self.keys_of, learned)))
        return TransferCell(cell, source, target, seed, crosses, tuple(made), seen)

    def missing(self, cell: str, target: str) -> str:
        domain = self.transfer.domains[target]
        if cell in ("in_domain", "fine_tuned"):
            missing = [split for split in ("train", "validation") if not domain.has(split)]
            return f"{target} has no {missing[0]} file" if missing else ""
        none = not domain.unlabelled and not domain.has("train")
        return f"{target} has no passages to adapt to" if cell == "adapted" and none else ""

    def train(self, label: str, domain: str, seed: int, start: Job | None = None) -> Job:
        one = self.transfer.domains[domain]
        own: dict[str, Any] = {"model.path": start.results / "ce"} if start else {}
        own |= {"stages": "ce", "seed": seed, "data.train": one.file("train")}
        own |= {"data.validation": one.file("validation"), "output_dir": "{out}"}
        return self.add("ce", label, seed, one.settings, own, start, one.file("train"), one.file("validation"))

    def adapt(self, source: str, target: str, seed: int, start: Job) -> Job:
        """By reward on the target's passages; the source's validation data choose, so no target question does."""
        passages, validation = self.unlabelled(target), self.transfer.domains[source].file("validation")
        own: Values = {"stages": "scst", "seed": seed, "model.path": start.results / "ce", "data.train": "null"}
        files = f"[{','.join(map(str, passages))}]"
        own = {**own, "data.validation": validation, "data.unlabelled": files, "output_dir": "{out}"}
        specific = [*self.transfer.domains[target].settings, *self.transfer.adapt]
        return self.add("scst", f"{source}-{target}", seed, specific, own, start, *passages, validation)

    def unlabelled(self, target: str) -> list[Path]:
        """The files of the passages to adapt to; those of the training file are written without their questions."""
        domain = self.transfer.domains[target]
        if domain.unlabelled:
            return [existing_file(name) for name in domain.unlabelled]
        train = domain.file("train")
        path = self.transfer.output_dir / "data" / f"{target}-{self.hash_of(train)[:8]}.jsonl"
        if not path.exists():
            passages = Passages([str(train)])
            write_json_lines(path, ({"id": one.id, "title": one.title, "context": one.context} for one in passages))
        return [path]

    def add(
        self, kind: str, label: str, seed: int, specific: Sequence[str], own: Values, start: Job | None, *reads: Path
    ) -> Job:
        command = jobs.COMMANDS.get(kind, kind)
        general = jobs.settings_of(command, shared := self.transfer.settings, [*shared, *specific], SECTIONS)
        arguments = [f"preset={self.transfer.preset}", *(jobs.ALL_EXAMPLES if command == "train" else ()), *general]
        arguments += [*specific, *(f"{key}={value}" for key, value in own.items())]
        return self.listed.add(kind, label, seed, arguments, [start] if start else [], hashes=map(self.hash_of, reads))


def write_transfer(transfer: Transfer, plan: TransferPlan, outcomes: JobOutcomes) -> str:
    """Write `transfer.json`, `transfer.csv` and `transfer.md` of what is done so far; return the Markdown table.

    A row is a cell with one seed. In Markdown a cell has one row for all seeds: the mean of each measure with its
    interval; of several seeds, the mean with their standard deviation.
    """
    done = [cell for cell in plan.cells if cell.jobs and jobs.is_done(cell.jobs[-1])]
    results = {cell.name: read_record(cell.jobs[-1].results / "evaluate.json") for cell in done}
    rows = [_row(cell, outcomes, results.get(cell.name)) for cell in plan.cells]
    seconds = sum(jobs.seconds_of(job) for job in plan.jobs if jobs.is_done(job))
    record = {
        "transfer": {"file": transfer.file, "preset": transfer.preset, "settings": transfer.settings},
        "domains": {name: {"data": part.data, "language": part.language} for name, part in transfer.domains.items()},
        "code": git_state(Path(__file__)),
        "versions": package_versions(),
        "hardware": hardware(),
        "jobs": {"total": len(plan.jobs), "seconds": round(seconds, 1)},
        "signatures": {cell.target: results[cell.name]["signatures"] for cell in done},  # by language they may differ
        "cells": rows,
    }
    write_json(transfer.output_dir / FILE, record)
    flat = [{key: value for key, value in row.items() if key != "measures"} for row in rows]
    for one, row in zip(flat, rows, strict=True):
        for metric, measure in row["measures"].items():
            one |= {metric: measure["value"], f"{metric}_low": measure["low"], f"{metric}_high": measure["high"]}
    write_text(transfer.output_dir / "transfer.csv", as_csv(flat))
    table = _markdown(rows)
    write_text(transfer.output_dir / "transfer.md", f"{table}\n")
    return table


def _row(cell: TransferCell, outcomes: JobOutcomes, result: Mapping[str, Any] | None) -> dict[str, Any]:
    failed = [f"{job.name}: {outcomes.failed[job.name]}" for job in cell.jobs if job.name in outcomes.failed]
    states = {"left out": cell.why, "failed": failed, "done": result, "to do": True}
    measures: dict[str, dict[str, Any]] = {}
    for row in result["scores"] if result and not failed else ():
        if row["by"] == "all" and (row["metric"] not in measures or row["form"] == "corpus"):
            measures[row["metric"]] = {key: row[key] for key in ("value", "low", "high", "n", "form")}
    return {
        **{key: getattr(cell, key) for key in ("cell", "source", "target", "cross_lingual", "seed")},
        "state": next(state for state, holds in states.items() if holds),
        "why": cell.why or next(iter(failed), ""),
        "test_passages_seen": cell.seen,
        "measures": measures,
    }


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    metrics = list(dict.fromkeys(metric for row in rows for metric in row["measures"]))
    groups = by_key(((row["target"], row["cell"], row["source"]), row) for row in rows)
    lines = []
    for (target, cell, source), group in groups.items():
        done = [row for row in group if row["state"] == "done"]
        kind = f"{cell.replace('_', '-')}{', cross-lingual' if group[0]['cross_lingual'] else ''}"
        state = "" if len(done) == len(group) else ", ".join(dict.fromkeys(row["state"] for row in group))
        cells = [_cell([row["measures"][metric] for row in done if metric in row["measures"]]) for metric in metrics]
        lines.append([target, kind, source, str(len(done)), *cells, state])
    return as_markdown(["target", "cell", "source", "seeds", *metrics, "state"], lines)


def _cell(measures: Sequence[Mapping[str, Any]]) -> str:
    known = [measure for measure in measures if measure["value"] is not None]
    if len(known) < 2:
        return estimate_text(known[0], 4) if known else NONE
    values = [measure["value"] for measure in known]
    return f"{fmean(values):.4f} ± {stdev(values):.4f}".replace("-", MINUS)


def run_transfer(
    file: str | Path,
    overrides: Sequence[str],
    compose: Compose,
    *,
    dry_run: bool = False,
    allow_imports: bool = False,
    program: str = "rl_qg",
) -> None:
    """Run what is not done, then write the table; `program` is the module that runs the jobs."""
    transfer = jobs.read_job_file(Transfer, file, overrides, allow_imports=allow_imports)
    with locked([("output_dir", transfer.output_dir)]):
        plan = make_plan(transfer)
        jobs.check_keys(plan.jobs, compose)
        if not plan.jobs:
            raise InputError("no cell can be made: " + "; ".join(f"{cell.name}: {cell.why}" for cell in plan.cells))
        log.info("%d cells; %s", len(plan.cells), jobs.count_jobs(plan.jobs, ("ce", "scst", "generate", "evaluate")))
        for cell in plan.cells:
            if cell.why:
                log.info("left out: %s: %s", cell.name, cell.why)
            if cell.seen:
                log.warning("%s: %d passages of the test data are in the data it learns from", cell.name, cell.seen)
        if dry_run:
            return jobs.print_jobs(plan.jobs)
        outcomes = jobs.run_jobs(
            plan.jobs, transfer.devices, jobs.delete_checkpoints, program=program, title="transfer"
        )
        log.info("%s", write_transfer(transfer, plan, outcomes))
    unfinished = {*outcomes.failed, *outcomes.skipped}
    failed = [cell.name for cell in plan.cells if not unfinished.isdisjoint(job.name for job in cell.jobs)]
    if failed:
        raise InputError(
            f"{len(failed)} of {len(plan.cells)} cells failed ({'; '.join(failed[:3])}{'; …' if failed[3:] else ''}); "
            f"see {transfer.output_dir / 'transfer.md'} and the logs below {transfer.output_dir / 'jobs'}, and give "
            "the same command again to go on"
        )
    log.info("done: see %s", transfer.output_dir / "transfer.md")
