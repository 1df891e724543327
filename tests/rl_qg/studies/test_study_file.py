from pathlib import Path

import pytest

from rl_qg.runtime.errors import InputError
from rl_qg.studies.file import Generator, Resource, read_study
from rl_qg.studies.values import as_overrides

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
        ("seeds=[one]", "'one' is no whole number"),
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
        ("resamples=abc", "'abc' is no whole number"),
        ("seeds=[1.5]", "1.5 is no whole number"),
        ("seeds=[-1]", "-1 is no whole number"),
        ("amounts=[.inf]", "inf is no number"),
        ("data.max_passages=0", "data.max_passages: 0 is no whole number of at least 1"),
        ("data.max_spans=x", "max_spans: 'x' is no whole number"),
        ("data.seed=abc", "data.seed: 'abc'"),
        ("data.train=5", "expected a file"),
        ("data.validation={a: [1]}", "data.validation.a: expected a file"),
        ("data.validation={all: a.json, b: b.json}", "all is the name for all sets together"),
        ("data.development=null", "None is no share"),
        ("resources.25={max_gold: ten}", "resources.25.max_gold: 'ten'"),
        ("resources.25={unlabelled: [1]}", "resources.25.unlabelled: expected a file"),
        ("generators.ready={path: 5}", "generators.ready.path: expected text"),
        ("generators.qrelscore.from=[ce]", "generators.qrelscore.from: expected text"),
        ("generators.big={stages: ce, from: ce}", "only one with stages: scst starts from another"),
        ("generators={a: {stages: ce}, b: {stages: ce}, q: {}}", "q: a and b learn by cross-entropy; say which"),
        ("comparisons=5", "expected pairs"),
        ("comparisons=[[ce, ready], [ready, ce]]", "a pair stands there twice"),
        ("devices=[gpu]", "gpu is neither cpu nor the number of a GPU"),
        ("output_dir=null", "output_dir must be the name of a folder"),
        ("keep_readers=maybe", "keep_readers true or false"),
        ("settings=[data.max_train=5]", "data.max_train is set by the grid itself"),
        ("output_dir", "not of the form key=value"),
        ("--quick=1", "not of the form key=value"),
        ("seeds.first=1", "holds no keys"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(tmp_path: Path, argument: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as told:
        read_study(write(tmp_path), [argument])
    assert "\n" not in str(told.value)


def test_rewards_start_from_the_one_ce_of_the_study(tmp_path: Path) -> None:
    with_ce = read_study(write(tmp_path), ["generators={x: {stages: ce, ce.epochs: 8}, q: {reward: qrelscore}}"])
    assert [generator.start for generator in with_ce.generators] == [None, "x"]
    without = read_study(write(tmp_path), ["generators={q: {reward: qrelscore}, b: {stages: both}}"])
    assert [generator.start for generator in without.generators] == [None, None]


def test_a_number_and_its_text_are_one_name(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, WHOLE.replace('"25"', "25")), ["resources.25=0.5"])
    assert [(resource.name, resource.fraction) for resource in study.resources if resource.name == "25"] == [
        ("25", 0.5)
    ]
    with pytest.raises(InputError, match="25 stands there twice"):
        read_study(write(tmp_path), ["resources={25: 0.25, '25': 0.5}"])


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
