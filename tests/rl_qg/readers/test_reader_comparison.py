"""Readers compared question by question, at equal updates."""

from pathlib import Path

import pytest

from rl_qg.readers.comparison import compare_readers, count_updates, count_windows
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, write_json
from rl_qg.settings import QASettings
from tests.toy_reader import run, save_distilbert, toy_examples, toy_settings


def compare(baseline: Path, augmented: Path, output: Path) -> dict:
    return compare_readers({"gold": baseline, "scst": augmented}, output)


def write_folder(
    folder: Path,
    rows: dict[str, tuple[float, float]],
    *,
    data: str = "d",
    passages: dict[str, str] | None = None,
) -> Path:
    means = {
        name: 100 * sum(row[i] for row in rows.values()) / len(rows) for i, name in enumerate(("exact_match", "f1"))
    }
    metrics = {**means, "seeds": [{"seed": 0, **means}], "intervals": {}, "model": "m", "data": {"validation": data}}
    write_json(folder / "qa_metrics.json", metrics)
    scores = {key: {"exact_match": em, "f1": f1} for key, (em, f1) in rows.items()}
    for key, passage in (passages or {}).items():
        scores[key]["passage"] = passage
    write_json(folder / "question_scores.json", scores)
    return folder


def test_compare_pairs_by_question_whatever_their_order(tmp_path) -> None:
    gold = {f"q{i}": (float(i % 2), 0.5) for i in range(40)}
    # Ten of forty questions get better by one whole match; F1 rises by 0.25 on each question.
    augmented = {key: (1.0 if i < 20 else em, f1 + 0.25) for i, (key, (em, f1)) in enumerate(gold.items())}
    shuffled = dict(reversed(augmented.items()))
    baseline_dir, augmented_dir = write_folder(tmp_path / "a", gold), write_folder(tmp_path / "b", shuffled)
    result = compare(baseline_dir, augmented_dir, tmp_path / "compare.json")
    assert result == read_json(tmp_path / "compare.json")
    assert result["difference"]["f1"] == {"mean": 25.0, "low": 25.0, "high": 25.0, "n": 40, "passages": 40}
    assert (result["resampled"], result["passages"]) == ("questions", None)  # the folders do not name passages
    matches = result["difference"]["exact_match"]
    # 95 % of the means of 40 draws with chance 1/4 lie within 25 ± 1.96 * sqrt(0.25 * 0.75 / 40) * 100 = 25 ± 13.4.
    assert matches["mean"] == 25.0
    assert matches["low"] == pytest.approx(25 - 13.4, abs=2.6) and matches["high"] == pytest.approx(25 + 13.4, abs=2.6)
    assert (result["baseline"]["exact_match"], result["augmented"]["exact_match"]) == (50.0, 75.0)
    assert result["augmented"]["seeds"] == [{"seed": 0, "exact_match": 75.0, "f1": 75.0}]
    backwards = compare(augmented_dir, baseline_dir, tmp_path / "backwards.json")
    assert backwards["difference"]["f1"]["mean"] == -25.0


