"""The real entry commands, run as a user runs them."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_qg.commands.cli import main, run_command
from rl_qg.runtime.errors import InputError
from tests.processes import ROOT, command_line, rl_qg, start

SMOKE = ["preset=smoke"]


@pytest.fixture(scope="session")
def run(home: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished smoke pipeline."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    done = rl_qg(home, "pipeline", *SMOKE, f"output_dir={folder}", fresh=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """What a run must reproduce: everything except times, machines and checkpoints."""
    names = [
        "augmented.json",
        "augmented.ce.json",
        "questions.jsonl",
        "questions.ce.jsonl",
        "evaluation.json",
        "windows.json",
    ]
    names += [
        f"qa/{kind}/{name}" for kind in ("gold", "ce", "scst") for name in ("predictions.json", "model.safetensors")
    ]
    names += ["ce/model.safetensors", "scst/model.safetensors", "samples.jsonl"]
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.slow
def test_the_pipeline_writes_every_documented_file(run: Path) -> None:
    for name in (
        "config.yaml run.json ce/config.json scst/config.json metrics.jsonl samples.jsonl questions.jsonl "
        "augmented.json augmented.report.json questions.ce.jsonl augmented.ce.json augmented.ce.report.json "
        "qa/gold/qa_metrics.json qa/ce/qa_metrics.json qa/scst/qa_metrics.json "
        "qa/scst/predictions.json qa/comparison.json evaluation.json summary.json report.html"
    ).split():
        assert (run / name).exists(), name
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in steps if "loss" in line]
    assert {line["stage"] for line in logged} == {"ce", "scst"}
    last = logged[-1]
    assert last["lambda"] == 1.0
    required = "step epoch stage loss loss_ce loss_scst lambda reward_sample reward_greedy advantage grad_norm".split()
    assert set(required) <= last.keys()
    assert {"length_sample", "length_greedy", "seconds_rollout", "seconds_reward", "seconds_update"} <= last.keys()
    candidate = json.loads((run / "questions.jsonl").read_text().splitlines()[0])
    assert list(candidate) == ["id", "candidate", "title", "context", "answer", "answer_start", "question", "logprob"]
    augmented = json.loads((run / "augmented.json").read_text())
    ids = [qa["id"] for article in augmented["data"] for p in article["paragraphs"] for qa in p["qas"]]
    synthetic = [identity.startswith("synthetic-") for identity in ids]
    assert synthetic == sorted(synthetic) and any(synthetic) and not all(synthetic)  # gold first


@pytest.mark.slow
def test_models_load_with_the_auto_classes(run: Path) -> None:
    from transformers import AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM, AutoTokenizer

    for stage in ("ce", "scst"):
        AutoModelForSeq2SeqLM.from_pretrained(run / stage)
        assert "<hl>" in AutoTokenizer.from_pretrained(run / stage).get_vocab()
    AutoModelForQuestionAnswering.from_pretrained(run / "qa" / "scst")


@pytest.mark.slow
def test_the_same_command_again_changes_nothing(run: Path, home: dict[str, str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")}
    lines = (run / "metrics.jsonl").read_bytes()
    done = rl_qg(home, "pipeline", *SMOKE, f"output_dir={run}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")}
    assert (run / "metrics.jsonl").read_bytes() == lines


@pytest.mark.slow
@pytest.mark.parametrize("landmark", ["checkpoint-2", "scst", "augmented.json"])
def test_a_killed_pipeline_continues_and_ends_with_the_same_files(
    run: Path, home: dict[str, str], tmp_path: Path, landmark: str
) -> None:
    folder = tmp_path / "killed"
    process = start(command_line, "pipeline", *SMOKE, f"output_dir={folder}", environment=home)
    while not (folder / landmark).exists():
        assert process.poll() is None, "ended before it could be killed"
        time.sleep(0.01)
    process.kill()
    done = rl_qg(home, "pipeline", *SMOKE, f"output_dir={folder}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert contents(folder) == contents(run)
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    whole = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == whole


@pytest.mark.slow
def test_each_stage_runs_by_its_own_command(run: Path, home: dict[str, str], tmp_path: Path) -> None:
    gold = tmp_path / "gold.json"
    gold.write_text((run / "augmented.json").read_text().replace('"synthetic-', '"s-'))
    small = ["preset=smoke", f"data.train={gold}", f"data.validation={gold}"]
    questions, scored = tmp_path / "questions.jsonl", tmp_path / "scored.jsonl"
    commands = [
        [
            "generate",
            "preset=smoke",
            f"model.path={run}/scst",
            f"data.train={gold}",
            f"output={questions}",
            "num_beams=2",
        ],
        [
            "augment",
            f"questions={questions}",
            f"gold={gold}",
            f"output={tmp_path}/augmented.json",
            "num_samples=5",
            "filters=none",
        ],
        ["qa", *small, f"output_dir={tmp_path}/qa"],
        [
            "score",
            "reward=bartscore",
            f"reward.model={run}/ce",
            f"input={questions}",
            f"output={scored}",
            "training.use_cpu=true",
        ],
        ["report", str(run), "--output", f"{tmp_path}/report.html"],
        ["report", f"output={tmp_path}/same.html", str(run)],
    ]
    for command in commands:
        done = rl_qg(home, *command)
        assert done.returncode == 0, (command, done.stderr[-3000:])
    assert len(scored.read_text().splitlines()) == len(questions.read_text().splitlines())
    assert json.loads((tmp_path / "scored.summary.json").read_text())["signature"].startswith("bartscore|")
    assert (tmp_path / "report.html").read_bytes() == (tmp_path / "same.html").read_bytes()
    assert json.loads((tmp_path / "qa" / "qa_metrics.json").read_text())["total"] > 0


@pytest.mark.slow
def test_single_stages_and_a_custom_reward(run: Path, home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "my_reward.py").write_text(
        "class Short:\n"
        "    signature = 'short'\n"
        "    def score(self, questions, contexts, *, answers=None, references=None):\n"
        "        return type('Result', (), {'scores': [-float(len(q)) for q in questions]})\n"
    )
    here = {**home, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    ce = rl_qg(here, "train", *SMOKE, "stages=ce", f"output_dir={tmp_path}/ce-run", "ce.early_stopping_patience=2")
    assert ce.returncode == 0, ce.stderr[-3000:]
    assert not (tmp_path / "ce-run" / "scst").exists()
    scst = rl_qg(
        here,
        "train",
        *SMOKE,
        "stages=scst",
        f"model.path={tmp_path}/ce-run/ce",
        f"output_dir={tmp_path}/scst-run",
        "reward._target_=my_reward.Short",
    )
    assert scst.returncode == 0, scst.stderr[-3000:]
    assert (tmp_path / "scst-run" / "scst" / "model.safetensors").exists()
    assert not (tmp_path / "scst-run" / "ce").exists()


@pytest.mark.slow
def test_t5_trains_too(home: dict[str, str], tmp_path: Path) -> None:
    done = rl_qg(home, "train", *SMOKE, "model=miniature-t5", f"output_dir={tmp_path}/t5")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "t5" / "scst" / "prompt.json").read_text())["prefix"] == "generate question: "


@pytest.mark.slow
def test_a_run_folder_of_other_settings_is_refused(run: Path, home: dict[str, str]) -> None:
    done = rl_qg(home, "pipeline", *SMOKE, f"output_dir={run}", "ce.epochs=2")
    assert done.returncode == 2
    assert "ce.epochs: 1.0 -> 2.0" in done.stderr


def test_an_argument_that_is_not_utf8_is_one_line() -> None:
    """A file whose name has other bytes: reports could not name it, and the lock's note failed."""
    for arguments in (["in\udcff.txt", "output=a.jsonl"], ["in.txt", "output=\udcff.jsonl"]):
        with pytest.raises(InputError, match=r"argument '.*\\udcff.*': is not UTF-8 text"):
            run_command("answers", arguments)


