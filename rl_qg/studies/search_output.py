"""What a search writes: `search.json` with everything, `leaderboard.csv` and `.html`, and the winner in `best/`."""

import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from rl_qg.confidence_intervals import mean_of_seeds
from rl_qg.evaluation.result_pages import NONE, Page, Table, estimate_text, write_page
from rl_qg.evaluation.text_measures import measure_signatures
from rl_qg.runtime.json_files import atomic_writer, write_json
from rl_qg.runtime.run_record import git_state, hardware, package_versions
from rl_qg.studies.grid import is_done, job_record
from rl_qg.studies.halving import Halving, Trial
from rl_qg.studies.search_file import SearchFile
from rl_qg.studies.search_jobs import SearchRuns
from rl_qg.text.tables import as_csv

FILE, PAGE, BEST = "search.json", "leaderboard", "best"
OF_RUN = ("config.yaml", "run.json", "metrics.jsonl")  # copied beside the winner's model
log = logging.getLogger(__name__)


def origin_of(search: SearchFile) -> dict[str, Any]:
    """With what the search is made: code, versions, hardware."""
    optuna = {"optuna": metadata.version("optuna")} if search.method == "optuna" else {}
    return {"code": git_state(Path(__file__)), "versions": {**package_versions(), **optuna}, "hardware": hardware()}


