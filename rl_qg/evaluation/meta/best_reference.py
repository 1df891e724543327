"""The best score of a question against a single reference, for a metric that would take several together."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from rewards.contract import Result, check_row_by_row, scored
from rl_qg.evaluation.metric_scores import direction_of
from rl_qg.evaluation.reward_scorer import Reward, signature_of

BEST = "best"


def best_of_references(metric: Reward) -> Reward:
    """The metric against one reference at a time, of whose scores the best counts; itself where it reads none.

    BLEU, for one, counts an n-gram that any reference has: a question made of parts of two good references then scores
    above what either would give it.

    Raises:
        MetricInputError: a score depends on the other questions, so that one reference cannot be scored alone.
    """
    if "references" not in getattr(metric, "needs", ("references",)):
        return metric
    check_row_by_row(metric)
    return BestReference(metric)


class BestReference:
    """See `best_of_references`. The parts of a result are those of the chosen reference."""

    def __init__(self, metric: Any) -> None:
        self.metric = metric
        self.needs = getattr(metric, "needs", ("references",))
        self.higher_is_better = direction_of(metric) > 0
        self.signature = f"{signature_of(metric)}|references:{BEST}"

    def reset_cache(self) -> None:
        """Clear the metric's cache of earlier calls."""
        if hasattr(self.metric, "reset_cache"):
            self.metric.reset_cache()

    def score(
        self,
        questions: Sequence[str],
        contexts: Sequence[str] | None = None,
        *,
        answers: Sequence[str] | None = None,
        references: Sequence[Sequence[str]] | None = None,
    ) -> Result:
        """As `rewards.base.Metric.score`; of a question without a score against any reference it is None."""
        groups = references or []
        owners = [number for number, group in enumerate(groups) for _ in group]
        asked, passages, about = (
            None if column is None else [column[owner] for owner in owners]
            for column in (questions, contexts, answers)
        )
        single = [[text] for text in chain.from_iterable(groups)]
        result = scored(self.metric, asked or [], passages, answers=about, references=single)
        best: dict[int, int] = {}
        for at, owner in enumerate(owners):
            if owner not in best or self._is_better(result.scores[at], result.scores[best[owner]]):
                best[owner] = at
        chosen = [best[number] for number in range(len(questions))]
        parts = {name: [values[at] for at in chosen] for name, values in result.parts.items()}
        return Result([result.scores[at] for at in chosen], parts)

    def _is_better(self, score: float | None, other: float | None) -> bool:
        if score is None or other is None:
            return score is not None
        return score > other if self.higher_is_better else score < other
