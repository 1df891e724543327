"""A language model behind an address as a question generator: one request for each question (`rewards.endpoint`)."""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rewards.endpoint import Completion, Endpoint, filled, read_template
from rewards.words import ends_as_question
from rl_qg.data.examples import QAExample
from rl_qg.generation.generator import Candidate, CandidateGenerator
from rl_qg.generation.prompts import EncodedPrompt, Prompt, PromptEncoder
from rl_qg.runtime.errors import InputError
from rl_qg.settings import EndpointSettings
from rl_qg.settings.yaml_files import CONFIGS

PROMPT = CONFIGS / "prompt" / "question.txt"
PLACES = ("passage", "answer")
LETTERS = 4  # of a token, about: what is known of a tokenizer that is elsewhere
SCHEMA = {
    "type": "object",
    "properties": {"question": {"type": "string"}},
    "required": ["question"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "question", "strict": True, "schema": SCHEMA}}
_LABEL = re.compile(r"^[\W\d]*(question|q)\W*:\W*", re.IGNORECASE)


class EndpointGenerator(CandidateGenerator):
    """Asks for questions as a generator of one's own writes them; their log-probability is not known (NaN).

    Args:
        endpoint: where it is asked.
        prompt: a text file in which {passage} and {answer} stand for these; None: that of `configs/prompt`.
        max_new_tokens: of an answer, with its JSON and what the model thinks before it.

    `unread` counts the answers in which no question was found, which are empty questions. `InputError`, or
    `MetricInputError` of the endpoint, for a wrong option.
    """

    def __init__(self, endpoint: Endpoint, *, prompt: str | Path | None = None, max_new_tokens: int = 256) -> None:
        self.endpoint, self.longest, self.unread = endpoint, max_new_tokens, 0
        self.template = read_template(Path(prompt).expanduser() if prompt else PROMPT, PLACES)
        self.task, self.device, self._independent = "questions", torch.device("cpu"), True
        self.tokenizer: Any = _counted
        self.encoder = _Whole()

    @classmethod
    def of(cls, url: str, settings: EndpointSettings) -> "EndpointGenerator":
        if not settings.name:
            such = "model.name=Qwen/Qwen2.5-7B-Instruct"
            raise InputError(
                f"model.path={url}: model.name has no value; give what the server calls it, such as {such}"
            )
        limits: Any = {"concurrency": settings.concurrency, "budget": settings.budget}
        endpoint = Endpoint(url, settings.name, key_variable=settings.key_variable, kept=settings.kept, **limits)
        return cls(endpoint, prompt=settings.prompt, max_new_tokens=settings.max_new_tokens)

    @property
    def name(self) -> str:
        """The address, the model, and a hash of the prompt."""
        return f"{self.endpoint.identity} prompt:{hashlib.sha256(self.template.encode()).hexdigest()[:8]}"

    @property
    def report(self) -> str:
        empty = f"; {self.unread:,} questions are empty: no question was found in the answer" if self.unread else ""
        return f"{self.endpoint.report}{empty}"

    @property
    def is_independent(self) -> bool:
        return True

    def greedy(self, examples: Sequence[QAExample], *, max_new_tokens: int) -> list[str]:
        groups = self.candidates(examples, 1, max_new_tokens=max_new_tokens, top_p=None, temperature=1.0)
        return [group[0].question for group in groups]

    def candidates(
        self,
        examples: Sequence[QAExample],
        count: int,
        *,
        max_new_tokens: int,
        top_p: float | None,
        temperature: float,
        seed: int = 0,
    ) -> list[list[Candidate]]:
        """`count` samples for each example, or without `top_p` its most likely question alone. The longest answer is
        that of the generator, not `max_new_tokens`.
        """
        sampling: Any = {"temperature": 0.0} if top_p is None else {"temperature": temperature, "top_p": top_p}
        count = 1 if top_p is None else count
        bodies = [
            {**self._body(example), **sampling, "seed": _seed(f"{seed}|{example.id}|{place}") if top_p else 0}
            for example in examples
            for place in range(count)
        ]
        questions = [read_question(answer) for answer in self.endpoint.answers(bodies)]
        self.unread += questions.count("")
        found = [Candidate(text, math.nan) for text in questions]
        return [found[start : start + count] for start in range(0, len(found), count)]

    def likelihoods(self, examples: Sequence[QAExample]) -> list[Candidate]:
        raise InputError(f"{self.name}: a model behind an address says nothing of questions that it has not written")

    def _body(self, example: QAExample) -> dict[str, Any]:
        values = {"passage": example.context, "answer": example.answers[0].text}
        message = {"role": "user", "content": filled(self.template, values)}
        return {"messages": [message], "max_tokens": self.longest, "response_format": FORM}


class _Whole(PromptEncoder):
    """Nothing is cut of what is sent."""

    def __init__(self) -> None:
        self.prompt, self.languages = Prompt(), None  # type: ignore[assignment]

    def encode(self, examples: Sequence[QAExample]) -> list[EncodedPrompt]:
        return [EncodedPrompt([], 0, False) for _ in examples]


def _counted(texts: Sequence[str], **_: Any) -> dict[str, list[range]]:
    return {"input_ids": [range(-(-len(text) // LETTERS)) for text in texts]}


def _seed(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:7], 16)


def read_question(answer: Completion) -> str:
    """The question in an answer: of its first JSON object with one, else its first line that ends as a question; ""
    without one.
    """
    for brace in re.finditer(r"\{", answer.text):
        try:
            value, _ = json.JSONDecoder().raw_decode(answer.text, brace.start())
        except ValueError:
            continue
        if isinstance(value, dict) and isinstance(value.get("question"), str):
            return " ".join(value["question"].split())
    lines = [_LABEL.sub("", " ".join(line.split())).strip("\"'“”*` ") for line in answer.text.splitlines()]
    return next((line for line in lines if ends_as_question(line)), "")
