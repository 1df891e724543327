"""The keyphrase predictor of KPQA: which tokens of a sentence answer a question; its training and evaluation.

    rl-qg train-kpqa data.train=train.json data.validation=dev.json output_dir=RUN/kpqa

It learns from the answers that people marked, and weights the tokens in the metrics of `rewards.KPQA`; with
`question=false` from the sentence alone (the paper's ablation -KP). Its `config.json` says which of the two it is.

Source: Lee et al., "KPQA: A Metric for Generative Question Answering Using Keyphrase Weights" (NAACL 2021), section 3.
"""

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from accelerate import PartialState

from rewards.embedding.kpqa_weights import LABELS, READS_QUESTION, KeyphraseWeights
from rewards.frozen import FrozenModel
from rl_qg.data.examples import QAExample
from rl_qg.readers.keyphrase_data import EXAMPLES_AT_ONCE, KEYPHRASE, KeyphraseCollator, KeyphraseItems
from rl_qg.readers.token_classifier import (
    IGNORED,
    TokenLabelTrainer,
    load_model,
    load_tokenizer,
    longest_window,
    train_once,
    train_token_classifier,
)
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import write_json
from rl_qg.runtime.processes import load_unsharded
from rl_qg.settings import TrainKPQASettings

KEY = "train_kpqa.model.path"
MEASURES = ("precision", "recall", "f1")
METRICS = "kpqa_metrics.json"  # written last: the model is trained and evaluated
log = logging.getLogger(__name__)


# --- Training ---


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
    """Train, evaluate, and return what `kpqa_metrics.json` holds: precision, recall and F1 of the validation tokens
    whose weight is at least one half, together and by data set, their counts, and the numbers of examples used and
    left out.

    `output_dir` gets the model and its tokenizer. With several repetitions it gets those of the first seed, each seed
    has a folder `seed-<number>`, and the measures are means over the seeds beside their standard deviations. A second
    call returns the result, or goes on from the last checkpoint. Every process calls this. Raises `InputError` for
    unusable examples, settings or models.
    """
    items: dict[str, KeyphraseItems] = {}

    def load_items() -> dict[str, KeyphraseItems]:
        if not items:
            items.update(_checked(train, validation, settings))
        return items

    options: dict[str, Any] = {"use_cpu": use_cpu, "precision": precision}
    if settings.repetitions == 1:
        metrics = _train_seed(load_items, settings, output_dir, seed=seed, **options)
    else:
        seeds = range(seed, seed + settings.repetitions)
        results = {
            number: _train_seed(load_items, settings, output_dir / f"seed-{number}", seed=number, **options)
            for number in seeds
        }
        metrics = repeated(results)
        if PartialState().is_main_process:
            _keep_first(output_dir / f"seed-{seed}", output_dir)
            write_json(output_dir / METRICS, metrics)
        PartialState().wait_for_everyone()
    log.info(
        "keyphrase tokens of %d validation sentences: precision %.1f %%, recall %.1f %%, F1 %.1f %%",
        metrics["examples"]["validation"]["used"],
        *(100 * metrics[name] for name in MEASURES),
    )
    return metrics


def _train_seed(
    load_items: Callable[[], dict[str, KeyphraseItems]],
    settings: TrainKPQASettings,
    folder: Path,
    *,
    seed: int,
    use_cpu: bool,
    precision: str,
) -> dict[str, Any]:
    """Train and evaluate once; `load_items` is called if that has not been done yet."""
    state: dict[str, Any] = {}

    def train_model() -> TokenLabelTrainer:
        items = load_items()
        tokenizer = load_tokenizer(settings.model.path, KEY)
        model = load_model(settings.model.path, KEY, tokenizer, LABELS, seed, settings.head)
        setattr(model.config, READS_QUESTION, settings.question)
        trainer = train_token_classifier(
            *(model, tokenizer, items["train"]),
            KeyphraseCollator(tokenizer.pad_token_id, getattr(model.config, "type_vocab_size", 0) > 1),
            *(settings, folder),
            seed=seed,
            use_cpu=use_cpu,
            precision=precision,
            title="keyphrase predictor",
            development=items["validation"] if settings.keep == "best" else None,
        )
        if settings.keep == "best":
            state["best"] = {"loss": trainer.state.best_metric, "step": trainer.state.best_global_step}
        return trainer

    def evaluate(device: torch.device) -> dict[str, Any]:
        items = load_items()
        return {
            **_scores(folder, items["validation"], device),
            "examples": {name: part.counts() for name, part in items.items()},
            "model": settings.model.path,
            **state,
        }

    return train_once(folder, METRICS, train_model, evaluate, use_cpu=use_cpu)


