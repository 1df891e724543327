"""Prompts of causal models are cut around the answer, never through it; batches for generation and for training."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from rl_qg.generation.prompts import HIGHLIGHT, SEPARATOR, CausalPromptEncoder, Prompt, add_highlight, positions_of
from tests.questions import example
from tests.tiny_models import tiny_bart, word_tokenizer

WORDS = " ".join(f"w{k}" for k in range(40)) + " ask: Question:"


def encoder(max_source_length: int = 512, prefix: str = "ask: ") -> CausalPromptEncoder:
    tokenizer = word_tokenizer(WORDS, "$A")
    add_highlight(tokenizer, tiny_bart(len(tokenizer)))
    return CausalPromptEncoder(tokenizer, Prompt(prefix, max_source_length, 4, SEPARATOR))


def test_a_short_passage_is_not_cut() -> None:
    subject = encoder()
    text = f"ask: w1 {HIGHLIGHT} w2 {HIGHLIGHT} w3\nQuestion:"
    assert subject.texts([example("w1 w2 w3", "w2", "w9")]) == [text]
    (source,) = subject.encode([example("w1 w2 w3", "w2", "w9")])
    assert source.ids == subject.tokenizer(text)["input_ids"]
    assert (source.tokens_cut, source.answer_cut) == (0, False)


@pytest.mark.slow
@settings(max_examples=60)
@given(length=st.integers(5, 40), position=st.integers(0, 39), words=st.integers(1, 4), limit=st.integers(8, 30))
def test_a_long_passage_is_cut_around_its_answer(length: int, position: int, words: int, limit: int) -> None:
    position = min(position, length - words)
    all_words = [f"w{k}" for k in range(length)]
    context, answer = " ".join(all_words), " ".join(all_words[position : position + words])
    start = len(" ".join(all_words[:position])) + (position > 0)
    subject, item = encoder(limit), example(context, answer, "w9", start=start)
    (text,), (source,) = subject.texts([item]), subject.encode([item])
    assert len(source.ids) <= limit
    assert source.ids == subject.tokenizer(text)["input_ids"]
    assert text.startswith("ask: ") and text.endswith("\nQuestion:")
    assert f"{HIGHLIGHT} {answer} {HIGHLIGHT}" in text and not source.answer_cut
    kept = text.removeprefix("ask: ").removesuffix("\nQuestion:").replace(HIGHLIGHT, "").split()
    at = all_words.index(kept[0])
    assert kept == all_words[at : at + len(kept)]  # whole words without a gap
    whole = length + 4  # prefix, separator and two marks
    assert source.tokens_cut == max(0, whole - len(source.ids))
    if whole > limit:
        assert len(source.ids) >= limit - 2  # nearly all of the length is used


def test_an_answer_that_is_too_long_keeps_its_beginning_and_is_counted() -> None:
    words = " ".join(f"w{k}" for k in range(20))
    subject, item = encoder(8), example(words, words, "w9")
    (source,) = subject.encode([item])
    assert source.answer_cut and len(source.ids) <= 8
    assert subject.texts([item])[0].startswith(f"ask: {HIGHLIGHT} w0 w1")
    assert subject.count_cuts([item, example("w1", "w1", "w9")]) == {
        "inputs": 2,
        "windowed": 1,
        "tokens_cut": 24 - len(source.ids),
        "answers_cut": 1,
    }


def test_a_question_that_is_cut_still_ends_with_the_end_token() -> None:
    subject = encoder()
    end = subject.tokenizer.eos_token_id
    short, long = subject.targets([example("w1", "w1", "w5 w6"), example("w1", "w1", "w5 w6 w7 w8 w9")])
    assert short == [*subject.tokenizer("w5 w6")["input_ids"], end]
    assert long == [*subject.tokenizer("w5 w6 w7")["input_ids"], end]  # max_target_length is 4


def test_batches_are_padded_on_the_left_for_generation_and_on_the_right_for_training() -> None:
    subject = encoder()
    items = [example("w1 w2 w3", "w2", "w5"), example("w1", "w1", "w5 w6")]
    sources, targets = [source.ids for source in subject.encode(items)], subject.targets(items)
    batch = subject.batch(items)
    assert batch["input_ids"][1, -len(sources[1]) :].tolist() == sources[1]
    assert batch["attention_mask"][1].tolist() == [0, 0] + [1] * len(sources[1])
    assert positions_of(batch["attention_mask"])[1].tolist() == [0, 0, *range(len(sources[1]))]
    learning = subject(items)
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        whole = source + target
        ids, labels = learning["input_ids"][row], learning["labels"][row]  # type: ignore[index]
        assert ids[: len(whole)].tolist() == whole
        assert labels.tolist() == [-100] * len(source) + target + [-100] * (len(ids) - len(whole))
        assert learning["attention_mask"][row].sum() == len(whole)  # type: ignore[index]
    assert torch.equal(learning["labels"] != -100, learning["labels"] >= 0)  # type: ignore[index, operator]
