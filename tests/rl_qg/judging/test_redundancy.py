"""Forward selection against least squares written out."""

import numpy as np
import pytest

from rl_qg.judging.redundancy import folds_of, forward_selection


def slow_error(table: np.ndarray, y: np.ndarray, fold: list[int]) -> float:
    x, folds = np.column_stack([np.ones(len(y)), table]), np.array(fold)
    squares = 0.0
    for held_out in set(fold):
        weights = np.linalg.lstsq(x[folds != held_out], y[folds != held_out], rcond=None)[0]
        squares += float(((y[folds == held_out] - x[folds == held_out] @ weights) ** 2).sum())
    return squares / len(y)


def test_steps_are_those_of_least_squares_on_held_out_folds() -> None:
    rng = np.random.default_rng(2)
    table = rng.normal(size=(90, 4)) * [1, 10, 0.1, 1] + [0, 5, 100, 0]
    y = table[:, 1] * 0.2 + table[:, 0] + rng.normal(size=90)
    fold = folds_of([str(k // 3) for k in range(90)], 5, 0)
    rows = forward_selection(table, y, ["a", "b", "c", "d"], [fold], 4)
    assert [row["metric"] for row in rows[:2]] == ["b", "a"] and len(rows) == 4
    base, chosen = slow_error(table[:, :0], y, fold), []
    for row in rows:
        chosen.append("abcd".index(row["metric"]))
        assert row["mse"] == pytest.approx(slow_error(table[:, chosen], y, fold))
        assert row["r2"] == pytest.approx(1 - row["mse"] / base)
        others = [slow_error(table[:, [*chosen[:-1], k]], y, fold) for k in range(4) if k not in chosen[:-1]]
        assert row["mse"] == pytest.approx(min(others))
    whole = np.column_stack([np.ones(90), table])
    left = y - whole @ np.linalg.lstsq(whole, y, rcond=None)[0]
    assert rows[-1]["r2_fitted"] == pytest.approx(1 - left @ left / ((y - y.mean()) @ (y - y.mean())))


def test_a_copy_adds_nothing_and_a_constant_is_never_added() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=60)
    rows = forward_selection(
        np.column_stack([x, 3 * x + 1, np.full(60, 7.0)]),
        x + rng.normal(size=60),
        ["x", "copy", "same"],
        [[k % 4 for k in range(60)]],
        3,
    )
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[1]["gain_r2"] == pytest.approx(0, abs=1e-9)


def test_a_passage_is_in_one_fold() -> None:
    groups = [str(k % 7) for k in range(40)]
    fold = folds_of(groups, 3, 1)
    assert len(set(zip(groups, fold, strict=True))) == 7 and set(fold) == {0, 1, 2}
    assert len(set(folds_of(["a", "b"], 10, 0))) == 2


NAMES = ["a", "b", "c", "d"]


def data(seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Two metrics that say nearly the same, and two that say little: selections differ between folds."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=60)
    table = np.column_stack([common + 0.5 * rng.normal(size=60), common + 0.5 * rng.normal(size=60)])
    table = np.column_stack([table, rng.normal(size=(60, 2))])
    return table, common + 0.3 * table[:, 2] + 0.5 * rng.normal(size=60)


def slow_path(table: np.ndarray, y: np.ndarray, fold: list[int], steps: int) -> list[int]:
    chosen: list[int] = []
    while len(chosen) < steps:
        left = [k for k in range(table.shape[1]) if k not in chosen]
        chosen.append(min(left, key=lambda k: slow_error(table[:, [*chosen, k]], y, fold)))
    return chosen


def test_repetitions_are_averaged_and_selections_counted() -> None:
    table, y = data()
    folds = [folds_of([str(k) for k in range(60)], 5, seed) for seed in range(10)]
    rows = forward_selection(table, y, NAMES, folds, 3)
    paths = [slow_path(table, y, fold, 3) for fold in folds]
    assert len({tuple(path) for path in paths}) > 1
    for step, row in enumerate(rows):
        counts = {NAMES[k]: [path[step] for path in paths].count(k) for k in {path[step] for path in paths}}
        assert row["chosen"] == counts and row["selections"] == 10
        assert counts[row["metric"]] == max(counts.values())
        errors = [slow_error(table[:, path[: step + 1]], y, fold) for path, fold in zip(paths, folds, strict=True)]
        bases = [slow_error(table[:, :0], y, fold) for fold in folds]
        assert row["mse"] == pytest.approx(np.mean(errors)) and row["mse_sd"] == pytest.approx(np.std(errors, ddof=1))
        assert row["r2"] == pytest.approx(1 - np.mean(np.divide(errors, bases)))
    assert rows[1]["gain_r2"] == pytest.approx(rows[1]["r2"] - rows[0]["r2"])


def test_under_training_a_fold_has_no_say_in_its_own_selection() -> None:
    table, y = data()
    fold = folds_of([str(k) for k in range(60)], 5, 3)
    (first, second) = forward_selection(table, y, NAMES, [fold], 2, "training")
    squares, paths, folds = [0.0, 0.0], [], np.array(fold)
    for held_out in range(5):
        rest = folds != held_out
        paths.append(slow_path(table[rest], y[rest], list(folds[rest]), 2))
        for step in (0, 1):
            x = np.column_stack([np.ones(60), table[:, paths[-1][: step + 1]]])
            weights = np.linalg.lstsq(x[rest], y[rest], rcond=None)[0]
            squares[step] += float(((y[~rest] - x[~rest] @ weights) ** 2).sum())
    assert [first["mse"], second["mse"]] == pytest.approx([squares[0] / 60, squares[1] / 60])
    assert first["selections"] == 5
    assert first["chosen"] == {NAMES[k]: [path[0] for path in paths].count(k) for k in {path[0] for path in paths}}
    assert len(first["chosen"]) > 1  # one fold's own selection differs
