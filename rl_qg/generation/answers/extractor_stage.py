"""Training the model that proposes answers: each token of a passage begins one, goes on with one, or neither.

    rl-qg train-answers data.train=train.json data.validation=dev.json output_dir=RUN/answers

It learns from the answers that people chose in the training data, and is judged by those of the validation data.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from rl_qg.data.examples import QAExample
from rl_qg.generation.answers.extractor import LABELS, ExtractorAnswers, human_spans, labels_of, windows
from rl_qg.generation.answers.scores import score_proposals
from rl_qg.readers.token_classifier import (
    TokenLabelCollator,
    TokenLabelTrainer,
    load_model,
    load_tokenizer,
    longest_window,
    train_once,
    train_token_classifier,
)
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AnswersSettings, TrainAnswersSettings

METRICS = "answers_metrics.json"  # written last: the model is trained and judged
LIMITS = (5, 10, 20, None)  # proposals a passage at which the model is judged
log = logging.getLogger(__name__)


class _Tagged(Dataset[dict[str, Any]]):
    """Windows of passages with their labels, padded by no one yet."""

    def __init__(
        self, examples: Sequence[QAExample], tokenizer: PreTrainedTokenizerBase, settings: TrainAnswersSettings
    ) -> None:
        spans = human_spans(examples)
        contexts = list(spans)
        rows = windows(contexts, tokenizer, max_length=settings.max_length, doc_stride=settings.doc_stride)
        self._items = [{"input_ids": row.ids, "labels": labels_of(row, spans[contexts[row.passage]])} for row in rows]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._items[index]


def train_extractor(
    train: Sequence[QAExample],
    validation: Sequence[QAExample],
    *,
    settings: TrainAnswersSettings,
    output_dir: Path,
    seed: int,
    use_cpu: bool = False,
    precision: str = "no",
) -> dict[str, Any]:
    """Train, judge, and return what `answers_metrics.json` holds: for some numbers of proposals a passage the scores
    of `rl_qg.generation.answers.scores` on `validation`.

    `output_dir` gets the model and its tokenizer. A second call returns the result, or goes on from the last
    checkpoint. Every process calls this. Raises `InputError` for unusable examples, settings or models.
    """

    def train_it() -> TokenLabelTrainer:
        tokenizer = _checked(train, validation, settings)
        model = load_model(settings.model.path, LABELS, seed)
        model.config.answer_window = {"max_length": settings.max_length, "doc_stride": settings.doc_stride}
        items, collator = _Tagged(train, tokenizer, settings), TokenLabelCollator(tokenizer.pad_token_id)
        return train_token_classifier(
            *(model, tokenizer, items, collator, settings, output_dir),
            seed=seed,
            use_cpu=use_cpu,
            precision=precision,
            title="answer extractor",
        )

    def judge(device: torch.device) -> dict[str, Any]:
        return _judge(output_dir, validation, settings, device)

    found = train_once(output_dir, METRICS, train_it, judge, use_cpu=use_cpu)
    best = found["proposals"]["10"]
    log.info(
        "10 answers a passage: %.1f %% of the human answers are among them, %.1f %% of them are human answers",
        100 * best["recall"],
        100 * best["precision"],
    )
    return found


def _checked(
    train: Sequence[QAExample], validation: Sequence[QAExample], settings: TrainAnswersSettings
) -> PreTrainedTokenizerBase:
    for name, examples in (("train", train), ("validation", validation)):
        if not examples:
            raise InputError(f"data.{name}: no examples for the extractor; check the source and its limits")
    path = settings.model.path
    tokenizer = load_tokenizer(path, "train_answers.model.path")
    if settings.max_length > (longest := longest_window(path, tokenizer)):
        raise InputError(
            f"train_answers.max_length={settings.max_length} is above the {longest} tokens that {path} can read: "
            "lower it"
        )
    if settings.doc_stride >= settings.max_length - tokenizer.num_special_tokens_to_add():
        raise InputError(
            f"train_answers.doc_stride={settings.doc_stride} leaves no room for new tokens in windows of "
            f"train_answers.max_length={settings.max_length}: lower it"
        )
    return tokenizer


def _judge(
    folder: Path, validation: Sequence[QAExample], settings: TrainAnswersSettings, device: torch.device
) -> dict[str, Any]:
    options = AnswersSettings()
    propose = ExtractorAnswers(str(folder), None, min_probability=options.min_probability, device=device)
    contexts = list(dict.fromkeys(example.context for example in validation))
    texts: dict[str, list[str]] = {}
    for begin in range(0, len(contexts), options.batch_size):
        batch = contexts[begin : begin + options.batch_size]
        for context, spans in zip(batch, propose(batch), strict=True):
            texts[context] = [context[span.start : span.end] for span in spans]
    scores = {
        str(limit or "all"): score_proposals({key: found[:limit] for key, found in texts.items()}, validation)
        for limit in LIMITS
    }
    return {
        "proposals": scores,
        "min_probability": options.min_probability,
        "model": settings.model.path,
    }
