"""A metric that knows nothing but the number of words; what does not beat it has not looked at the question."""

from rewards.base import Inputs, Metric, MetricResult


class QuestionLength(Metric):
    """Words between white space; `sign=-1` prefers short questions."""

    name = "question_length"
    needs = frozenset[str]()

    def __init__(self, sign: int = 1) -> None:
        self.sign = sign

    def choices(self):
        return {"sign": self.sign}

    def compute(self, inputs: Inputs) -> MetricResult:
        return MetricResult([float(self.sign * len(question.split())) for question in inputs.questions], {})
