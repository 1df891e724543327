"""Candidate answers from a trained model: each token begins an answer (B), continues one (I), or neither (O).

It learns from human answers. Source of the task: Du and Cardie, "Harvesting Paragraph-Level Question-Answer Pairs from
Wikipedia" (2018), who tag the answers of a passage before they generate questions.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, PreTrainedTokenizerBase

from rewards.words import UNSPACED_LETTERS, answer_f1 as f1, normalise_answer
from rl_qg.data.examples import QAExample, by_key
from rl_qg.readers.encoders import IGNORED, load_model, load_tokenizer, longest_window, padded
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash
from rl_qg.settings import AnswersSettings
from rl_qg.text.spans import Span, select_spans

if TYPE_CHECKING:  # a trainer takes a second to load, and `rl-qg ask` trains nothing
    from rl_qg.readers.fine_tuning import FineTuning
    from rl_qg.runtime.trainer_base import Resumable

KEY, TRAIN_KEY = "answers.extractor", "train_answers.model.path"
LABELS = ("O", "B", "I")
OUTSIDE, BEGIN, INSIDE = range(3)
CONTINUES = 0.5  # a word continues an answer if its I is at least this fraction of the answer's B
METRICS = "answers_metrics.json"  # written last: the model is trained and evaluated
LIMITS = (5, 10, 20, None)  # numbers of proposals for each passage, for which the model is evaluated
CLOSE = 0.5  # from this token F1 on, an answer counts as nearly proposed
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenWindow:
    """A part of a passage: `ids` (T,) with special tokens, `offsets` (T, 2) in characters of the passage, (0, 0) for
    special tokens; `passage` is the index of the passage.
    """

    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    passage: int


def windows(
    contexts: Sequence[str], tokenizer: PreTrainedTokenizerBase, *, max_length: int, doc_stride: int
) -> list[TokenWindow]:
    """Tokenise each passage into windows of at most `max_length` tokens in all, which share `doc_stride` tokens."""
    encoded = tokenizer(
        list(contexts),
        truncation=True,
        max_length=max_length,
        stride=doc_stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        verbose=False,
    )
    return [
        TokenWindow(np.array(encoding.ids), np.array(encoding.offsets), number)
        for encoding, number in zip(encoded.encodings or (), encoded["overflow_to_sample_mapping"], strict=True)
    ]


def labels_of(window: TokenWindow, spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """The label B, I or O of each token, (T,): B for the first token of a span; special tokens are ignored. `spans`
    has the first character, and one past the last, of each answer; they do not overlap.
    """
    starts, ends = window.offsets[:, 0], window.offsets[:, 1]
    labels = np.where(starts < ends, OUTSIDE, IGNORED)
    for start, end in spans:
        touching = np.flatnonzero((starts < end) & (ends > start) & (starts < ends))
        if touching.size:
            labels[touching] = INSIDE
            if starts[touching[0]] <= start:  # otherwise the window begins within the answer
                labels[touching[0]] = BEGIN
    return labels


def human_spans(examples: Sequence[QAExample]) -> dict[str, list[tuple[int, int]]]:
    """The spans of the first answers of each passage; of overlapping ones the longest is kept, then the earliest."""
    answers: dict[str, set[tuple[int, int]]] = {}
    for example in examples:
        answer = example.answers[0]
        start = answer.start + len(answer.text) - len(answer.text.lstrip())  # white space belongs to no token
        answers.setdefault(example.context, set()).add((start, answer.start + len(answer.text.rstrip())))
    chosen = {}
    for context, spans in answers.items():
        kept: list[tuple[int, int]] = []
        for start, end in sorted(spans, key=lambda span: (span[0] - span[1], span[0])):
            if all(end <= other[0] or other[1] <= start for other in kept):
                kept.append((start, end))
        chosen[context] = sorted(kept)
    return chosen


class ExtractorAnswers:
    """Proposes what a model trained by `rl-qg train-answers` (folder `path`) tags: at most `limit` spans of a passage
    (None: all), for whose first word the probability of B is at least `min_probability`.
    """

    def __init__(self, path: str, limit: int | None, *, min_probability: float, device: torch.device) -> None:
        if not path:
            raise InputError("answers.extractor has no value; give the folder of rl-qg train-answers")
        self._tokenizer = load_tokenizer(path, KEY)
        folder = Path(path).expanduser()
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        if tuple(config.id2label.get(number) for number in range(config.num_labels)) != LABELS:
            raise InputError(
                f"answers.extractor={path}: its labels are not {', '.join(LABELS)}; give a folder of rl-qg "
                "train-answers"
            )
        model: Any = load_model(path, KEY, self._tokenizer)
        self._model = model.to(device).eval()
        longest = longest_window(str(folder), self._tokenizer)
        own = {"max_length": min(384, longest), "doc_stride": min(128, longest // 4)}
        self._window = getattr(config, "answer_window", None) or own
        self._limit, self._threshold = limit, min_probability
        weights = {file.name: file_hash(file) for file in sorted(folder.glob("*.safetensors"))}
        self.made_by = {"extractor": weights, "min_probability": min_probability}

    @torch.inference_mode()
    def __call__(self, contexts: Sequence[str]) -> list[list[Span]]:
        """For each passage its spans, best first."""
        rows = windows(contexts, self._tokenizer, **self._window)
        rows.sort(key=lambda row: len(row.ids))
        tagged: list[list[tuple[TokenWindow, NDArray[np.float32]]]] = [[] for _ in contexts]
        for begin in range(0, len(rows), len(contexts)):
            part = rows[begin : begin + len(contexts)]
            batch = padded([{"input_ids": row.ids} for row in part], {"input_ids": self._tokenizer.pad_token_id})
            logits = self._model(**{name: value.to(self._model.device) for name, value in batch.items()}).logits
            for row, probabilities in zip(part, logits.float().softmax(-1).cpu().numpy(), strict=True):
                tagged[row.passage].append((row, probabilities[: len(row.ids)]))
        return [
            select_spans(text, tagged_spans(text, parts, self._threshold), self._limit)
            for text, parts in zip(contexts, tagged, strict=True)
        ]


def tagged_spans(text: str, parts: Sequence[tuple[TokenWindow, NDArray[np.floating]]], threshold: float) -> list[Span]:
    """Spans of whole words from the probabilities (T, 3) of a passage's windows.

    An answer begins at each word whose B is at least `threshold`; B is its score. The following words belong to it as
    long as their I is at least half of its score. A fixed fraction also finds rare answers, for which O is always the
    most likely label: people ask about a few of the spans that they could ask about. Of a token in several windows,
    the probabilities of the window where it is farthest from the ends are used.
    """
    best: dict[tuple[int, int], tuple[int, NDArray[np.floating]]] = {}
    for window, probabilities in parts:
        last = len(window.ids) - 1
        for index, (start, end) in enumerate(window.offsets.tolist()):
            depth = min(index, last - index)
            if start < end and ((start, end) not in best or depth > best[start, end][0]):
                best[start, end] = depth, probabilities[index]
    words: list[tuple[int, int, NDArray[np.floating]]] = []
    for (start, end), (_, probability) in sorted(best.items(), key=lambda item: item[0]):
        if words and start < words[-1][1] + 1 and not _is_apart(text, start, words[-1][1]):
            words[-1] = words[-1][0], max(end, words[-1][1]), words[-1][2]
        else:
            words.append((start, end, probability))
    spans = []
    for index, (start, end, probability) in enumerate(words):
        score = float(probability[BEGIN])
        if score >= threshold:
            for _, following, inside in words[index + 1 :]:
                if inside[INSIDE] < CONTINUES * score:
                    break
                end = following
            spans.append(Span(start, end, "extracted", score))
    return spans


def _is_apart(text: str, start: int, before: int) -> bool:
    """Whether the token at `start` begins a word, given that the token before it ends at `before`."""
    if start < before:
        return False  # pieces of one character
    first, last = text[start], text[before - 1]
    joined = first.isalnum() and last.isalnum()
    return not joined or bool(re.search(f"[{UNSPACED_LETTERS}]", first + last))


def train_extractor(
    train: Sequence[QAExample], validation: Sequence[QAExample], tuning: "FineTuning"
) -> dict[str, Any]:
    """Train and evaluate the model (`FineTuning.result`), return the content of `answers_metrics.json`: the scores of
    `score_proposals` on `validation` for several numbers of proposals.
    """
    settings = tuning.settings
    window = {"max_length": settings.max_length, "doc_stride": settings.doc_stride}

    def make_trainer() -> "Resumable":
        from rl_qg.readers.fine_tuning import token_label_trainer

        for name, examples in (("train", train), ("validation", validation)):
            if not examples:
                raise InputError(f"data.{name}: no examples for the extractor; check the source and its limits")
        tokenizer = load_tokenizer(settings.model.path, TRAIN_KEY, settings.max_length)
        if settings.doc_stride >= settings.max_length - tokenizer.num_special_tokens_to_add():
            raise InputError(
                f"train_answers.doc_stride={settings.doc_stride} leaves no room for new tokens in windows of "
                f"train_answers.max_length={settings.max_length}: lower it"
            )
        model = load_model(settings.model.path, TRAIN_KEY, tokenizer, LABELS, tuning.seed)
        model.config.answer_window = window
        spans = human_spans(train)
        contexts = list(spans)
        rows = windows(contexts, tokenizer, **window)
        items = [{"input_ids": row.ids, "labels": labels_of(row, spans[contexts[row.passage]])} for row in rows]
        return token_label_trainer(tuning, model, tokenizer, items)

    def evaluate(trainer: "Resumable") -> dict[str, Any]:
        options, device = AnswersSettings(), trainer.args.device
        propose = ExtractorAnswers(
            str(tuning.output_dir), None, min_probability=options.min_probability, device=device
        )
        contexts = list(dict.fromkeys(example.context for example in validation))
        texts: dict[str, list[str]] = {}
        for begin in range(0, len(contexts), options.batch_size):
            batch = contexts[begin : begin + options.batch_size]
            for context, spans in zip(batch, propose(batch), strict=True):
                texts[context] = [context[span.start : span.end] for span in spans]
        scores = {}
        for limit in LIMITS:
            proposed = {context: found[:limit] for context, found in texts.items()}
            scores[str(limit or "all")] = score_proposals(proposed, validation)
        return {"proposals": scores, "min_probability": options.min_probability, "model": settings.model.path}

    metrics = tuning.result(METRICS, "answer extractor", make_trainer, evaluate)
    best = metrics["proposals"]["10"]
    log.info(
        "10 answers for each passage: %.1f %% of the human answers are among them, %.1f %% of them are human answers",
        *(100 * best[name] for name in ("recall", "precision")),
    )
    return metrics


def score_proposals(proposed: Mapping[str, Sequence[str]], examples: Iterable[QAExample]) -> dict[str, Any]:
    """Compare the texts proposed for each passage, by its context, with the answers of its questions.

    All are fractions. `recall`, `close_recall`: questions with an answer that is proposed exactly (after SQuAD's
    normalisation), or with a token F1 of at least 0.5. `distinct_recall`: the same as `recall` over the distinct
    answers of a passage, the first of each question. `precision`: proposals that are an answer of a question of their
    passage; people chose few of the possible answers, so this is a lower bound. `f1` is that of `precision` and
    `distinct_recall`. Texts are compared, not positions. Passages that are not in `proposed` have no proposal.
    """
    passages = by_key((example.context, example) for example in examples)
    count = exact = close = distinct = distinct_exact = spans = correct = 0
    for context, questions in passages.items():
        texts = {normalise_answer(text): text for text in proposed.get(context, ())}
        answers = {normalise_answer(answer.text) for example in questions for answer in example.answers}
        firsts = {normalise_answer(example.answers[0].text) for example in questions}
        for example in questions:
            count += 1
            exact += any(normalise_answer(answer.text) in texts for answer in example.answers)
            close += any(f1(text, answer.text) >= CLOSE for answer in example.answers for text in texts.values())
        distinct += len(firsts)
        distinct_exact += len(firsts & texts.keys())
        spans += len(texts)
        correct += len(answers & texts.keys())
    precision, distinct_recall = correct / max(1, spans), distinct_exact / max(1, distinct)
    return {
        "passages": len(passages),
        "questions": count,
        "spans_per_passage": spans / max(1, len(passages)),
        "precision": precision,
        "recall": exact / max(1, count),
        "close_recall": close / max(1, count),
        "distinct_recall": distinct_recall,
        "f1": 2 * precision * distinct_recall / max(1e-12, precision + distinct_recall),
    }
