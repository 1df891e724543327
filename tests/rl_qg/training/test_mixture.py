"""Passages without questions: which rows each update takes, and what they add to the loss."""

import math
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rl_qg.data.examples import QAExample
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.trainer_base import last_checkpoint
from rl_qg.training.objectives import target_tokens
from rl_qg.training.row_schedule import RowSchedule, exact_share
from tests.questions import example
from tests.rl_qg.training.word_task import WordReward, data, lines, trainer
from tests.tiny_models import tiny_bart


def without_questions(count: int) -> list[QAExample]:
    return [
        example(" ".join(f"w{(3 * k + j) % 20}" for j in range(5 + k % 3)), f"w{(3 * k + 1) % 20}", "", id=f"u{k}")
        for k in range(count)
    ]


def schedule(**changes: Any) -> RowSchedule:
    sizes: dict[str, Any] = {"gold": 10, "unlabelled": 30, "share": Fraction(3, 4), "update_size": 8, "seed": 5}
    lengths = {"ce_epochs": 2, "scst_epochs": 1, "max_steps": -1, "updates_per_rollout": 1}
    return RowSchedule(**{**sizes, **lengths, **changes})


# --- the schedule


@pytest.mark.parametrize("sizes", [{}, {"max_steps": 11}, {"ce_epochs": 1, "update_size": 3}], ids=str)
@pytest.mark.parametrize("updates_per_rollout", [1, 2, 4])
def test_a_rollout_ends_where_the_next_update_has_other_rows(sizes: dict[str, Any], updates_per_rollout: int) -> None:
    subject = schedule(updates_per_rollout=updates_per_rollout, **sizes)
    rows = list(subject)
    for step in range(subject.boundary + 1, subject.updates):
        assert subject.ends_rollout(step) == (rows[step] is not rows[step - 1])
    assert subject.ends_rollout(subject.updates) and all(map(subject.ends_rollout, range(1, subject.boundary + 1)))


@pytest.mark.parametrize(
    "share", [Fraction(3, 4), Fraction(1), Fraction(1, 3), Fraction(1, 8), Fraction(30, 47)], ids=str
)
@pytest.mark.parametrize("update_size", [1, 7, 8])
def test_a_pass_reads_every_passage_without_a_question_once(share: Fraction, update_size: int) -> None:
    subject = schedule(share=share, update_size=update_size, gold=10)
    updates = list(subject)
    assert len(updates) == subject.updates and {len(rows) for rows in updates} == {update_size}
    stage = [row for rows in updates[subject.boundary :] for row in rows]
    assert subject.updates - subject.boundary == math.ceil(30 / share / update_size)
    counts = Counter(row for row in stage if row >= 10)
    assert set(counts) == set(range(10, 40)) and max(counts.values()) <= 2
    for position in range(len(stage)):  # the mixture holds at every point of the stage
        assert sum(row >= 10 for row in stage[:position]) == math.floor(position * share)
    gold = [row for row in stage if row < 10]
    before = subject.boundary * update_size  # each pool is a sequence of whole permutations
    whole = [row for rows in updates[: subject.boundary] for row in rows] + gold
    for start in range(0, len(whole) - 9, 10):
        assert sorted(whole[start : start + 10]) == list(range(10))
    assert before == math.ceil(2 * 10 / update_size) * update_size


def test_the_order_differs_between_passes_and_seeds_and_is_the_same_again() -> None:
    first, again, other = (list(schedule(seed=seed, scst_epochs=3)) for seed in (5, 5, 6))
    assert first == again != other
    passes = [row for rows in first[schedule().boundary :] for row in rows if row >= 10]
    assert passes[:30] != passes[30:60] and sorted(passes[:30]) == sorted(passes[30:60])


def test_the_rows_of_an_update_do_not_depend_on_its_length_in_batches() -> None:
    """Batches and processes divide an update; a larger one has the rows of two smaller ones in the stage."""
    small, large = schedule(ce_epochs=0), schedule(ce_epochs=0, update_size=16)
    flat = [[row for rows in subject for row in rows][:32] for subject in (small, large)]
    assert flat[0] == flat[1]


