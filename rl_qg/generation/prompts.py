"""The input of the generator: the passage with its answer marked, cut to a window around the answer if too long.

Rows of other tasks (`rl_qg.generation.tasks`) have a sentence marked, or nothing; the latter are cut at their end.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from rl_qg.data.examples import HIGHLIGHT, Answer, QAExample, answer_place, as_example, sentence_of
from rl_qg.generation.decoding import within_positions
from rl_qg.generation.published import MARK, OWN, Format, format_of, published_prompt
from rl_qg.generation.tasks import (
    PREFIXES,
    TYPE_TOKENS,
    escape,
    row_tasks,
    separators_of,
    task_of,
    tokens_of,
    unescape,
)
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json
from rl_qg.text.casing import restore_case

SEPARATOR = "\nQuestion:"
PROMPT_FILE = "prompt.json"
SHORTEST = 16  # tokens of an input, as in the settings
AT_ONCE = 1000  # examples that are encoded together to count cuts
log = logging.getLogger(__name__)
CODE = re.compile(r"[a-z]{2,3}_([A-Z]{2}|[A-Z][a-z]{3})")  # de_DE of mBART, deu_Latn of NLLB
Result = TypeVar("Result")
WHOLE = "paragraph_answer"
INPUTS = (WHOLE, "sentence_answer", "paragraph_sentence", "paragraph")
ABOUT_ANSWERS = (WHOLE, "sentence_answer")  # models with these inputs ask about a given answer


def as_input(example: QAExample, form: str) -> QAExample:
    """The example with the context that the generator reads, and with what is marked in it as its answer; without an
    answer it stays as it is. Rewards and measures see the passage and the answer in any case.

    | input | text | marked |
    | --- | --- | --- |
    | `paragraph_answer` | the passage | the answer |
    | `sentence_answer` | the sentence of the answer | the answer |
    | `paragraph_sentence` | the passage | the sentence of the answer; the question may be about anything in it |
    | `paragraph` | the passage | nothing |

    The first three are columns of QG-Bench (Ushio et al. 2022, section 3), there with the first occurrence of the
    answer, here with its true place.
    """
    if form == WHOLE or not example.answers:
        return example
    if form == "paragraph":
        return replace(example, answers=())
    context = example.context
    start, end = answer_place(example)
    first, last = sentence_of(context, start, end)
    if form == "paragraph_sentence":
        return replace(example, answers=(Answer(context[first:last], first),))
    return replace(example, context=context[first:last], answers=(Answer(context[start:end], start - first),))


class LanguageCodes:
    """The language codes of a multilingual tokenizer, none for most, and the `default` where a row names no language:
    what stands in inputs, and before the question in the decoder.

    | tokenizer | input | decoder | learned |
    | --- | --- | --- | --- |
    | mBART-cc25 | `X </s> de_DE` | `de_DE Q` | `Q </s>` |
    | mBART-50, NLLB | `de_DE X </s>` | `</s> de_DE Q` | `Q </s>` |

    Sources: Liu et al. 2020 (mBART), Tang et al. 2020 (mBART-50), and `shift_tokens_right` of the library. The code is
    given, never chosen: it is no part of the question, of its probability or of what decoding rules see.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, default: str = "", *, only: bool = False) -> None:
        self._only = only  # whether the default is that of all rows
        vocabulary = tokenizer.get_added_vocab() if getattr(tokenizer, "src_lang", None) is not None else {}
        self._tokenizer = tokenizer
        self._codes = sorted(filter(CODE.fullmatch, vocabulary), key=vocabulary.__getitem__)
        self.default = self._known(default) if default and self._codes else getattr(tokenizer, "src_lang", None) or ""
        if default and not self._codes:
            log.warning("language=%s has no effect: the model has no language codes", default)
        if self._codes:
            self._write(self.default)
            # whether the code stands before a text, as in mBART-50, not after its end
            self._leads = tokenizer(text_target="")["input_ids"][0] != tokenizer.eos_token_id

    def __bool__(self) -> bool:
        return bool(self._codes)

    def code(self, language: str) -> str:
        """The code of a language, which is given as `de` or as the code itself; the default of ""."""
        return self._known(language) if language and not self._only else self.default

    def _known(self, language: str) -> str:
        wanted = language.casefold()
        for code in self._codes:
            if wanted in (code.casefold(), code.partition("_")[0]):
                return code
        known = ", ".join(sorted({code.partition("_")[0] for code in self._codes}))
        raise InputError(f"language={language}: the model knows {known}")

    def in_language(
        self, rows: Sequence[QAExample], work: Callable[[Sequence[QAExample]], list[Result]]
    ) -> list[Result]:
        """The results of `work` for all rows, in order; it gets rows of one language, which the tokenizer writes."""
        codes = [self.code(row.language) for row in rows]
        results: dict[int, Result] = {}
        try:
            for code in dict.fromkeys(codes):
                self._write(code)
                numbers = [number for number, of_row in enumerate(codes) if of_row == code]
                results |= zip(numbers, work([rows[number] for number in numbers]), strict=True)
        finally:
            self._write(self.default)
        return [results[number] for number in range(len(rows))]

    def _write(self, code: str) -> None:
        if (self._tokenizer.src_lang, self._tokenizer.tgt_lang) != (code, code):
            self._tokenizer.src_lang = self._tokenizer.tgt_lang = code

    def without_code(self, targets: Sequence[list[int]]) -> list[list[int]]:
        """What the tokenizer gives for texts to write, without the code."""
        part = slice(1, None) if self._leads else slice(-1)
        return [ids[part] for ids in targets]

    def starts(self, rows: Sequence[QAExample]) -> list[list[int]]:
        """What the decoder reads before the question of each row; equally many tokens for all."""
        before = [self._tokenizer.eos_token_id] if self._leads else []
        return [[*before, self._tokenizer.convert_tokens_to_ids(self.code(row.language))] for row in rows]

    def set_generation(self, config: GenerationConfig) -> None:
        """Let the library's `generate` begin with the default code; without codes nothing is changed."""
        if self._codes:
            code = self._tokenizer.convert_tokens_to_ids(self.default)
            config.decoder_start_token_id = self._tokenizer.eos_token_id if self._leads else code
            if self._leads:
                config.forced_bos_token_id = code


