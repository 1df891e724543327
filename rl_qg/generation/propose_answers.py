"""Candidate answers: passages without questions -> `answers.jsonl`, which `rl-qg generate` reads.

One line for each span, those of a passage best first: `id`, `title`, `context`, `question` (empty), `answers` (one
text and its offset) and `kind`. Passages are read when they are needed, and the lines are in their order. After a kill
the same command continues after the last whole batch.
"""

import hashlib
import json
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from rewards.errors import first_line
from rl_qg.data.layouts import rows as stored_rows
from rl_qg.data.parts import DataPart, Parts, StageRows
from rl_qg.data.passages import Passage, Passages
from rl_qg.generation.answer_rules import VERSION, rule_spans
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.tasks import ANSWER, parse_answers, row_tasks, sentence_rows
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import check_report, file_hash, read_report, report_path, report_value, write_json, writing
from rl_qg.runtime.ranks import from_main
from rl_qg.runtime.resumable_lines import Position, ResumableLines, Work, json_line, note_path
from rl_qg.settings import AnswersSettings
from rl_qg.text.languages import known_code
from rl_qg.text.spans import Span, select_spans
from rl_qg.text.words import occurrences

METHODS = ("rules", "spacy", "extractor", "generator")
Propose = Callable[[Sequence[str]], list[list[Span]]]
BEAMS = 4  # of a generator
MAX_NEW_TOKENS = 64
ROWS = 16  # sentences that are decoded together
ENTITY, CHUNK = 2.0, 1.0  # scores of spaCy's spans


class GeneratedAnswers:
    """Proposes what a generator trained for answers writes. Each sentence of a passage is marked in turn, as in
    training (answer extraction of Ushio et al. 2023, with any number of answers a sentence); the best text of a search
    with `beams` counts, and of a passage at most `limit` spans (None: all). `rows` sentences are decoded together.

    `left_out` counts the answers so far that do not stand in their sentence, or that the longest text has cut.
    """

    def __init__(
        self, generator: CandidateGenerator, limit: int | None, *, beams: int = BEAMS, rows: int = ROWS
    ) -> None:
        if "answers" not in row_tasks(generator.task):
            raise InputError(
                f"the generator was trained with model.task={generator.task}, and cannot propose answers; train one "
                "with model.task=answers or multitask"
            )
        self._generator, self._limit, self._beams, self._rows = generator, limit, beams, rows
        self.left_out = 0
        self.made_by: dict[str, Any] = {"beams": beams}

    def __call__(self, contexts: Sequence[str]) -> list[list[Span]]:
        """For each passage its spans, best first: of likely texts. A text of probability p has the score p."""
        rows = [row for number, context in enumerate(contexts) for row in sentence_rows(str(number), context)]
        found: list[list[Span]] = [[] for _ in contexts]
        for number in range(0, len(rows), self._rows):
            part = rows[number : number + self._rows]
            groups = self._generator.candidates(
                part, self._beams, max_new_tokens=MAX_NEW_TOKENS, top_p=None, temperature=1.0
            )
            for row, (best, *_) in zip(part, groups, strict=True):
                sentence, passage = row.answers[0], int(row.id.partition(":")[0])
                is_cut = best.tokens >= MAX_NEW_TOKENS  # so is what stands after its last separator
                self.left_out += is_cut
                for answer in parse_answers(best.question.rpartition(ANSWER)[0] if is_cut else best.question):
                    places = occurrences(sentence.text, answer)
                    self.left_out += not places
                    for start, end in places[:1]:
                        place = sentence.start + start, sentence.start + end
                        found[passage].append(Span(*place, "generated", math.exp(best.logprob)))
        return [select_spans(text, spans, self._limit) for text, spans in zip(contexts, found, strict=True)]


def load_generated_answers(path: str, limit: int | None, *, device: torch.device) -> GeneratedAnswers:
    if not path:
        raise InputError("answers.generator has no value; give a model trained with model.task=answers or multitask")
    generated = GeneratedAnswers(CandidateGenerator(path, device=device), limit)
    weights = {file.name: file_hash(file) for file in sorted(Path(path).expanduser().glob("*.safetensors"))}
    generated.made_by |= {"generator": weights or path}
    return generated


