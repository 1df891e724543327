"""Successive halving on tables of values: no training."""

from collections.abc import Mapping, Sequence

import pytest
from scipy import stats

from rl_qg.stats.intervals import mean_of_seeds
from rl_qg.studies.halving import Configuration, Halving, Plan, Trial, TrialResult
from rl_qg.studies.search import _outcome

Curves = Mapping[int, Sequence[float | str]]  # of a configuration: its value after 1, 2, … epochs, or a fault


def configurations(count: int) -> list[Configuration]:
    return [Configuration(n, {"a": str(n % 2), "b": str(n // 2)}, (f"a={n}",)) for n in range(1, count + 1)]


class Table:
    """Runs trials by looking them up, and remembers which were asked for."""

    def __init__(
        self, curves: Curves, *, equal: Sequence[int] = (), by_seed: Mapping[int, float] | None = None
    ) -> None:
        self.curves, self.equal, self.by_seed = curves, equal, by_seed or {}
        self.asked: list[tuple[int, int, int]] = []

    def __call__(self, trials: Sequence[Trial]) -> dict[Trial, TrialResult]:
        self.asked += [(trial.configuration.number, trial.seed, trial.epochs) for trial in trials]
        return {trial: self._result(trial) for trial in reversed(trials)}

    def _result(self, trial: Trial) -> TrialResult:
        number = trial.configuration.number
        value = self.curves[number][trial.epochs - 1]
        if isinstance(value, str):
            return TrialResult(None, fault=value)
        weights = "same" if number in self.equal else f"{number}-{trial.seed}"
        return TrialResult(value + self.by_seed.get(trial.seed, 0.0), weights)


def searched(table: Table, plan: Plan) -> Halving:
    halving = Halving(plan, table)
    halving.start(configurations(len(table.curves)))
    halving.finish()
    return halving


def test_the_best_go_on_and_each_epoch_counts() -> None:
    """By hand: after 2 epochs 3, 1 and 2 lead; then 1 is best after 3 epochs, 3 after 4, and 1 wins."""
    table = Table({1: [0, 5, 9, 8], 2: [0, 4, 4, 4], 3: [9, 6, 7, 8], 4: [9, 3, 99, 99], 5: [0, 1, 99, 99]})
    halving = searched(table, Plan(((2, 3), (4, 1)), every=1))
    assert [rung["ranking"] for rung in halving.rungs] == [[3, 1, 2, 4, 5], [1, 3, 2]]
    assert halving.winner == 1 and halving.score(1) == (9, 3) and halving.score(3) == (8, 4)
    assert halving.leaders() == [1, 3, 2, 4, 5]
    assert {key[0] for key in table.asked if key[2] > 2} == {1, 2, 3}  # what left was not trained on
    assert {key[2] for key in table.asked} == {2, 3, 4}  # nothing is measured before the first rung
    without = Table(table.curves)
    assert searched(without, Plan(((2, 3), (4, 1)))).winner == 1  # measured at rungs alone: by 8 to 8 and 4, by order
    assert {key[2] for key in without.asked} == {2, 4}


@pytest.mark.parametrize(
    ("curve", "last"),
    [
        ([1, 2, 3, 4, 3], 5),  # as long as it improves, and one more to see that it does not
        ([1, 2, 3, 3, 9], 4),  # an equal value ends it
        ([2, 1, 9, 9, 9], 2),  # the last epoch was not the best
        ([1, 2, 3, 4, 5, 6], 6),  # not beyond the limit
    ],
)
def test_the_winner_goes_on_while_it_improves(curve: list[float], last: int) -> None:
    table = Table({1: [0, 0], 2: curve})
    halving = searched(table, Plan(((1, 2), (2, 1)), every=1, go_on_to=6))
    assert halving.winner == 2 and max(halving.values[2]) == last
    assert max(key[2] for key in table.asked if key[0] == 1) == 2


def test_all_that_the_last_rung_keeps_go_on_each_until_it_improves_no_more() -> None:
    """As in the search of QG-Bench (section 4.3): 1 leads there, 3 wins later, 2 had its best before."""
    curves = {1: [5, 6, 4, 9], 2: [6, 5, 9, 9], 3: [4, 5, 7, 8, 8], 4: [1, 1, 9, 9], 5: [3, 5, 7, 7]}
    table = Table(curves)
    plan = Plan(((1, 4), (2, 4)), every=1, go_on_to=6)
    halving = searched(table, plan)
    assert halving.rungs[-1]["kept"] == [1, 2, 3, 5] and halving.winner == 3 and halving.score(3) == (8, 4)
    assert {number: max(epochs) for number, epochs in halving.values.items()} == {1: 3, 2: 2, 3: 5, 4: 1, 5: 4}
    assert halving.leaders() == [3, 5, 1, 2, 4]
    cut = searched(Table(curves | {3: [4, 5, 7, "cut off"]}), plan)
    assert cut.winner == 3 and cut.score(3) == (7, 3) and cut.failed[3]["fault"] == "cut off"


def test_each_rung_is_reported_when_it_has_ended() -> None:
    reported: list[tuple[int, int | None]] = []
    table = Table({1: [1, 1], 2: [2, 2], 3: [3, 3]})
    halving = Halving(
        Plan(((1, 2), (2, 1))), table, lambda halving: reported.append((len(halving.rungs), halving.winner))
    )
    halving.start(configurations(3))
    assert not reported
    halving.finish()
    assert reported == [(1, None), (2, None)] and halving.winner == 3


def test_lower_may_be_better() -> None:
    halving = searched(Table({1: [3.0, 1.0], 2: [2.0, 4.0], 3: [9.0, 0.0]}), Plan(((1, 2), (2, 1)), higher=False))
    assert halving.winner == 1 and halving.score(2) == (2.0, 1) and halving.leaders() == [1, 2, 3]


def test_ties_are_ranked_by_order_and_reported() -> None:
    halving = searched(Table({1: [1, 1], 2: [5, 5], 3: [5, 5], 4: [7, 5]}), Plan(((1, 2), (2, 1)), every=1))
    assert halving.rungs[0] == {"epochs": 1, "ranking": [4, 2, 3, 1], "kept": [4, 2]}
    assert halving.ties == [{"epochs": 1, "value": 5, "configurations": [2, 3], "decided": True}]
    all_kept = searched(Table({1: [5, 1], 2: [5, 2]}), Plan(((1, 2), (2, 1)), every=1))
    assert [(tie["epochs"], tie["decided"]) for tie in all_kept.ties] == [(1, False), (2, True)]


def test_a_tie_of_those_that_went_on_decides_who_wins() -> None:
    halving = searched(Table({1: [5, 6, 7, 7], 2: [4, 5, 7, 7], 3: [1, 1]}), Plan(((2, 2),), every=1, go_on_to=5))
    assert halving.winner == 1 and halving.score(1) == halving.score(2) == (7, 3)
    assert halving.ties == [{"epochs": 4, "value": 7, "configurations": [1, 2], "decided": True}]


def test_failed_configurations_are_named_and_the_others_ranked() -> None:
    table = Table({1: ["no memory", 0], 2: [3, "cut off"], 3: [2, 2], 4: [float("nan"), 1]})
    halving = searched(table, Plan(((1, 2), (2, 1)), every=1))
    assert halving.winner == 3 and halving.leaders() == [3]
    assert {number: (failed["epochs"], failed["fault"]) for number, failed in halving.failed.items()} == {
        1: (1, "no memory"),
        2: (2, "cut off"),
        4: (1, "measured nan"),
    }
    nothing = searched(Table({1: ["a"], 2: ["b"]}), Plan(((1, 1),)))
    assert nothing.winner is None and nothing.leaders() == []


def test_a_winner_that_fails_while_it_goes_on_keeps_what_it_had() -> None:
    halving = searched(Table({1: [1, 2, "cut off"], 2: [0, 1, 1]}), Plan(((1, 2), (2, 1)), every=1, go_on_to=5))
    assert halving.winner == 1 and halving.score(1) == (2, 2) and halving.failed[1]["fault"] == "cut off"
    assert halving.leaders() == [1, 2]
    assert _outcome(halving, 1) == "winner; failed on the way to epoch 3, seed 1: cut off"


def test_seeds_are_replicates_ranked_by_their_mean() -> None:
    class Lucky(Table):
        def _result(self, trial: Trial) -> TrialResult:
            if trial.configuration.number == 2 and (trial.seed, trial.epochs) == (3, 2):
                return TrialResult(None, fault="cut off")
            extra = 9.0 if (trial.configuration.number, trial.seed) == (1, 2) else 0.0
            result = super()._result(trial)
            assert result.value is not None
            return TrialResult(result.value + extra, result.weights)

    halving = searched(Lucky({1: [1, 1], 2: [6, 6], 3: [5, 5]}), Plan(((1, 3), (2, 1)), every=1, seeds=(1, 2, 3)))
    assert halving.values[1][1] == [1, 10, 1] and halving.score(1)[0] == 4  # its luckiest seed is the best of all
    assert halving.rungs[0]["ranking"] == [2, 3, 1]
    assert halving.failed[2]["seed"] == 3 and halving.values[2] == {1: [6, 6, 6]}  # not the mean of fewer seeds
    assert halving.winner == 3


def test_the_interval_over_seeds_is_students() -> None:
    values = [0.31, 0.35, 0.30, 0.33]
    mean, low, high = mean_of_seeds(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (mean, low, high) == pytest.approx((0.3225, expected.low, expected.high))
    assert mean_of_seeds([0.3]) == (0.3, None, None)


def test_settings_without_effect_are_found_by_equal_models() -> None:
    table = Table({n: [n / 10] for n in range(1, 5)}, equal=(1, 3))
    found = searched(table, Plan(((1, 4),))).without_effect()
    assert found == [{"first": 1, "second": 3, "keys": ["b"], "seed": 1}]  # both have a=1
    assert not searched(Table(table.curves), Plan(((1, 4),), seeds=(1, 2))).without_effect()
