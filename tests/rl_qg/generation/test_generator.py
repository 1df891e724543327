"""A causal generator at inference has the same behaviour as an encoder-decoder."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scipy.stats
import torch
from transformers import BertForMaskedLM, GPT2LMHeadModel

from rl_qg.data.examples import QAExample
from rl_qg.generation.decoding import DecodingRules, uniform_draws
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.loading import load_causal, load_generator
from rl_qg.runtime.errors import InputError
from tests.questions import example
from tests.tiny_models import tiny, tiny_bart, word_tokenizer

WORDS = " ".join(f"w{k}" for k in range(20)) + " Question:"


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> CandidateGenerator:
    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = word_tokenizer(WORDS, "$A")
    tokenizer.pad_token = None
    model = tiny(GPT2LMHeadModel, len(tokenizer), spread=0.5)
    model.generation_config.no_repeat_ngram_size = 1  # checkpoints may ship such rules; they must have no effect
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return CandidateGenerator(folder, device=torch.device("cpu"))


def data(count: int = 4) -> list[QAExample]:
    return [
        example(" ".join(f"w{(k + j) % 20}" for j in range(3 + k)), f"w{k + 1}", "", id=f"e{k}") for k in range(count)
    ]


def prompt_ids(generator: CandidateGenerator, item: QAExample) -> list[int]:
    return generator.encoder.encode([item])[0].ids


@torch.no_grad()
def slow_greedy(generator: CandidateGenerator, item: QAExample, length: int) -> list[int]:
    ids, tokens = prompt_ids(generator, item), []
    for _ in range(length):
        tokens.append(int(generator.model(input_ids=torch.tensor([ids + tokens])).logits[0, -1].argmax()))
        if tokens[-1] == generator.tokenizer.eos_token_id:
            break
    return tokens


@torch.no_grad()
def slow_logprob(generator: CandidateGenerator, item: QAExample, tokens: list[int]) -> float:
    ids = prompt_ids(generator, item)
    logits = generator.model(input_ids=torch.tensor([ids + tokens])).logits[0].log_softmax(-1)
    return sum(float(logits[len(ids) - 1 + at, token]) for at, token in enumerate(tokens))


def test_greedy_questions_do_not_depend_on_the_batch(generator: CandidateGenerator) -> None:
    expected = [
        generator.tokenizer.decode(slow_greedy(generator, item, 6), skip_special_tokens=True) for item in data()
    ]
    assert generator.greedy(data(), max_new_tokens=6) == [text.strip() for text in expected]
    assert any(expected)


RULES: list[dict[str, Any]] = [
    {"min_new_tokens": 30},
    {"bad_words_ids": [[token] for token in range(5, 12)]},
    {"suppress_tokens": [*range(5, 12)]},
    {"begin_suppress_tokens": [*range(5, 24)]},
    {"sequence_bias": [[[token], -9.0] for token in range(5, 12)]},
    {"exponential_decay_length_penalty": (1, 9.0)},
    {"encoder_no_repeat_ngram_size": 1},
    {"encoder_repetition_penalty": 9.0},
    {"guidance_scale": 5.0},
    {"max_time": 1e-9},
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: next(iter(rule)))
def test_no_rule_of_a_checkpoint_has_an_effect(
    generator: CandidateGenerator, rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> list[Any]:
        options = {"max_new_tokens": 6, "temperature": 1.0}
        return [
            generator.greedy(data(), max_new_tokens=6),
            *(generator.candidates(data(), 3, top_p=top_p, **options) for top_p in (None, 1.0)),  # type: ignore[arg-type]
        ]

    def plain() -> Any:
        batch = {name: generator.batch(data())[name] for name in ("input_ids", "attention_mask")}
        return generator.model.generate(**batch, max_new_tokens=30, no_repeat_ngram_size=0)

    before, by_the_library = asked(), plain()
    for name, value in rule.items():
        monkeypatch.setattr(generator.model.generation_config, name, value)
    assert not torch.equal(plain(), by_the_library)  # where nothing switches it off
    assert asked() == before


@pytest.mark.parametrize("top_p", [None, 1.0])
def test_the_logprob_of_a_candidate_is_the_sum_over_its_tokens(
    generator: CandidateGenerator, top_p: float | None
) -> None:
    seen: list[torch.Tensor] = []
    original = generator.encoder.decoded
    generator.encoder.decoded = lambda tokens, rows: seen.append(tokens) or original(tokens, rows)  # type: ignore[method-assign, func-returns-value]
    groups = generator.candidates(data(), 3, max_new_tokens=5, top_p=top_p, temperature=1.0)
    generator.encoder.decoded = original  # type: ignore[method-assign]
    end = generator.tokenizer.eos_token_id
    for row, (item, group) in enumerate(zip(data(), groups, strict=True)):
        assert [c.logprob for c in group] == sorted((c.logprob for c in group), reverse=True)
        expected = []
        for tokens in seen[0][3 * row : 3 * row + 3].tolist():
            whole = tokens[: tokens.index(end) + 1] if end in tokens else tokens
            expected.append(slow_logprob(generator, item, whole))
        assert sorted(c.logprob for c in group) == pytest.approx(sorted(expected), rel=1e-4)


def questions(generator: CandidateGenerator, items: list[QAExample], count: int, seed: int = 0) -> list[list[str]]:
    groups = generator.candidates(items, count, max_new_tokens=4, top_p=0.9, temperature=1.3, seed=seed)
    return [[candidate.question for candidate in group] for group in groups]


def test_samples_depend_on_the_example_and_the_seed_alone(generator: CandidateGenerator) -> None:
    together = questions(generator, data(), 5)
    assert together == [questions(generator, [item], 5)[0] for item in data()]
    assert together[::-1] == questions(generator, data()[::-1], 5)
    assert together != questions(generator, data(), 5, seed=1)
    same_text = [replace(data(1)[0], id=name) for name in ("a", "b")]
    first, second = questions(generator, same_text, 5)
    assert first != second


@torch.no_grad()
def slow_distribution(
    generator: CandidateGenerator, item: QAExample, top_p: float, temperature: float
) -> dict[int, float]:
    """Probability of each first token in the nucleus of `top_p`."""
    ids = prompt_ids(generator, item)
    chances = (generator.model(input_ids=torch.tensor([ids])).logits[0, -1] / temperature).softmax(-1).tolist()
    kept: dict[int, float] = {}
    for token in sorted(range(len(chances)), key=lambda token: -chances[token]):
        if sum(kept.values()) < top_p:
            kept[token] = chances[token]
    return {token: chance / sum(kept.values()) for token, chance in kept.items()}


@pytest.mark.parametrize(("top_p", "temperature"), [(1.0, 1.0), (0.8, 1.0), (0.9, 2.0)])
def test_samples_of_a_causal_model_have_its_distribution(
    generator: CandidateGenerator, top_p: float, temperature: float
) -> None:
    """First tokens of 4,000 samples against probabilities computed without `generate` (chi-square test)."""
    count, (item,) = 4000, data(1)
    draws = uniform_draws([item.id], count, 1, seed=0, step=0)
    rules = DecodingRules(1, top_p=top_p, temperature=temperature)
    tokens, _ = generator.decoder.sample(generator.batch([item]), draws, rules)
    seen = Counter(tokens[:, 0].tolist())
    expected = slow_distribution(generator, item, top_p, temperature)
    assert set(seen) <= set(expected) and len(expected) > 3
    frequent = {token: chance for token, chance in expected.items() if count * chance >= 5}
    observed = [*(seen[token] for token in frequent), count - sum(seen[token] for token in frequent)]
    wanted = [*(count * chance for chance in frequent.values()), count * (1 - sum(frequent.values()))]
    cells = [pair for pair in zip(observed, wanted, strict=True) if pair[1] > 1e-6]
    assert scipy.stats.chisquare(*zip(*cells, strict=True)).pvalue > 1e-3
    other = slow_distribution(generator, item, 1.0, 0.7)  # the test detects another distribution
    assert scipy.stats.chisquare([seen[t] for t in other], [count * p for p in other.values()]).pvalue < 1e-6


def test_the_kind_of_model_is_chosen_by_the_config(generator: CandidateGenerator, tmp_path: Path) -> None:
    tokenizer = word_tokenizer(WORDS)
    tokenizer.save_pretrained(tmp_path)
    tiny_bart(len(tokenizer)).save_pretrained(tmp_path)
    assert load_generator(str(tmp_path))[0].config.is_encoder_decoder
    assert generator.encoder.prompt.separator == "\nQuestion:"
    assert CandidateGenerator(tmp_path, device=torch.device("cpu")).encoder.prompt.separator == ""


def test_masked_language_models_and_tokenizers_without_end_token_are_refused(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(WORDS)
    tiny(BertForMaskedLM, len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="a bert model is no causal model; name one such as gpt2"):
        load_causal(str(tmp_path))
    tokenizer.eos_token = None
    tiny(GPT2LMHeadModel, len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="its tokenizer has no end token"):
        load_causal(str(tmp_path))
