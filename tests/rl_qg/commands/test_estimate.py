"""`rl-qg estimate`: what is said of a whole command from a little of its work."""

import json
import time
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from rl_qg.commands import estimate
from rl_qg.commands.compose import compose
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import write_squad
from rl_qg.data.splits import answer_spans, read_role, take
from rl_qg.runtime.files import read_json_lines, read_record, write_json
from rl_qg.runtime.operations import GPUS
from tests.bad_input.workspace import candidate
from tests.processes import rl_qg, user_environment


def made_up(rows_of: Any, each: float, once: float, of_evaluation: float = 0.0, total: int = 0) -> Any:
    """What `_run` returns of a command whose cost is known exactly: `once`, but not if bare, and `each`."""

    def run(*arguments: Any, bare: bool = True, count: bool = False) -> dict[str, Any]:
        share, rows = arguments[-1], rows_of(arguments[-1])
        seconds = 2.0 + each * rows + (0 if bare else once)  # 2 seconds to load a model
        found = {"share": share, "rows": rows, "seconds": seconds, "processor": 3 * seconds}
        if total:
            found |= {"total": total, "evaluation": of_evaluation}
        if count:
            rest = 0 if bare else 50
            counts = {"operations": 7.0 * rows + rest, "tokens": 5.0 * rows, "in_operations": 0.0}
            found["counts"] = counts | dict.fromkeys(GPUS, 0.25 * rows)
        return found

    return run


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this process had just begun."""
    monkeypatch.setattr("psutil.Process.create_time", lambda self: time.time())
    monkeypatch.setattr(estimate, "_processor", lambda: 0.0)


@pytest.mark.usefixtures("at_once")
def test_rows_are_extrapolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_squad(tmp_path / "train.json", synthetic_examples(400, seed=1))
    settings = compose("generate", ["model.path=x", f"data.train={tmp_path / 'train.json'}", "generate.batch_size=8"])
    total = estimate.work_of("generate", settings, tmp_path).total
    monkeypatch.setattr(estimate, "_run", made_up(lambda share: round(share * total), each=0.5, once=100.0))
    found = estimate.measure("generate", settings)
    assert found["total"] == total > 1000 and found["measured"] < total
    assert found["seconds"] == pytest.approx(0.5 * total + 102, abs=1)
    assert found["operations"] == pytest.approx(7 * total + 50)
    assert found["tokens"] == pytest.approx(5 * total)
    assert found["processor"] == pytest.approx(3 * (0.5 * total + 102))
    assert found["H100"] == pytest.approx(found["processor"] + 0.25 * total)


@pytest.mark.usefixtures("at_once")
def test_rows_that_come_in_passages_are_those_that_were_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two passages with 300 questions each, of which the smallest run has all of one."""
    one = next(synthetic_examples(1, seed=1))
    rows = [candidate(one) | {"candidate": rank} for rank in range(300)]
    rows += [row | {"context": f"{row['context']} Again."} for row in rows]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = compose("score", ["reward=bleu4", f"input={tmp_path / 'questions.jsonl'}", "score.batch_size=16"])
    work = estimate.work_of("score", settings, tmp_path)
    monkeypatch.setattr(estimate, "_run", made_up(work.rows, each=0.5, once=100.0))
    found = estimate.measure("score", settings)
    assert found["seconds"] == pytest.approx(0.5 * 600 + 102, abs=1)
    assert found["operations"] == pytest.approx(7 * 600 + 50)


