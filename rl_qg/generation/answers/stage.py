"""Candidate answers: passages without questions -> `answers.jsonl`, which `rl-qg generate` reads.

    rl-qg answers contexts.txt output=answers.jsonl

One line for each span, those of a passage best first: `id`, `title`, `context`, `question` (empty), `answers` (one
text and its offset) and `kind`. Passages are read when they are needed, and the lines are in their order. After a kill
the same command continues after the last whole batch.
"""

import hashlib
import json
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object

from rl_qg.data.passages import Passage, Passages
from rl_qg.generation.answers.rules import VERSION, rule_spans
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.json_files import read_json, write_json
from rl_qg.runtime.output_reports import check_report, report_path, report_value
from rl_qg.runtime.parallel_writer import cannot_write
from rl_qg.runtime.processes import from_main
from rl_qg.runtime.resumable_lines import Position, ResumableLines, json_line
from rl_qg.settings import AnswersSettings
from rl_qg.text.languages import AUTO, LANGUAGES, OTHER, code_of
from rl_qg.text.spans import Span

log = logging.getLogger(__name__)

METHODS = ("rules", "spacy", "extractor", "generator")
Propose = Callable[[Sequence[str]], list[list[Span]]]


def propose_answers(
    passages: Passages,
    output: Path,
    *,
    settings: AnswersSettings,
    state: PartialState,
    accept_changed_data: bool = False,
) -> dict[str, Any]:
    """Write the candidate answers of `passages` and their report, `<output stem>.report.json`, and return the report:
    the passages read, kept and left out by reason, those without a span, the spans by kind, and how many answers the
    `generator` wrote that do not stand in their sentence (after a kill only since then).

    Every process calls this and works on its own batches; the file is the same as that of a single process.

    Raises:
        InputError: the method is not available; no answer is found; `output` holds answers proposed with other
            settings or was not made by this command; a source has changed since it was begun, unless
            `accept_changed_data`; there is no usable passage; the disk is full.
    """
    propose, made_by = method(settings, state)
    made_by |= {"input": list(passages.sources), "passages": passages.form, "excluded": _digest(passages.excluded)}
    lines = ResumableLines(output, output.with_name(output.name + ".settings.json"), content="answers")
    position, counts = from_main(
        state, partial(_prepare, lines, passages, made_by, settings.batch_size, accept_changed_data)
    )
    if position is not None:
        lines.write(
            islice(passages, position.rows, None),
            partial(_lines_of, propose),
            position=position,
            total=counts["kept"],
            batch_size=settings.batch_size,
            state=state,
            title="answers",
            unit="passage",
        )
        if passages.counts.kept != counts["kept"]:
            raise InputError(f"{', '.join(passages.sources)}: has changed while it was read; run the command again")
        own = [getattr(propose, "left_out", 0)]  # of this process; only a generator has them
        not_in_sentence = sum(gather_object(own) if state.num_processes > 1 else own)
        from_main(state, partial(_report, output, counts, not_in_sentence, made_by))
    report: dict[str, Any] = from_main(state, partial(read_json, report_path(output)))
    if not report["spans"]:
        raise InputError(
            f"{', '.join(passages.sources)}: no answer was found in {report['passages']['kept']:,} passages by "
            f"method={settings.method}; use another method, or check that the passages are text"
        )
    return report


def report_line(report: Mapping[str, Any]) -> str:
    """The numbers of the report, as one line for the log."""
    passages = report["passages"]
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in report["kinds"].items())
    reasons = ("empty", "broken", "malformed", "repeated", "excluded")
    left_out = [f"{name} {passages[name]:,}" for name in reasons if passages.get(name)]
    parts = [
        f"{report['spans']:,} answers ({kinds}) in {passages['kept']:,} of {passages['read']:,} passages",
        f"{report['without_span']:,} of them without any",
        *([f"left out: {', '.join(left_out)}"] if left_out else []),
        *([f"{report['not_in_sentence']:,} answers not in their sentence"] if report.get("not_in_sentence") else []),
    ]
    return "; ".join(parts)


