"""Values on the command line are taken as they are typed: no character of a file name has a meaning."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_origin

import pytest
import yaml

from rl_qg.commands.cli import SHELLS, completion, run_command, words_of
from rl_qg.commands.compose import compose
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import write_squad
from rl_qg.runtime.errors import InputError
from rl_qg.settings import all_keys
from tests.processes import ROOT

NAMES = [
    "Übung für Ömer.json",
    "my questions (copy 2).json",
    'it\'s "mine".json',
    "a=b.json",
    "a,b.json",
    "#1: final?.json",
    "[draft] {v2}.json",
    "100%.json",
    "back\\slash.json",
    "true",
    "1e5",
    "$HOME.json",
    "x~!.json",
    "名前.json",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_reaches_the_settings_as_typed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).touch()  # what begins like a list is a list, unless there is such a file
    settings = compose("pipeline", [f"data.train={name}", f"data.validation={name}", f"output_dir={name}"])
    assert (settings.data.train, settings.data.validation, settings.output_dir) == (name, name, name)
    assert compose("generate", [f"data.train={name}", f"output={name}", "num_beams=2"]).generate.output == name
    if name not in ("true", "1e5"):  # an option of a metric may be any value
        assert compose("score", [f"reward.encoder={name}", "input=x"]).reward["encoder"] == name
    assert compose("answers", [name]).answers.input == name


def test_a_reference_to_a_value_of_another_type_is_refused() -> None:
    containers = [key for key, kind in all_keys().items() if get_origin(kind) in (list, dict)]
    assert len(containers) > 10
    for key in containers:
        for reference in ("${seed}", "${output_dir}"):
            with pytest.raises(InputError, match=rf"^settings: {re.escape(key)}"):
                compose("pipeline", [f"{key}={reference}"])
    for section in ("scst", "ask", "qa_evaluate.trials"):
        with pytest.raises(InputError):
            compose("pipeline", [section + "=${seed}"])
    settings = compose("pipeline", ["qa.seeds=[${seed},3]", "training.rate_factors={embed: ${scst.top_p}}", "seed=5"])
    for name, at in (("model.prefix", lambda s: s.model.prefix), ("data.train", lambda s: s.data.train)):
        assert at(compose("pipeline", [f"{name}=\\${{x}}"])) == "${x}"  # escaped it is no reference
    assert settings.qa.seeds == [5, 3] and settings.training.rate_factors == {"embed": settings.scst.top_p}


def test_lists_mappings_numbers_and_texts_in_quotes_stay_what_they_are() -> None:
    settings = compose(
        "evaluate",
        ["metrics=[bleu4,{metric: bertscore, layer: 5}]", "predictions={ce: a.jsonl, scst: b.jsonl}", "resamples=70"],
    )
    assert settings.evaluate.metrics == ["bleu4", {"metric": "bertscore", "layer": 5}]
    assert settings.evaluate.predictions == {"ce": "a.jsonl", "scst": "b.jsonl"}
    assert settings.evaluate.resamples == 70
    assert compose("train", ["data.train=[my file (1).json,b#2.json]"]).data.train == ["my file (1).json", "b#2.json"]
    assert compose("train", ["model.prefix='ask: '", "model.path=x"]).model.prefix == "ask: "
    assert compose("train", ["model.prefix=null", "model.path=x"]).model.prefix is None
    assert compose("train", ["data.unlabelled=null", "model.path=x"]).data.unlabelled is None


def test_long_values_and_texts_that_begin_like_a_list_are_read() -> None:
    entries = [f"{{metric: bertscore, layer: {number}, label: bertscore_of_layer_{number}}}" for number in range(12)]
    assert len(compose("evaluate", [f"metrics=[{','.join(entries)}]"]).evaluate.metrics) == 12
    long = "x" * 300 + ".json"
    assert compose("qa", [f"data.validation={long}", "data.train=y"]).data.validation == long
    assert compose("answers", [long]).answers.input == long
    for prefix in ("[QG] ", "{ask} ", '"a" b: ', "'tis "):
        assert compose("train", [f"model.prefix={prefix}", "model.path=x"]).model.prefix == prefix


def test_a_list_that_cannot_be_read_is_one_line() -> None:
    with pytest.raises(InputError, match=r"data.train=\[a,\{b\] cannot be read; write a list as \[a,b\]"):
        compose("train", ["data.train=[a,{b]"])


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("train", "data.train='~no.such.user/x.json'"),
        ("train", "data.train=[a.json,'~no.such.user/x.json']"),
        ("evaluate", "predictions={a: '~no.such.user/x.json'}"),
        ("qa", "model.path=~no.such.user/x.json"),
        ("train", "+reward.model='~no.such.user/x.json'"),
        ("rate plan", "output='~no.such.user/x.json'"),
    ],
)
def test_a_home_folder_that_there_is_not_is_one_line(command: str, text: str) -> None:
    with pytest.raises(InputError, match=r"=~no\.such\.user/x\.json: there is no such home folder; write"):
        compose(command, [text])
    explained = compose("explain", ["question=~no.such.user/ is no path"]).explain
    assert explained.question.startswith("~")


def test_only_paths_are_written_out_by_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    explained = compose("explain", ["question=~/x?", "--context", "~/y is", "output=~/z.html"]).explain
    assert (explained.question, explained.context, explained.output) == ("~/x?", "~/y is", f"{tmp_path}/z.html")
    assert compose("explain", ["question=~nobody"]).explain.question == "~nobody"
    assert compose("export", ["prompt=~/{context}"]).export.prompt == "~/{context}"
    settings = compose("train", ["model.prefix=~/", "model.path=~/m"]).model
    assert (settings.prefix, settings.path) == ("~/", f"{tmp_path}/m")
    assert compose("ask", ["~/a.txt", "~/b.txt"]).ask.input == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    run_command("explain", ["question=~/x", "context=~nobody", "--cfg", "job"])
    written = yaml.safe_load(capsys.readouterr().out)["explain"]
    assert (written["question"], written["context"]) == ("~/x", "~nobody")


def test_a_mapping_changes_options_of_what_a_group_chooses() -> None:
    data = "data={train: a.json, validation: b.json}"
    given = ["model={path: m}", data, "peft={r: 4}", "held_out={}", "reward={direction: recall}", "reward=bartscore"]
    settings = compose("train", given)
    assert (settings.model.path, settings.data.train, settings.data.validation) == ("m", "a.json", "b.json")
    assert (settings.peft.method, settings.peft.r, settings.held_out) == ("none", 4, {})
    assert (settings.reward["_target_"], settings.reward["direction"]) == ("rewards.BARTScore", "recall")
    with pytest.raises(InputError, match=r"there is no key or group 'model\.nokey'"):
        compose("train", ["model={nokey: 1}"])
    assert compose("score", ["+reward={new: 1}"]).reward["new"] == 1


@pytest.mark.parametrize("text", ["+preset=smoke", "++preset=smoke", "+filters=paper", "+reward=bleu4"])
def test_a_group_is_not_added(text: str) -> None:
    with pytest.raises(InputError, match="there is such a group; leave out the"):
        compose("pipeline", [text])


def test_a_command_runs_with_such_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source, output = "données (été) #1.json", "résultats 'a=b'.jsonl"
    write_squad(Path(source), synthetic_examples(2, seed=1))
    run_command("score", ["reward=rouge_l", f"input={source}", f"output={output}", "columns.references=question"])
    assert Path(output).exists()


def test_the_version_and_the_completion_of_each_shell(capsys: pytest.CaptureFixture[str]) -> None:
    run_command("--version", [])
    assert capsys.readouterr().out.startswith("rl-qg ")
    for shell in SHELLS:
        script = completion(shell)
        assert "scst.baseline=" in script and "reward=qrelscore" in script and "generate" in script
    assert "num_beams=" in words_of("generate") and "scst.baseline=" not in words_of("generate")


CAPTURED: dict[str, Any] = {"capture_output": True, "text": True, "cwd": ROOT}
CALL = """
source "$1"
compopt() { :; }
COMP_LINE="$2"; read -ra COMP_WORDS <<< "${2//=/ = }"; [[ "$2" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _rl_qg; echo "${COMPREPLY[*]}"
"""


@pytest.mark.skipif(sys.platform == "win32", reason="bash completes words of bash")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rl-qg gener", "generate"),
        ("rl-qg train scst.base", "scst.baseline="),
        ("rl-qg train reward=qrel", "qrelscore"),
        ("rl-qg train reward=qrelscore scst.base", "scst.baseline="),
        ("rl-qg generate num_", "num_beams= num_samples="),
        ("rl-qg ra", "rate"),
        ("rl-qg rate se", "serve"),
        ("rl-qg rate plan retent", "retention_days="),
    ],
)
def test_bash_completes(line: str, words: str, tmp_path: Path) -> None:
    script = tmp_path / "completion.sh"
    script.write_text(completion("bash"))
    done = subprocess.run(["bash", "-c", CALL, "bash", str(script), line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == words, done.stderr


def test_a_reader_that_has_seen_enough_is_no_error_but_another_broken_pipe_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rl_qg", "train", "--help"]
    done = subprocess.run(["bash", "-c", '"$@" | head -1; echo "${PIPESTATUS[0]}"', "bash", *command], **CAPTURED)
    assert done.stdout.splitlines()[1] == "0" and "Traceback" not in done.stderr
    code = "import rl_qg.commands.cli as cli\ndef run(*_): raise BrokenPipeError('of a worker')\n"
    code += "cli.run_command = run\ncli.main(['train'])"
    assert subprocess.run([sys.executable, "-c", code], **CAPTURED).returncode == 1


def test_the_home_folder_is_meant_by_a_tilde_in_outputs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    for folder in (home, here):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    (home / "text.txt").write_text("Ida Koll built a mill in 1204.")
    run_command("answers", ["~/text.txt", "output=~/answers.jsonl", "training.use_cpu=true"])
    assert (home / "answers.jsonl").exists()
    assert not [*here.iterdir()]
