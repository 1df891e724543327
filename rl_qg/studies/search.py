"""A search for the best settings of a training: the best of many configurations after little training go on.

Every run is a plain `rl-qg train`, and after an interruption the same command goes on. A run's folder, `runs/<name>`,
is named by its configuration, its seed and a hash of its command and data; all stops of the run are in it. Each stop
is a job of its own in `jobs/<name>-e<epochs>`, so that what is measured is not run again.

`search.json` has everything, `leaderboard.csv` and `.html` the ranking, and `best/` the winner. See
`docs/how-to/search.md`.
"""

import hashlib
import logging
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from rl_qg.data.formats import existing_file, is_hub_name
from rl_qg.pages.results import NONE, Page, Table, as_csv, estimate_text, template_lines, write_page
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash, read_json, read_record, write_json, write_text
from rl_qg.runtime.run_folder import MEASURES, git_state, hardware, package_versions, stop_folder
from rl_qg.scoring.held_out import measure_signatures
from rl_qg.settings import Settings
from rl_qg.stats.intervals import mean_of_seeds
from rl_qg.studies.halving import Configuration, Halving, Trial, TrialResult
from rl_qg.studies.jobs import Compose, Job, JobOutcomes, command_hash, is_done, run_jobs, run_on_cluster, seconds_of
from rl_qg.studies.search_space import SearchFile, proposals

WEIGHTS = "weights.json"  # in the folder of a training's job: the hash of the model at its stop
FILE, PAGE, BEST = "search.json", "leaderboard", "best"
OF_RUN = ("config.yaml", "run.json", "metrics.jsonl")  # copied beside the winner's model
log = logging.getLogger(__name__)
RunJobs = Callable[..., JobOutcomes]  # of jobs, and `on_done`


def run_search(search: SearchFile, compose: Compose, *, dry_run: bool = False, run: RunJobs | None = None) -> None:
    """Run what is not done and write the results, or print the first rung; `run` runs jobs, None: as the file says."""
    runs, propose = SearchRuns(search, compose, run or _runner(search)), proposals(search)
    if dry_run:
        return _print_first_rung(search, runs, propose({}))
    optuna = {"optuna": metadata.version("optuna")} if search.method == "optuna" else {}
    versions = {**package_versions(), **optuna}
    origin = {"code": git_state(Path(__file__)), "versions": versions, "hardware": hardware()}

    def after_rung(halving: Halving) -> None:
        write_search(runs, halving, origin)
        if not search.keep_models:
            runs.tidy(halving, kept=halving.rungs[-1]["kept"])

    halving = Halving(search.plan, runs, after_rung)
    scores: dict[int, float | None] = {}
    while new := propose(scores):  # batch by batch, where proposals depend on scores
        halving.start(new)
        for one in new:
            values = halving.values[one.number].get(search.rungs[0][0])
            scores[one.number] = None if values is None else sum(values) / len(values)
    if (equal := halving.without_effect()) and not search.allow_equal:
        write_search(runs, halving, origin)
        keys = ", ".join(dict.fromkeys(key for pair in equal for key in pair["keys"]))
        pairs = {(pair["first"], pair["second"]) for pair in equal}  # with one seed or several
        raise InputError(
            f"{keys} had no effect: after epoch {search.rungs[0][0]} the models of {len(pairs)} pairs of "
            f"configurations are equal bit for bit, such as {equal[0]['first']} and {equal[0]['second']}; take the "
            f"key out of the space, or give allow_equal: true (see {search.output_dir / PAGE}.html)"
        )
    halving.finish()
    if best := best_trial(search, halving):
        runs.restore(best, halving)
        write_search(runs, halving, origin)
        if not search.keep_models:
            runs.tidy(halving, kept=[best.configuration.number])
        _log_winner(search, halving, best, write_best(runs, best))
    if halving.failed:
        number, failed = min(halving.failed.items())
        rest = "the others are ranked" if best else "none is left"
        raise InputError(
            f"{len(halving.failed)} of {len(halving.configurations)} configurations failed and {rest}, see "
            f"{search.output_dir / PAGE}.html; configuration {number}: {failed['fault']}"
        )


def _runner(search: SearchFile) -> RunJobs:
    if search.cluster is None:
        return partial(run_jobs, devices=search.devices, title="search", threads=search.threads)
    cluster: dict[str, Any] = asdict(search.cluster) | {"folder": search.output_dir / "cluster"}
    return partial(run_on_cluster, **cluster, device=search.devices[0], threads=search.threads)


