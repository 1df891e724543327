"""Number, types, sentences and repetitions of sets, human halves and the gap to the oracle, worked out by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewards.overlap.bleu import Bleu
from rl_qg.evaluation import sets
from rl_qg.evaluation.evaluate import evaluate
from rl_qg.evaluation.sets import asked_sentences, coverage, gap_files, gap_rows, halves, measure_rows
from rl_qg.runtime.errors import InputError
from rl_qg.settings import EvaluateSettings
from rl_qg.stats.intervals import PassageDraws, interval_ends
from tests.toy_metrics import write_lines

CONTEXTS = ["The mill burned in May. Anna rebuilt the house.", "A red boat sank. Many saw it.", "Snow fell."]
HUMAN = [
    ["When did the mill burn?", "Who rebuilt it for Anna?", "What burned in May?"],
    ["Which boat sank?", "Who saw it?"],
    ["What fell?"],
]
ASKED = [["Who rebuilt the house?", "who rebuilt the house ?"], ["What boat sank?", "What sank?", "Where?"], []]


def values(rows: list[dict[str, Any]], file: str) -> dict[tuple[str, str], float]:
    return {(row["metric"], row["part"]): row["value"] for row in rows if row["predictions"] == file}


def test_measures_worked_out_by_hand() -> None:
    draws = PassageDraws(range(3), resamples=50)
    rows = measure_rows({"one": ASKED}, HUMAN, CONTEXTS, draws)
    one, human = values(rows, "one"), values(rows, "human questions")
    # different questions: 1, 3, 0; references: 3, 2, 1
    assert one["number of questions", "mean"] == pytest.approx(4 / 3)
    assert one["number of questions", "absolute difference"] == pytest.approx((2 + 1 + 1) / 3)
    assert one["number of questions", "correlation"] == pytest.approx(np.corrcoef([1, 3, 0], [3, 2, 1])[0, 1])
    assert one["repeated questions", "share"] == pytest.approx(1 / 5)
    # five questions: who 2, what 2, where 1; six human ones: when 1, who 2, what 2, which 1
    shares = {kind: one["nine types", kind] for kind in ("who", "what", "where", "when", "which")}
    assert shares == pytest.approx({"who": 0.4, "what": 0.4, "where": 0.2, "when": 0, "which": 0})
    assert one["nine types", "distance"] == pytest.approx((2 * (0.4 - 1 / 3) + 0.2 + 1 / 6 + 1 / 6) / 2)
    # of the first passage one of two sentences, of the second the first of two, of the third none of one
    assert one["sentences", "coverage"] == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    assert human["number of questions", "mean"] == 2 and human["nine types", "when"] == pytest.approx(1 / 6)
    assert ("nine types", "distance") not in human and ("sentences", "coverage") not in human


def test_intervals_are_those_of_passages_drawn_one_by_one() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 6, (12, 2))
    sets, human = ([[f"what {n}?" for n in range(count)] for count in column] for column in counts.T)
    draws = PassageDraws(range(12), resamples=60, seed=3)
    rows = measure_rows({"one": sets}, human, ["A passage."] * 12, draws)
    (row,) = [row for row in rows if row["part"] == "correlation"]
    slow = []
    for weights in np.concatenate(list(draws.blocks())):
        drawn = np.repeat(counts, weights.astype(int), axis=0)
        slow.append(np.corrcoef(drawn.T)[0, 1])
    assert row["value"] == pytest.approx(slow[0])
    assert (row["low"], row["high"]) == pytest.approx(interval_ends(np.array(slow), 12, bounds=(-1.0, 1.0)))


def test_the_correlation_of_the_numbers_is_never_above_1() -> None:
    counts = [5, 1, 5, 3, 4, 4, 2, 6, 1]
    sets = [[f"what {n}?" for n in range(count)] for count in counts]
    human = [[f"who {n}?" for n in range(3 * count)] for count in counts]
    rows = measure_rows({"one": sets}, human, ["A passage."] * 9, PassageDraws(range(9), resamples=60))
    (row,) = [row for row in rows if row["part"] == "correlation"]
    assert row["value"] <= 1  # 1.0000000000000004 before
    assert row["value"] == pytest.approx(1)


def test_intervals_of_counts_do_not_go_below_zero() -> None:
    """Of three passages one has all questions: intervals as wide as that would begin below 0."""
    sets = [[], [], [f"what {n}?" for n in range(9)]]
    rows = measure_rows({"one": sets}, [["Who?"]] * 3, ["A passage."] * 3, PassageDraws(range(3), resamples=200))
    found = {row["part"]: row for row in rows if row["predictions"] == "one"}
    for part, value in (("mean", 9 / 3), ("absolute difference", (1 + 1 + 8) / 3)):
        assert found[part]["value"] == pytest.approx(value)
        assert found[part]["low"] == 0 and found[part]["high"] > 9


@pytest.mark.parametrize(
    ("question", "sentence"),
    [("Who rebuilt it?", 1), ("What burned in May?", 0), ("What is the colour of the house?", 1), ("Why?", None)],
)
def test_a_question_is_about_the_sentence_with_most_of_its_words(question: str, sentence: int | None) -> None:
    assert asked_sentences([question], CONTEXTS[0]) == [sentence]


def test_coverage_is_of_sentences_that_people_ask_about() -> None:
    assert coverage(["Who saw the red boat sink?"], ["Who saw it?", "Which boat sank?"], CONTEXTS[1]) == 0.5
    assert np.isnan(coverage(["Who saw it?"], ["Why?"], CONTEXTS[1]))


def test_intervals_of_coverage_are_of_the_passages_that_have_one() -> None:
    """People's questions share words with the passages 0 to 2 alone; of one passage alone there is no interval."""
    contexts, draws = [f"Ida saw boat {n}. It sank." for n in range(9)], PassageDraws(range(9), resamples=80, seed=2)
    asked, values = [["Did Ida see it?"], ["It sank when?"], ["Why?"], *[["Why?"]] * 6], [1.0, 0.0, 0.0]
    for known in (3, 1):
        human = [["What did Ida see?"]] * known + [["Why?"]] * (9 - known)
        rows = measure_rows({"one": asked}, human, contexts, draws)
        (row,) = [row for row in rows if row["part"] == "coverage"]
        assert row["value"] == pytest.approx(np.mean(values[:known])) and row["n"] == known
        if known == 1:
            assert (row["low"], row["high"], row["why"]) == (None, None, "no interval: one passage alone")
            continue
        weights = np.concatenate(list(draws.blocks()))[:, :3]
        with np.errstate(invalid="ignore"):
            slow = weights @ values / weights.sum(axis=1)
        assert (row["low"], row["high"]) == pytest.approx(interval_ends(slow, 3, bounds=(0.0, 1.0)))


