"""The judge in commands: scores of a file, and training that ends when the budget does."""

import json
from pathlib import Path

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.runtime.errors import InputError
from tests.bad_input.workspace import ROW
from tests.chat_server import chat_server, completion

SECRET = "sk-not-to-be-seen"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    rows = [{**ROW, "id": str(number), "question": f"Who wrote it {number}?"} for number in range(3)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def score(url, *more):
    options = ["reward.criteria=[fluency]", "reward.kept=kept", "questions=questions.jsonl", "output=scored.jsonl"]
    run_command("score", ["reward=judge", f"reward.url={url}", "reward.model=m", *options, *more])


def test_score_goes_on_after_the_budget_and_the_key_is_nowhere(tmp_path):
    with chat_server(lambda body: completion("4")) as chat:
        with pytest.raises(InputError, match="budget of 100 tokens"):
            score(chat.url, "reward.budget=100", "batch_size=1", "reward.concurrency=1")
        assert len(chat.requests) == 1
        score(chat.url, "batch_size=1")
        assert len(chat.requests) == 3
    rows = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
    assert [row["score"] for row in rows] == [4.0] * 3 and rows[0]["parts"] == {"fluency": 4.0}
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_judge_elsewhere_needs_consent_also_in_a_list_of_metrics_and_in_a_sum():
    elsewhere = "https://judge.example.org/v1"
    with pytest.raises(InputError, match="add yes=true"):
        score(elsewhere)
    listed = [f"metrics=[{{metric: judge, url: '{elsewhere}', model: m}}]", "questions=questions.jsonl", "output=o"]
    with pytest.raises(InputError, match="add yes=true"):
        run_command("evaluate", listed)
    parts = f"reward.parts={{judge:{{url:'{elsewhere}',model:m}},form:{{}}}}"
    with pytest.raises(InputError, match="add yes=true"):
        run_command("train", ["preset=smoke", "reward=product", parts, "output_dir=run"])


def test_a_training_that_the_budget_has_ended_goes_on_to_the_same_result():
    def results(run):
        lines = [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]
        timed = ("seconds_", "samples_per_second", "eval_runtime", "eval_samples_per", "eval_steps_per")
        kept = [{name: value for name, value in line.items() if not name.startswith(timed)} for line in lines]
        files = [Path(run, name).read_bytes() for name in ("samples.jsonl", "scst/model.safetensors")]
        return kept, files

    with chat_server(lambda body: completion(str(1 + len(body["messages"][0]["content"]) % 5))) as chat:

        def train(run, *more):
            options = ["reward=judge", f"reward.url={chat.url}", "reward.model=m", "reward.criteria=[fluency]"]
            options += [f"reward.kept={run}-kept", "reward.concurrency=1", "training.save_steps=100"]
            run_command("train", ["preset=smoke", "training.use_cpu=true", *options, f"output_dir={run}", *more])

        train("whole")
        asked = len(chat.requests)
        with pytest.raises(InputError, match=r"budget of [\d,]+ tokens.*the same command goes on"):
            train("cut", f"reward.budget={100 * (asked - 30)}")
        assert len([*Path("cut").glob("checkpoint-*/complete.json")]) == 1  # not where save_steps says
        train("cut", "reward.max_cost=1", "reward.input_price=1", "reward.output_price=1")
        assert len(chat.requests) == 2 * asked
    assert results("cut") == results("whole")


def test_training_ends_in_order_when_the_budget_is_spent():
    with chat_server(lambda body: completion(str(3 + len(chat.requests) % 3))) as chat:
        options = ["reward=judge", f"reward.url={chat.url}", "reward.model=m", "reward.criteria=[fluency]"]
        options += ["reward.kept=kept", "reward.budget=500", "output_dir=run", "training.use_cpu=true"]
        with pytest.raises(InputError, match="budget of 500 tokens"):
            run_command("train", ["preset=smoke", *options])
        assert 5 <= len(chat.requests) <= 5 + 8
