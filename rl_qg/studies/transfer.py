"""The table of a transfer file: every cell with its measures and their intervals, as Markdown, CSV and JSON."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rl_qg.data.formats import existing_file
from rl_qg.data.passages import Passages, passage_keys
from rl_qg.pages.results import as_csv, as_markdown
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, file_hash, locked, read_json, write_json
from rl_qg.runtime.run_folder import git_state, hardware, package_versions
from rl_qg.settings.keys import MISSING
from rl_qg.settings.yaml_files import as_overrides, listed_values, override, read_content, typed
from rl_qg.studies.jobs import (
    ALL_EXAMPLES,
    READ_BY,
    RESULTS,
    Compose,
    Job,
    JobOutcomes,
    check_keys,
    command_hash,
    count_jobs,
    delete_checkpoints,
    is_done,
    job_record,
    print_jobs,
    run_jobs,
    section_of_key,
)
from rl_qg.text.question_types import OTHER, language_fault

# The transfer file: which generators are tested on which data, read from YAML and checked whole.
#
# The dataclasses are the form of the file (`rl_qg.settings.yaml_files`). `docs/reference/bench.md` explains the keys.


PAGE = "docs/reference/bench.md"
log = logging.getLogger(__name__)
SETTINGS = ("settings", "generate", "evaluate", "adapt")
LISTS = ("sources", "targets", "cells", "seeds", "devices", "metrics")
CELLS = ("in_domain", "zero_shot", "fine_tuned", "adapted")
"""How a generator for a target came to be: trained on the target's questions; on the source's alone; on the source's,
then on the target's; on the source's, then by reward on the target's passages, without their questions."""
SET_BY_THE_CELLS = ("data.train", "data.validation", "data.unlabelled", "model.path", "output_dir", "seed", "stages")


@dataclass
class Domain:
    """Data of one kind of text, or of one language.

    Args:
        data: a folder with `train.json`, `validation.json` and `test.json`, as `rl-qg bench data` writes it; a domain
            without a training file can only be a target, one without a test file only a source.
        unlabelled: file(s) of passages to adapt to, in the forms of `data.unlabelled`; the default is the passages of
            the training file, without its answers and questions.
        language: a code such as `de`, for the table and the evaluation.
        settings: overrides of every training on this domain.
        generate: overrides of every generation for this domain.
    """

    data: str = MISSING
    unlabelled: list[str] = field(default_factory=list)
    language: str = "en"
    settings: list[str] = field(default_factory=list)
    generate: list[str] = field(default_factory=list)


@dataclass
class Transfer:
    """A transfer file. Overrides are written as on the command line, `key=value`."""

    output_dir: Path = MISSING
    domains: dict[str, Domain] = MISSING
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=lambda: list(CELLS))
    seeds: list[int] = field(default_factory=lambda: [13])
    metrics: list[str] = field(default_factory=lambda: ["bleu4", "rouge_l"])
    preset: str = "paper"
    settings: list[str] = field(default_factory=list)
    adapt: list[str] = field(default_factory=list)
    generate: list[str] = field(default_factory=list)
    evaluate: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=lambda: ["cpu"])

    file = ""  # where it was read from; without a type, and so not a key


def read_transfer(path: Path, overrides: Sequence[str] = (), *, allow_imports: bool = False) -> Transfer:
    """Read a transfer file; `overrides` (`key=value`, nested keys with dots, values in YAML) replace its values."""
    content = read_content(path, "transfer", keys="domains, cells", page=PAGE, allow_imports=allow_imports)
    for text in overrides:
        override(content, text, "transfer")
    transfer = typed(_written_out(content, str(path)), Transfer, str(path), PAGE)
    transfer.file = str(path)
    transfer.seeds = list(dict.fromkeys(transfer.seeds))
    transfer.sources = transfer.sources or [name for name in transfer.domains if has_file(transfer, name, "train")]
    transfer.targets = transfer.targets or [name for name in transfer.domains if has_file(transfer, name, "test")]
    if errors := list(_faults(transfer)):
        raise InputError(f"{path}: " + "; ".join(errors))
    return transfer


def split_file(transfer: Transfer, domain: str, split: str) -> Path:
    return Path(transfer.domains[domain].data) / f"{split}.json"


