"""Candidate answers: passages without questions -> `answers.jsonl`, which `rl-qg generate` reads.

    rl-qg answers contexts.txt output=answers.jsonl

One line for each span, those of a passage best first: `id`, `title`, `context`, `question` (empty), `answers` (one
text and its offset) and `kind`. Passages are read when they are needed and the file grows in their order; after a kill
the same command goes on behind the last whole batch.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from accelerate import PartialState
from tqdm import tqdm

from rl_qg.data.passages import Passage, Passages
from rl_qg.generation.answers.rules import VERSION, rule_spans
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import check_unchanged, file_hash
from rl_qg.runtime.json_files import read_json, write_json
from rl_qg.runtime.output_reports import check_report, report_path, reported
from rl_qg.runtime.parallel_writer import cannot_write, write_lines
from rl_qg.runtime.processes import from_main
from rl_qg.settings import AnswersSettings
from rl_qg.text.spans import Span

METHODS = ("rules", "spacy", "extractor")
Propose = Callable[[Sequence[str]], list[list[Span]]]
log = logging.getLogger(__name__)


def propose_answers(
    passages: Passages,
    output: Path,
    *,
    settings: AnswersSettings,
    state: PartialState,
    accept_changed_data: bool = False,
) -> dict[str, Any]:
    """Write the candidate answers of `passages` and return the report, which stands beside them as
    `<output stem>.report.json`: passages read, kept and left out by reason, those without a span, spans by kind.

    Every process calls this; each works on batches of its own, and the file is that of a single one.

    Raises:
        InputError: the method cannot be had; `output` holds answers proposed otherwise or is not ours; a source has
            changed since it was begun, unless `accept_changed_data`; there is no usable passage; the disk is full.
    """
    propose, made_by = method(settings, state)
    made_by |= {"input": list(passages.sources), "passages": passages.form, "excluded": _digest(passages.excluded)}
    standing, counts = from_main(
        state, lambda: _resume(output, passages, made_by, settings.batch_size, accept_changed_data)
    )
    if standing is not None:
        done, keep = standing
        total = counts["kept"]
        with tqdm(total=total, initial=done, desc="answers", unit="passage", disable=not state.is_main_process) as bar:
            write_lines(
                islice(passages, done, None),
                lambda batch: _lines(batch, propose),
                output,
                keep=keep,
                batch_size=settings.batch_size,
                state=state,
                advance=bar.update,
            )
            if passages.counts.kept != total:
                raise InputError(
                    f"{', '.join(passages.sources)}: has changed while it was read; run the command again"
                )
        from_main(state, lambda: _report(output, counts, made_by))
    report: dict[str, Any] = from_main(state, lambda: read_json(report_path(output)))
    return report


def report_line(report: Mapping[str, Any]) -> str:
    """What was proposed and left out, as one line for the log."""
    passages = report["passages"]
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in report["kinds"].items())
    left = [f"{name} {passages[name]:,}" for name in ("empty", "broken", "repeated", "excluded") if passages[name]]
    parts = [
        f"{report['spans']:,} answers ({kinds}) in {passages['kept']:,} of {passages['read']:,} passages",
        f"{report['without_span']:,} of them without any",
        *([f"left out: {', '.join(left)}"] if left else []),
    ]
    return "; ".join(parts)


def method(settings: AnswersSettings, state: PartialState) -> tuple[Propose, dict[str, Any]]:
    """What proposes answers as the settings say, and what its proposals hang on.

    Raises:
        InputError: no such method, or it cannot be had.
    """
    limit = settings.max_per_context
    made_by: dict[str, Any] = {"method": settings.method, "max_per_context": limit, "batch_size": settings.batch_size}
    if settings.method == "rules":
        return lambda contexts: [rule_spans(context, limit) for context in contexts], made_by | {"rules": VERSION}
    if settings.method == "spacy":
        from rl_qg.generation.answers.parser import ParserAnswers

        parser = ParserAnswers(settings.spacy_model, limit)
        return parser, made_by | parser.made_by
    if settings.method == "extractor":
        from rl_qg.generation.answers.extractor import ExtractorAnswers

        extractor = ExtractorAnswers(
            settings.extractor, limit, min_probability=settings.min_probability, device=state.device
        )
        return extractor, made_by | extractor.made_by
    raise InputError(f"answers.method={settings.method} is not one of {', '.join(METHODS)}")


def _digest(keys: Any) -> str:
    return hashlib.sha256(b"".join(sorted(keys))).hexdigest() if keys else ""


def _lines(passages: Sequence[Passage], propose: Propose) -> list[bytes]:
    lines = []
    for passage, spans in zip(passages, propose([passage.context for passage in passages]), strict=True):
        for span in spans:
            text = passage.context[span.start : span.end]
            record = {
                "id": f"{passage.id}-{span.start}-{span.end}",
                "title": passage.title,
                "context": passage.context,
                "question": "",
                "answers": [{"text": text, "answer_start": span.start}],
                "kind": span.kind,
            }
            lines.append(f"{json.dumps(record, ensure_ascii=False)}\n".encode())
    return lines


# --- Going on ---


def _resume(
    output: Path, passages: Passages, made_by: Mapping[str, Any], batch_size: int, accept_changed_data: bool
) -> tuple[tuple[int, int] | None, dict[str, int]]:
    """Return how many passages are done and the bytes of their lines (None: all of it is done), and what reading
    counted; note beside `output` what makes it.
    """
    check_report(output)
    note = output.with_name(output.name + ".settings.json")
    begun = output.exists()
    if begun and not note.exists():
        raise InputError(
            f"output={output}: the file exists and was not made by this command; name another or delete it"
        )
    earlier = read_json(note) if begun else {}
    if changed := [key for key, value in made_by.items() if begun and earlier.get(key) != value]:
        raise InputError(
            f"output={output}: holds answers proposed with other settings ({', '.join(changed)}); name another file "
            "or delete it"
        )
    sources = passages.hashes
    others = check_unchanged(earlier.get("sources", {}), sources, output, accept=accept_changed_data)
    if begun and not others and _is_complete(output):
        return None, {}
    standing = _standing(output, passages, batch_size)
    counts = asdict(passages.counts)
    if not counts["kept"]:
        raise InputError(f"{', '.join(passages.sources)}: no usable passage: {_told(counts)}; check the file")
    if standing.foreign:
        raise InputError(
            f"output={output}: line {standing.foreign} is about no passage in its place; name another "
            "file or delete it"
        )
    try:
        report_path(output).unlink(missing_ok=True)
        write_json(note, {**made_by, "sources": sources})
    except OSError as error:
        raise cannot_write(output, error) from None
    if standing.done:
        log.info("answers: %d of %d passages are in %s already", standing.done, counts["kept"], output)
    return (standing.done, standing.size), counts


def _is_complete(output: Path) -> bool:
    """The report comes last, and knows the file."""
    return bool(reported(output, "output", "sha256") == file_hash(output))


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if name != "kept")


@dataclass
class _Standing:
    """How far a file has come: whole batches of `done` passages in `size` bytes; `foreign` is its first line that is
    about no passage in its place.
    """

    done: int = 0
    size: int = 0
    foreign: int = 0


def _standing(output: Path, passages: Passages, batch_size: int) -> _Standing:
    """Read the file and the passages side by side. A passage is known to be whole once lines of a later one follow:
    one without spans leaves none.
    """
    found = _Standing()
    groups = _groups(output)
    pending = next(groups, None)
    for place, passage in enumerate(passages):
        if pending is not None:
            if place % batch_size == 0:
                found.done, found.size = place, pending[1]
            if passage.context == pending[0]:
                pending = next(groups, None)
    if pending is not None:
        found.foreign = pending[2]
    return found


def _groups(output: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the context, first byte and line number of each run of lines about one passage, up to the first line that
    a kill tore.
    """

    def lines() -> Iterator[tuple[str, int, int]]:
        offset = 0
        with output.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    context = json.loads(line)["context"]
                except (ValueError, KeyError, TypeError):
                    return
                yield context, offset, number
                offset += len(line)

    if output.exists():
        for _, group in groupby(lines(), key=lambda line: line[0]):
            yield next(group)


def _report(output: Path, counts: Mapping[str, int], made_by: Mapping[str, Any]) -> None:
    kinds: Counter[str] = Counter()
    answered = 0
    before = None
    with output.open("rb") as stream:
        for line in stream:
            record = json.loads(line)
            kinds[record["kind"]] += 1
            answered += record["context"] != before
            before = record["context"]
    report = {
        "passages": dict(counts),
        "without_span": counts["kept"] - answered,
        "spans": kinds.total(),
        "kinds": dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
        "settings": dict(made_by),
        "output": {"path": str(output), "sha256": file_hash(output)},
    }
    try:
        write_json(report_path(output), report)
    except OSError as error:
        raise cannot_write(report_path(output), error) from None
