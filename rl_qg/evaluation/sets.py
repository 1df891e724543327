"""Sets of questions, passage by passage: all questions of a file against all human ones."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike

from rewards.base import Metric
from rewards.errors import MetricInputError
from rewards.sets import Multi, cardinality_difference, cardinality_signature, distinct, self_bleu, self_bleu_signature
from rewards.signature import format_signature
from rewards.words import words
from rl_qg.data.examples import passage_hash
from rl_qg.data.question_tables import TableRow
from rl_qg.evaluation.references import BY_PASSAGE, GoldQuestions
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import write_json, writing
from rl_qg.scoring.kept_scores import MetricRow, kept_scores, texts_hash
from rl_qg.scoring.reward_scorer import Reward, is_signed
from rl_qg.stats.correlation import pearson_draws
from rl_qg.stats.intervals import CORRELATION, SHARE, Bounds, Floats, PassageDraws, estimate, quotient
from rl_qg.text.question_types import NINE_TYPES, nine_type
from rl_qg.text.spans import sentence_spans

PASSAGES_AT_ONCE = 32
FILE = "set_pairs.json"
PARTS = ("precision", "recall", "f1", "averaged")
SELF_BLEU, MISSING = "self-BLEU2", "references less questions"
NUMBER, TYPES, SENTENCES, REPEATED = "number of questions", "nine types", "sentences", "repeated questions"
HUMAN, HALVES, GAP = "human questions", "human halves", "gap closed"
SIGNATURES = {
    NUMBER: "number|differing questions, references less questions|pearson",
    TYPES: format_signature("nine_types", {"rule": "arXiv 2203.04464, 6.2", "distance": "total variation"}),
    SENTENCES: "asked_sentences|words:shared, each over the sentences that have it|ties:first",
    REPEATED: "repeated|same:ptb|over all questions",
}
# What the parts of measures can be; others are shares.
BOUNDS: dict[str, Bounds | None] = {"correlation": CORRELATION, "mean": (0, inf), "absolute difference": (0, inf)}
Rows = list[dict[str, Any]]
Questions = Sequence[Sequence[str]]
QuestionLists = list[list[str]]


# --- Files of sets: a row with the questions of a passage, as `rl-qg ask strategy=…` writes them.


def is_set(row: TableRow) -> bool:
    return "questions" in row.fields and not isinstance(row.fields.get("question"), str)


def rows_of_set(
    row: TableRow, context: str | None, references: list[str] | None, gold: GoldQuestions | None
) -> tuple[list[MetricRow], str]:
    """A row for each question of a set, and how its references were found; one without a question for an empty set.
    Its references are all human questions about the passage: those of `gold` if given, else its own.
    """
    listed = row.fields["questions"]
    items = listed if isinstance(listed, list) else [None]
    questions: list[Any] = [item.get("question") if isinstance(item, dict) else item for item in items] or [""]
    if not all(isinstance(question, str) for question in questions):
        raise InputError(
            f"{row.where}: 'questions' is no list of texts, or of objects with a text 'question'; give one of these, "
            "or one row for each question"
        )
    if context is None:
        raise InputError(f"{row.where}: no 'context', and a set of questions is about one; add it")
    found = None if references is None else tuple(references)
    if gold is not None:
        found = gold.of_passage(context)
    rows = [
        MetricRow(f"{row.where}, question {number}", question, context, None, found, title=row.fields.get("title"))
        for number, question in enumerate(questions, 1)
    ]
    return rows, BY_PASSAGE if gold is not None and found else ""


def asked_sentences(questions: Sequence[str], context: str) -> list[int | None]:
    """For each question the number of the sentence of `context` that shares most words with it; None if none does. The
    same rule is for generated and human questions: a generator that was shown a sentence may ask about another one,
    and human questions may be without offsets.

    A word counts 1 over the number of sentences that have it, so that words of every sentence say little. Of equal
    sentences the first counts. On 1,951 human questions of SQuAD's development part this is the sentence of the answer
    for 78 %; with the templates of the embedded corpus, whose sentences share their subject, for 33 %.
    """
    sentences = [set(words(context[start:end])) for start, end in sentence_spans(context)]
    frequency = Counter(word for sentence in sentences for word in sentence)

    def sentence_of(question: str) -> int | None:
        asked = set(words(question))
        shared = [sum(1 / frequency[word] for word in sorted(asked & sentence)) for sentence in sentences]
        best = max(shared, default=0.0)
        return shared.index(best) if best > 0 else None

    return [sentence_of(question) for question in questions]


def coverage(questions: Sequence[str], references: Sequence[str], context: str) -> float:
    """The share of the sentences that references ask about that questions ask about too; NaN where there are none."""
    human = {*asked_sentences(references, context)} - {None}
    asked = {*asked_sentences(questions, context)}
    return len(human & asked) / len(human) if human else float("nan")


def measure_rows(
    predictions: Mapping[str, Questions], references: Questions, contexts: Sequence[str], draws: PassageDraws
) -> Rows:
    """One row for each file, measure (`metric`) and `part`, with intervals over passages.

    - number of questions: `mean` of different ones (of references: of all, as people asked them); `absolute
      difference` to the number of references; `correlation` (Pearson) with it. The mean difference is in the table of
      sets.
    - nine types: the share of each type (`nine_type`) among all questions; `distance`: half the sum of the
      absolute differences of these shares from those of the references (0: the same, 1: nothing in common).
    - sentences: `coverage`, the share of the sentences with human questions that are asked about too, where there are
      such sentences.
    - repeated questions: `share` of all questions whose words another question of the set has.

    `predictions` are for each file the questions of each passage, `references` the human ones, which have the rows
    that do not compare with references too; `draws` are of the passages.
    """
    human, human_types = _lengths(references), _type_shares(references, draws)
    rows: Rows = []
    for name, questions in [*predictions.items(), (HUMAN, references)]:
        written, different = _lengths(questions), _lengths(distinct(questions))
        numbers = human if questions is references else different  # as in rewards.cardinality_difference
        types = _type_shares(questions, draws)
        sums = draws.sums_of_passages(np.column_stack([written - different, written]))
        covered = np.array([*map(coverage, questions, references, contexts)])
        passages = {"coverage": int(np.isfinite(covered).sum())}  # of the others all passages
        values = {
            (NUMBER, "mean"): draws.means(numbers),
            (NUMBER, "absolute difference"): draws.means(np.abs(human - numbers)),
            (NUMBER, "correlation"): pearson_draws(numbers, human, draws, np.arange(draws.passages)),
            **{(TYPES, kind): types[:, column] for column, kind in enumerate(NINE_TYPES)},
            (TYPES, "distance"): np.abs(types - human_types).sum(axis=1) / 2,
            (SENTENCES, "coverage"): draws.means(covered),
            (REPEATED, "share"): quotient(sums[:, 0], sums[:, 1]),
        }
        rows += [
            _row(name, metric, part, of_draws, passages.get(part, draws.passages), BOUNDS.get(part, SHARE))
            for (metric, part), of_draws in values.items()
            if questions is not references or part in ("mean", "share", *NINE_TYPES)
        ]
    return rows


def _lengths(sets: Sequence[Sequence[Any]]) -> Floats:
    return np.array([len(group) for group in sets], float)


def _row(
    name: str, metric: str, part: str, values: Floats, passages: int, bounds: Bounds | None = None
) -> dict[str, Any]:
    interval = estimate(values, passages, passages=passages, bounds=bounds).to_dict()
    return {"predictions": name, "metric": metric, "part": part, **interval}


def _type_shares(sets: Questions, draws: PassageDraws) -> Floats:
    """Of each of the nine types in each draw, (1 + resamples, 9)."""
    kinds = [Counter(map(nine_type, group)) for group in sets]
    sums = draws.sums_of_passages(np.array([[counts[kind] for kind in NINE_TYPES] for counts in kinds], float))
    return quotient(sums, sums.sum(axis=1, keepdims=True))


def halves(references: Questions, contexts: Sequence[str], seed: int) -> list[tuple[int, list[str], list[str]]]:
    """For each passage with two or more human questions its number and two halves of them, drawn by the seed and the
    passage; with an odd number the second, which counts as the references, has one more.
    """
    drawn = []
    for number, (questions, context) in enumerate(zip(references, contexts, strict=True)):
        shuffled, middle = sorted(questions), len(questions) // 2
        random.Random(f"{seed} {passage_hash(context)}").shuffle(shuffled)
        if middle:
            drawn.append((number, shuffled[:middle], shuffled[middle:]))
    return drawn


def gap_files(gap: Any, files: Sequence[str]) -> tuple[str, str] | None:
    if gap in (None, ""):
        return None
    wanted = "give gap={random: NAME, oracle: NAME}, two names of predictions"
    if not isinstance(gap, Mapping) or gap.keys() != {"random", "oracle"}:
        raise InputError(f"gap={gap}: {wanted}")
    ends = str(gap["random"]), str(gap["oracle"])
    unknown = [name for name in ends if name not in files]
    if unknown or ends[0] == ends[1] or len(files) < 3:
        why = f"{unknown[0]} is none of {', '.join(files)}" if unknown else "needs two files and a third one to judge"
        raise InputError(f"gap={dict(gap)}: {why}; {wanted}")
    return ends


def gap_rows(metric: str, scores: Mapping[str, Floats], ends: tuple[str, str], draws: PassageDraws) -> Iterator[dict]:
    """(file - random) / (oracle - random) of the means of `scores` (passages,); undefined unless oracle > random."""
    means = {name: draws.means(values) for name, values in scores.items()}
    low, high = (means[name] for name in ends)
    whole = np.where(high > low, high - low, 0.0)
    for name, values in means.items():
        if name not in ends:
            yield _row(name, metric, GAP, quotient(values - low, whole), draws.passages)


@dataclass(frozen=True)
class PassageSets:
    """For each passage, in the same order: its text, the human questions, and the questions of each file (none where
    only another file asks about it); and the number of passages with human questions that no file asks about.
    """

    contexts: list[str]
    references: QuestionLists
    predictions: dict[str, QuestionLists]
    left_out: int = 0


def passage_sets(
    files: Mapping[str, Sequence[MetricRow]], gold: GoldQuestions | None, empty: Sequence[MetricRow] = ()
) -> PassageSets:
    """The sets of every passage that some file asks about, and of those of `empty`, rows of passages about which some
    file says that it asks nothing.

    With `gold` the references are all its questions about the passage, else those of the rows. A reference that is
    repeated in `gold` or in a row counts as often, as in `rewards.match_sets`; several rows may name the same one.
    """
    first: dict[str, MetricRow] = {}
    questions: dict[str, dict[str, list[str]]] = {name: {} for name in files}
    references: dict[str, Counter[str]] = {}
    for name, row in [*((name, row) for name, rows in files.items() for row in rows), *((None, row) for row in empty)]:
        if row.context is None:
            raise InputError(f"{row.where}: no 'context', and sets=true takes questions together by it")
        passage = passage_hash(row.context)
        first.setdefault(passage, row)
        if name is not None:
            questions[name].setdefault(passage, []).append(row.question)
        human = row.references or () if gold is None else gold.of_passage(row.context)
        references[passage] = references.get(passage, Counter()) | Counter(human)  # of each the larger number
    for passage, row in first.items():
        if not references[passage]:
            raise InputError(f"{row.where}: no references, and sets=true compares with them; give references=")
    predictions = {name: [sets.get(passage, []) for passage in first] for name, sets in questions.items()}
    contexts = [row.context or "" for row in first.values()]
    left_out = 0 if gold is None else gold.passages - len(first)
    return PassageSets(contexts, [list(references[passage].elements()) for passage in first], predictions, left_out)


def set_record(
    sets: PassageSets,
    metrics: Mapping[str, Reward],
    folder: Path,
    *,
    resamples: int,
    seed: int,
    gap: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Means over passages: `sets`, one row for each file, metric and part (Multi-M for every metric that compares a
    question with references, Self-BLEU, and the difference in number); `set_counts`; `set_signatures`; `not_in_sets`,
    why metrics are left out; `set_measures` and their signatures, with Multi-M of one half of the human questions
    against the other, and with `gap`, the names of the files of random and oracle choice, the share of their
    difference in F1 that every other file has.

    The parts of Multi-M are precision, recall, their F1, and the score against all references at once (`averaged`).
    Scores below 0, as embeddings may have them, count as 0, like pairs that are left out. Those of each passage are
    kept in `folder`, so that a command that was killed goes on.
    """
    draws = PassageDraws(range(len(sets.contexts)), resamples=resamples, seed=seed)
    measures = measure_rows(sets.predictions, sets.references, sets.contexts, draws)
    rows: Rows = []
    signatures = {SELF_BLEU: self_bleu_signature(), MISSING: cardinality_signature()}
    texts = {name: (questions, sets.references, sets.contexts) for name, questions in sets.predictions.items()}
    judged, left_out = judged_passages(metrics, multi_of, texts, folder)
    if drawn := halves(sets.references, sets.contexts, seed):
        numbers, first, second = zip(*drawn, strict=True)
        texts_of_halves = [*first], [*second], [sets.contexts[number] for number in numbers]
        draws_of_halves = PassageDraws(range(len(drawn)), resamples=resamples, seed=seed)
    for label, (judge, columns) in judged.items():
        signatures[label] = judge.signature
        bounds = 0.0, judge.judge.metric.bounds[1]
        for name, scores in columns.items():
            rows += _means(name, label, scores, draws, bounds)
        if drawn:
            scores = judge.kept_scores(folder.with_name("set_halves") / f"{label}.jsonl", texts_of_halves)
            measures += _means(HALVES, label, scores, draws_of_halves, bounds)
        if gap is not None:
            measures += gap_rows(label, {name: scores["f1"] for name, scores in columns.items()}, gap, draws)
    for name, questions in sets.predictions.items():
        rows += _means(name, SELF_BLEU, {"mean": self_bleu(questions)}, draws, SHARE)
        rows += _means(name, MISSING, {"mean": cardinality_difference(questions, sets.references)}, draws)
    without = {name: sum(not questions for questions in of_file) for name, of_file in sets.predictions.items()}
    counts = {"passages": len(sets.contexts), "without_questions": without, "left_out": sets.left_out}
    return {
        **{"sets": rows, "set_counts": counts, "set_signatures": signatures, "not_in_sets": left_out},
        **{"set_measures": measures, "set_measure_signatures": dict(SIGNATURES)},
    }


