"""What a late stage of the pipeline would refuse is an error before the first stage begins."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from accelerate import PartialState

from rewards.errors import MetricInputError
from rl_qg.commands.cli import run_command
from rl_qg.commands.compose import compose
from rl_qg.commands.pipeline import check_late_stages, check_models
from rl_qg.runtime.errors import InputError
from rl_qg.settings import Settings

TEXT = "Ada met Charles in 1833.\n"
ANSWERED = {"context": TEXT, "answers": {"text": ["1833"], "answer_start": [19]}}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "plain.txt").write_text(TEXT)
    (tmp_path / "latin.txt").write_bytes("é\n".encode("latin-1"))
    (tmp_path / "good.jsonl").write_text(json.dumps(ANSWERED))
    (tmp_path / "torn.jsonl").write_text(f"{json.dumps(ANSWERED)}\n" + '{"context": "Ada')
    return tmp_path


def check(files: Path, unlabelled: list[str], **changes: Any) -> None:
    """Check the default settings with some sections changed."""
    settings = Settings()
    settings.data.unlabelled = [str(files / name) for name in unlabelled]
    sections = {name: replace(getattr(settings, name), **values) for name, values in changes.items()}
    settings = replace(settings, **sections)
    settings.check()
    check_late_stages(settings, PartialState(cpu=True))


@pytest.mark.parametrize(
    ("unlabelled", "changes", "message"),
    [
        ([], {"answers": {"method": "spcay"}}, r"answers\.method=spcay is not one of rules, spacy, extractor"),
        ([], {"answers": {"passages": "lines"}}, r"answers\.passages=lines is not one of line, paragraph"),
        ([], {"answers": {"min_probability": 7.0}}, r"answers\.min_probability=7.0 is not in \[0, 1\]"),
        ([], {"augment": {"sample_relevance": 7.0}}, r"augment\.sample_relevance=7.0 is not in \[0, 1\]"),
        ([], {"train_answers": {"batch_size": 0}}, r"train_answers\.batch_size=0 must be at least 1"),
        ([], {"augment": {"sampling": "reward", "sample_by": "logprop"}}, r"augment\.sample_by=logprop"),
        ([], {"augment": {"hub_dataset": "a/b/c"}}, r"augment\.hub_dataset=a/b/c: not a name of a Hub repository"),
        ([], {"augment": {"filters": {"reward": {"metric": "qascor"}}}}, r"reward\.metric=qascor: no such metric"),
        ([], {"augment": {"filters": {"lenght": {}}}}, r"lenght: no such filter"),
        ([], {"augment": {"format": "csv"}}, r"augment\.format: the pipeline writes no second file; use rl-qg export"),
        ([], {"augment": {"questions": "q.jsonl"}}, r"augment\.questions: the pipeline names its files itself"),
        ([], {"augment": {"output": "a.json"}}, r"augment\.output: the pipeline names its files itself"),
        (["plain.txt"], {"data": {"train": None}}, r"data\.train has no value, and the pipeline's readers"),
        (["nothing.txt"], {}, r"nothing\.txt: no such file"),
        (["latin.txt"], {}, r"latin\.txt: line 1: not UTF-8 text"),
        (["plain.txt", "torn.jsonl"], {}, r"torn\.jsonl: line 2: malformed JSON"),
        (["plain.txt"], {"answers": {"method": "spacy", "spacy_model": "no_such"}}, r"or use method=rules"),
        (["plain.txt"], {"answers": {"method": "extractor"}}, r"answers\.extractor has no value"),
        (["plain.txt"], {"answers": {"method": "generator"}}, r"answers\.generator has no value"),
        ([], {"model": {"task": "pairs"}}, r"model\.task=pairs: the pipeline asks about given answers"),
        ([], {"model": {"task": "both"}}, r"model\.task=both is not one of questions, answers, multitask, pairs"),
        ([], {"model": {"task": "multitask", "prefix": "ask: "}}, r"model\.prefix='ask: ': set it to null"),
    ],
)
def test_a_fault_of_a_late_stage_is_an_error_at_once(
    files: Path, unlabelled: list[str], changes: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check(files, unlabelled, **changes)


@pytest.mark.parametrize("unlabelled", [[], ["good.jsonl"]])
def test_settings_that_are_not_used_are_not_checked(files: Path, unlabelled: list[str]) -> None:
    check(files, unlabelled, answers={"method": "extractor"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("qa.model.path=/no", r"qa\.model\.path=/no: no such folder"),
        ("generate.rerank={metric: reader, model: /no}", r"'/no' does not exist"),
        ("+augment.filters.round_trip={reader: /no}", r"filters\.round_trip\.reader=/no: no such folder"),
        ("+augment.filters.reward={metric: bleu4}", r"filters\.reward: the metric compares with references"),
    ],
)
def test_a_model_of_a_late_stage_is_loaded_at_once(tmp_path: Path, given: str, message: str) -> None:
    folder = tmp_path / "run"
    own = f"+augment.filters.own={{kind: round_trip, reader: {folder}/qa/gold}}"  # which the run will train
    settings = compose("pipeline", ["preset=smoke", f"output_dir={folder}", own, given])
    with pytest.raises((InputError, MetricInputError), match=message):
        check_models(settings, PartialState(cpu=True))
    folder.mkdir()
    (folder / "augmented.json").touch()
    check_models(settings, PartialState(cpu=True))  # nothing is needed any more
    assert not list(tmp_path.glob("run/qa"))


def test_the_command_checks_before_it_claims_a_folder(files: Path) -> None:
    given = ["preset=smoke", f"output_dir={files}/run", f"data.unlabelled={files}/torn.jsonl"]
    with pytest.raises(InputError, match=r"torn\.jsonl: line 2"):
        run_command("pipeline", given)
    assert not (files / "run").exists()


@pytest.mark.parametrize("algorithm", ["best_of_n", "rloo", "grpo"])
def test_other_algorithms_train_questions_alone(algorithm: str, tmp_path: Path) -> None:
    options = ["preset=smoke", "model.task=pairs", f"algorithm={algorithm}", f"output_dir={tmp_path / 'run'}"]
    with pytest.raises(
        InputError, match=f"model.task=pairs: algorithm={algorithm} trains models that write questions"
    ):
        run_command("train", options)
