"""Training, validation and unlabelled examples do not share passages; samples are seeded and nested."""

import logging
from collections import Counter
from pathlib import Path

import pytest

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import Answer, QAExample, passage_hash, write_squad
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import answer_spans, leakage, load_splits, load_training, sample_labelled, take
from rl_qg.runtime.errors import InputError
from rl_qg.settings import DataSettings, WorldSettings
from tests.questions import example

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared real data sets are not on this machine")


def files(folder: Path, train: list[QAExample], validation: list[QAExample]) -> DataSettings:
    for name, items in (("train", train), ("validation", validation)):
        write_squad(folder / f"{name}.json", items)
    return DataSettings(train=str(folder / "train.json"), validation=str(folder / "validation.json"))


def test_a_passage_of_both_roles_is_dropped_from_training_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = [example("shared  text here", "text", "?", id="a"), example("other text", "other", "?", id="b")]
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


def test_unlabelled_passages_lose_their_questions_and_are_not_labelled_passages(tmp_path: Path) -> None:
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


def test_the_embedded_corpus_follows_all_its_settings() -> None:
    world = WorldSettings(6, 3, seed=5, shared_facts=0.75, new_wordings=True)
    splits = load_splits(DataSettings(train="world", validation="world", world=world))
    drawn = {"seed": 5, "shared_facts": 0.75}
    assert splits.gold == list(synthetic_examples(6, prefix="train", wordings="training", **drawn))
    assert splits.validation == list(synthetic_examples(3, prefix="validation", wordings="held_out", **drawn))
    world.new_wordings = False
    plain = load_splits(DataSettings(train="world", validation="world", world=world))
    assert plain.gold == list(synthetic_examples(6, prefix="train", **drawn)) != splits.gold


def test_questions_may_be_missing_only_where_there_is_no_validation_data(tmp_path: Path) -> None:
    """A gold example has a question; `load_training` reads passages to ask about too."""
    settings = files(
        tmp_path,
        [example("one text", "one", "?", id="a"), example("other text", "other", "", id="b")],
        [example("third text", "third", "?", id="c"), example("fourth text", "fourth", "", id="d")],
    )
    splits = load_splits(settings)
    assert [item.id for item in splits.gold] == ["a"] and [item.id for item in splits.validation] == ["c"]
    assert splits.report["train"]["dropped"] == {"no question": {"count": 1, "ids": ["b"]}}
    assert [item.id for item in load_training(settings)] == ["a", "b"]


def test_limits_take_a_seeded_sample_in_order() -> None:
    settings = DataSettings(
        train="world", validation="world", world=WorldSettings(30, 10), max_train=20, max_validation=7
    )
    splits, everything = load_splits(settings), load_training(DataSettings(train="world", world=WorldSettings(30, 10)))
    assert (len(splits.gold), len(splits.validation)) == (20, 7)
    order = [item.id for item in everything]
    assert [order.index(item.id) for item in splits.gold] == sorted(order.index(item.id) for item in splits.gold)


def test_a_role_without_a_source_is_an_error() -> None:
    with pytest.raises(InputError, match=r"data\.validation has no value"):
        load_splits(DataSettings(train="world", validation="", world=WorldSettings(3, 3)))


def test_each_answer_span_is_kept_once() -> None:
    rows = [
        example("a b a", "a", "first?", id="1", start=0),
        example("a b a", "a", "second?", id="2", start=0),
        example("a b a", "a", "third?", id="3", start=4),
        example("a b c", "a", "fourth?", id="4", start=0),
    ]
    assert [item.id for item in answer_spans(rows)] == ["1", "3", "4"]


# --- leakage and samples


def about(key: str, context: str) -> QAExample:
    return QAExample(key, "", context, "Who?", (Answer(context[:3], 0),))


def test_leakage_finds_the_shared_passages() -> None:
    train = [about("1", "One  x"), about("2", "One x"), about("3", "Two x"), about("4", "Three x")]
    result = leakage(train, [about("5", "Two\nx"), about("6", "Four x"), about("7", "Two x")])
    assert (result.train_passages, result.validation_passages, result.shared) == (3, 2, 1)
    assert result.shared_hashes == {passage_hash("Two x")}
    assert leakage(train, []).shared == 0