def test_compare_resamples_passages_where_the_folders_name_them(tmp_path) -> None:
    """Four questions a passage with one gain each: as wide as the passages alone. 40 questions that are passages
    themselves have half the spread, and are widened less: √(10/9) · 2.262 against √(40/39) · 2.023 (Student's t).
    """
    gold = {f"q{i}": (0.0, 0.0) for i in range(40)}
    passages = {key: f"p{i // 4}" for i, key in enumerate(gold)}
    better = {key: (float(i // 4 < 5), 0.5) for i, key in enumerate(gold)}
    for name, rows in (("a", gold), ("b", better)):
        write_folder(tmp_path / name, rows, passages=passages)
        write_folder(tmp_path / f"{name} alone", rows)
        firsts = {key: row for i, (key, row) in enumerate(rows.items()) if i % 4 == 0}
        write_folder(tmp_path / f"{name} firsts", firsts)
    result = compare(tmp_path / "a", tmp_path / "b", tmp_path / "c.json")
    assert (result["resampled"], result["passages"]) == ("passages", 10)
    assert result["difference"]["f1"] == {"mean": 50.0, "low": 50.0, "high": 50.0, "n": 40, "passages": 10}
    of_questions = compare(tmp_path / "a alone", tmp_path / "b alone", tmp_path / "c.json")["difference"]
    of_firsts = compare(tmp_path / "a firsts", tmp_path / "b firsts", tmp_path / "c.json")["difference"]
    interval = result["difference"]["exact_match"]
    assert interval == {**of_firsts["exact_match"], "n": 40}
    alone = of_questions["exact_match"]
    widened = 2 * (10 / 9 * 39 / 40) ** 0.5 * 2.262 / 2.023
    assert interval["high"] - interval["low"] == pytest.approx(widened * (alone["high"] - alone["low"]), rel=0.1)


def test_compare_refuses_other_questions(tmp_path) -> None:
    first = write_folder(tmp_path / "a", {"q1": (1.0, 1.0), "q2": (0.0, 0.0)})
    second = write_folder(tmp_path / "b", {"q1": (1.0, 1.0), "q3": (0.0, 0.0), "q4": (0.0, 0.0)})
    text = r"other questions \(1 only in the first, 2 only in the second, such as q2\): score both on the same"
    with pytest.raises(InputError, match=text):
        compare(first, second, tmp_path / "compare.json")
    edited = write_folder(tmp_path / "c", {"q1": (1.0, 1.0), "q2": (0.0, 0.0)}, data="edited")
    with pytest.raises(InputError, match="questions of the same ids, but other content"):
        compare(first, edited, tmp_path / "compare.json")
    with pytest.raises(InputError, match=r"nothing/qa_metrics\.json: cannot be read"):
        compare(tmp_path / "nothing", first, tmp_path / "compare.json")
    assert not (tmp_path / "compare.json").exists()


RIGHT = {"gold": 10, "ce": 20, "scst": 15}


def test_three_readers_are_compared_in_pairs(tmp_path) -> None:
    """By hand: gold answers 10 of 40 questions, ce 20, scst 15; the interval is that of the two folders alone."""
    rows = {name: {f"q{i}": (float(i < right), i < right) for i in range(40)} for name, right in RIGHT.items()}
    folders = {name: write_folder(tmp_path / name, rows[name]) for name in RIGHT}
    result = compare_readers(folders, tmp_path / "three.json")
    assert list(result["differences"]) == ["ce - gold", "scst - gold", "scst - ce"]
    means = {pair: part["exact_match"]["mean"] for pair, part in result["differences"].items()}
    assert means == {"ce - gold": 25.0, "scst - gold": 12.5, "scst - ce": -12.5}
    assert result["differences"]["scst - ce"]["f1"]["high"] < 0 < result["differences"]["scst - gold"]["f1"]["low"]
    for pair in result["differences"]:
        later, earlier = pair.split(" - ")
        alone = compare(folders[earlier], folders[later], tmp_path / "two.json")
        assert alone["difference"] == result["differences"][pair]
    # tools of earlier versions read these three, which are gold and the final generator's
    assert result["difference"] == result["differences"]["scst - gold"]
    assert (result["baseline"], result["augmented"]) == (result["readers"]["gold"], result["readers"]["scst"])
    assert result["readers"]["ce"]["exact_match"] == 50.0
    with pytest.raises(InputError, match="needs two readers, got 1"):
        compare_readers({"gold": folders["gold"]}, tmp_path / "one.json")


@pytest.mark.parametrize(
    ("windows", "epochs", "batch_size", "processes", "expected"),
    [(48, 2.0, 16, 1, 6), (49, 2.0, 16, 1, 8), (49, 2.0, 16, 2, 4), (100, 0.5, 16, 1, 4), (3, 1.0, 16, 4, 1)],
)
def test_updates_are_counted_by_hand(windows, epochs, batch_size, processes, expected) -> None:
    settings = QASettings(epochs=epochs, batch_size=batch_size)
    assert count_updates(windows, settings, processes) == expected
    assert count_updates(windows, QASettings(max_steps=7), processes) == 7


@pytest.mark.slow
@pytest.mark.parametrize("count", [30, 48])
def test_updates_are_those_of_the_trainer(tmp_path, count) -> None:
    """As many as the library makes, on passages some of which need two windows."""
    settings = toy_settings(save_distilbert(tmp_path / "model", size=16), epochs=1.5, max_length=16, doc_stride=4)
    train = toy_examples(count, 1)
    result = run(tmp_path / "qa", settings, train)
    windows = count_windows(train, settings)
    assert windows == result["features"]["train"]["windows"] > count
    assert result["updates"] == count_updates(windows, settings, 1)
