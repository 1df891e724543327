"""Question-answer pairs against those that people wrote: one table with intervals, of one file or several.

    rl-qg evaluate pairs=true predictions=pairs.jsonl references=dev.json metrics=[rouge_l] output=DIR
    rl-qg evaluate pairs=true 'predictions={questions_answers: lmqg.txt, context: passages.txt}' references=dev.json …

`rl_qg.evaluation.pair_files` has the forms of files, `rl_qg.evaluation.pair_analysis` what is computed. Writes
`evaluate.json`, `.txt`, `.html` and CSV (`tables/`); scores are kept in `pairs/`, so that a command that was killed
goes on.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rl_qg.confidence_intervals import few_passages
from rl_qg.data.lmqg_pairs import FIELD
from rl_qg.data.question_tables import QuestionTable
from rl_qg.evaluation.evaluate import named_inputs
from rl_qg.evaluation.pair_analysis import Rows, pair_counts, pair_record, pair_sets
from rl_qg.evaluation.pair_files import HumanPairs, read_pair_file
from rl_qg.evaluation.result_pages import Page, Table, as_text, estimate_text, p_text, write_results
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.settings import EvaluateSettings

log = logging.getLogger(__name__)

NAMES = {
    "precision": "QAAligned precision",
    "recall": "QAAligned recall",
    "f1": "QAAligned F1",
    "one_to_one_precision": "one-to-one precision",
    "one_to_one_recall": "one-to-one recall",
    "one_to_one_f1": "one-to-one F1",
}


def evaluate_pairs(metrics: Mapping[str, Reward], settings: EvaluateSettings, folder: Path) -> None:
    """Compare the pairs of every file with the human ones, and write the results to `folder`.

    Raises:
        InputError: a file that cannot be read or is empty, a row without a passage or a pair, a file about other
            passages.
    """
    columns = asdict(settings.columns)
    named = named_inputs(settings.predictions, {*columns, *columns.values(), FIELD})
    sources = {name: QuestionTable(path, columns) for name, path in named.items()}
    human = HumanPairs(settings.references, settings.references_split)
    files = {name: read_pair_file(source) for name, source in sources.items()}
    sets = pair_sets(files, human, every_passage=settings.passages == "all")
    record: dict[str, Any] = {
        "predictions": {name: source.hashes() for name, source in sources.items()},
        "references": human.hashes(),
        "settings": asdict(settings),
        "counts": {name: pair_counts(sets, name) | {"dropped": dict(file.dropped)} for name, file in files.items()},
        "human": {
            "passages": len(human.pairs),
            "pairs": sum(map(len, human.pairs.values())),
            "not_asked": sets.not_asked,
            "dropped": dict(human.dropped),
        },
        **pair_record(sets, metrics, folder / "pairs", resamples=settings.resamples, seed=settings.seed),
    }
    page = Page("evaluate", " · ".join(files), _facts(record), _tables(record), record["signatures"])
    write_results(folder, "evaluate", record, page, {name: record[name] for name in ("scores", "tests")})
    log.info("%s\ndone: open %s", as_text(page), folder / "evaluate.html")


# --- For people ---


def _facts(record: Mapping[str, Any]) -> list[str]:
    settings, human = record["settings"], record["human"]
    facts = [_of_file(name, count) for name, count in record["counts"].items()]
    facts.append(f"Human: {human['pairs']:,} pairs on {human['passages']:,} passages{_dropped(human['dropped'])}.")
    if human["not_asked"]:
        fate = "count as 0" if settings["passages"] == "all" else "are left out (passages=all counts them as 0)"
        facts.append(f"{human['not_asked']:,} of these passages are in no file: they {fate}.")
    facts.append(
        f"Brackets: 95 % bootstrap intervals over passages ({settings['resamples']:,} draws, seed {settings['seed']})."
    )
    passages = min(count["passages"] for count in record["counts"].values())
    return facts + list(filter(None, [few_passages(passages)]))


def _of_file(name: str, count: Mapping[str, Any]) -> str:
    parts = [
        f"{count['repeated']:,} exact repetitions",
        f"{count['answers_not_in_passage']:,} answers not in their passage",
        f"{count['answers_several_times_in_passage']:,} that stand in it several times",
    ]
    if count["passages_without_human_pairs"]:
        parts.append(f"{count['passages_without_human_pairs']:,} more passages without human pairs are left out")
    return (
        f"{name}: {count['pairs']:,} pairs on {count['passages'] - count['without_pairs']:,} of {count['passages']:,} "
        f"passages (people: {count['human_pairs']:,}); {', '.join(parts)}{_dropped(count['dropped'])}."
    )


def _dropped(counts: Mapping[str, int]) -> str:
    return "".join(f"; {number:,} left out ({reason})" for reason, number in counts.items() if number)


def _tables(record: Mapping[str, Any]) -> list[Table]:
    note = (
        "QAAligned: precision is the mean over a passage's pairs of the best score with any human pair, recall the "
        "mean over the human pairs of the best with any pair; a good pair repeated in other words is not punished. "
        "One to one: each pair counts once. Then the mean over passages; a passage without pairs has 0."
    )
    left_out = [f"{label} left out: {why}." for label, why in record["left_out"].items()]
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in record["scores"]:
        line = lines.setdefault((row["metric"], row["part"]), {"metric": row["metric"], "part": _part(row)})
        line[row["predictions"]] = estimate_text(row, 4)
    tables = [Table("Question-answer pairs", list(lines.values()), " ".join([note, *left_out]))]
    if record["tests"]:
        note = (
            "First minus second, on the same passages; p: two-sided, by paired bootstrap over passages; Holm's "
            f"correction over {record['tests'][0].get('family', 0)} differences."
        )
        tables.append(Table("Differences", _tests(record["tests"]), note))
    return tables


def _part(row: Mapping[str, Any]) -> str:
    is_metric = " " not in row["metric"]  # a label names a file and has no spaces
    return NAMES[row["part"]] if is_metric else row["part"]


def _tests(rows: Rows) -> list[dict[str, str]]:
    return [
        {
            "metric": row["metric"],
            "part": _part(row),
            "files": f"{row['predictions']} − {row['against']}",
            "difference": estimate_text(row, 4, signed=True),
            "p": p_text(row["p"]),
            "p (Holm)": p_text(row.get("p_holm")),
            "better": row.get("better") or "",
        }
        for row in rows
    ]
