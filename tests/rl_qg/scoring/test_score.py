"""Scoring a file: every row once, in order, by one metric."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from accelerate import PartialState

from rewards.errors import MetricInputError
from rl_qg.commands.cli import run_command
from rl_qg.commands.compose import compose
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import write_squad
from rl_qg.data.question_tables import QuestionTable, TableRow
from rl_qg.data.splits import load_splits
from rl_qg.miniatures.cache import SHIPPED, is_shipped, text_hash
from rl_qg.miniatures.in_settings import reward_with_miniatures, with_miniatures
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.score_file import score_file
from tests.toy_scores import Length, lines_of, rows, score


def test_rows_keep_their_fields_and_gain_score_and_parts(tmp_path: Path) -> None:
    output = tmp_path / "new" / "scored.jsonl"
    summary = score(rows(tmp_path / "in.jsonl"), output)
    lines = lines_of(output)
    assert [row["score"] for row in lines] == [k / 3 for k in range(7)]  # exactly equal: JSON keeps every digit
    assert [row["parts"]["answer"] for row in lines] == [f"a{k}" for k in range(7)]
    fields = [{name: value for name, value in row.items() if name not in ("score", "parts")} for row in lines]
    assert fields == lines_of(tmp_path / "in.jsonl")
    assert summary["complete"] and summary["rows"] == 7 and summary["signature"] == "length"
    assert summary["score"]["mean"] == pytest.approx(1.0)
    assert json.loads((tmp_path / "new" / "scored.summary.json").read_text()) == summary


def test_letters_are_written_as_they_are(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"question": "Où?", "context": "Łódź", "answer": "Łódź"}) + "\n")
    score(source, tmp_path / "out.jsonl")
    assert '"context": "Łódź"' in (tmp_path / "out.jsonl").read_text(encoding="utf-8")


def test_an_invalid_output_is_one_line(tmp_path: Path) -> None:
    source = rows(tmp_path / "in.jsonl")
    before = source.read_bytes()
    with pytest.raises(InputError, match="write over the input"):
        score(source, tmp_path / "sub" / ".." / "in.jsonl")
    summary = rows(tmp_path / "a.summary.json")
    with pytest.raises(InputError, match=r"write over the input .*a\.summary\.json"):
        score(summary, tmp_path / "a.jsonl")
    for name in ("scored.json", "scored.jsonl.gz", "scored"):
        with pytest.raises(InputError, match=r"ends in \.jsonl"):
            score(source, tmp_path / name)
    with pytest.raises(InputError, match="cannot be written"):
        score(source, source / "scored.jsonl")
    assert source.read_bytes() == before


@pytest.mark.parametrize("bounds", [np.array([0.0, 3.0]), ("0", "3")])
def test_bounds_are_what_reads_as_two_numbers(tmp_path: Path, bounds: Any) -> None:
    reward, usual = Length(), Length()
    reward.bounds, usual.bounds = bounds, (0.0, 3.0)  # type: ignore[attr-defined]
    source = rows(tmp_path / "in.jsonl")
    found = [score(source, tmp_path / f"{name}.jsonl", reward=one) for name, one in (("a", reward), ("b", usual))]
    assert found[0]["score"] == found[1]["score"]


def needing(*needs: str) -> Any:
    class Needing(Length):
        name = "mymetric"

    reward = Needing()
    reward.needs = frozenset(needs)
    return reward


@pytest.mark.parametrize(
    ("line", "needs", "message"),
    [
        ({"question": 3}, (), "'question' is missing or no text, and every metric needs it"),
        ({"question": None}, (), "'question' is missing"),
        ({"context": None}, ("contexts",), "'context' is missing or no text, and mymetric needs it; the row has 'que"),
        ({"context": "half \ud800"}, ("contexts",), "'context' is missing or no text"),
        ({"answer": None}, ("contexts", "answers"), "'answer' is missing or no text that .*mymetric needs it"),
        ({"answer": " "}, ("answers",), "'answer' is missing"),
        ({"answer": None, "answers": {"text": []}}, ("answers",), "'answer' is missing"),
        ({"references": []}, ("references",), "'references' is missing or no list of texts, one at least"),
        ({"references": ["r", 1]}, ("references",), "'references' is missing or no list of texts"),
        ({"references": ["", "  "]}, ("references",), "'references' is missing .* one at least not blank, and"),
        ({"score": 1, "earlier_score": 1}, (), "has fields 'score' and 'earlier_score'"),
        ({"parts": 1, "earlier_parts": 1}, (), "has fields 'parts' and 'earlier_parts'"),
    ],
)
def test_bad_rows_are_named_before_anything_is_scored(tmp_path: Path, line: Any, needs: Any, message: str) -> None:
    source, reward = tmp_path / "in.jsonl", needing(*needs)
    good = {"question": "q", "context": "c", "answer": "a", "references": ["r"]}
    source.write_text("\n".join(json.dumps(row) for row in (good, {**good, **line})) + "\n")
    with pytest.raises(InputError, match=r"in\.jsonl: line 2: (field )?" + message) as error:
        score(source, tmp_path / "out.jsonl", reward)
    assert "\n" not in str(error.value)
    assert reward.seen == 0 and list(tmp_path.iterdir()) == [source]


def test_columns_that_a_metric_does_not_need_are_not_checked(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"question": "q", "context": 3, "references": "r"}\n')
    assert score(source, tmp_path / "a.jsonl", needing("references"))["rows"] == 1
    assert score(source, tmp_path / "b.jsonl", needing())["rows"] == 1


def test_a_reward_without_needs_gets_the_columns_that_every_row_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reward = Length()
    score(rows(tmp_path / "in.jsonl", 2), tmp_path / "a.jsonl", reward)
    assert reward.answers == ["a0", "a1"]
    with (tmp_path / "in.jsonl").open("a") as stream:
        stream.write('{"question": "q", "context": "c"}\n')
    score(tmp_path / "in.jsonl", tmp_path / "b.jsonl", reward, batch_size=1)
    assert reward.answers is None
    assert "2 of 3 rows have answer, so the reward gets none" in caplog.text


def test_an_empty_input_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("\n\n")
    with pytest.raises(InputError, match=r"in\.jsonl: holds no row to score"):
        score(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_fields_that_are_not_finite_are_null(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(
        '{"question": "q", "context": "c", "loss": NaN, "deep": {"all": [1.5, -Infinity, [Infinity]]}}\n'
    )
    score(source, tmp_path / "out.jsonl")
    (row,) = lines_of(tmp_path / "out.jsonl")
    assert row["loss"] is None and row["deep"] == {"all": [1.5, None, [None]]}


def test_scores_that_are_not_finite_are_null_and_counted(tmp_path: Path) -> None:
    class Sparse(Length):
        def score(self, questions, contexts, **columns) -> Any:
            scores = [None, math.nan, -math.inf, np.float64(0.1), 4, 0.3, math.inf]
            return SimpleNamespace(scores=scores, parts={"x": np.array([math.nan, 1, 2, 3, 4, 5, 6])})

    output = tmp_path / "out.jsonl"
    summary = score(rows(tmp_path / "in.jsonl"), output, Sparse(), batch_size=7)
    assert [row["score"] for row in lines_of(output)] == [None, None, None, 0.1, 4, 0.3, None]
    assert (summary["rows"], summary["without_score"], summary["score"]["n"]) == (7, 4, 3)
    assert summary["parts"] == {"x": {"mean": pytest.approx(3.5), "n": 6}}
    assert "NaN" not in output.read_text() and "Infinity" not in output.read_text()


def test_a_file_in_which_no_row_has_a_score(tmp_path: Path) -> None:
    class Silent(Length):
        def score(self, questions, contexts, **columns) -> Any:
            return SimpleNamespace(scores=[None] * len(questions))

    with pytest.raises(InputError, match=r"out\.jsonl: no row has a finite score; length fails on all of them"):
        score(rows(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", Silent())
    summary = json.loads((tmp_path / "out.summary.json").read_text())
    assert (summary["without_score"], summary["score"], summary["parts"]) == (7, None, {})


def test_an_error_names_a_reward_with_too_few_scores_and_refused_rows(tmp_path: Path) -> None:
    class Short(Length):
        def score(self, questions, contexts, **columns) -> Any:
            return SimpleNamespace(scores=[1.0])

    class Refuses(Length):
        def score(self, questions, contexts, **columns) -> Any:
            raise MetricInputError("answers[1] is empty")

    source = rows(tmp_path / "in.jsonl")
    with pytest.raises(InputError, match="Short: score returned 1 scores for 3 questions"):
        score(source, tmp_path / "out.jsonl", Short())
    with pytest.raises(InputError, match=r"in\.jsonl: line 1 to .*in\.jsonl: line 3: answers\[1\] is empty"):
        score(source, tmp_path / "out.jsonl", Refuses())


def test_memory_holds_no_more_rows_than_a_batch(tmp_path: Path) -> None:
    alive: WeakSet[TableRow] = WeakSet()

    class Tracked(TableRow):
        __hash__ = object.__hash__

    class Endless(QuestionTable):
        def __iter__(self) -> Iterator[TableRow]:
            for k in range(500):
                row = Tracked(f"row {k}", {"question": "q" * (k % 9), "context": "c"})
                alive.add(row)
                assert len(alive) <= batch_size + 1  # and the one being read
                yield row
                del row

    batch_size = 8
    sizes = []

    class Metric(Length):
        def score(self, questions, contexts, **columns) -> Any:
            sizes.append(len(questions))
            assert len(alive) == len(questions)
            return super().score(questions, contexts, **columns)

    source = Endless(rows(tmp_path / "in.jsonl"))
    score_file(Metric(), source, tmp_path / "out.jsonl", batch_size=batch_size, state=PartialState(cpu=True))
    assert sum(sizes) == 500 and max(sizes) == batch_size


def test_lone_surrogates_in_other_fields_are_question_marks(tmp_path: Path) -> None:
    source = rows(tmp_path / "in.jsonl", 2, note="x")
    source.write_text(source.read_text(encoding="utf-8").replace('"x"', '"\\ud800"'), encoding="utf-8")
    output = tmp_path / "out.jsonl"
    score(source, output)
    score(source, output)
    assert [row["note"] for row in lines_of(output)] == ["?"] * 2  # strict readers refuse a lone surrogate


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_qg.commands.cli._stay_offline_without_a_hub", lambda: None)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


PASSAGE = "Ada Bell was born in Lorn in 1906. She wrote the novel Grey Water."


def test_the_command_with_the_shipped_miniatures(
    offline: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`preset=quickstart` finds its metric models, and the scores are those of the metric in Python."""
    from rewards import QAScore

    questions, answers = ["Who wrote Grey Water?", "When was Ada Bell born?"], ["Ada Bell", "1906"]
    for name, items in {"q": questions, "c": [PASSAGE] * 2, "a": answers}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(items), encoding="utf-8")
    files = f"{{question: {tmp_path}/q.txt, passage: {tmp_path}/c.txt, answer: {tmp_path}/a.txt}}"
    output = tmp_path / "scored.jsonl"
    with caplog.at_level("INFO"):
        run_command(
            "score",
            [
                "preset=quickstart",
                "reward=qascore",
                f"input={files}",
                "columns={context: passage}",
                f"output={output}",
            ],
        )
    expected = QAScore(model=str(SHIPPED / "roberta")).score(questions, [PASSAGE] * 2, answers=answers)
    lines = lines_of(output)
    assert [row["score"] for row in lines] == expected.scores
    assert [row["parts"]["token_logprobs"] for row in lines] == expected.parts["token_logprobs"]
    assert [list(row) for row in lines] == [["question", "passage", "answer", "score", "parts"]] * 2
    assert "rows       2, 0 of them without a score" in caplog.text and "mean  " in caplog.text


