"""The formats of published question generators (`published.yaml`): what differs from those of models of this package
(`rl_qg.generation.prompts`, `rl_qg.generation.tasks`). All other code works on texts of our own: `Format.write` makes
a published text of one, `Format.read` the reverse.
"""

import logging
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from huggingface_hub.utils import HFValidationError, validate_repo_id

from rl_qg.generation import tasks
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import packaged_yaml

OWN = "rl-qg"  # names the format of this package
MARK = "<hl> {} <hl>"
SEPARATORS = {"answers": tasks.ANSWER, "sets": tasks.QUESTION}
TOKEN = re.compile(r"<\w+>")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Format:
    """A format of published models; {} stands for the answer, or for a question. Fields without a comment are those of
    `rl_qg.generation.prompts.Prompt`, or stand in the file's heading.
    """

    names: str
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
    mark: str = MARK  # what stands for an answer in its passage
    before: str = ""  # what stands before the passage, in which nothing is marked then
    question: str = "{}"  # what is written for a question
    pair: str = ""  # what is written for a question and its answer
    between: str = ""  # separates pairs, answers or questions; "" where only the first is written
    closed: bool = False  # whether it also stands after the last one

    @property
    def written_tokens(self) -> list[str]:
        return TOKEN.findall(self.pair + self.between)

    @property
    def marks(self) -> list[str]:
        """The tokens of inputs that say which answer is meant."""
        is_marked = self.task not in ("pairs", "sets") and self.input != "paragraph" and not self.before
        return TOKEN.findall(self.mark)[:1] if is_marked else TOKEN.findall(self.before)

    def write(self, task: str, text: str) -> str:
        """What a model writes for a text of a row of this task."""
        if task == "questions":
            return self.question.format(text)
        if task == "pairs":
            parts = [self.pair.format(*pair) for pair in tasks.pair_parts(text)]
        else:
            own = tasks.tokens_of(task)
            parts = [tasks.unescape(part, own).strip() for part in text.split(SEPARATORS[task]) if part.strip()]
        if not self.between:
            return "".join(parts[:1])
        return self.between.join(parts) + (self.between.rstrip() if self.closed and parts else "")

    def read(self, task: str, text: str) -> str:
        """Our text for what a model has written for a row of this task; a part that is no pair stays one text."""
        if task == "questions":
            return text.removeprefix(self.question.partition("{}")[0])
        separator = self.between.strip()
        parts = [part.strip() for part in (text.split(separator) if separator else [text])]
        if self.closed and not parts[-1]:
            parts.pop()
        if task == "pairs":
            return f" {tasks.PAIR} ".join(map(self._pair, parts))
        return f" {SEPARATORS[task]} ".join(tasks.escape(part, tasks.tokens_of(task)) for part in parts)

    def _pair(self, text: str) -> str:
        opening, middle, _ = map(str.strip, self.pair.split("{}"))
        question, *answers = text.split(middle)
        if len(answers) != 1 or not question.startswith(opening):
            return tasks.escape(text)
        return tasks.join_pairs([(question.removeprefix(opening).strip(), answers[0].strip())])

    def shown(self) -> dict[str, str]:
        """The input of a model and what it writes, as a table shows them: … is the passage, or further parts."""
        passage = f"… {self.mark.strip()} …" if "<hl>" in self.marks else "…"
        text = {"pairs": self.pair, "answers": "ANSWER"}.get(self.task, self.question).replace("{}", "QUESTION", 1)
        several = f"{self.between}…" if self.between and self.task in ("pairs", "sets") else ""
        shown = {"input": self.prefix + self.before + passage, "output": text + several}
        marked = "SENTENCE" if self.task == "answers" or self.input == "paragraph_sentence" else "ANSWER"
        return {name: value.replace("{}", marked) for name, value in shown.items()}


FORMATS = {name: Format(**fields) for name, fields in packaged_yaml(__file__, "published.yaml").items()}
LICENCES: dict[str, str] = packaged_yaml(__file__, "licences.yaml")


def format_of(name: str) -> Format | None:
    """The format with this name; None for `OWN` and ""."""
    if name not in (OWN, "", *FORMATS):
        raise InputError(f"model.format={name} is not one of {', '.join((OWN, *FORMATS))}")
    return FORMATS.get(name)


def named_format(path: str | Path) -> str:
    """The name of the format of a model by its name on the Hub, or by the end of its folder; "" if unknown."""
    cached = [part[8:].replace("--", "/") for part in Path(path).parts if part.startswith("models--")]
    name = cached[0] if cached else "/".join(Path(path).parts[-2:])
    fits = (key for key, known in FORMATS.items() for names in known.names.split() if fnmatchcase(name, names))
    return next(fits, "")


def check_repository(key: str, name: str | None) -> None:
    """Raise `InputError` for what cannot be the name of a Hub repository."""
    try:
        if name is not None:
            validate_repo_id(name)
    except HFValidationError:
        raise InputError(f"{key}={name}: not a name of a Hub repository; write it as me/name") from None


def licence_of(name: str) -> str:
    """The licence that a model or data set has by its name on the Hub, "" where that is not known."""
    if known := named_format(name):
        return FORMATS[known].licence
    return next((licence for names, licence in LICENCES.items() if fnmatchcase(name, names)), "")


def published_prompt(path: str | Path, config: Any, tokenizer: Any, format: str | None) -> dict[str, Any]:
    """The fields of the prompt of a published model, of the `format` given or else of the one that it is recognised to
    have: by its name, or by its tokens and configuration with the end of its folder. {} where none is known.
    """
    name, how = (format, "model.format") if format else (named_format(path), "its name")
    features = set() if name else {*tokenizer.get_vocab(), *config.to_dict()}
    for key, known in FORMATS.items():
        if not name and known.known_by and set(known.known_by.split()) <= features:
            publisher, how = known.names.partition("/")[0], known.known_by
            name = named_format(f"{publisher}/{Path(path).name}") or key
    if (found := format_of(name)) is None:
        return {}
    log.info("model.path=%s: format %s, by %s", path, name, how)
    # lmqg notes whether there is a prefix: for T5, and for all models of two tasks
    prefixed = getattr(config, "add_prefix", config.model_type == "t5" or not name.startswith("lmqg"))
    prefix = found.prefix if prefixed and found.task != "multitask" else ""
    same = ("task", "input", "granularity", "mode", "max_target_length")
    return {"format": name, "prefix": prefix, **{key: getattr(found, key) for key in same}}
