"""The filters of the settings: groups, keys, and the metric that a reward filter means."""

from pathlib import Path
from typing import Any

import pytest
from accelerate import PartialState

from rl_qg import filter_models
from rl_qg.cli import compose, run_command
from rl_qg.errors import InputError
from rl_qg.filter_models import check_filters, needs_models, with_metrics
from rl_qg.qa_data import Answer, QAExample, write_squad
from tests.questions import PASSAGE, record, write_questions

STATE = PartialState(cpu=True)


def metric(*overrides: str, command: str = "augment", name: str = "reward") -> Any:
    return with_metrics(compose(command, overrides), STATE).filters[name]["metric"]


def test_a_reward_filter_has_the_reward_of_the_settings_or_one_of_its_own() -> None:
    models = ["reward_models.roberta=/my/roberta", "reward_models.bart=/my/bart"]
    found = metric("filters=reward", "reward=qascore", "reward.unit=word", *models)
    assert (found["_target_"], found["model"], found["unit"]) == ("rewards.QAScore", "/my/roberta", "word")
    found = metric("filters=reward", "filters.reward.metric=bartscore", *models)
    assert found == {
        **{"_target_": "rewards.BARTScore", "model": "/my/bart", "direction": "faithfulness"},
        **{"batch_size": 32, "dtype": "float32"},
    }
    assert metric("filters=reward", "filters.reward.metric=my.Reward") == {"_target_": "my.Reward"}
    whole = {"_target_": "my.Reward", "depth": 2}
    assert metric("filters=reward", "filters.reward.metric={_target_:my.Reward,depth:2}") == whole
    two = ["filters=paper", "+filters.fluent={kind:reward,metric:qascore}", *models]
    assert metric(*two, name="fluent")["model"] == "/my/roberta"


def test_miniatures_are_made_for_the_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def ready(settings: Any) -> dict[str, Any]:
        asked.append(settings.reward)
        return {"_target_": "ready"}

    monkeypatch.setattr(filter_models, "reward_with_miniatures", ready)
    assert metric("filters=reward", "filters.reward.metric=qascore", "model=miniature") == {"_target_": "ready"}
    assert asked[0]["model"] == "miniature:roberta"


def test_filters_without_models_ask_for_none() -> None:
    assert not needs_models(compose("augment", []))
    assert needs_models(compose("augment", ["filters=reward"]))
    assert needs_models(compose("augment", ["+filters.x={kind:round_trip,reader:r}"]))
    settings = compose("augment", ["filters=reward", "filters.reward.field=score"])
    assert not needs_models(settings)
    assert with_metrics(settings, STATE).filters["reward"]["metric"] is None


def test_keys_of_filters_on_the_command_line() -> None:
    filters = compose("augment", ["filters.length.min_words=4", "filters.duplicates=null"]).augment.filters
    assert filters["length"] == {"min_words": 4, "max_words": 30}
    assert filters["duplicates"] is None
    assert compose("augment", ["filters=none"]).augment.filters == {}
    assert list(compose("augment", ["filters=strict", "filters.round_trip.reader=r"]).augment.filters) == [
        *("length", "answer_in_question", "gold_duplicates", "duplicates"),
        *("well_formed", "language", "near_duplicates", "round_trip"),
    ]
    with pytest.raises(InputError, match=r"augment\.filters\.round_trip\.reader has no value"):
        compose("augment", ["filters=strict"])
    with pytest.raises(InputError, match=r"filters=loose is no choice; choose one of none, paper, reward, strict"):
        compose("augment", ["filters=loose"])
    with pytest.raises(InputError, match=r"no key or group 'augment\.filters\.length.min_word'"):
        compose("augment", ["filters.length.min_word=4"])
    with pytest.raises(InputError, match="length: no option 'min_word'"):
        check_filters(compose("augment", ["+filters.length.min_word=4"]))


def test_the_command_runs_a_metric_of_ones_own(tmp_path: Path) -> None:
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
