"""The extractive reader: its scores, what it reads and what it answers, and a trained one to ask."""

import hashlib
import inspect
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Any

import numpy as np
import torch
import transformers
from accelerate import PartialState
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoConfig, AutoModelForQuestionAnswering, PreTrainedModel, PreTrainedTokenizerBase

from rewards.frozen import quiet
from rewards.pretrained import check_weights
from rewards.relevance.reading import letter_end, span_scores
from rewards.words import answer_exact_match, answer_f1
from rl_qg.data.examples import QAExample
from rl_qg.data.streaming import Examples
from rl_qg.readers import encoders
from rl_qg.readers.encoders import FLOAT32, longest_window, padded
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_record, write_json
from rl_qg.runtime.processes import load_unsharded, loading
from rl_qg.runtime.ranks import OutOfMemoryRetry


@dataclass(frozen=True)
class SquadScores:
    """Scores of one reader on one set, by SQuAD's `evaluate-v1.1.py` (`rewards.words`); the lists are fractions in the
    order of `ids`, the totals percent.

    `missing` questions had no prediction: they score 0, as in the official script.
    """

    ids: list[str]
    exact_matches: list[float]
    f1s: list[float]
    missing: int

    @property
    def exact_match(self) -> float:
        return 100.0 * sum(self.exact_matches) / len(self.ids)

    @property
    def f1(self) -> float:
        return 100.0 * sum(self.f1s) / len(self.ids)


def score_predictions(predictions: Mapping[str, str], examples: Iterable[QAExample]) -> SquadScores:
    """Score `predictions` (id to text) by each question's best answer, by "" if it has none; `InputError` for none."""
    ids, exact_matches, f1s, missing = list[str](), list[float](), list[float](), 0
    for example in examples:
        prediction = predictions.get(example.id)
        text = prediction or ""
        missing += prediction is None
        ids.append(example.id)
        for scores, metric in ((exact_matches, answer_exact_match), (f1s, answer_f1)):
            best = max((metric(text, answer.text) for answer in example.answers), default=answer_exact_match(text, ""))
            scores.append(0.0 if prediction is None else best)
    if not ids:
        raise InputError("no examples to score predictions against: give at least one")
    return SquadScores(ids=ids, exact_matches=exact_matches, f1s=f1s, missing=missing)


EXAMPLES_AT_ONCE = 1000
WINDOWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Windows:
    """A data set of W windows with T tokens in all; window w is `bounds[w]:bounds[w + 1]` of the arrays over tokens.
    Its label is twice the first token, the class token of most models, where it does not hold the whole first answer.
    """

    ids: NDArray[np.int32]  # (T,)
    token_types: NDArray[np.int8] | None  # (T,)
    offsets: NDArray[np.int32] | None  # (T, 2): first and one past last character, in question or passage
    bounds: NDArray[np.int64]  # (W + 1,)
    examples: NDArray[np.int32]  # (W,): the index of its example
    contexts: NDArray[np.int32]  # (W, 2): first and one past last position of the passage
    labels: NDArray[np.int32]  # (W, 2): positions of the first and last token of the first answer
    questions_cut: int  # how many questions were too long and lost their end

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = slice(self.bounds[index], self.bounds[index + 1])
        item = {"input_ids": self.ids[tokens], "labels": self.labels[index]}
        return item if self.token_types is None else {**item, "token_type_ids": self.token_types[tokens]}

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.bounds)

    def counts(self) -> dict[str, int]:
        """Examples without an answer count as those whose answer no window holds whole."""
        has_answer = (self.contexts[:, 0] <= self.labels[:, 0]) & (self.labels[:, 0] < self.contexts[:, 1])
        examples = len(np.unique(self.examples))
        return {
            "examples": examples,
            "windows": len(self),
            "questions_cut": self.questions_cut,
            "answers_in_no_window": examples - len(np.unique(self.examples[has_answer])),
        }


