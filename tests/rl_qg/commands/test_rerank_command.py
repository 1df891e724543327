"""`rl-qg generate rerank=…`, as a user types it, with the shipped miniatures."""

import json
from pathlib import Path

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.runtime.errors import InputError

OFFLINE = ["data=world", "data.world.train_passages=2", "training.use_cpu=true"]
GENERATE = [*OFFLINE, f"model.path={SHIPPED / 'bart'}", "num_beams=3", "max_new_tokens=8", "batch_size=4"]
METRIC = f"{{metric: bartscore, model: {SHIPPED / 'bart'}}}"


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.setattr("rl_qg.commands.cli._stay_offline_without_a_hub", lambda: None)


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_best_candidate_of_each_answer_is_the_one_that_score_likes_best(tmp_path):
    everything, best, scored = (tmp_path / name for name in ("all.jsonl", "best.jsonl", "scored.jsonl"))
    run_command("generate", [*GENERATE, f"output={everything}"])
    run_command("generate", [*GENERATE, f"rerank={METRIC}", "keep=1", f"output={best}"])
    score = ["reward=bartscore", f"reward.model={SHIPPED / 'bart'}", f"input={everything}", f"output={scored}"]
    run_command("score", [*OFFLINE, *score])
    groups: dict[str, list[tuple[float, str]]] = {}
    for row, result in zip(rows(everything), rows(scored), strict=True):
        groups.setdefault(row["id"], []).append((result["score"], row["question"]))
    assert len(groups) == len(rows(best)) > 2
    for row in rows(best):
        score_of_best, question = max(groups[row["id"]])
        assert row["question"] == question and row["reward"] == pytest.approx(score_of_best, abs=1e-4)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("[bleu4,rouge_l]", r"generate\.rerank=.*give one metric; reward=weighted and reward=product combine several"),
        ("{metric: qrelscore, score: lrm}", r"generate\.rerank: score= is not known here"),
        ("bleu4", r"compares with human questions, and example .* has none; choose a reward without references"),
    ],
)
def test_an_unusable_metric_is_one_line(tmp_path, entry, message):
    passages = tmp_path / "answers.jsonl"
    record = {"id": "a", "context": "Ilva was born in Tessel.", "answers": {"text": ["Ilva"], "answer_start": [0]}}
    passages.write_text(json.dumps(record) + "\n")
    with pytest.raises(InputError, match=message):
        arguments = [f"data.train={passages}", f"rerank={entry}", f"output={tmp_path / 'q.jsonl'}"]
        run_command("generate", [*GENERATE[2:], *arguments])


def test_a_sample_of_the_answers_is_the_same_for_the_same_seed(tmp_path):
    everything, some, again = (tmp_path / name for name in ("all.jsonl", "some.jsonl", "again.jsonl"))
    for output, more in ((everything, []), (some, ["max_answers=2"]), (again, ["max_answers=2"])):
        run_command("generate", [*GENERATE, *more, f"output={output}"])
    assert rows(some) == rows(again) and len(rows(some)) == 2 * 3
    assert len(rows(everything)) > len(rows(some))
    asked = {row["id"] for row in rows(some)}
    same = [row for row in rows(everything) if row["id"] in asked]
    assert [row["question"] for row in same] == [row["question"] for row in rows(some)]
