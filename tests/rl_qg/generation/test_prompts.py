"""Model inputs have the answer marked at its offset and never cut it off."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers import GPT2LMHeadModel

from rl_qg.data.examples import Answer, QAExample
from rl_qg.generation.prompts import HIGHLIGHT, WHOLE, Prompt, PromptEncoder, add_highlight, default_prefix, highlight
from rl_qg.generation.published import FORMATS
from rl_qg.generation.tasks import join_answers, join_pairs, pair_parts, parse_answers, tokens_of
from rl_qg.runtime.errors import InputError
from rl_qg.settings import ModelSettings
from tests.questions import example
from tests.tiny_models import byte_tokenizer, tiny, tiny_bart, tiny_prefix, tiny_t5, word_tokenizer

WORDS = " ".join(f"w{k}" for k in range(40))


def encoder(max_source_length: int = 512, prefix: str = "", template: str = "<s> $A </s>") -> PromptEncoder:
    tokenizer = word_tokenizer(WORDS + " generate question:", template)
    add_highlight(tokenizer, tiny_bart(len(tokenizer)))
    return PromptEncoder(tokenizer, Prompt(prefix, max_source_length, 6))


def text(ids: list[int], of: PromptEncoder) -> str:
    return of.tokenizer.decode(ids)


def test_the_answer_is_marked_at_its_offset_not_at_its_first_occurrence() -> None:
    marked = highlight(example("w1 w2 w1 w3", "w1", "?", start=6))
    assert marked == f"w1 w2 {HIGHLIGHT} w1 {HIGHLIGHT} w3"


def test_an_answer_that_is_not_at_its_offset_is_named() -> None:
    with pytest.raises(InputError, match="example q7: answer 'w2' is not at offset 0"):
        highlight(QAExample("q7", "", "w1 w2", "?", (Answer("w2", 0),)))


def test_highlight_is_one_token_with_its_own_row_and_is_added_once() -> None:
    tokenizer = word_tokenizer(WORDS)
    model = tiny_bart(len(tokenizer))
    rows = len(tokenizer)
    for _ in range(2):
        add_highlight(tokenizer, model)
        assert len(tokenizer) == rows + 1 == model.get_input_embeddings().weight.shape[0]
    assert tokenizer.tokenize(f"w1 {HIGHLIGHT} w2") == ["w1", HIGHLIGHT, "w2"]


def test_the_new_row_does_not_depend_on_the_random_state() -> None:
    rows = []
    for seed in (0, 1):
        tokenizer = word_tokenizer(WORDS)
        model = tiny_bart(len(tokenizer))
        torch.manual_seed(seed)
        add_highlight(tokenizer, model)
        rows.append(model.get_input_embeddings().weight[-1].detach())
    assert rows[0].equal(rows[1])
    assert rows[0].abs().sum() > 0


def test_spare_rows_of_the_embedding_matrix_are_kept() -> None:
    tokenizer = word_tokenizer(WORDS)
    model = tiny_bart(128)
    add_highlight(tokenizer, model)
    assert model.get_input_embeddings().weight.shape[0] == 128


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 40),
    data=st.data(),
    room=st.integers(12, 30),
    prefix=st.sampled_from(["", "generate question: "]),
    template=st.sampled_from(["<s> $A </s>", "$A </s>"]),
)
def test_a_window_keeps_prefix_and_answer_and_as_much_context_as_fits(length, data, room, prefix, template) -> None:
    words = [f"w{k}" for k in range(length)]
    first = data.draw(st.integers(0, length - 1))
    last = data.draw(st.integers(first, min(length - 1, first + 3)))
    answer = " ".join(words[first : last + 1])
    start = len(" ".join(words[:first])) + (first > 0)
    of = encoder(room, prefix, template)
    source = of.encode([example(" ".join(words), answer, "?", start=start)])[0]
    whole = encoder(512, prefix, template).encode([example(" ".join(words), answer, "?", start=start)])[0]
    shown = text(source.ids, of)
    assert f"{HIGHLIGHT} {answer} {HIGHLIGHT}" in shown
    assert len(source.ids) == min(room, len(whole.ids))
    assert source.tokens_cut == len(whole.ids) - len(source.ids)
    assert not source.answer_cut
    assert shown.startswith(("<s> " if template[0] == "<" else "") + prefix.strip()) and shown.endswith("</s>")
    kept = [word for word in shown.split() if word.startswith("w")]
    assert " ".join(kept) in " ".join(words)  # one contiguous window


def test_an_answer_longer_than_the_window_is_counted() -> None:
    words = " ".join(f"w{k}" for k in range(30))
    of = encoder(10)
    counts = of.count_cuts([example(words, words, "?"), example("w1 w2", "w1", "?")])
    assert counts == {"inputs": 2, "windowed": 1, "tokens_cut": 24, "answers_cut": 1}


def test_a_batch_is_padded_and_masked_and_holds_its_examples() -> None:
    of = encoder()
    rows = [example("w1 w2 w3", "w2", "w4 w5"), example("w1", "w1", "w1 w2 w3 w4 w5 w6 w7")]
    batch = of(rows)
    assert batch["examples"] == rows
    assert batch["attention_mask"].sum(1).tolist() == [7, 5]  # type: ignore[union-attr]
    labels = batch["labels"]
    assert labels[0].tolist().count(-100) == 2  # type: ignore[index]
    assert labels.shape == (2, 6)  # type: ignore[union-attr]  # cut to max_target_length, end token kept
    assert labels[1, -1] == of.tokenizer.eos_token_id  # type: ignore[index]


def test_prompt_settings_are_saved_with_the_model(tmp_path) -> None:
    prompt = Prompt("ask: ", 100, 20)
    prompt.save(tmp_path)
    assert Prompt.of(tmp_path, tiny_bart(10), word_tokenizer("a")) == prompt


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", '{"format": 3}', '{"max_source_length": "512"}', '{"max_source_length": true}'),
        *('{"prefix": null}', '{"prefix": "ask: ", "separator": null}'),
    ],
)
def test_a_damaged_prompt_is_one_line(tmp_path, text: str) -> None:
    (tmp_path / "prompt.json").write_text(text)
    with pytest.raises(InputError, match=r"prompt\.json: (malformed JSON|no prompt of rl-qg \(prefix, max_source)"):
        Prompt.of(tmp_path, tiny_bart(10), word_tokenizer("a"))


def test_inputs_are_not_longer_than_the_model_reads() -> None:
    bart, gpt2 = tiny_bart(20, positions=64), tiny(GPT2LMHeadModel, 20, positions=64)
    assert Prompt(max_source_length=512).fitting(bart).max_source_length == 64
    assert Prompt(max_source_length=30).fitting(bart).max_source_length == 30
    assert Prompt(max_source_length=512, max_target_length=24).fitting(gpt2).max_source_length == 40
    prefix = tiny_prefix(20, positions=64)  # the question's places follow the passage's
    assert Prompt(max_source_length=512, max_target_length=24).fitting(prefix).max_source_length == 39
    assert Prompt(max_source_length=9999).fitting(tiny_t5(20)).max_source_length == 9999  # relative positions


def test_only_t5_has_a_default_prefix(tmp_path) -> None:
    assert default_prefix(tiny_t5(20)) == "generate question: "
    assert Prompt.of(tmp_path, tiny_bart(10), word_tokenizer("a")).prefix == ""


def test_tokenizers_are_saved_alike_after_inputs_and_after_targets(tmp_path: Path) -> None:
    """A fast tokenizer keeps the truncation of its last call and would write it into `tokenizer.json`."""
    subject = encoder()
    saved = []
    for name in ("inputs", "targets"):
        getattr(subject, {"inputs": "encode", "targets": "targets"}[name])(
            [example("w1 w2", "w2", "w3 w4 w5 w6 w7 w8 w9")]
        )
        subject.tokenizer.save_pretrained(tmp_path / name)
        saved.append((tmp_path / name / "tokenizer.json").read_text())
    assert saved[0] == saved[1]


def test_the_lengths_of_a_prompt_are_those_of_the_settings() -> None:
    prompt, settings = Prompt(), ModelSettings()
    assert (prompt.max_source_length, prompt.max_target_length) == (
        settings.max_source_length,
        settings.max_target_length,
    )


@pytest.mark.parametrize("task", ["questions", "pairs", "sets"])
def test_a_passage_with_the_mark_in_it_has_its_answer_marked_alone(task: str) -> None:
    text = highlight(example("Write <hl> Ada <hl> there.", "Ada", "Who?"), tokens_of(task))
    assert text.split(HIGHLIGHT)[1].strip() == "Ada" and text.count(HIGHLIGHT) == 2
    assert highlight(replace(example("A <hl> b", "b", "Who?"), answers=()), tokens_of(task)).count(HIGHLIGHT) == 0


@pytest.mark.parametrize(
    ("format", "read"),
    [
        ("", r"a <\hl> <sep> <hl> Ada <hl> <context>"),
        ("lmqg-qg", r"generate question: a <\hl> <sep> <hl> Ada <hl> <context>"),
        ("valhalla-qg-hl", r"generate question: a <\hl> <sep>  <hl> Ada <hl>  <context>"),
        ("iarfmoose", r"<answer> Ada <context> a <hl> <sep> Ada <\context>"),
        ("mrm8488-ap", r"answer: Ada  context: a <hl> <sep> Ada <context>"),
        ("doc2query", r"a <hl> <sep> Ada <context>"),
    ],
)
def test_the_mark_that_a_format_has_is_escaped_and_comes_back(format: str, read: str) -> None:
    found = FORMATS.get(format)
    prompt = Prompt(found.prefix if found else "", format=format, input=found.input if found else WHOLE)
    tokenizer = byte_tokenizer([], {"pad_token": "<pad>", "eos_token": "</s>"})
    subject = PromptEncoder(tokenizer, prompt)
    item = example("a <hl> <sep> Ada <context>", "Ada", r"Is it <hl> or <\hl> <context>?")
    (source,) = subject.encode([item])
    assert tokenizer.decode(source.ids).removesuffix("</s>") == read
    target = torch.tensor([tokenizer(subject.target(item))["input_ids"]])
    assert subject.decoded(target, [item]) == [item.question]


def test_pairs_and_answers_with_the_mark_in_them_come_back() -> None:
    assert HIGHLIGHT not in join_pairs([("Is <hl> it?", "<hl>")]) + join_answers(["a <hl>"])
    assert pair_parts(join_pairs([("Is <hl> it?", "<hl>")])) == [("Is <hl> it?", "<hl>")]
    assert parse_answers(join_answers(["a <hl>"])) == ["a <hl>"]
