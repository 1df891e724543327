"""Classifiers that learn to tell paraphrases from wrong questions, trained in folds of passages.

The supervised rows of QRelScore's Table 4: a question and its passage (or its reference) are classified as a
paraphrase or as made wrong. Every question is scored by the classifier that saw none of its passage. An encoder of any
name is fine-tuned as BERT was; `decatt` is decomposable attention. The paper does not say what the pairs are made of,
nor the training options: both are settings.
"""

import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rewards.signature import folder_hash
from rl_qg.judging.alterations import ORIGINAL, PARAPHRASE, AlteredQuestion
from rl_qg.judging.redundancy import folds_of
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import loading
from rl_qg.scoring.kept_scores import kept_scores, texts_hash
from rl_qg.settings import ClassifierSettings, RobustnessSettings
from rl_qg.stats.correlation import auc_draws
from rl_qg.stats.intervals import Floats, PassageDraws

# Decomposable attention (DecAtt): a small classifier of two texts that aligns their words.
#
# Source: Parikh et al., "A Decomposable Attention Model for Natural Language Inference" (EMNLP 2016), section 3. Their
# word vectors are GloVe's, fixed; here they are learned with the rest, and there is no intra-sentence attention. As
# there, words that the training data do not have share 100 random vectors, by a hash.


WIDTH = 200  # of the three networks
EMBEDDING = 100
UNKNOWN = 100  # vectors of unknown words
FEWEST = 2  # times that a word is in the training texts
PADDING = 0
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class Vocabulary:
    """Numbers of words, lower case: 0 is padding, the next `UNKNOWN` are of words that the training texts lack."""

    def __init__(self, texts: Iterable[str]) -> None:
        counts = Counter(word for text in texts for word in _words(text))
        known = sorted(word for word, count in counts.items() if count >= FEWEST)
        self._number = {word: 1 + UNKNOWN + index for index, word in enumerate(known)}

    def __len__(self) -> int:
        return 1 + UNKNOWN + len(self._number)

    def numbers(self, texts: Sequence[str], longest: int) -> Tensor:
        """Words of each text, at most `longest`, padded: (texts, words)."""
        rows = [torch.tensor([self._of(word) for word in _words(text)[:longest]] or [1]) for text in texts]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)

    def _of(self, word: str) -> int:
        return self._number.get(word, 1 + zlib.crc32(word.encode()) % UNKNOWN)


def _words(text: str) -> list[str]:
    return _TOKEN.findall(text.casefold())


class DecomposableAttention(nn.Module):
    """Attend, compare, aggregate (equations 1 to 5 of the paper); two classes."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, EMBEDDING, padding_idx=PADDING)
        self.project = nn.Linear(EMBEDDING, WIDTH, bias=False)
        self.attend = _network(WIDTH)
        self.compare = _network(2 * WIDTH)
        self.aggregate = nn.Sequential(_network(2 * WIDTH), nn.Linear(WIDTH, 2))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Logits (pairs, 2) of numbers of words (pairs, words)."""
        a, b = self.project(self.embedding(first)), self.project(self.embedding(second))
        seen_a, seen_b = (first != PADDING)[:, :, None], (second != PADDING)[:, :, None]
        aligned = self.attend(a) @ self.attend(b).transpose(1, 2)  # e, equation 1
        beta = aligned.masked_fill(~seen_b.transpose(1, 2), -torch.inf).softmax(2) @ b
        alpha = aligned.masked_fill(~seen_a, -torch.inf).softmax(1).transpose(1, 2) @ a
        of_a = (self.compare(torch.cat([a, beta], 2)) * seen_a).sum(1)
        of_b = (self.compare(torch.cat([b, alpha], 2)) * seen_b).sum(1)
        logits: Tensor = self.aggregate(torch.cat([of_a, of_b], 1))
        return logits