def _print_first_rung(search: SearchFile, runs: "SearchRuns", configurations: Sequence[Configuration]) -> None:
    for one in configurations:
        for seed in search.seeds:
            print(f"{one.number}  " + ", ".join(f"{key}={value}" for key, value in one.values.items()))
            for job in runs.chain(Trial(one, seed, search.rungs[0][0])):
                print(f"   {job.line()}")
    print(f"{len(configurations)} configurations, {len(search.seeds)} runs of each; rungs {search.rungs}")


def _log_winner(search: SearchFile, halving: Halving, trial: Trial, best: Path) -> None:
    number, values = trial.configuration.number, trial.configuration.values.items()
    log.info(
        "best of %d: configuration %d (%s), %s %.4f after epoch %d: the model is in %s",
        *(len(halving.configurations), number, ", ".join(f"{key}={shown}" for key, shown in values)),
        *(search.measure.name, *halving.score(number), best),
    )
    if decided := [tie for tie in halving.ties if tie["decided"]]:
        log.info("%d ties decided who was kept or won, by the order of the configurations", len(decided))
    log.info("done: open %s", search.output_dir / f"{PAGE}.html")


def best_trial(search: SearchFile, halving: Halving) -> Trial | None:
    """The winner after its best epoch, with the first seed."""
    if halving.winner is None:
        return None
    return Trial(halving.configurations[halving.winner], search.seeds[0], halving.score(halving.winner)[1])


def _plan(search: SearchFile, compose: Compose, configuration: Configuration) -> tuple[list[str], str | None]:
    """The arguments of a training but for its seed; where it cannot stop in between, the folder of its final model."""
    arguments = [f"preset={search.preset}", *search.settings, *configuration.overrides]
    arguments += [f"data.{role}={source}" for role, source in asdict(search.data).items()]
    arguments.append(f"stages={search.stages}")
    settings = compose("train", arguments)
    stages, planned, measure = search.stages, search.planned_epochs, search.measure
    first = settings.ce.epochs if stages == "both" else 0
    measured = "" if measure.commands else measure.name
    changing = [] if search.go_on_to is None else _depend_on_plan(settings, stages)
    stops = settings.algorithm == "scst" or (stages == "ce" and settings.algorithm == "best_of_n")
    faults = {
        "measure: held_out is not measured: give held_out in settings, such as held_out=bartscore": (
            measured == "held_out" and not settings.second_reward
        ),
        "measure: reward_greedy is not measured: stages: ce has no reward; give stages: scst or both, or measure: "
        "held_out": measured == "reward_greedy" and stages == "ce",
        f"rungs: ce.epochs={first:g} leaves none of {planned} epochs to scst; raise the last rung": planned <= first,
        f"go_on_to: {search.go_on_to}: to go on beyond the last rung, schedules must not depend on the planned "
        f"epochs; set {', '.join(changing)}, or go_on_to: null": changing,
        f"algorithm={settings.algorithm} does not stop and go on: give a single rung, go_on_to: null and "
        "measure.commands": not stops
        and (len(search.rungs) > 1 or search.go_on_to is not None or not measure.commands),
    }
    for fault, holds in faults.items():
        if holds:
            raise InputError(f"{search.file}: configuration {configuration.number}: {fault}")
    arguments.append(f"ce.epochs={planned}" if stages == "ce" else f"scst.epochs={planned - first:g}")
    return arguments, None if stops else "ce" if stages == "ce" else "scst"


def _depend_on_plan(settings: Settings, stages: str) -> list[str]:
    """What to set so that the first epochs of a longer plan are those of a shorter one."""
    wanted = {"training.rate_schedule=constant": settings.training.rate_schedule == "constant"}
    if stages != "scst":
        wanted["ce.warmup_fraction=0"] = settings.ce.warmup_fraction == 0
    if stages != "ce":
        wanted["scst.warmup_fraction=0"] = settings.scst.warmup_fraction == 0
        wanted["scst.schedule=constant"] = settings.scst.schedule == "constant"
    return [text for text, holds in wanted.items() if not holds]


def _sources(search: SearchFile) -> dict[str, str]:
    """SHA-256 of the data files; a data set of the Hub or the embedded corpus is named by itself."""
    hashes = {}
    for name, value in asdict(search.data).items():
        several = value[1:-1].split(",") if value.startswith("[") and value.endswith("]") else [value]
        for number, source in enumerate(map(str.strip, several), 1):
            if not is_hub_name(source):
                hashes[name if number == 1 else f"{name}-{number}"] = file_hash(existing_file(source))
    return hashes


def stops(search: SearchFile) -> list[int]:
    """The epochs after which runs may stop, in their order."""
    on_the_way = [epochs for part in search.plan.stops() for epochs in part]
    return [*on_the_way, *range(search.rungs[-1][0] + 1, (search.go_on_to or 0) + 1)]