def has_file(transfer: Transfer, domain: str, split: str) -> bool:
    return split_file(transfer, domain, split).is_file()


def _written_out(content: dict[str, Any], file: str) -> dict[str, Any]:
    """The content with every short form in full: a folder for a domain, one value for a list, overrides as a
    mapping.
    """
    full = dict(content)
    for key in full.keys() & set(LISTS):
        full[key] = listed_values(full[key], f"{file}: {key}")
    for key in full.keys() & set(SETTINGS):
        full[key] = as_overrides(full[key], f"{file}: {key}")
    if "domains" in full:
        if not isinstance(full["domains"], dict):
            raise InputError(f"{file}: domains: expected names with their folders; see {PAGE}")
        full["domains"] = {name: _domain(value, f"{file}: domains.{name}") for name, value in full["domains"].items()}
    return full


def _domain(value: Any, where: str) -> dict[str, Any]:
    options = dict(value) if isinstance(value, dict) else {"data": value}
    for key in options.keys() & {"settings", "generate"}:
        options[key] = as_overrides(options[key], f"{where}.{key}")
    if "unlabelled" in options:
        options["unlabelled"] = listed_values(options["unlabelled"], f"{where}.unlabelled")
    return options


def _faults(transfer: Transfer) -> Iterator[str]:
    for key in ("domains", "cells", "seeds", "metrics", "devices", "sources", "targets"):
        if not getattr(transfer, key):
            yield f"{key}: give at least one"
    for name in transfer.domains:
        if not name or not all(letter.isalnum() or letter in "_." for letter in name):
            yield f"domains: {name!r} becomes part of a file name: use letters, digits, _ and ."
    for key, split in (("sources", "train"), ("sources", "validation"), ("targets", "test")):
        for name in getattr(transfer, key):
            if name not in transfer.domains:
                yield f"{key}: there is no domain {name}"
            elif not has_file(transfer, name, split):
                yield f"{key}: {split_file(transfer, name, split)}: no such file; rl-qg bench data writes it"
    yield from (f"cells: {name} is not one of {', '.join(CELLS)}" for name in transfer.cells if name not in CELLS)
    yield from (f"seeds: {seed} is less than 0" for seed in transfer.seeds if seed < 0)
    for device in transfer.devices:
        if device != "cpu" and not device.isdecimal():
            yield f"devices: {device} is neither cpu nor the number of a GPU"
    of_domains = (text for domain in transfer.domains.values() for text in (*domain.settings, *domain.generate))
    for text in (*transfer.settings, *transfer.adapt, *transfer.generate, *transfer.evaluate, *of_domains):
        if (key := text.lstrip("+~").partition("=")[0]) in SET_BY_THE_CELLS:
            yield f"settings: {key} is set by the cells themselves (domains, seeds, output_dir)"


# The cells of a transfer file as jobs: plain `rl-qg` commands that train, generate and evaluate.
#
# A job's folder is named by a hash of its command and of the files that the command reads, so a changed file or
# setting leads to new folders for what it changes, and everything else is found done.


JOB_KINDS = ("ce", "scst", "generate", "evaluate")
# Overrides of these sections go to these commands alone; all others go to every command.
SECTIONS = READ_BY | {"reward_models": ("train", "evaluate"), "miniature": ("train", "evaluate")}


