"""Training the keyphrase predictor of KPQA: which tokens of a sentence answer a question.

    rl-qg train-kpqa data.train=train.json data.validation=dev.json output_dir=RUN/kpqa

It learns from the answers that people marked, and weighs the tokens in the metrics of `rewards.KPQA`; with
`question=false` from the sentence alone (the paper's ablation -KP). Which of the two stands in its `config.json`.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rewards.embedding.kpqa_weights import LABELS, READS_QUESTION, KeyphraseWeights
from rewards.frozen import FrozenModel
from rl_qg.data.examples import QAExample
from rl_qg.readers.kpqa_data import IGNORED, KEYPHRASE, KeyphraseCollator, KeyphraseItems
from rl_qg.readers.token_classifier import (
    TokenLabelTrainer,
    load_model,
    load_tokenizer,
    longest_window,
    trained,
    trained_once,
)
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import load_whole
from rl_qg.settings import TrainKPQASettings

METRICS = "kpqa_metrics.json"  # written last: the model is trained and judged
JUDGED_AT_ONCE = 1024
log = logging.getLogger(__name__)


def train_predictor(
    train: Sequence[QAExample],
    validation: Sequence[QAExample],
    *,
    settings: TrainKPQASettings,
    output_dir: Path,
    seed: int,
    use_cpu: bool = False,
    precision: str = "no",
) -> dict[str, Any]:
    """Train, judge, and return what `kpqa_metrics.json` holds: precision, recall and F1 of the validation tokens whose
    weight is at least one half, their counts, and the examples used and left out.

    `output_dir` gets the model and its tokenizer. A second call returns the result, or goes on from the last
    checkpoint. Every process calls this. Raises `InputError` for unusable examples, settings or models.
    """
    items: dict[str, KeyphraseItems] = {}

    def train_it() -> TokenLabelTrainer:
        items.update(_checked(train, validation, settings))
        model = load_model(settings.model.path, LABELS, seed)
        setattr(model.config, READS_QUESTION, settings.question)
        tokenizer = load_tokenizer(settings.model.path, "train_kpqa.model.path")
        collator = KeyphraseCollator(tokenizer.pad_token_id, getattr(model.config, "type_vocab_size", 0) > 1)
        return trained(
            *(model, tokenizer, items["train"], collator, settings, output_dir),
            seed=seed,
            use_cpu=use_cpu,
            precision=precision,
            title="keyphrase predictor",
        )

    def judge(device: torch.device) -> dict[str, Any]:
        scores = _judge(output_dir, items["validation"], device)
        return {**scores, "examples": _counts(items), "model": settings.model.path}

    found = trained_once(output_dir, METRICS, train_it, judge, use_cpu=use_cpu)
    log.info(
        "keyphrase tokens of %d validation sentences: precision %.1f %%, recall %.1f %%, F1 %.1f %%",
        found["examples"]["validation"]["used"],
        *(100 * found[name] for name in ("precision", "recall", "f1")),
    )
    return found


def _checked(
    train: Sequence[QAExample], validation: Sequence[QAExample], settings: TrainKPQASettings
) -> dict[str, KeyphraseItems]:
    path = settings.model.path
    tokenizer = load_tokenizer(path, "train_kpqa.model.path")
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise InputError(f"train_kpqa.model.path={path}: its tokenizer has no marks around a text: give a BERT")
    if settings.max_length > (longest := longest_window(path, tokenizer)):
        raise InputError(
            f"train_kpqa.max_length={settings.max_length} is above the {longest} tokens that {path} can read: lower it"
        )
    found = {}
    for name, examples in (("train", train), ("validation", validation)):
        items = KeyphraseItems(examples, tokenizer, max_length=settings.max_length, question=settings.question)
        if not len(items):
            raise InputError(
                f"data.{name}: none of {len(examples)} examples can be used ({items.without_question} without a "
                f"question, {items.without_answer} with the answer behind train_kpqa.max_length); check the source"
            )
        if items.without_question or items.without_answer:
            log.info(
                "data.%s: %d examples without a question and %d with the answer behind train_kpqa.max_length left out",
                *(name, items.without_question, items.without_answer),
            )
        found[name] = items
    return found


def _judge(folder: Path, items: KeyphraseItems, device: torch.device) -> dict[str, Any]:
    """Precision, recall and F1 of tokens of the sentences, weighed by the saved model as the metrics do."""
    load_whole()
    weigh = KeyphraseWeights(FrozenModel(folder, "tagger", device=device, dtype="float32"), batch_size=64)
    hits = found = wanted = total = 0
    for begin in range(0, len(items), JUDGED_AT_ONCE):
        places = range(begin, min(begin + JUDGED_AT_ONCE, len(items)))
        chosen = [items.sentences[place] for place in places]
        conditions = [sentence.question for sentence in chosen] if items.question else None
        with torch.inference_mode():
            weights = weigh([sentence.text for sentence in chosen], conditions)
        for place, row in zip(places, weights, strict=True):
            labels = [label for label in items[place]["labels"] if label != IGNORED]
            # Where training cut a long sentence the metric reads on; what has no label is not judged.
            pairs = [(weight >= 0.5, label == KEYPHRASE) for weight, label in zip(row, labels, strict=False)]
            hits += sum(said and is_one for said, is_one in pairs)
            found += sum(said for said, _ in pairs)
            wanted += sum(is_one for _, is_one in pairs)
            total += len(pairs)
    return {
        "precision": hits / found if found else 0.0,
        "recall": hits / wanted if wanted else 0.0,
        "f1": 2 * hits / (found + wanted) if found + wanted else 0.0,
        "tokens": {"all": total, "keyphrase": wanted, "predicted": found, "both": hits},
    }


def _counts(items: dict[str, KeyphraseItems]) -> dict[str, dict[str, int]]:
    return {
        name: {
            "used": len(found),
            "without_question": found.without_question,
            "without_answer": found.without_answer,
        }
        for name, found in items.items()
    }
