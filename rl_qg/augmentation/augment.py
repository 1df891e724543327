"""Augmentation: filter the generated questions, sample from those kept, and add them to the human questions.

The questions are read line by line: once for all row filters, once more for each set filter, and once to write. The
human examples are streamed from their source. Only hashes and numbers of both stay in memory. The sample depends on
the seed and on the content of the lines, not on their order; only of duplicates the first is kept. Measures by models
are computed by all processes, and stored in files that are resumed and reused (`rl_qg.augmentation.funnel`). The
main process does the rest.
"""

import heapq
import logging
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from importlib import import_module
from inspect import isclass, signature
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from accelerate import PartialState
from numpy.typing import NDArray

from rewards.errors import MetricInputError
from rewards.loading import check_allowed
from rl_qg.augmentation import row_filters
from rl_qg.augmentation.candidates import MEASURES, Candidates, Ranking, Record, grouped, passage_hash64, question_key
from rl_qg.augmentation.data_card import card_path, publish, write_data_card
from rl_qg.augmentation.funnel import (
    CandidateMeasure,
    Filter,
    FilterResources,
    Funnel,
    MeasuredValues,
    RowFilter,
    Rules,
    measure_candidates,
    measures_of,
    no_metric,
)
from rl_qg.augmentation.near_duplicates import NearDuplicates, SameMeaning, TokenSets, shingles, similarity
from rl_qg.augmentation.set_filters import Cap, RewardFilter, TypeBalance
from rl_qg.data.examples import Answer, QAExample, examples_hash, seeded_rank, write_squad
from rl_qg.data.streaming import Examples, ExampleStream
from rl_qg.generation.published import check_repository
from rl_qg.runtime import files
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.ranks import from_main
from rl_qg.scoring.reward_scorer import Reward
from rl_qg.settings import AugmentSettings

log = logging.getLogger(__name__)
SYNTHETIC = "synthetic-"  # begins the ids of generated questions
ENDINGS = (".json", ".jsonl", ".parquet")  # SQuAD v1.1 JSON, or flat rows; `data.train=` reads all
TEXTS = ("id", "title", "context", "question", "language")  # columns of flat rows
SPARE = 1 << 16  # candidates that the uniform sampler holds besides

# The filters by name; a new one is added to `FILTERS`. Options in a YAML file become filters:
#
#     filters:
#       length: {min_words: 6, max_words: 30}        the name of a filter, and its options
#       fluent: {kind: reward, metric: qascore}      another name for a second filter of a kind
#       mine: {_target_: my_package.keep, limit: 3}
#       answer_in_question: null                     off

FILTERS: dict[str, type[Filter]] = {
    "length": row_filters.Length,
    "answer_in_question": row_filters.AnswerInQuestion,
    "gold_duplicates": row_filters.GoldDuplicates,
    "duplicates": row_filters.Duplicates,
    "near_duplicates": NearDuplicates,
    "same_meaning": SameMeaning,
    "well_formed": row_filters.WellFormed,
    "faithful": row_filters.Faithful,
    "standalone": row_filters.StandsAlone,
    "language": row_filters.PassageScript,
    "round_trip": row_filters.RoundTrip,
    "reward": RewardFilter,
    "cap": Cap,
    "question_types": TypeBalance,
}


class CustomFilter(RowFilter):
    """A user's filter: a function or object that is called with a record and returns whether to keep it."""

    def __init__(self, keeps: Callable[[Record], Any]) -> None:
        self.keeps = keeps

    def rules(self) -> Rules:
        def rejects(record: Record) -> bool:
            try:
                return not self.keeps(record)
            except Exception as error:  # the user's code may raise anything
                raise InputError(f"augment.filters.{self.name}: {type(error).__name__}: {error}") from error

        return {self.name: rejects}


def build_filters(options: Mapping[str, Any]) -> list[Filter]:
    """The filters that the options describe, in their order; null is left out."""
    return [_build(str(name), given) for name, given in options.items() if given is not None]


def filter_kind(name: str, given: Any) -> str:
    """The kind of filter that options describe: `kind`, else their name; "" for a custom filter."""
    if not isinstance(given, Mapping) or "_target_" in given:
        return ""
    return str(given.get("kind", name))


