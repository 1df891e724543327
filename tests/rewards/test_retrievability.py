"""Retrievability: BM25 by its formula, ranks by sorting, and collections of each form."""

import gzip
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from pandas import DataFrame, Series

from rewards import MetricInputError, Retrievability, Weighted
from rewards.embedding.token_embeddings import SentenceEncoder
from rewards.frozen import FrozenModel
from rewards.retrievability import bm25, passages_of, ranks_of
from rewards.words import words

PASSAGES = [
    "Ida Koll built the first mill on the river Esk in 1204.",
    "The river Esk flows through Arlen, a town with a mill and a mill pond.",
    "Duran Duran sang in the town of Arlen.",
    "東京は日本の首都です。",
]


def by_formula(question: str, k1: float = 1.5, b: float = 0.75) -> list[float]:
    """Robertson's formula with Lucene's idf, a word of the question after the other."""
    texts = [words(text) for text in PASSAGES]
    mean = sum(map(len, texts)) / len(texts)
    scores = [0.0] * len(texts)
    for word in words(question):
        holding = sum(word in text for text in texts)
        idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        for at, text in enumerate(texts):
            count = text.count(word)
            scores[at] += idf * count / (count + k1 * (1 - b + b * len(text) / mean))
    return scores


@pytest.mark.parametrize("question", ["Who built the first mill?", "Which town has a mill, a mill?", "日本の首都は？"])
def test_bm25_is_the_formula(question: str) -> None:
    assert bm25(PASSAGES)([question])[0].tolist() == pytest.approx(by_formula(question), abs=1e-5)


def test_ranks_are_those_of_sorting_and_ties_are_lost() -> None:
    rng = random.Random(1)
    scores = [[float(rng.randrange(6)) for _ in range(9)] for _ in range(40)]
    own = [rng.randrange(9) for _ in scores]
    expected = []
    for row, place in zip(scores, own, strict=True):
        order = sorted(range(9), key=lambda at, row=row, place=place: (-row[at], at == place))
        expected.append(order.index(place) + 1)

    def search(texts: list[str]) -> object:
        return np.array([scores[int(text)] for text in texts], np.float32)

    assert ranks_of(search, [str(at) for at in range(40)], own, at_once=7) == expected  # type: ignore[arg-type]


def test_a_question_that_stands_alone_is_found_first() -> None:
    questions = ["Who built the first mill on the Esk?", "What does it say about that?", "?"]
    result = Retrievability(PASSAGES).score(questions, [PASSAGES[0]] * 3)
    assert result.scores[0] == 1.0
    assert result.parts["rank"][1:] == [4.0, 4.0]  # nothing shared: last, not first
    assert result.scores == result.parts["reciprocal_rank"] == [1 / rank for rank in result.parts["rank"]]


@pytest.mark.parametrize("name", ["p.jsonl", "p.json", "p.jsonl.gz", "p.json.gz"])
def test_collections(tmp_path: Path, name: str) -> None:
    lines = "\n".join(json.dumps({"question": "Who?", "context": text}) for text in [*PASSAGES, PASSAGES[0] + " \n"])
    squad = {"data": [{"title": "a", "paragraphs": [{"context": text, "qas": []}]} for text in PASSAGES]}
    text = lines if ".jsonl" in name else json.dumps(squad)
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    assert passages_of(path)[:4] == PASSAGES
    assert Retrievability(path).signature == Retrievability(PASSAGES).signature  # equal passages count once


def test_an_encoder_gives_the_mean_of_its_states(folders: dict[str, str]) -> None:
    encoder = FrozenModel(folders["bert"], "encoder", device="cpu", dtype="float32")
    vectors = SentenceEncoder(encoder, batch_size=2, name="x").vectors(["Which river?", "a a a a a a", "b"])
    marks = encoder.tokenizer
    for vector, text in zip(vectors, ["Which river?", "a a a a a a", "b"], strict=True):
        ids = [marks.cls_token_id, *marks(text, add_special_tokens=False)["input_ids"], marks.sep_token_id]
        with torch.inference_mode():
            mean = encoder.model(torch.tensor([ids])).last_hidden_state[0].mean(0)
        assert torch.allclose(vector, mean / mean.norm(), atol=1e-5)


def test_an_encoder_finds_a_passage_by_its_own_words(folders: dict[str, str]) -> None:
    metric = Retrievability(PASSAGES[:3], engine=folders["bert"], device="cpu")
    assert metric.score(PASSAGES[:3], PASSAGES[:3]).scores == [1.0] * 3
    assert f"engine:{metric.encoder.identity}" in metric.signature


def test_a_question_without_a_similarity_has_the_last_rank() -> None:
    scores = np.array([[np.nan, np.nan, np.nan], [1, 2, 3]], np.float32)
    assert ranks_of(lambda questions: scores, ["a", "b"], [0, 1]) == [3, 2]


def test_bad_collections(tmp_path: Path) -> None:
    def refuses(message: str, passages: object) -> None:
        with pytest.raises(MetricInputError, match=message):
            Retrievability(passages).score(["Who?"], ["Elsewhere."])  # type: ignore[arg-type]

    (tmp_path / "bad.jsonl").write_text('{"context": "a"}\n{"text": "b"}\n')
    (tmp_path / "bad.json").write_text("[1]")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"context": "a"}')[:10] + b"\xff" * 30)
    refuses("passages has no value", None)
    refuses("passages has no value", "")
    refuses(r"passages\[1\] is NoneType, not text: None", ["one", None])
    refuses("passages is a DataFrame of 2 dimensions; give a list, or one column", DataFrame({"a": ["x"], "b": ["y"]}))
    refuses(r"cut\.jsonl\.gz' cannot be read", tmp_path / "cut.jsonl.gz")
    refuses("among which nothing is found", ["one", " one "])
    refuses(r"cannot be read", tmp_path / "none.jsonl")
    refuses(r"bad\.jsonl', line 2: no context", tmp_path / "bad.jsonl")
    refuses(r"bad\.json': no context", tmp_path / "bad.json")
    refuses(r"contexts\[0\] is none of the 4 passages: 'Elsewhere\.'", PASSAGES)


def test_collections_as_tables_and_other_programs_hold_them(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"context": text}) for text in PASSAGES)
    (tmp_path / "marked.jsonl").write_text(f"\ufeff{lines}", encoding="utf-8")  # by a byte order mark
    for passages in (np.array(PASSAGES), Series(PASSAGES, index=[3, 1, 0, 2]), tmp_path / "marked.jsonl"):
        metric = Retrievability(passages)  # type: ignore[arg-type]
        assert metric.signature == Retrievability(PASSAGES).signature


def test_cut_texts_are_counted_in_sums_too(folders: dict[str, str]) -> None:
    long = [f"{word} " * 700 for word in ("river", "town")]
    metric = Retrievability(long, engine=folders["bert"], device="cpu")
    metric.score(["Which river?"], [long[0]])
    assert metric.truncated == 2
    assert Weighted({"found": metric}).truncated == 2