@dataclass(frozen=True)
class TransferCell:
    """One generator tested on one target.

    Args:
        cell: one of `rl_qg.studies.transfer.CELLS`.
        source: what it was trained on first; the target itself for `in_domain`.
        cross_lingual: whether the languages of source and target differ.
        jobs: what makes it, some of them shared with other cells; the last is its evaluation. None where the cell
            cannot be, for the reason `why`.
        seen: passages of the target's test data that are in the data it learned from.
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
    planner, cells = _Planner(transfer), list[TransferCell]()
    for seed in transfer.seeds:
        for target in transfer.targets:
            for cell in transfer.cells:
                others = [name for name in transfer.sources if name != target]
                cells += [
                    planner.cell(cell, source, target, seed)
                    for source in ([target] if cell == "in_domain" else others)
                ]
    return TransferPlan(tuple(cells), tuple(planner.jobs.values()))


@dataclass
class _Planner:
    """The jobs so far, by name; equal commands are one job."""

    transfer: Transfer
    jobs: dict[str, Job] = field(default_factory=dict)
    hashes: dict[Path, str] = field(default_factory=dict)
    keys: dict[Path, set[bytes]] = field(default_factory=dict)
    passages: dict[str, list[Path]] = field(default_factory=dict)

    def cell(self, cell: str, source: str, target: str, seed: int) -> TransferCell:
        domains = self.transfer.domains
        crosses = domains[source].language != domains[target].language
        if why := self._missing(cell, target):
            return TransferCell(cell, source, target, seed, crosses, why=why)
        learned = [self._file(source, "train")]
        jobs = [self._train(source, seed)]
        model = jobs[0].results / "ce"
        if cell == "fine_tuned":
            jobs.append(self._train(target, seed, start=jobs[0], name=f"{source}-{target}"))
            model, learned = jobs[1].results / "ce", [*learned, self._file(target, "train")]
        elif cell == "adapted":
            jobs.append(self._adapt(source, target, seed, jobs[0]))
            model, learned = jobs[1].results / "scst", [*learned, *self._unlabelled(target)]
        label = f"{cell}-{source}-{target}"
        test = self._file(target, "test")
        arguments = [*self._settings("generate", self.transfer.generate, domains[target].generate)]
        arguments += ["data.max_train=null", "keep=1", f"seed={seed}", f"model.path={model}", f"data.train={test}"]
        arguments += ["output={out}/questions.jsonl"]
        questions = self._add("generate", label, seed, "generate", arguments, [jobs[-1]], [test])
        language = OTHER if language_fault(domains[target].language) else domains[target].language
        arguments = [*self._settings("evaluate", [f"language={language}"], self.transfer.evaluate)]
        arguments += [f"predictions={questions.results / 'questions.jsonl'}", f"references={test}"]
        arguments += [f"metrics=[{','.join(self.transfer.metrics)}]", "output={out}"]
        scores = self._add("evaluate", label, seed, "evaluate", arguments, [questions], [test])
        seen = len(self._keys(test) & set[bytes]().union(*map(self._keys, learned)))
        return TransferCell(cell, source, target, seed, crosses, (*jobs, questions, scores), seen)

    def _missing(self, cell: str, target: str) -> str:
        """Why a cell cannot be made, or ""."""
        if cell in ("in_domain", "fine_tuned"):
            missing = [split for split in ("train", "validation") if not has_file(self.transfer, target, split)]
            return f"{target} has no {missing[0]} file" if missing else ""
        none = not self.transfer.domains[target].unlabelled and not has_file(self.transfer, target, "train")
        return f"{target} has no passages to adapt to" if cell == "adapted" and none else ""

    def _train(self, domain: str, seed: int, start: Job | None = None, name: str = "") -> Job:
        train, validation = self._file(domain, "train"), self._file(domain, "validation")
        arguments = [*self._settings("train", self.transfer.domains[domain].settings)]
        arguments += [f"model.path={start.results / 'ce'}"] if start else []
        arguments += ["stages=ce", f"seed={seed}", f"data.train={train}", f"data.validation={validation}"]
        needs = [start] if start else []
        arguments += ["output_dir={out}"]
        return self._add("ce", name or domain, seed, "train", arguments, needs, [train, validation])

    def _adapt(self, source: str, target: str, seed: int, start: Job) -> Job:
        """Training by reward on the target's passages. Its checkpoint is chosen on the source's validation data, so
        that no question of the target is used.
        """
        passages, validation = self._unlabelled(target), self._file(source, "validation")
        arguments = [*self._settings("train", self.transfer.domains[target].settings, self.transfer.adapt)]
        arguments += ["stages=scst", f"seed={seed}", f"model.path={start.results / 'ce'}", "data.train=null"]
        arguments += [f"data.validation={validation}", f"data.unlabelled=[{','.join(map(str, passages))}]"]
        arguments += ["output_dir={out}"]
        return self._add("scst", f"{source}-{target}", seed, "train", arguments, [start], [*passages, validation])

    def _unlabelled(self, target: str) -> list[Path]:
        """The files of the passages to adapt to; those of the training file are written without their questions."""
        if target not in self.passages:
            named = self.transfer.domains[target].unlabelled
            self.passages[target] = [existing_file(name) for name in named] or [self._written_passages(target)]
        return self.passages[target]

    def _written_passages(self, target: str) -> Path:
        train = self._file(target, "train")
        path = self.transfer.output_dir / "data" / f"{target}-{self._hash(train)[:8]}.jsonl"
        if not path.exists():
            with atomic_writer(path) as stream:
                for passage in Passages([str(train)]):
                    row = {"id": passage.id, "title": passage.title, "context": passage.context}
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        return path

    def _settings(self, command: str, *specific: Sequence[str]) -> list[str]:
        """What every job of a command gets, from general to specific."""
        general = [
            text for text in self.transfer.settings if command in SECTIONS.get(section_of_key(text), (command,))
        ]
        examples = ALL_EXAMPLES if command == "train" else ()
        return [f"preset={self.transfer.preset}", *examples, *general, *(text for part in specific for text in part)]

    def _add(
        self,
        kind: str,
        label: str,
        seed: int,
        command: str,
        arguments: Sequence[str],
        needs: Sequence[Job],
        reads: Sequence[Path],
    ) -> Job:
        """The job of this command; `{out}` in its arguments stands for the folder of its results."""
        root = self.transfer.output_dir
        digest = command_hash(command, [*arguments, *map(self._hash, reads)], root)
        folder = root / "jobs" / f"{kind}-{label}-s{seed}-{digest}"
        filled = tuple(text.replace("{out}", str(folder / RESULTS)) for text in arguments)
        job = Job(folder.name, kind, seed, command, filled, folder, tuple(need.name for need in needs))
        return self.jobs.setdefault(job.name, job)

    def _file(self, domain: str, split: str) -> Path:
        return split_file(self.transfer, domain, split)

    def _hash(self, path: Path) -> str:
        if path not in self.hashes:
            self.hashes[path] = file_hash(path)
        return self.hashes[path]

    def _keys(self, path: Path) -> set[bytes]:
        if path not in self.keys:
            self.keys[path] = passage_keys([str(path)])
        return self.keys[path]


FILE = "transfer.json"
DONE, FAILED, LEFT_OUT, TO_DO = "done", "failed", "left out", "to do"


def write_transfer(transfer: Transfer, plan: TransferPlan, outcomes: JobOutcomes) -> str:
    """Write `transfer.json`, `transfer.csv` and `transfer.md` of what is done so far; return the Markdown table.

    A row is a cell with one seed. In Markdown a cell has one row for all seeds: the mean of each measure with its
    interval; of several seeds, the mean with their standard deviation.
    """
    rows = [_row(cell, outcomes) for cell in plan.cells]
    record = {
        "transfer": {"file": transfer.file, "preset": transfer.preset, "settings": transfer.settings},
        "domains": {name: {"data": part.data, "language": part.language} for name, part in transfer.domains.items()},
        "code": git_state(Path(__file__)),
        "versions": package_versions(),
        "hardware": hardware(),
        "jobs": {
            "total": len(plan.jobs),
            "seconds": round(sum(job_record(job)["seconds"] for job in plan.jobs if is_done(job)), 1),
        },
        "signatures": _signatures(plan),
        "cells": rows,
    }
    table = _markdown(rows)
    write_json(transfer.output_dir / FILE, record)
    with atomic_writer(transfer.output_dir / "transfer.csv") as stream:
        stream.write(as_csv([_flat(row) for row in rows]))
    with atomic_writer(transfer.output_dir / "transfer.md") as stream:
        stream.write(f"{table}\n")
    return table


def _row(cell: TransferCell, outcomes: JobOutcomes) -> dict[str, Any]:
    row: dict[str, Any] = {
        "cell": cell.cell,
        "source": cell.source,
        "target": cell.target,
        "cross_lingual": cell.cross_lingual,
        "seed": cell.seed,
        "state": TO_DO,
        "why": cell.why,
        "test_passages_seen": cell.seen,
        "measures": {},
    }
    if cell.why:
        return row | {"state": LEFT_OUT}
    for job in cell.jobs:
        if job.name in outcomes.failed:
            return row | {"state": FAILED, "why": f"{job.name}: {outcomes.failed[job.name]}"}
    if is_done(cell.jobs[-1]):
        row |= {"state": DONE, "measures": _measures(cell.jobs[-1].results / "evaluate.json")}
    return row


def _measures(path: Path) -> dict[str, dict[str, Any]]:
    measures: dict[str, dict[str, Any]] = {}
    for row in read_json(path)["scores"]:
        if row["by"] == "all" and (row["metric"] not in measures or row["form"] == "corpus"):
            measures[row["metric"]] = {key: row[key] for key in ("value", "low", "high", "n", "form")}
    return measures


def _signatures(plan: TransferPlan) -> dict[str, str]:
    for cell in plan.cells:
        if cell.jobs and is_done(cell.jobs[-1]):
            signatures: dict[str, str] = read_json(cell.jobs[-1].results / "evaluate.json")["signatures"]
            return signatures
    return {}


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in row.items() if key != "measures"}
    for metric, measure in row["measures"].items():
        flat |= {metric: measure["value"], f"{metric}_low": measure["low"], f"{metric}_high": measure["high"]}
    return flat


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    metrics = list(dict.fromkeys(metric for row in rows for metric in row["measures"]))
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["target"], row["cell"], row["source"]), []).append(row)
    lines = []
    for (target, cell, source), group in groups.items():
        done = [row for row in group if row["state"] == DONE]
        kind = f"{cell.replace('_', '-')}{', cross-lingual' if group[0]['cross_lingual'] else ''}"
        states = dict.fromkeys(row["state"] for row in group)
        state = "" if len(done) == len(group) else ", ".join(states)
        cells = [_cell([row["measures"][metric] for row in done if metric in row["measures"]]) for metric in metrics]
        lines.append([target, kind, source, str(len(done)), *cells, state])
    return as_markdown(["target", "cell", "source", "seeds", *metrics, "state"], lines)


def _cell(measures: Sequence[Mapping[str, Any]]) -> str:
    """A measure with its interval over passages; of several seeds the mean and its standard deviation over seeds."""
    values = [measure["value"] for measure in measures if measure["value"] is not None]
    if not values:
        return "–"
    if len(values) > 1:
        return f"{fmean(values):.4f} ± {stdev(values):.4f}"
    low, high = measures[0]["low"], measures[0]["high"]
    return f"{values[0]:.4f}" if low is None else f"{values[0]:.4f} [{low:.4f}, {high:.4f}]"


def run_transfer(
    file: Path,
    overrides: Sequence[str],
    compose: Compose,
    *,
    dry_run: bool = False,
    allow_imports: bool = False,
    program: str = "rl_qg",
) -> None:
    """Run what is not done, then write the table; `program` is the module that runs the jobs."""
    transfer = read_transfer(file, overrides, allow_imports=allow_imports)
    with locked([("output_dir", transfer.output_dir)]):
        plan = make_plan(transfer)
        check_keys(plan.jobs, compose)
        if not plan.jobs:
            raise InputError("no cell can be made: " + "; ".join(f"{cell.name}: {cell.why}" for cell in plan.cells))
        _log_transfer(plan)
        if dry_run:
            return print_jobs(plan.jobs)
        outcomes = run_jobs(plan.jobs, transfer.devices, delete_checkpoints, program=program, title="transfer")
        table = write_transfer(transfer, plan, outcomes)
    log.info("%s", table)
    if outcomes.failed:
        _raise_failed(transfer, plan, {*outcomes.failed, *outcomes.skipped})
    log.info("done: see %s", transfer.output_dir / "transfer.md")


def _log_transfer(plan: TransferPlan) -> None:
    log.info("%d cells; %s", len(plan.cells), count_jobs(plan.jobs, JOB_KINDS))
    for cell in plan.cells:
        if cell.why:
            log.info("left out: %s: %s", cell.name, cell.why)
        if cell.seen:
            log.warning("%s: %d passages of the test data are in the data it learns from", cell.name, cell.seen)


def _raise_failed(transfer: Transfer, plan: TransferPlan, unfinished: set[str]) -> None:
    cells = [cell.name for cell in plan.cells if unfinished & {job.name for job in cell.jobs}]
    raise InputError(
        f"{len(cells)} of {len(plan.cells)} cells failed ({'; '.join(cells[:3])}{'; …' if len(cells) > 3 else ''}); "
        f"see {transfer.output_dir / 'transfer.md'} and the logs below {transfer.output_dir / 'jobs'}, and give the "
        "same command again to go on"
    )
