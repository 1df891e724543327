"""Readers compared question by question, and the number of updates that makes such a comparison fair: a reader on more
data makes more updates in as many epochs, and would differ by longer training too.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence, Set
from itertools import combinations
from pathlib import Path
from typing import Any

from rl_qg.data.examples import QAExample
from rl_qg.readers.reader import encode_in_parts, load_tokenizer
from rl_qg.readers.train_reader import SCORES, with_unanswerable
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_record, write_json
from rl_qg.settings import QASettings
from rl_qg.stats.intervals import PERCENT, PassageDraws, paired_interval

SHOWN = (*SCORES, "seeds", "intervals", "model", "updates")


def count_windows(examples: Sequence[QAExample], settings: QASettings) -> int:
    """Into how many windows a reader cuts these training examples, and those that `unanswerable` adds to them."""
    tokenizer, token_types = load_tokenizer(settings.model.path, max_length=settings.max_length)
    asked = with_unanswerable(examples, settings.unanswerable, settings.seeds[0])
    lengths: dict[str, Any] = {"max_length": settings.max_length, "doc_stride": settings.doc_stride}
    return sum(map(len, encode_in_parts(asked, tokenizer, token_types=token_types, **lengths)))


def count_updates(windows: int, settings: QASettings, processes: int) -> int:
    """How many updates a reader makes on so many windows: `max_steps` where it is set, else as transformers counts.

    An epoch has ceil(windows / (batch_size * processes)) updates, and at least one; a part of an epoch is rounded up.
    """
    if settings.max_steps > 0:
        return settings.max_steps
    return math.ceil(settings.epochs * max(1, math.ceil(windows / (settings.batch_size * processes))))


def compare_readers(folders: Mapping[str, Path], output: Path) -> dict[str, Any]:
    """Compare the qa folders of two or more readers, write the result to `output` and return it.

    `differences` has each later reader minus each earlier one ("ce - gold", "scst - gold", "scst - ce") in percent
    points, with its 95 % interval by the paired bootstrap over passages; a question's score is its mean over the
    seeds. `baseline`, `augmented` and `difference` are the first reader, the last one, and the last minus the first.
    Where folders of earlier versions do not name the passages each question is drawn by itself (`resampled`). Readers
    that were scored on different questions are an `InputError`.
    """
    if len(folders) < 2:
        raise InputError(f"{output}: a comparison needs two readers, got {len(folders)}")
    metrics = {name: read_record(folder / "qa_metrics.json") for name, folder in folders.items()}
    tables = {name: read_record(folder / "question_scores.json") for name, folder in folders.items()}
    first, *_, last = folders
    for name in list(folders)[1:]:
        hashes = (metrics[side]["data"]["validation"] for side in (first, name))
        if problem := _mismatch(tables[first].keys(), tables[name].keys(), *hashes):
            raise InputError(
                f"{folders[first]} and {folders[name]}: {problem}: score both on the same data.validation"
            )
    rows = tables[first]
    has_passages = all("passage" in row for row in rows.values())
    draws = PassageDraws([row["passage"] if has_passages else key for key, row in rows.items()])
    differences: dict[str, dict[str, Any]] = {}
    for earlier, later in combinations(folders, 2):
        differences[f"{later} - {earlier}"] = {}
        for score in SCORES:  # in percent points
            new, old = ([100 * tables[name][key][score] for key in rows] for name in (later, earlier))
            differences[f"{later} - {earlier}"][score] = dataclasses.asdict(
                paired_interval(new, old, draws, bounds=PERCENT)
            )
    readers = {
        name: {"folder": str(folders[name]), **{key: metrics[name].get(key) for key in SHOWN}} for name in folders
    }
    result = {
        "total": len(rows),
        "resampled": "passages" if has_passages else "questions",
        "passages": draws.passages if has_passages else None,
        "baseline": readers[first],
        "augmented": readers[last],
        "difference": differences[f"{last} - {first}"],
        "readers": readers,
        "differences": differences,
    }
    write_json(output, result)
    return result


def _mismatch(first: Set[str], second: Set[str], first_hash: str, second_hash: str) -> str:
    if first != second:
        counts = f"{len(first - second)} only in the first, {len(second - first)} only in the second"
        return f"other questions ({counts}, such as {min(first ^ second)})"
    return "" if first_hash == second_hash else "questions of the same ids, but other content"
