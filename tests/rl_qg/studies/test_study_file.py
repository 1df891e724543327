from functools import partial
from pathlib import Path

import pytest

from rl_qg.commands.compose import compose
from rl_qg.runtime.errors import InputError
from rl_qg.settings.yaml_files import as_overrides
from rl_qg.studies.jobs import read_job_file
from rl_qg.studies.study import Generator, Resource, Study

read_study = partial(read_job_file, Study)

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
    assert study.output_dir == Path("runs/s") and study.file == str(tmp_path / "study.yaml")
    assert study.amounts == [0.0, 0.5, 1.0] and study.seeds == [1] and study.devices == ["cpu"]
    assert study.data.validation == {"first": "a.json", "second": ["b.json", "c.json"]}
    assert study.resources == {"25": Resource(0.25), "small": Resource(1.0, max_gold=100, settings=["ce.epochs=8"])}
    assert study.generators == {
        "ce": Generator("ce", settings=["ce.epochs=3", "ce.learning_rate=1e-3"]),
        "qrelscore": Generator("scst", start="ce", settings=["reward=qrelscore", "scst.kl_target=null"]),
        "ready": Generator(path="/models/{resource}/{seed}"),
    }
    assert study.filters == {"paper": ["filters=paper"], "strict": ["augment.filters.length.min_words=7"]}


def test_arguments_replace_values_of_the_file(tmp_path: Path) -> None:
    arguments = [
        "output_dir=elsewhere",
        "seeds=[3, 4, 3]",
        "data.max_validation=10",
        "devices=[0, 1]",
        "resources.25=0.5",
    ]
    study = read_study(write(tmp_path), arguments)
    assert (str(study.output_dir), study.seeds, study.data.max_validation) == ("elsewhere", [3, 4], 10)
    assert study.devices == ["0", "1"] and study.resources["25"].fraction == 0.5


def test_single_values_stand_for_lists(tmp_path: Path) -> None:
    arguments = ["data.validation=dev.json", "amounts=2", "devices=0", "settings=qa.max_steps=7", "filters.paper=null"]
    study = read_job_file(
        Study, write(tmp_path), [*arguments, "resources.25={unlabelled: more.json}", "resources.small=null"]
    )
    assert study.data.validation == {"validation": "dev.json"}
    assert (study.amounts, study.devices, study.settings) == ([0.0, 2.0], ["0"], ["qa.max_steps=7"])
    assert study.filters["paper"] == [] and study.resources["25"].unlabelled == ["more.json"]
    assert study.resources["small"] == Resource()


def test_values_are_written_as_on_the_command_line() -> None:
    value = {"a": {"b": True, "c": None}, "d": [1, False], "e": {}, "f": 0.5}
    assert as_overrides(value, "") == ["a.b=true", "a.c=null", "d=[1,false]", "e={}", "f=0.5"]