class SpacyAnswers:
    """Proposes the entities of a spaCy pipeline (its name or folder) and, if it has a parser, its noun chunks; of a
    passage at most `limit` spans (None: all).
    """

    def __init__(self, model: str, limit: int | None) -> None:
        try:
            import spacy
        except ImportError:
            raise InputError(
                "method=spacy: spaCy is not installed; pip install spacy, then python -m spacy download "
                f"{model}, or use method=rules"
            ) from None
        try:
            self._parse: Any = spacy.load(model)
        except (OSError, ValueError) as error:
            raise InputError(
                f"answers.spacy_model={model}: cannot be loaded ({first_line(error)}); install it with "
                f"python -m spacy download {model}, name a folder, or use method=rules"
            ) from None
        meta, parts = self._parse.meta, self._parse.pipe_names
        if not {"ner", "entity_ruler", "span_ruler", "parser"} & set(parts):
            raise InputError(
                f"answers.spacy_model={model}: it finds neither entities nor noun chunks (it has "
                f"{', '.join(parts) or 'no component'}); name another, such as en_core_web_sm"
            )
        self._limit = limit
        pipeline = f"{meta.get('lang')}_{meta.get('name')}-{meta.get('version')}: {', '.join(parts)}"
        self.made_by = {"parser": f"spacy {spacy.__version__}", "pipeline": pipeline}

    def __call__(self, contexts: Sequence[str]) -> list[list[Span]]:
        self._parse.max_length = max(self._parse.max_length, *map(len, contexts))
        parsed = self._parse.pipe(contexts)
        return [select_spans(text, _parts(doc), self._limit) for text, doc in zip(contexts, parsed, strict=True)]


def _parts(doc: Any) -> Iterator[Span]:
    for entity in doc.ents:
        yield Span(entity.start_char, entity.end_char, entity.label_.lower(), ENTITY)
    if doc.has_annotation("DEP"):
        with suppress(NotImplementedError):  # in a language for which spaCy has no noun chunks
            for chunk in doc.noun_chunks:
                if chunk.root.pos_ != "PRON":
                    yield Span(chunk.start_char, chunk.end_char, "chunk", CHUNK)


def propose_answers(
    passages: Passages,
    output: Path,
    *,
    settings: AnswersSettings,
    state: PartialState,
    accept_changed_data: bool = False,
    part: DataPart | None = None,
) -> dict[str, Any]:
    """Write the candidate answers of `passages` and their report, `<output stem>.report.json`, and return the report:
    the passages read, kept and left out by reason, those without a span, the spans by kind, and how many answers the
    `generator` wrote that do not stand in their sentence (after a kill only since then). Of a `part` write
    `part.path(output)` and return its note.

    Every process calls this and works on its own batches; the file is the same as that of a single process.
    """
    propose, made_by = method(settings, state)
    excluded = hashlib.sha256(b"".join(sorted(passages.excluded))).hexdigest() if passages.excluded else ""
    made_by |= {"input": list(passages.sources), "passages": passages.form, "excluded": excluded}
    output = part.path(output) if part else output
    lines = ResumableLines(output, note_path(output), content="answers")
    work = Work[Passage](lines, settings.batch_size, "answers", "passage", _is_about)
    rows = StageRows[Any](part, "answers", passages, attrgetter("context"), work)
    position, counts = from_main(state, partial(_begin, passages, rows, made_by, accept_changed_data))
    not_in_sentence = 0
    if position is not None:
        total = len(rows) if part else counts["kept"]
        rows.write(partial(_lines_of, propose), position, state, total)
        if passages.counts.kept != counts["kept"]:
            raise InputError(f"{', '.join(passages.sources)}: has changed while it was read; run the command again")
        not_in_sentence = sum(gather_object([getattr(propose, "left_out", 0)]))  # only a generator has them
        from_main(state, partial(rows.finish, counts=counts, not_in_sentence=not_in_sentence))
    if part:
        return from_main(state, lines.read_note)
    if counts:
        from_main(state, partial(_report, output, counts, not_in_sentence, made_by))
    return _found(from_main(state, partial(read_report, output, report_line)))


def merge_answers(parts: Parts, output: Path) -> dict[str, Any]:
    """Write the answers of all parts, the note and the report, as one run does; return the report."""
    lines = ResumableLines(output, note_path(output), content="answers")
    made_by = {name: value for name, value in parts.note.items() if name != "sources"}
    check_report(output)
    lines.check(parts.note)
    report_path(output).unlink(missing_ok=True)
    parts.write(lines)
    _report(output, parts.wholes[0]["counts"], sum(one["not_in_sentence"] for one in parts.wholes), made_by)
    return _found(read_report(output, report_line))