def test_halves_split_the_questions_of_each_passage() -> None:
    drawn = halves(HUMAN, CONTEXTS, seed=0)
    assert [(number, len(one), len(other)) for number, one, other in drawn] == [(0, 1, 2), (1, 1, 1)]
    assert all(sorted([*one, *other]) == sorted(HUMAN[number]) for number, one, other in drawn)
    assert halves(HUMAN[:1], CONTEXTS[:1], seed=0) == drawn[:1], "other passages change nothing"
    assert halves([HUMAN[0][::-1]], CONTEXTS[:1], seed=0) == drawn[:1], "nor does the order of the questions"
    assert len({str(halves(HUMAN[:1], CONTEXTS[:1], seed)[0][1]) for seed in range(20)}) == 3, "every choice occurs"


def test_the_gap_to_the_oracle() -> None:
    draws = PassageDraws(range(2), resamples=20)
    scores = {"r": np.array([0.1, 0.3]), "o": np.array([0.5, 0.7]), "mine": np.array([0.5, 0.5])}
    (row,) = gap_rows("m", scores, ("r", "o"), draws)
    assert row["predictions"] == "mine" and row["value"] == pytest.approx((0.5 - 0.2) / (0.6 - 0.2))
    (row,) = gap_rows("m", scores, ("o", "r"), draws)
    assert row["value"] is None, "nothing lies between them"