def _network(width: int) -> nn.Sequential:
    layers = (nn.Dropout(0.2), nn.Linear(width, WIDTH), nn.ReLU(), nn.Dropout(0.2), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return nn.Sequential(*layers)


KEY = "robustness.supervised"
DECATT = "decatt"
NOT_BUILT = {"diin": "it reads GloVe's vectors and part-of-speech tags, which do not come with this package"}
WARM_UP = 0.1  # of the updates
LARGEST_GRADIENT = 1.0  # norm
Pair = tuple[str, str]  # the question, and what it is read with


class PairModel(Protocol):
    """What classifies pairs: a network, and what makes its inputs of texts."""

    network: nn.Module
    learning_rate: float

    def logits(self, pairs: Sequence[Pair]) -> Tensor:
        """(pairs, 2): of a wrong question, and of a paraphrase."""


@dataclass(frozen=True)
class TrainedInFolds:
    """The score of each question (logit of a paraphrase against a wrong question), and the area in each fold."""

    scores: Floats
    areas: list[float]
    signature: str


def classifier_labels(models: Sequence[str], folders: Mapping[str, str]) -> dict[str, str]:
    """The model of each classifier, or its folder where `folders` has one, by its label: the last part of its name."""
    labels: dict[str, str] = {}
    for model in models:
        label = Path(model.rpartition(":")[2]).name
        if why := NOT_BUILT.get(label.casefold()):
            raise InputError(f"{KEY}: {model} is not built ({why}); choose {DECATT}, or an encoder")
        if not label or label in labels:
            raise InputError(f"{KEY}={list(models)}: a name is empty or given twice; give each folder its own name")
        labels[label] = folders.get(model, model)
    return labels


def train_in_folds(
    label: str,
    model: str,
    questions: Sequence[AlteredQuestion],
    groups: Sequence[str],
    settings: RobustnessSettings,
    folder: Path,
    *,
    use_cpu: bool = False,
) -> TrainedInFolds:
    """Train a classifier for each fold on the questions of the other folds, and score those of the fold. Questions as
    they were are scored, not trained on. Scores are kept in `folder`, fold by fold.

    Args:
        label: names the file of scores.
        model: `decatt`, or an encoder.
        questions: what was made.
        groups: the passage of each question.
        settings: of the command.
        folder: of its output.
        use_cpu: also where there is a GPU.
    """
    options = settings.classifier
    fold = np.array(folds_of(groups, options.folds, settings.seed))
    good = np.array([question.kind == PARAPHRASE for question in questions])
    compared = np.array([question.kind != ORIGINAL for question in questions])
    _check_folds(fold, compared, good, options.folds)
    pairs = [_pair(question, options.reads) for question in questions]
    device = torch.device("cuda" if torch.cuda.is_available() and not use_cpu else "cpu")

    def scores_of_fold(number: int) -> list[float]:
        seed = settings.seed + number
        transformers.set_seed(seed)
        train = np.flatnonzero(compared & (fold != number))
        held_out = np.flatnonzero(fold == number)
        given = [pairs[index] for index in train]
        network = load_classifier(model, given, options, device)
        _train(network, given, good[train], options, seed, f"{label}, fold {number + 1}")
        scores = _predict(network, [pairs[index] for index in held_out], options.batch_size)
        if not np.isfinite(scores).all():
            raise InputError(
                f"{KEY}: {label}: training has diverged in fold {number + 1} (scores that are no numbers); lower "
                f"classifier.{'decatt_' if model == DECATT else ''}learning_rate={network.learning_rate:g}"
            )
        return scores

    signature = f"{label}|{'|'.join(f'{key}:{value}' for key, value in asdict(options).items())}|seed:{settings.seed}"
    weights = folder_hash(Path(model)) if Path(model).is_dir() else ""
    note = {
        "signature": signature,
        "model": model,
        "weights": weights,
        "texts": texts_hash([*pairs, good.tolist(), fold.tolist()]),
    }

    def batch(start: int, end: int) -> list[Any]:
        return [scores_of_fold(number) for number in range(start, end)]

    path = folder / "scores" / f"supervised-{label}.jsonl"
    by_fold = kept_scores(path, note, options.folds, batch, batch_size=1, unit="fold")
    scores = np.empty(len(questions))
    for number, values in enumerate(by_fold):
        scores[fold == number] = values
    areas = [
        _area(scores, good, groups, np.flatnonzero(compared & (fold == number))) for number in range(options.folds)
    ]
    return TrainedInFolds(scores, areas, signature)


def _check_folds(fold: NDArray[np.intp], compared: NDArray[np.bool_], good: NDArray[np.bool_], folds: int) -> None:
    for number in range(folds):
        if len(np.unique(good[compared & (fold == number)])) < 2:
            raise InputError(
                f"classifier.folds={folds}: fold {number + 1} of passages has no paraphrase, or no wrong question; "
                "give fewer folds, or more questions"
            )


def _area(scores: Floats, good: NDArray[np.bool_], groups: Sequence[str], rows: NDArray[np.intp]) -> float:
    draws = PassageDraws([groups[int(row)] for row in rows], resamples=1, seed=0)
    return float(auc_draws(scores[rows], good[rows], draws, np.arange(len(rows)))[0])


def _pair(question: AlteredQuestion, reads: str) -> Pair:
    context, references = str(question.row.context), question.row.references or ("",)
    return question.row.question, {"context": context, "reference": references[0]}.get(
        reads, f"{references[0]}\n{context}"
    )


def _train(
    model: PairModel, pairs: Sequence[Pair], good: np.ndarray, options: ClassifierSettings, seed: int, title: str
) -> None:
    """Cross-entropy by AdamW; the learning rate rises over the first tenth of the updates and falls to zero."""
    updates = options.epochs * -(-len(pairs) // options.batch_size)
    optimizer = torch.optim.AdamW(model.network.parameters(), lr=model.learning_rate, weight_decay=0.01)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, int(WARM_UP * updates), updates)
    chance, order = random.Random(seed), list(range(len(pairs)))
    device = next(model.network.parameters()).device
    model.network.train()
    with ProgressBar(total=updates, desc=title, unit="update", leave=False) as bar:
        for _ in range(options.epochs):
            chance.shuffle(order)
            for start in range(0, len(order), options.batch_size):
                rows = order[start : start + options.batch_size]
                labels = torch.as_tensor(good[rows].astype(np.int64), device=device)
                loss = nn.functional.cross_entropy(model.logits([pairs[row] for row in rows]), labels)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.network.parameters(), LARGEST_GRADIENT)
                optimizer.step()
                schedule.step()
                bar.update()