@dataclass(frozen=True)
class WindowCollator:
    """`input_ids`, `attention_mask`, perhaps `token_type_ids` (batch, longest); `labels` (batch, 2)."""

    pad_id: int

    def __call__(self, items: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        batch = padded(items, {"input_ids": self.pad_id, "token_type_ids": 0})
        return batch | {"labels": torch.from_numpy(np.stack([item["labels"] for item in items])).long()}


def encode(
    examples: Sequence[QAExample],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    doc_stride: int,
    token_types: bool,
    at: str = "qa.",
) -> Windows:
    """Tokenise each example into one or several windows of at most `max_length` tokens, special tokens included.

    Neighbouring windows of a passage share `doc_stride` tokens. A question may fill half a window, or less where the
    shared tokens need the space: the end of a longer one is cut and counted. `tokenizer` is a fast one; `token_types`
    marks question (0) and passage (1) for models that were pretrained with token types. `at` precedes keys in errors.
    """
    limit = _question_limit(tokenizer, max_length, doc_stride, at)
    asked = [example.question for example in examples]
    tokens = tokenizer(asked, add_special_tokens=False, verbose=False)["input_ids"]
    questions = [
        _cut(text, tokenizer, limit) if len(ids) > limit else text for text, ids in zip(asked, tokens, strict=True)
    ]
    encoded = tokenizer(
        questions,
        [example.context for example in examples],
        truncation="only_second",
        max_length=max_length,
        stride=doc_stride,
        return_overflowing_tokens=True,
        return_token_type_ids=token_types,
        verbose=False,
    )
    numbers = encoded["overflow_to_sample_mapping"]
    rows = [
        _row(encoding, examples[number]) for encoding, number in zip(encoded.encodings or (), numbers, strict=True)
    ]
    ids, types, offsets, contexts, labels = zip(*rows, strict=True)
    return Windows(
        ids=np.concatenate(ids),
        token_types=np.concatenate(types) if token_types else None,
        offsets=np.concatenate(offsets),
        bounds=np.cumsum([0, *map(len, ids)]),
        examples=np.array(numbers, dtype=np.int32),
        contexts=np.array(contexts, dtype=np.int32),
        labels=np.array(labels, dtype=np.int32),
        questions_cut=sum(new != old for new, old in zip(questions, asked, strict=True)),
    )


def encode_in_parts(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, *, progress: bool = False, **options: Any
) -> Iterator[Windows]:
    """What `encode` returns with its options, in parts of `EXAMPLES_AT_ONCE` examples."""
    remaining, begin = iter(examples), 0
    with ProgressBar(total=len(examples), desc="windows", unit="example", disable=not progress) as bar:
        while batch := list(islice(remaining, EXAMPLES_AT_ONCE)):
            part = encode(batch, tokenizer, **options)
            yield replace(part, examples=part.examples + begin)
            begin += len(batch)
            bar.update(len(batch))


def _row(encoding: Any, example: QAExample) -> tuple[Any, ...]:
    """Ids, token types, offsets, context and label of one window, as in `Windows`."""
    parts = encoding.sequence_ids  # None for a special token, 0 for the question, 1 for the passage
    first = parts.index(1) if 1 in parts else 0
    last = len(parts) - parts[::-1].index(1) if 1 in parts else 0
    offsets = np.array(encoding.offsets, dtype=np.int32)
    answer = _answer_tokens(offsets[first:last], example)
    label = (0, 0) if answer is None else (first + answer[0], first + answer[1])
    ids, types = np.array(encoding.ids, dtype=np.int32), np.array(encoding.type_ids, dtype=np.int8)
    return ids, types, offsets, (first, last), label


def _answer_tokens(offsets: NDArray[np.int32], example: QAExample) -> tuple[int, int] | None:
    """First and last token that share a character with the first answer; None unless these hold all of it."""
    if not example.answers:
        return None
    text, begin = example.answers[0].text, example.answers[0].start
    # White space around an answer belongs to no token.
    start, end = begin + len(text) - len(text.lstrip()), begin + len(text.rstrip())
    touching = np.flatnonzero((offsets[:, 1] > start) & (offsets[:, 0] < end))
    if not touching.size or offsets[0, 0] > start or letter_end(example.context, offsets[-1, 1]) < end:
        return None
    return int(touching[0]), int(touching[-1])


def _question_limit(tokenizer: PreTrainedTokenizerBase, max_length: int, doc_stride: int, at: str) -> int:
    room = max_length - tokenizer.num_special_tokens_to_add(pair=True)
    limit = min(room // 2, room - doc_stride - 1)  # every window has to bring at least one new token
    if limit < 1:
        raise InputError(
            f"{at}max_length={max_length} leaves no room for a question beside {at}doc_stride={doc_stride}: "
            "raise the first or lower the second"
        )
    return limit


def _cut(question: str, tokenizer: PreTrainedTokenizerBase, limit: int) -> str:
    """A question of at most `limit` tokens, its end cut; in several rounds where one character is several tokens."""
    while True:
        encoded = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        if len(encoded["input_ids"]) <= limit:
            return question
        question = question[: min(encoded["offset_mapping"][limit - 1][1], len(question) - 1)]


# --- windows in files that are mapped into memory: one copy a machine, whatever number of processes reads it
#
# A folder for each data set, with a file for each array of `Windows`, and `sizes.json`, the note of their types and
# sizes. Its name is a hash of all that the windows are made of, so that a resumed run finds its own.

NOTE = "sizes.json"
ARRAYS = [field.name for field in fields(Windows) if field.name != "questions_cut"]


def stored_windows(
    folder: Path, made_of: Mapping[str, Any], make: Callable[[], Iterable[Windows]], state: PartialState
) -> Windows:
    """The windows of which `make` gives the parts in order, mapped into memory. What is in `folder` already is not
    made again; else one process of each machine makes it. Every process calls this.
    """
    name = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]
    place = folder / name
    with state.local_main_process_first():
        if not place.exists():
            folder.mkdir(parents=True, exist_ok=True)
            part = Path(mkdtemp(prefix=f".{name}-", dir=folder))
            try:
                _write(part, make())
                part.rename(place)
            except OSError:
                if not place.exists():  # else another machine, or reader, with the same folder was first
                    raise
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return _mapped(place)


def _write(folder: Path, parts: Iterable[Windows]) -> None:
    """Write the arrays of all parts, one part in memory at a time, and the note last."""
    note: dict[str, Any] = {"questions_cut": 0, "arrays": {}}
    tokens = 0
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / name).open("wb")) for name in ARRAYS}
        for part in parts:
            bounds = part.bounds + tokens
            arrays = {name: getattr(part, name) for name in ARRAYS} | {"bounds": bounds[1:] if tokens else bounds}
            for name, array in arrays.items():
                if array is not None:
                    files[name].write(array.tobytes())
                    rows = note["arrays"].setdefault(name, {"type": array.dtype.str, "shape": [0, *array.shape[1:]]})
                    rows["shape"][0] += len(array)
            tokens = int(bounds[-1])
            note["questions_cut"] += part.questions_cut
    write_json(folder / NOTE, note)