def test_a_message_is_one_line_whatever_it_names(home: dict[str, str], tmp_path: Path) -> None:
    for name in ("a\nb.txt", "a\x1b[31m\r.txt", "\u2028.txt", "x" * 9000):
        done = rl_qg(home, "answers", f"input={name}", "output=a.jsonl", cwd=tmp_path)
        line = done.stderr.removesuffix("\n")
        assert done.returncode == 2 and line.isprintable() and len(line) < 2100, line
        assert line.startswith(f"rl-qg answers: error: {name[:1].encode('unicode_escape').decode()}"), line


@pytest.mark.parametrize(
    ("work", "path"),
    [
        (lambda folder: (folder / "file").mkdir(exist_ok=True), "file"),
        (lambda folder: (folder / "file" / "x").write_text(""), "file/x"),
        (lambda folder: (folder / "folder").write_text(""), "folder"),
        (lambda folder: (folder / "loop").read_text(), "loop"),
        (lambda folder: (folder / ("x" * 300)).read_text(), "x" * 300),
    ],
)
def test_a_path_that_cannot_be_what_a_command_needs_is_named(
    work: Callable[[Path], object], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Wherever it is met, such as a file where the next checkpoint belongs."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.setattr("rl_qg.commands.cli.run_command", lambda *_: work(tmp_path))
    monkeypatch.setattr("sys.argv", ["rl-qg"])
    with pytest.raises(SystemExit) as end:
        main(["train"])
    line = capsys.readouterr().err.removesuffix("\n")
    assert end.value.code == 2 and line.startswith(f"rl-qg train: error: {tmp_path / path}: ") and line.isprintable()


def test_help_needs_no_models(home: dict[str, str]) -> None:
    for words, every in (["train", "--help"], False), (["train", "--help", "all"], True):
        done = rl_qg(home, *words)
        assert done.returncode == 0
        assert "ce.epochs" in done.stdout and "qrelscore" in done.stdout
        assert ("lambda_warmup" in done.stdout) == every
