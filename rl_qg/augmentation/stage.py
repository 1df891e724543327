"""Augmentation: filter the generated questions, sample from those kept, and add them to the human questions.

    rl-qg augment questions=questions.jsonl gold=train.json output=augmented.json num_samples=90000
    rl-qg augment filters=strict filters.round_trip.reader=RUN/qa/gold …

The questions are read line by line: once for all row filters, once more for each set filter, and once to write. The
human examples are streamed from their source. Only hashes and numbers of both stay in memory. The sample depends on
the seed and on the content of the lines, not on their order; only of duplicates the first is kept. Measures by models
are computed by all processes, and stored in files that are resumed and reused (`rl_qg.augmentation.measures`). The
main process does the rest.
"""

import logging
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
from rl_qg.data.streaming import Examples, ExampleStream
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import check_unchanged, file_hash
from rl_qg.runtime.json_files import write_json
from rl_qg.runtime.output_reports import check_distinct_files, check_own, check_report, report_path, report_value
from rl_qg.runtime.processes import from_main
from rl_qg.settings import AugmentSettings

log = logging.getLogger(__name__)


def augment(
    questions: str | Path,
    gold: Examples,
    output: str | Path,
    *,
    settings: AugmentSettings,
    state: PartialState | None = None,
    load_metric: Callable[[Mapping[str, Any]], Reward] = no_metric,
) -> dict[str, Any]:
    """Write the augmented set: gold first, then the sampled candidates (see `rl_qg.augmentation.augmented_files`).

    Two files beside the output are written too: the report that is returned, `<output stem>.report.json` (counts of
    candidates, of drops by reason, kept and sampled; settings; hashes of the inputs), and the data card,
    `<output stem>.card.md`. If fewer than `settings.num_samples` candidates are kept, all of them are added. Called by
    every process.

    Args:
        questions: the candidates.
        gold: human questions; may be empty.
        output: `.json`, `.jsonl` or `.parquet`.
        settings: filters have the complete options of their metrics (`rl_qg.augmentation.set_filters.RewardFilter`).
        state: the processes; None for a single process on the CPU.
        load_metric: builds the metric that such options describe.

    Raises:
        InputError: with file and line, for a line that is not a complete candidate or is repeated; for invalid
            options; the output is the questions file, or a file that has no report, or its report belongs to another
            output; no candidate is kept; the disk is full.
    """
    # 1. Build and check everything before the first expensive step.
    questions, output = Path(questions), Path(output)
    state = state or PartialState(cpu=True)
    filters = build_filters(settings.filters)
    resources = FilterResources(gold, settings.seed, state.device, load_metric)
    measures = {filter_.name: measure for filter_ in filters if (measure := filter_.measure(resources)) is not None}
    from_main(state, partial(_check, questions, gold, output, settings, measures))
    # 2. Filter. What a filter measures, it measures on the candidates that are left.
    funnel = Funnel([Empty(), *filters], Candidates(questions), resources)
    measured: dict[str, MeasuredValues] = {}
    questions_hash = from_main(state, partial(file_hash, questions)) if measures else ""
    for filter_ in funnel.filters:
        if filter_.name in measures:
            marks = from_main(state, funnel.marks)
            result = measure_candidates(measures[filter_.name], questions, questions_hash, marks, state)
            if result is not None:
                measured[filter_.name] = result
                funnel.candidates.measures[filter_.name] = result.values
        from_main(state, partial(funnel.apply, filter_))
    # 3. Sample, write, report.
    return from_main(state, partial(_Output(questions, gold, output, settings, measured).write, funnel))


def check_questions(questions: Path, output: Path, *, accept_changed_data: bool) -> None:
    """Check that the questions file is still the one from which `output` was made, according to its report.

    Raises:
        InputError: it has changed and `accept_changed_data` is false, or the report has no hash of it.
    """
    recorded = report_value(output, "inputs", "questions", "sha256")
    if not isinstance(recorded, str):
        raise InputError(f"{report_path(output)}: does not say what {output.name} was made from; delete both")
    name = str(questions)
    check_unchanged({name: recorded}, {name: file_hash(questions)}, output, accept=accept_changed_data)


def check_inputs(output: Path, read: Iterable[str | Path]) -> None:
    """Raise `InputError` if the output, its report or its card would overwrite a file that is read."""
    check_distinct_files([output, report_path(output), card_path(output)], read)


def funnel_table(report: dict[str, Any]) -> str:
    """Format the report's counts as a short table, one line for each step."""
    drops = [(f"- {reason}", -count) for reason, count in report["dropped"].items()]
    rows = [("candidates", report["candidates"]), *drops]
    rows += [("kept", report["kept"]), ("sampled", report["sampled"])]
    rows += [("gold", report["gold"]), ("written", report["written"])]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {count:>10,}" for name, count in rows]
    if report["sampled"] < report["requested"]:
        lines.append(f"{report['requested']:,} were requested; all {report['kept']:,} kept candidates are added")
    return "\n".join(lines)


