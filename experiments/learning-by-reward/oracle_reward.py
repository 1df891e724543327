"""The oracle as a reward: what the same training reaches with a judge that makes no mistake (an upper bound)."""

from collections.abc import Sequence

from rewards import MetricResult
from rl_qg.data.corpus import read_facts
from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.oracle import judgements


class OracleReward:
    """1 for a question that asks for the answer, else 0; it reads the passage's facts, and no human question.

    Where the answer stands more than once in the passage, the fact of its first place with a fact decides.
    """

    name, signature, higher_is_better = "oracle", "oracle|1", True
    needs = frozenset({"contexts", "answers"})

    def score(
        self,
        questions: Sequence[str],
        contexts: Sequence[str],
        *,
        answers: Sequence[str],
        references: Sequence[Sequence[str]] | None = None,
    ) -> MetricResult:
        """Score question i about context i and answer i."""
        rows = zip(questions, contexts, answers, strict=True)
        return MetricResult([float(_asks_for(*row)) for row in rows], {})


def _asks_for(question: str, context: str, answer: str) -> bool:
    facts = read_facts(context)
    starts = [fact.start for fact in facts.facts if fact.value == answer] if facts else []
    examples = [QAExample("", "", context, question, (Answer(answer, start),)) for start in starts]
    return any(one is not None and one.verdict == "right" for one in judgements([question] * len(examples), examples))