def write_search(search: SearchFile, runs: SearchRuns, halving: Halving, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Write record and leaderboard of what is done so far; return the record. `origin` is that of `origin_of`."""
    rows = [*_configurations(search, runs, halving)]
    plan = asdict(halving.plan) | {"planned_epochs": search.planned_epochs}
    record: dict[str, Any] = {
        "search": {"file": search.file, **asdict(search), "output_dir": str(search.output_dir)},
        **origin,
        "data": {**asdict(search.data), "sha256": dict(runs.sources)},
        "measure": {
            "name": search.measure.name,
            "better": "higher" if search.measure.higher else "lower",
            "signature": None if search.measure.commands else measure_signatures().get(search.measure.name),
        },
        "plan": plan,
        "winner": _winner(search, runs, halving),
        "configurations": rows,
        "rungs": [asdict(rung) for rung in halving.rungs],
        "ties": [asdict(tie) for tie in halving.ties],
        "without_effect": [asdict(pair) for pair in halving.without_effect()],
        "failed": [{"configuration": number, **asdict(item)} for number, item in sorted(halving.failed.items())],
    }
    write_json(search.output_dir / FILE, record)
    with atomic_writer(search.output_dir / f"{PAGE}.csv") as stream:
        stream.write(as_csv([_csv_row(row) for row in rows]))
    write_page(search.output_dir, PAGE, _page(search, record))
    return record


def write_best(search: SearchFile, runs: SearchRuns, halving: Halving) -> Path:
    """Copy the winner's model of the first seed to `best/`, with the files of its run and the record of the search."""
    assert halving.winner is not None
    trial = best_trial(search, halving)
    best, run = search.output_dir / BEST, runs.folder(trial.configuration, trial.seed)
    partial = best.with_name(f"{BEST}.part")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(runs.model(trial), partial)
    for path in (*(run / name for name in OF_RUN), search.output_dir / FILE):
        if path.exists():
            shutil.copy2(path, partial)
    shutil.rmtree(best, ignore_errors=True)
    partial.rename(best)
    return best


def best_trial(search: SearchFile, halving: Halving) -> Trial:
    """The winner after its best epoch, with the first seed."""
    assert halving.winner is not None
    return Trial(halving.configurations[halving.winner], search.seeds[0], halving.score(halving.winner)[1])


def _winner(search: SearchFile, runs: SearchRuns, halving: Halving) -> dict[str, Any] | None:
    if halving.winner is None:
        return None
    trial = best_trial(search, halving)
    return {
        "configuration": trial.configuration.number,
        "epochs": trial.epochs,
        "seed": trial.seed,
        "value": halving.score(halving.winner)[0],
        "settings": list(trial.configuration.overrides),
        "model": str(runs.model(trial)),
    }


def _configurations(search: SearchFile, runs: SearchRuns, halving: Halving) -> Iterator[dict[str, Any]]:
    """One record for each configuration: the ranked ones in their order, then those that are not ranked."""
    ranked = halving.leaders()
    rest = [number for number in halving.configurations if number not in ranked]
    for rank, number in enumerate([*ranked, *rest], 1):
        by_epochs = halving.values.get(number, {})
        row: dict[str, Any] = {
            "rank": rank if number in ranked else None,
            "configuration": number,
            "values": dict(halving.configurations[number].values),
            "outcome": _outcome(halving, number),
            "tied_with": sorted({other for tie in halving.ties if number in tie.configurations
                                 for other in tie.configurations} - {number}),
        }  # fmt: skip
        if by_epochs:
            _, best = halving.score(number)
            mean, low, high = mean_of_seeds(by_epochs[best])
            row |= {"value": mean, "low": low, "high": high, "by_seed": by_epochs[best], "epochs": best}
            row["trained"] = max(by_epochs)
        row["runs"] = [*_runs(search, runs, halving, number)]
        yield row


def _runs(search: SearchFile, runs: SearchRuns, halving: Halving, number: int) -> Iterator[dict[str, Any]]:
    configuration = halving.configurations[number]
    for seed in search.seeds:
        for epochs, values in sorted(halving.values.get(number, {}).items()):
            trial = Trial(configuration, seed, epochs)
            chain = runs.chain(trial)
            yield {
                "seed": seed,
                "epochs": epochs,
                "value": values[search.seeds.index(seed)],
                "measures": runs.measures(trial),
                "weights": runs.weights(trial),
                "commands": [job.line() for job in chain],
                "seconds": [job_record(job)["seconds"] for job in chain if is_done(job)],
                "folder": str(runs.folder(configuration, seed)),
            }


def _outcome(halving: Halving, number: int) -> str:
    if number in halving.failed:
        failed = halving.failed[number]
        return f"failed on the way to epoch {failed.epochs}, seed {failed.seed}: {failed.fault}"
    if number == halving.winner:
        return "winner"
    left = next((rung.epochs for rung in halving.rungs if number in rung.ranking and number not in rung.kept), None)
    return f"left after epoch {left}" if left is not None else "in the race"


def _csv_row(row: Mapping[str, Any]) -> dict[str, Any]:
    columns = ("value", "low", "high", "epochs", "trained")
    return {
        "rank": "" if row["rank"] is None else row["rank"],
        "configuration": row["configuration"],
        **row["values"],
        **{name: "" if row.get(name) is None else row[name] for name in columns},
        "by_seed": " ".join(map(str, row.get("by_seed", []))),
        "tied_with": " ".join(map(str, row["tied_with"])),
        "outcome": row["outcome"],
    }


# --- The page ---


def _page(search: SearchFile, record: Mapping[str, Any]) -> Page:
    plan, measure, winner = record["plan"], record["measure"], record["winner"]
    rungs = ", ".join(f"after epoch {epochs} the best {keep} are kept" for epochs, keep in plan["rungs"])
    facts = [
        f"{len(record['configurations'])} configurations ({search.method}), {len(record['failed'])} failed; seeds "
        f"{', '.join(map(str, plan['seeds']))}; {rungs}; {plan['planned_epochs']} planned",
        f"Ranked by {measure['name']} on {search.data.validation} ({measure['better']} is better)",
    ]
    if winner is not None:
        facts.append(f"Best: configuration {winner['configuration']} after epoch {winner['epochs']}, in {BEST}/")
    note = (
        "Value: the best of the measured epochs, mean over seeds with Student's 95 % interval. Configurations that "
        "left at a lower rung were trained less and stand below those of a higher one."
    )
    if len(plan["seeds"]) < 2:
        note += " With one seed there are no intervals: small differences may be chance."
    tables = [Table("Leaderboard", [_shown(row) for row in record["configurations"]], note)]
    if record["ties"]:
        ties = [_shown_tie(tie) for tie in record["ties"]]
        tables.append(Table("Ties", ties, "Equal values are ranked by the order of the configurations."))
    if record["without_effect"]:
        equal = [
            {"configurations": f"{pair['first']}, {pair['second']}", "keys": ", ".join(pair["keys"]),
             "seed": str(pair["seed"])}
            for pair in record["without_effect"]
        ]  # fmt: skip
        tables.append(Table("Settings without effect", equal, "Their models are equal bit for bit at the first rung."))
    tables.append(Table("Runs", [*_shown_runs(record)], f"Their commands are in {FILE}."))
    signature = measure["signature"]
    return Page("search", Path(search.file).stem, facts, tables, {measure["name"]: signature} if signature else {})


def _shown(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "rank": NONE if row["rank"] is None else str(row["rank"]),
        "configuration": str(row["configuration"]),
        **row["values"],
        "value": estimate_text(row, 4),
        "epochs": str(row.get("epochs", NONE)),
        "trained": str(row.get("trained", NONE)),
        "tied with": ", ".join(map(str, row["tied_with"])),
        "outcome": row["outcome"],
    }


def _shown_tie(tie: Mapping[str, Any]) -> dict[str, str]:
    return {
        "after epoch": str(tie["epochs"]),
        "value": f"{tie['value']:.4f}",
        "configurations": ", ".join(map(str, tie["configurations"])),
        "who was kept": "decided by their order" if tie["decided"] else "not affected",
    }


def _shown_runs(record: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for row in record["configurations"]:
        for run in row["runs"]:
            measured = {name: f"{value:.4f}" for name, value in run["measures"].items()}
            yield {
                "configuration": str(row["configuration"]),
                "seed": str(run["seed"]),
                "epochs": str(run["epochs"]),
                **measured,
                **{record["measure"]["name"]: f"{run['value']:.4f}"},
            }
