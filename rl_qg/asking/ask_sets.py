"""Sets of questions in files: of documents, for people; of passages with human questions, to learn a selection.

rl-qg ask passages.txt strategy=sentence_one2many number=auto output=sets.jsonl model.path=RUN/scst
rl-qg train-selector data.train=dev.json model.path=RUN/ce output=selector.json
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rl_qg.asking.ask_documents import PASSAGES, DocumentOutput, DocumentPassage, left_out_part, passages_of
from rl_qg.asking.documents import ENDINGS, Document, Row, export, format_of, sets_as_csv
from rl_qg.asking.learned_selector import LearnedSelector, train_selector
from rl_qg.asking.models import generator_path, reader_path
from rl_qg.asking.set_pool import PassagePool
from rl_qg.asking.sets import SetGenerator
from rl_qg.data.examples import QAExample, report_limit
from rl_qg.generation.loading import weights_hash
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash
from rl_qg.runtime.processes import from_main
from rl_qg.runtime.resumable_lines import ResumableLines, Work, begins_with, json_line
from rl_qg.settings import AskSettings
from rl_qg.settings.generation import FOR_PAIRS, WITHOUT_ANSWERS, TrainSelectorSettings
from rl_qg.text.words import counted

# Documents -> a set of questions for each passage, as JSON lines, JSON or CSV, and a report beside it.
#
# One line a passage: `id`, `title`, `context`, `start` (of the passage in its document), `strategy`, `questions` (each
# with `question`, `start` and `end` of its unit in the passage, `type`, `score`, `scores`, `rank`, `reason`), `pool`,
# `reason`, `dropped`.


NOT_MADE_BY = ("input", "output", "format", "granularity", "mode", "order", *FOR_PAIRS)


def ask_sets(
    generator: SetGenerator,
    documents: Sequence[Document],
    output: Path,
    *,
    settings: AskSettings,
    state: PartialState,
    accept_changed_data: bool = False,
) -> dict[str, Any]:
    """Write the sets of `documents` and their report, `<output stem>.report.json`, and return the report: numbers of
    documents, passages, questions, passages without any, questions that were generated, and what was left out by
    reason.
    """
    if settings.strategy != generator.strategy:
        raise InputError(
            f"strategy={settings.strategy}: {generator.name} was trained for {generator.strategy}; give that, or "
            "another model"
        )
    generator.check(settings.number, settings.select)
    form = set_format(output.name, settings.format)
    made = DocumentOutput(output, form, "sets", _made_by(generator, settings))
    made.write(
        documents,
        passages_of(generator, documents),
        partial(_lines_of, generator, settings),
        _is_about,
        state=state,
        accept_changed_data=accept_changed_data,
        lines_per_row=1,
    )
    return made.finish(
        state, partial(_counts, len(documents)), sets_as_csv if form == "csv" else partial(export, form=form)
    )


def set_format(name: str, chosen: str) -> str:
    """The format of an output of sets."""
    form = format_of(name, chosen)
    if form not in WITHOUT_ANSWERS:
        endings = ", ".join(ending for ending, kind in ENDINGS.items() if kind in WITHOUT_ANSWERS)
        raise InputError(
            f"output={name}: {form} needs answers, and sets have none; name a file that ends in {endings}"
        )
    return form


def set_report_line(report: Mapping[str, Any]) -> str:
    parts = [
        f"{counted(report['questions'], 'question')} of {report['pool']:,} that were generated for "
        f"{counted(report['passages'], 'passage')} in {counted(report['documents'], 'document')}",
        f"{counted(report['without_questions'], 'passage')} without any",
        *left_out_part(report),
    ]
    return "; ".join(parts)


def _made_by(generator: SetGenerator, settings: AskSettings) -> dict[str, Any]:
    chosen = {name: value for name, value in asdict(settings).items() if name not in NOT_MADE_BY}
    folders = (settings.worthiness, settings.types, settings.similarity)
    paths = [generator_path(generator.name), reader_path(settings.reader), *folders]
    hashes = [weights_hash(path) if path else "" for path in paths]
    selector = file_hash(Path(settings.selector)) if settings.selector else ""
    return {**chosen, "model": generator.name, "weights": [*hashes, selector]}


def _is_about(passage: DocumentPassage, rank: int, line: bytes) -> bool:
    return begins_with(line, json_line({"id": passage.id, "title": passage.title, "context": passage.text})[:-2])


def _lines_of(generator: SetGenerator, settings: AskSettings, passages: Sequence[DocumentPassage]) -> list[bytes]:
    sets = generator.sets(
        [passage.text for passage in passages], number=settings.number, select=settings.select, seed=settings.seed
    )
    rows = []
    for passage, found in zip(passages, sets, strict=True):
        place = {"start": passage.start, "strategy": generator.strategy}
        rows.append({"id": passage.id, "title": passage.title, "context": passage.text, **place, **found.to_dict()})
    return [json_line(row) for row in rows]


def _counts(documents: int, rows: Sequence[Row]) -> dict[str, Any]:
    if not any(row["questions"] for row in rows):
        why = "; ".join(dict.fromkeys(row["reason"] for row in rows)) or "there is no passage"
        raise InputError(f"no question was found in {counted(len(rows), 'passage')} ({why}); give another model")
    return {
        "documents": documents,
        "passages": len(rows),
        "questions": sum(len(row["questions"]) for row in rows),
        "without_questions": sum(not row["questions"] for row in rows),
        "pool": sum(row["pool"] for row in rows),
        "dropped": dict(sum((Counter(row["dropped"]) for row in rows), Counter[str]())),
    }


def train_set_selector(
    generator: SetGenerator,
    examples: Sequence[QAExample],
    output: Path,
    *,
    settings: TrainSelectorSettings,
    state: PartialState,
) -> LearnedSelector:
    """Generate the pools of the passages of `examples`, learn to select from them, and write the selector.

    Args:
        generator: of any strategy.
        examples: human questions, of passages that the generator was not trained on: on those it is too sure.
        output: the file to write.
        settings: how pools are made.
        state: the processes; all of them call this.
    """
    gold: dict[str, list[str]] = {}
    for example in examples:
        if example.question:
            gold.setdefault(example.context, []).append(example.question)
    limit = settings.max_passages
    contexts = list(islice(gold, limit))
    report_limit("train_selector.max_passages", limit, len(contexts), len(gold), "passages with questions are used")
    if not contexts:
        raise InputError("data.train: no example has a question, and the selector learns from those of people")
    lines = ResumableLines(
        output.with_name(f"{output.stem}.pools.jsonl"),
        output.with_name(f"{output.stem}.pools.settings.json"),
        content="pools",
    )
    work = Work[str](lines, PASSAGES, "pools", "passage", _is_pool_of, lines_per_row=1)
    position = from_main(state, partial(work.begin, contexts, _pools_made_by(generator, settings)))

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


def _pools_made_by(generator: SetGenerator, settings: TrainSelectorSettings) -> dict[str, Any]:
    folders = [generator_path(generator.name), reader_path(settings.reader), settings.worthiness, settings.types]
    weights = [weights_hash(path) if path else "" for path in folders]
    names = ("reader", "worthiness", "types", "candidates", "seed")
    values = asdict(settings)
    return {**{name: values[name] for name in names}, "model": generator.name, "weights": weights}


def _is_pool_of(context: str, rank: int, line: bytes) -> bool:
    return begins_with(line, json_line({"context": context})[:-2])
