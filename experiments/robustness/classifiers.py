r"""The supervised rows of QRelScore's Table 4: classifiers that learn to tell paraphrases from wrong questions.

    PYTHONPATH=. rl-qg robustness input=dev.json output=DIR \
        'supervised=[{_target_: experiments.robustness.classifiers.DecAtt, reads: reference, epochs: 10}]'

A question with its passage (or its reference) is classified as a paraphrase or as made wrong, by a classifier that was
trained on other passages. The paper does not say what the pairs are made of, nor the training options: both are
options here. DIIN is not built: it reads GloVe's vectors and part-of-speech tags.
"""

import random
import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rewards.signature import folder_hash
from rl_qg.judging.alterations import ORIGINAL, PARAPHRASE, AlteredQuestion
from rl_qg.judging.redundancy import folds_of
from rl_qg.judging.robustness import TrainedInFolds
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import loading
from rl_qg.scoring.kept_scores import kept_scores, texts_hash
from rl_qg.stats.correlation import auc_draws
from rl_qg.stats.intervals import PassageDraws

KEY = "robustness.supervised"
WARM_UP = 0.1  # of the updates
LARGEST_GRADIENT = 1.0  # norm
READS = ("context", "reference", "both")
Pair = tuple[str, str]  # the question, and what it is read with


