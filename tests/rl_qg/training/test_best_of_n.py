"""`algorithm=best_of_n`: the same first stage, the best of n samples, cross-entropy on them, and resume."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import PartialState
from transformers import AutoModelForSeq2SeqLM

from rl_qg.commands.training import best_of_n as train_best_of_n
from rl_qg.data.splits import Splits
from rl_qg.generation.generate import generate
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json
from rl_qg.settings import CESettings, GenerateSettings, ModelSettings, SCSTSettings, Settings, TrainingSettings
from rl_qg.training.best_of_n import check_best_of_n, read_picks
from rl_qg.training.config import warn_of_unused
from rl_qg.training.row_schedule import RowSchedule
from rl_qg.training.stages import check_task_reward, train
from rl_qg.training.trainer import SelfCriticalTrainer
from tests.rl_qg.training.word_task import WORDS, WordReward, data, lines
from tests.tiny_models import tiny_bart, word_tokenizer


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("start")
    tokenizer = word_tokenizer(WORDS)
    tiny_bart(len(tokenizer), seed=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def settings(folder: Path, start: str, **scst: Any) -> Settings:
    options: dict[str, Any] = {"epochs": 2, "learning_rate": 1e-2, "max_new_tokens": 6, "num_samples": 4}
    return Settings(
        output_dir=str(folder),
        algorithm="best_of_n",
        model=ModelSettings(start, max_source_length=48, max_target_length=8),
        training=TrainingSettings(
            batch_size=8, logging_steps=1, eval_steps=2, eval_samples=4, save_steps=2, use_cpu=True, report_to="none"
        ),
        ce=CESettings(epochs=1, learning_rate=1e-2),
        scst=SCSTSettings(**{**options, **scst}),
        generate=GenerateSettings(batch_size=5),
    )


def splits(gold: int = 8, unlabelled: int = 8) -> Splits:
    """The unlabelled examples are other answers, whose questions are not known."""
    rows = data(gold + unlabelled)
    return Splits(rows[:gold], [replace(row, question="") for row in rows[gold:]], data(4))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict()
    return state


def test_the_stages_end_to_end(tmp_path: Path, start: str) -> None:
    chosen = settings(tmp_path / "best", start)
    assert train_best_of_n(chosen, splits(), WordReward()) == tmp_path / "best" / "scst"
    # 1. The first stage is that of algorithm=scst, to the last bit.
    train(settings(tmp_path / "scst", start), Splits(splits().gold, [], data(4)), WordReward())
    expected = weights(tmp_path / "scst" / "ce")
    assert all(value.equal(expected[name]) for name, value in weights(tmp_path / "best" / "ce").items())
    # 2. Each pick is the first of the best among four samples of its model, for every answer.
    every = tmp_path / "every.jsonl"
    sampling = GenerateSettings(do_sample=True, num_samples=4, top_p=1.0, max_new_tokens=6, batch_size=5)
    rows = [*splits().gold, *splits().unlabelled]
    state = PartialState(cpu=True)
    generate(str(tmp_path / "best" / "ce"), rows, every, settings=sampling, seed=chosen.seed, state=state)
    reward = WordReward()
    by_id: dict[str, list[tuple[float, str]]] = {}
    for line in lines(every):
        score = reward.score([line["question"]], [""]).scores[0]
        by_id.setdefault(line["id"], []).append((score, line["question"]))
    picks = lines(tmp_path / "best" / "picks.jsonl")
    assert {pick["id"] for pick in picks} == {row.id for row in rows} == by_id.keys()
    for pick in picks:
        rewards = [score for score, _ in by_id[pick["id"]]]
        first_of_best = by_id[pick["id"]][rewards.index(max(rewards))]
        assert (pick["reward"], pick["question"]) == first_of_best
        assert pick["reward_mean"] == pytest.approx(sum(rewards) / 4, abs=1e-6)
    assert len({max(scores for scores, _ in group) for group in by_id.values()}) > 1
    # 3. Two passes over 8 human questions and the picks that are not empty, in batches of 8.
    metrics = lines(tmp_path / "best" / "metrics.jsonl")
    usable = sum(bool(pick["question"]) for pick in picks)
    updates = 1 + 2 * -(-(8 + usable) // 8)
    trained = read_json(tmp_path / "best" / "trained.json")
    assert trained["steps"] == updates == metrics[-1]["step"] and trained["model"] == "scst"
    steps = [line["step"] for line in metrics if "loss" in line]
    assert steps == list(range(1, updates + 1))
    assert {line["stage"] for line in metrics if line["step"] > 1} == {"scst"}
    assert [line["step"] for line in metrics if "eval_reward_greedy" in line] == [1, *range(3, updates + 1, 2)]
    # The rewards in the log are those of the picks: over a pass their mean is that of the file.
    used = [pick for pick in picks if pick["question"]]
    assert trained["picks"]["count"] == usable and trained["picks"]["dropped"] == len(picks) - usable
    assert trained["picks"]["reward_pick"] == pytest.approx(sum(pick["reward"] for pick in used) / usable)
    assert trained["picks"]["reward_sample"] == pytest.approx(sum(pick["reward_mean"] for pick in used) / usable)
    assert all(line["reward_pick"] >= line["reward_sample"] for line in metrics if "reward_pick" in line)
    assert metrics[-1]["epoch"] == pytest.approx(3.0)


def test_the_second_stage_is_cross_entropy_on_human_questions_and_picks(tmp_path: Path, start: str) -> None:
    """Against `stages=ce` on a data set of the same examples: equal losses, update by update."""
    chosen = settings(tmp_path / "best", start)
    train_best_of_n(chosen, splits(), WordReward())
    known = {row.id: row for row in [*splits().gold, *splits().unlabelled]}
    picks = [
        replace(known[pick["id"]], id=f"pick-{pick['id']}", question=pick["question"])
        for pick in lines(tmp_path / "best" / "picks.jsonl")
        if pick["question"]
    ]
    plain = settings(tmp_path / "plain", str(tmp_path / "best" / "ce"))
    plain = replace(plain, stages="ce", ce=CESettings(epochs=2, learning_rate=1e-2))
    train(plain, Splits([*splits().gold, *picks], [], data(4)), None)
    expected = [line["loss"] for line in lines(tmp_path / "plain" / "metrics.jsonl") if "loss" in line]
    found = [line["loss"] for line in lines(tmp_path / "best" / "metrics.jsonl") if "loss" in line]
    assert found[1:] == expected


def test_below_one_pass_it_samples_for_what_the_self_critical_stage_reads(tmp_path: Path, start: str) -> None:
    """4 of 8 answers without a question at a share of 3/4 are in 3 updates of 2 rows; the others have a question."""
    chosen = replace(settings(tmp_path, start, epochs=0.5, unlabelled_share=0.75), stages="scst")
    chosen = replace(chosen, training=replace(chosen.training, batch_size=2))
    given = splits()
    train_best_of_n(chosen, given, WordReward())
    picks = {pick["id"]: pick["question"] for pick in lines(tmp_path / "picks.jsonl")}
    assert len(picks.keys() & {row.id for row in given.unlabelled}) == 4
    assert len(picks.keys() & {row.id for row in given.gold}) == 2
    usable = sum(map(bool, picks.values()))  # one pass over 2 human questions and the picks
    assert read_json(tmp_path / "trained.json")["steps"] == -(-(2 + usable) // 2)
    # The rows of `algorithm=scst`, from the same settings.
    schedule = RowSchedule(8, 8, Fraction(3, 4), 2, 0.0, 0.5, 0, 1, chosen.seed)
    every = [*given.gold, *given.unlabelled]
    assert {every[row].id for rows in schedule for row in rows} == picks.keys()


def test_after_a_first_stage_it_samples_for_the_rows_that_follow_it(tmp_path: Path, start: str) -> None:
    """The self-critical stage goes on in the permutations of the human questions where cross-entropy ended."""
    chosen = settings(tmp_path, start, epochs=0.5, unlabelled_share=0.5)
    chosen = replace(chosen, ce=replace(chosen.ce, epochs=1.25), training=replace(chosen.training, batch_size=2))
    given = splits()
    train_best_of_n(chosen, given, WordReward())
    schedule = RowSchedule(8, 8, Fraction(1, 2), 2, 1.25, 0.5, 0, 1, chosen.seed)
    every = [*given.gold, *given.unlabelled]
    rows = list(schedule)[schedule.boundary :]
    assert {every[row].id for update in rows for row in update} == {p["id"] for p in lines(tmp_path / "picks.jsonl")}


def test_no_pass_over_the_picks_is_refused_before_anything_is_sampled(start: str) -> None:
    with pytest.raises(InputError, match=r"scst\.epochs=0 leaves stages=both without an update"):
        check_best_of_n(settings(Path("unused"), start, epochs=0))


def test_no_pass_over_human_questions_is_refused_before_anything_is_loaded(start: str) -> None:
    plain = settings(Path("unused"), start)
    with pytest.raises(InputError, match=r"^ce\.epochs=0: .* give stages=scst"):
        check_best_of_n(replace(plain, ce=CESettings(epochs=0.0)))


def test_keys_of_a_loss_by_reward_are_named(start: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_unused(settings(Path("unused"), start))
    assert "no effect" not in caplog.text
    warn_of_unused(settings(Path("unused"), start, kl_coefficient=0.1, baseline="mean"))
    assert "algorithm=best_of_n: scst.baseline=mean, scst.kl_coefficient=0.1 has no effect" in caplog.messages


class Killed(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("where", ["picks", "second"])
def test_a_killed_run_continues_to_the_same_files(
    tmp_path: Path, start: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_best_of_n(settings(tmp_path / "whole", start), splits(), WordReward())
    calls = 0

    class Interrupted(WordReward):
        """Fails in the third batch of candidates."""

        def score(self, *columns: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if where == "picks" and (tmp_path / "killed" / "ce").exists() and calls == 4:
                raise KeyboardInterrupt
            return super().score(*columns, **named)

    original = SelfCriticalTrainer.training_step

    def killed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if where == "second" and self.state.global_step == 3:
            raise Killed
        return original(self, *args, **kwargs)

    monkeypatch.setattr(SelfCriticalTrainer, "training_step", killed)
    with pytest.raises((Killed, KeyboardInterrupt)):
        train_best_of_n(settings(tmp_path / "killed", start), splits(), Interrupted())
    assert (tmp_path / "killed" / "ce").exists() and not (tmp_path / "killed" / "scst").exists()
    monkeypatch.setattr(SelfCriticalTrainer, "training_step", original)
    train_best_of_n(settings(tmp_path / "killed", start), splits(), WordReward())
    for name in ("picks.jsonl", "trained.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    expected = weights(tmp_path / "whole" / "scst")
    assert all(value.equal(expected[name]) for name, value in weights(tmp_path / "killed" / "scst").items())
    logged = [
        [{key: value for key, value in line.items() if "second" not in key and "runtime" not in key} for line in rows]
        for rows in (lines(tmp_path / folder / "metrics.jsonl") for folder in ("whole", "killed"))
    ]
    assert logged[0] == logged[1]


def test_it_learns_the_reward_from_passages_without_questions(tmp_path: Path, start: str) -> None:
    chosen = replace(settings(tmp_path, start, epochs=8, num_samples=8), stages="scst")
    train_best_of_n(chosen, splits(0, 16), WordReward())
    rewards = [
        line["eval_reward_greedy"] for line in lines(tmp_path / "metrics.jsonl") if "eval_reward_greedy" in line
    ]
    assert rewards[-1] > rewards[0]
    assert not (tmp_path / "ce").exists()
    trained = read_json(tmp_path / "trained.json")["picks"]
    assert trained["reward_pick"] > trained["reward_sample"]
    train_best_of_n(chosen, splits(0, 16), WordReward())  # complete: nothing is done again


class NoReward(WordReward):
    """Fails on every question."""

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        return SimpleNamespace(scores=[None] * len(questions))


def test_a_reward_that_fails_is_one_line(tmp_path: Path, start: str) -> None:
    alone = replace(settings(tmp_path / "a", start), stages="scst")
    with pytest.raises(InputError, match=r"picks\.jsonl: the reward failed on every question; correct the reward"):
        train_best_of_n(alone, splits(), NoReward())
    stop = replace(settings(tmp_path / "b", start, on_bad_reward="stop"), stages="scst")
    with pytest.raises(InputError, match=r"example e\d+: no reward for .*scst\.on_bad_reward=skip"):
        train_best_of_n(stop, splits(), NoReward())


def test_rules_that_samples_do_not_follow_are_refused(tmp_path: Path, start: str) -> None:
    with pytest.raises(
        InputError, match=r"algorithm=best_of_n: .* leave scst\.min_new_tokens=2, scst\.top_k=5 at its"
    ):
        check_best_of_n(settings(tmp_path, start, top_k=5, min_new_tokens=2))
    check_best_of_n(settings(tmp_path, start, top_p=0.9, temperature=0.7))


def test_the_best_model_by_a_held_out_measure_is_kept(tmp_path: Path, start: str) -> None:
    chosen = settings(tmp_path, start, stop_on="rouge_l", patience=1, epochs=6)
    train_best_of_n(chosen, splits(), WordReward())
    kept = json.loads((tmp_path / "trained.json").read_text())["kept"]
    values = {
        line["step"]: line["eval_rouge_l"]
        for line in lines(tmp_path / "metrics.jsonl")
        if "eval_rouge_l" in line and line["step"] > 1
    }
    assert kept["value"] == max(values.values()) == values[kept["step"]]
    assert not (tmp_path / "best").exists()


def test_a_reward_that_is_better_when_lower_picks_and_does_not_choose_the_model(tmp_path: Path, start: str) -> None:
    class Lower(WordReward):
        higher_is_better = False

    check_task_reward(settings(tmp_path, start, stop_on="rouge_l"), Lower())
    with pytest.raises(InputError, match=r"^reward word-reward: is better when lower"):
        check_task_reward(settings(tmp_path, start, stop_on="reward_greedy"), Lower())


def test_picks_without_a_usable_one_are_an_error(tmp_path: Path) -> None:
    """Some rewards failed, and all other questions are empty: neither alone, which the generation refuses itself."""
    rows = [{"id": "a", "question": "", "reward": 1.0}, {"id": "b", "question": "Who?", "reward": None}]
    (picks := tmp_path / "picks.jsonl").write_text(
        "".join(json.dumps(row | {"reward_mean": 0.0}) + "\n" for row in rows)
    )
    with pytest.raises(InputError, match=r"picks\.jsonl: no answer has a question with a reward"):
        read_picks(picks, [])


class NeedsReferences(WordReward):
    needs = frozenset({"references"})


@pytest.mark.parametrize(
    ("reward", "share"), [(WordReward(), 0.0), (NeedsReferences(), None), (NeedsReferences(), 0.0)]
)
def test_passages_without_questions_are_left_out_as_in_self_critical_training(
    tmp_path: Path, start: str, reward: Any, share: float | None
) -> None:
    given = splits()
    train_best_of_n(settings(tmp_path, start, unlabelled_share=share), given, reward)
    picked = {line["id"] for line in lines(tmp_path / "picks.jsonl")}
    assert picked == {row.id for row in given.gold}
