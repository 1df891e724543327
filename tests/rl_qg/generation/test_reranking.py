"""`rl-qg generate rerank=`: candidates in the order of a reward, the best of n, and what a failed reward does."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accelerate import PartialState

from rl_qg.data.examples import QAExample
from rl_qg.generation.generate import Reranker, generate
from rl_qg.generation.generator import Candidate
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json
from rl_qg.scoring.metrics import reranker_of
from rl_qg.settings import GenerateSettings, Settings
from tests.questions import example
from tests.tiny_models import tiny_bart, word_tokenizer

WORDS = " ".join(f"w{k}" for k in range(20))
BEAMS = GenerateSettings(num_beams=5, max_new_tokens=6, batch_size=2)
SAMPLES = replace(BEAMS, do_sample=True, num_samples=6)


class Threes:
    """Counts `w3`; without a score for questions that have `w5`."""

    signature = "threes"
    higher_is_better = True

    def __init__(self, needs: Sequence[str] = ()) -> None:
        self.needs = frozenset(needs)
        self.resets = 0

    def reset_cache(self) -> None:
        self.resets += 1

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        return SimpleNamespace(
            scores=[None if "w5" in question.split() else question.split().count("w3") for question in questions]
        )


class Fewest(Threes):
    """The same numbers; lower ones are better."""

    signature = "fewest"
    higher_is_better = False


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = word_tokenizer(WORDS)
    tiny_bart(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def data(count: int = 7) -> list[QAExample]:
    return [
        example(" ".join(f"w{(k + j) % 20}" for j in range(3 + k)), f"w{(k + 1) % 20}", "", id=f"e{k}")
        for k in range(count)
    ]


def run(model: str, output: Path, settings: GenerateSettings, reward: Any = None) -> list[dict[str, Any]]:
    reranker = None if reward is None else reranker_of(reward)
    options: dict[str, Any] = {"settings": settings, "seed": 0, "state": PartialState(cpu=True), "reranker": reranker}
    generate(model, data(), output, **options)
    return [json.loads(line) for line in output.read_text().splitlines()]


def expected_order(rows: list[dict[str, Any]], sign: int) -> list[dict[str, Any]]:
    """By hand: the best of the rest, the earlier one of two equal ones, and those without a score last."""
    remaining, ordered = list(rows), []
    while remaining:
        best = remaining[0]
        for row in remaining[1:]:
            known, best_known = "w5" not in row["question"].split(), "w5" not in best["question"].split()
            value, best_value = (sign * item["question"].split().count("w3") for item in (row, best))
            if known and (not best_known or value > best_value):
                best = row
        remaining.remove(best)
        ordered.append(best)
    return ordered


@pytest.mark.parametrize("settings", [BEAMS, SAMPLES], ids=["beams", "samples"])
@pytest.mark.parametrize(("reward", "sign"), [(Threes(), 1), (Fewest(), -1)], ids=["higher", "lower"])
def test_the_candidates_of_each_answer_are_in_the_order_of_the_reward(
    model: str, tmp_path: Path, settings: GenerateSettings, reward: Any, sign: int
) -> None:
    plain = run(model, tmp_path / "plain.jsonl", settings)
    ranked = run(model, tmp_path / "ranked.jsonl", settings, reward)
    assert all("reward" not in row for row in plain)
    assert [row["id"] for row in ranked] == [row["id"] for row in plain]
    orders = set()
    for key in {row["id"] for row in plain}:
        before, after = ([row for row in rows if row["id"] == key] for rows in (plain, ranked))
        assert [row["candidate"] for row in after] == list(range(settings.candidates))
        wanted = expected_order(before, sign)
        assert [(row["question"], row["logprob"]) for row in after] == [
            (row["question"], row["logprob"]) for row in wanted
        ]
        orders.add(tuple(before.index(row) for row in wanted))
        for row in after:
            words = row["question"].split()
            assert row["reward"] == (None if "w5" in words else words.count("w3"))
    assert len(orders) > 2  # the reward did change orders
    failed = sum(row["reward"] is None for row in ranked)
    assert failed > 0  # or the test would not see where they go
    assert read_json(tmp_path / "ranked.jsonl.settings.json")["rewards_failed"] == failed


def test_only_the_best_are_written_with_the_mean_of_all(model: str, tmp_path: Path) -> None:
    whole = run(model, tmp_path / "whole.jsonl", SAMPLES, Threes())
    best = run(model, tmp_path / "best.jsonl", replace(SAMPLES, keep=2), Threes())
    assert [{**row, "reward_mean": None} for row in whole if row["candidate"] < 2] == [
        {**row, "reward_mean": None} for row in best
    ]
    for row in best:
        rewards = [other["reward"] for other in whole if other["id"] == row["id"] and other["reward"] is not None]
        assert row["reward_mean"] == (pytest.approx(sum(rewards) / len(rewards), abs=1e-6) if rewards else None)
    by_probability = run(model, tmp_path / "probable.jsonl", replace(SAMPLES, keep=1))
    plain = run(model, tmp_path / "plain.jsonl", SAMPLES)
    assert by_probability == [row for row in plain if row["candidate"] == 0]


@pytest.mark.parametrize("cut", [0.3, 0.6, 1.0])
def test_a_killed_run_continues_to_the_same_file(model: str, tmp_path: Path, cut: float) -> None:
    settings = replace(SAMPLES, keep=3)
    run(model, tmp_path / "whole.jsonl", settings, Threes())
    whole = (tmp_path / "whole.jsonl").read_bytes()
    killed = tmp_path / "killed.jsonl"
    run(model, killed, settings, Threes())
    killed.write_bytes(whole[: int(cut * len(whole))])
    reward = Threes()
    run(model, killed, settings, reward)
    assert killed.read_bytes() == whole
    # Before each batch the cache is emptied: a score cannot depend on where a killed run was continued.
    assert reward.resets == {0.3: 3, 0.6: 2, 1.0: 0}[cut]


def test_another_reward_or_number_of_kept_candidates_is_refused(model: str, tmp_path: Path) -> None:
    output = tmp_path / "q.jsonl"
    run(model, output, SAMPLES)
    with pytest.raises(InputError, match=r"made with other settings \(rerank: None -> threes\)"):
        run(model, output, SAMPLES, Threes())
    with pytest.raises(InputError, match=r"made with other settings \(keep: None -> 2\)"):
        run(model, output, replace(SAMPLES, keep=2))
    assert not {"rerank", "keep"} & read_json(tmp_path / "q.jsonl.settings.json").keys()  # as in older notes
    run(model, tmp_path / "r.jsonl", SAMPLES, Threes())
    with pytest.raises(InputError, match=r"rerank: threes -> fewest"):
        run(model, tmp_path / "r.jsonl", SAMPLES, Fewest())


def test_a_reward_with_references_needs_human_questions(model: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"reward threes: compares with human questions, and example e6 has none"):
        run(model, tmp_path / "q.jsonl", SAMPLES, Threes(needs=["references"]))


@pytest.mark.parametrize(("changes", "name"), [({"keep": 0}, "num_beams=5"), ({"keep": 6}, "num_beams=5")])
def test_more_than_all_candidates_cannot_be_kept(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError, match=rf"generate\.keep=\d must be from 1 to {name}, or null for all"):
        Settings(generate=replace(BEAMS, **changes)).check()
    Settings(generate=replace(SAMPLES, keep=6)).check()


def test_rewards_of_a_small_unit_keep_their_order() -> None:
    values = [2e-9, 7e-9, float("nan"), 5.1234567e-9]
    ranker = Reranker("small", lambda examples, questions: values)
    group = [Candidate(f"q{k}", -float(k)) for k in range(4)]
    (ranked,) = ranker.ranked([example("w0 w1", "w1", "")], [group])
    assert [item.question for item in ranked] == ["q1", "q3", "q0", "q2"]
    assert [item.reward for item in ranked] == [7e-9, 5.12346e-9, 2e-9, None]