def _mapped(folder: Path) -> Windows:
    note = read_record(folder / NOTE)
    arrays: dict[str, Any] = dict.fromkeys(ARRAYS)
    for name, rows in note["arrays"].items():
        # Copied where it is written to, which nobody does: torch warns of arrays that cannot be written to.
        mapped = np.memmap(folder / name, rows["type"], mode="c", shape=tuple(rows["shape"]))
        arrays[name] = np.asarray(mapped)
    return Windows(**arrays, questions_cut=note["questions_cut"])


# --- logits to answers
#
# Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019), section 4.2: the answer is the
# span with the highest sum of start and end logits.


def best_answers(
    windows: Windows,
    examples: Sequence[QAExample],
    start_logits: NDArray[np.floating],
    end_logits: NDArray[np.floating],
    *,
    n_best: int,
    max_answer_length: int,
    refuses: bool = False,
) -> dict[str, str]:
    """Return one text for each example, by id: its best span over all of its windows, or "" when no span is valid, or
    when it `refuses` and scores the span of the first token, the class token, higher in each of its windows.

    A span begins at one of the `n_best` highest start logits of a window's passage, ends at one of the `n_best`
    highest end logits, and is at most `max_answer_length` tokens long. Logits are (W, longest or more). Equal scores
    go to the earlier window, then to the higher start logit; equal logits rank by position.
    """
    offsets = windows.offsets
    if offsets is None or not len(windows) == len(start_logits) == len(end_logits):
        raise ValueError(f"{len(windows)} windows, but {len(start_logits)} start and {len(end_logits)} end logits")
    answers = {example.id: "" for example in examples}
    best, none = np.full(len(examples), -np.inf), np.full(len(examples), np.inf)
    for begin in range(0, len(windows), WINDOWS_AT_ONCE):
        chunk = slice(begin, begin + WINDOWS_AT_ONCE)
        logits = (start_logits[chunk], end_logits[chunk])
        spans = _best_spans(*logits, windows.contexts[chunk], n_best=n_best, max_answer_length=max_answer_length)
        for window, (score, first, last) in enumerate(zip(*spans, strict=True), begin):
            number = windows.examples[window]
            none[number] = min(none[number], start_logits[window, 0] + end_logits[window, 0])
            if score > best[number]:
                best[number] = score
                base = windows.bounds[window]
                start, end, context = offsets[base + first, 0], offsets[base + last, 1], examples[number].context
                # of ModernBERT and XLM-R the space before a word is a part of it
                answers[examples[number].id] = context[start : letter_end(context, end)].strip()
    return answers | {examples[int(at)].id: "" for at in np.flatnonzero(none > best)} if refuses else answers


