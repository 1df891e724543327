"""The card has what the files of the run have, its snippet runs, and it is uploaded or one line says why not."""

import contextlib
import io
import json
import logging
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import HfApi, ModelCard
from transformers import GPT2LMHeadModel

from rl_qg.data.splits import Splits
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.prompts import INPUTS, Prompt, add_highlight, as_input, highlight
from rl_qg.generation.published import check_repository
from rl_qg.reports.model_card import (
    final_model,
    is_on_hub,
    marked_code,
    publish,
    shown,
    write_model_card,
)
from rl_qg.settings import PeftSettings, Settings
from rl_qg.training import stages as stage
from tests.hub_server import hub_server
from tests.questions import example
from tests.rl_qg.reports.run_folders import three_readers, write
from tests.rl_qg.training.word_task import WordReward, data
from tests.tiny_models import tiny, tiny_bart, tiny_t5, word_tokenizer

PASSAGE, ANSWER = "The old bridge was built by Paula Klein in 1874.", "Paula Klein"


def model_in(folder: Path, kind: str) -> None:
    tokenizer = word_tokenizer(f"{PASSAGE} who what ? <unk> Question: generate", template="$A </s>")
    if kind == "gpt2":
        tokenizer = word_tokenizer(f"{PASSAGE} who what ? Question:", template="$A")
        special = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
        model: Any = tiny(GPT2LMHeadModel, len(tokenizer), hidden=32, spread=0.02, seed=2, **special)
    else:
        model = {"bart": tiny_bart, "t5": tiny_t5}[kind](len(tokenizer), seed=2)
    add_highlight(tokenizer, model)
    if kind == "bart":  # as released checkpoints do
        model.generation_config.num_beams, model.generation_config.no_repeat_ngram_size = 4, 2
        model.generation_config.forced_bos_token_id = 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    separator = "\nQuestion:" if kind == "gpt2" else ""
    Prompt("generate question: " if kind == "t5" else "", 60, 8, separator).save(folder)


def run(folder: Path, kind: str = "bart", **changes: Any) -> Path:
    """A run folder as the commands write it in training."""
    settings = replace(Settings(output_dir=str(folder)), reward={"_target_": "qrelscore"}, **changes)
    settings.model.path = settings.model.path if "model" in changes else "facebook/bart-base"
    settings.scst.kl_coefficient, settings.scst.max_new_tokens = 0.25, 7
    for name in ("ce", "scst"):
        model_in(folder / name, kind)
    (folder / "config.yaml").write_text(yaml.safe_dump(asdict(settings)))
    record = {
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "versions": {"torch": "2.13.0", "transformers": "5.23.0"},
        "hardware": {"world_size": 2},
        "data": {"/home/somebody/train.json": "a" * 64, "rajpurkar/squad (validation)": "b" * 64},
        "leakage": {"train_examples_dropped": 3},
        "examples": {"gold": 40, "unlabelled": 0, "validation": 20},
        "data_report": {
            "train": {"sources": ["rajpurkar/squad", "/home/somebody/train.json"], "read": 50, "kept": 45},
            "validation": {"sources": ["rajpurkar/squad"]},
        },
    }
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "trained.json").write_text(json.dumps({"model": "scst", "steps": 9, "reward": "qrelscore|version:1"}))
    return folder


def metrics(folder: Path, bleu: list[float]) -> None:
    """A self-critical stage whose reward rises, with these values of BLEU-4."""
    with (folder / "metrics.jsonl").open("w") as stream:
        for step, value in enumerate(bleu):
            name = "ce" if step == 0 else "scst"
            measured = {"eval_loss": 1.5, "eval_reward_greedy": 0.5 + step / 10, "eval_bleu4": value}
            stream.write(json.dumps({"step": step + 1, "stage": name, **measured}) + "\n")