def repeated(results: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """The metrics of several seeds as one record: means, `spread` (standard deviations with n - 1, in the same unit)
    and the values of each seed; the same for each data set.
    """
    parts = [*results.values()]
    first = parts[0]
    sets = {name: [part["data_sets"][name] for part in parts] for name in first["data_sets"]}
    return {
        **_means(parts),
        "data_sets": {name: _means(values) | {"examples": values[0]["examples"]} for name, values in sets.items()},
        "seeds": [
            {"seed": seed, **{name: part[name] for name in (*MEASURES, "tokens", "best") if name in part}}
            for seed, part in results.items()
        ],
        "examples": first["examples"],
        "model": first["model"],
    }


def _means(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: mean(part[name] for part in parts) for name in MEASURES} | {
        "spread": {name: stdev(part[name] for part in parts) for name in MEASURES}
    }


def _keep_first(source: Path, target: Path) -> None:
    """Copy the files of a model folder, but not its metrics."""
    for path in source.iterdir():
        if path.is_file() and path.name != METRICS:
            shutil.copy2(path, target / path.name)


def _checked(
    train: Sequence[QAExample], validation: Sequence[QAExample], settings: TrainKPQASettings
) -> dict[str, KeyphraseItems]:
    path = settings.model.path
    tokenizer = load_tokenizer(path, KEY)
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise InputError(f"train_kpqa.model.path={path}: its tokenizer has no class or separator token: give a BERT")
    if settings.max_length > (longest := longest_window(path, tokenizer)):
        raise InputError(
            f"train_kpqa.max_length={settings.max_length} is above the {longest} tokens that {path} can read: lower it"
        )
    checked = {}
    for name, examples in (("train", train), ("validation", validation)):
        items = KeyphraseItems(examples, tokenizer, max_length=settings.max_length, question=settings.question)
        if not len(items):
            raise InputError(
                f"data.{name}: none of {len(examples)} examples can be used ({items.without_question} without a "
                f"question, {items.without_answer} with the answer beyond train_kpqa.max_length); check the source"
            )
        if items.without_question or items.without_answer:
            log.info(
                "data.%s: %d examples without a question and %d with the answer beyond train_kpqa.max_length left out",
                *(name, items.without_question, items.without_answer),
            )
        checked[name] = items
    return checked


# --- Evaluation ---


def _scores(folder: Path, items: KeyphraseItems, device: torch.device) -> dict[str, Any]:
    """Precision, recall and F1 of the tokens of all sentences, and of each data set's, weighted by the saved model as
    the metrics weight them.
    """
    load_unsharded()
    weigh = KeyphraseWeights(FrozenModel(folder, "tagger", device=device, dtype="float32"), batch_size=64)
    counts: dict[str, Counter[str]] = {}
    for begin in range(0, len(items), EXAMPLES_AT_ONCE):
        indices = range(begin, min(begin + EXAMPLES_AT_ONCE, len(items)))
        batch = [items.sentences[index] for index in indices]
        conditions = [sentence.question for sentence in batch] if items.question else None
        with torch.inference_mode():
            weights = weigh([sentence.text for sentence in batch], conditions)
        for index, sentence, row in zip(indices, batch, weights, strict=True):
            labels = [label for label in items[index]["labels"] if label != IGNORED]
            # Where training cut a long sentence the metric reads on; tokens without a label are not evaluated.
            pairs = [(weight >= 0.5, label == KEYPHRASE) for weight, label in zip(row, labels, strict=False)]
            counts.setdefault(sentence.source, Counter()).update(
                examples=1,
                both=sum(is_predicted and is_marked for is_predicted, is_marked in pairs),
                predicted=sum(is_predicted for is_predicted, _ in pairs),
                keyphrase=sum(is_marked for _, is_marked in pairs),
                all=len(pairs),
            )
    sets = {
        source or "examples": _measures(count) | {"examples": count["examples"]} for source, count in counts.items()
    }
    return {**_measures(sum(counts.values(), Counter())), "data_sets": sets}


def _measures(count: Mapping[str, int]) -> dict[str, Any]:
    both, predicted, marked = count["both"], count["predicted"], count["keyphrase"]
    return {
        "precision": both / predicted if predicted else 0.0,
        "recall": both / marked if marked else 0.0,
        "f1": 2 * both / (predicted + marked) if predicted + marked else 0.0,
        "tokens": {"all": count["all"], "keyphrase": marked, "predicted": predicted, "both": both},
    }