class SearchRuns:
    """Makes the jobs of trials, has them run by `run_jobs`, and reads what they measured."""

    def __init__(self, search: SearchFile, compose: Compose, run: RunJobs) -> None:
        self.search, self.run_jobs, self.sources = search, run, _sources(search)
        self.plan = cache(partial(_plan, search, compose))

    def __call__(self, trials: Sequence[Trial]) -> dict[Trial, TrialResult]:
        chains = {trial: self.chain(trial) for trial in trials}
        jobs = [job for chain in chains.values() for job in chain]
        names = {job.name for job in jobs}
        # What an earlier rung trained is done, and not among these.
        jobs = [replace(job, needs=tuple(name for name in job.needs if name in names)) for job in jobs]
        outcomes = self.run_jobs(jobs, on_done=note_weights)
        return {trial: self._result(trial, chain, outcomes) for trial, chain in chains.items()}

    def name(self, trial: Trial) -> str:
        sources = (f"{key}={value}" for key, value in self.sources.items())
        arguments = [*self.plan(trial.configuration)[0], f"seed={trial.seed}", *sources]
        digest = command_hash("train", arguments, self.search.output_dir)
        return f"{trial.configuration.number}-s{trial.seed}-{digest}"

    def folder(self, trial: Trial) -> Path:
        return self.search.output_dir / "runs" / self.name(trial)

    def model(self, trial: Trial) -> Path:
        final = self.plan(trial.configuration)[1]
        return self.folder(trial) / final if final else stop_folder(self.folder(trial), trial.epochs)

    def measured(self, trial: Trial) -> Path:
        digest = command_hash("", self.search.measure.commands, self.search.output_dir)  # others have other results
        return self.search.output_dir / "measured" / f"{self.name(trial)}-e{trial.epochs}-{digest}"

    def chain(self, trial: Trial) -> list[Job]:
        """The jobs of a trial, in their order: training, then the commands of the measure."""
        name, root = self.name(trial), self.search.output_dir
        label, (arguments, final) = f"{name}-e{trial.epochs}", self.plan(trial.configuration)

        def job(label: str, command: str, words: Sequence[str], needs: Sequence[str]) -> Job:
            where = root / "jobs" / label
            return Job(label, command, trial.seed, command, tuple(words), where, tuple(needs), exclusive=name)

        stop = [] if final else [f"training.stop_after={trial.epochs}"]
        train = [*arguments, f"seed={trial.seed}", *stop, f"output_dir={self.folder(trial)}"]
        earlier = [f"{name}-e{epochs}" for epochs in stops(self.search) if epochs < trial.epochs]
        jobs = [job(label, "train", train, earlier[-1:])]
        names = {"model": self.model(trial), "seed": trial.seed, "out": self.measured(trial)}
        for text in self.search.measure.commands:
            words = [word.format(**names, **asdict(self.search.data)) for word in shlex.split(text)]
            digest = command_hash(words[0], words[1:], root)
            jobs.append(job(f"{label}-{words[0]}-{digest}", words[0], words[1:], [jobs[-1].name]))
        return jobs

    def weights(self, trial: Trial) -> str | None:
        path = self.chain(trial)[0].folder / WEIGHTS
        return str(read_record(path)["weights"]) if path.exists() else None

    def tidy(self, halving: Halving, kept: Sequence[int]) -> None:
        """Delete checkpoints of what is not `kept`, and all weights but the best measured ones of a configuration."""
        for number, by_epochs in halving.values.items():
            best = halving.score(number)[1] if by_epochs else 0
            for seed in self.search.seeds:
                run = self.folder(Trial(halving.configurations[number], seed, best))
                for checkpoint in run.glob("checkpoint-*") if number not in kept else ():
                    shutil.rmtree(checkpoint, ignore_errors=True)
                for stop in (stop_folder(run, epochs) for epochs in by_epochs if epochs != best):
                    for weights in stop.glob("*.safetensors"):
                        weights.unlink()

    def restore(self, trial: Trial, halving: Halving) -> None:
        """Train a run again, the same bit for bit, where another measure has deleted the weights of this stop."""
        run = self.folder(trial)
        if self.weights(trial) is None or any(self.model(trial).glob("*.safetensors")):
            return
        log.info("%s: the weights after epoch %d were deleted; training it again", run, trial.epochs)
        trials = [replace(trial, epochs=epochs) for epochs in sorted(halving.values[trial.configuration.number])]
        for one in trials:  # before the run, so that an interruption leaves nothing that seems done
            for folder in (*(job.folder for job in self.chain(one)), self.measured(one)):
                shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(run, ignore_errors=True)
        result = self(trials)[trial]
        if result.fault is not None:
            raise InputError(f"{run}: cannot be trained again: {result.fault}; give the same command again")

    def _result(self, trial: Trial, chain: Sequence[Job], outcomes: JobOutcomes) -> TrialResult:
        for job in chain:
            if job.name in outcomes.failed:
                return TrialResult(None, fault=f"{outcomes.failed[job.name]} (log: {job.folder / 'log.txt'})")
            if not is_done(job):
                return TrialResult(None, fault="not run: an earlier part of the run failed, or its worker was killed")
        measure = self.search.measure
        path, at = self.model(trial) / MEASURES, ["measures", measure.name]
        if measure.commands:
            path, at = self.measured(trial) / str(measure.file), measure.value
        try:
            return TrialResult(_number_at(path, at), self.weights(trial))
        except InputError as error:
            return TrialResult(None, fault=str(error))