class Classifier(ABC):
    """A network with two classes, wrong question and paraphrase, trained anew for each fold of passages.

    Args:
        model: the encoder: folder, Hub name or miniature; "" for a classifier that starts from nothing.
        reads: what the question is paired with: ``"context"``, ``"reference"`` (the human question) or ``"both"``.
        folds: of passages; each is scored by a classifier trained on the others.
        epochs: passes over the training folds.
        learning_rate: with linear decay after a warm-up of a tenth.
        batch_size: pairs.
        max_length: words or tokens of question and passage; the passage is cut.
    """

    network: nn.Module

    def __init__(
        self,
        model: str = "",
        reads: str = "context",
        folds: int = 5,
        epochs: int = 3,
        learning_rate: float = 2e-5,
        batch_size: int = 32,
        max_length: int = 256,
    ) -> None:
        if reads not in READS or folds < 2 or min(epochs, learning_rate, batch_size, max_length) <= 0:
            raise InputError(f"{KEY}: reads is one of {', '.join(READS)}, folds at least 2, and no number is below 0")
        self.model, self.reads, self.folds, self.epochs = model, reads, folds, epochs
        self.learning_rate, self.batch_size, self.max_length = learning_rate, batch_size, max_length
        self.options = {key: value for key, value in vars(self).items() if key != "model"}

    @property
    def reads_references(self) -> bool:
        return self.reads != "context"

    @abstractmethod
    def load(self, pairs: Sequence[Pair], device: torch.device) -> None:
        """Make `network` anew; `pairs` are what it will be trained on."""

    @abstractmethod
    def logits(self, pairs: Sequence[Pair]) -> Tensor:
        """(pairs, 2): of a wrong question, and of a paraphrase."""

    def train_in_folds(
        self,
        label: str,
        questions: Sequence[AlteredQuestion],
        groups: Sequence[str],
        folder: Path,
        *,
        seed: int,
        use_cpu: bool = False,
    ) -> TrainedInFolds:
        """Train for each fold on the questions of the other folds, and score those of the fold. Questions as they were
        are scored, not trained on. Scores are kept in `folder`, fold by fold; `groups` are passages.
        """
        fold = np.array(folds_of(groups, self.folds, seed))
        good = np.array([question.kind == PARAPHRASE for question in questions])
        compared = np.array([question.kind != ORIGINAL for question in questions])
        for number in range(self.folds):
            if len(np.unique(good[compared & (fold == number)])) < 2:
                raise InputError(
                    f"{KEY}: {label}: folds={self.folds}: fold {number + 1} of passages has no paraphrase, or no "
                    "wrong question; give fewer folds, or more questions"
                )
        pairs = [self._pair(question) for question in questions]
        device = torch.device("cuda" if torch.cuda.is_available() and not use_cpu else "cpu")

        def scores_of_fold(number: int, _: int) -> list[list[float]]:
            transformers.set_seed(seed + number)
            train = np.flatnonzero(compared & (fold != number))
            given = [pairs[index] for index in train]
            self.load(given, device)
            self._train(given, good[train], seed + number, f"{label}, fold {number + 1}")
            scores = self._predict([pairs[index] for index in np.flatnonzero(fold == number)])
            if not np.isfinite(scores).all():
                raise InputError(
                    f"{KEY}: {label}: training has diverged in fold {number + 1} (scores that are no numbers); lower "
                    f"learning_rate={self.learning_rate:g}"
                )
            return [scores]

        signature = "|".join([label, *(f"{key}:{value}" for key, value in self.options.items()), f"seed:{seed}"])
        weights = folder_hash(Path(self.model)) if self.model and Path(self.model).is_dir() else ""
        note = {"signature": signature, "model": f"{type(self).__name__} {self.model}", "weights": weights}
        note["texts"] = texts_hash([*pairs, good.tolist(), fold.tolist()])
        path = folder / "scores" / f"supervised-{label}.jsonl"
        by_fold = kept_scores(path, note, self.folds, scores_of_fold, batch_size=1, unit="fold")
        scores, areas = np.empty(len(questions)), []
        for number, values in enumerate(by_fold):
            scores[fold == number] = values
            rows = np.flatnonzero(compared & (fold == number))
            draws = PassageDraws([groups[int(row)] for row in rows], resamples=1, seed=0)
            areas.append(float(auc_draws(scores[rows], good[rows], draws, np.arange(len(rows)))[0]))
        return TrainedInFolds(scores, areas, signature)

    def _pair(self, question: AlteredQuestion) -> Pair:
        context, references = str(question.row.context), question.row.references or ("",)
        texts = {"context": context, "reference": references[0], "both": f"{references[0]}\n{context}"}
        return question.row.question, texts[self.reads]

    def _train(self, pairs: Sequence[Pair], good: np.ndarray, seed: int, title: str) -> None:
        """Cross-entropy by AdamW; the learning rate rises over the first tenth of the updates and falls to zero."""
        updates = self.epochs * -(-len(pairs) // self.batch_size)
        optimizer = torch.optim.AdamW(self.network.parameters(), lr=self.learning_rate, weight_decay=0.01)
        schedule = transformers.get_linear_schedule_with_warmup(optimizer, int(WARM_UP * updates), updates)
        chance, order = random.Random(seed), list(range(len(pairs)))
        device = next(self.network.parameters()).device
        self.network.train()
        with ProgressBar(total=updates, desc=title, unit="update", leave=False) as bar:
            for _ in range(self.epochs):
                chance.shuffle(order)
                for start in range(0, len(order), self.batch_size):
                    rows = order[start : start + self.batch_size]
                    labels = torch.as_tensor(good[rows].astype(np.int64), device=device)
                    loss = nn.functional.cross_entropy(self.logits([pairs[row] for row in rows]), labels)
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
                    optimizer.step()
                    schedule.step()
                    bar.update()

    @torch.inference_mode()
    def _predict(self, pairs: Sequence[Pair]) -> list[float]:
        self.network.eval()
        scores: list[float] = []
        for start in range(0, len(pairs), self.batch_size):
            logits = self.logits(pairs[start : start + self.batch_size]).float()
            scores += (logits[:, 1] - logits[:, 0]).tolist()
        return scores


class Encoder(Classifier):
    """An encoder fine-tuned as BERT was; `model` names it."""

    def __init__(self, model: str = "bert-base-uncased", **options: Any) -> None:
        super().__init__(model, **options)

    def load(self, pairs: Sequence[Pair], device: torch.device) -> None:
        with loading(self.model, KEY, "encoder") as name:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            network: Any = AutoModelForSequenceClassification.from_pretrained(
                name, num_labels=2, dtype=torch.float32, trust_remote_code=False
            )
        self.network, self._device = network.to(device), device
        positions = getattr(network.config, "max_position_embeddings", None) or self.max_length
        self._longest = min(self.max_length, positions, self._tokenizer.model_max_length)

    def logits(self, pairs: Sequence[Pair]) -> Tensor:
        questions, others = (list(part) for part in zip(*pairs, strict=True))
        given = self._tokenizer(
            questions, others, padding=True, truncation=True, max_length=self._longest, return_tensors="pt"
        ).to(self._device)
        logits: Tensor = self.network(**given).logits
        return logits


class DecAtt(Classifier):
    """Decomposable attention: aligns the words of two texts (`DecomposableAttention`)."""

    def __init__(self, *, learning_rate: float = 1e-3, **options: Any) -> None:
        super().__init__("", learning_rate=learning_rate, **options)

    def load(self, pairs: Sequence[Pair], device: torch.device) -> None:
        self._vocabulary = Vocabulary(text for pair in pairs for text in pair)
        self.network, self._device = DecomposableAttention(len(self._vocabulary)).to(device), device

    def logits(self, pairs: Sequence[Pair]) -> Tensor:
        texts = zip(*pairs, strict=True)
        numbers = (self._vocabulary.numbers(part, self.max_length).to(self._device) for part in texts)
        logits: Tensor = self.network(*numbers)
        return logits


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
    """Attend, compare, aggregate; two classes.

    Source: Parikh et al., "A Decomposable Attention Model for Natural Language Inference" (EMNLP 2016), section 3,
    equations 1 to 5. Their word vectors are GloVe's, fixed; here they are learned with the rest, and there is no
    intra-sentence attention. As there, words that the training data do not have share 100 random vectors, by a hash.
    """

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
