"""Augmentation in parts (`rl_qg.data.parts`).

A part measures and filters the candidates of its passages, up to the first filter that compares passages, and writes
those that it keeps with their measures; where no such filter follows, only those that the sample of all parts can
hold. The merge reads them in the order of the questions file, applies the other filters, samples, and writes what one
run writes: exactly, since filters of a passage see the same candidates, and the best of all are the best of what each
part holds best. It has as much in memory as one run.
"""

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rl_qg.augmentation import augment
from rl_qg.augmentation.candidates import Candidates, parse_candidate
from rl_qg.augmentation.funnel import Filter, FilterResources, Funnel, MeasuredValues, measures_of, no_metric
from rl_qg.augmentation.row_filters import Empty
from rl_qg.data.examples import examples_hash
from rl_qg.data.formats import existing_file
from rl_qg.data.parts import DataPart, Parts, finish, is_complete, numbered_line
from rl_qg.data.streaming import Examples, stream_examples
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, file_hash, writing
from rl_qg.runtime.ranks import from_main
from rl_qg.runtime.resumable_lines import ResumableLines, json_line, note_path
from rl_qg.scoring.reward_scorer import Reward
from rl_qg.settings import AugmentSettings

OF_EACH_PART = ("uniform", "reward")  # samples of which each part can choose its share


def augment_part(
    questions: Path,
    gold: Examples,
    output: Path,
    part: DataPart,
    *,
    settings: AugmentSettings,
    hotpotqa_context: str,
    state: PartialState | None = None,
    load_metric: Callable[[Mapping[str, Any]], Reward] = no_metric,
) -> dict[str, Any]:
    """Write a part of what `augment` does with these arguments, and return its note."""
    state = state or PartialState(cpu=True)
    filters = augment.build_filters(settings.filters)
    resources = FilterResources(gold, settings.seed, state.device, load_metric)
    measures = measures_of(filters, resources)
    own = _of_one_passage(filters)
    if late := [filter_.name for filter_ in filters[len(own) :] if filter_.name in measures]:
        raise InputError(
            f"part={part}: augment.filters.{late[0]} measures what augment.filters.{filters[len(own)].name} has kept "
            "of all passages, which no part knows; put it first, or augment without part="
        )
    path = part.path(output, "augment")
    lines = ResumableLines(path, note_path(path), content="candidates")

    def begin() -> dict[str, Any] | None:
        augment.check_augmentation(questions, gold, output, settings, measures)
        augment.check_inputs(lines.path, [questions])
        made_by = {
            "settings": {item.name: getattr(settings, item.name) for item in fields(settings)} | {"output": ""},
            "questions": {str(questions): file_hash(questions)},
            "gold": examples_hash(gold),
            "hotpotqa_context": hotpotqa_context,
            "models": {name: dict(measure.made_of) for name, measure in measures.items()},
        }
        made_by = json.loads(json.dumps(made_by))
        lines.check(made_by)
        if is_complete(lines):
            return None
        lines.write_note({**made_by, "command": "augment", "part": str(part)})
        return made_by

    def end(funnel: Funnel, measured: Mapping[str, MeasuredValues]) -> None:
        of_each = len(own) == len(filters) and settings.sampling in OF_EACH_PART
        sampler = augment.SAMPLERS[settings.sampling](settings) if of_each else None
        funnel.read_through(sampler.observe if sampler else None)
        if sampler:
            funnel.candidates.keep_only(sampler.selected())
        with writing(output), atomic_writer(lines.path) as stream:
            for index, _, record in funnel.candidates.read("write"):
                stream.buffer.write(numbered_line(index, json_line(record)))
        finish(
            lines,
            lambda: (),
            rows=funnel.seen,
            of=len(funnel.candidates),
            dropped=funnel.counts,
            noted={filter_.name: filter_.noted for filter_ in own if filter_.noted},
            measured={
                name: {"measured": one.measured, "measure": one.note.get("measure", {})}
                for name, one in measured.items()
            },
        )

    if from_main(state, begin) is not None:
        funnel = Funnel([Empty(), *filters], Candidates(questions, part), resources)
        measured = augment.filtered(funnel, [funnel.filters[0], *own], measures, state)
        from_main(state, partial(end, funnel, measured))
    return from_main(state, lines.read_note)


def merge_augmented(parts: Parts, output: Path) -> dict[str, Any]:
    """Write what one run writes: augmented set, report and data card. The report names no files of measures."""
    note = parts.note
    settings = AugmentSettings(**note["settings"] | {"output": str(output)})
    (questions, noted), *_ = note["questions"].items()
    _check_same(questions, noted, file_hash(existing_file(questions)))
    read = partial(stream_examples, role="train", hotpotqa_context=note["hotpotqa_context"])
    gold: Examples = read(settings.gold) if settings.gold else []
    _check_same(f"gold={settings.gold}", note["gold"], examples_hash(gold))
    augment.check_inputs(output, [questions])
    augment.check_augmentation(Path(questions), gold, output, settings, note["models"])
    filters = augment.build_filters(settings.filters)
    funnel = Funnel([Empty(), *filters], _KeptCandidates(parts), FilterResources(gold, settings.seed))
    own = _of_one_passage(filters)
    for whole in parts.wholes:
        for reason, count in whole["dropped"].items():
            funnel.counts[reason] += count
        for filter_ in own:
            filter_.noted.update(whole["noted"].get(filter_.name, {}))
    for filter_ in filters[len(own) :]:
        funnel.apply(filter_)
    measured = {}
    for name in note["models"]:
        of_parts = [whole["measured"][name] for whole in parts.wholes]
        about: dict[str, Any] = next((one["measure"] for one in of_parts if one["measure"]), {})
        count = sum(one["measured"] for one in of_parts)
        measured[name] = MeasuredValues(array("d"), count, None, {"measure": about})
    return augment.AugmentedOutput(Path(questions), gold, output, settings, measured).write(funnel)


def _check_same(name: str, noted: str, now: str) -> None:
    if noted != now:
        raise InputError(f"{name}: has changed since the parts were made; put the old one back, or make them again")


def _of_one_passage(filters: Sequence[Filter]) -> Sequence[Filter]:
    """The filters before the first that compares passages."""
    return filters[: next((k for k, one in enumerate(filters) if one.compares_passages), len(filters))]


class _KeptCandidates(Candidates):
    """The candidates that parts have kept, with their measures, under their indices in the questions file."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.paths[0])
        self._parts = parts
        self._dropped = bytearray(parts.wholes[0]["of"])

    def read(self, purpose: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
        for index, line in self._parts.lines():
            if not self._dropped[index]:
                where = f"candidate {index}"
                yield index, where, parse_candidate(line, where)
