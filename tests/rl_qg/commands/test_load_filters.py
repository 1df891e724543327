"""The filters of the settings: groups, keys, and the metric of a reward filter."""

from pathlib import Path
from typing import Any

import pytest
from accelerate import PartialState

from rl_qg.augmentation.augment import augment
from rl_qg.commands.cli import run_command
from rl_qg.commands.compose import compose
from rl_qg.commands.generation import check_filters, check_numbers, needs_models, with_metrics
from rl_qg.data.examples import Answer, QAExample, write_squad
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AugmentSettings, Settings
from tests.questions import PASSAGE, record, write_questions

STATE = PartialState(cpu=True)
DATA = ["data.train=t.json", "data.validation=v.json"]


def metric(*overrides: str, command: str = "augment", name: str = "reward") -> Any:
    return with_metrics(compose(command, overrides), STATE).filters[name]["metric"]


def test_a_reward_filter_has_the_reward_of_the_settings_or_another_metric() -> None:
    models = ["reward_models.roberta=/my/roberta", "reward_models.bart=/my/bart"]
    options = metric("filters=reward", "reward=qascore", "reward.unit=word", *models)
    assert (options["_target_"], options["model"], options["unit"]) == ("rewards.QAScore", "/my/roberta", "word")
    options = metric("filters=reward", "filters.reward.metric=bartscore", *models)
    assert options == {
        **{"_target_": "rewards.BARTScore", "model": "/my/bart", "direction": "faithfulness"},
        **{"weights": None, "max_min": None, "batch_size": 32, "dtype": "float32"},
    }
    assert metric("filters=reward", "filters.reward.metric=my.Reward") == {"_target_": "my.Reward"}
    given = {"_target_": "my.Reward", "depth": 2}
    assert metric("filters=reward", "filters.reward.metric={_target_:my.Reward,depth:2}") == given
    two = ["filters=paper", "+filters.fluent={kind:reward,metric:qascore}", *models]
    assert metric(*two, name="fluent")["model"] == "/my/roberta"


def test_miniatures_are_made_for_the_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[dict[str, Any]] = []

    def ready(settings: Any) -> dict[str, Any]:
        received.append(settings.reward)
        return {"metric": {"_target_": "ready"}}

    monkeypatch.setattr("rl_qg.commands.generation.reward_with_miniatures", ready)
    assert metric("filters=reward", "filters.reward.metric=qascore", "model=miniature") == {"_target_": "ready"}
    assert received[0]["metric"]["model"] == "miniature:roberta"


def test_the_reader_of_a_filter_may_be_the_packaged_one() -> None:
    given = "filters={round_trip: {reader: packaged:english/reader}, length: {min_words: 2}}"
    filters = with_metrics(compose("augment", ["filters=none", given]), STATE).filters
    assert (Path(filters["round_trip"]["reader"]) / "model.safetensors").is_file()
    assert filters["length"] == {"min_words": 2}


@pytest.mark.slow
def test_filters_without_models_need_none() -> None:
    assert not needs_models(compose("augment", []))
    assert needs_models(compose("augment", ["filters=reward"]))
    assert needs_models(compose("augment", ["+filters.x={kind:round_trip,reader:r}"]))
    assert needs_models(compose("augment", ["filters.same_meaning={}"]))
    settings = compose("augment", ["filters=reward", "filters.reward.field=score"])
    assert not needs_models(settings)
    assert with_metrics(settings, STATE).filters["reward"]["metric"] is None


@pytest.mark.slow
def test_keys_of_filters_on_the_command_line() -> None:
    filters = compose(
        "augment", ["filters=distinct", "filters.length.min_words=4", "filters.duplicates=null"]
    ).augment.filters
    assert filters["length"] == {"min_words": 4, "max_words": 30}
    assert filters["duplicates"] is None
    assert compose("augment", ["filters=none"]).augment.filters == {}
    by_mapping = compose("augment", ["filters=none", "filters={same_meaning: {}, cap: {per_answer: 1}}"])
    assert by_mapping.augment.filters == {"same_meaning": {}, "cap": {"per_answer": 1}}
    with pytest.raises(InputError, match=r"preset={a:1} is not a valid choice; choose one of "):
        compose("augment", ["preset={a:1}"])
    factors = ["training.rate_factors={decoder.layers: 2}", "training.rate_factors.encoder=0.5"]
    assert compose("train", factors).training.rate_factors == {"decoder.layers": 2.0, "encoder": 0.5}
    for command, key in (("augment", "augment.filtersx"), ("generate", "cluster.parametersx")):
        with pytest.raises(InputError, match=f"there is no key or group '{key}'"):
            compose(command, [f"{key}=3"])
    assert list(compose("augment", ["filters=strict", "filters.round_trip.reader=r"]).augment.filters) == [
        *("length", "answer_in_question", "gold_duplicates", "duplicates"),
        *("well_formed", "language", "near_duplicates", "round_trip"),
    ]
    with pytest.raises(InputError, match=r"augment\.filters\.round_trip\.reader has no value"):
        compose("augment", ["filters=strict"])
    for group in ("loose", "null"):
        with pytest.raises(
            InputError, match=rf"filters={group} is not a valid choice; choose one of distinct, none, "
        ):
            compose("augment", [f"filters={group}"])
    for sign in ("", "+", "++"):
        with pytest.raises(InputError, match="length: no option 'min_word'; there is min_words, max_words"):
            check_filters(compose("augment", [f"{sign}filters.length.min_word=4"]))


