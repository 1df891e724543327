from collections import Counter
from statistics import fmean

import pytest
import yaml

from rl_qg.runtime.errors import InputError
from rl_qg.studies.search_space import OptunaProposals, grid, randomly, read_search, read_space
from tests.rl_qg.studies.search_folder import SEARCH

SPACE = {"ce.learning_rate": {"low": "1e-5", "high": 1e-3, "log": True}, "ce.label_smoothing": [0.0, 0.15]}


def test_a_grid_has_every_combination_in_order() -> None:
    together = [{"training": {"batch_size": 8, "gradient_accumulation_steps": 2}}, {"training.batch_size": 16}]
    space = read_space({"ce.learning_rate": ["1e-4", 1e-5], "batch": together, "peft": "lora"}, "f")
    found = grid(space, "f")
    assert [item.number for item in found] == [1, 2, 3, 4]
    assert found[0].overrides == (
        "ce.learning_rate=1e-4", "training.batch_size=8", "training.gradient_accumulation_steps=2", "peft=lora",
    )  # fmt: skip
    assert found[3].values == {"ce.learning_rate": "1e-05", "batch": "training.batch_size=16", "peft": "lora"}


def test_random_configurations_are_seeded_different_and_in_the_space() -> None:
    space = read_space({**SPACE, "scst.num_samples": {"low": 2, "high": 4, "integer": True}}, "f")
    found = randomly(space, 200, seed=3)
    assert found == randomly(space, 200, seed=3) != randomly(space, 200, seed=4)
    assert found[:50] == randomly(space, 50, seed=3)  # more configurations begin with the same ones
    assert len({item.overrides for item in found}) == 200
    rates = [float(item.values["ce.learning_rate"]) for item in found]
    assert all(1e-5 <= rate <= 1e-3 for rate in rates)
    assert 70 < sum(rate < 1e-4 for rate in rates) < 130  # half of them: uniform in the logarithm
    assert set(Counter(item.values["scst.num_samples"] for item in found)) == {"2", "3", "4"}
    assert len(randomly(read_space({"a": [1, 2], "b": [1, 2]}, "f"), 9, seed=0)) == 4  # there are no more


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "f: space: give at least one key"),
        ({"seed": [1, 2]}, r"f: space.seed: .* seeds: \[1, 2\]"),
        ({"a": []}, "f: space.a: give at least one value"),
        ({"a": [1, 1]}, "f: space.a: 1 is given twice"),
        ({"a": {"low": 2, "high": 1}}, "f: space.a: low=2 is not below high=1"),
        ({"a": {"low": 0, "high": 1, "log": True}}, "f: space.a: log: true needs low above 0"),
        (
            {"a": {"low": 0.2, "high": 0.8, "integer": True}},
            "f: space.a: integer: true needs whole numbers",
        ),
        ({"a": {"low": 0, "top": 1}}, "f: space.a: expected a list of values, or a range"),
        ({"a": {"low": "x", "high": 1}}, "f: space.a: low and high are not numbers"),
    ],
)
def test_a_wrong_space_is_one_line(content: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_space(content, "f")


def test_a_grid_refuses_a_range() -> None:
    with pytest.raises(InputError, match=r"f: space\.ce\.learning_rate: a grid needs a list"):
        grid(read_space(SPACE, "f"), "f")


def test_optuna_proposes_towards_the_better_values_and_is_replayed() -> None:
    pytest.importorskip("optuna")
    space = read_space({"x": {"low": 0, "high": 10}}, "f")

    def propose(worst: float = 0.0) -> list[float]:
        proposals, scores = OptunaProposals(space, 40, 5, seed=1, higher=False), dict[int, float | None]()
        found: list[float] = []
        while new := proposals(scores):
            assert len(new) <= 5
            for item in new:
                x = float(item.values["x"])
                scores[item.number] = None if x < worst else (x - 7) ** 2  # the best is 7
                found.append(x)
        return found

    first = propose()
    assert len(first) == 40 and first == propose()  # an interrupted search asks the same again
    far = [fmean(abs(x - 7) for x in part) for part in (first[:10], first[-20:])]
    assert far[1] < 0.7 * far[0]
    assert len(propose(worst=2.0)) == 40  # failed ones are told as such


def test_optuna_is_told_equal_proposals_without_running_them_again() -> None:
    pytest.importorskip("optuna")
    proposals, scores = OptunaProposals(read_space({"a": [1, 2]}, "f"), 9, 3, seed=0, higher=True), {}
    while new := proposals(scores):
        for item in new:
            assert item.number not in scores
            scores[item.number] = 1.0
    assert len(scores) == 2


def test_the_folder_of_results_may_be_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # jobs, to which it is given as an argument, write there
    (tmp_path / "search.yaml").write_text(yaml.safe_dump({**SEARCH, "output_dir": "~/found"}))
    assert read_search(str(tmp_path / "search.yaml"), (), {}).output_dir == tmp_path / "found"