def _best_spans(
    start_logits: NDArray[np.floating],
    end_logits: NDArray[np.floating],
    contexts: NDArray[np.int32],
    *,
    n_best: int,
    max_answer_length: int,
) -> tuple[NDArray[np.floating], NDArray[np.int64], NDArray[np.int64]]:
    """Score, first and last token of each window's best span, each (W,); the score is -inf where no span is valid."""
    positions = np.arange(start_logits.shape[1])
    inside = (positions >= contexts[:, :1]) & (positions < contexts[:, 1:])
    starts, start_scores = _highest(np.where(inside, start_logits, -np.inf), n_best)
    ends, end_scores = _highest(np.where(inside, end_logits, -np.inf), n_best)
    length = ends[:, None, :] - starts[:, :, None] + 1  # (W, starts, ends)
    scores = start_scores[:, :, None] + end_scores[:, None, :]
    scores = np.where((length >= 1) & (length <= max_answer_length) & np.isfinite(scores), scores, -np.inf)
    flat = scores.reshape(len(scores), -1)
    choice = flat.argmax(axis=1)
    rows = np.arange(len(flat))
    return flat[rows, choice], starts[rows, choice // ends.shape[1]], ends[rows, choice % ends.shape[1]]


def _highest(logits: NDArray[np.floating], count: int) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    return chosen, np.take_along_axis(logits, chosen, axis=1)


log = logging.getLogger(__name__)
MODEL_KEY = "qa.model.path"
HEADS = ("softmax", "sigmoid")  # the first is that of configurations that do not say


def load_tokenizer(
    path: str, *, max_length: int | None, key: str = MODEL_KEY, length_key: str = "qa.max_length"
) -> tuple[PreTrainedTokenizerBase, bool]:
    """The tokenizer of a reader, and whether the model separates question and passage by token types."""
    models: Any = transformers.MODEL_FOR_QUESTION_ANSWERING_MAPPING
    tokenizer = encoders.load_tokenizer(path, key, max_length, kind="reader", models=models, length_key=length_key)
    config = AutoConfig.from_pretrained(os.path.expanduser(path), trust_remote_code=False)
    arguments = inspect.signature(models[type(config)].forward).parameters
    types = "token_type_ids" in tokenizer.model_input_names and "token_type_ids" in arguments
    return tokenizer, types and getattr(config, "type_vocab_size", 0) > 1  # XLNet has no number of types


def load_model(
    path: str, tokenizer: PreTrainedTokenizerBase | None = None, *, key: str = MODEL_KEY
) -> PreTrainedModel:
    """Load an encoder with a span head; a head that the checkpoint lacks starts from torch's global random state."""
    load_unsharded()
    with loading(path, key, "reader") as name, quiet():
        model, info = AutoModelForQuestionAnswering.from_pretrained(
            name, num_labels=2, output_loading_info=True, trust_remote_code=False, **FLOAT32
        )
        check_weights(model, tokenizer)
    if missing := sorted(key for key in info["missing_keys"] if not key.startswith("qa_outputs.")):
        log.warning("%s: %d weights besides the span head start at random, such as %s", path, len(missing), missing[0])
    return model


LONGEST_WINDOW = 384  # tokens, as in the settings of `rl-qg qa`
_TOKENISING = Lock()  # calls change how a tokenizer cuts, and threads may share a reader


class AnswerReader:
    """Answers questions with spans of their passages, in batches of `batch_size` windows.

    `path` is a folder of `rl-qg qa`, or folder or Hub name of any extractive reader. A window has `max_length` tokens
    (None: what it can read, at most `LONGEST_WINDOW`), of which neighbours share `doc_stride` (None: a third). `title`
    is for the log when memory runs out; `at` precedes the keys in errors, such as `augment.filters.round_trip.`.
    """

    def __init__(
        self,
        path: str,
        *,
        device: torch.device,
        max_length: int | None = None,
        doc_stride: int | None = None,
        max_answer_length: int = 30,
        n_best: int = 20,
        batch_size: int = 32,
        title: str = "reader",
        at: str = "",
    ) -> None:
        key = f"{at}reader"
        self.tokenizer, self.token_types = load_tokenizer(
            path, max_length=max_length, key=key, length_key=f"{at}max_length"
        )
        self.model: Any = load_model(path, self.tokenizer, key=key).to(device).eval()
        if not any("QuestionAnswering" in name for name in self.model.config.architectures or ()):
            raise InputError(
                f"{key}={path}: has no trained span head; train one with rl-qg qa data.train=… output_dir=READER and "
                "give that folder"
            )
        self.max_length = max_length or min(LONGEST_WINDOW, longest_window(os.path.expanduser(path), self.tokenizer))
        self.doc_stride = self.max_length // 3 if doc_stride is None else doc_stride
        self.max_answer_length, self.n_best, self.batch_size = max_answer_length, n_best, batch_size
        self.device, self.at = device, at
        self.collate = WindowCollator(self.tokenizer.pad_token_id)
        self.retry = OutOfMemoryRetry(title, f"lower {at}batch_size")

    def __call__(self, questions: Sequence[str], contexts: Sequence[str]) -> list[str]:
        """The answer to each question about its context; "" where no span is valid."""
        if not questions:
            return []
        examples = [
            QAExample(str(number), "", context, question, ())
            for number, (question, context) in enumerate(zip(questions, contexts, strict=True))
        ]
        options: dict[str, Any] = {"max_length": self.max_length, "doc_stride": self.doc_stride, "at": self.at}
        with _TOKENISING:
            windows = encode(examples, self.tokenizer, token_types=self.token_types, **options)
        texts = best_answers(
            windows, examples, *self._logits(windows), n_best=self.n_best, max_answer_length=self.max_answer_length
        )
        return [texts[example.id] for example in examples]

    @torch.inference_mode()
    def _logits(self, windows: Windows) -> Any:
        """Start and end logits of all W windows, (2, W, longest window); -inf at padding."""
        logits = np.full((2, len(windows), int(windows.lengths.max())), -np.inf, dtype=np.float32)
        order = np.argsort(-windows.lengths, kind="stable")
        for first in range(0, len(order), self.batch_size):
            batch: list[int] = order[first : first + self.batch_size].tolist()
            for rows, start, end in self.retry(lambda part: (part, *self._forward(windows, part)), batch):
                logits[0, rows, : start.shape[1]] = start
                logits[1, rows, : end.shape[1]] = end
        return logits

    def _forward(self, windows: Windows, rows: Sequence[int]) -> Any:
        batch = self.collate([windows[row] for row in rows])
        output = self.model(**{name: value.to(self.device) for name, value in batch.items() if name != "labels"})
        logits = (output.start_logits, output.end_logits)
        return tuple(span_scores(part.float(), self.model.config).cpu().numpy() for part in logits)