@pytest.mark.parametrize(
    ("gap", "message"),
    [
        ("rand", "gap=rand: give gap={random: NAME, oracle: NAME}"),
        ({"random": "a"}, "two names of predictions"),
        ({"random": "a", "oracle": "z"}, "z is none of a, b, c"),
        ({"random": "a", "oracle": "a"}, "needs two files"),
    ],
)
def test_a_gap_names_two_files(gap: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gap_files(gap, ["a", "b", "c"])
    assert gap_files(None, ["a"]) is None and gap_files({"random": "a", "oracle": "b"}, ["a", "b", "c"]) == ("a", "b")


def run(folder: Path, files: dict[str, list[dict[str, Any]]], **options: Any) -> dict[str, Any]:
    folder.mkdir()
    gold = [
        {"id": f"{at}-{n}", "context": context, "question": question, "answers": {"text": ["a"], "answer_start": [0]}}
        for at, (context, questions) in enumerate(zip(CONTEXTS, HUMAN, strict=True))
        for n, question in enumerate(questions)
    ]
    paths = {name: str(write_lines(folder / f"{name}.jsonl", rows)) for name, rows in files.items()}
    references = str(write_lines(folder / "gold.jsonl", gold))
    settings = EvaluateSettings(predictions=paths, references=references, sets=True, resamples=40, **options)
    return evaluate({"bleu": Bleu(1, "coco")}, settings, folder / "out")


SETS = [
    {"context": context, "questions": [{"question": question, "score": 1.0} for question in questions], "pool": 9}
    for context, questions in zip(CONTEXTS, ASKED, strict=True)
]


def test_a_file_of_sets_is_the_same_as_one_of_questions(tmp_path: Path) -> None:
    single = [
        {"context": context, "question": question, "references": human}
        for context, questions, human in zip(CONTEXTS, ASKED, HUMAN, strict=True)
        for question in questions
    ]
    folder = tmp_path / "rows"
    folder.mkdir()
    paths = {"one": str(write_lines(folder / "one.jsonl", single))}
    settings = EvaluateSettings(predictions=paths, sets=True, resamples=40)
    rows = evaluate({"bleu": Bleu(1, "coco")}, settings, folder / "out")
    sets = run(tmp_path / "sets", {"one": SETS[:2]})
    for key in ("sets", "set_measures", "scores"):
        assert sets[key] == rows[key], key
    assert sets["set_counts"]["left_out"] == 1


def test_an_empty_set_counts(tmp_path: Path) -> None:
    record = run(tmp_path / "run", {"one": SETS})
    assert record["set_counts"] == {"passages": 3, "without_questions": {"one": 1}, "left_out": 0}
    assert record["counts"]["one"]["questions"] == 5
    recall = next(row for row in record["sets"] if row["part"] == "recall")
    two = run(tmp_path / "two", {"one": SETS[:2]})
    assert recall["value"] == pytest.approx(2 / 3 * next(r for r in two["sets"] if r["part"] == "recall")["value"])


def test_the_record_has_halves_and_the_gap(tmp_path: Path) -> None:
    human = [{"context": c, "questions": h} for c, h in zip(CONTEXTS, HUMAN, strict=True)]
    record = run(
        tmp_path / "run",
        {"r": [{**row, "questions": ["Where?"]} for row in SETS], "one": SETS, "o": human},
        gap={"random": "r", "oracle": "o"},
    )
    rows = {(row["predictions"], row["metric"], row["part"]): row for row in record["set_measures"]}
    f1 = {row["predictions"]: row["value"] for row in record["sets"] if (row["metric"], row["part"]) == ("bleu", "f1")}
    assert f1["o"] == pytest.approx(1)
    gap = rows["one", "bleu", "gap closed"]["value"]
    assert gap == pytest.approx((f1["one"] - f1["r"]) / (f1["o"] - f1["r"]))
    # the second passage: "Which boat sank?" against "Who saw it?" shares nothing
    assert 0 <= rows["human halves", "bleu", "f1"]["value"] < 0.5
    text = (tmp_path / "run" / "out" / "evaluate.txt").read_text()
    assert "Number, types and sentences of the sets" in text and "gap closed" in text
    assert (tmp_path / "run" / "out" / "tables" / "set_measures.csv").read_text().count("\n") == 1 + len(rows)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"questions": "Who?"}, "line 1: 'questions' is no list"),
        ({"questions": [{"text": "Who?"}]}, "line 1: 'questions' is no list of texts, or of objects"),
        ({"questions": ["Who?"], "context": None}, "line 1: no 'context'"),
        ({"questions": ["Who?"], "context": "elsewhere"}, "line 1: no question in .* is about its passage"),
    ],
)
def test_a_damaged_set_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(tmp_path / "run", {"one": [{**SETS[0], **row}]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"page": "a.html"}, "add sets=true"),
        ({"page": "a.txt", "sets": True}, "ends in .html"),
        ({"gap": {"random": "a", "oracle": "b"}}, "add sets=true"),
    ],
)
def test_settings_of_sets(options: dict[str, Any], message: str) -> None:
    assert any(message in fault for fault in EvaluateSettings(**options).faults())