def test_every_option_can_be_set_as_in_the_guide() -> None:
    keys = ["near_duplicates.within=all", "well_formed.language=fr", "length.min_words=4", "round_trip=null"]
    filters = compose("pipeline", ["filters=strict", *(f"filters.{key}" for key in keys)]).augment.filters
    assert filters["near_duplicates"] == {"threshold": 0.8, "within": "all"}
    assert (filters["well_formed"], filters["length"]["min_words"]) == ({"language": "fr"}, 4)
    keys = ["reward.batch_size=8", "cap.per_answer=2"]
    filters = compose("augment", ["filters=reward", *(f"filters.{key}" for key in keys)]).augment.filters
    assert (filters["reward"]["batch_size"], filters["cap"]) == (8, {"per_answer": 2})


def test_strict_keeps_the_well_formed_one_of_two_copies(tmp_path: Path) -> None:
    lines = [record("who met Ada at the party", candidate=0), record("Who met Ada at the party?", candidate=1)]
    options = compose("augment", ["filters=strict", "filters.round_trip=null"]).augment
    path = write_questions(tmp_path / "q.jsonl", lines)
    report = augment(path, [], tmp_path / "a.jsonl", settings=options)
    assert (report["kept"], report["dropped"]["no question mark"]) == (1, 1)
    again = write_questions(tmp_path / "r.jsonl", [lines[1], {**lines[1], "candidate": 2}])
    report = augment(again, [], tmp_path / "b.jsonl", settings=options)
    assert (report["kept"], report["dropped"]["near duplicate of candidate"]) == (1, 1)


def test_the_parts_of_a_combined_metric_have_the_defaults_of_their_files() -> None:
    combined = "{_target_:rewards.Weighted,parts:{qascore:{weight:0.5},bartscore:{}}}"
    models = ["reward_models.roberta=/my/roberta", "reward_models.bart=/my/bart"]
    options = metric("filters=reward", f"filters.reward.metric={combined}", *models)
    expected = compose(
        "train", ["reward=weighted", "reward.parts={qascore:{weight:0.5},bartscore:{}}", *models, *DATA]
    )
    assert options == expected.reward
    assert options["parts"]["qascore"]["model"] == "/my/roberta"
    for name, message in (
        ("weighted", "parts has no value; give all options"),
        ("qascor", "no such metric; choose one of .*qrelscore"),
        ("a.B", "cannot be"),
    ):
        with pytest.raises(InputError, match=rf"filters\.reward\.metric={name}: {message}"):
            check_filters(Settings(augment=AugmentSettings(filters={"reward": {"metric": name}})))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": "reward", "sample_by": "logprop"}, r"augment\.sample_by=logprop: .*there is logprob"),
        (
            {"filters": {"cap": {"per_answer": 1, "by": "reward"}}},
            r"augment\.filters\.cap\.by=reward: candidates have",
        ),
        ({"filters": {"x": {"kind": "reward", "field": "score"}}}, r"augment\.filters\.x\.field=score"),
    ],
)
def test_a_number_that_generated_candidates_lack_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_numbers(Settings(augment=AugmentSettings(**changes)))
    filters = {"reward": {}, "cap": {"per_answer": 1, "by": "reward"}, "near_duplicates": {"by": "random"}}
    check_numbers(Settings(augment=AugmentSettings(filters=filters, sampling="diverse", sample_by="reward")))


def test_the_command_runs_a_custom_metric(tmp_path: Path) -> None:
    questions = write_questions(
        tmp_path / "q.jsonl",
        [
            record(f"Who met {name} one fine day?", candidate=n)
            for n, name in enumerate(("Charles", "whom", "somebody"))
        ],
    )
    write_squad(
        tmp_path / "gold.json", [QAExample("g", "", PASSAGE, "Who met Charles one fine day?", (Answer("Ada", 0),))]
    )
    run_command(
        "augment",
        [
            *(f"questions={questions}", f"gold={tmp_path}/gold.json", f"output={tmp_path}/a.jsonl", "filters=reward"),
            *("filters.reward.metric=tests.toy_scores.Length", "filters.reward.top_fraction=0.4", "sampling=reward"),
            *("sample_by=reward", "num_samples=1", "training.use_cpu=true"),
        ],
    )
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert '"synthetic-q-2"' in lines[1] and '"reward": 10.0' in lines[1]