def _found(report: dict[str, Any]) -> dict[str, Any]:
    if not report["spans"]:
        made_by = report["settings"]
        raise InputError(
            f"{', '.join(made_by['input'])}: no answer was found in {report['passages']['kept']:,} passages by "
            f"method={made_by['method']}; use another method, or check that the passages are text"
        )
    return report


def report_line(report: Mapping[str, Any]) -> str:
    passages = report["passages"]
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in report["kinds"].items())
    reasons = ("empty", "broken", "malformed", "repeated", "excluded")
    left_out = [f"{name} {passages[name]:,}" for name in reasons if passages.get(name)]
    parts = [
        f"{report['spans']:,} answers ({kinds}) in {passages['kept']:,} of {passages['read']:,} passages",
        f"{report['without_span']:,} of them without any",
        f"left out: {', '.join(left_out)}" if left_out else "",
        f"{report['not_in_sentence']:,} answers cut or not in their sentence" if report.get("not_in_sentence") else "",
    ]
    return "; ".join(filter(None, parts))


def method(settings: AnswersSettings, state: PartialState) -> tuple[Propose, dict[str, Any]]:
    """The function that proposes answers by the method of the settings, and what its proposals depend on."""
    limit = settings.max_per_context
    made_by: dict[str, Any] = {"method": settings.method, "max_per_context": limit, "batch_size": settings.batch_size}
    if settings.method == "rules":
        language = known_code(settings.language)
        made_by |= {"rules": VERSION, "language": settings.language}
        return lambda contexts: [rule_spans(context, limit, language) for context in contexts], made_by
    propose: Any
    if settings.method == "spacy":
        propose = SpacyAnswers(settings.spacy_model, limit)
    elif settings.method == "extractor":
        from rl_qg.readers.answer_extractor import ExtractorAnswers

        least = settings.min_probability
        propose = ExtractorAnswers(settings.extractor, limit, min_probability=least, device=state.device)
    elif settings.method == "generator":
        propose = load_generated_answers(settings.generator, limit, device=state.device)
    else:
        raise InputError(f"answers.method={settings.method} is not one of {', '.join(METHODS)}")
    return propose, made_by | propose.made_by


def _lines_of(propose: Propose, passages: Sequence[Passage]) -> list[list[bytes]]:
    proposed = propose([passage.context for passage in passages])
    return [[_line(passage, span) for span in spans] for passage, spans in zip(passages, proposed, strict=True)]


def _line(passage: Passage, span: Span) -> bytes:
    return json_line(
        {
            "id": f"{passage.id}-{span.start}-{span.end}",
            "title": passage.title,
            "context": passage.context,
            "question": "",
            "answers": [{"text": passage.context[span.start : span.end], "answer_start": span.start}],
            "kind": span.kind,
        }
    )


def _begin(
    passages: Passages, rows: StageRows[Passage], made_by: Mapping[str, Any], accept_changed_data: bool
) -> tuple[Position | None, dict[str, int]]:
    """Check what the file was made with and write its note; return where to continue (None: it is complete), and how
    many passages were read, kept and left out (nothing: the report, which is written last, is there).
    """
    lines, output, sources = rows.lines, rows.lines.output, passages.hashes
    check_report(output)
    changed = lines.check(made_by, sources=sources, accept=accept_changed_data)
    if output.exists() and not changed and report_value(output, "output", "sha256") == file_hash(output):
        return None, {}
    position = rows.position(changed)
    deque(passages, maxlen=0)  # `passages.counts` is complete once all passages are read
    counts = asdict(passages.counts)
    if not counts["kept"]:
        names = ", ".join(f"{name} {count}" for name, count in counts.items() if name != "kept")
        raise InputError(f"{', '.join(passages.sources)}: no usable passage: {names}; check the file")
    lines.write_note({**made_by, "sources": sources, **rows.note})
    report_path(output).unlink(missing_ok=True)
    return position, counts


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
    answered, before = 0, None
    for _, _, record in stored_rows(output):
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
    with writing(report_path(output)):
        write_json(report_path(output), report)
