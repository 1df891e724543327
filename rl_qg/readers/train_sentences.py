"""Training classifiers of sentences: which are worth a question, and of which types it can be.

A part of the training articles is set aside to choose the epoch and the thresholds; the validation data are scored.

Source: "Multi-Question Generation" (docs/papers.md), sections 6.1 to 6.3.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import TrainerState

from rl_qg.data.examples import QAExample
from rl_qg.readers import sentences
from rl_qg.readers.encoders import load_tokenizer
from rl_qg.readers.fine_tuning import FineTuning, keeping_best
from rl_qg.readers.sentences import LabelledSentences, SentenceClassifier, SentenceCollator, SentenceItems
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import as_written, read_record, write_json
from rl_qg.runtime.trainer_base import Resumable
from rl_qg.settings import TrainSentencesSettings
from rl_qg.stats.intervals import PassageDraws

KEY = "train_sentences.model.path"
METRICS = "sentence_metrics.json"  # written last: the model is trained and evaluated
log = logging.getLogger(__name__)


class SentenceTrainer(Resumable):
    """A transformers trainer that stops when `patience` epochs have not lowered the loss on the held-out items.

    It decides before each epoch from the log of the checkpoint, so that a resumed run stops where another one would.
    """

    def __init__(self, *args: Any, patience: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._patience = patience

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        self.control.should_training_stop |= epochs_without_gain(self.state) >= self._patience
        super()._run_epoch(*args, **kwargs)


def epochs_without_gain(state: TrainerState) -> int:
    losses = [entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry]
    return len(losses) - 1 - int(np.argmin(losses)) if losses else 0


def train_sentences(train: Sequence[QAExample], validation: Sequence[QAExample], tuning: FineTuning) -> dict[str, Any]:
    """Train and evaluate a classifier (`FineTuning.result`), and return the content of `sentence_metrics.json`:
    precision, recall, F1 and accuracy on `validation`, beside those of the baselines, and the thresholds.
    """
    settings = tuning.settings
    output_dir = tuning.output_dir

    @cache
    def data() -> "_Data":
        return _Data(train, validation, settings, tuning.seed)

    def evaluate(trainer: Resumable) -> dict[str, Any]:
        state = trainer.state
        classifier = SentenceClassifier.from_pretrained(output_dir, device=trainer.args.device, key="output_dir")
        if settings.threshold == "tuned":
            columns = [table.T for table in _predicted(classifier, data().development)]
            config = read_record(output_dir / "config.json")
            chosen = [sentences.best_threshold(*pair) for pair in zip(*columns, strict=True)]
            config[sentences.OPTIONS]["thresholds"] = chosen
            write_json(output_dir / "config.json", config)
            classifier.thresholds = tuple(chosen)
        epoch = next((row["epoch"] for row in state.log_history if row["step"] == state.best_global_step), None)
        return {
            "kind": settings.kind,
            "model": settings.model.path,
            **evaluation(classifier, data().validation),
            "best": {"loss": state.best_metric, "step": state.best_global_step, "epoch": epoch},
            "examples": data().counts,
            "set_aside": data().unit,
        }

    metrics = tuning.result(METRICS, "sentence classifier", lambda: _trainer(data(), settings, tuning), evaluate)
    with as_written(output_dir / METRICS):
        scores, baseline = metrics["scores"], metrics["baselines"]["every"]
        shown = [scores["precision"], scores["recall"], scores["f1"], baseline["scores"]["f1"]]
        log.info(
            "%d validation sentences: precision %s, recall %s, F1 %s %%; every label for every sentence: F1 %s %%",
            *(metrics["sentences"], *map(_percent, shown)),
        )
    return metrics


def _percent(statistic: Mapping[str, Any]) -> str:
    return "–" if statistic["value"] is None else f"{100 * statistic['value']:.1f}"


class _Data:
    """The sentences of the three roles with their labels: training, development (set aside) and validation."""

    def __init__(
        self, train: Sequence[QAExample], validation: Sequence[QAExample], settings: TrainSentencesSettings, seed: int
    ) -> None:
        self.unit: str | None = None
        parts = {"train": train, "validation": validation}
        if settings.development:
            rest, chosen, self.unit = sentences.set_aside(train, settings.development, seed)
            parts |= {"train": rest, "development": chosen}
        self.counts: dict[str, dict[str, int]] = {}
        passages: dict[str, list[LabelledSentences]] = {}
        for name, examples in parts.items():
            passages[name], self.counts[name] = sentences.labelled_sentences(examples, settings.kind)
            if not passages[name]:
                raise InputError(
                    f"data.{'validation' if name == 'validation' else 'train'}: no example with a question is there "
                    f"for {name}; give at least two passages with questions to train on, and one to validate on"
                )
            counted = self.counts[name].items()
            log.info("%s: %s", name, ", ".join(f"{n} {what.replace('_', ' ')}" for what, n in counted))
        self.train, self.validation = passages["train"], passages["validation"]
        self.development = passages.get("development", self.validation)
        if not settings.development:
            log.warning("train_sentences.development=0: the validation data choose the epoch, so its scores flatter")


def _trainer(data: _Data, settings: TrainSentencesSettings, tuning: FineTuning) -> SentenceTrainer:
    path = settings.model.path
    tokenizer = load_tokenizer(path, KEY, settings.max_length)
    first = tokenizer("a")["input_ids"][0]
    if settings.pooling == "cls" and (tokenizer.cls_token_id is None or first != tokenizer.cls_token_id):
        raise InputError(f"{KEY}={path}: its tokenizer puts no class token first: use train_sentences.pooling=mean")
    count = len(sentences.LABELS[settings.kind])
    weights = sentences.positive_weights(data.train) if settings.kind == "types" else [1.0] * count
    options = sentences.SentenceOptions(
        settings.kind, settings.pooling, settings.max_length, tuple(weights), (0.5,) * count
    )
    model = sentences.new_labeller(path, KEY, tokenizer, options, tuning.seed)
    limits: dict[str, Any] = {"max_length": settings.max_length, "together": settings.kind == "hierarchical"}
    items, development = (SentenceItems(part, tokenizer, **limits) for part in (data.train, data.development))
    if cut := items.cut + development.cut:
        log.info("%d sentences are cut at train_sentences.max_length=%d tokens", cut, settings.max_length)
    constant = "constant_with_warmup" if settings.warmup_fraction else "constant"
    return SentenceTrainer(
        model=model,
        args=replace(
            keeping_best(tuning.arguments()),
            lr_scheduler_type=constant,
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm,
        ),
        data_collator=SentenceCollator(tokenizer.pad_token_id),
        train_dataset=items,
        eval_dataset=development,
        processing_class=tokenizer,
        # the released code's RAdam takes the decay from the weights, not from the gradient
        optimizer_cls_and_kwargs=(torch.optim.RAdam, {"lr": settings.learning_rate, "decoupled_weight_decay": True}),
        patience=settings.patience,
    )


def _predicted(
    classifier: SentenceClassifier, passages: Sequence[LabelledSentences]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The probabilities and the labels of all sentences, each (sentences, labels)."""
    rows = np.concatenate(classifier([passage.sentences for passage in passages]))
    return rows, np.concatenate([passage.labels for passage in passages])


def evaluation(classifier: SentenceClassifier, passages: Sequence[LabelledSentences]) -> dict[str, Any]:
    """The scores of a classifier on sentences with the labels of its kind, as plain JSON; intervals over passages."""
    rows, actual = _predicted(classifier, passages)
    predicted = sentences.decisions(rows, classifier.thresholds, at_least_one=classifier.kind == "types")
    draws = PassageDraws([number for number, passage in enumerate(passages) for _ in passage.sentences])
    baselines = {"every": np.ones_like(actual)}
    if classifier.kind == "types":
        baselines["most_frequent"] = np.zeros_like(actual)
        baselines["most_frequent"][:, actual.sum(axis=0).argmax()] = True
    result: dict[str, Any] = {
        "passages": len(passages),
        "sentences": len(actual),
        "thresholds": dict(zip(classifier.labels, classifier.thresholds, strict=True)),
        **sentences.compared_scores(predicted, actual, baselines, draws),
    }
    if classifier.kind == "types":
        result["labels"] = sentences.label_scores(predicted, actual, classifier.labels, draws)
    return result
