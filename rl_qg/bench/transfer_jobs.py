"""The cells of a transfer file as jobs: plain `rl-qg` commands that train, generate and evaluate.

A job's folder is named by a hash of its command and of the files that the command reads, so a changed file or setting
leads to new folders for what it changes, and everything else is found done.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_qg.bench.transfer_file import Transfer, has_file, split_file
from rl_qg.data.formats import existing_file
from rl_qg.data.passages import Passages, passage_keys
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.json_files import atomic_writer
from rl_qg.studies.grid import ALL_EXAMPLES, READ_BY, RESULTS, Job, command_hash
from rl_qg.text.question_types import OTHER, language_fault

KINDS = ("ce", "scst", "generate", "evaluate")
# Overrides of these sections go to these commands alone; all others go to every command.
SECTIONS = READ_BY | {"reward_models": ("train", "evaluate"), "miniature": ("train", "evaluate")}


@dataclass(frozen=True)
class TransferCell:
    """One generator tested on one target.

    Args:
        cell: one of `rl_qg.bench.transfer_file.CELLS`.
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
        """As messages have it."""
        return f"{self.cell} {self.source} -> {self.target}, seed {self.seed}"


@dataclass(frozen=True)
class TransferPlan:
    """All cells, and the jobs that make them, each once and after those it needs."""

    cells: tuple[TransferCell, ...]
    jobs: tuple[Job, ...]


def make_plan(transfer: Transfer) -> TransferPlan:
    """Lay out all cells, seed by seed; writes the passages to adapt to, and nothing else.

    Raises:
        InputError: a file of passages is missing or cannot be read.
    """
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
        """Training by cross-entropy, from the settings' model or from that of an earlier job."""
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
        general = [text for text in self.transfer.settings if command in SECTIONS.get(_section(text), (command,))]
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


def _section(text: str) -> str:
    return text.lstrip("+~").partition("=")[0].partition(".")[0]
