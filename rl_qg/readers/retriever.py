"""Retrievers taught by generated questions, and judged on human ones.

A bi-encoder turns questions and passages into vectors (`rewards.embedding.token_embeddings.SentenceEncoder`); its
cosine orders the passages. It learns as Karpukhin et al., "Dense passage retrieval for open-domain question answering"
(EMNLP 2020), taught theirs: the own passage against those of the other questions of a batch, and one that BM25 finds
for the question. That generated questions can teach it: Wang et al., "GPL" (NAACL 2022), and doc2query before.
"""

import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoModel

from rewards.embedding.token_embeddings import SentenceEncoder
from rewards.errors import library
from rewards.frozen import FrozenModel
from rewards.pretrained import check_weights
from rewards.retrievability import Search, bm25, ranks_of
from rl_qg.data.examples import QAExample
from rl_qg.data.question_tables import QuestionTable
from rl_qg.data.splits import Splits, leakage
from rl_qg.readers.encoders import FLOAT32, load_tokenizer, padded
from rl_qg.readers.fine_tuning import FineTuning
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import write_json
from rl_qg.runtime.processes import load_unsharded, loading
from rl_qg.runtime.trainer_base import Resumable
from rl_qg.settings import RetrieveSettings
from rl_qg.stats.intervals import SHARE, Floats, PassageDraws, mean_interval, paired_interval
from rl_qg.text.words import normalised_words

METRICS, RANKS = "retrieval.json", "ranks.json"
KEY = "retrieve.model.path"
TEMPERATURE = 0.05  # cosines are divided by it, as in sentence-transformers (scale 20)
MINED_FROM = 50  # the best passages by BM25, one of which is a question's negative, as in GPL
RESAMPLES = 1000
log = logging.getLogger(__name__)


def read_questions(settings: RetrieveSettings) -> Splits:
    """The questions that teach and those that judge; `InputError` with counts where they share any, or passages."""
    library("bm25s", "rl-qg retrieve", "'rl-qg[retrieval]'")  # before anything is trained
    teaching, judging = _read("questions", settings.questions), _read("data", settings.data)
    found = leakage(teaching, judging)
    asked = {tuple(normalised_words(example.question)) for example in teaching}
    same = sum(tuple(normalised_words(example.question)) in asked for example in judging)
    if found.shared:
        raise InputError(
            f"retrieve.data: {found.shared:,} of its {found.validation_passages:,} passages are also in "
            "retrieve.questions, so that scores would not say how it does on others; leave them out of one"
        )
    if same:
        log.warning("retrieve.data: %d of %d questions are also asked in retrieve.questions", same, len(judging))
    check = {"train_passages": found.train_passages, "validation_passages": found.validation_passages}
    hashes = {**QuestionTable(settings.questions).hashes(), **QuestionTable(settings.data).hashes()}
    return Splits(
        gold=teaching, unlabelled=[], validation=judging, leakage={**check, "shared_questions": same}, hashes=hashes
    )


def _read(key: str, source: str) -> list[QAExample]:
    if not source:
        raise InputError(f"retrieve.{key} has no value; name a file, such as {key}=questions.jsonl")
    table = QuestionTable(source)
    texts, impossible = [], 0
    for row in table:
        question, context = table.value(row, "question"), table.value(row, "context")
        impossible += row.says_impossible
        if row.says_impossible:
            continue
        if question is None or context is None:
            raise InputError(f"{row.where}: needs a question and a context; the row has {', '.join(row.fields)}")
        texts.append((question, context))
    examples = [
        QAExample(str(at), "", context, question, ())
        for at, (question, context) in enumerate(texts)
        if question.strip() and context.strip()
    ]
    if impossible:
        log.warning("retrieve.%s: %d questions that their passage does not answer; left out", key, impossible)
    if len({example.context for example in examples}) < 2:
        raise InputError(f"retrieve.{key}={source}: questions about two passages at least are needed")
    if blank := len(texts) - len(examples):
        log.warning("retrieve.%s: %d of %d rows have no question or no passage; left out", key, blank, len(texts))
    return examples


def train_retriever(
    questions: Sequence[QAExample], judged: Sequence[QAExample], tuning: FineTuning
) -> Mapping[str, Any]:
    """Teach an encoder, and return what `retrieval.json` holds: nDCG@10, MRR@10 and recall@100 of it, of the encoder
    as it was and of BM25 on the `judged` questions, among the passages of both, with intervals over passages; and the
    differences. `ranks.json` has the rank of each question's passage. Training continues from the last checkpoint.
    """
    settings = tuning.settings
    accepted: dict[str, Any] = {"kind": "retriever", "models": MODEL_FOR_MASKED_LM_MAPPING}
    tokenizer = load_tokenizer(settings.model.path, KEY, settings.max_length, **accepted)
    load_unsharded()

    def make_trainer() -> Resumable:
        transformers.set_seed(tuning.seed)
        with loading(settings.model.path, KEY, "retriever") as name:
            model = AutoModel.from_pretrained(name, trust_remote_code=False, **FLOAT32)
            check_weights(model, tokenizer)
        items = _items(questions, tokenizer, settings, tuning.seed)
        return RetrieverTrainer(
            model=model,
            args=tuning.arguments(),
            data_collator=partial(_batch, pad_id=tokenizer.pad_token_id),
            train_dataset=items,
            processing_class=tokenizer,
        )

    def evaluate(trainer: Resumable) -> dict[str, Any]:
        device = trainer.args.device
        passages = list(dict.fromkeys(example.context for example in (*judged, *questions)))
        searches = {
            "taught": _search(tuning.output_dir, passages, settings, device),
            "untaught": _search(settings.model.path, passages, settings, device),
            "bm25": bm25(passages),
        }
        place = {passage: at for at, passage in enumerate(passages)}
        asked, own = [example.question for example in judged], [place[example.context] for example in judged]
        ranks = {name: ranks_of(search, asked, own) for name, search in searches.items()}
        write_json(tuning.output_dir / RANKS, ranks)
        counts = {"passages": len(passages), "taught with": len(questions), "updates": trainer.state.global_step}
        return {**counts, **judge(ranks, [example.context for example in judged]), "model": settings.model.path}

    return tuning.result(METRICS, "retriever", make_trainer, evaluate)


