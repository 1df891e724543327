"""The formats of published question generators, by the names in `published.yaml`: how their inputs and texts differ
from those of models of this package (`rl_qg.generation.prompts`, `rl_qg.generation.tasks`).

Everything else works on texts of our own: `Format.write` makes a published text of one, `Format.read` the reverse.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rl_qg.generation.tasks import (
    PAIR,
    QUESTION,
    escape,
    join_answers,
    join_pairs,
    pair_parts,
    parse_answers,
    unescape,
)
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import packaged_yaml

OWN = "rl-qg"  # names the format of this package
MARK = "<hl> {} <hl>"
TOKEN = re.compile(r"<\w+>")


@dataclass(frozen=True)
class Format:
    """A format of published models.

    Args:
        names, example: a regular expression of the names of models, and one of them.
        size, licence, source: of the models, and where the format stands.
        known_by: tokens, or keys of the configuration, by which a model with another name is recognised; separated by
            spaces.
        task, input, granularity, mode, prefix, max_target_length: as in `rl_qg.generation.prompts.Prompt`.
        mark: what stands for the answer in the passage.
        before: text with the answer before the passage, in which nothing is marked then.
        question: text that is written for a question.
        pair: text that is written for a question and its answer.
        between: what separates pairs, answers or questions; "" where only the first is written.
        closed: whether it also stands after the last one.
    """

    names: str
    example: str
    size: str
    licence: str
    source: str
    known_by: str = ""
    task: str = "questions"
    input: str = "paragraph_answer"
    granularity: str = ""
    mode: str = ""
    prefix: str = ""
    max_target_length: int = 64
    mark: str = MARK
    before: str = ""
    question: str = "{}"
    pair: str = ""
    between: str = ""
    closed: bool = False

    @cached_property
    def written_tokens(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(TOKEN.findall(self.pair + self.between)))

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """All tokens that are no text for the tokenizer of such a model."""
        marks = self.task in ("questions", "answers", "multitask") and self.input != "paragraph" and not self.before
        read = TOKEN.findall(self.mark)[:1] if marks else TOKEN.findall(self.before)
        return (*read, *self.written_tokens)

    def write(self, task: str, text: str) -> str:
        """What a model writes for a text of a row of this task."""
        if task == "questions":
            return self.question.format(text)
        parts = {
            "pairs": lambda: [self.pair.format(*pair) for pair in pair_parts(text)],
            "answers": lambda: parse_answers(text),
            "sets": lambda: [unescape(part, "sets").strip() for part in text.split(QUESTION)],
        }[task]()
        if not self.between:
            return "".join(parts[:1])
        return self.between.join(parts) + (self.between.rstrip() if self.closed and parts else "")

    def read(self, task: str, text: str) -> str:
        """The text of a row of this task that a model has written as `text`; a pair without its parts stays one text,
        which is no pair.
        """
        if task == "questions":
            return text.removeprefix(self.question.partition("{}")[0])
        separator = self.between.strip()
        parts = [part.strip() for part in (text.split(separator) if separator else [text])]
        if self.closed and not parts[-1]:
            parts.pop()
        if task == "answers":
            return join_answers(filter(None, parts))
        if task == "sets":
            return f" {QUESTION} ".join(escape(part, "sets") for part in parts)
        return f" {PAIR} ".join(self._pair(part) for part in parts)

    def _pair(self, text: str) -> str:
        opening, middle, _ = (part.strip() for part in self.pair.split("{}"))
        question, *answers = text.split(middle)
        if len(answers) != 1 or not question.startswith(opening):
            return escape(text)
        return join_pairs([(question.removeprefix(opening).strip(), answers[0].strip())])

    def shown(self) -> dict[str, str]:
        """The input of a model and what it writes, as a table shows them."""
        about = "…" if self.task in ("pairs", "sets") or self.input == "paragraph" else f"… {self.mark.strip()} …"
        marked = {"paragraph_sentence": "SENTENCE"}.get(self.input, "ANSWER")
        given = self.prefix + (f"{self.before}…" if self.before else about)
        text = {"pairs": self.pair.format("QUESTION", "ANSWER"), "answers": "ANSWER", "sets": "QUESTION"}
        written = text.get(self.task, self.question.format("QUESTION"))
        several = f"{self.between}…" if self.between and self.task not in ("questions", "multitask") else ""
        return {"input": given.replace("{}", marked), "output": written + several}


FORMATS: Mapping[str, Format] = {
    name: Format(**fields) for name, fields in packaged_yaml(__file__, "published.yaml").items()
}


def format_of(name: str) -> Format | None:
    """The format with this name; None for `OWN` and ""."""
    if name in (OWN, ""):
        return None
    if name not in FORMATS:
        raise InputError(f"model.format={name} is not one of {', '.join((OWN, *FORMATS))}")
    return FORMATS[name]


def named_format(path: str | Path) -> str:
    """The name of the format of a model by its name on the Hub, or by the last two parts of its folder; "" if it is
    not known. A folder of the Hub's cache has the name in one part.
    """
    parts = Path(path).parts
    cached = [part.removeprefix("models--").replace("--", "/") for part in parts if part.startswith("models--")]
    name = cached[0] if cached else "/".join(parts[-2:])
    return next((key for key, known in FORMATS.items() if re.fullmatch(known.names, name)), "")


def recognised_format(path: str | Path, features: Collection[str]) -> tuple[str, str]:
    """The name of the format of a model, and by what it was recognised: its name, or else its `features` (tokens, and
    keys of its configuration), with which its folder is looked up as one of their publisher. "" if it is not known.
    """
    if name := named_format(path):
        return name, "its name"
    for name, known in FORMATS.items():
        if known.known_by and set(known.known_by.split()) <= set(features):
            publisher = known.example.partition("/")[0]
            return named_format(f"{publisher}/{Path(path).name}") or name, known.known_by
    return "", ""
