"""A selection that is learned from pools with human questions: a linear model of how much a question adds to a set.

The set is built greedily. At each step the model predicts, for every question that is left, by how much it would raise
S, the largest sum of scores of pairs of questions and human questions (`gains`), and the question
with the largest prediction is taken. Without a number it stops where F = 2 S / (m + n) would fall, that is where the
predicted gain is at most S / (m + n); n, the number of human questions, is predicted from the passage.

Both are ridge regressions with closed solutions. The first learns from sets as the true gains build them, then also
from those that it builds itself (Ross, Gordon and Bagnell, "A reduction of imitation learning and structured
prediction to no-regret online learning", AISTATS 2011), since these are the sets it will meet.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from rewards import RougeL
from rl_qg.asking.set_pool import PassagePool
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, write_json
from rl_qg.stats.intervals import Floats
from rl_qg.text.question_types import NINE_TYPES, nine_type
from rl_qg.text.words import normalised_words, word_count


def reference_scores(questions: Sequence[str], references: Sequence[str]) -> Floats:
    """ROUGE-L of each question with each human one, (questions, references)."""
    shape = (len(questions), len(references))
    if not all(shape):
        return np.zeros(shape)
    pairs = [(question, [reference]) for question in questions for reference in references]
    scores = RougeL().score([question for question, _ in pairs], references=[gold for _, gold in pairs])
    return np.array(scores.scores).reshape(shape)


def worth(scores: Floats) -> float:
    """S of a set, from the scores (m, n) of its questions: the largest sum over pairs of a question and a human one of
    which no two share either (Multi-M of `rewards.sets`: precision S / m, recall S / n, F = 2 S / (m + n)).
    """
    return float(scores[linear_sum_assignment(scores, maximize=True)].sum()) if scores.size else 0.0


def gains(scores: Floats, chosen: Sequence[int]) -> Floats:
    """How much S grows with each question, (n,), after those that are chosen; 0 for these."""
    before = worth(scores[list(chosen)])
    return np.array([0.0 if row in chosen else worth(scores[[*chosen, row]]) - before for row in range(len(scores))])


FEATURES = (
    *("probability", "answerability", "words", "greedy", "typical", "position", "worthy", "from passage"),
    *(f"type {kind}" for kind in NINE_TYPES[:-1]),
    *("nearest chosen", "new sentence", "chosen of unit"),
)
"""Of a question in a pool, given a set: the last three depend on the set. `typical` is its mean similarity to the
pool, `from passage` the share of its words that stand in the passage, `new sentence` how much it covers that the set
does not."""

SIZE_FEATURES = ("sentences", "words")  # of a passage, to predict the number of human questions
RIDGE = 1.0
ROUNDS = 2
BEYOND = 2  # steps after as many questions as people asked, so that it learns what adds nothing
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Regression:
    """A linear model of standardised features: intercept + Σ weights · (x − mean) / scale."""

    mean: list[float]
    scale: list[float]
    weights: list[float]
    intercept: float

    def __call__(self, features: Floats) -> Floats:
        """Predictions (n,) for features (n, f)."""
        standard = (features - np.array(self.mean)) / np.array(self.scale)
        return self.intercept + standard @ np.array(self.weights)

    @classmethod
    def fit(cls, features: Floats, targets: Floats) -> "Regression":
        """Ridge regression with penalty `RIDGE`; a feature that never changes gets weight 0."""
        mean, spread = features.mean(0), features.std(0)
        scale = np.where(spread > 1e-9, spread, 1.0)
        standard = np.where(spread > 1e-9, (features - mean) / scale, 0.0)
        normal = standard.T @ standard + RIDGE * np.eye(features.shape[1])
        weights = np.linalg.solve(normal, standard.T @ (targets - targets.mean()))
        return cls(mean.tolist(), scale.tolist(), weights.tolist(), float(targets.mean()))


@dataclass(frozen=True)
class LearnedSelector:
    """What `train_selector` returns: models of the gain of a question (from `FEATURES`) and of the number of human
    questions (from `SIZE_FEATURES`), learned from the pools of so many `passages`.

    `with_reader`: answerability was known in training, and must then be known in use. `strategy` and `model` are those
    of the generator of the pools; "" if not known.
    """

    gain: Regression
    size: Regression
    with_reader: bool
    passages: int
    strategy: str = ""
    model: str = ""

    def choose(self, pool: PassagePool, number: int | None) -> list[int]:
        """The set of a pool, at most `number` questions; None: it decides how many."""
        if self.with_reader != (pool.answerability is not None):
            having = "with a reader; give reader=" if self.with_reader else "without a reader; leave out reader="
            raise InputError(f"select=learned: the selector was trained {having}")
        fixed = _fixed_features(pool)
        people = max(1.0, float(self.size(_size_features(pool))[0]))
        chosen: list[int] = []
        total = 0.0
        for _ in pool.questions[:number]:
            value = self.gain(_features(pool, fixed, chosen))
            value[chosen] = -np.inf
            best = int(value.argmax())
            if number is None and chosen and value[best] <= total / (len(chosen) + people):
                break
            chosen.append(best)
            total += max(0.0, float(value[best]))
        return chosen

    def warn_unless_of(self, strategy: str) -> None:
        if self.strategy not in ("", strategy):
            log.warning(
                "the selector has learned from questions of %s by %s, and these are of %s; train one on them with "
                "rl-qg train-selector",
                *(self.strategy, self.model, strategy),
            )

    def save(self, path: Path) -> None:
        write_json(path, {"features": list(FEATURES), "size_features": list(SIZE_FEATURES), **asdict(self)})

    @classmethod
    def load(cls, path: Path) -> "LearnedSelector":
        if not path.is_file():
            raise InputError(f"selector={path}: no such file; train one with rl-qg train-selector")
        record: Any = read_json(path)
        try:
            known = (record["features"], record["size_features"]) == (list(FEATURES), list(SIZE_FEATURES))
            gain, size = (Regression(**record[name]) for name in ("gain", "size"))
            fields = {name: record[name] for name in ("with_reader", "passages", "strategy", "model")}
            selector = cls(gain, size, **fields)
        except (KeyError, TypeError):
            known = False
        if not known:
            raise InputError(
                f"selector={path}: no selector of this version of rl-qg; train one with rl-qg train-selector"
            )
        return selector


def train_selector(pools: Sequence[PassagePool], references: Sequence[Sequence[str]]) -> LearnedSelector:
    """Learn to select from pools of passages, all with answerability or all without, and human questions of each."""
    known = [(pool, reference_scores(pool.texts, gold)) for pool, gold in zip(pools, references, strict=True)]
    useful = [(pool, values) for pool, values in known if values.size]
    readers = {pool.answerability is not None for pool, _ in useful}
    if len(readers) != 1:
        raise InputError(
            "no passage has both generated and human questions"
            if not readers
            else "some passages have answerability and some have not; use the same reader for all"
        )
    size = Regression.fit(
        np.concatenate([_size_features(pool) for pool, _ in useful]),
        np.array([float(values.shape[1]) for _, values in useful]),
    )
    steps: list[tuple[Floats, Floats]] = []
    gain: Regression | None = None
    for _ in range(ROUNDS):
        for pool, values in useful:
            steps += _steps(pool, values, gain)
        gain = Regression.fit(*(np.concatenate(columns) for columns in zip(*steps, strict=True)))
    assert gain is not None
    return LearnedSelector(gain, size, readers.pop(), len(useful))


def _steps(pool: PassagePool, scores: Floats, gain: Regression | None) -> Iterator[tuple[Floats, Floats]]:
    """Build a set, by true gains or a model's: features and true gains of all questions left at each step."""
    fixed, chosen = _fixed_features(pool), list[int]()
    for _ in pool.questions[: scores.shape[1] + BEYOND]:
        features, true = _features(pool, fixed, chosen), gains(scores, chosen)
        left = np.setdiff1d(np.arange(len(pool.questions)), chosen)
        yield features[left], true[left]
        by = true if gain is None else gain(features)
        chosen.append(int(left[by[left].argmax()]))