def measures(ranks: Sequence[int]) -> dict[str, Floats]:
    """nDCG@10, MRR@10 and recall@100 of each question (questions,), which has one right passage at a rank from 1."""
    rank = np.asarray(ranks, dtype=np.float64)
    return {
        "ndcg@10": np.where(rank <= 10, 1 / np.log2(1 + rank), 0.0),
        "mrr@10": np.where(rank <= 10, 1 / rank, 0.0),
        "recall@100": np.where(rank <= 100, 1.0, 0.0),
    }


def judge(ranks: Mapping[str, Sequence[int]], passages: Sequence[str]) -> dict[str, Any]:
    """The measures of each system in [0, 1] with 95 % bootstrap intervals over the passages of the questions, and the
    differences of the taught encoder from the others.
    """
    draws = PassageDraws(passages, resamples=RESAMPLES)
    values = {name: measures(of_system) for name, of_system in ranks.items()}
    systems = {
        name: {key: asdict(mean_interval(column, draws, bounds=SHARE)) for key, column in of_system.items()}
        for name, of_system in values.items()
    }
    differences = {
        name: {
            key: asdict(paired_interval(column, values[name][key], draws, bounds=SHARE))
            for key, column in values["taught"].items()
        }
        for name in values
        if name != "taught"
    }
    return {"questions": len(passages), "systems": systems, "taught minus": differences}


def _search(path: str | Path, passages: Sequence[str], settings: RetrieveSettings, device: torch.device) -> Search:
    encoder = FrozenModel(path, "encoder", device=device, dtype="float32")
    encoder.max_tokens = min(encoder.max_tokens, settings.max_length)
    return SentenceEncoder(encoder, batch_size=settings.batch_size, name="retrieve").search(passages)


def _items(
    examples: Sequence[QAExample], tokenizer: Any, settings: RetrieveSettings, seed: int
) -> list[dict[str, Any]]:
    """Token ids of each question, its passage and its negative, and the numbers of both passages."""
    passages = list(dict.fromkeys(example.context for example in examples))
    place = {passage: at for at, passage in enumerate(passages)}
    questions = [example.question for example in examples]
    own = [place[example.context] for example in examples]

    def ids(texts: Sequence[str]) -> list[list[int]]:
        return tokenizer([*texts], truncation=True, max_length=settings.max_length)["input_ids"]

    rows: list[list[int]] = [[at] for at in own]
    if settings.mined:
        search, rng = bm25(passages), random.Random(seed)
        for start in range(0, len(questions), 256):
            scores = search(questions[start : start + 256])
            for row, order in zip(rows[start : start + 256], np.argsort(-scores, axis=1, kind="stable"), strict=True):
                row.append(rng.choice([int(at) for at in order[: MINED_FROM + 1] if at != row[0]]))
    tokens = ids(passages)
    return [
        {"input_ids": question, "passages": [tokens[at] for at in row], "numbers": row}
        for question, row in zip(ids(questions), rows, strict=True)
    ]


def _batch(items: Sequence[Mapping[str, Any]], pad_id: int) -> dict[str, Any]:
    """The questions of a batch, and its passages, the own ones first, then the negatives: ids, masks and numbers."""
    columns = [(item, at) for at in range(len(items[0]["numbers"])) for item in items]
    return {
        "questions": padded(items, {"input_ids": pad_id}),
        "passages": padded([{"input_ids": item["passages"][at]} for item, at in columns], {"input_ids": pad_id}),
        "numbers": torch.tensor([item["numbers"][at] for item, at in columns]),
    }


class RetrieverTrainer(Resumable):
    """Cross-entropy of each question's own passage among all of its batch, by their cosines over `TEMPERATURE`."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        questions, passages = (_vectors(model, inputs[name]) for name in ("questions", "passages"))
        scores = questions @ passages.T / TEMPERATURE
        numbers, places = inputs["numbers"], torch.arange(len(scores), device=scores.device)
        again = numbers[None] == numbers[: len(scores), None]  # the own passage, once more as that of another question
        again[places, places] = False
        loss = cross_entropy(scores.masked_fill(again, -math.inf), places)
        return (loss, scores) if return_outputs else loss

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # which the library would estimate from a single text


def _vectors(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Means of the last states, of length 1: [texts, width]."""
    states, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
    return normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