def method(settings: AnswersSettings, state: PartialState) -> tuple[Propose, dict[str, Any]]:
    """The function that proposes answers by the method of the settings, and the settings that its proposals depend on.

    Raises:
        InputError: the method is unknown or not available.
    """
    limit = settings.max_per_context
    made_by: dict[str, Any] = {"method": settings.method, "max_per_context": limit, "batch_size": settings.batch_size}
    if settings.method == "rules":
        language = code_of(settings.language)
        made_by |= {"rules": VERSION, "language": settings.language}
        if language not in (AUTO, OTHER, *LANGUAGES):
            log.warning("language=%s: its rules are not known; those for any language alone are used", language)
        return lambda contexts: [rule_spans(context, limit, language) for context in contexts], made_by
    if settings.method == "spacy":
        from rl_qg.generation.answers.spacy_parser import SpacyAnswers

        parser = SpacyAnswers(settings.spacy_model, limit)
        return parser, made_by | parser.made_by
    if settings.method == "extractor":
        from rl_qg.generation.answers.extractor import ExtractorAnswers

        extractor = ExtractorAnswers(
            settings.extractor, limit, min_probability=settings.min_probability, device=state.device
        )
        return extractor, made_by | extractor.made_by
    if settings.method == "generator":
        from rl_qg.generation.answers.generated import load_generated_answers

        generated = load_generated_answers(settings.generator, limit, device=state.device)
        return generated, made_by | generated.made_by
    raise InputError(f"answers.method={settings.method} is not one of {', '.join(METHODS)}")


def _digest(keys: Any) -> str:
    return hashlib.sha256(b"".join(sorted(keys))).hexdigest() if keys else ""


def _lines_of(propose: Propose, passages: Sequence[Passage]) -> list[bytes]:
    return [
        json_line(
            {
                "id": f"{passage.id}-{span.start}-{span.end}",
                "title": passage.title,
                "context": passage.context,
                "question": "",
                "answers": [{"text": passage.context[span.start : span.end], "answer_start": span.start}],
                "kind": span.kind,
            }
        )
        for passage, spans in zip(passages, propose([passage.context for passage in passages]), strict=True)
        for span in spans
    ]


def _prepare(
    lines: ResumableLines, passages: Passages, made_by: Mapping[str, Any], batch_size: int, accept_changed_data: bool
) -> tuple[Position | None, dict[str, int]]:
    """Check what the file was made with and write its note; return where to continue (None: it is complete), and how
    many passages were read, kept and left out.
    """
    check_report(lines.path)
    sources = passages.hashes
    other_sources = lines.check(made_by, sources=sources, accept=accept_changed_data)
    if lines.begun and not other_sources and _is_complete(lines.path):
        return None, {}
    rows = iter(passages)
    position = lines.position(rows, _is_about, batch_size=batch_size, row_name="passage")
    deque(rows, maxlen=0)  # `passages.counts` is complete once all passages are read
    counts = asdict(passages.counts)
    if not counts["kept"]:
        names = ", ".join(f"{name} {count}" for name, count in counts.items() if name != "kept")
        raise InputError(f"{', '.join(passages.sources)}: no usable passage: {names}; check the file")
    lines.write_note({**made_by, "sources": sources})
    report_path(lines.path).unlink(missing_ok=True)
    return position, counts


def _is_complete(output: Path) -> bool:
    """Whether the report, which is written last, is that of this file."""
    return bool(report_value(output, "output", "sha256") == file_hash(output))


def _is_about(passage: Passage, _: int, line: bytes) -> bool:
    """Whether a line is about a passage, which a line that was cut off does not tell."""
    if not line.endswith(b"\n"):
        return True
    try:
        return bool(json.loads(line)["context"] == passage.context)
    except (ValueError, KeyError, TypeError):
        return False


def _report(output: Path, counts: Mapping[str, int], not_in_sentence: int, made_by: Mapping[str, Any]) -> None:
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
        "not_in_sentence": not_in_sentence,
        "settings": dict(made_by),
        "output": {"path": str(output), "sha256": file_hash(output)},
    }
    try:
        write_json(report_path(output), report)
    except OSError as error:
        raise cannot_write(report_path(output), error) from None