@dataclass(frozen=True)
class PassageJudge:
    """What judges all questions about a passage together, the `parts` of its result, and their values of it."""

    judge: Any
    parts: Sequence[str]
    values_of: Callable[[Any], Iterable[Sequence[float]]]

    @property
    def signature(self) -> str:
        return str(self.judge.signature)

    def kept_scores(self, path: Path, columns: Sequence[Sequence[Any]]) -> dict[str, Floats]:
        """Scores (passages,) of each part, by what the judge reads (`columns`); each is kept in `path` at once."""
        passages = len(columns[0])
        note = {"signature": self.signature, "passages": passages, "texts": texts_hash(zip(*columns, strict=True))}

        def batch(start: int, end: int) -> list[list[float]]:
            self.judge.metric.reset_cache()
            scored = self.judge.score(*(column[start:end] for column in columns))
            return [list(parts) for parts in zip(*self.values_of(scored), strict=True)]

        trusted = is_signed(self.judge.metric)
        rows = kept_scores(path, note, passages, batch, batch_size=PASSAGES_AT_ONCE, unit="passage", trusted=trusted)
        return dict(zip(self.parts, np.array(rows).T, strict=True))


Judged = dict[str, tuple[PassageJudge, dict[str, dict[str, Floats]]]]


def judged_passages(
    metrics: Mapping[str, Reward],
    judge_of: Callable[[Any], PassageJudge],
    files: Mapping[str, Sequence[Sequence[Any]]],
    folder: Path,
) -> tuple[Judged, dict[str, str]]:
    """By metric its judge and each file's scores; why others are left out. `files`: columns that judges read."""
    judged: Judged = {}
    left_out: dict[str, str] = {}
    for label, metric in metrics.items():
        try:
            judge = judge_of(metric)
            judged[label] = (
                judge,
                {
                    name: judge.kept_scores(folder / quote(name, safe="") / f"{label}.jsonl", columns)
                    for name, columns in files.items()
                },
            )
        except MetricInputError as error:
            left_out[label] = str(error)
    return judged, left_out


