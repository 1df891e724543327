"""The keyphrase predictor of KPQA: which tokens of a sentence answer a question; its training and evaluation.

It learns from the answers that people marked, and weights the tokens in the metrics of `rewards.KPQA`; with
`question=false` from the sentence alone (the paper's ablation -KP). Its `config.json` says which of the two it is.

Source: Lee et al., "KPQA: A Metric for Generative Question Answering Using Keyphrase Weights" (NAACL 2021), section 3.
"""

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from accelerate import PartialState
from transformers import PreTrainedTokenizerBase

from rewards.embedding.kpqa import LABELS, READS_QUESTION, KeyphraseWeights, predictor_input
from rewards.frozen import FrozenModel
from rl_qg.data.examples import Answer, QAExample
from rl_qg.readers.encoders import IGNORED, load_model, load_tokenizer
from rl_qg.readers.fine_tuning import FineTuning, token_label_trainer
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import write_json
from rl_qg.runtime.processes import load_unsharded
from rl_qg.runtime.trainer_base import Resumable
from rl_qg.settings import TrainKPQASettings
from rl_qg.text.spans import sentences

KEYPHRASE, OTHER = range(len(LABELS))
EXAMPLES_AT_ONCE = 1024


@dataclass(frozen=True)
class AnsweredSentence:
    """A question, the sentences that hold its answer, and where the answer is; `source` is its data set."""

    question: str
    text: str
    start: int
    end: int
    source: str = ""


class KeyphraseItems(list[dict[str, Any]]):
    """Model inputs with labels, not padded yet: `input_ids`, `token_type_ids`, `labels`.

    Labels are `KEYPHRASE` for tokens of the sentence that touch the answer, `OTHER` for the rest of it, and ignored
    for the question and the special tokens. Without `question` the sentence is alone (the paper's ablation -KP).
    Examples whose answer is cut off at `max_length` are left out and counted in `without_answer`; those without a
    question, where questions are read, in `without_question`.

    The released code (`utils.py`, `convert_examples_to_features`) labels the first word piece of each word and ignores
    the others. Here every piece has a label, because a continuation piece's weight counts in the metrics as any other.
    """

    def __init__(
        self,
        examples: Sequence[QAExample],
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_length: int,
        question: bool = True,
    ) -> None:
        super().__init__()
        usable = [example for example in examples if example.question.strip() or not question]
        self.question = question
        self.without_question = len(examples) - len(usable)
        self.without_answer = 0
        self.sentences: list[AnsweredSentence] = []
        for begin in range(0, len(usable), EXAMPLES_AT_ONCE):
            batch = [answered_sentence(example) for example in usable[begin : begin + EXAMPLES_AT_ONCE]]
            for sentence, item in zip(batch, _labelled(batch, tokenizer, max_length, question), strict=True):
                if KEYPHRASE in item["labels"]:
                    self.sentences.append(sentence)
                    self.append(item)
                else:
                    self.without_answer += 1

    def counts(self) -> dict[str, int]:
        return {"used": len(self), "without_question": self.without_question, "without_answer": self.without_answer}


def answered_sentence(example: QAExample) -> AnsweredSentence:
    """The sentence of the context that holds the first answer; all sentences that it touches where it crosses ends.

    Of a multi-hop question it is the whole context: its supporting sentences (section 3.1 of the paper, which first
    resolves their coreferences by SpanBERT; that is not done here).
    """
    answer: Answer = example.answers[0]
    end = answer.start + len(answer.text)
    first, last = 0, len(example.context)
    if not example.multi_hop:
        touched = [span for span in sentences(example.context) if span[0] < end and span[1] > answer.start]
        first, last = touched[0][0], touched[-1][1]
    text = example.context[first:last]
    first += len(text) - len(text.lstrip())
    begin = max(0, answer.start - first)
    return AnsweredSentence(example.question, text.strip(), begin, end - first, example.source)