def evaluation(folder: Path) -> None:
    def model(level: float) -> dict[str, Any]:
        interval = {"mean": level, "low": level - 0.1, "high": level + 0.1, "n": 8}
        return {"reward": interval, "bleu4": {**interval, "mean": 0.3125}, "rouge_l": 0.44, "copy_rate": 0.5}

    gold = {"reward": {"mean": 0.9, "low": 0.8, "high": 1.0, "n": 8}, "copy_rate": 0.25}
    models = {"ce": model(0.3), "scst": model(0.6), "gold": gold}
    result = {
        "examples": 8,
        "reward_signature": "qrelscore|all",
        "held_out_signature": "bartscore|f",
        "models": models,
    }
    (folder / "evaluation.json").write_text(json.dumps(result))


def card(folder: Path, name: str = "scst") -> str:
    assert folder / name / "README.md" in write_model_card(folder)
    return (folder / name / "README.md").read_text()


def test_the_front_matter_is_what_the_hub_reads(tmp_path: Path) -> None:
    evaluation(run(tmp_path / "run"))
    loaded = ModelCard(card(tmp_path / "run"))
    front_matter = loaded.data.to_dict()
    assert (front_matter["base_model"], front_matter["datasets"]) == ("facebook/bart-base", ["rajpurkar/squad"])
    assert (front_matter["license"], front_matter["license_name"], front_matter["library_name"]) == (
        "other", "of-base-model-and-data", "transformers",
    )  # fmt: skip
    results = {result.metric_name: result.metric_value for result in loaded.data.eval_results or []}
    assert results == {"BLEU-4": 0.3125, "ROUGE-L": 0.44, "qrelscore": 0.6}
    assert "`facebook/bart-base` (licence: Apache-2.0)" in card(tmp_path / "run")
    assert "reinforcement-learning" in front_matter["tags"]
    assert "reinforcement-learning" not in ModelCard(card(tmp_path / "run", "ce")).data.to_dict()["tags"]


def test_the_text_has_data_settings_and_results(tmp_path: Path) -> None:
    evaluation(run(tmp_path / "run", peft=PeftSettings("lora", r=8)))
    text = card(tmp_path / "run")
    for line in (
        "40 questions for training; 20 for validation; 45 of 50 training records could be used; 3 training examples",
        f"| `train.json` | `{'a' * 64}` |",
        "| contexts per update | 32 |",  # 16 on each of 2 processes
        "| adapters (merged) | lora, r=8, alpha=32 |",
        "| `scst.kl_coefficient` | `0.25` |",
        "2 epochs, learning rate 0.0001",
        "    qrelscore|all\n",
        "    bartscore|f\n",
        "| Optimised reward | 0.300 (0.200 to 0.400) | 0.600 (0.500 to 0.700) | 0.900 (0.800 to 1.000) |",
        "| Copied 2-grams | 50 % | 50 % | 25 % |",
        "the terms of both hold",
    ):
        assert line in text, line
    assert "somebody" not in text  # absolute paths would describe a machine
    ce = card(tmp_path / "run", "ce")
    assert "| Optimised reward | 0.300 (0.200 to 0.400) | 0.900 (0.800 to 1.000) |" in ce
    assert "kl_coefficient" not in ce and "may have been" not in ce


def test_the_card_of_a_pipeline_has_the_readers_and_the_oracle(tmp_path: Path) -> None:
    folder = run(tmp_path / "run")
    settings, record = (folder / "config.yaml").read_text(), (folder / "run.json").read_text()
    write(folder, **{**three_readers(), "config.yaml": settings, "run.json": record})
    text = card(folder)
    for line in (
        "| Right by the oracle of the embedded corpus | 70.0 % (66.0 % to 74.0 %) | 80.0 % (76.0 % to 84.0 %) |",
        "| With a name or number that the passage lacks | 10.0 % (6.0 % to 14.0 %) | 7.5 % (3.5 % to 11.5 %) | 0.0 %",
        "percent (657 updates each, 3 reader seeds)",
        "| gold alone | 51.5 (47.5 to 55.5) | 61.8 (58.8 to 64.8) | 657 |",
        "| gold + SCST | 55.5 (51.5 to 59.5) | 66.8 (63.8 to 69.8) | 657 |",
        "F1 of the reader on gold + SCST minus that on gold + CE: +2.0 points [−0.5, +4.5]; the interval includes 0",
        "| passages without questions | 3,600 answers without questions learned from by the reward, 75 % of its",
    ):
        assert line in text, line
    (folder / "qa" / "gold" / "qa_metrics.json").unlink()
    assert "| gold + CE |" in card(folder) and "gold alone |" not in card(folder)


