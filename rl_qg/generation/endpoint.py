"""A language model behind an address as a question generator: one request for each question (`rewards.endpoint`)."""

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from rewards.endpoint import LETTERS, Completion, Endpoint, message, read_template
from rewards.words import ends_as_question
from rl_qg.data.examples import QAExample
from rl_qg.generation.generator import Candidate, CandidateGenerator
from rl_qg.generation.prompts import EncodedPrompt, Prompt, PromptEncoder
from rl_qg.runtime.errors import InputError
from rl_qg.settings.yaml_files import CONFIGS

PROMPT = CONFIGS / "prompt" / "question.txt"
FORM = json.loads((CONFIGS / "prompt" / "question.json").read_text(encoding="utf-8"))  # of an answer
_LABEL = re.compile(r"^[\W\d]*(question|q)\W*:\W*", re.IGNORECASE)


class EndpointGenerator(CandidateGenerator):
    """Asks for questions as a generator of one's own writes them; their log-probability is not known (NaN).

    `prompt` is a text file with {passage} and {answer} in it (None: that of `configs/prompt`), `max_new_tokens` are
    those of an answer, with its JSON and what the model thinks before it. `unread` counts answers without a question,
    which are empty questions. `MetricInputError` for a wrong prompt.
    """

    def __init__(self, endpoint: Endpoint, *, prompt: str | Path | None = None, max_new_tokens: int = 256) -> None:
        self.endpoint, self.longest, self.unread = endpoint, max_new_tokens, 0
        self.template = read_template(prompt or PROMPT, ("passage", "answer"))
        self.task, self.device, self._independent = "questions", torch.device("cpu"), True
        self.tokenizer: Any = lambda texts, **_: {"input_ids": [range(len(text) // LETTERS) for text in texts]}
        self.encoder = _Whole()
        self.name = f"{endpoint.identity} prompt:{sha256(self.template.encode()).hexdigest()[:8]}"

    def candidates(
        self, examples: Sequence[QAExample], count: int, *, top_p: float | None, seed: int = 0, **options: Any
    ) -> list[list[Candidate]]:
        """`count` samples, of the `temperature`, for each example; without `top_p` its most likely question alone."""
        count = count if top_p else 1
        bodies = []
        for example in examples:
            asked = message(self.template, {"passage": example.context, "answer": example.answers[0].text})
            body = {"messages": [asked], "max_tokens": self.longest, "response_format": FORM, "temperature": 0.0}
            for place in range(count):
                drawn = int(sha256(f"{seed}|{example.id}|{place}".encode()).hexdigest()[:7], 16)
                sampling = {"temperature": options["temperature"], "top_p": top_p, "seed": drawn}
                bodies.append(body | sampling if top_p else body)
        questions = [read_question(answer) for answer in self.endpoint.answers(bodies)]
        self.unread += questions.count("")
        found = [Candidate(text, math.nan) for text in questions]
        return [found[start : start + count] for start in range(0, len(found), count)]

    def likelihoods(self, examples: Sequence[QAExample]) -> list[Candidate]:
        raise InputError(f"{self.name}: a model behind an address says nothing of questions that it has not written")


class _Whole(PromptEncoder):
    """Nothing is cut of what is sent."""

    def __init__(self) -> None:
        self.prompt, self.languages = Prompt(), None  # type: ignore[assignment]

    def encode(self, examples: Sequence[QAExample]) -> list[EncodedPrompt]:
        return [EncodedPrompt([], 0, False) for _ in examples]


def read_question(answer: Completion) -> str:
    """The question in an answer: of its first JSON object with one, else its first line that ends as one, else ""."""
    for brace in re.finditer(r"\{", answer.text):
        with suppress(ValueError, RecursionError):
            value, _ = json.JSONDecoder().raw_decode(answer.text, brace.start())
            if isinstance(value.get("question"), str):
                return " ".join(value["question"].split())
    lines = [_LABEL.sub("", " ".join(line.split())).strip("\"'“”*` ") for line in answer.text.splitlines()]
    return next((line for line in lines if ends_as_question(line)), "")