@pytest.mark.parametrize(
    "sizes", [{"gold": 1001}, {"gold": 800, "ce_epochs": 1}, {"gold": 30, "max_steps": 60}], ids=str
)
def test_updates_by_length_have_the_rows_of_their_group(sizes: dict[str, Any]) -> None:
    lengths = [17 * k % 251 for k in range(sizes["gold"])]
    usual, sorted_ = (list(schedule(lengths=given, **sizes)) for given in ((), lengths))
    end = schedule(**sizes).boundary
    assert usual[end:] == sorted_[end:] and usual[:end] != sorted_[:end]  # the second stage has its own order
    twice = [sum(len(set(rows)) < 8 for rows in updates[:end]) for updates in (usual, sorted_)]
    assert twice[0] == twice[1]  # where a pass ends within an update, alone
    for whole in {end, sizes["gold"] // 8, sizes["gold"] // 8 + 1}:  # the updates of the first pass, and of all
        of_both = [Counter(row for rows in updates[:whole] for row in rows) for updates in (usual, sorted_)]
        assert of_both[0] == of_both[1]

    def padded(updates: list[list[int]]) -> int:
        return sum(max(of := [lengths[row] for row in rows]) * len(of) - sum(of) for rows in updates[:end])

    assert padded(sorted_) < padded(usual) * (0.2 if sizes["gold"] > 100 else 0.8)


def test_training_by_length_pads_less_and_learns_from_the_same_examples(tmp_path: Path) -> None:
    batches = []
    for by_length in (False, True):
        subject = trainer(tmp_path / str(by_length), by_length=by_length, train_dataset=data(64), scst_epochs=0)
        batches.append([*subject.get_train_dataloader()])
        assert sorted(one.id for batch in batches[-1] for one in batch["examples"]) == sorted(e.id for e in data(64))
    usual, by_length = (sum(int(batch["attention_mask"].eq(0).sum()) for batch in of) for of in batches)
    assert 0 < by_length < usual / 2


@pytest.mark.parametrize("repeats", [2, 3])
@pytest.mark.parametrize("share", [Fraction(0), Fraction(3, 4)], ids=str)
def test_updates_of_one_rollout_have_the_same_rows(repeats: int, share: Fraction) -> None:
    """New rows come after steps that are multiples of the number of repeats; a pass needs as many rollouts."""
    once = schedule(share=share)
    subject = schedule(share=share, updates_per_rollout=repeats)
    updates, rollouts = list(subject), list(once)[once.boundary :]
    assert subject.boundary == once.boundary
    stage = list(range(subject.boundary + 1, subject.updates + 1))
    assert [updates[step - 1] for step in stage] == [rollouts[subject.rollout_of(step)] for step in stage]
    assert subject.rollout_of(stage[0]) == 0 and subject.rollout_of(stage[-1]) == len(rollouts) - 1
    changes = [step for step in stage[1:] if subject.rollout_of(step) != subject.rollout_of(step - 1)]
    assert all((step - 1) % repeats == 0 for step in changes) and subject.updates % repeats == 0


def test_passes_are_counted_in_both_stages() -> None:
    subject = schedule(ce_epochs=2, scst_epochs=3)
    values = [subject.passes(step) for step in (0, subject.boundary, subject.updates)]
    assert values == [0, 2, 5]
    limited = schedule(ce_epochs=0, max_steps=4)  # 4 updates of 8 rows, of which 6 have no question, of 30
    assert (limited.updates, limited.boundary) == (4, 0)
    assert limited.passes(4) == pytest.approx(4 * 6 / 30)


@pytest.mark.parametrize(
    ("share", "gold", "unlabelled", "expected"),
    [
        (None, 10, 30, Fraction(3, 4)),
        (None, 10, 0, Fraction(0)),
        (None, 0, 30, Fraction(1)),
        (0.3, 10, 30, Fraction(3, 10)),
        (0.0, 10, 30, Fraction(0)),
    ],
)
def test_the_share(share: float | None, gold: int, unlabelled: int, expected: Fraction) -> None:
    assert exact_share(share, gold, unlabelled) == expected


@pytest.mark.parametrize("share", [None, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("ce_epochs", [0, 1])
def test_an_update_has_no_row_twice_or_is_refused(tmp_path: Path, share: float | None, ce_epochs: int) -> None:
    """An epoch is one pass: a batch above a pool would read it several times in one update."""
    options = {"train_dataset": data(8), "unlabelled": without_questions(7), "unlabelled_share": share}
    sizes = set()
    for size in range(1, 20):
        subject = {"per_device_train_batch_size": size, "ce_epochs": ce_epochs, "scst_epochs": 3, **options}
        try:
            rows = [*trainer(tmp_path, **subject).row_schedule()]
        except InputError as error:
            taken, there = map(int, re.findall(r"takes (\d+) .* there are (\d+)", str(error))[0])
            assert taken > there and there in (7, 8)
        else:
            assert rows and all(set(update) <= {*range(15)} for update in rows)
            sizes.add(size)
            if ce_epochs:
                assert all(len({*update}) == size for update in rows[: 8 // size])
    bound = 8 if ce_epochs else 15  # the pools are 8 and 7
    shares = (8 / (1 - share), 7 / share) if share else (15, 15)
    assert max(sizes) == min(bound, *map(int, shares)) and sizes == {*range(1, max(sizes) + 1)}


def test_an_update_of_more_rows_than_there_are_is_refused(tmp_path: Path) -> None:
    options = {"train_dataset": data(8), "unlabelled": without_questions(7), "ce_epochs": 0}
    assert trainer(tmp_path, per_device_train_batch_size=15, **options).row_schedule().update_size == 15
    fault = r"batch_size: an update takes 9 examples with a question, and there are 8; lower it"
    with pytest.raises(InputError, match=fault):
        trainer(tmp_path, per_device_train_batch_size=16, **options)


def test_a_share_that_cannot_be_had_is_one_line() -> None:
    with pytest.raises(InputError, match=r"unlabelled_share=0\.5: there are no passages without questions; name some"):
        exact_share(0.5, 10, 0)
    with pytest.raises(InputError, match=r"unlabelled_share=0\.5: there are no gold questions"):
        exact_share(0.5, 0, 10)


# --- the loss


def test_target_tokens_count_sixteen_for_a_row_without_a_question() -> None:
    labels = torch.tensor([[4, 5, 2], [-100, -100, -100], [4, 2, -100]])
    assert target_tokens(labels) == 3 + 16 + 2


def test_the_divisor_of_an_update_counts_all_its_batches(tmp_path: Path) -> None:
    subject = trainer(tmp_path, unlabelled=without_questions(3))
    batches = [subject.encoder([*data(2), *without_questions(1)]), subject.encoder(without_questions(2))]
    assert subject._get_num_items_in_batch(batches, torch.device("cpu")) == sum(
        target_tokens(batch["labels"])  # type: ignore[arg-type]
        for batch in batches
    )


def test_a_row_without_a_question_adds_its_reward_alone(tmp_path: Path) -> None:
    """The gradient of a mixed batch is that of its gold part and of its other part, each divided by all tokens; of the
    latter L_ce is absent: with λ = 0 it has no gradient.
    """
    subject = trainer(
        tmp_path, ce_epochs=0, max_steps=4, unlabelled=without_questions(6), schedule="constant", baseline="none"
    )
    subject.state.max_steps = 4
    subject.model.train()
    gold, other = data(3), without_questions(2)
    tokens = target_tokens(subject.encoder(gold)["labels"]) + 32

    def gradient(rows: list[QAExample]) -> torch.Tensor:
        loss = subject.compute_loss(subject.model, dict(subject.encoder(rows)), num_items_in_batch=tokens)
        return torch.cat([value.flatten() for value in torch.autograd.grad(loss, list(subject.model.parameters()))])

    whole, parts = gradient([gold[0], other[0], *gold[1:], other[1]]), gradient(gold) + gradient(other)
    assert whole.norm() > 1e-2
    assert (whole - parts).norm() < 1e-5 * whole.norm()
    assert gradient(other).norm() > 1e-3
    subject.args.lambda_max = 0.0
    assert gradient(other).norm() == 0 < gradient(gold).norm()


class Seen(WordReward):
    """Records the ids of the contexts that were scored, by their texts."""

    def __init__(self) -> None:
        self.contexts: list[list[str]] = []

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        self.contexts.append(list(contexts))
        return super().score(questions, contexts)


def test_the_first_stage_reads_gold_alone_and_the_second_one_the_mixture(tmp_path: Path) -> None:
    reward, unlabelled = Seen(), without_questions(24)
    subject = trainer(tmp_path, reward=reward, unlabelled=unlabelled, train_dataset=data(8), eval_dataset=None)
    subject.train()
    logged = lines(tmp_path / "metrics.jsonl")
    assert [line["stage"] for line in logged] == ["ce"] + ["scst"] * 4  # 8 gold in one update, then 32 rows
    assert [line["epoch"] for line in logged] == [1, 1.25, 1.5, 1.75, 2]
    own = {item.context for item in unlabelled} - {item.context for item in data(8)}
    for contexts in reward.contexts:
        assert sum(context in own for context in contexts[:8]) == 6
    for line in logged[1:]:
        assert line["loss_ce"] > 0 and math.isfinite(line["loss"])


def test_passages_without_questions_alone_need_no_gold(tmp_path: Path) -> None:
    subject = trainer(tmp_path, ce_epochs=0, train_dataset=None, unlabelled=without_questions(16), eval_dataset=None)
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    subject.train()
    logged = lines(tmp_path / "metrics.jsonl")
    assert len(logged) == 2 and all(line["loss_ce"] is None for line in logged)
    assert logged[-1]["loss"] == pytest.approx(logged[-1]["loss_scst"] * logged[-1]["lambda"], abs=1e-6)
    assert any(not value.equal(before[name]) for name, value in subject.model.state_dict().items())


def test_a_share_of_zero_changes_nothing(tmp_path: Path) -> None:
    """Bit for bit the run without such passages."""
    ends = []
    for name, options in {"without": {}, "zero": {"unlabelled": without_questions(9), "unlabelled_share": 0}}.items():
        subject = trainer(tmp_path / name, model=tiny_bart(25, seed=1, dropout=0.1), **options)
        subject.train()
        ends.append(subject.model.state_dict())
    assert all(ends[0][name].equal(value) for name, value in ends[1].items())


def test_questions_of_passages_given_as_unlabelled_are_not_read(tmp_path: Path) -> None:
    ends = []
    for name, question in {"empty": "", "known": "w3 w3 w3"}.items():
        rows = [example(item.context, item.answers[0].text, question, id=item.id) for item in without_questions(8)]
        subject = trainer(tmp_path / name, ce_epochs=0, unlabelled=rows, train_dataset=data(8))
        subject.train()
        ends.append(subject.model.state_dict())
    assert all(ends[0][name].equal(value) for name, value in ends[1].items())


# --- resume


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 3, 6])
def test_a_resumed_run_with_a_mixture_equals_an_uninterrupted_one(tmp_path: Path, at: int) -> None:
    """Killed in either stage and between updates of one rollout; advantages are scaled by earlier updates."""
    options: dict[str, Any] = {
        **{"train_dataset": data(10), "unlabelled": without_questions(20), "unlabelled_share": 0.6},
        **{"save_strategy": "steps", "save_steps": 1, "updates_per_rollout": 2, "normalise_advantage": "running"},
    }

    def subject(name: str, seed: int) -> Any:
        return trainer(tmp_path / name, model=tiny_bart(25, seed=seed, dropout=0.1), **options)

    whole = subject("whole", 1)
    whole.train()
    cut = subject("cut", 1)  # a new trainer sets the seed
    update = cut.training_step

    def step(*args: Any, **kwargs: Any) -> torch.Tensor:
        if cut.state.global_step == at:
            raise KeyboardInterrupt
        return update(*args, **kwargs)

    cut.training_step = step
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    again = subject("cut", 9)
    again.train(resume_from_checkpoint=last_checkpoint(tmp_path / "cut"))
    assert again.state.global_step == whole.state.global_step
    assert all(whole.model.state_dict()[name].equal(value) for name, value in again.model.state_dict().items())
    first, second = (
        [{k: v for k, v in line.items() if "second" not in k and "runtime" not in k} for line in lines(path)]
        for path in (tmp_path / "whole" / "metrics.jsonl", tmp_path / "cut" / "metrics.jsonl")
    )
    assert first == second


def test_a_reward_that_fails_on_a_mixture_reaches_no_weight(tmp_path: Path) -> None:
    class Failing(WordReward):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return SimpleNamespace(scores=[math.nan] * len(questions))

    subject = trainer(
        tmp_path, ce_epochs=0, reward=Failing(), train_dataset=None, unlabelled=without_questions(8), eval_dataset=None
    )
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    subject.args.weight_decay = 0.0
    subject.train()
    assert all(torch.isfinite(value).all() for value in subject.model.state_dict().values())
    moved = [name for name, value in subject.model.state_dict().items() if not value.equal(before[name])]
    assert not moved
