"""Passages with human questions -> a selector for `select=learned`, as JSON.

    rl-qg train-selector data.train=dev.json model.path=RUN/ce output=selector.json

The pools of the passages are kept beside it, in `<output stem>.pools.jsonl`, which the same command continues after a
kill.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rl_qg.asking.document_output import PASSAGES
from rl_qg.asking.learned_selector import LearnedSelector, train_selector
from rl_qg.asking.models import generator_path, reader_path
from rl_qg.asking.passage_pool import PassagePool
from rl_qg.asking.question_sets import SetGenerator
from rl_qg.data.examples import QAExample, report_limit
from rl_qg.generation.loading import weights_hash
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import from_main
from rl_qg.runtime.resumable_lines import Position, ResumableLines, begins_with, json_line
from rl_qg.settings.asking import TrainSelectorSettings


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

    Raises:
        InputError: no example has a question, or the model asks nothing; the pools were made with other settings.
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
    position = from_main(state, partial(_prepare, lines, contexts, _made_by(generator, settings)))
    lines.write(
        contexts[position.rows :],
        partial(_lines_of, generator, settings),
        position=position,
        total=len(contexts),
        batch_size=PASSAGES,
        state=state,
        title="pools",
        unit="passage",
    )
    learn = partial(_learn, lines, [gold[context] for context in contexts], generator, output)
    selector: LearnedSelector = from_main(state, learn)
    return selector


def _made_by(generator: SetGenerator, settings: TrainSelectorSettings) -> dict[str, Any]:
    folders = [generator_path(generator.name), reader_path(settings.reader), settings.worthiness, settings.types]
    weights = [weights_hash(path) if path else "" for path in folders]
    names = ("reader", "worthiness", "types", "candidates", "seed")
    values = asdict(settings)
    return {**{name: values[name] for name in names}, "model": generator.name, "weights": weights}


def _prepare(lines: ResumableLines, contexts: Sequence[str], made_by: dict[str, Any]) -> Position:
    lines.check(made_by)
    position = lines.position(contexts, _is_about, batch_size=PASSAGES, lines_per_row=1, row_name="passage")
    lines.write_note(made_by)
    return position


def _is_about(context: str, rank: int, line: bytes) -> bool:
    return begins_with(line, json_line({"context": context})[:-2])


def _lines_of(generator: SetGenerator, settings: TrainSelectorSettings, contexts: Sequence[str]) -> list[bytes]:
    return [json_line(pool.to_dict()) for pool in generator.pools(contexts, seed=settings.seed)]


def _learn(
    lines: ResumableLines, gold: Sequence[Sequence[str]], generator: SetGenerator, output: Path
) -> LearnedSelector:
    pools = [PassagePool.from_dict(json.loads(line.text)) for line in lines.lines()]
    selector = replace(train_selector(pools, gold), strategy=generator.strategy, model=generator.name)
    selector.save(output)
    return selector