def _fixed_features(pool: PassagePool) -> Floats:
    """(n, 16) features that do not depend on the set."""
    passage = set(normalised_words(pool.context))
    words = [normalised_words(text) for text in pool.texts]
    kinds = [nine_type(text) for text in pool.texts]
    count = len(pool.questions)
    return np.column_stack(
        [
            pool.probability,
            np.zeros(count) if pool.answerability is None else pool.answerability,
            [len(one) for one in words],
            [float(not question.rank) for question in pool.questions],
            (pool.similarity.sum(1) - 1) / max(1, count - 1),
            [(question.start + question.end) / 2 / max(1, len(pool.context)) for question in pool.questions],
            pool.asked @ pool.weights / np.maximum(pool.asked.sum(1), 1e-9),
            [sum(word in passage for word in one) / max(1, len(one)) for one in words],
            *([float(kind == name) for kind in kinds] for name in NINE_TYPES[:-1]),
        ]
    )


def _features(pool: PassagePool, fixed: Floats, chosen: Sequence[int]) -> Floats:
    """(n, f) all features, given a set."""
    picked = list(chosen)
    units = [(question.start, question.end, question.type) for question in pool.questions]
    nearest = pool.similarity[:, picked].max(1) if picked else np.zeros(len(units))
    covered = pool.asked[picked].max(0) if picked else np.zeros(pool.asked.shape[1])
    new = np.clip(pool.asked - covered, 0, None).sum(1)
    taken = [units[row] for row in picked]
    return np.column_stack([fixed, nearest, new, [float(taken.count(unit)) for unit in units]])


def _size_features(pool: PassagePool) -> Floats:
    """(1, 2) of the passage."""
    return np.array([[float(pool.weights.sum()), float(word_count(pool.context))]])
