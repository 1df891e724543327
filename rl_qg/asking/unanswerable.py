"""Questions that their passage does not answer, made of answered ones: for readers of SQuAD 2.0, and for tests of
systems that should say that they do not know.

Either a name, number, date or title of a question is exchanged for another of its kind, of the passage if it has one,
else of another passage ("entity swap" of Rajpurkar et al., "Know What You Don't Know", ACL 2018, Table 1); or the
question is asked of the passage that BM25 finds first among those without its answer (Karpukhin et al., "Dense Passage
Retrieval", EMNLP 2020). Such a question can have an answer all the same: it is kept only if every reader refuses it.
"""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rewards import ReaderScore
from rewards.errors import library
from rewards.retrievability import bm25
from rl_qg.asking.models import IMPOSSIBLE, abstaining_reader, reader_path
from rl_qg.data.examples import seeded_rank
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import check_own, check_report, report_value
from rl_qg.runtime.processes import processes
from rl_qg.runtime.ranks import OutOfMemoryRetry
from rl_qg.scoring.kept_scores import kept_scores, texts_hash
from rl_qg.scoring.wrong_questions import entities_by_kind, rule_finder, swap_entity
from rl_qg.settings import ExportSettings
from rl_qg.text.english import ASKING, CLOSED
from rl_qg.text.words import counted, normalised_words

OWN, OTHER, QUESTION = "entity of the passage", "entity of another passage", "question of another passage"
KINDS = (OWN, OTHER, QUESTION)
UNSEARCHED = CLOSED | ASKING  # of English; else "what" and "is" would find passages about nothing in the question
AT_ONCE = 256  # questions that are searched or read between two lines of a file
Row = dict[str, Any]


def unanswerable_questions(
    rows: Sequence[Row], output: Path, options: ExportSettings, *, use_cpu: bool = False
) -> tuple[list[Row], dict[str, Any]]:
    """Unanswerable questions (rows with a `kind`), at most `options.unanswerable` for each of the rows, and what the
    report says of them. What the readers say is kept beside `output`. Raises `InputError` where no question is left.
    """
    library("bm25s", "export.unanswerable", "'rl-qg[retrieval]'")
    check_report(output)
    check_own(output)
    device = processes(use_cpu).device
    readers = [abstaining_reader(reader_path(name), device) for name in options.readers]
    by = {"readers": [reader.signature for reader in readers], "refused from": IMPOSSIBLE, "seed": options.seed}
    if output.exists() and any(report_value(output, name) != value for name, value in by.items()):
        raise InputError(f"output={output}: exists, of other readers or another seed; delete it, or name another one")
    made, missing = candidates(rows, options.seed)
    steps = [made]
    for number, reader in enumerate(readers, 1):
        values = _impossible(reader, steps[-1], output.with_name(f"{output.name}.readers") / f"reader-{number}.jsonl")
        steps.append([row for row, value in zip(steps[-1], values, strict=True) if value >= IMPOSSIBLE])
    ranked = sorted(steps[-1], key=lambda row: seeded_rank(options.seed, row["id"]))
    kept = ranked[: round(min(options.unanswerable * len(rows), len(ranked)))]
    if not kept:
        raise InputError(
            f"export.unanswerable={options.unanswerable:g}: none is left of {counted(len(made), 'question')} that "
            f"rules made, {len(ranked):,} of which the readers refuse; give more questions, or a higher share"
        )
    of_made, *of_refused, of_kept = (Counter(row["kind"] for row in part) for part in (*steps, kept))
    kinds = {
        kind: {"made": of_made[kind], "refused": [of[kind] for of in of_refused], "kept": of_kept[kind]}
        | {"share": round(of_kept[kind] / len(kept), 4)}
        for kind in KINDS
    }
    return kept, {"answerable": len(rows), "unanswerable": len(kept), "kinds": kinds, "not made": dict(missing), **by}


def candidates(rows: Sequence[Row], seed: int) -> tuple[list[Row], Counter[str]]:
    """What is made of each row, by exchange and by search, unless its passage is asked it already; and what is not."""
    titles = {row["context"]: row["title"] for row in reversed(rows)}
    contexts = list(dict.fromkeys(row["context"] for row in rows))
    others = entities_by_kind(contexts, rule_finder)
    asked, taken = {(row["context"], _plain(row["question"])) for row in rows}, {row["id"] for row in rows}
    made, missing = list[Row](), Counter[str]()
    for number, (row, context) in enumerate(zip(rows, _found(rows, contexts), strict=True)):
        chance = random.Random(f"{seed} {number}")
        swap = swap_entity(row["question"], row["context"], row["answer"], rule_finder, others, chance)
        own = {"kind": OWN if swap.rule == "passage" else OTHER, "question": swap.question} if swap else {}
        other = {"kind": QUESTION, "context": context, "title": titles.get(context), "answer": "", "answer_start": -1}
        missing["no name, number, date or title that can be exchanged"] += not swap
        missing["no other passage without the answer shares a word"] += not context
        for one in [{**row, **change} for change, can in ((own, swap), (other, context)) if can]:
            asks = one["context"], _plain(one["question"])
            missing["asked of that passage already"] += asks in asked
            if asks not in asked:
                asked.add(asks)
                identity = f"{row['id']}-unanswerable-{len(made) + 1}"
                while identity in taken:
                    identity += "+"
                made.append({**one, "id": identity})
    return made, missing


def _found(rows: Sequence[Row], contexts: Sequence[str]) -> list[str]:
    """For each row the passage, of all but its own, that BM25 finds first and that lacks its answer; "" for none."""
    search, texts, found = bm25(contexts), [*map(_plain, contexts)], list[str]()
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        words = ([word for word in normalised_words(row["question"]) if word not in UNSEARCHED] for row in part)
        for row, scores in zip(part, search([*map(" ".join, words)]), strict=True):
            answer, order = _plain(row["answer"]), np.argsort(-scores, kind="stable")
            usable = (contexts[at] for at in order if scores[at] > 0 and answer not in texts[at])
            found.append(next((context for context in usable if context != row["context"]), ""))
    return found


def _impossible(reader: ReaderScore, rows: Sequence[Row], path: Path) -> list[float]:
    """How sure a reader is that each question has no answer in its passage, kept in a file batch by batch."""
    in_parts = OutOfMemoryRetry("unanswerable", "read on the CPU (training.use_cpu=true)")
    texts = [(row["question"], row["context"]) for row in rows]

    def batch(start: int, end: int) -> list[float]:
        parts = in_parts(lambda part: reader.impossible(*zip(*part, strict=True)), texts[start:end])
        return [value for part in parts for value in part]

    note = {"reader": reader.signature, "texts": texts_hash(texts)}
    return kept_scores(path, note, len(rows), batch, batch_size=AT_ONCE, unit="question")


def _plain(text: str) -> str:
    return " ".join(normalised_words(text))