def test_a_hacked_reward_is_reported(tmp_path: Path) -> None:
    folder = run(tmp_path / "run")
    assert "too few evaluations" in card(folder)
    metrics(folder, [0.30, 0.30, 0.29, 0.20, 0.12, 0.10, 0.09])
    assert "BLEU-4 0.300 → 0.100" in card(folder) and "**The reward may have been hacked**" in card(folder)
    assert "| BLEU-4 | 0.300 | 0.090 |" in card(folder)  # no evaluation.json: the last evaluations of training
    metrics(folder, [0.30, 0.30, 0.31, 0.30, 0.31, 0.32, 0.31])
    assert "may have been hacked" not in card(folder) and "proves nothing" in card(folder)


def test_results_of_a_kept_model_are_those_of_its_step(tmp_path: Path) -> None:
    folder = run(tmp_path / "run")
    metrics(folder, [0.30, 0.33, 0.35, 0.20, 0.12])
    kept = {"measure": "bleu4", "value": 0.35, "step": 3}
    (folder / "trained.json").write_text(json.dumps({"model": "scst", "steps": 5, "kept": kept}))
    assert "| BLEU-4 | 0.300 | 0.350 |" in card(folder)
    assert "step 3, the best by bleu4" in card(folder)


@pytest.mark.parametrize("form", INPUTS)
def test_the_snippet_marks_what_the_generator_reads(form: str) -> None:
    names: dict[str, Any] = {}
    exec(marked_code(form), names)
    whole = f"{PASSAGE} It fell in 1901." if form == "paragraph_sentence" else PASSAGE
    about = example(whole, "1901" if form == "paragraph_sentence" else ANSWER, "?")
    assert names["marked"] == highlight(as_input(about, form))


@pytest.mark.parametrize("kind", ["bart", "t5", "gpt2"])
def test_the_snippet_runs_and_generates_what_the_policy_generates(tmp_path: Path, kind: str) -> None:
    folder = run(tmp_path / "run", kind)
    (code,) = re.findall(r"```python\n(.*?)```", card(folder), re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    policy = CandidateGenerator(folder / "scst", device=torch.device("cpu"))
    (expected,) = policy.greedy([example(PASSAGE, ANSWER, "who ?")], max_new_tokens=7)
    assert expected and printed.getvalue().strip() == expected


def test_the_snippet_of_a_published_format_has_its_input(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "bart")
    prompt = json.loads((folder / "scst" / "prompt.json").read_text())
    (folder / "scst" / "prompt.json").write_text(json.dumps({**prompt, "prefix": "", "format": "mrm8488-ap"}))
    (code,) = re.findall(r"```python\n(.*?)```", card(folder), re.DOTALL)
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, names)
    assert names["marked"] == f"answer: {ANSWER}  context: {PASSAGE}"


@pytest.mark.parametrize(
    ("task", "summary", "usage"),
    [
        ("pairs", "writes all its pairs at once", "QuestionGenerator.from_pretrained"),
        ("answers", "An answer extractor", "rl-qg answers passages.txt method=generator"),
        ("multitask", "A generator of questions and answers", '"generate question: " + marked'),
    ],
)
def test_the_card_of_another_task_says_what_the_model_writes(
    tmp_path: Path, task: str, summary: str, usage: str
) -> None:
    run(tmp_path, model=replace(Settings().model, path="facebook/bart-base", task=task))
    text = card(tmp_path)
    assert summary in text and usage in text