@pytest.mark.slow
def test_scoring_uses_the_miniatures_of_a_run_on_the_same_data(
    offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With others the score would differ from the reward of that run."""
    from accelerate import PartialState

    requests: list[Any] = []

    def ensure(paths: list[str], text: list[Any], sizes: Any) -> dict[str, Path]:
        requests.append((text, sizes))
        return {path: Path("/cache", path.removeprefix("miniature:")) for path in paths}

    monkeypatch.setattr("rl_qg.miniatures.cache.ensure_miniatures", ensure)
    for name, passages in {"train": 6, "dev": 2}.items():
        write_squad(tmp_path / f"{name}.json", synthetic_examples(passages, seed=0, prefix=name))
    sources = [f"data.train={tmp_path}/train.json", f"data.validation={tmp_path}/dev.json"]
    settings = compose("score", ["model=miniature", "data.labelled_fraction=0.5", *sources])
    splits = load_splits(settings.data)
    run = with_miniatures(settings, [*splits.gold, *splits.unlabelled], PartialState(cpu=True))
    assert reward_with_miniatures(settings) == run.reward
    assert requests[0] == requests[1] and len(requests[0][0]) == 6
    quickstart = reward_with_miniatures(compose("score", ["preset=quickstart", "reward=qrelscore"]))
    assert quickstart["encoder"] == "/cache/bert"
    shipped = compose("score", ["preset=quickstart"]).miniature
    assert is_shipped("bert", text_hash(requests[2][0]), requests[2][1]) and requests[2][1] == shipped
    named = compose("score", ["reward.encoder=a", "reward.decoder=b"])
    assert reward_with_miniatures(named) == named.reward and len(requests) == 3
    packaged = compose("score", ["reward=reader", "reward_models.reader=packaged:english/reader"])
    assert Path(reward_with_miniatures(packaged)["model"]).is_dir()  # it needs no training data


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["output=o.jsonl"], "input has no value"),
        (["input=[a.jsonl,b.jsonl]", "output=o.jsonl"], "give one file, or text files by column"),
        (["input=no.jsonl", "output=o.jsonl"], r"no\.jsonl: no such file"),
        (["input=no.jsonl"], "output has no value"),
        (["input=x", "output=o.jsonl", "batch_size=0"], "score.batch_size=0 must be at least 1"),
        (["input=x", "output=o.jsonl", "columns.quesion=a"], "no key or group .score.columns.quesion"),
    ],
)
def test_wrong_arguments_are_one_line(offline: None, arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        run_command("score", ["preset=quickstart", *arguments])
    assert "\n" not in str(error.value)