def _labelled(
    batch: Sequence[AnsweredSentence], tokenizer: PreTrainedTokenizerBase, max_length: int, question: bool
) -> list[dict[str, Any]]:
    options: dict[str, Any] = {"add_special_tokens": False, "verbose": False}
    fronts: list[list[int] | None] = [None] * len(batch)
    if question:
        fronts = tokenizer([sentence.question for sentence in batch], **options)["input_ids"]
    texts = tokenizer([sentence.text for sentence in batch], return_offsets_mapping=True, **options)
    items = []
    for sentence, front, ids, offsets in zip(batch, fronts, texts["input_ids"], texts["offset_mapping"], strict=True):
        row, types, kept = predictor_input(tokenizer, front, ids, max_length)
        labels = [
            KEYPHRASE if start < sentence.end and end > sentence.start else OTHER for start, end in offsets[:kept]
        ]
        unlabelled = [IGNORED] * (len(row) - kept - 1)
        items.append({"input_ids": row, "token_type_ids": types, "labels": [*unlabelled, *labels, IGNORED]})
    return items


KEY = "train_kpqa.model.path"
MEASURES = ("precision", "recall", "f1")
METRICS = "kpqa_metrics.json"  # written last: the model is trained and evaluated
log = logging.getLogger(__name__)


def train_predictor(train: Sequence[QAExample], validation: Sequence[QAExample], tuning: FineTuning) -> dict[str, Any]:
    """Train and evaluate (`FineTuning.result`), and return what `kpqa_metrics.json` holds: precision, recall and F1 of
    the validation tokens whose weight is at least one half, together and by data set, their counts, and the numbers of
    examples used and left out. With several repetitions each seed has a folder `seed-<number>`, the model is that of
    the first, and the measures are means over the seeds beside their standard deviations.
    """
    settings = tuning.settings
    items = cache(partial(_checked, train, validation, settings))
    output, seed = tuning.output_dir, tuning.seed
    if settings.repetitions == 1:
        metrics = _result(items, tuning)
    else:
        metrics = repeated(
            {
                number: _result(items, replace(tuning, output_dir=output / f"seed-{number}", seed=number))
                for number in (later % 2**32 for later in range(seed, seed + settings.repetitions))
            }
        )
        if PartialState().is_main_process:
            for path in (output / f"seed-{seed}").iterdir():
                if path.is_file() and path.name != METRICS:
                    shutil.copy2(path, output / path.name)
            write_json(output / METRICS, metrics)
        PartialState().wait_for_everyone()
    log.info(
        "keyphrase tokens of %d validation sentences: precision %.1f %%, recall %.1f %%, F1 %.1f %%",
        metrics["examples"]["validation"]["used"],
        *(100 * metrics[name] for name in MEASURES),
    )
    return metrics


def _result(items: Callable[[], dict[str, KeyphraseItems]], tuning: FineTuning) -> dict[str, Any]:
    settings = tuning.settings

    def make_trainer() -> Resumable:
        found = items()
        tokenizer = load_tokenizer(settings.model.path, KEY)
        model = load_model(settings.model.path, KEY, tokenizer, LABELS, tuning.seed, settings.head)
        setattr(model.config, READS_QUESTION, settings.question)
        segments = getattr(model.config, "type_vocab_size", 0) > 1
        development = found["validation"] if settings.keep == "best" else None
        return token_label_trainer(tuning, model, tokenizer, found["train"], development, segments=segments)

    def evaluate(trainer: Resumable) -> dict[str, Any]:
        metrics = {
            **_scores(tuning.output_dir, items()["validation"], trainer.args.device),
            "examples": {name: part.counts() for name, part in items().items()},
            "model": settings.model.path,
        }
        if settings.keep == "best":
            metrics["best"] = {"loss": trainer.state.best_metric, "step": trainer.state.best_global_step}
        return metrics

    return tuning.result(METRICS, "keyphrase predictor", make_trainer, evaluate)


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


def _checked(
    train: Sequence[QAExample], validation: Sequence[QAExample], settings: TrainKPQASettings
) -> dict[str, KeyphraseItems]:
    path = settings.model.path
    tokenizer = load_tokenizer(path, KEY, settings.max_length)
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise InputError(f"train_kpqa.model.path={path}: its tokenizer has no class or separator token: give a BERT")
    checked = {}
    for name, examples in (("train", train), ("validation", validation)):
        items = KeyphraseItems(examples, tokenizer, max_length=settings.max_length, question=settings.question)
        if not items:
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


def _scores(folder: Path, items: KeyphraseItems, device: torch.device) -> dict[str, Any]:
    """Measures of all sentences and of each data set's, whose tokens the saved model weights as the metrics do."""
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
