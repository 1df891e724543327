"""Trimmed models: the same logits for kept pieces, and the same pieces for the texts of the corpus."""

import json
import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GPT2LMHeadModel,
    MBart50Tokenizer,
    MBartForConditionalGeneration,
    MBartTokenizer,
    MT5ForConditionalGeneration,
    T5Tokenizer,
)

from rl_qg.generation.loading import load_generator
from rl_qg.generation.prompts import HIGHLIGHT, Prompt, add_highlight
from rl_qg.generation.trim import kept_ids, report_line, trim, trim_model, trimmed_tokenizer
from rl_qg.runtime.errors import InputError
from rl_qg.settings import TrimSettings
from tests.tiny_models import byte_tokenizer, save, tiny, tiny_bart, tiny_pair, word_tokenizer

LETTERS = "abcdefgh"
WORDS = [
    "".join(random.Random(seed).choices(LETTERS, weights=range(1, 9), k=2 + seed % 6)) for seed in range(120)
]  # fmt: skip
TEXT = [" ".join(random.Random(seed).choices(WORDS, k=30)) for seed in range(80)]
CORPUS = [" ".join(WORDS[:9]), " ".join(WORDS[4:14])]
BYTE_ROLES = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def unigram() -> list[tuple[str, float]]:
    """Pieces with scores, learned from the text."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"][1:]]


PIECES = unigram()


def tokenizer_of(kind: str) -> Any:
    match kind:
        case "t5" | "mt5":
            special = [(token, 0.0) for token in ("<pad>", "</s>", "<unk>")]
            return T5Tokenizer(vocab=[*special, *PIECES, *((f"<extra_id_{k}>", 0.0) for k in range(99, -1, -1))])
        case "mbart":
            return MBartTokenizer(vocab=[*((token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")), *PIECES])
        case "mbart50":
            return MBart50Tokenizer(vocab=[*((token, 0.0) for token in ("<unk>", "<s>", "</s>")), *PIECES])
    return byte_tokenizer(TEXT, BYTE_ROLES, size=450)


def model_of(kind: str, size: int) -> Any:
    special: dict[str, Any] = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    match kind:
        case "t5" | "mt5":  # rows beyond the tokenizer, as in the published models; mT5 has logits of its own
            tied = {"tie_word_embeddings": kind == "t5"}
            start = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
            return tiny(MT5ForConditionalGeneration, size + 28, spread=1.0, **start, **tied)
        case "mbart" | "mbart50":
            model = tiny(MBartForConditionalGeneration, size, forced_eos_token_id=None, **special)
            model.generation_config.forced_bos_token_id = size - 2
            return model
        case "gpt2":
            return tiny(GPT2LMHeadModel, size, bos_token_id=0, eos_token_id=2, pad_token_id=1)
    return tiny_bart(size, **special)


def written(folder: Path, kind: str) -> str:
    tokenizer = tokenizer_of(kind)
    model = model_of(kind, len(tokenizer))
    if hasattr(model, "final_logits_bias"):  # zeros in new models
        model.final_logits_bias = torch.randn(
            model.final_logits_bias.shape, generator=torch.Generator().manual_seed(1)
        )
    return save(folder, tokenizer, model)


def logits_of(model: Any, ids: list[int]) -> torch.Tensor:
    inputs = {"input_ids": torch.tensor([ids])}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([ids[::-1]])
    with torch.no_grad():
        return model.eval()(**inputs).logits[0]


@pytest.mark.parametrize("kind", ["t5", "mt5", "mbart", "mbart50", "bart", "gpt2"])
def test_logits_of_kept_pieces_and_pieces_of_the_corpus_stay(tmp_path: Path, kind: str) -> None:
    start = written(tmp_path / "start", kind)
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS))
    note = trim(start, tmp_path / "small", TrimSettings(corpus=str(tmp_path / "corpus.txt")))
    old, old_tokenizer = load_generator(start)
    add_highlight(old_tokenizer, old)  # as the trimmed one has
    new, small = load_generator(str(tmp_path / "small"))
    assert note["texts_with_other_pieces"] == 0
    assert note["after"]["vocabulary"] == len(small) == len(new.get_input_embeddings().weight)
    assert len(small) < 0.9 * len(old_tokenizer)
    assert note["before"]["parameters"] > note["after"]["parameters"] == sum(p.numel() for p in new.parameters())
    assert set(old_tokenizer.all_special_tokens) <= small.get_vocab().keys() and HIGHLIGHT in small.get_vocab()
    ids_of = [old_tokenizer.convert_tokens_to_ids(piece) for piece in small.convert_ids_to_tokens(range(len(small)))]
    for text in [*CORPUS, f"{HIGHLIGHT} {WORDS[3]} {HIGHLIGHT}"]:
        ids = small(text)["input_ids"]
        assert [ids_of[number] for number in ids] == old_tokenizer(text)["input_ids"]
        assert small.decode(ids) == old_tokenizer.decode(old_tokenizer(text)["input_ids"])
        expected = logits_of(old, old_tokenizer(text)["input_ids"])[:, ids_of]
        torch.testing.assert_close(logits_of(new, ids), expected, atol=1e-5, rtol=1e-5)
    for config in (new.config, new.generation_config):
        earlier = old.config if config is new.config else old.generation_config
        for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id"):
            value, before = getattr(config, name, None), getattr(earlier, name, None)
            assert (value is None and before is None) or ids_of[value] == before, name  # type: ignore[index]
    other = " ".join(WORDS[40:60])  # words that the corpus does not have, of its letters
    assert small.unk_token_id is None or small.unk_token_id not in small(other)["input_ids"]
    assert small.decode(small(other)["input_ids"], skip_special_tokens=True).strip() == other


def test_a_trimmed_model_is_a_model_folder_like_any_other(tmp_path: Path) -> None:
    start = written(tmp_path / "start", "mbart50")
    Prompt(max_source_length=60, language="de", input="sentence_answer").save(tmp_path / "start")
    row = {
        "id": "q",
        "context": ". ".join(CORPUS),
        "question": f"{WORDS[0]}?",
        "answers": {"text": [WORDS[1]], "answer_start": [CORPUS[0].index(WORDS[1])]},
    }
    (tmp_path / "data.jsonl").write_text(json.dumps(row))
    note = trim(start, tmp_path / "small", TrimSettings(corpus=[str(tmp_path / "data.jsonl")]))
    assert note["texts_with_other_pieces"] == 0 and note["texts"] == 3 + 1 + 1 + 4  # one row: four inputs
    assert json.loads((tmp_path / "small/prompt.json").read_text())["language"] == "de"
    new = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "small")
    small = AutoTokenizer.from_pretrained(tmp_path / "small")
    assert type(small).__name__ == "MBart50Tokenizer" and small.src_lang == "en_XX"
    assert small(text_target=WORDS[0])["input_ids"][0] == small.convert_tokens_to_ids("en_XX")
    assert len(new.generate(**small(CORPUS[0], return_tensors="pt"), max_new_tokens=3)[0]) > 1
    assert "pieces ->" in report_line(note)
    again = trim(start, tmp_path / "small", TrimSettings(corpus=str(tmp_path / "data.jsonl")))  # over its own folder
    assert again["after"] == note["after"]


@cache
def parsed(kind: str) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(tokenizer_of(kind).backend_tokenizer.to_str())
    return whole


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_corpus_is_divided_as_before(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["t5", "mbart", "bart"]))
    whole = parsed(kind)
    old = Tokenizer.from_str(json.dumps(whole))
    unknown = "é" if kind != "bart" else "b"
    corpus = data.draw(st.lists(st.text(LETTERS + " " + unknown, max_size=20), min_size=1, max_size=5))
    counts = Counter(number for text in corpus for number in old.encode(text).ids)
    kept = kept_ids(whole, counts)
    assert set(counts) <= set(kept)
    new = Tokenizer.from_str(json.dumps(trimmed_tokenizer(whole, kept)))
    for text in corpus:
        assert new.encode(text).tokens == old.encode(text).tokens
        assert [kept[number] for number in new.encode(text).ids] == old.encode(text).ids


def test_an_unknown_character_costs_what_it_did() -> None:
    """é has no piece of its own: with a cheaper unknown piece, ▁ x é yzw would be better than ▁ x éyz w."""
    roles = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces = [("▁", -1.0), ("x", -1.0), ("éyz", -30.0), ("w", -25.0), ("yzw", -1.0), ("zz", -50.0)]
    whole = json.loads(MBartTokenizer(vocab=[*roles, *pieces]).backend_tokenizer.to_str())
    old = Tokenizer.from_str(json.dumps(whole))
    corpus = ["xéyzw", "yzw"]
    assert old.encode(corpus[0]).tokens[:4] == ["▁", "x", "éyz", "w"]
    kept = kept_ids(whole, Counter(number for text in corpus for number in old.encode(text).ids))
    new = Tokenizer.from_str(json.dumps(trimmed_tokenizer(whole, kept)))
    assert new.encode(corpus[0]).tokens == old.encode(corpus[0]).tokens


def test_there_may_be_no_unknown_piece() -> None:
    old = Tokenizer(models.Unigram([("a", -1.0), ("b", -2.0), ("ab", -3.5), ("c", -9.0)]))
    whole = json.loads(old.to_str())
    kept = kept_ids(whole, Counter(old.encode("ba").ids))
    new = Tokenizer.from_str(json.dumps(trimmed_tokenizer(whole, kept)))
    assert kept == [0, 1, 3] and new.encode("ba").tokens == old.encode("ba").tokens == ["b", "a"]


def test_the_most_frequent_pieces_stay() -> None:
    whole = parsed("mbart")
    pieces = [piece for piece, _ in whole["model"]["vocab"]]
    long = [number for number, piece in enumerate(pieces) if len(piece) > 3 and piece.startswith("▁")][:3]
    counts = {long[0]: 5, long[1]: 9, long[2]: 1}
    assert set(long) <= set(kept_ids(whole, counts))
    limited = set(kept_ids(whole, counts, limit=2))
    assert {long[0], long[1]} <= limited and long[2] not in limited
    by_score = sorted(range(len(pieces)), key=lambda number: -whole["model"]["vocab"][number][1])
    assert set(by_score[:40]) <= set(kept_ids(whole, counts, common=40))


def test_what_cannot_be_trimmed_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("w1\n")
    corpus = TrimSettings(corpus=str(tmp_path / "corpus.txt"))
    tokenizer = word_tokenizer("w1 w2")
    tokenizer.add_special_tokens({"cls_token": "<s>", "sep_token": "</s>"})
    pair = save(tmp_path / "pair", tokenizer, tiny_pair(len(tokenizer)))
    with pytest.raises(InputError, match=r"model\.path=.*pair: it is a pair of models with two vocabularies"):
        trim(pair, tmp_path / "small", corpus)
    with pytest.raises(InputError, match=r"output_dir=.*pair: holds other files; name a new folder"):
        trim(pair, tmp_path / "pair", corpus)
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(InputError, match=r"corpus=.*empty\.txt: holds no passage"):
        trim(pair, tmp_path / "small", TrimSettings(corpus=str(tmp_path / "empty.txt")))
    with pytest.raises(InputError, match="corpus has no value"):
        trim(pair, tmp_path / "small", TrimSettings())
    with pytest.raises(InputError, match=r"7\.json: no such file"):
        trim(pair, tmp_path / "small", TrimSettings(corpus=Path("7.json")))  # no text, and no list of them
    assert not (tmp_path / "small").exists()


def test_a_token_beyond_the_vocabulary_is_named() -> None:
    model = tiny_bart(20)
    with pytest.raises(InputError, match=r"its configuration names token 20, and it has 20; correct config\.json"):
        trim_model(model, [0, 5, 20])
