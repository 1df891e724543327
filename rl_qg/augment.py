"""Augmentation: filter the generated questions, sample some of those kept, and add them to the human ones.

    rl-qg augment questions=questions.jsonl gold=train.json output=augmented.json num_samples=90000

The questions are read twice, line by line: once to decide, once to write; the human examples as their source is read.
In memory stand hashes of both, and the places of the sampled candidates. The sample hangs on the seed and on what the
lines say, not on their order; only of candidates that repeat one another, the one that stands first is taken.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rl_qg.errors import InputError
from rl_qg.filters import Funnel, paper_rules, question_key
from rl_qg.qa_data import (
    Answer,
    QAExample,
    check_unchanged,
    examples_hash,
    file_hash,
    seeded_rank,
    write_squad,
)
from rl_qg.qa_sources import is_unicode, parse_object
from rl_qg.qa_stream import Examples
from rl_qg.run_folder import read_json, write_json

SYNTHETIC = "synthetic-"
OFFSET_BITS = 64
FIELDS: dict[str, type] = {
    "id": str,
    "candidate": int,
    "title": str,
    "context": str,
    "answer": str,
    "answer_start": int,
    "question": str,
}


def augment(
    questions: str | Path,
    gold: Examples,
    output: str | Path,
    *,
    num_samples: int,
    min_words: int,
    max_words: int,
    seed: int,
) -> dict[str, Any]:
    """Write `output` (SQuAD v1.1 JSON: gold first, then sampled candidates as `synthetic-<id>-<candidate>`).

    Beside it stands the report that is returned, `<output stem>.report.json`: what came in, what each rule dropped,
    what was kept and sampled, the settings, and the hashes of what was read. All kept candidates are taken when they
    are fewer than `num_samples`.

    Raises:
        InputError: with file and line, for a line that is not a whole candidate; the disk is full.
    """
    questions, output = Path(questions), Path(output)
    gold_keys = _check(gold, output, num_samples)
    funnel = Funnel(paper_rules(gold_keys, min_words=min_words, max_words=max_words))
    offsets = _sample(questions, funnel, num_samples, seed)
    try:
        # Gone until it is written anew: a kill between the two files leaves no report of another one's.
        report_path(output).unlink(missing_ok=True)
        written = write_squad(output, _merged(gold, questions, offsets))
        report = {
            "gold": len(gold),
            "candidates": funnel.seen,
            "dropped": funnel.counts,
            "kept": funnel.kept,
            "requested": num_samples,
            "sampled": len(offsets),
            "written": written,
            "settings": {"num_samples": num_samples, "min_words": min_words, "max_words": max_words, "seed": seed},
            "inputs": {
                "questions": {"path": str(questions), "sha256": file_hash(questions)},
                "gold": {"examples": len(gold), "sha256": examples_hash(gold)},
            },
            "output": {"path": str(output), "sha256": file_hash(output)},
        }
        write_json(report_path(output), report)
    except OSError as error:
        raise InputError(
            f"output={output}: cannot be written ({error.strerror}); {questions} is as it was: make room or name "
            "another path, and run the command again"
        ) from None
    print(funnel_table(report))
    return report


def check_questions(questions: Path, output: Path, *, accept_changed_data: bool) -> None:
    """Compare the questions at hand with those that `output` was made from, as its report has them.

    Raises:
        InputError: they are others, and the user has not said that this is known.
    """
    made_from = read_json(report_path(output))["inputs"]["questions"]["sha256"]
    name = str(questions)
    check_unchanged({name: made_from}, {name: file_hash(questions)}, output, accept=accept_changed_data)


def report_path(output: Path) -> Path:
    """Where the report of `augmented.json` stands: `augmented.report.json` beside it."""
    return output.with_name(f"{output.stem}.report.json")


def funnel_table(report: dict[str, Any]) -> str:
    """Lay out the report's counts as a short table, one line for each step."""
    rows = [("candidates", report["candidates"]), *((f"- {why}", -count) for why, count in report["dropped"].items())]
    rows += [("kept", report["kept"]), ("sampled", report["sampled"])]
    rows += [("gold", report["gold"]), ("written", report["written"])]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {count:>10,}" for name, count in rows]
    if report["sampled"] < report["requested"]:
        lines.append(f"{report['requested']:,} were asked for; all {report['kept']:,} kept candidates are taken")
    return "\n".join(lines)