def _check(
    questions: Path, gold: Examples, output: Path, settings: AugmentSettings, measures: Mapping[str, Any]
) -> None:
    """Raise `InputError` for invalid settings, outputs and human questions."""
    if settings.num_samples < 0:
        raise InputError(f"augment.num_samples={settings.num_samples} must not be negative")
    if settings.sampling not in SAMPLERS:
        raise InputError(f"augment.sampling={settings.sampling} is not one of {', '.join(SAMPLERS)}")
    if not 0 <= settings.sample_relevance <= 1:
        raise InputError(f"augment.sample_relevance={settings.sample_relevance} is not in [0, 1]")
    check_output(output, measures)
    check_inputs(output, [questions])
    check_report(output)
    check_own(output)
    check_dataset_name(settings.hub_dataset)
    for example in gold:
        if example.id.startswith(SYNTHETIC):
            raise InputError(
                f"gold holds a generated question (id {example.id}); give the file of human questions alone"
            )


@dataclass(frozen=True)
class _Output:
    """The last step, in the main process: sample, write, report."""

    questions: Path
    gold: Examples
    output: Path
    settings: AugmentSettings
    measured: Mapping[str, MeasuredValues]

    def write(self, funnel: Funnel) -> dict[str, Any]:
        """Write all files and return the report."""
        sampled = self._sample(funnel)  # the reading that also ends the filtering
        if not funnel.kept:
            most = sorted(funnel.counts.items(), key=lambda item: -item[1])
            counts = ", ".join(f"{reason} {count:,}" for reason, count in most if count)
            raise InputError(
                f"{self.questions}: no candidate of {funnel.seen:,} is kept ({counts}); loosen the filters, or see "
                "what the generator writes"
            )
        funnel.candidates.keep_only(sampled)
        try:
            # First: a process killed between the writes must leave neither the report of an older output nor none.
            write_json(report_path(self.output), {"output": {"path": str(self.output)}})
            card_path(self.output).unlink(missing_ok=True)
            written = write_augmented(self.output, self._rows(funnel.candidates), list(self.measured))
            report = self._report(funnel, len(sampled), written)
            card = write_data_card(report, self.output)
            write_json(report_path(self.output), report)  # last: it says that all is there
        except OSError as error:
            if not self.output.exists():
                report_path(self.output).unlink(missing_ok=True)
            raise InputError(
                f"output={self.output}: cannot be written ({error.strerror}); {self.questions} is unchanged: free "
                "disk space or name another path, and run the command again"
            ) from None
        print(funnel_table(report))
        for note in report["notes"]:
            log.warning(note)
        if self.settings.hub_dataset is not None:
            self._publish(funnel.candidates, card, self.settings.hub_dataset)
        return report

    def _sample(self, funnel: Funnel) -> list[int]:
        """The indices of the candidates that are added."""
        settings = self.settings
        sampler = SAMPLERS[settings.sampling](
            settings.num_samples, settings.seed, settings.sample_by, settings.sample_relevance
        )
        funnel.read_through(sampler.observe)
        return sampler.selected()

    def _rows(self, candidates: Candidates) -> Iterator[AugmentedRow]:
        yield from map(AugmentedRow, self.gold)
        yield from (synthetic_row(record) for _, _, record in candidates.read("write"))

    def _report(self, funnel: Funnel, sampled: int, written: int) -> dict[str, Any]:
        settings = self.settings
        reported_settings = ("num_samples", "sampling", "sample_by", "sample_relevance", "seed", "filters")
        sources = getattr(self.gold, "hashes", {})
        return {
            "gold": len(self.gold),
            "candidates": funnel.seen,
            "dropped": funnel.counts,
            "notes": [note for filter_ in funnel.filters for note in filter_.notes()],
            "kept": funnel.kept,
            "requested": settings.num_samples,
            "sampled": sampled,
            "written": written,
            "settings": {name: getattr(settings, name) for name in reported_settings},
            "measures": {
                name: {"file": str(result.file), "measured": result.measured, **result.note.get("measure", {})}
                for name, result in self.measured.items()
            },
            "inputs": {
                "questions": {"path": str(self.questions), "sha256": file_hash(self.questions)},
                "gold": {
                    "examples": len(self.gold),
                    "sha256": examples_hash(self.gold),
                    **({"sources": sources} if sources else {}),
                    **({"report": self.gold.report} if isinstance(self.gold, ExampleStream) else {}),
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
            write_augmented(table, self._rows(candidates), list(self.measured))
            publish(card, table, repository)
