"""The results that a leaderboard shows: of `rl-qg evaluate`, of `rl-qg qa-evaluate`, and of training runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rl_qg.evaluation.prediction_analysis import MEAN
from rl_qg.evaluation.score_draws import FILE, ScoreDraws, read_draws
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import read_json
from rl_qg.runtime.run_folder import CONFIG

NAMES = ("evaluate.json", "evaluation.json")  # of results in a folder
ROLES = ("train", "validation", "dev", "test")  # file names that do not tell data apart
MEASURES = {  # of a run's evaluation.json: the field of the signature
    "reward": "reward_signature",
    "held_out": "held_out_signature",
    "bleu4": "bleu_signature",
    "rouge_l": "rouge_l_signature",
}


@dataclass(frozen=True)
class ModelScore:
    """One score of one model on some data; `draws` are those behind it, where the file of its result has them.

    `data_hashes` are those of the files of human questions, where they are known.
    """

    data: str
    model: str
    metric: str
    form: str
    value: float
    low: float | None
    high: float | None
    n: int | None
    lower_is_better: bool
    signature: str
    source: Path
    data_hashes: tuple[str, ...] = ()
    draws: ScoreDraws | None = None

    @property
    def column(self) -> tuple[str, str, str, str]:
        """What the models in one column of the leaderboard share."""
        return self.data, self.metric, self.form, self.signature


def read_results(sources: Sequence[tuple[str | None, Path]]) -> list[ModelScore]:
    """The results of files, or of folders that hold one; each with the name of its data, or None: that of the file of
    human questions, with its folder's where it is called train, validation, dev or test.

    Raises:
        InputError: a file is missing or no result, one score stands in two files with other values, or two files of
            human questions have one name.
    """
    found: dict[tuple[str, ...], ModelScore] = {}
    hashes: dict[tuple[str, str], ModelScore] = {}
    for name, source in sources:
        for result in _of_file(name, source):
            key = (*result.column, result.model)
            if (earlier := found.get(key)) is not None and earlier.value != result.value:
                raise InputError(
                    f"{earlier.source} and {result.source}: both have {result.metric} of {result.model!r} on "
                    f"{result.data!r}, with other values; name the models apart (predictions={{NAME: FILE}}), or the "
                    "data (NAME=RESULT)"
                )
            first = hashes.setdefault((result.data, result.metric), result) if result.data_hashes else result
            if first.data_hashes != result.data_hashes:
                raise InputError(
                    f"{first.source} and {result.source}: are about other human questions, and both are called "
                    f"{result.data!r}; name them, such as english={first.source}"
                )
            found.setdefault(key, result)
    if not found:
        raise InputError("no result has a score of a model")
    return list(found.values())


def _of_file(name: str | None, source: Path) -> Iterator[ModelScore]:
    path = _file(source)
    record = read_json(path)
    if not isinstance(record, dict):
        record = {}
    if {"scores", "signatures"} <= record.keys():
        yield from _scores(name, path, record)
    elif {"models", "reward_signature"} <= record.keys():
        yield from _of_run(name, path, record)
    else:
        raise InputError(
            f"{path}: is no result; give evaluate.json of rl-qg evaluate, the .json of rl-qg qa-evaluate, or "
            "evaluation.json of a run"
        )


def _file(source: Path) -> Path:
    if not source.is_dir():
        if not source.is_file():
            raise InputError(f"{source}: no such file or folder; give results of rl-qg evaluate, or run folders")
        return source
    present = [source / name for name in NAMES if (source / name).is_file()]
    if not present:
        raise InputError(f"{source}: holds neither {' nor '.join(NAMES)}; name a result in it")
    return present[0]


def _scores(name: str | None, path: Path, record: Mapping[str, Any]) -> Iterator[ModelScore]:
    """Of `rl-qg evaluate` and `rl-qg qa-evaluate`: the rows about all questions."""
    human: Mapping[str, str] = record.get("references") or record.get("data") or {}
    data = name or _data_name(human) or path.parent.name
    beside = path.with_suffix("") / FILE if "systems" in record else path.parent / FILE
    draws = {(one.predictions, one.metric, one.form): one for one in read_draws(beside)}
    for row in record["scores"]:
        if row.get("by", "all") != "all" or row.get("value") is None or "part" in row:
            continue
        metric, form = row["metric"], row.get("form", MEAN)
        of_row = draws.get((row["predictions"], metric, form))
        if of_row is not None and of_row.values[0] != row["value"]:
            of_row = None  # of an earlier or a later result
        yield ModelScore(
            *(data, row["predictions"], metric, form, row["value"], row.get("low"), row.get("high"), row.get("n")),
            lower_is_better=metric in record.get("lower_is_better", ()),
            signature=record["signatures"].get(metric, ""),
            source=path,
            data_hashes=tuple(sorted(human.values())),
            draws=of_row,
        )


def _of_run(name: str | None, path: Path, record: Mapping[str, Any]) -> Iterator[ModelScore]:
    """Of a training run: its generators, on the passages that it held out. It keeps no draws."""
    config = path.parent / CONFIG
    settings = yaml.safe_load(config.read_text(encoding="utf-8")) if config.is_file() else {}
    sources = (settings.get("data") or {}).get("validation")
    paths = sources if isinstance(sources, list) else [sources] if sources else []
    data = name or _data_name(dict.fromkeys(map(str, paths), "")) or path.parent.name
    for model, measures in record["models"].items():
        for metric, field in MEASURES.items():
            given = measures.get(metric)
            if model == "gold" or given is None:
                continue
            cell = given if isinstance(given, Mapping) else {"mean": given}
            signature = record.get(field) or measures.get(field) or ""
            yield ModelScore(
                *(data, f"{path.parent.name}/{model}", metric, "held out"),
                *(cell["mean"], cell.get("low"), cell.get("high"), cell.get("n", record.get("examples"))),
                lower_is_better=False,
                signature=signature,
                source=path,
            )


def _data_name(human: Mapping[str, str]) -> str:
    """The name of files of human questions: their stems, with the folder where these are common ones."""
    names = []
    for path in map(Path, human):
        stem = path.name.partition(".")[0]
        names.append(f"{path.parent.name}/{stem}" if stem in ROLES and path.parent.name else stem)
    return " + ".join(names)
