"""Language codes of mBART-cc25, mBART-50 and NLLB: inputs by hand, and decoding as the library does it."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    M2M100ForConditionalGeneration,
    MBart50Tokenizer,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
)

from rl_qg.data.examples import QAExample
from rl_qg.generation.decoding import DecodingRules, decode, uniform_draws
from rl_qg.generation.generator import GREEDY, EncoderDecoder, beam_options
from rl_qg.generation.prompts import HIGHLIGHT, Prompt, PromptEncoder, add_highlight
from rl_qg.runtime.errors import InputError
from tests.questions import example
from tests.tiny_models import coded_tokenizer, tiny, word_tokenizer

WORDS = "Ada traf Ben in Rom Wer Wo"
EXAMPLES = [
    example("Ada traf Ben in Rom", "Ben", "Wer traf Ada", "a"),
    example("Ben traf Ada", "Ada", "Wer", "b"),
    example("Rom", "Rom", "Wo", "c"),
]
KINDS: dict[str, Any] = {
    "cc25": (MBartTokenizer, MBartForConditionalGeneration, "de_DE"),
    "mbart50": (MBart50Tokenizer, MBartForConditionalGeneration, "de_DE"),
    "nllb": (NllbTokenizer, M2M100ForConditionalGeneration, "deu_Latn"),
}


def build(kind: str, seed: int = 0, end: float = 2.0) -> tuple[Any, Any, EncoderDecoder]:
    """A tokenizer, a model with random weights that prefers to end, and its decoder in German."""
    tokenizer_class, model_class, code = KINDS[kind]
    tokenizer = coded_tokenizer(tokenizer_class, WORDS)
    special = {"pad_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": None}
    start = {} if kind == "cc25" else {"decoder_start_token_id": 2}
    size = len(tokenizer) + 1
    model = tiny(model_class, size, decoder_layers=2, spread=0.4, seed=seed, **special, **start)
    model.generation_config.decoder_start_token_id = 0 if kind == "cc25" else 2  # what must not be used, or must
    add_highlight(tokenizer, model)

    def raised(_: Any, __: Any, output: Any) -> Any:
        output.logits[..., 2] += end
        return output

    model.register_forward_hook(raised)
    return tokenizer, model, EncoderDecoder(model, tokenizer, Prompt(max_target_length=30, language=code))


def in_language(item: QAExample, language: str) -> QAExample:
    return QAExample(item.id, item.title, item.context, item.question, item.answers, language=language)


def test_inputs_targets_and_starts_are_those_written_by_hand() -> None:
    rows = [in_language(EXAMPLES[2], language) for language in ("", "fr", "de", "it_IT")]
    marked = f"{HIGHLIGHT} ▁Rom {HIGHLIGHT}".split()
    for kind, before, after in (("cc25", 0, 1), ("mbart50", 1, 0)):
        tokenizer, _, decoder = build(kind)
        batch = decoder.encoder(rows)
        for row, code in enumerate(("de_DE", "fr_XX", "de_DE", "it_IT")):
            ids = [token for token in batch["input_ids"][row].tolist() if token != 1]  # type: ignore[index]
            text = [
                token for token in tokenizer.convert_ids_to_tokens(ids) if token != "▁"
            ]  # of mBART-50, before <hl>
            assert text == [code] * before + marked + ["</s>"] + [code] * after
            labels = tokenizer.convert_ids_to_tokens(batch["labels"][row])  # type: ignore[index]
            assert labels == ["▁Wo", "</s>"]
            start = tokenizer.convert_ids_to_tokens(batch["starts"][row])  # type: ignore[index]
            assert start == ["</s>"] * before + [code]
        assert (tokenizer.src_lang, tokenizer.tgt_lang) == ("de_DE", "de_DE")  # what is saved with the model


def test_long_questions_are_cut_to_the_same_length_with_codes_as_without() -> None:
    for kind in ("cc25", "mbart50"):
        encoder = build(kind)[2].encoder
        encoder.prompt = Prompt(max_target_length=3, language="de")
        (ids,) = encoder.targets(EXAMPLES[:1])
        assert encoder.tokenizer.convert_ids_to_tokens(ids) == ["▁Wer", "▁traf", "</s>"]


def test_unknown_languages_are_named_and_models_without_codes_take_any() -> None:
    tokenizer = coded_tokenizer(MBartTokenizer, WORDS)
    with pytest.raises(InputError, match="language=xx: the model knows ar, cs, de, en"):
        PromptEncoder(tokenizer, Prompt(language="xx"))
    with pytest.raises(InputError, match="language=tlh: the model knows ar"):
        PromptEncoder(tokenizer, Prompt()).batch([in_language(EXAMPLES[0], "tlh")])
    plain = PromptEncoder(word_tokenizer(WORDS), Prompt(language="xx"))
    assert not plain.languages and plain.batch([EXAMPLES[0]]).keys() == {"input_ids", "attention_mask"}
    assert PromptEncoder(tokenizer, Prompt()).languages.default == "en_XX"  # the tokenizer's own


@pytest.mark.parametrize("kind", ["cc25", "mbart50"])
def test_a_question_is_as_probable_as_in_the_library(kind: str) -> None:
    tokenizer, model, decoder = build(kind)
    for item in EXAMPLES:
        tokenizer.src_lang = tokenizer.tgt_lang = "de_DE"
        labels = torch.tensor([tokenizer(text_target=item.question)["input_ids"]])
        batch = decoder.encoder.batch([item])
        ids = {name: batch[name] for name in ("input_ids", "attention_mask")}
        logprobs = model(**ids, labels=labels).logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1))[0, :, 0]
        expected = logprobs[:-1] if kind == "cc25" else logprobs[1:]  # without the prediction of the code
        tokens = torch.tensor(decoder.encoder.targets([item]))
        torch.testing.assert_close(decoder.token_logprobs(batch, tokens)[0], expected)


def own_generation(kind: str, tokenizer: Any, tokens: int) -> tuple[dict[str, Any], int]:
    """How the library is told the language, and the number of tokens before the question."""
    code = tokenizer.convert_tokens_to_ids(KINDS[kind][2])
    if kind == "cc25":
        return {"decoder_start_token_id": code, "max_new_tokens": tokens}, 1
    return {"forced_bos_token_id": code, "max_new_tokens": tokens + 1}, 2


def up_to_end(tokens: Tensor) -> list[list[int]]:
    return [row[: row.index(2) + 1] if 2 in row else row for row in tokens.tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_questions_are_those_of_the_library(kind: str) -> None:
    lengths = set()
    for seed, end in ((0, 2.0), (1, 4.0), (2, 6.0)):
        tokenizer, model, decoder = build(kind, seed, end)
        batch = decoder.encoder.batch(EXAMPLES)
        options, before = own_generation(kind, tokenizer, 9)
        ids = {name: batch[name] for name in ("input_ids", "attention_mask")}
        expected = up_to_end(model.generate(**ids, **{**GREEDY, **options})[:, before:])
        assert up_to_end(decoder.greedy(batch, 9)) == expected
        decoder.library = True
        assert up_to_end(decoder.greedy(batch, 9)) == expected
        lengths |= set(map(len, expected))
    assert len(lengths) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_beams_and_samples_are_those_of_the_library(kind: str) -> None:
    lengths = set()
    for seed, end in ((0, 2.0), (1, 4.0), (2, 6.0)):
        tokenizer, model, decoder = build(kind, seed, end)
        assert decoder.shares_passages
        library = EncoderDecoder(model, tokenizer, decoder.encoder.prompt, engine="library")
        batch = decoder.encoder.batch(EXAMPLES)
        draws = uniform_draws("abc", 4, 9, seed=seed, step=0)
        for ours, theirs in (
            (decoder.search(batch, 4, 9), library.search(batch, 4, 9)),
            (decoder.sample(batch, draws, DecodingRules(9)), library.sample(batch, draws, DecodingRules(9))),
        ):
            assert up_to_end(ours[0]) == up_to_end(theirs[0])
            torch.testing.assert_close(ours[1], theirs[1], atol=1e-4, rtol=1e-4)
            lengths |= set(map(len, up_to_end(ours[0])))
        if kind == "cc25":  # as told to the library; with a forced token it would divide by one token more
            options, before = own_generation(kind, tokenizer, 9)
            ids = {name: batch[name] for name in ("input_ids", "attention_mask")}
            expected = model.generate(**ids, **{**beam_options(4, 9), **options})[:, before:]
            assert up_to_end(decoder.search(batch, 4, 9)[0]) == up_to_end(expected)
    assert len(lengths) > 3


@pytest.mark.parametrize("kind", KINDS)
def test_rules_and_probabilities_leave_the_code_out(kind: str) -> None:
    """Against decoding without caches, one token at a time, with the rules written out."""
    _, model, decoder = build(kind, end=4.0)
    batch = decoder.encoder.batch(EXAMPLES)
    states, mask, starts = decoder.encoded(batch).values()
    rules = DecodingRules(8, min_new_tokens=4, no_repeat_ngram=1)
    ours = decode(model, states, mask, rules, logprobs=True, starts=starts).greedy
    assert ours is not None and ours.logprobs is not None
    for row in range(len(EXAMPLES)):
        tokens: list[int] = []
        total = 0.0
        while len(tokens) < 8 and 2 not in tokens:
            begun = torch.tensor([[*starts[row].tolist(), *tokens]])
            part = {"encoder_outputs": (states[row : row + 1],), "attention_mask": mask[row : row + 1]}
            logits = model(**part, decoder_input_ids=begun, use_cache=False).logits[0, -1].detach()
            allowed = logits.clone()
            allowed[tokens + starts[row, -1:].tolist() + [2] * (len(tokens) < 4)] = -torch.inf
            tokens.append(int(allowed.argmax()))
            total += float(logits.log_softmax(-1)[tokens[-1]])
        assert up_to_end(ours.tokens)[row] == tokens
        assert float(ours.logprobs[row]) == pytest.approx(total, abs=1e-3)


def test_models_of_lmqg_keep_the_code_of_their_tokenizer() -> None:
    """lmqg never sets `src_lang` or `tgt_lang`: texts of all languages have en_XX."""
    tokenizer = coded_tokenizer(MBartTokenizer, WORDS)
    plain = tokenizer("Ada traf Ben")["input_ids"]
    encoder = PromptEncoder(tokenizer, Prompt(input="paragraph", format="lmqg-qg"))
    row = QAExample("a", "", "Ada traf Ben", "Wer", (), language="de")
    assert encoder.encode([row])[0].ids == plain and plain[-1] == tokenizer.convert_tokens_to_ids("en_XX")
    assert encoder.batch([row])["starts"].tolist() == [[plain[-1]]]