@torch.inference_mode()
def _predict(model: PairModel, pairs: Sequence[Pair], batch_size: int) -> list[float]:
    model.network.eval()
    scores: list[float] = []
    for start in range(0, len(pairs), batch_size):
        logits = model.logits(pairs[start : start + batch_size]).float()
        scores += (logits[:, 1] - logits[:, 0]).tolist()
    return scores


def load_classifier(model: str, pairs: Sequence[Pair], options: ClassifierSettings, device: torch.device) -> PairModel:
    """A new classifier; `pairs` are what it will be trained on, from which `decatt` takes its words."""
    kind: Callable[..., PairModel] = _WordAligner if model == DECATT else _Encoder
    return kind(model, pairs, options, device)


class _WordAligner:
    def __init__(self, _: str, pairs: Sequence[Pair], options: ClassifierSettings, device: torch.device) -> None:
        self._vocabulary = Vocabulary(text for pair in pairs for text in pair)
        self._longest, self._device = options.max_length, device
        self.network: nn.Module = DecomposableAttention(len(self._vocabulary)).to(device)
        self.learning_rate = options.decatt_learning_rate

    def logits(self, pairs: Sequence[Pair]) -> Tensor:
        texts = zip(*pairs, strict=True)
        logits: Tensor = self.network(
            *(self._vocabulary.numbers(part, self._longest).to(self._device) for part in texts)
        )
        return logits


class _Encoder:
    def __init__(self, path: str, _: Sequence[Pair], options: ClassifierSettings, device: torch.device) -> None:
        with loading(path, KEY, "encoder") as name:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            network: Any = AutoModelForSequenceClassification.from_pretrained(
                name, num_labels=2, dtype=torch.float32, trust_remote_code=False
            )
        self.network: nn.Module = network.to(device)
        positions = getattr(network.config, "max_position_embeddings", None) or options.max_length
        self._longest = min(options.max_length, positions, self._tokenizer.model_max_length)
        self._device = device
        self.learning_rate = options.learning_rate

    def logits(self, pairs: Sequence[Pair]) -> Tensor:
        questions, others = (list(part) for part in zip(*pairs, strict=True))
        given = self._tokenizer(
            questions, others, padding=True, truncation=True, max_length=self._longest, return_tensors="pt"
        ).to(self._device)
        logits: Tensor = self.network(**given).logits
        return logits