def note_weights(job: Job) -> None:
    """Note the hash of the model that a job has trained, in the job's folder: the model itself may be deleted."""
    if job.kind != "train":
        return
    values = dict(text.split("=", 1) for text in job.arguments)
    run, stop = Path(values["output_dir"]), values.get("training.stop_after")
    final = "ce" if values["stages"] == "ce" else "scst"
    folder = run / final if stop is None else stop_folder(run, float(stop))
    hashes = [file_hash(path) for path in sorted(folder.glob("*.safetensors"))]
    if hashes:
        write_json(job.folder / WEIGHTS, {"weights": hashlib.sha256("".join(hashes).encode()).hexdigest()})


def _number_at(path: Path, keys: Sequence[str]) -> float:
    """The number in nested JSON; `key=text` takes the first item of a list whose key has this value."""
    value = read_json(path)
    for key in keys:
        name, equals, text = key.partition("=")
        try:
            if isinstance(value, list) and equals:
                value = next(item for item in value if str(item.get(name)) == text)
            else:
                value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, ValueError, TypeError, StopIteration, AttributeError):
            raise InputError(f"{path}: there is no {key!r} of {' '.join(keys)}; see measure") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{path}: {' '.join(keys)} is no number, but {value!r}")
    return float(value)


def write_search(runs: SearchRuns, halving: Halving, origin: Mapping[str, Any]) -> None:
    """Write record and leaderboard of what is done so far; `origin`: code, versions and hardware that made it."""
    search, measure = runs.search, runs.search.measure
    rows, best = [*_configurations(runs, halving)], best_trial(search, halving)
    record: dict[str, Any] = {
        "search": {"file": search.file, **asdict(search), "output_dir": str(search.output_dir)},
        **origin,
        "data": {**asdict(search.data), "sha256": dict(runs.sources)},
        "measure": {
            "name": measure.name,
            "better": "higher" if measure.higher else "lower",
            "signature": None if measure.commands else measure_signatures().get(measure.name),
        },
        "plan": asdict(halving.plan) | {"planned_epochs": search.planned_epochs},
        "winner": best
        and {
            "configuration": best.configuration.number,
            "epochs": best.epochs,
            "seed": best.seed,
            "value": halving.score(best.configuration.number)[0],
            "settings": list(best.configuration.overrides),
            "model": str(runs.model(best)),
        },
        "configurations": rows,
        "rungs": halving.rungs,
        "ties": halving.ties,
        "without_effect": halving.without_effect(),
        "failed": [{"configuration": number, **failed} for number, failed in sorted(halving.failed.items())],
    }
    write_json(search.output_dir / FILE, record)
    write_text(search.output_dir / f"{PAGE}.csv", as_csv([_csv_row(row) for row in rows]))
    write_page(search.output_dir, PAGE, _page(search, record))


def write_best(runs: SearchRuns, trial: Trial) -> Path:
    """Copy the winner's model of the first seed to `best/`, with the files of its run and the record of the search."""
    root = runs.search.output_dir
    best, part = root / BEST, root / f"{BEST}.part"
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(runs.model(trial), part)
    for path in (*(runs.folder(trial) / name for name in OF_RUN), root / FILE):
        if path.exists():
            shutil.copy2(path, part)
    shutil.rmtree(best, ignore_errors=True)
    part.rename(best)
    return best