@dataclass(frozen=True)
class Prompt:
    """How inputs are built for a model; saved with its weights, so that generation builds them as training did.

    Args:
        prefix: text before every input, such as `generate question: ` of T5; never cut. Empty for `multitask`, whose
            rows have the prefixes of their own tasks.
        max_source_length: of an input in tokens, special tokens and prefix included; longer ones are cut to a window.
        max_target_length: of a question in tokens; longer gold questions are cut.
        separator: text after every input of a causal model, before its question; never cut.
        task: what the model writes, one of `rl_qg.generation.tasks.TASKS`.
        granularity, mode: of `sets`, as in `rl_qg.generation.sets`; else empty.
        input: what is read of an example, one of `INPUTS`; of the task `questions` alone.
        language: for models with language codes, such as `de`, where a row names none.
        format: of the texts, by its name in `rl_qg.generation.published`; "" for that of this package.
    """

    prefix: str = ""
    max_source_length: int = 512
    max_target_length: int = 64
    separator: str = ""
    task: str = "questions"
    granularity: str = ""
    mode: str = ""
    input: str = WHOLE
    language: str = ""
    format: str = ""

    @property
    def published(self) -> Format | None:
        return format_of(self.format)

    @property
    def tokens(self) -> list[str]:
        """The tokens of inputs and texts that are no text for the tokenizer."""
        known = self.published
        return [*known.marks, *known.written_tokens] if known else [*tokens_of(self.task)]

    def prefix_of(self, row: QAExample) -> str:
        """The prefix of the input of a row; before a passage that is asked for questions of a type, also its token."""
        task = task_of(row)
        if task not in row_tasks(self.task):
            raise InputError(f"the model was trained with model.task={self.task}, and cannot do {task}")
        if self.published and self.published.before and row.answers:
            start, end = answer_place(row)
            return self.prefix + self.published.before.format(escape(row.context[start:end], self.published.marks))
        return PREFIXES[task] if self.task == "multitask" else f"{self.prefix}{type_token(row)}"

    @classmethod
    def of(cls, folder: str | Path, model: PreTrainedModel, tokenizer: Any, format: str | None = None) -> "Prompt":
        """The prompt that the model in `folder` was trained with: that of the `format` if it is given; else the stored
        one; else that of the published format that it is recognised to have; else the default of its architecture.
        """
        if format is None and (stored := cls.stored(folder)) is not None:
            return stored
        if known := published_prompt(folder, model.config, tokenizer, format):
            return cls(**known).fitting(model)
        prompt = cls(prefix=default_prefix(model), separator=default_separator(model))
        if format != OWN:
            text = f"{prompt.prefix}… {MARK.format('ANSWER')} …{prompt.separator}"
            note = "its format is not known; assumed: %r (model.format sets one of rl-qg models)"
            log.info(f"model.path=%s: {note}", folder, text)
        return prompt.fitting(model)

    @classmethod
    def stored(cls, folder: str | Path) -> "Prompt | None":
        path = Path(os.path.expanduser(folder), PROMPT_FILE)
        if not os.path.exists(path):  # unlike pathlib, no error for a name too long
            return None
        values = read_json(path)
        kinds = {field.name: type(field.default) for field in fields(cls)}
        if not isinstance(values, dict) or any(type(value) is not kinds.get(key) for key, value in values.items()):
            raise InputError(f"{path}: no prompt of rl-qg ({', '.join(kinds)}); restore it, or delete it")
        prompt = cls(**values)
        row_tasks(prompt.task)  # refuses an unknown one
        format_of(prompt.format)
        if prompt.input not in INPUTS:
            raise InputError(f"{path}: input={prompt.input} is not one of {', '.join(INPUTS)}")
        return prompt

    def fitting(self, model: PreTrainedModel) -> "Prompt":
        """The same with inputs that are not longer than the model can read; `InputError` where that is too short."""
        encoder = getattr(model.config, "encoder", model.config)  # of a pair of models each has its own limit
        limit = getattr(encoder, "max_position_embeddings", None)
        one_sequence = not model.config.is_encoder_decoder or getattr(model.config, "one_sequence", False)
        if limit is not None and one_sequence:
            limit -= min(self.max_target_length, limit // 2)  # the question follows
        elif (longest := within_positions(model, self.max_target_length)) < self.max_target_length:
            return replace(self, max_target_length=longest).fitting(model)
        if limit is None or self.max_source_length <= limit:
            return self
        if limit < SHORTEST:
            raise InputError(
                f"the model reads {limit} tokens beside a question of {self.max_target_length}, too few for a "
                "passage; lower model.max_target_length, or use another model"
            )
        log.info("the model reads %d tokens, so inputs are cut to that, not to %d", limit, self.max_source_length)
        return replace(self, max_source_length=limit)

    def save(self, folder: Path) -> None:
        (folder / PROMPT_FILE).write_text(json.dumps(asdict(self), indent=2) + "\n")


def default_prefix(model: PreTrainedModel, task: str = "questions") -> str:
    """The prefix of T5, which was pretrained with prefixes, unlike mT5; "" for `multitask`: rows have their own."""
    return PREFIXES.get(task, "") if model.config.model_type == "t5" else ""


def default_separator(model: PreTrainedModel) -> str:
    """The separator of a causal model, which has to see where the passage ends; encoder-decoders need none."""
    return "" if model.config.is_encoder_decoder else SEPARATOR


def add_highlight(
    tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, task: str = "questions", format: str = ""
) -> None:
    """Add `<hl>`, and the tokens of the task, as tokens with their own rows in the embedding matrix, unless they
    exist. A row starts as the mean of the others; the library would draw it at random, differently in each run.
    """
    tokens = Prompt(task=task, format=format).tokens
    if not set(tokens) <= tokenizer.get_vocab().keys():
        tokenizer.add_special_tokens({"extra_special_tokens": tokens})
    pair = model.config.model_type == "encoder-decoder"  # of such a pair each model resizes its own embeddings
    for part in (model.encoder, model.decoder) if pair else (model,):
        rows = part.get_input_embeddings().weight.shape[0]
        if len(tokenizer) <= rows:  # never shrink: T5 and mT5 ship more rows than tokens
            continue
        part.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        for embeddings in filter(None, (part.get_input_embeddings(), part.get_output_embeddings())):
            with torch.no_grad():
                embeddings.weight[rows:] = embeddings.weight[:rows].mean(0)
    if hasattr(model.config, "highlight_token_id"):
        model.config.highlight_token_id = tokenizer.convert_tokens_to_ids(HIGHLIGHT)


def type_token(row: QAExample) -> str:
    unit = getattr(row, "unit", None)
    return TYPE_TOKENS[unit.type] if unit is not None and unit.type is not None else ""


def highlight(example: QAExample, tokens: Sequence[str] = (HIGHLIGHT,), mark: str = MARK) -> str:
    """The context with `<hl>` on both sides of the first answer (or another `mark`), at its offset (not at other
    occurrences); without an answer as it is. What a model would read as one of its `tokens` is escaped.
    """
    space = " " if type_token(example) else ""  # after the token
    if not example.answers:
        return f"{space}{escape(example.context, tokens)}"
    start, end = answer_place(example)
    parts = example.context[:start], example.context[start:end], example.context[end:]
    before, marked, after = (escape(part, tokens) for part in parts)
    return f"{space}{before}{mark.format(marked)}{after}"


@dataclass(frozen=True)
class EncodedPrompt:
    """Token ids of one model input, the number of tokens that were cut, and whether the answer was cut."""

    ids: list[int]
    tokens_cut: int
    answer_cut: bool


class PromptEncoder:
    """Turns examples into padded batches, by a generator's tokenizer that has `<hl>` (see `add_highlight`)."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> None:
        self.tokenizer = tokenizer
        self.prompt = prompt
        self.format = prompt.published
        self._escaped = self.format.marks if self.format else prompt.tokens
        # lmqg leaves the tokenizer at en_XX for all languages
        self.languages = LanguageCodes(tokenizer, prompt.language, only=prompt.format.startswith("lmqg"))
        self.multiple = 1  # of tokens, to which batches are padded, but not beyond the longest input
        self._highlight_id = tokenizer.convert_tokens_to_ids(HIGHLIGHT)
        self._is_uncased = tokenizer.decode(tokenizer("A", add_special_tokens=False)["input_ids"]) == "a"
        separators = self.format.written_tokens if self.format else separators_of(prompt.task)
        self._separator_ids = set(tokenizer.convert_tokens_to_ids([*separators]))

    def ids_of(self, separator: str) -> list[int]:
        """The tokens that stand for a separator: itself, or what a published format writes between parts."""
        if self.format is None:
            return [self.tokenizer.convert_tokens_to_ids(separator)]
        text = self.format.between.strip()
        pieces = self.tokenizer.get_vocab() if text else {}
        return [number for piece, number in pieces.items() if piece.lstrip("▁Ġ") == text]

    def encode(self, examples: Sequence[QAExample]) -> list[EncodedPrompt]:
        """Token ids of each input; a long one is cut around the answer, or at its end if nothing is marked."""
        return self.languages.in_language(examples, self._encode) if self.languages else self._encode(examples)

    def _encode(self, examples: Sequence[QAExample]) -> list[EncodedPrompt]:
        prefixes = [self.prompt.prefix_of(example) for example in examples]
        examples = [self._with_mark(example) for example in examples]
        texts = [one + self._text(example) for one, example in zip(prefixes, examples, strict=True)]
        encoded = self.tokenizer(texts, return_special_tokens_mask=True, verbose=False)
        columns = (encoded["input_ids"], encoded["special_tokens_mask"], prefixes, examples)
        return [self._window(*row) for row in zip(*columns, strict=True)]

    def _text(self, row: QAExample) -> str:
        if self.format and self.format.before:
            return escape(row.context, self._escaped)
        mark = self.format.mark if self.format and task_of(row) == "questions" else MARK
        return highlight(row, self._escaped, mark)

    def _with_mark(self, row: QAExample) -> QAExample:
        """An example as the input of the model (`rl_qg.generation.prompts`); a row of `sets` with the sentence of its
        unit as what is marked, and with nothing marked for models of whole passages.
        """
        if self.prompt.input != WHOLE and task_of(row) == "questions":
            return as_input(row, self.prompt.input)
        unit = getattr(row, "unit", None)
        if unit is None or self.prompt.granularity == "paragraph":
            return row
        return replace(row, answers=(Answer(unit.context[unit.start : unit.end], unit.start),))

    def _window(self, ids: list[int], special: list[int], prefix: str, example: QAExample) -> EncodedPrompt:
        excess = len(ids) - self.prompt.max_source_length
        if excess <= 0:
            return EncodedPrompt(ids, 0, False)
        # The head (special tokens and prefix) and the tail (special tokens) are kept; the window lies between them.
        head = _leading_specials(special) + len(
            self.tokenizer(prefix, add_special_tokens=False)["input_ids"] if prefix else ()
        )
        tail = len(ids) - _leading_specials(special[::-1])
        room = tail - head - excess
        if not example.answers:
            return EncodedPrompt(ids[: head + room] + ids[tail:], excess, False)
        marks = [index for index, token in enumerate(ids) if token == self._highlight_id]
        if self.format and self.format.before:  # nothing is marked: about where the answer is
            if room < 1:
                return EncodedPrompt(ids[: tail - excess] + ids[tail:], excess, True)
            start, end = answer_place(example)
            sizes = self.tokenizer([example.context[:start], example.context[:end]], add_special_tokens=False)
            marks = [min(head + len(size), tail - 1) for size in sizes["input_ids"]]
        first, last = marks[0], marks[-1]
        start = min(max((first + last + 1) // 2 - room // 2, head), tail - room)
        start = min(start, first) if last - first < room else first
        return EncodedPrompt(ids[:head] + ids[start : start + room] + ids[tail:], excess, last >= start + room)

    def target(self, example: QAExample) -> str:
        if self.format is not None:
            return escape(self.format.write(task_of(example), example.question), self._escaped)
        return escape(example.question, self._escaped) if task_of(example) == "questions" else example.question

    def targets(self, examples: Sequence[QAExample]) -> list[list[int]]:
        """Token ids of each gold question, or of what a row of another task has to write, with the tokenizer's own
        special tokens; without a language code, which is given to the decoder (`batch`).
        """
        questions, longest = [self.target(example) for example in examples], self.prompt.max_target_length
        longest += bool(self.languages)  # for a code; of which language is the same here
        ids: list[list[int]] = self.tokenizer(text_target=questions, truncation=True, max_length=longest)["input_ids"]
        if self.tokenizer.is_fast:  # it keeps the truncation, which would be saved with it
            self.tokenizer.backend_tokenizer.no_truncation()
        return self.languages.without_code(ids) if self.languages else ids

    def decoded(self, tokens: Tensor, examples: Sequence[QAExample]) -> list[str]:
        """The text of each row of `tokens` (k · n, t), n for each of k examples, side by side: a question without
        special tokens, the text of another task with its separators.
        """
        rows = [example for example in examples for _ in range(len(tokens) // len(examples))]
        dropped, texts = {*self.tokenizer.all_special_ids, self._highlight_id} - self._separator_ids, list[str]()
        for row, ids in zip(rows, tokens.tolist(), strict=True):
            task = task_of(row)
            if task == "questions":
                text = self.tokenizer.decode(ids, skip_special_tokens=True).strip()
                text = restore_case(text, row.context) if self._is_uncased else text
            else:
                text = self.tokenizer.decode([token for token in ids if token not in dropped]).strip()
            text = unescape(text, self._escaped) if self.format or task == "questions" else text
            texts.append(self.format.read(task, text) if self.format else text)
        return texts

    def batch(self, examples: Sequence[QAExample]) -> dict[str, Tensor]:
        """`input_ids` and `attention_mask`, both (batch, source length), padded to the longest of the batch; for
        models with language codes also `starts` (batch, p), what the decoder reads before the question.
        """
        inputs = self._pad([source.ids for source in self.encode(examples)])
        return {**inputs, "starts": torch.tensor(self.languages.starts(examples))} if self.languages else inputs

    def __call__(self, rows: Sequence[QAExample | Mapping[str, Any]]) -> dict[str, object]:
        """Collate for training: adds `examples` and `labels` (batch, target length; -100 where nothing is learned)."""
        examples = [as_example(row) for row in rows]
        targets = self._pad(self.targets(examples))
        labels = targets["input_ids"].masked_fill(targets["attention_mask"] == 0, -100)
        labels[torch.tensor([not example.question for example in examples])] = -100
        return {**self.batch(examples), "labels": labels, "examples": examples}

    def _pad(self, rows: list[list[int]]) -> dict[str, Tensor]:
        longest = max(len(row) for row in rows)
        longest = max(longest, min(-(-longest // self.multiple) * self.multiple, self.prompt.max_source_length))
        pad = self.tokenizer.pad_token_id
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
        lengths = torch.tensor([len(row) for row in rows])
        return {"input_ids": ids, "attention_mask": (torch.arange(longest) < lengths[:, None]).long()}

    def count_cuts(self, examples: Sequence[QAExample]) -> dict[str, int]:
        """The numbers of inputs, of inputs cut to a window, of tokens cut, and of answers longer than the window."""
        counts = {"inputs": len(examples), "windowed": 0, "tokens_cut": 0, "answers_cut": 0}
        for start in range(0, len(examples), AT_ONCE):
            for source in self.encode(examples[start : start + AT_ONCE]):
                counts["windowed"] += source.tokens_cut > 0
                counts["tokens_cut"] += source.tokens_cut
                counts["answers_cut"] += source.answer_cut
        return counts

    def lengths(self, examples: Sequence[Any]) -> list[int]:
        """The number of tokens of each input."""
        rows = map(as_example, examples)
        return [len(one.ids) for part in iter(lambda: [*islice(rows, AT_ONCE)], []) for one in self.encode(part)]


def _leading_specials(special: list[int]) -> int:
    return next((index for index, flag in enumerate(special) if not flag), len(special))


class CausalPromptEncoder(PromptEncoder):
    """Turns examples into the prompts of a causal generator, which end with `prompt.separator`, and batches: padded on
    the left for generation, and on the right with the question after the prompt for training.

    TRL's trainers tokenise the text of a prompt themselves. So a prompt is a text, and one that is too long is cut as
    text, to the longest part around what is marked (at its end if nothing is) whose tokens fit.
    """

    def texts(self, examples: Sequence[QAExample]) -> list[str]:
        return [text for text, _ in self._prompts(examples)]

    def encode(self, examples: Sequence[QAExample]) -> list[EncodedPrompt]:
        return [source for _, source in self._prompts(examples)]

    def _prompts(self, examples: Sequence[QAExample]) -> list[tuple[str, EncodedPrompt]]:
        examples = [self._with_mark(example) for example in examples]
        texts = [self._prompt(highlight(example)) for example in examples]
        encoded = self.tokenizer(texts, verbose=False)["input_ids"]
        return [
            (text, EncodedPrompt(ids, 0, False))
            if len(ids) <= self.prompt.max_source_length
            else self._cut(example, len(ids))
            for example, text, ids in zip(examples, texts, encoded, strict=True)
        ]

    def _cut(self, example: QAExample, length: int) -> tuple[str, EncodedPrompt]:
        """The prompt with the longest part around the answer that fits, found by bisection."""
        passage = highlight(example)
        first, last = 0, 0
        if example.answers:
            first, last = passage.index(HIGHLIGHT), passage.rindex(HIGHLIGHT) + len(HIGHLIGHT)
        fits, too_long = 0, len(passage)
        while too_long - fits > 1:
            size = (fits + too_long) // 2
            if len(self._ids(_part_around(passage, first, last, size))) <= self.prompt.max_source_length:
                fits = size
            else:
                too_long = size
        part = _part_around(passage, first, last, fits)
        ids = self._ids(part)
        return self._prompt(part), EncodedPrompt(ids, length - len(ids), fits < last - first)

    def _prompt(self, passage: str) -> str:
        return f"{self.prompt.prefix}{passage}{self.prompt.separator}"

    def _ids(self, passage: str) -> list[int]:
        return self.tokenizer(self._prompt(passage), verbose=False)["input_ids"]

    def targets(self, examples: Sequence[QAExample]) -> list[list[int]]:
        """Token ids of each gold question and the end token; a longer question is cut before the end token."""
        texts = [f" {self.target(example)}" for example in examples]
        rows = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return [[*row[: self.prompt.max_target_length - 1], self.tokenizer.eos_token_id] for row in rows]

    def batch(self, examples: Sequence[QAExample]) -> dict[str, Tensor]:
        """`input_ids` and `attention_mask` of the prompts, both (batch, prompt length), padded on the left."""
        rows = [source.ids[::-1] for source in self.encode(examples)]
        return {name: tensor.flip(-1) for name, tensor in self._pad(rows).items()}

    def __call__(self, rows: Sequence[QAExample | Mapping[str, Any]]) -> dict[str, object]:
        """Collate prompts with their questions: `input_ids`, `attention_mask`, `labels` (-100 in the prompt and at
        padding), padded on the right, and the `examples`.
        """
        examples = [as_example(row) for row in rows]
        prompts, targets = [source.ids for source in self.encode(examples)], self.targets(examples)
        inputs = self._pad([prompt + target for prompt, target in zip(prompts, targets, strict=True)])
        places = torch.arange(inputs["input_ids"].shape[1])
        after_prompt = places >= torch.tensor([len(ids) for ids in prompts])[:, None]
        labels = inputs["input_ids"].masked_fill(~(after_prompt & inputs["attention_mask"].bool()), -100)
        return {**inputs, "labels": labels, "examples": examples}


def _part_around(passage: str, first: int, last: int, size: int) -> str:
    """`size` characters of the passage with the marked answer (`first` to `last`) as near the middle as possible; of a
    longer answer its beginning. Words at the edges are not split.
    """
    if size <= last - first:
        return passage[first : first + size]
    start = min(max((first + last - size) // 2, 0), len(passage) - size)
    end = start + size
    if start > 0 and not passage[start - 1].isspace():
        start = next((index + 1 for index in range(start, first) if passage[index].isspace()), start)
    if end < len(passage) and not passage[end].isspace():
        end = next((index for index in range(end - 1, last - 1, -1) if passage[index].isspace()), end)
    return passage[start:end]


def positions_of(mask: Tensor) -> Tensor:
    """Position of each token in its text, not counting padding before it: (b, t) from an attention mask (b, t)."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)
