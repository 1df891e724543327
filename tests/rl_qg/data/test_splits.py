"""Roles are kept apart: no validation passage is trained on, no unlabelled question is known."""

import logging
from pathlib import Path

import pytest

from rl_qg.data.examples import QAExample, passage_hash, write_squad
from rl_qg.data.splits import answer_spans, load_splits, load_training
from rl_qg.data.synthetic_corpus import synthetic_examples
from rl_qg.runtime.errors import InputError
from rl_qg.settings import DataSettings, WorldSettings
from tests.questions import example


def files(folder: Path, train: list[QAExample], validation: list[QAExample]) -> DataSettings:
    for name, items in (("train", train), ("validation", validation)):
        write_squad(folder / f"{name}.json", items)
    return DataSettings(train=str(folder / "train.json"), validation=str(folder / "validation.json"))


def test_a_passage_of_both_roles_is_dropped_from_training_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = [example("shared  text here", "text", "?", id="a"), example("own text", "own", "?", id="b")]
    settings = files(tmp_path, train, [example("shared text here", "here", "?", id="c")])  # other white space
    with caplog.at_level(logging.INFO):
        splits = load_splits(settings)
    assert [item.id for item in splits.gold] == ["b"]
    assert splits.leakage["shared_passages"] == 1
    assert splits.leakage["train_examples_dropped"] == 1
    assert "1 shared; 1 training examples dropped" in caplog.text
    assert set(splits.hashes) == {str(tmp_path / "train.json"), str(tmp_path / "validation.json")}


def test_training_on_the_validation_file_alone_is_refused(tmp_path: Path) -> None:
    settings = files(tmp_path, [example("a b", "a", "?")], [example("a b", "b", "?")])
    with pytest.raises(InputError, match=r"every passage is also in data\.validation"):
        load_splits(settings)


def test_unlabelled_passages_lose_their_questions_and_no_passage_is_on_both_sides(tmp_path: Path) -> None:
    settings = files(tmp_path, list(synthetic_examples(40, seed=0)), list(synthetic_examples(5, seed=1)))
    settings.labelled_fraction = 0.25
    splits = load_splits(settings)
    labelled, unlabelled = ({passage_hash(item.context) for item in part} for part in (splits.gold, splits.unlabelled))
    assert not labelled & unlabelled
    assert len(labelled) == 10 and len(unlabelled) == 30
    assert all(item.question == "" for item in splits.unlabelled)
    assert all(item.question for item in splits.gold)
    assert load_splits(settings) == splits


def test_the_embedded_corpus_needs_no_file() -> None:
    settings = DataSettings(train="world", validation="world", world=WorldSettings(6, 3))
    splits = load_splits(settings)
    assert splits.leakage["shared_passages"] == 0
    assert splits.report["train"]["kept"] == len(splits.gold) == len(load_training(settings))


def test_limits_take_a_seeded_sample_in_order() -> None:
    settings = DataSettings(
        train="world", validation="world", world=WorldSettings(30, 10), max_train=20, max_validation=7
    )
    splits, everything = load_splits(settings), load_training(DataSettings(train="world", world=WorldSettings(30, 10)))
    assert (len(splits.gold), len(splits.validation)) == (20, 7)
    order = [item.id for item in everything]
    assert [order.index(item.id) for item in splits.gold] == sorted(order.index(item.id) for item in splits.gold)


def test_a_role_without_a_source_is_one_line() -> None:
    with pytest.raises(InputError, match=r"data\.validation has no value"):
        load_splits(DataSettings(train="world", validation="", world=WorldSettings(3, 3)))


def test_one_span_is_asked_about_once() -> None:
    rows = [
        example("a b a", "a", "first?", id="1", start=0),
        example("a b a", "a", "second?", id="2", start=0),
        example("a b a", "a", "third?", id="3", start=4),
        example("a b c", "a", "fourth?", id="4", start=0),
    ]
    assert [item.id for item in answer_spans(rows)] == ["1", "3", "4"]
