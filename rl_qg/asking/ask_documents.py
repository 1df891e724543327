"""Documents -> question-answer pairs, or sets of questions, in a file of a chosen format, and a report beside it.

A document is cut into passages that the model can read. Of each passage a set is made, or pairs, of which the best
`number` of the document are written, those that `QuestionGenerator.ask` gives for its text. What is made is added as
JSON lines, which the same command continues after a kill; but for sets as JSON lines these lie in a hidden file beside
the output until it is written. Each process works on its own batches of passages; the file is that of one process.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count, groupby, islice
from pathlib import Path
from typing import Any, ClassVar

from accelerate import PartialState
from accelerate.utils import gather_object

from rl_qg.asking.documents import Document, TextPassage, with_separators
from rl_qg.asking.exports import AUTO, ENDINGS, Row, export, format_of, pair_of, row_of
from rl_qg.asking.learned_selector import LearnedSelector, train_selector
from rl_qg.asking.models import chosen_reader, generator_path, model_note, reader_path
from rl_qg.asking.pairs import AnswerSpan, AskRequest
from rl_qg.asking.question_generator import QuestionGenerator
from rl_qg.asking.selection import select_pairs
from rl_qg.asking.set_pool import PassagePool
from rl_qg.asking.sets import SetGenerator
from rl_qg.data.examples import QAExample, by_key, report_limit
from rl_qg.generation.loading import weights_hash
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import (
    atomic_writer,
    check_own,
    check_report,
    file_hash,
    read_report,
    report_path,
    report_value,
    write_json,
    writing,
)
from rl_qg.runtime.ranks import from_main
from rl_qg.runtime.resumable_lines import Position, ResumableLines, Work, begins_with, json_line, note_path
from rl_qg.settings import AskSettings
from rl_qg.settings.generation import FOR_PAIRS, FOR_SETS, FOR_TRAIN, FORMATS_OF_SETS, TrainSelectorSettings
from rl_qg.text.words import counted

PASSAGES = 16  # that are asked about together
Generator = QuestionGenerator | SetGenerator
NOT_MADE_BY = ("input", "output", "format", *FOR_TRAIN)  # keys that no row depends on


def ask_documents(
    generator: Generator,
    documents: Sequence[Document],
    output: Path,
    *,
    settings: AskSettings,
    state: PartialState,
    accept_changed_data: bool = False,
) -> dict[str, Any]:
    """Write the pairs, or the sets, of `documents` and their report, `<output stem>.report.json`, and return the
    report: numbers of documents, passages, pairs or questions, passages without any, and what was left out by reason
    (of pairs, after a kill only since then).
    """
    made: type[_DocumentOutput]
    if isinstance(generator, QuestionGenerator):
        made, form = _Pairs, format_of(output.name, settings.format)
    else:
        if settings.strategy != generator.strategy:
            raise InputError(
                f"strategy={settings.strategy}: {generator.name} was trained for {generator.strategy}; give that, or "
                "another model"
            )
        generator.check(settings.number, settings.select)
        made, form = _Sets, set_format(output.name, settings.format)
    return made(generator, documents, output, form, settings, state).write(accept_changed_data)


def report_line(report: Mapping[str, Any]) -> str:
    documents, dropped = counted(report["documents"], "document"), sorted(report["dropped"].items())
    of_passages = f"{counted(report['passages'], 'passage')} in {documents}"
    if "pairs" in report:
        asked, without = f"{counted(report['pairs'], 'pair')} of", report["without_pairs"]
    else:
        asked = f"{counted(report['questions'], 'question')} of {report['pool']:,} that were generated for"
        without = report["without_questions"]
    left_out = ", ".join(f"{reason} {number:,}" for reason, number in dropped)
    told = f"{asked} {of_passages}; {counted(without, 'passage')} without any of them"
    return f"{told}; left out: {left_out}" if left_out else told


@dataclass(frozen=True)
class DocumentPassage:
    """A part of document number `document`, which begins at its character `start`; ids of what is made of it begin
    with `id`. It is asked about `answers`; None: about what is found in it.
    """

    id: str
    title: str
    text: str
    start: int
    document: int
    answers: Sequence[AnswerSpan] | None = None


class _DocumentOutput(ABC):
    content: ClassVar[str]
    lines_per_row: ClassVar[int | None] = None
    chooses: ClassVar[bool]  # among the rows that are made, so that these are in a file of their own

    def __init__(
        self,
        generator: Any,
        documents: Sequence[Document],
        output: Path,
        form: str,
        settings: AskSettings,
        state: PartialState,
    ) -> None:
        self.generator, self.documents, self.settings, self.state = generator, documents, settings, state
        self.output, self.form, self.names = output, form, unique_names(documents)
        self.dropped: Counter[str] = Counter()  # by this process
        self.passages = self.passages_asked()
        self.is_hidden = self.chooses or form != "jsonl"
        lines = output.with_name(f".{output.name}.jsonl") if self.is_hidden else output
        self.lines = self._lines(lines)
        # Only JSON lines have a note of what made them beside them.
        self.finished = self._lines(output) if self.is_hidden and form == "jsonl" else None

    def _lines(self, path: Path) -> ResumableLines:
        return ResumableLines(path, note_path(path), content=self.content)

    @abstractmethod
    def made_by(self) -> dict[str, Any]:
        """What the rows depend on; the same on all processes."""

    @abstractmethod
    def passages_asked(self) -> list[DocumentPassage]: ...

    @abstractmethod
    def rows_of(self, passages: Sequence[DocumentPassage]) -> Iterable[Row]: ...

    @abstractmethod
    def beginning(self, passage: DocumentPassage, rank: int) -> Row:
        """The first fields of row number `rank` of a passage."""

    def chosen(self, rows: Iterable[Row], dropped: Counter[str]) -> list[Row]:
        """Those of the rows that are written; others are counted in `dropped`."""
        return list(rows)

    @abstractmethod
    def counts(self, rows: Sequence[Row], dropped: Mapping[str, int]) -> dict[str, Any]:
        """The numbers of the report; raises `InputError` where there is nothing to write."""

    def write(self, accept_changed_data: bool) -> dict[str, Any]:
        """Add the lines that the file lacks, then write the chosen format and the report, and return the report; of an
        output that is whole its report alone.
        """
        made_by = self.made_by()
        hashes = [hashlib.sha256(document.text.encode()).hexdigest() for document in self.documents]
        sources = dict(zip(self.names, hashes, strict=True))

        def is_about(passage: DocumentPassage, rank: int, line: bytes) -> bool:
            return begins_with(line, json_line(self.beginning(passage, rank))[:-2])

        work = Work(self.lines, PASSAGES, "ask", "passage", is_about, self.lines_per_row)

        def begin() -> Position:
            if self.is_hidden and not self.finished:
                check_own(self.output)
            return work.begin(self.passages, made_by, sources=sources, accept=accept_changed_data)

        def lines_of(passages: Sequence[DocumentPassage]) -> list[bytes]:
            return [json_line(row) for row in self.rows_of(passages)]

        if report := from_main(self.state, partial(self._report_of_whole, made_by, sources, accept_changed_data)):
            return report
        position, total, state = from_main(self.state, begin), len(self.passages), self.state
        work.write(self.passages[position.rows :], lines_of, position=position, total=total, state=state)
        dropped = sum(gather_object([self.dropped]), Counter[str]())
        return from_main(state, partial(self._finish, made_by, sources, dropped))

    def _report_of_whole(
        self, made_by: Mapping[str, Any], sources: Mapping[str, str], accept: bool
    ) -> dict[str, Any] | None:
        """The report of an output that this command has written already; `InputError` where another one has."""
        check_report(self.output)
        if not self.finished or self.finished.check(made_by, sources=sources, accept=accept):
            return None
        if not self.finished.begun or report_value(self.output, "output", "sha256") != file_hash(self.output):
            return None
        self._remove_hidden()  # they are still there where a kill came after the report
        return read_report(self.output, report_line)

    def _finish(self, made_by: Mapping[str, Any], sources: Mapping[str, str], dropped: Counter[str]) -> dict[str, Any]:
        rows = self.chosen((json.loads(line.text) for line in self.lines.lines()), dropped)
        try:
            report = self.counts(rows, dict(+dropped))
        except InputError:
            self._remove_hidden()
            raise
        with writing(self.output):
            if self.finished:
                self.finished.write_note({**made_by, "sources": sources})
            if self.is_hidden:
                with atomic_writer(self.output) as stream:
                    stream.write(export(rows, self.form))
                    write_json(report_path(self.output), {"output": {"path": str(self.output)}})  # ours after a kill
            report |= {**model_note(made_by["model"]), "settings": dict(made_by)}
            report |= {"output": {"path": str(self.output), "sha256": file_hash(self.output)}}
            write_json(report_path(self.output), report)
            self._remove_hidden()
        return report

    def _remove_hidden(self) -> None:
        if self.is_hidden:
            for path in (self.lines.path, note_path(self.lines.path)):
                path.unlink(missing_ok=True)


class _Pairs(_DocumentOutput):
    """The rows are those of `rl_qg.asking.exports.row_of`."""

    content = "pairs"
    chooses = True

    def passages_asked(self) -> list[DocumentPassage]:
        settings, asked = self.settings, []
        way = None if settings.way == AUTO else settings.way
        options = settings.number, settings.language, settings.seed, way, settings.min_score
        self.whole = [self.generator.proposed(AskRequest(one.text, None, *options)) for one in self.documents]
        for number, (name, document, whole) in enumerate(zip(self.names, self.documents, self.whole, strict=True)):
            places = {part.start: place for place, part in enumerate(whole.passages, 1)}
            for part, answers in whole.by_passage():
                identity = f"{name}-{places[part.start]}"
                asked.append(DocumentPassage(identity, document.name, part.text, part.start, number, answers))
            if self.state.is_main_process:
                self.dropped.update(whole.dropped)
        return asked

    def made_by(self) -> dict[str, Any]:
        reader = chosen_reader(self.settings.reader, self.generator.name)
        folders = [reader_path(reader), self.settings.extractor]
        values = {**asdict(self.settings), "reader": reader, "rerank": self.generator.reward_signature}
        return _made_by(self.generator, values, (*NOT_MADE_BY, "strategy", *FOR_SETS), folders)

    def rows_of(self, passages: Sequence[DocumentPassage]) -> Iterable[Row]:
        note = model_note(self.generator.name)
        drafts = [
            self.whole[one.document].of_passage(number, TextPassage(one.text, one.start), one.answers)
            for number, one in enumerate(passages)
        ]
        self.generator.complete(drafts)
        for passage, draft in zip(passages, drafts, strict=True):
            pairs = draft.good_pairs()
            self.dropped.update(pairs.dropped)
            about: Row = {"title": passage.title, "context": passage.text, "passage_start": passage.start}
            for rank, pair in enumerate(pairs, 1):
                inside = replace(pair, answer_start=pair.answer_start - passage.start)
                yield row_of(inside, identity=f"{passage.id}-{rank}", **about) | note

    def beginning(self, passage: DocumentPassage, rank: int) -> Row:
        return {"id": f"{passage.id}-{rank + 1}", "title": passage.title}

    def chosen(self, rows: Iterable[Row], dropped: Counter[str]) -> list[Row]:
        """The best rows of each document, best first, as `QuestionGenerator.ask` chooses among its pairs."""
        document_of, found = {passage.id: passage.document for passage in self.passages}, list[Row]()
        for number, group in groupby(rows, key=lambda row: document_of[row["id"].rpartition("-")[0]]):
            made = [(pair_of(row), row) for row in group]
            made.sort(key=lambda one: (-self.generator.rank(one[0]), one[0].answer_start, one[0].answer_end))
            text = with_separators(self.documents[number].text)
            row_at = {(pair.answer_start, pair.answer_end, pair.question): row for pair, row in made}
            for pair in select_pairs(text, [pair for pair, _ in made], self.settings.number, dropped=dropped):
                found.append(row_at[pair.answer_start, pair.answer_end, pair.question] | {"reason": pair.reason})
        return found

    def counts(self, rows: Sequence[Row], dropped: Mapping[str, int]) -> dict[str, Any]:
        passages = sum(len(whole.passages) for whole in self.whole)
        if not rows:
            why = ", ".join(f"{reason} {number}" for reason, number in dropped.items()) or "no answer to ask about"
            raise InputError(
                f"no pair was found in {counted(passages, 'passage')} ({why}); "
                "lower min_score, or give other documents or another model"
            )
        asked = len({row["id"].rpartition("-")[0] for row in rows})
        known = {"documents": len(self.documents), "passages": passages, "dropped": dropped}
        return {**known, "pairs": len(rows), "without_pairs": passages - asked}


class _Sets(_DocumentOutput):
    """One row a passage: `id`, `title`, `context`, `start` (of the passage in its document), `strategy`, `questions`
    (each with `question`, `start` and `end` of its unit in the passage, `type`, `score`, `scores`, `rank`, `reason`),
    `pool`, `reason`, `dropped`.
    """

    content = "sets"
    lines_per_row = 1
    chooses = False

    def passages_asked(self) -> list[DocumentPassage]:
        return [
            DocumentPassage(f"{name}-{place}", document.name, part.text, part.start, number)
            for number, (name, document) in enumerate(zip(self.names, self.documents, strict=True))
            for place, part in enumerate(self.generator.passages(document.text), 1)
        ]

    def made_by(self) -> dict[str, Any]:
        settings = self.settings
        reader = chosen_reader(settings.reader, self.generator.name)
        folders = [reader_path(reader), settings.worthiness, settings.types, settings.similarity]
        made_by = _made_by(self.generator, asdict(settings), (*NOT_MADE_BY, *FOR_PAIRS), folders)
        selector = file_hash(Path(settings.selector)) if settings.selector else ""
        return {**made_by, "weights": [*made_by["weights"], selector]}

    def rows_of(self, passages: Sequence[DocumentPassage]) -> Iterable[Row]:
        settings, texts = self.settings, [passage.text for passage in passages]
        sets = self.generator.sets(texts, number=settings.number, select=settings.select, seed=settings.seed)
        for passage, found in zip(passages, sets, strict=True):
            place = {"start": passage.start, "strategy": self.generator.strategy}
            yield {**self.beginning(passage, 0), **place, **found.to_dict()}

    def beginning(self, passage: DocumentPassage, rank: int) -> Row:
        return {"id": passage.id, "title": passage.title, "context": passage.text}

    def counts(self, rows: Sequence[Row], dropped: Mapping[str, int]) -> dict[str, Any]:
        if not any(row["questions"] for row in rows):
            why = "; ".join(dict.fromkeys(row["reason"] for row in rows)) or "there is no passage"
            raise InputError(f"no question was found in {counted(len(rows), 'passage')} ({why}); give another model")
        return {
            "documents": len(self.documents),
            "passages": len(rows),
            "questions": sum(len(row["questions"]) for row in rows),
            "without_questions": sum(not row["questions"] for row in rows),
            "pool": sum(row["pool"] for row in rows),
            "dropped": dict(sum((Counter(row["dropped"]) for row in rows), Counter[str]())),
        }


def set_format(name: str, chosen: str) -> str:
    form = format_of(name, chosen)
    if form not in FORMATS_OF_SETS:
        endings = ", ".join(ending for ending, kind in ENDINGS.items() if kind in FORMATS_OF_SETS)
        raise InputError(
            f"output={name}: {form} needs answers, and sets have none; name a file that ends in {endings}"
        )
    return form


def _made_by(
    generator: Generator, values: Mapping[str, Any], left_out: Sequence[str], folders: Sequence[str]
) -> dict[str, Any]:
    """The settings with the model and the hashes of what is loaded from the folders, where they are given."""
    chosen = {name: value for name, value in values.items() if name not in left_out}
    weights = [weights_hash(path) if path else "" for path in (generator_path(generator.name), *folders)]
    form = (values.get("model") or {}).get("format")
    return {**chosen, "model": generator.name, "weights": weights, **({"model_format": form} if form else {})}


def unique_names(documents: Sequence[Document]) -> list[str]:
    """A name for each document: its own, and of several with one name the later ones with the first free number."""
    names = dict.fromkeys(document.name for document in documents)
    taken, found = set(names), []
    for document in documents:
        free = (f"{document.name}~{number}" for number in count(2))
        name = document.name if document.name in names else next(one for one in free if one not in taken)
        names.pop(document.name, None)
        taken.add(name)
        found.append(name)
    return found


def train_set_selector(
    generator: SetGenerator,
    examples: Sequence[QAExample],
    output: Path,
    *,
    settings: TrainSelectorSettings,
    state: PartialState,
) -> LearnedSelector:
    """Generate the pools of the passages of `examples`, learn to select from them, and write the selector to `output`.

    `examples` are human questions, of passages that the generator was not trained on: on those it is too sure. All
    processes call this.
    """
    gold = by_key((example.context, example.question) for example in examples if example.question)
    limit = settings.max_passages
    contexts = list(islice(gold, limit))
    report_limit("train_selector.max_passages", limit, len(contexts), len(gold), "passages with questions are used")
    if not contexts:
        raise InputError("data.train: no example has a question, and the selector learns from those of people")
    path = output.with_name(f"{output.stem}.pools.jsonl")
    lines = ResumableLines(path, path.with_suffix(".settings.json"), content="pools")
    folders = [reader_path(chosen_reader(settings.reader, generator.name)), settings.worthiness, settings.types]
    given = asdict(settings)
    values = {name: given[name] for name in ("reader", "worthiness", "types", "candidates", "seed", "model")}

    def is_about(context: str, rank: int, line: bytes) -> bool:
        return begins_with(line, json_line({"context": context})[:-2])

    work = Work[str](lines, PASSAGES, "pools", "passage", is_about, lines_per_row=1)
    position = from_main(state, partial(work.begin, contexts, _made_by(generator, values, (), folders)))

    def lines_of(batch: Sequence[str]) -> list[bytes]:
        return [json_line(pool.to_dict()) for pool in generator.pools(batch, seed=settings.seed)]

    work.write(contexts[position.rows :], lines_of, position=position, total=len(contexts), state=state)

    def learn() -> LearnedSelector:
        pools = [PassagePool.from_dict(json.loads(line.text)) for line in lines.lines()]
        learned = train_selector(pools, [gold[context] for context in contexts])
        learned = replace(learned, strategy=generator.strategy, model=generator.name)
        learned.save(output)
        return learned

    return from_main(state, learn)