def multi_of(metric: Any) -> PassageJudge:
    """Multi-M of a metric; `MetricInputError` where it cannot judge sets."""
    if "answers" in getattr(metric, "needs", ()):
        raise MetricInputError("it needs an answer, and the questions of a set have several")
    multi = Multi(metric, clip=isinstance(metric, Metric) and metric.bounds[0] < 0)
    return PassageJudge(multi, PARTS, lambda scored: [getattr(scored, part) for part in PARTS])


def _means(
    name: str, label: str, columns: Mapping[str, ArrayLike], draws: PassageDraws, bounds: Bounds | None = None
) -> Rows:
    sums = draws.sums(np.column_stack([*columns.values()])) / draws.passages
    return [_row(name, label, part, sums[:, column], draws.passages, bounds) for column, part in enumerate(columns)]


def write_set_pairs(
    folder: Path, sets: PassageSets, metrics: Mapping[str, Reward], left_out: Mapping[str, str], passages: int
) -> None:
    """Write `set_pairs.json`: the label of the first metric that judges sets, its signature, and so many passages,
    spread evenly over all: `context`, `references`, and for each file (`files`) its `questions` and `pairs`: place of
    the question, place of the reference, score, by the largest sum.
    """
    label = next((label for label in metrics if label not in left_out), None)
    if label is None:
        raise InputError("page=…: no metric compares questions with references; add one, such as metrics=[rouge_l]")
    multi: Multi = multi_of(metrics[label]).judge
    total = len(sets.contexts)
    count = min(passages, total)
    places = [place * total // count for place in range(count)]
    contexts, references = [sets.contexts[place] for place in places], [sets.references[place] for place in places]
    texts = zip(contexts, references, strict=True)
    shown: list[dict[str, Any]] = [{"context": context, "references": human, "files": {}} for context, human in texts]
    for name, of_file in sets.predictions.items():
        questions = [of_file[place] for place in places]
        for row, asked, pairs in zip(shown, questions, multi.pairs(questions, references, contexts), strict=True):
            row["files"][name] = {"questions": asked, "pairs": [list(pair) for pair in pairs]}
    record = {"metric": label, "signature": multi.signature, "of": total, "passages": shown}
    with writing(folder):
        write_json(folder / FILE, record)