@pytest.mark.usefixtures("at_once")
def test_evaluations_of_a_training_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10,000 updates with an evaluation every 500, a run of few has none of these 20."""
    monkeypatch.setattr(
        estimate,
        "_run",
        made_up(lambda share: max(1, round(share * 10_000)), each=0.5, once=100.0, of_evaluation=30.0, total=10_000),
    )
    found = estimate.measure("train", compose("train", ["data=world", "data.world.train_passages=20", "model.path=x"]))
    assert found["seconds"] == pytest.approx(0.5 * 10_000 + 102 + 20 * 30, abs=1)


def test_the_answers_of_a_share_are_counted(tmp_path: Path) -> None:
    """Each has two questions, and is asked about once: a sample of questions has fewer answers than questions."""
    examples = [*synthetic_examples(20, seed=1)]
    again = [replace(one, id=f"{one.id}-2", question=f"Again: {one.question}") for one in examples]
    write_squad(tmp_path / "train.json", [*examples, *again])
    settings = compose("generate", ["model.path=x", f"data.train={tmp_path / 'train.json'}"])
    work = estimate.work_of("generate", settings, tmp_path)
    assert work.total == len(answer_spans(examples))
    for share in (0.5, 1.0):
        questions = read_role(work.part(share).data, "train").examples
        sample = take(questions, ceil(share * work.total), settings.data.seed, "data.max_train", "")
        assert work.rows and work.rows(share) == len(answer_spans(sample)) < share * work.total


def test_a_score_is_measured_on_whole_passages(tmp_path: Path) -> None:
    """A share of the questions, all those about a passage together, each row as it was."""
    rows = [candidate(one) | {"candidate": rank} for one in synthetic_examples(20, seed=1) for rank in range(3)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = compose("score", ["reward=bleu4", f"input={tmp_path / 'questions.jsonl'}"])
    work = estimate.work_of("score", settings, tmp_path / "sample")
    (tmp_path / "sample").mkdir()
    kept = [row for _, row in read_json_lines(Path(work.part(0.3).score.input))]
    assert work.total == len(rows) and 0.3 * len(rows) <= len(kept) < 0.6 * len(rows)
    assert work.rows and work.rows(0.3) == len(kept) and work.rows(1.0) == len(rows)
    assert estimate._run("score", lambda _: None, settings, work, str(tmp_path), 0.3)["rows"] == len(kept)
    passages = {row["context"] for row in kept}
    assert kept == [row for row in rows if row["context"] in passages]


@pytest.mark.parametrize(
    ("given", "total"),
    [
        ([], 5 * 2),  # the library begins a pass anew
        (["ce.by_length=true"], ceil(2 * 17 / 16) + ceil(3 * 17 / 16)),
        (["stages=ce"], 2 * 2),
        (["stages=ce", "data.labelled_fraction=0.5"], ceil(2 * 17 / 16)),
        (["stages=ce", "data.labelled_fraction=0.5", "scst.unlabelled_share=0"], 2 * 2),
    ],
    ids=str,
)
def test_updates_are_counted_as_the_rows_are_ordered(tmp_path: Path, given: list[str], total: int) -> None:
    settings = compose("train", ["ce.epochs=2", "scst.epochs=3", "training.batch_size=16", *given])
    if settings.stages == "ce":
        settings.scst.epochs = 0.0  # as the command does
    unlabelled = 20 if settings.data.labelled_fraction < 1 else 0
    write_json(tmp_path / "run.json", {"examples": {"gold": 17, "unlabelled": unlabelled, "validation": 4}})
    write_json(tmp_path / "trained.json", {"model": "ce", "steps": 3})
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "eval_runtime": 2.0}\n')
    assert estimate._training(settings, tmp_path) == {"rows": 3, "total": total, "evaluation": 2.0}


@pytest.mark.slow
def test_the_updates_of_a_training_are_those_it_makes(tmp_path: Path) -> None:
    """Also where examples without questions are mixed in; and the whole estimate, in a pipe."""
    environment = user_environment(tmp_path)
    for number, more in enumerate(([], ["data.labelled_fraction=1.0", "scst.epochs=1.5"])):
        words = ["train", "preset=smoke", "evaluation.check_reward=0", *more]
        done = rl_qg(environment, "estimate", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert rl_qg(environment, *words, f"output_dir=run{number}", cwd=tmp_path).returncode == 0
        assert found["total"] == read_record(tmp_path / f"run{number}" / "trained.json")["steps"]
        assert found["estimates"].keys() == {"this machine", *GPUS}
        assert all(one["seconds"] > 1 and one["bytes"] > 1e8 for one in found["estimates"].values())
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("tmp")]
