"""Augmentation: filter the generated questions, sample some of those kept, and add them to the human ones.

    rl-qg augment questions=questions.jsonl gold=train.json output=augmented.json num_samples=90000
    rl-qg augment filters=strict filters.round_trip.reader=RUN/qa/gold …

The questions are read line by line: once for all rules, once more for each filter that sees all candidates before it
decides, and once to write; the human examples as their source is read. In memory stand hashes of both, and numbers.
The sample hangs on the seed and on what the lines say, not on their order; only of candidates that repeat one another,
the one that stands first is taken. Models measure what has come so far, shared by all processes, into files that a
killed command goes on with and later ones read (`rl_qg.augmentation.measures`); the rest is the main process's work.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from accelerate import PartialState

from rl_qg.augmentation.augmented_files import (
    SYNTHETIC,
    AugmentedRow,
    check_output,
    synthetic_row,
    write_augmented,
)
from rl_qg.augmentation.candidates import Candidates
from rl_qg.augmentation.data_card import card_path, check_dataset_name, publish, write_data_card
from rl_qg.augmentation.funnel import FilterResources, Funnel, no_metric
from rl_qg.augmentation.measures import MeasuredValues, measure_candidates
from rl_qg.augmentation.registry import build_filters
from rl_qg.augmentation.row_filters import Empty
from rl_qg.augmentation.sampling import SAMPLERS
from rl_qg.data.examples import examples_hash
from rl_qg.data.streaming import Examples
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import check_unchanged, file_hash
from rl_qg.runtime.json_files import write_json
from rl_qg.runtime.output_reports import check_apart, check_report, report_path, reported
from rl_qg.runtime.processes import from_main
from rl_qg.settings import AugmentSettings


def augment(
    questions: str | Path,
    gold: Examples,
    output: str | Path,
    *,
    settings: AugmentSettings,
    state: PartialState | None = None,
    load_metric: Callable[[Mapping[str, Any]], Reward] = no_metric,
) -> dict[str, Any]:
    """Write `output` (see `rl_qg.augmentation.augmented_files`: gold first, then the sampled candidates, as `synthetic-…`).

    Beside it stand the report that is returned, `<output stem>.report.json` (what came in, what each filter dropped,
    what was kept and sampled, the settings, and the hashes of what was read), and `<output stem>.card.md`, its card.
    All kept candidates are taken when they are fewer than `settings.num_samples`. Called by every process.

    Args:
        questions: the candidates.
        gold: human questions; none for text without questions.
        output: `.json`, `.jsonl` or `.parquet`.
        settings: its filters have every metric written out (`rl_qg.augmentation.set_filters.RewardFilter`).
        state: the processes; None for a single one on the CPU.
        load_metric: builds the metric that such options describe.

    Raises:
        InputError: with file and line, for a line that is not a whole candidate or is there twice; for options that
            cannot be; the output is the questions, or its report that of another output; the disk is full.
    """
    questions, output = Path(questions), Path(output)
    state = state or PartialState(cpu=True)
    filters = build_filters(settings.filters)
    work = FilterResources(gold, settings.seed, state.device, load_metric)
    measures = {one.name: measure for one in filters if (measure := one.measure(work)) is not None}
    from_main(state, partial(_check, questions, gold, output, settings, measures))
    funnel = Funnel([Empty(), *filters], Candidates(questions), work)
    taken: dict[str, MeasuredValues] = {}
    questions_hash = from_main(state, partial(file_hash, questions)) if measures else ""
    for one in funnel.filters:
        if one.name in measures:
            marks = from_main(state, funnel.marks)
            found = measure_candidates(measures[one.name], questions, questions_hash, marks, state)
            if found is not None:
                taken[one.name] = found
                funnel.candidates.measures[one.name] = found.values
        from_main(state, partial(funnel.add, one))
    return from_main(state, partial(_Merge(questions, gold, output, settings, taken).finish, funnel))


def check_questions(questions: Path, output: Path, *, accept_changed_data: bool) -> None:
    """Compare the questions at hand with those that `output` was made from, as its report has them.

    Raises:
        InputError: they are others, and the user has not said that this is known; the report does not say.
    """
    made_from = reported(output, "inputs", "questions", "sha256")
    if not isinstance(made_from, str):
        raise InputError(f"{report_path(output)}: does not say what {output.name} was made from; delete both")
    name = str(questions)
    check_unchanged({name: made_from}, {name: file_hash(questions)}, output, accept=accept_changed_data)


def check_inputs(output: Path, read: Iterable[str | Path]) -> None:
    """Raise `InputError` where the output, its report or its card would be written over a file that is read."""
    check_apart([output, report_path(output), card_path(output)], read)


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


def _check(
    questions: Path, gold: Examples, output: Path, settings: AugmentSettings, measures: Mapping[str, Any]
) -> None:
    """Refuse what cannot be."""
    if settings.num_samples < 0:
        raise InputError(f"augment.num_samples={settings.num_samples} must not be negative")
    if settings.sampling not in SAMPLERS:
        raise InputError(f"augment.sampling={settings.sampling} is not one of {', '.join(SAMPLERS)}")
    if not 0 <= settings.sample_relevance <= 1:
        raise InputError(f"augment.sample_relevance={settings.sample_relevance} is not in [0, 1]")
    check_output(output, measures)
    check_inputs(output, [questions])
    check_report(output)
    check_dataset_name(settings.hub_dataset)
    for example in gold:
        if example.id.startswith(SYNTHETIC):
            raise InputError(
                f"gold holds a generated question (id {example.id}); give the file of human questions alone"
            )


@dataclass(frozen=True)
class _Merge:
    """The end of the work, in the main process: sample, write, report."""

    questions: Path
    gold: Examples
    output: Path
    settings: AugmentSettings
    taken: Mapping[str, MeasuredValues]

    def finish(self, funnel: Funnel) -> dict[str, Any]:
        """Return the report."""
        sampled = self._sample(funnel)
        funnel.candidates.keep_only(sampled)
        try:
            # Gone until it is written anew: a kill between the two files leaves no report of another one's.
            report_path(self.output).unlink(missing_ok=True)
            card_path(self.output).unlink(missing_ok=True)
            written = write_augmented(self.output, self._rows(funnel.candidates), list(self.taken))
            report = self._report(funnel, len(sampled), written)
            write_json(report_path(self.output), report)
            card = write_data_card(report, self.output)
        except OSError as error:
            raise InputError(
                f"output={self.output}: cannot be written ({error.strerror}); {self.questions} is as it was: make "
                "room or name another path, and run the command again"
            ) from None
        print(funnel_table(report))
        if self.settings.hub_dataset is not None:
            self._publish(funnel.candidates, card, self.settings.hub_dataset)
        return report

    def _sample(self, funnel: Funnel) -> list[int]:
        """The places of the candidates that are added."""
        settings = self.settings
        sampler = SAMPLERS[settings.sampling](
            settings.num_samples, settings.seed, settings.sample_by, settings.sample_relevance
        )
        funnel.settle(sampler.see)
        return sampler.chosen()

    def _rows(self, candidates: Candidates) -> Iterator[AugmentedRow]:
        yield from map(AugmentedRow, self.gold)
        yield from (synthetic_row(record) for _, _, record in candidates.read("write"))

    def _report(self, funnel: Funnel, sampled: int, written: int) -> dict[str, Any]:
        settings = self.settings
        named = ("num_samples", "sampling", "sample_by", "sample_relevance", "seed", "filters")
        sources = getattr(self.gold, "hashes", {})
        return {
            "gold": len(self.gold),
            "candidates": funnel.seen,
            "dropped": funnel.counts,
            "kept": funnel.kept,
            "requested": settings.num_samples,
            "sampled": sampled,
            "written": written,
            "settings": {name: getattr(settings, name) for name in named},
            "measures": {
                name: {"file": str(taken.file), "measured": taken.measured, **taken.note.get("measure", {})}
                for name, taken in self.taken.items()
            },
            "inputs": {
                "questions": {"path": str(self.questions), "sha256": file_hash(self.questions)},
                "gold": {
                    "examples": len(self.gold),
                    "sha256": examples_hash(self.gold),
                    **({"sources": sources} if sources else {}),
                },
            },
            "output": {"path": str(self.output), "sha256": file_hash(self.output)},
        }

    def _publish(self, candidates: Candidates, card: Path, repository: str) -> None:
        if self.output.suffix == ".parquet":
            publish(card, self.output, repository)
            return
        with TemporaryDirectory(dir=self.output.parent) as folder:
            table = Path(folder) / "train.parquet"
            write_augmented(table, self._rows(candidates), list(self.taken))
            publish(card, table, repository)
