"""A language model as a judge of questions, behind an address (`rewards.endpoint`)."""

import math
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from rewards.base import Inputs, Metric, MetricResult
from rewards.endpoint import Completion, Endpoint, message, read_template
from rewards.errors import MetricInputError, number, one_of, packaged

LIKELY = 20  # tokens whose probabilities are asked for, the most that servers give
_TEXTS = packaged("judge.toml")
CRITERIA, RATINGS = tuple(_TEXTS["criteria"]), tuple(_TEXTS["scale"])
_SCALE = re.compile(r"(/|\bof) ?5\b|\b1 ?(to|-|–) ?5\b")
_RATING = re.compile(r"(?<![\w.])[1-5](?!\w|\.\d)")


class Judge(Metric):
    """The mean of a language model's ratings of a question from 1 to 5, one request for each criterion.

    Source: Liu et al., "G-Eval: NLG Evaluation using GPT-4 with Better Human Alignment", EMNLP 2023: a rating is the
    expectation Σ p(r) · r / Σ p(r) over the tokens r of 1 to 5, where the server gives the log-probabilities of the
    likely ones, else the rating that is written. The criteria: Fu et al., "QGEval: Benchmarking Multi-dimensional
    Evaluation for Question Generation", EMNLP 2024. Where a rating cannot be read, there is no score (NaN).

    Args:
        model: its name at the server; further options are fields of `rewards.endpoint.Endpoint`.
        url: the address of the server.
        criteria: some of `CRITERIA`, each a part of the result; None: all.
        order: in which the scale is shown, ``ascending`` (1 first) or ``descending``. Judges prefer places: the
            difference of the two says how much.
        prompt: a text file with {passage}, {question}, {criterion} and {scale} in it, and {answer}; None: that of
            `rewards/judge.toml`.
        max_new_tokens: of an answer. Models that think first need hundreds.
    """

    name = "judge"
    needs = frozenset({"contexts", "answers"})
    bounds = (1.0, 5.0)

    def __init__(
        self,
        model: str,
        url: str = "http://127.0.0.1:8000/v1",
        criteria: str | Sequence[str] | None = None,
        order: str = "ascending",
        prompt: str | Path | None = None,
        max_new_tokens: int = 16,
        **endpoint: Any,
    ) -> None:
        chosen = [criteria] if isinstance(criteria, str) else CRITERIA if criteria is None else criteria
        self.part_names = tuple(one_of(self.name, "criterion", one, CRITERIA) for one in chosen)
        if not chosen or len({*chosen}) < len(chosen):
            raise MetricInputError(f"{self.name}: criteria {chosen} is empty or names one twice")
        self.order = one_of(self.name, "order", order, ("ascending", "descending"))
        self.longest = int(number(self.name, "max_new_tokens", max_new_tokens, low=1, whole=True))
        places = ("passage", "question", "criterion", "scale")
        self.template = read_template(prompt, places) if prompt else _TEXTS["prompt"].strip()
        self.endpoint = Endpoint(url, model, **endpoint)

    def choices(self) -> Mapping[str, object]:
        asked = {"model": self.endpoint.model, "endpoint": self.endpoint.url, "criteria": ",".join(self.part_names)}
        prompt = sha256(self.template.encode()).hexdigest()[:8]
        return {**asked, "max_new_tokens": self.longest, "order": self.order, "prompt": prompt}

    def compute(self, inputs: Inputs) -> MetricResult:
        scale = [f"{rating}: {meaning}" for rating, meaning in _TEXTS["scale"].items()]
        same = {"scale": "\n".join(scale if self.order == "ascending" else scale[::-1])}
        options = {"temperature": 0.0, "max_tokens": self.longest, "logprobs": True, "top_logprobs": LIKELY}
        bodies = []
        for passage, question, answer in zip(inputs.contexts, inputs.questions, inputs.answers, strict=True):
            row = {"passage": passage, "question": question, "answer": answer, **same}
            asked = [{**row, "criterion": _TEXTS["criteria"][name]} for name in self.part_names]
            bodies += [{"messages": [message(self.template, values)], **options} for values in asked]
        ratings, count = [rating_of(answer) for answer in self.endpoint.answers(bodies)], len(self.part_names)
        scores = [math.fsum(ratings[at : at + count]) / count for at in range(0, len(ratings), count)]
        return MetricResult(scores, {name: ratings[at::count] for at, name in enumerate(self.part_names)})


def rating_of(answer: Completion) -> float:
    """A rating from 1 to 5: expected where its token comes with others, else as written; NaN of none or several."""
    found = {*_RATING.findall(_SCALE.sub(" ", answer.text))}
    if len(found) != 1:
        return math.nan
    (written,) = found
    # The last such token: what a model thinks before it answers may have others.
    likely = next((likely for text, likely in reversed(answer.tokens) if text.strip() == written), {written: 0.0})
    weights = [(int(text), math.exp(logprob)) for text, logprob in likely.items() if text.strip() in RATINGS]
    total = sum(weight for _, weight in weights)  # 0 where all are -9999, as servers write "not known"
    return sum(rating * weight for rating, weight in weights) / total if total else float(written)