def passages(number: int, per_passage: int = 3) -> list[QAExample]:
    return [about(f"{p}.{q}", f"Passage {p}") for p in range(number) for q in range(per_passage)]


@pytest.mark.parametrize(("fraction", "expected"), [(0.001, 1), (0.1, 4), (0.25, 10), (0.99, 40), (1.0, 40)])
def test_labels_are_split_by_passage(fraction: float, expected: int) -> None:
    everything = passages(40)
    labelled, unlabelled = sample_labelled(everything, fraction, seed=3)
    assert len({e.context for e in labelled}) == expected
    assert leakage(labelled, unlabelled).shared == 0
    assert {e.question for e in unlabelled} <= {""}
    position = {e.id: i for i, e in enumerate(everything)}
    for part in (labelled, unlabelled):
        assert [position[e.id] for e in part] == sorted(position[e.id] for e in part)
    assert Counter(e.id for e in labelled + unlabelled) == Counter(list(position))
    assert all(e == everything[position[e.id]] for e in labelled)


def test_labels_are_split_by_question() -> None:
    """A quarter of 120 questions is 30, and they are of more passages than the ten that hold 30 in whole passages."""
    everything = passages(40)
    labelled, unlabelled = sample_labelled(everything, 0.25, 3, "questions")
    assert len(labelled) == 30 and len(unlabelled) == 90
    assert leakage(labelled, unlabelled).shared > 0 and len({e.context for e in labelled}) > 10
    assert {e.question for e in unlabelled} == {""} and all(e in everything for e in labelled)
    larger, _ = sample_labelled(everything[::-1], 0.5, 3, "questions")
    assert {e.id for e in labelled} < {e.id for e in larger}


def test_smaller_labelled_sets_nest_and_seeds_differ() -> None:
    chosen = [{e.context for e in sample_labelled(passages(40), f, seed=3)[0]} for f in (0.1, 0.3, 0.6)]
    assert chosen[0] < chosen[1] < chosen[2]
    assert chosen[0] != {e.context for e in sample_labelled(passages(40), 0.1, seed=4)[0]}
    assert chosen[1] == {e.context for e in sample_labelled(passages(40)[::-1], 0.3, seed=3)[0]}


@pytest.mark.parametrize("fraction", [0, -0.1, 1.1, float("nan")])
def test_an_invalid_fraction_is_an_error(fraction: float) -> None:
    with pytest.raises(InputError, match="labelled_fraction"):
        sample_labelled(passages(2), fraction, seed=0)


def test_take_samples_in_order() -> None:
    everything = passages(30)
    small, large = take(everything, 20, seed=1), take(everything, 50, seed=1)
    assert len(small) == 20
    assert len(large) == 50
    ids = [e.id for e in everything]
    assert [ids.index(e.id) for e in small] == sorted(ids.index(e.id) for e in small)
    assert {e.id for e in small} < {e.id for e in large}
    assert small != take(everything, 20, seed=2)
    assert small != everything[:20]
    assert take(everything, None, seed=1) == take(everything, 90, seed=1) == take(everything, 91, seed=1) == everything
    with pytest.raises(InputError, match="a limit of 0 examples"):
        take(everything, 0, seed=1)


def test_every_example_is_taken_equally_often() -> None:
    counts = Counter(e.id for seed in range(1000) for e in take(passages(10, 1), 3, seed=seed))
    assert len(counts) == 10
    assert all(abs(count - 300) < 75 for count in counts.values())  # 5 standard deviations of a binomial


@needs_shared
def test_real_train_and_validation_do_not_share_passages_but_xquad_does() -> None:
    train, dev, xquad = (
        read_examples(SHARED / name, role="validation").examples
        for name in ("squad/du_test-v1.1.json.gz", "squad/dev_part1-v1.1.json.gz", "xquad/xquad.en.json")
    )
    assert leakage(train, dev).shared == 0
    assert leakage(xquad, dev).shared > 0