def test_lists_hold_mappings_and_texts_with_any_characters() -> None:
    files = ["a,b.json", "c.json", "it's [1]", "a: b", "", " x", "é=(1)", "m/n:o"]
    metrics = ["bleu4", {"metric": "bertscore", "layer": 5, "label": "a, b", "languages": ["fr", "de"]}]
    settings = compose("evaluate", as_overrides({"data": {"train": files}, "metrics": metrics}, ""))
    assert settings.data.train == files and settings.evaluate.metrics == metrics


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("amount=[1]", "there is no key 'amount'"),
        ("data.dev=x", "there is no key 'dev'"),
        ("seeds=[]", "seeds: give at least one"),
        ("seeds=null", "seeds: give at least one"),
        ("devices=[]", "devices: give at least one"),
        ("filters={}", "filters: give at least one"),
        ("seeds=[one]", r"seeds\[0\]: Value 'one' of type 'str' could not be converted to Integer"),
        ("amounts=[-1]", "amounts: -1 is not a finite number of at least 0"),
        ("resources.25=2", "resources.25.fraction: 2 is not in"),
        ("resources.25=many", "resources.25.fraction: Value 'many' .* could not be converted to Float"),
        ("data.development=0", "data.development: 0 is not in"),
        ("generators.ce.stages=rl", "'rl' is not one of ce, scst, both"),
        ("generators.qrelscore.from=ready", "generators.qrelscore.from: ready is not a generator with stages: ce"),
        ("generators.ready.reward=qascore", "is not trained; give path"),
        ("generators.ready={path: x, from: nobody}", "generators.ready.from: there is no generator nobody"),
        ("comparisons=[[ce, nobody]]", "there is no generator nobody"),
        ("comparisons=[ce, ready]", "comparisons: .* is not a list"),
        ("comparisons=[[ce]]", "comparisons: expected pairs"),
        ("comparisons=[[[ce], [ready]]]", r"comparisons\[0\]: .* incompatible"),
        ("comparisons=null", "comparisons: .* may not be null"),
        ("filters=[]", "filters: expected names with their options"),
        ("resources=5", "resources: expected names with their options"),
        ("filters.a/b=[]", "'a/b' becomes part of a file name"),
        ("resamples=5", "resamples: 5 is less than 100"),
        ("resamples=abc", "resamples: Value 'abc'"),
        ("seeds=[1.5]", r"seeds\[0\]: Value '1.5'"),
        ("seeds=[-1]", "seeds: -1 is less than 0"),
        ("amounts=[.inf]", "amounts: inf is not a finite number"),
        ("data.max_passages=0", "data.max_passages: 0 is less than 1"),
        ("data.max_spans=x", "data.max_spans: Value 'x'"),
        ("data.seed=abc", "data.seed: Value 'abc'"),
        ("data.seed=-1", "data.seed: -1 is less than 0"),
        ("data=5", "data: .*int is not"),
        ("data.train=5", "data.train: expected a file"),
        ("data.validation={a: [1]}", "data.validation.a: expected a file"),
        ("data.validation={all: a.json, b: b.json}", "all is the name for all sets together"),
        ("data.development=null", "data.development: .*None"),
        ("resources.25={max_gold: ten}", "resources.25.max_gold: Value 'ten'"),
        ("resources.25={max_gold: 0}", "resources.25.max_gold: 0 is less than 1"),
        ("resources.25={unlabelled: {a: b}}", "resources.25.unlabelled: expected single values"),
        ("seeds=[[1]]", "seeds: expected single values"),
        ("devices=[[0, 1]]", "devices: expected single values"),
        ("generators.ready={path: [a]}", "generators.ready.path: Cannot convert"),
        ("generators.qrelscore.from=[ce]", "generators.qrelscore.from: Cannot convert"),
        ("generators.big={stages: ce, from: ce}", "only a generator with stages: scst starts from another"),
        ("generators={a: {stages: ce}, b: {stages: ce}, q: {}}", "q: a and b learn by cross-entropy; say which"),
        ("comparisons=5", "comparisons: .* is not a list"),
        ("comparisons=[[ce, ready], [ready, ce]]", "a pair is given twice"),
        ("devices=[gpu]", "gpu is neither cpu nor the number of a GPU"),
        ("output_dir=null", "output_dir: Incompatible value 'None'"),
        ("keep_readers=maybe", "keep_readers: Value 'maybe' is not a valid bool"),
        ("generators.ce.settings=[1]", "generators.ce.settings: expected overrides"),
        ("preset=${presets}", "preset: Interpolation key 'presets' not found"),
        ("settings=[data.max_train=5]", "data.max_train is set by the grid itself"),
        ("generators.ce.seed=5", "seed is set by the grid itself"),
        ("generators.ready={stages: ce, data: {max_train: 5}}", "data.max_train is set by the grid itself"),
        ("filters.paper=[augment.num_samples=9]", "augment.num_samples is set by the grid itself"),
        ("filters.strict.augment.seed=1", "augment.seed is set by the grid itself"),
        ("filters.paper=[num_samples=9]", "num_samples is set by the grid itself"),
        ("filters.paper=[augment.gold=x.json]", "augment.gold is set by the grid itself"),
        ("settings=[data.train=x.json]", "data.train is set by the grid itself"),
        ("generators.ce.settings=[stages=both]", "stages is set by the grid itself"),
        ("generate=[output=x.jsonl]", "output is set by the grid itself"),
        ("generate=[model.path=x]", "generate: model.path is that of each generator"),
        ("generate=[data.max_validation=5]", "data.max_validation is set by the grid itself"),
        ("generators.qrelscore.model.path=RUN", "generators.qrelscore.model.path: leave it out; the key from names"),
        ("output_dir", "not of the form key=value"),
        ("--quick=1", "not of the form key=value"),
        ("seeds.first=1", "holds no keys"),
    ],
)
def test_wrong_values_are_one_line_with_their_key(tmp_path: Path, argument: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_study(write(tmp_path), [argument])
    assert "\n" not in str(caught.value)


def test_generators_start_from_the_only_ce_generator_of_the_study(tmp_path: Path) -> None:
    with_ce = read_job_file(
        Study, write(tmp_path), ["generators={x: {stages: ce, ce.epochs: 8}, q: {reward: qrelscore}}"]
    )
    assert [generator.start for generator in with_ce.generators.values()] == [None, "x"]
    without = read_study(write(tmp_path), ["generators={q: {reward: qrelscore}, b: {stages: both}}"])
    assert [generator.start for generator in without.generators.values()] == [None, None]


def test_a_number_and_its_text_are_one_name(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, WHOLE.replace('"25"', "25")), ["resources.25=0.5"])
    assert list(study.resources) == ["25", "small"] and study.resources["25"].fraction == 0.5
    with pytest.raises(InputError, match=r"resources=.*25 is given twice"):
        read_study(write(tmp_path), ["resources={25: 0.25, '25': 0.5}"])


@pytest.mark.parametrize("line", ["seeds: 2", "amounts: {train: a.json, train: b.json}", "amounts: {25: 1, 25: 2}"])
def test_a_key_given_twice_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    text = WHOLE.replace("amounts: [1, 0.5]\n", "") + line
    key = line.partition(":")[0] if line.startswith("seeds") else line.partition("{")[2].partition(":")[0]
    number = len(text.splitlines())
    with pytest.raises(InputError, match=rf"study\.yaml: not readable as YAML: line {number}: {key} is given twice$"):
        read_study(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not readable as YAML"),
        ("just text", "expected keys"),
        ("seeds: [1]", "has no value"),
        (None, "cannot be read"),
    ],
)
def test_a_file_without_a_study_is_refused_by_name(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "missing.yaml" if text is None else write(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        read_study(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
