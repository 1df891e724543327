from pathlib import Path

import pytest

from rl_qg.errors import InputError
from rl_qg.study_file import Generator, Resource, as_overrides, read_study

WHOLE = """
output_dir: runs/s
data: {train: train.json, validation: {first: a.json, second: [b.json, c.json]}}
resources: {"25": 0.25, small: {max_gold: 100, settings: [ce.epochs=8]}}
generators:
  none: {}
  ce: {stages: ce, ce: {epochs: 3, learning_rate: 1e-3}}
  qrelscore: {reward: qrelscore, from: ce, scst.kl_target: null}
  ready: {path: "/models/{resource}/{seed}"}
filters: {paper: [filters=paper], strict: {augment.filters.length.min_words: 7}}
amounts: [1, 0.5]
seeds: 1
"""


def write(folder: Path, text: str = WHOLE) -> Path:
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def test_a_file_becomes_a_study(tmp_path: Path) -> None:
    study = read_study(write(tmp_path))
    assert study.amounts == (0.0, 0.5, 1.0) and study.seeds == (1,) and study.devices == ("cpu",)
    assert study.data.validation == {"first": "a.json", "second": ["b.json", "c.json"]}
    assert study.resources == (
        Resource("25", 0.25),
        Resource("small", 1.0, max_gold=100, settings=("ce.epochs=8",)),
    )
    assert study.generators == (
        Generator("ce", "ce", settings=("ce.epochs=3", "ce.learning_rate=1e-3")),
        Generator("qrelscore", "scst", start="ce", settings=("reward=qrelscore", "scst.kl_target=null")),
        Generator("ready", path="/models/{resource}/{seed}"),
    )
    assert study.filters == {"paper": ("filters=paper",), "strict": ("augment.filters.length.min_words=7",)}


def test_arguments_win_over_the_file(tmp_path: Path) -> None:
    arguments = [
        "output_dir=elsewhere",
        "seeds=[3, 4]",
        "data.max_validation=10",
        "devices=[0, 1]",
        "resources.25=0.5",
    ]
    study = read_study(write(tmp_path), arguments)
    assert (str(study.output_dir), study.seeds, study.data.max_validation) == ("elsewhere", (3, 4), 10)
    assert study.devices == ("0", "1") and study.resources[0].fraction == 0.5


def test_values_are_written_as_on_the_command_line() -> None:
    value = {"a": {"b": True, "c": None}, "d": [1, False], "e": {}, "f": 0.5}
    assert as_overrides(value, "") == ("a.b=true", "a.c=null", "d=[1,false]", "e={}", "f=0.5")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("amount=[1]", "there is no key 'amount'"),
        ("data.dev=x", "there is no key 'dev'"),
        ("seeds=[]", "seeds: name at least one"),
        ("seeds=[one]", "'one' is no number"),
        ("amounts=[-1]", "amounts: -1.0 is negative"),
        ("resources.25=2", "resources.25: 2 is not in"),
        ("resources.25=many", "expected a share"),
        ("data.development=0", "development must be in"),
        ("generators.ce.stages=rl", "'rl' is not one of ce, scst, both"),
        ("generators.qrelscore.from=ready", "ready is no generator with stages: ce"),
        ("generators.ready.reward=qascore", "is not trained; give path"),
        ("generators.ready={path: x, from: nobody}", "generators.ready.from: there is no generator nobody"),
        ("comparisons=[[ce, nobody]]", "there is no generator nobody"),
        ("comparisons=[ce, ready]", "expected pairs"),
        ("filters=[]", "expected at least one name"),
        ("filters.a/b=[]", "'a/b' becomes part of a file name"),
        ("resamples=5", "at least 100"),
        ("output_dir", "not of the form key=value"),
        ("--quick=1", "not of the form key=value"),
        ("seeds.first=1", "holds no keys"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(tmp_path: Path, argument: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as told:
        read_study(write(tmp_path), [argument])
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not readable as YAML"),
        ("just text", "expected keys"),
        ("seeds: [1]", "has no value"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "missing.yaml" if text is None else write(tmp_path, text)
    with pytest.raises(InputError, match=message) as told:
        read_study(path)
    assert "\n" not in str(told.value) and str(path) in str(told.value)
