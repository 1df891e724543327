"""Training the model that proposes answers: each token of a passage begins one, continues one, or neither.

    rl-qg train-answers data.train=train.json data.validation=dev.json output_dir=RUN/answers

It learns from the human answers of the training data and is evaluated on those of the validation data.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from rewards.words import normalise_answer
from rl_qg.data.examples import QAExample
from rl_qg.readers.answer_extractor import LABELS, ExtractorAnswers, human_spans, labels_of, windows
from rl_qg.readers.fine_tuning import (
    FineTuning,
    TokenLabelCollator,
    TokenLabelTrainer,
    load_model,
    load_tokenizer,
    token_label_trainer,
)
from rl_qg.readers.reader import f1
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.trainer_base import Resumable
from rl_qg.settings import AnswersSettings, TrainAnswersSettings

METRICS = "answers_metrics.json"  # written last: the model is trained and evaluated
LIMITS = (5, 10, 20, None)  # numbers of proposals for each passage, for which the model is evaluated
CLOSE = 0.5  # from this token F1 on, an answer counts as nearly proposed
log = logging.getLogger(__name__)
KEY = "train_answers.model.path"


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
    """Train and evaluate the model and return the content of `answers_metrics.json`: the scores of `score_proposals`
    on `validation` for several numbers of proposals.

    `output_dir` gets the model and its tokenizer. A second call returns the result, or continues from the last
    checkpoint. Every process calls this.
    """
    tuning = FineTuning(settings, output_dir, seed, use_cpu, precision)

    def make_trainer() -> TokenLabelTrainer:
        tokenizer = _checked(train, validation, settings)
        model = load_model(settings.model.path, KEY, tokenizer, LABELS, seed)
        model.config.answer_window = {"max_length": settings.max_length, "doc_stride": settings.doc_stride}
        spans = human_spans(train)
        contexts = list(spans)
        rows = windows(contexts, tokenizer, max_length=settings.max_length, doc_stride=settings.doc_stride)
        items = [{"input_ids": row.ids, "labels": labels_of(row, spans[contexts[row.passage]])} for row in rows]
        return token_label_trainer(tuning, model, tokenizer, TokenLabelCollator(tokenizer.pad_token_id), items)

    def evaluate(trainer: Resumable) -> dict[str, Any]:
        return _evaluate(output_dir, validation, settings, trainer.args.device)

    metrics = tuning.result(METRICS, "answer extractor", make_trainer, evaluate)
    best = metrics["proposals"]["10"]
    log.info(
        "10 answers for each passage: %.1f %% of the human answers are among them, %.1f %% of them are human answers",
        100 * best["recall"],
        100 * best["precision"],
    )
    return metrics


def _checked(
    train: Sequence[QAExample], validation: Sequence[QAExample], settings: TrainAnswersSettings
) -> PreTrainedTokenizerBase:
    for name, examples in (("train", train), ("validation", validation)):
        if not examples:
            raise InputError(f"data.{name}: no examples for the extractor; check the source and its limits")
    tokenizer = load_tokenizer(settings.model.path, KEY, settings.max_length)
    if settings.doc_stride >= settings.max_length - tokenizer.num_special_tokens_to_add():
        raise InputError(
            f"train_answers.doc_stride={settings.doc_stride} leaves no room for new tokens in windows of "
            f"train_answers.max_length={settings.max_length}: lower it"
        )
    return tokenizer


def _evaluate(
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
        str(limit or "all"): score_proposals({context: found[:limit] for context, found in texts.items()}, validation)
        for limit in LIMITS
    }
    return {"proposals": scores, "min_probability": options.min_probability, "model": settings.model.path}


def score_proposals(proposed: Mapping[str, Sequence[str]], examples: Iterable[QAExample]) -> dict[str, Any]:
    """Compare the texts proposed for each passage, by its context, with the answers of its questions.

    All are fractions. `recall`, `close_recall`: questions with an answer that is proposed exactly (after SQuAD's
    normalisation), or with a token F1 of at least 0.5. `distinct_recall`: the same as `recall` over the distinct
    answers of a passage, the first of each question. `precision`: proposals that are an answer of a question of their
    passage; people chose few of the possible answers, so this is a lower bound. `f1` is that of `precision` and
    `distinct_recall`. Texts are compared, not positions. Passages that are not in `proposed` count as having no
    proposal.
    """
    passages: dict[str, list[QAExample]] = {}
    for example in examples:
        passages.setdefault(example.context, []).append(example)
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
