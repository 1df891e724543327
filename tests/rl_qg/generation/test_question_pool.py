"""Pools of questions: what is kept of scripted texts, and that a unit's samples do not depend on its company."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_qg.generation.generator import CandidateGenerator, Kept
from rl_qg.generation.prompts import Prompt, PromptEncoder, add_highlight
from rl_qg.generation.sets import CANDIDATES, PooledQuestion, Unit, UnitPool, question_pool, units_of
from rl_qg.generation.tasks import QUESTION
from rl_qg.runtime.errors import InputError
from tests.tiny_models import save, tiny_bart, word_tokenizer

CPU = torch.device("cpu")
CONTEXT = "w1 w2 w3 .\n\nw4 w5 .\n\nw6 w7 w8 w9 ."
WORDS = " ".join(f"w{k}" for k in range(20)) + " . ?"


def tiny(folder: Path, **prompt: Any) -> CandidateGenerator:
    tokenizer = word_tokenizer(WORDS)
    model = tiny_bart(len(tokenizer), seed=3, positions=96)
    add_highlight(tokenizer, model, "sets")
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(0.3)  # unsure, so that samples differ
        model.final_logits_bias[:, tokenizer.all_special_ids] = -20.0  # a text is its words and the end token
        model.final_logits_bias[:, tokenizer.eos_token_id] = 1.0
    save(folder, tokenizer, model)
    Prompt(max_source_length=64, max_target_length=12, task="sets", **prompt).save(folder)
    return CandidateGenerator(folder, device=CPU)


@pytest.fixture(scope="module")
def one2one(tmp_path_factory: pytest.TempPathFactory) -> CandidateGenerator:
    return tiny(tmp_path_factory.mktemp("one2one"), granularity="sentence", mode="one2one")


class Written:
    """A generator that writes given texts, the first of them greedily, with a log-probability of −1 for each token."""

    def __init__(self, real: CandidateGenerator, texts: list[str], mode: str, cut: int = 100) -> None:
        prompt = Prompt(max_source_length=64, max_target_length=cut, task="sets", granularity="sentence", mode=mode)
        self.task, self.device, self.tokenizer = "sets", CPU, real.tokenizer
        self.encoder = PromptEncoder(self.tokenizer, prompt)
        self.decoder, self.end, self.cut = self, real.decoder.end, cut
        pad = self.tokenizer.pad_token_id
        rows = [[*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.end] for text in texts]
        self.rows = torch.tensor([row + [pad] * (max(map(len, rows)) - len(row)) for row in rows])

    def batch(self, rows: Any) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.zeros(len(rows), 1)}

    def greedy(self, batch: Any, longest: int) -> torch.Tensor:
        return self.rows[:1, :longest]

    def sample(self, batch: Any, draws: torch.Tensor, rules: Any) -> tuple[torch.Tensor, None]:
        return self.rows[1 : 1 + draws.shape[1], : rules.max_new_tokens], None

    def token_logprobs(self, batch: Any, tokens: torch.Tensor) -> torch.Tensor:
        ended = (tokens == self.end).cumsum(-1) - (tokens == self.end).int() > 0
        return -(~ended).float()


UNIT = Unit(CONTEXT, 12, 19)


def pool_of(real: CandidateGenerator, texts: list[str], mode: str, cut: int = 100) -> UnitPool:
    written: Any = Written(real, texts, mode, cut)
    (pool,) = question_pool(written, [UNIT], candidates=len(texts))
    assert isinstance(pool, Kept)
    return pool


def test_texts_of_one2many_are_split_and_counted(one2one: CandidateGenerator) -> None:
    texts = [f"w1 w2 ? {QUESTION} w3 ? {QUESTION} {QUESTION} w1 w2", f"w4 ? {QUESTION} W3 {QUESTION}"]
    pool = pool_of(one2one, texts, "one2many")
    places = (12, 19, None)
    assert [*pool] == [
        PooledQuestion("w1 w2 ?", *places, -4.0, 4, 0),  # with its separator
        PooledQuestion("w3 ?", *places, -3.0, 3, 0),
        PooledQuestion("w4 ?", *places, -3.0, 3, 1),
    ]
    assert pool.dropped["repeated"] == 1  # w1 w2
    assert sum(pool.dropped.values()) == 4  # two empty parts, and W3, which the tokenizer does not know


def test_a_question_that_is_cut_off_is_left_out(one2one: CandidateGenerator) -> None:
    pool = pool_of(one2one, [f"w1 ? {QUESTION} w2 w3 w4"], "one2many", cut=5)
    assert [question.question for question in pool] == ["w1 ?"] and pool.dropped == {"incomplete": 1}
    pool = pool_of(one2one, ["w1 w2 w3", "w1"], "one2one", cut=2)
    assert [(question.question, question.rank) for question in pool] == [("w1", 1)]


def test_a_pool_does_not_depend_on_its_company(one2one: CandidateGenerator) -> None:
    units = [*units_of(CONTEXT, "sentence"), *units_of("w9 w8 w7 w6 .\n\nw1 .\n\nw2 w3 w4 w5 w6 w7 .", "sentence")]
    together = question_pool(one2one, units, candidates=6, seed=5)
    alone = [question_pool(one2one, [unit], candidates=6, seed=5)[0] for unit in units]
    assert len({question.question for pool in together for question in pool}) > 10
    for first, second in zip(together, alone, strict=True):
        assert [(q.question, q.rank, q.tokens) for q in first] == [(q.question, q.rank, q.tokens) for q in second]
        np.testing.assert_allclose([q.logprob for q in first], [q.logprob for q in second], rtol=1e-4)
    other = question_pool(one2one, units, candidates=6, seed=6)
    assert [pool[0] for pool in map(list, other) if pool and pool[0].rank == 0] == [
        pool[0] for pool in together if pool and pool[0].rank == 0
    ]  # the greedy ones
    assert other != together
    fewer = question_pool(one2one, units, candidates=3, seed=5)
    assert [[q.question for q in pool] for pool in fewer] == [
        [q.question for q in pool if q.rank < 3] for pool in together
    ]


def test_log_probabilities_are_those_of_the_model(one2one: CandidateGenerator) -> None:
    """Compared with one pass of the library over each question alone."""
    unit = units_of(CONTEXT, "sentence")[1]
    (pool,) = question_pool(one2one, [unit], candidates=12)
    assert len(pool) > 2
    source = one2one.tokenizer("w1 w2 w3 . <hl> w4 w5 . <hl> w6 w7 w8 w9 .", return_tensors="pt")
    for question in pool:
        words = one2one.tokenizer(question.question, add_special_tokens=False)["input_ids"]
        labels = torch.tensor([[*words, one2one.decoder.end]])
        with torch.no_grad():
            logits = one2one.model(**source, labels=labels).logits
        expected = logits.log_softmax(-1).gather(-1, labels[..., None]).sum()
        assert question.tokens == labels.shape[1]
        assert question.logprob == pytest.approx(float(expected), rel=1e-4)


def test_the_usual_numbers_are_those_of_the_paper() -> None:
    assert CANDIDATES == {"paragraph": 20, "sentence": 10, "type": 5}


def test_units_and_generators_that_do_not_fit_are_refused(one2one: CandidateGenerator, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ask\.granularity=sentence, and a unit has the type who"):
        question_pool(one2one, [Unit(CONTEXT, 0, 10, "who")])
    of_types = tiny(tmp_path / "types", granularity="type", mode="one2many")
    with pytest.raises(InputError, match=r"ask\.granularity=type, and a unit has the type None"):
        question_pool(of_types, [UNIT])
    with pytest.raises(InputError, match="candidates=0 must be at least 1"):
        question_pool(one2one, [UNIT], candidates=0)
    of_types.task = "questions"
    with pytest.raises(InputError, match=r"model\.task=questions, and asks nothing without an answer"):
        question_pool(of_types, [UNIT])
