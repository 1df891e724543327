"""Question-answer pairs against those that people wrote: one table with intervals, of one file or several.

Writes `evaluate.json`, `.txt`, `.html` and CSV (`tables/`); scores are kept in `pairs/`, so that a command that was
killed goes on.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from rewards.base import Metric
from rewards.errors import MetricInputError
from rewards.sets import EPSILON, Pair, PairScores, QAAligned, distinct
from rl_qg.data.examples import passage_hash
from rl_qg.data.formats import IMPOSSIBLE, MALFORMED_RECORD
from rl_qg.data.layouts import FIELD, MALFORMED, split_pairs
from rl_qg.data.question_tables import QuestionTable, TableRow
from rl_qg.evaluation.evaluate import sources_of
from rl_qg.evaluation.predictions import NOTES, Rows, file_table, test_table, with_better
from rl_qg.evaluation.references import HumanSources
from rl_qg.evaluation.sets import Judged, PassageJudge, judged_passages
from rl_qg.pages.results import Page, Table, as_text, template_lines, write_results
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.reward_scorer import Reward
from rl_qg.settings import EvaluateSettings
from rl_qg.stats.intervals import SHARE as SHARES, Bounds, Floats, PassageDraws, estimate, few_passages, paired_test

log = logging.getLogger(__name__)
NO_TEXT = "no question or no answer"
EXACT, SHARE, NUMBER = "exact answers", "share", "number"
DISTINCT, REPEATED, MORE = "distinct questions", "repeated pairs", "pairs less human pairs"
UNTESTED = (MORE,)  # neither side is better
LOWER_IS_BETTER = (REPEATED,)
Columns = dict[tuple[str, str], Floats]
"""Values of the passages by metric and part; NaN where a passage has none."""


@dataclass
class PairFile:
    """The pairs of a system by passage (its hash), in the order of the file; `dropped` counts what is no pair."""

    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)


def read_pair_file(source: QuestionTable) -> PairFile:
    """A row is one pair (`question`, `answer` and its passage, as `rl-qg ask` and `rl-qg generate` write them, or
    SQuAD JSON), or all pairs of a passage: a list of such objects in the field `pairs`, or a text in lmqg's form in
    the field `questions_answers` (`rl_qg.data.layouts`). A passage whose list or text is empty has no pairs.
    """
    read = PairFile()
    for row in ProgressBar(source, desc="read", unit="row", leave=False, delay=2):
        kept = read.pairs.setdefault(passage_hash(source.text(row, "context")), [])
        for pair in _pairs_of(source, row, read.dropped):
            if pair[0].strip() and pair[1].strip():
                kept.append(pair)
            else:
                read.dropped[NO_TEXT] += 1
    if not read.pairs:
        raise InputError(f"{source}: holds no row; check the file")
    return read


def _pairs_of(source: QuestionTable, row: TableRow, dropped: Counter[str]) -> list[Pair]:
    if isinstance(text := row.fields.get(FIELD), str):
        split = split_pairs(text)
        dropped[MALFORMED] += len(split.malformed)
        return split.pairs
    if isinstance(listed := row.fields.get("pairs"), list):
        pairs = [item for item in listed if isinstance(item, Mapping)]
        texts = [(item.get("question"), item.get("answer")) for item in pairs]
        if len(pairs) < len(listed) or not all(isinstance(text, str) for pair in texts for text in pair):
            raise InputError(f"{row.where}: field 'pairs' must be a list of objects with a question and an answer")
        return [(str(question), str(answer)) for question, answer in texts]
    question, answer = source.value(row, "question"), source.value(row, "answer")
    if question is None:
        raise InputError(
            f"{row.where}: no {source.columns['question']!r}, 'pairs' or {FIELD!r}; the row has "
            f"{', '.join(map(repr, row.fields))}"
        )
    return [(question, answer or "")]


@dataclass(frozen=True)
class HumanPair:
    """A question that people wrote, and all answers that they gave; the first one makes the pair."""

    question: str
    answers: tuple[str, ...]

    @property
    def pair(self) -> Pair:
        return self.question, self.answers[0]


class HumanPairs(HumanSources):
    """The human pairs of each passage (its hash). Nothing is taken out where it is repeated. Questions without an
    answer (SQuAD 2) and malformed pairs are counted in `dropped`.
    """

    remedy = "pairs are compared with human ones; give a file, such as references=dev.json, or a list of files"

    def __init__(self, sources: Any, split: str = "train") -> None:
        super().__init__(sources, split)
        self.pairs: dict[str, list[HumanPair]] = {}
        self.contexts: dict[str, str] = {}
        self.dropped: Counter[str] = Counter()
        for record in self.records():
            answers = tuple(text.strip() for text, _ in record.answers if text.strip())
            if record.unusable in (IMPOSSIBLE, MALFORMED) or not record.question.strip() or not answers:
                self.dropped[record.unusable or NO_TEXT] += 1
                continue
            passage = passage_hash(record.context)
            self.contexts.setdefault(passage, record.context)
            self.pairs.setdefault(passage, []).append(HumanPair(record.question.strip(), answers))
        if self.malformed:
            self.dropped[MALFORMED_RECORD] += len(self.malformed)
        if not self.pairs:
            raise InputError(f"{self}: holds no question with an answer; check the file")


@dataclass(frozen=True)
class PairSets:
    """For each passage, in the same order: its text, the human pairs, and the pairs of each file (maybe none).

    `not_asked` counts the passages with human pairs and no row in any file (if all count, they are among the others,
    without pairs); `elsewhere` those of each file that have no human pairs, and are left out.
    """

    contexts: list[str]
    human: list[list[HumanPair]]
    predictions: dict[str, list[list[Pair]]]
    not_asked: int
    elsewhere: dict[str, int]


def pair_sets(files: Mapping[str, PairFile], human: HumanPairs, *, every_passage: bool = True) -> PairSets:
    """The pairs of every passage that has human pairs, or of those that some file has a row about."""
    for name, file in files.items():
        if not file.pairs.keys() & human.pairs.keys():
            raise InputError(
                f"{name}: none of its {len(file.pairs):,} passages has human pairs in {human}; "
                "give the file that its passages are from"
            )
    if not any(pairs for file in files.values() for pairs in file.pairs.values()):
        raise InputError(f"{', '.join(files)}: no passage has a pair; check what wrote them")
    asked = {passage for file in files.values() for passage in file.pairs}
    passages = [passage for passage in human.pairs if every_passage or passage in asked]
    return PairSets(
        contexts=[human.contexts[passage] for passage in passages],
        human=[human.pairs[passage] for passage in passages],
        predictions={name: [file.pairs.get(passage, []) for passage in passages] for name, file in files.items()},
        not_asked=len(human.pairs.keys() - asked),
        elsewhere={name: len(file.pairs.keys() - human.pairs.keys()) for name, file in files.items()},
    )


def pair_counts(sets: PairSets, name: str) -> dict[str, Any]:
    pairs = sets.predictions[name]
    answers = [(answer, context) for group, context in zip(pairs, sets.contexts, strict=True) for _, answer in group]
    return {
        "passages": len(pairs),
        "without_pairs": sum(not group for group in pairs),
        "pairs": len(answers),
        "human_pairs": sum(map(len, sets.human)),
        "repeated": sum(len(group) - len(set(group)) for group in pairs),
        "answers_not_in_passage": sum(answer not in context for answer, context in answers),
        "answers_several_times_in_passage": sum(context.count(answer) > 1 for answer, context in answers),
        "passages_without_human_pairs": sets.elsewhere[name],
    }


def pair_record(
    sets: PairSets, metrics: Mapping[str, Reward], folder: Path, *, resamples: int, seed: int
) -> dict[str, Any]:
    """Means over passages with intervals (`scores`), differences between files (`tests`), `signatures`, and why
    metrics are left out (`left_out`): QAAligned and the one-to-one assignment for every metric that compares two texts
    (`rewards.sets`), exact answers, and counts. Scores of each passage are kept in `folder`: a kill loses few.
    """
    draws = PassageDraws(range(len(sets.contexts)), resamples=resamples, seed=seed)
    human = [[person.pair for person in people] for people in sets.human]
    texts = {name: (pairs, human) for name, pairs in sets.predictions.items()}
    judged, left_out = judged_passages(metrics, _aligned, texts, folder)
    columns: dict[str, Columns] = {
        name: {
            **{(label, part): values for label, (_, of) in judged.items() for part, values in of[name].items()},
            **exact_answers(pairs, sets.human),
            **numbers(pairs, sets.human),
        }
        for name, pairs in sets.predictions.items()
    }
    draws_of = {name: {key: draws.means(v) for key, v in of.items()} for name, of in columns.items()}
    scores: Rows = []
    for name, of in draws_of.items():
        for (metric, part), values in of.items():
            known = np.isfinite(columns[name][metric, part])
            options: Any = {"passages": draws.units_of(known), "bounds": _bounds(metric, part, judged)}
            cells = estimate(values, int(known.sum()), why="no pairs", **options).to_dict()
            scores.append({"predictions": name, "metric": metric, "part": part, **cells})
    signatures = {label: aligned.signature for label, (aligned, _) in judged.items()}
    return {"scores": scores, "tests": _tests(columns, draws, judged), "signatures": signatures, "left_out": left_out}


def _bounds(metric: str, part: str, judged: Judged) -> Bounds | None:
    """Of a mean over passages, which are 0 where they have no pairs."""
    if metric in (EXACT, DISTINCT):
        return SHARES
    if metric not in judged:
        return (0.0, inf) if metric == REPEATED else None
    low, high = judged[metric][0].judge.metric.bounds
    if part == "f1":
        return (0.0, 2 * high / (2 + EPSILON / high)) if low >= 0 else None
    return 0.0 if part.startswith("one_to_one") else min(low, 0.0), high  # one to one, scores below 0 count as 0


def exact_answers(pairs: Sequence[Sequence[Pair]], human: Sequence[Sequence[HumanPair]]) -> Columns:
    """Precision: the share of the pairs, repetitions once, whose answer people gave to some question about the
    passage. Recall: the share of the different human answers (any one of those to a question) that a pair has. Texts
    are compared as they are; 0 without pairs.
    """
    rows = []
    for group, people in zip(pairs, human, strict=True):
        answers = [answer.strip() for _, answer in dict.fromkeys(group)]
        accepted = {frozenset(person.answers) for person in people}
        right = sum(any(answer in gold for gold in accepted) for answer in answers)
        found = sum(not gold.isdisjoint(answers) for gold in accepted)
        precision, recall = right / max(1, len(answers)), found / len(accepted)
        rows.append((precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0))
    table = np.array(rows).T
    return {(EXACT, part): values for part, values in zip(("precision", "recall", "f1"), table, strict=True)}


def numbers(pairs: Sequence[Sequence[Pair]], human: Sequence[Sequence[HumanPair]]) -> Columns:
    """By passage: the share of questions that differ in words, repeated pairs, pairs (once) less human ones."""
    questions = [[question for question, _ in group] for group in pairs]
    kinds = distinct(questions)
    shares = [len(some) / len(every) if every else np.nan for some, every in zip(kinds, questions, strict=True)]
    once = [len(set(group)) for group in pairs]
    return {
        (DISTINCT, SHARE): np.array(shares),
        (REPEATED, NUMBER): np.array([len(group) - count for group, count in zip(pairs, once, strict=True)], float),
        (MORE, NUMBER): np.array([count - len(people) for count, people in zip(once, human, strict=True)], float),
    }


def _aligned(metric: Any) -> PassageJudge:
    if not isinstance(metric, Metric):
        raise MetricInputError("it is no rewards.Metric, which names what it needs and the bounds of its scores")
    return PassageJudge(QAAligned(metric), PairScores.parts(), lambda scored: scored.columns().values())


def _tests(columns: Mapping[str, Columns], draws: PassageDraws, judged: Judged) -> Rows:
    """The difference of every two files in every measure that has a better side, on the passages where both have it;
    p before and after Holm's correction over all. `better` names the better file where p_holm < 0.05.
    """
    rows: Rows = []
    measures = [key for key in next(iter(columns.values())) if key[0] not in UNTESTED]
    for first, second in combinations(columns, 2):
        for metric, part in measures:
            values, other = columns[first][metric, part], columns[second][metric, part]
            both = np.isfinite(values) & np.isfinite(other)
            one, two = (draws.means(np.where(both, of, np.nan)) for of in (values, other))
            about = {"metric": metric, "part": part, "predictions": first, "against": second}
            options: Any = {"why": "no passage with both", "bounds": _bounds(metric, part, judged)}
            rows.append(about | paired_test(one, two, int(both.sum()), draws.units_of(both), **options))
    return with_better(rows, lambda row: (row["value"] > 0) != (row["metric"] in LOWER_IS_BETTER))


def evaluate_pairs(metrics: Mapping[str, Reward], settings: EvaluateSettings, folder: Path) -> None:
    sources = sources_of(settings, FIELD)
    human = HumanPairs(settings.references, settings.references_split)
    files = {name: read_pair_file(source) for name, source in sources.items()}
    sets = pair_sets(files, human, every_passage=settings.passages == "all")
    record: dict[str, Any] = {
        "predictions": {name: source.hashes() for name, source in sources.items()},
        "references": human.hashes(),
        "settings": asdict(settings),
        "counts": {name: pair_counts(sets, name) | {"dropped": dict(file.dropped)} for name, file in files.items()},
        "human": {
            "passages": len(human.pairs),
            "pairs": sum(map(len, human.pairs.values())),
            "not_asked": sets.not_asked,
            "dropped": dict(human.dropped),
        },
        **pair_record(sets, metrics, folder / "pairs", resamples=settings.resamples, seed=settings.seed),
    }
    few = few_passages(min(count["passages"] for count in record["counts"].values()))
    facts = template_lines("rl_qg.evaluation", "facts_of_pairs.txt", **record, notes=NOTES, few=few)
    page = Page("evaluate", " · ".join(files), facts, _tables(record), record["signatures"])
    write_results(folder, "evaluate", record, page, {name: record[name] for name in ("scores", "tests")})
    log.info("%s\ndone: open %s", as_text(page), folder / "evaluate.html")


def _tables(record: Mapping[str, Any]) -> list[Table]:
    left_out = [f"{label} left out: {why}." for label, why in record["left_out"].items()]
    scores, tests = ([{**row, "part": _part(row)} for row in record[key]] for key in ("scores", "tests"))
    tables = [Table("Question-answer pairs", file_table(scores, "part"), " ".join([NOTES["pairs"], *left_out]))]
    return tables + test_table("Differences", tests, ("metric", "part"), "files", NOTES["tests_of_pairs"])


def _part(row: Mapping[str, Any]) -> str:
    """`QAAligned recall`, `one-to-one F1`; the parts of our own measures as they are, whose names have spaces."""
    name = row["part"].removeprefix("one_to_one_")
    whole = f"{'QAAligned' if name == row['part'] else 'one-to-one'} {name.replace('f1', 'F1')}"
    return row["part"] if " " in row["metric"] else whole