def test_the_pairs_of_the_page_are_those_of_all_assignments(tmp_path: Path) -> None:
    run(tmp_path / "run", {"one": SETS}, page="unused.html", page_passages=2)
    record = json.loads((tmp_path / "run" / "out" / "set_pairs.json").read_text())
    assert record["metric"] == "bleu" and record["of"] == 3
    assert [passage["context"] for passage in record["passages"]] == CONTEXTS[:2]
    first, second = (passage["files"]["one"] for passage in record["passages"])
    # the repetition has no partner; "Who rebuilt …" is nearest to "Who rebuilt it for Anna?"
    assert first["questions"] == ASKED[0] and [pair[:2] for pair in first["pairs"]] == [[0, 1]]
    assert sorted(pair[:2] for pair in second["pairs"])[0] == [0, 0]


def test_the_passages_of_the_page_are_spread_over_all(tmp_path: Path) -> None:
    contexts = [f"Passage {number}." for number in range(9)]
    asked = [["Who saw it?"]] * 9
    whole = sets.PassageSets(contexts, asked, {"one": asked})
    sets.write_set_pairs(tmp_path, whole, {"bleu": Bleu(1, "coco")}, {}, 5)
    shown = json.loads((tmp_path / "set_pairs.json").read_text())["passages"]
    assert [passage["context"] for passage in shown] == [contexts[number] for number in (0, 1, 3, 5, 7)]


def test_the_draws_of_halves_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Counted(PassageDraws):
        def __init__(self, groups: Any, **options: Any) -> None:
            made.append(len(groups))
            super().__init__(groups, **options)

    monkeypatch.setattr(sets, "PassageDraws", Counted)
    whole = sets.PassageSets(CONTEXTS, HUMAN, {"one": ASKED})
    metrics = {f"bleu{order}": Bleu(order, "coco") for order in (1, 2, 3)}
    sets.set_record(whole, metrics, tmp_path / "set_scores", resamples=5, seed=0)
    assert made == [3, 2]  # two of the passages have questions for two halves


def test_a_file_named_as_the_human_questions_has_all_its_rows() -> None:
    rows = measure_rows({"human questions": ASKED}, HUMAN, CONTEXTS, PassageDraws(range(3), resamples=5))
    assert sum(row["part"] == "coverage" for row in rows) == 1