def _check(gold: Examples, output: Path, num_samples: int) -> set[bytes]:
    """Refuse what cannot be; return the keys of the human questions."""
    if num_samples < 0:
        raise InputError(f"augment.num_samples={num_samples} must not be negative")
    if output.suffix != ".json":
        raise InputError(f"{output}: the output is SQuAD JSON; give a name that ends in .json")
    keys = set()
    for example in gold:
        if example.id.startswith(SYNTHETIC):
            raise InputError(
                f"gold holds a generated question (id {example.id}); give the file of human questions alone"
            )
        keys.add(question_key(example.context, example.question))
    return keys


def _sample(questions: Path, funnel: Funnel, num_samples: int, seed: int) -> list[int]:
    """Return the byte offsets of a uniform sample of the kept candidates, in the order of the file.

    The sample is those with the lowest `seeded_rank`: no more than `num_samples` are ever held. The rank is that
    of passage and question: it does not matter which of several equal candidates stood first.
    """

    def ranked() -> Iterator[tuple[bytes, int]]:
        ids: set[bytes] = set()
        with tqdm(total=questions.stat().st_size, desc="filter", unit="B", unit_scale=True) as bar:
            for number, offset, line in _lines(questions):
                bar.update(len(line))
                record = _candidate(line, f"{questions}: line {number}")
                if not funnel.keeps(record):
                    continue
                key = seeded_rank(0, f"{record['candidate']} {record['id']}")[:16]
                if key in ids:
                    raise InputError(
                        f"{questions}: line {number}: candidate {record['candidate']} of id {record['id']} occurs "
                        "twice with different questions; generate again into a new file"
                    )
                ids.add(key)
                yield seeded_rank(seed, question_key(record["context"], record["question"]).hex()), offset

    if not questions.is_file():
        raise InputError(f"{questions}: no such file; give the questions.jsonl that rl-qg generate wrote")
    offsets = _lowest(ranked(), num_samples)
    if funnel.seen == 0:
        raise InputError(f"{questions}: holds no candidate; run rl-qg generate again")
    return offsets


def _lowest(ranked: Iterable[tuple[bytes, int]], count: int) -> list[int]:
    """The `count` offsets of lowest rank, in ascending order.

    Rank and offset are one number each, a fifth of the memory that a heap of tuples takes.
    """
    heap: list[int] = []
    for rank, offset in ranked:
        number = -(int.from_bytes(rank[:16]) << OFFSET_BITS | offset)
        if len(heap) < count:
            heapq.heappush(heap, number)
        elif heap:
            heapq.heappushpop(heap, number)
    return sorted(-number & (1 << OFFSET_BITS) - 1 for number in heap)


def _merged(gold: Examples, questions: Path, offsets: Sequence[int]) -> Iterator[QAExample]:
    yield from gold
    with questions.open("rb") as stream:
        for offset in tqdm(offsets, desc="write", unit="question"):
            stream.seek(offset)
            record = _candidate(stream.readline(), f"{questions}: byte {offset}")
            yield QAExample(
                id=f"{SYNTHETIC}{record['id']}-{record['candidate']}",
                title=record["title"],
                context=record["context"],
                question=record["question"],
                answers=(Answer(record["answer"], record["answer_start"]),),
            )


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (line number, byte offset, line) of each line that is not blank."""
    offset = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield number, offset, line
            offset += len(line)


def _candidate(line: bytes, where: str) -> dict[str, Any]:
    """Parse one line; raise `InputError` unless it is a whole candidate with its answer at its place."""
    record = parse_object(line, where)
    for name, kind in FIELDS.items():
        if name not in record:
            raise InputError(f"{where}: field {name!r} is missing; generate the file again or complete the line")
        if type(record[name]) is not kind:
            raise InputError(f"{where}: field {name!r} must be {kind.__name__}, got {type(record[name]).__name__}")
        if kind is str and not is_unicode(record[name]):
            raise InputError(f"{where}: field {name!r} holds half a character (an unpaired \\ud800 escape)")
    answer, start = record["answer"], record["answer_start"]
    if not answer.strip():
        raise InputError(f"{where}: the answer is empty (id {record['id']})")
    if start < 0 or not record["context"].startswith(answer, start):
        raise InputError(
            f"{where}: the answer {answer!r} is not at answer_start={start} in the context (id {record['id']})"
        )
    return record


if __name__ == "__main__":
    from rl_qg.cli import main

    main(["augment"])