@pytest.mark.slow
def test_training_writes_cards(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "bart")
    (folder / "trained.json").unlink()
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    chosen = Settings(output_dir=str(folder), stages="scst")
    chosen.model.path, chosen.model.max_source_length = str(folder / "ce"), 48
    chosen.training.use_cpu, chosen.training.report_to, chosen.scst.max_new_tokens = True, "none", 4
    (folder / "config.yaml").write_text(yaml.safe_dump({**settings, "stages": "scst"}))
    stage.train(chosen, Splits(data(4), [], data(2)), WordReward())
    assert "word-reward" in (folder / "scst" / "README.md").read_text()


def test_a_folder_that_no_command_made_gets_no_card(tmp_path: Path) -> None:
    model_in(tmp_path / "ce", "bart")
    assert write_model_card(tmp_path) == []


def test_names_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "mine").mkdir(parents=True)
    assert [is_on_hub(name) for name in ("rajpurkar/squad", "gpt2", "data/mine", "data/train.json", "world")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert not is_on_hub("miniature:bart") and not is_on_hub("/home/me/model")
    assert (shown("/home/me/model"), shown("me/model")) == ("model", "me/model")
    check_repository("training.hub_model", None)
    check_repository("training.hub_model", "me/bart-qg")


class FakeHub:
    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.calls: list[tuple[str, Any]] = []

    def create_repo(self, name: str, *, exist_ok: bool) -> None:
        if self.fault is not None:
            raise self.fault
        self.calls.append(("create", (name, exist_ok)))

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        self.calls.append(("upload", (repo_id, sorted(path.name for path in Path(folder_path).iterdir()))))


def test_the_final_model_and_its_card_go_to_the_hub(tmp_path: Path) -> None:
    folder, hub = run(tmp_path / "run"), FakeHub()
    assert final_model(folder) == folder / "scst"
    publish(folder, None, api=hub)
    assert hub.calls == []
    publish(folder, "me/bart-qg", api=hub)
    (create, upload) = hub.calls
    assert create == ("create", ("me/bart-qg", True))
    assert upload[1][0] == "me/bart-qg" and {"README.md", "config.json", "model.safetensors"} <= set(upload[1][1])


def test_what_is_uploaded_arrives_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Over HTTP, by the library's client, to a stand-in for the Hub."""
    folder = run(tmp_path / "run")
    with hub_server() as hub, caplog.at_level(logging.INFO, "rl_qg"):
        api = HfApi(endpoint=hub.address, token="hf_secret")
        publish(folder, "me/bart-qg", api=api)
        files = {path.name: path.read_bytes() for path in (folder / "scst").iterdir() if path.is_file()}
        assert hub.files == {"models/me/bart-qg": files} and "README.md" in files
        assert hub.keys == {"Bearer hf_secret"}
        hub.refuses = True
        publish(folder, "me/bart-qg", api=api)
    done, refused = (record.getMessage() for record in caplog.records)
    assert done.endswith("scst is at https://huggingface.co/me/bart-qg")
    assert refused.startswith("training.hub_model=me/bart-qg: not uploaded (") and "\n" not in refused
    assert "hf_secret" not in caplog.text


def test_on_the_hub_the_card_names_the_repository(tmp_path: Path) -> None:
    folder = run(tmp_path / "run")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["training"]["hub_model"] = "me/bart-qg"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert 'from_pretrained("me/bart-qg")' in card(folder) and "# me/bart-qg\n" in card(folder)
    assert "me/bart-qg" not in card(folder, "ce")


def test_an_unreachable_hub_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = run(tmp_path / "run")
    with caplog.at_level(logging.INFO):
        publish(folder, "me/bart-qg", api=FakeHub(ConnectionError("no route\nto host")))
    (record,) = caplog.records
    assert record.getMessage() == (
        "training.hub_model=me/bart-qg: not uploaded (no route); the run is complete: "
        f"hf upload me/bart-qg {folder / 'scst'} uploads it later"
    )
    assert (folder / "scst" / "README.md").exists()
