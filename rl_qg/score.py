"""Scoring: questions with their passages -> the same rows with a score and its parts.

    rl-qg score reward=qrelscore input=questions.jsonl output=scored.jsonl

Rows are read and written in blocks, so memory does not grow with the file, and the same command after a kill goes on
behind the last whole line. `<output stem>.summary.json` holds the mean with its bootstrap interval and the metric's
signature.
"""

import json
import logging
import math
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rl_qg.bootstrap import mean_interval
from rl_qg.errors import InputError
from rl_qg.run_folder import read_json_lines, write_json
from rl_qg.trainer import Reward

log = logging.getLogger(__name__)

Row = dict[str, Any]


def score_file(reward: Reward, source: Path, output: Path, *, batch_size: int) -> dict[str, Any]:
    """Score every row of `source` (JSON lines with `question`, `context` and, where the metric needs it, `answer`);
    return the summary.

    Raises:
        InputError: a row lacks a field, or `output` does not continue `source`.
    """
    total = sum(1 for _ in _rows(source))  # also checks every row before the first is scored
    done = _resume(source, output)
    with (
        output.open("a", encoding="utf-8") as stream,
        tqdm(total=total, initial=done, desc="score", unit="row") as bar,
    ):
        rows = islice(_rows(source), done, None)
        while block := list(islice(rows, batch_size)):
            result = reward.score(
                [row["question"] for row in block],
                [row["context"] for row in block],
                answers=[row["answer"] for row in block] if all("answer" in row for row in block) else None,
                references=[row["references"] for row in block] if all("references" in row for row in block) else None,
            )
            for index, (row, value) in enumerate(zip(block, result.scores, strict=True)):
                parts = {name: values[index] for name, values in getattr(result, "parts", {}).items()}
                stream.write(json.dumps({**row, "score": value, "parts": parts}, ensure_ascii=False) + "\n")
            stream.flush()
            bar.update(len(block))
    return _summarise(reward, output)


def _rows(source: Path) -> Iterator[Row]:
    for number, row in read_json_lines(source):
        for name in ("question", "context"):
            if not isinstance(row.get(name), str):
                raise InputError(f"{source}: line {number}: field {name!r} is missing or no text; every row needs it")
        yield row


def _resume(source: Path, output: Path) -> int:
    """Cut a torn last line off `output` and return how many rows it holds, after checking that they are the first ones
    of `source`.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.touch()
    except OSError as error:
        raise InputError(f"output={output}: cannot be written ({error.strerror}); name another path") from None
    done = offset = 0
    rows = _rows(source)
    with output.open("rb+") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                break
            try:
                scored = json.loads(line)
                row = next(rows)
                same = all(scored[name] == row[name] for name in ("question", "context")) and "score" in scored
            except (json.JSONDecodeError, StopIteration, KeyError, TypeError):
                same = False
            if not same:
                raise InputError(
                    f"output={output}: line {done + 1} is not row {done + 1} of {source}; name another file"
                )
            done, offset = done + 1, offset + len(line)
        stream.truncate(offset)
    return done


def _summarise(reward: Reward, output: Path) -> dict[str, Any]:
    scores = [row["score"] for _, row in read_json_lines(output)]
    finite = [score for score in scores if score is not None and math.isfinite(score)]
    summary = {
        "signature": getattr(reward, "signature", type(reward).__name__),
        "rows": len(scores),
        "without_score": len(scores) - len(finite),
        "score": asdict(mean_interval(finite)) if finite else None,
    }
    write_json(output.with_name(f"{output.stem}.summary.json"), summary)
    log.info("%s", json.dumps(summary))
    return summary


if __name__ == "__main__":
    from rl_qg.cli import main

    main(["score"])