def _configurations(runs: SearchRuns, halving: Halving) -> Iterator[dict[str, Any]]:
    ranked = halving.leaders()
    for rank, number in enumerate(dict.fromkeys([*ranked, *halving.configurations]), 1):
        by_epochs = halving.values.get(number, {})
        ties = [tie["configurations"] for tie in halving.ties if number in tie["configurations"]]
        row: dict[str, Any] = {
            "rank": rank if number in ranked else None,
            "configuration": number,
            "values": dict(halving.configurations[number].values),
            "outcome": _outcome(halving, number),
            "tied_with": sorted({other for tie in ties for other in tie} - {number}),
        }
        if by_epochs:
            _, best = halving.score(number)
            mean, low, high = mean_of_seeds(by_epochs[best])
            row |= {"value": mean, "low": low, "high": high, "by_seed": by_epochs[best], "epochs": best}
            row["trained"] = max(by_epochs)
        row["runs"] = [
            _run_record(runs, Trial(halving.configurations[number], seed, epochs), values[place])
            for place, seed in enumerate(runs.search.seeds)
            for epochs, values in sorted(by_epochs.items())
        ]
        yield row


def _run_record(runs: SearchRuns, trial: Trial, value: float) -> dict[str, Any]:
    chain, path = runs.chain(trial), runs.model(trial) / MEASURES
    return {
        "seed": trial.seed,
        "epochs": trial.epochs,
        "value": value,
        "measures": read_record(path)["measures"] if path.exists() else {},
        "weights": runs.weights(trial),
        "commands": [job.line() for job in chain],
        "seconds": [seconds_of(job) for job in chain if is_done(job)],
        "folder": str(runs.folder(trial)),
    }


def _outcome(halving: Halving, number: int) -> str:
    if failed := halving.failed.get(number):
        won = "winner; " if number == halving.winner else ""  # by what it had before it went on
        return f"{won}failed on the way to epoch {failed['epochs']}, seed {failed['seed']}: {failed['fault']}"
    if number == halving.winner:
        return "winner"
    left = [rung["epochs"] for rung in halving.rungs if number in rung["ranking"] and number not in rung["kept"]]
    if left:
        return f"left after epoch {left[0]}"
    return "in the race" if halving.winner is None else "kept to the end"


def _csv_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("rank", "configuration")},
        **row["values"],
        **{name: row.get(name) for name in ("value", "low", "high", "epochs", "trained")},
        "by_seed": " ".join(map(str, row.get("by_seed", []))),
        "tied_with": " ".join(map(str, row["tied_with"])),
        "outcome": row["outcome"],
    }


def _page(search: SearchFile, record: Mapping[str, Any]) -> Page:
    plan, measure, rows = (record[key] for key in ("plan", "measure", "configurations"))
    options = {"method": search.method, "validation": search.data.validation, "best": BEST}
    facts = template_lines("rl_qg.studies", "search_facts.txt", **record, **options)
    note = (
        "Value: the best of the measured epochs, mean over seeds with Student's 95 % interval. Configurations that "
        "left at a lower rung were trained less and stand below those of a higher one."
    )
    if len(plan["seeds"]) < 2:
        note += " With one seed there are no intervals: small differences may be chance."
    leaders = [
        {key: row[key] for key in ("rank", "configuration")}
        | {**row["values"], "value": estimate_text(row, 4), "epochs": row.get("epochs"), "trained": row.get("trained")}
        | {"tied with": row["tied_with"], "outcome": row["outcome"]}
        for row in rows
    ]
    ties = [
        {"after epoch": tie["epochs"], "value": f"{tie['value']:.4f}", "configurations": tie["configurations"]}
        | {"who was kept, or won": "decided by their order" if tie["decided"] else "not affected"}
        for tie in record["ties"]
    ]
    equal = [
        {"configurations": [pair["first"], pair["second"]], "keys": pair["keys"], "seed": pair["seed"]}
        for pair in record["without_effect"]
    ]
    measured = [
        {"configuration": row["configuration"], "seed": run["seed"], "epochs": run["epochs"]}
        | {name: f"{value:.4f}" for name, value in (run["measures"] | {measure["name"]: run["value"]}).items()}
        for row in rows
        for run in row["runs"]
    ]
    tables = [
        Table("Leaderboard", _texts(leaders), note),
        Table("Ties", _texts(ties), "Equal values are ranked by the order of the configurations."),
        Table("Settings without effect", _texts(equal), "Their models are equal bit for bit at the first rung."),
        Table("Runs", _texts(measured), f"Their commands are in {FILE}."),
    ]
    shown = [table for table in tables if table.rows or table.title in ("Leaderboard", "Runs")]
    signatures = {measure["name"]: measure["signature"]} if measure["signature"] else {}
    return Page("search", Path(search.file).stem, facts, shown, signatures)


def _texts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    def text(value: Any) -> str:
        return NONE if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    return [{key: text(value) for key, value in row.items()} for row in rows]