def _build(name: str, given: Any) -> Filter:
    at = f"augment.filters.{name}"
    if not isinstance(given, Mapping):
        raise InputError(f"{at}={given}: give its options, such as {{}} for none, or null to leave it out")
    options = {str(key): value for key, value in given.items() if key != "kind"}
    result: Filter
    if "_target_" in options:
        result = CustomFilter(_custom_function(at, str(options.pop("_target_")), options))
    else:
        kind = filter_kind(name, given)
        if kind not in FILTERS:
            raise InputError(f"{at}: no such filter; choose one of {', '.join(FILTERS)}, or give _target_")
        declared = [item.name for item in fields(FILTERS[kind])]  # type: ignore[arg-type]  # they are dataclasses
        hints = get_type_hints(FILTERS[kind])
        for key, value in options.items():
            if key not in declared:
                raise InputError(f"{at}: no option {key!r}; there is {', '.join(declared) or 'none'}")
            if not _has_type(value, hints[key]):
                raise InputError(f"{at}.{key}={value} must be {_described(hints[key])}")
        result = FILTERS[kind](**options)
        if kind != name:
            result.prefix = f"{name}: "
    result.name = name
    if errors := [text for is_wrong, text in result.option_errors() if is_wrong]:
        raise InputError(f"{at}: {'; '.join(errors)}")
    return result


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a value from YAML has the type of an option; a whole number is accepted as a float."""
    if hint is Any:
        return True
    if get_origin(hint) is UnionType:
        return any(_has_type(value, member) for member in get_args(hint))
    if get_origin(hint) is dict:
        return isinstance(value, Mapping) and all(_has_type(item, get_args(hint)[1]) for item in value.values())
    if hint is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    return type(value) is hint


def _described(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"}
    if get_origin(hint) is UnionType:
        return " or ".join(map(_described, get_args(hint)))
    return names.get(hint, "numbers by name")


def _custom_function(at: str, target: str, options: dict[str, Any]) -> Callable[[Record], Any]:
    """The function of a custom filter: a class is instantiated with the options, a function gets them in each call."""
    at = f"{at}._target_={target}"
    function = import_target(at, target)
    try:
        if isclass(function):
            function, options = function(**options), {}
        with suppress(ValueError):  # some builtins have no signature
            signature(function).bind({}, **options)
    except TypeError as error:
        raise InputError(f"{at}: cannot be called with a record and these options ({error})") from None
    return partial(function, **options)


def import_target(at: str, target: str) -> Any:
    """Import the object at a dotted path; raise `InputError`, beginning with `at`, if there is none."""
    module, _, attribute = target.rpartition(".")
    try:
        check_allowed(target)
    except MetricInputError as error:
        raise InputError(f"{at}: {error}") from None
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{at}: cannot be imported ({error}); check the path") from None


class Sampler(ABC):
    """Observes every kept candidate, of which it keeps only numbers and hashes; then selects `num_samples` of them.

    What it selects depends on the seed and the content of the candidates, not on their order in the file. A new
    sampler is added to `SAMPLERS`.
    """

    def __init__(self, settings: AugmentSettings) -> None:
        self.count, self.seed, self.relevance = settings.num_samples, settings.seed, settings.sample_relevance
        self._ranking = Ranking(settings.sample_by, settings.seed)

    def observe(self, index: int, record: Record) -> None:
        self._ranking.add(index, record)

    @abstractmethod
    def selected(self) -> NDArray[np.integer]:
        """The indices of the selected candidates in ascending order, at most the requested number."""


class UniformSampler(Sampler):
    """The `count` candidates of lowest `seeded_rank`: a uniform sample; smaller samples are part of larger ones.

    The rank is that of passage and question, so it does not matter which of several equal candidates comes first. Held
    are 16 bytes of rank and the index of at most twice as many, and `SPARE` more.
    """

    def __init__(self, settings: AugmentSettings) -> None:
        super().__init__(settings)
        self._ranks, self._indices = bytearray(), array("I")

    def observe(self, index: int, record: Record) -> None:
        self._ranks += seeded_rank(self.seed, question_key(record["context"], record["question"]).hex())[:16]
        self._indices.append(index)
        if len(self._indices) >= 2 * self.count + SPARE:
            self._keep_lowest()

    def selected(self) -> NDArray[np.integer]:
        self._keep_lowest()
        return np.asarray(self._indices)

    def _keep_lowest(self) -> None:
        if len(self._indices) > self.count:
            ranks = np.frombuffer(self._ranks, dtype="S16")
            lowest = np.sort(np.argsort(ranks, kind="stable")[: self.count])
            self._ranks = bytearray(ranks[lowest].tobytes())
            self._indices = array("I", np.asarray(self._indices)[lowest].tobytes())


class BestSampler(Sampler):
    """The `count` candidates with the highest measure or field `sample_by`."""

    def selected(self) -> NDArray[np.integer]:
        return np.sort(np.asarray(self._ranking.indices)[self._ranking.best_first()[: self.count]])


class DiverseSampler(Sampler):
    """Maximal marginal relevance: repeatedly select the candidate of highest `relevance · r − (1 − relevance) · s`.

    r is its rank by `sample_by` among all candidates, from 1 (best) down to 0; s is the highest Jaccard similarity of
    its words to a question about the same passage that is already selected. Questions about different passages have
    similarity 0. Source: Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents
    and producing summaries" (1998).

    A selection changes only the scores of its passage, and only downwards. So those that are selected are the `count`
    of highest score when each passage is selected from by itself. Time: n log n, and the square of a passage's
    candidates; memory: 36 bytes a candidate, 150 a selected one, and the words on disk (`TokenSets`).
    """

    def __init__(self, settings: AugmentSettings) -> None:
        super().__init__(settings)
        self._passages, self._sets = array("Q"), TokenSets()

    def observe(self, index: int, record: Record) -> None:
        super().observe(index, record)
        self._passages.append(passage_hash64(record))
        self._sets.add(shingles(record["question"], 1))

    def selected(self) -> NDArray[np.integer]:
        return np.sort(np.asarray(self._ranking.indices)[self._selected_rows()])

    def _selected_rows(self) -> NDArray[np.int64]:
        """Rows of the ranking in the order in which they are selected."""
        order = self._ranking.best_first()
        best: list[tuple[float, int]] = []  # score and negative rank, which decides between equal scores: a heap
        for group in grouped(np.asarray(self._passages)[order]):
            for selected in self._of_passage(group.tolist(), order):
                if len(best) < self.count:
                    heapq.heappush(best, selected)
                elif not best or selected < best[0]:
                    break  # and so are the others of the passage
                else:
                    heapq.heapreplace(best, selected)
        return order[[-rank for _, rank in sorted(best, reverse=True)]]

    def _of_passage(self, ranks: Sequence[int], order: NDArray[np.int64]) -> Iterator[tuple[float, int]]:
        """Score and negative rank of a passage's candidates, of these `ranks`, as they are selected.

        The score of a candidate is compared with what was selected since only when it is the highest.
        """
        last = max(1, len(order) - 1)
        heap = [(-self.relevance * (1 - rank / last), rank) for rank in ranks]
        tokens = {rank: set(self._sets[order[rank]]) for rank in ranks} if len(ranks) > 1 else {}
        selected: list[int] = []
        compared, nearest = dict.fromkeys(ranks, 0), dict.fromkeys(ranks, 0.0)
        while heap:
            score, rank = heap[0]
            if compared[rank] < len(selected):
                added = (similarity(tokens[rank], tokens[other]) for other in selected[compared[rank] :])
                nearest[rank] = max(nearest[rank], *added)
                compared[rank] = len(selected)
                relevance = self.relevance * (1 - rank / last)
                heapq.heapreplace(heap, ((1 - self.relevance) * nearest[rank] - relevance, rank))
                continue
            heapq.heappop(heap)
            selected.append(rank)
            yield -score, -rank


SAMPLERS: dict[str, type[Sampler]] = {"uniform": UniformSampler, "reward": BestSampler, "diverse": DiverseSampler}


@dataclass(frozen=True)
class AugmentedRow:
    """One question; of a generated question also its rank among the candidates, log-probability and measures."""

    example: QAExample
    candidate: int | None = None
    logprob: float | None = None
    measures: Mapping[str, float] = field(default_factory=dict)

    def flat(self, measures: Sequence[str]) -> dict[str, Any]:
        example, answers = self.example, self.example.answers
        return {
            **{name: getattr(example, name) for name in TEXTS},
            "answers": {"text": [one.text for one in answers], "answer_start": [one.start for one in answers]},
            "source": "gold" if self.candidate is None else "synthetic",
            "candidate": self.candidate,
            "logprob": self.logprob,
            **{name: None if (value := self.measures.get(name)) != value else value for name in measures},  # NaN: none
        }


def synthetic_row(record: Mapping[str, Any]) -> AugmentedRow:
    """The row of a candidate; its id is `synthetic-<id>-<candidate>`."""
    example = QAExample(
        id=f"{SYNTHETIC}{record['id']}-{record['candidate']}",
        title=record["title"],
        context=record["context"],
        question=record["question"],
        answers=(Answer(record["answer"], record["answer_start"]),),
        language=record.get("language") or "",
    )
    logprob: Any = record.get("logprob")
    known = type(logprob) in (int, float) and abs(logprob) <= sys.float_info.max  # not NaN, infinite or of many digits
    return AugmentedRow(example, record["candidate"], float(logprob) if known else None, record[MEASURES])


def check_output(output: Path, measures: Iterable[str]) -> None:
    """Raise `InputError` for a file of unknown kind, or a measure with the name of a column."""
    if output.suffix not in ENDINGS:
        raise InputError(f"{output}: give a name that ends in {', '.join(ENDINGS)}")
    if clashes := sorted(set(measures) & set(AugmentedRow(QAExample("", "", "", "", ())).flat(()))):
        raise InputError(
            f"augment.filters.{clashes[0]}: is the name of a column of the output; give the filter another name"
        )


def write_augmented(output: Path, rows: Iterable[AugmentedRow], measures: Sequence[str]) -> int:
    """Write the rows atomically; return their number. Flat formats have `measures`, null for human questions."""
    if output.suffix == ".json":
        return write_squad(output, (row.example for row in rows))
    flat = (row.flat(measures) for row in rows)
    if output.suffix == ".parquet":
        from rl_qg.data.parquet import write_table

        return write_table(output, flat, _schema(measures))
    return files.write_json_lines(output, flat)


def _schema(measures: Sequence[str]) -> Any:
    import pyarrow

    text, number = pyarrow.string(), pyarrow.float64()
    answers = pyarrow.struct({"text": pyarrow.list_(text), "answer_start": pyarrow.list_(pyarrow.int32())})
    columns = {**dict.fromkeys(TEXTS, text), "answers": answers, "source": text}
    columns |= {"candidate": pyarrow.int64(), "logprob": number, **dict.fromkeys(measures, number)}
    return pyarrow.schema(columns)


def augment(
    questions: str | Path,
    gold: Examples,
    output: str | Path,
    *,
    settings: AugmentSettings,
    state: PartialState | None = None,
    load_metric: Callable[[Mapping[str, Any]], Reward] = no_metric,
) -> dict[str, Any]:
    """Write the augmented set: gold first, then the sampled candidates (see `rl_qg.augmentation.augment`).

    Beside the output (`.json`, `.jsonl` or `.parquet`) are written the report that is returned, `<output
    stem>.report.json` (counts, settings, hashes of the inputs), and the data card, `<output stem>.card.md`. If fewer
    than `settings.num_samples` candidates are kept, all of them are added. `gold` may be empty. The filters of the
    settings have the complete options of their metrics, which `load_metric` builds. Every process calls this; without
    a `state` it is a single one on the CPU.
    """
    questions, output = Path(questions), Path(output)
    state = state or PartialState(cpu=True)
    filters = build_filters(settings.filters)
    resources = FilterResources(gold, settings.seed, state.device, load_metric)
    measures = measures_of(filters, resources)
    from_main(state, partial(check_augmentation, questions, gold, output, settings, measures))
    funnel = Funnel([row_filters.Empty(), *filters], Candidates(questions), resources)
    measured = filtered(funnel, funnel.filters, measures, state)
    return from_main(state, partial(AugmentedOutput(questions, gold, output, settings, measured).write, funnel))


def filtered(
    funnel: Funnel, filters: Sequence[Filter], measures: Mapping[str, CandidateMeasure], state: PartialState
) -> dict[str, MeasuredValues]:
    """Apply filters of the funnel, which measure the candidates that are left; return those in the main process."""
    measured: dict[str, MeasuredValues] = {}
    questions, part = funnel.candidates.path, funnel.candidates.part
    questions_hash = from_main(state, partial(files.file_hash, questions)) if measures else ""
    for filter_ in filters:
        if filter_.name in measures:
            marks = from_main(state, funnel.marks)
            result = measure_candidates(measures[filter_.name], questions, questions_hash, marks, state, part)
            if result is not None:
                measured[filter_.name] = result
                funnel.candidates.measures[filter_.name] = result.values
        from_main(state, partial(funnel.apply, filter_))
    return measured


def check_questions(questions: Path, output: Path, *, accept_changed_data: bool) -> None:
    """Check that the questions file is still the one from which `output` was made, according to its report."""
    recorded, name = files.report_value(output, "inputs", "questions", "sha256"), str(questions)
    if not isinstance(recorded, str):
        raise InputError(f"{files.report_path(output)}: does not say what {output.name} was made from; delete both")
    files.check_unchanged({name: recorded}, {name: files.file_hash(questions)}, output, accept=accept_changed_data)


def check_inputs(output: Path, read: Iterable[str | Path]) -> None:
    """Raise `InputError` if the output, its report or its card would overwrite a file that is read."""
    files.check_distinct_files([output, files.report_path(output), card_path(output)], read)


def funnel_table(report: dict[str, Any]) -> str:
    counts = {"candidates": report["candidates"]}
    counts |= {f"- {reason}": -count for reason, count in report["dropped"].items()}
    counts |= {step: report[step] for step in ("kept", "sampled", "gold", "written")}
    width = max(map(len, counts))
    lines = [f"{name:<{width}}  {count:>10,}" for name, count in counts.items()]
    if report["sampled"] < report["requested"]:
        lines.append(f"{report['requested']:,} were requested; all {report['kept']:,} kept candidates are added")
    return "\n".join(lines)


def check_augmentation(
    questions: Path, gold: Examples, output: Path, settings: AugmentSettings, measures: Mapping[str, Any]
) -> None:
    check_output(output, measures)
    check_inputs(output, [questions])
    files.check_report(output)
    files.check_own(output)
    check_repository("augment.hub_dataset", settings.hub_dataset)
    for example in gold:
        if example.id.startswith(SYNTHETIC):
            raise InputError(
                f"gold holds a generated question (id {example.id}); give the file of human questions alone"
            )


@dataclass(frozen=True)
class AugmentedOutput:
    """The last step, in the main process: sample, write, report."""

    questions: Path
    gold: Examples
    output: Path
    settings: AugmentSettings
    measured: Mapping[str, MeasuredValues]

    def write(self, funnel: Funnel) -> dict[str, Any]:
        settings = self.settings
        sampler = SAMPLERS[settings.sampling](settings)
        funnel.read_through(sampler.observe)  # the reading that also ends the filtering
        sampled = sampler.selected()
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
            files.write_json(files.report_path(self.output), {"output": {"path": str(self.output)}})
            card_path(self.output).unlink(missing_ok=True)
            written = self._write(funnel.candidates, self.output)
            report = self._report(funnel, len(sampled), written)
            card = write_data_card(report, self.output)
            files.write_json(files.report_path(self.output), report)  # last: it says that all is there
        except OSError as error:
            if not self.output.exists():
                files.report_path(self.output).unlink(missing_ok=True)
            raise InputError(
                f"output={self.output}: cannot be written ({error.strerror}); {self.questions} is unchanged: free "
                "disk space or name another path, and run the command again"
            ) from None
        print(funnel_table(report))
        for note in report["notes"]:
            log.warning(note)
        if settings.hub_dataset is not None:
            with TemporaryDirectory(dir=self.output.parent) as folder:
                is_table = self.output.suffix == ".parquet"
                table = self.output if is_table else Path(folder, "train.parquet")
                if not is_table:
                    self._write(funnel.candidates, table)
                publish(card, table, settings.hub_dataset)
        return report

    def _write(self, candidates: Candidates, output: Path) -> int:
        added = (synthetic_row(record) for _, _, record in candidates.read("write"))
        return write_augmented(output, chain(map(AugmentedRow, self.gold), added), list(self.measured))

    def _report(self, funnel: Funnel, sampled: int, written: int) -> dict[str, Any]:
        reported = ("num_samples", "sampling", "sample_by", "sample_relevance", "seed", "filters")
        gold: dict[str, Any] = {"examples": len(self.gold), "sha256": examples_hash(self.gold)}
        if sources := getattr(self.gold, "hashes", {}):
            gold["sources"] = sources
        if isinstance(self.gold, ExampleStream):
            gold["report"] = self.gold.report
        return {
            "gold": len(self.gold),
            "candidates": funnel.seen,
            "dropped": funnel.counts,
            "notes": [note for filter_ in funnel.filters for note in filter_.notes()],
            "kept": funnel.kept,
            "requested": self.settings.num_samples,
            "sampled": sampled,
            "written": written,
            "settings": {name: getattr(self.settings, name) for name in reported},
            "measures": {
                name: {
                    "file": None if result.file is None else str(result.file),
                    "measured": result.measured,
                    "mean": result.mean,
                    **result.note.get("measure", {}),
                }
                for name, result in self.measured.items()
            },
            "inputs": {
                "questions": {"path": str(self.questions), "sha256": files.file_hash(self.questions)},
                "gold": gold,
            },
            "output": {"path": str(self.output), "sha256": files.file_hash(self.output)},
        }
