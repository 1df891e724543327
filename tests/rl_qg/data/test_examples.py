"""What reading keeps, mends, drops and reports; passages, samples and the SQuAD writer."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_qg.data.examples import Answer, QAExample, examples_hash, passage_hash, write_squad
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import leakage, sample_labelled, take
from rl_qg.runtime.errors import InputError

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared real data sets are not on this machine")

CONTEXT = "Ada met Max. Max left, Ada stayed in Rome."


def rows_file(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def row(key: str, *answers: tuple[str, int | None], **changes: Any) -> dict[str, Any]:
    given_answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": key, "context": CONTEXT, "question": "Who?", "answers": given_answers, **changes}


def example(key: str, context: str = CONTEXT, question: str = "Who?") -> QAExample:
    return QAExample(key, "", context, question, (Answer(context[:3], 0),))


# --- What happens to a record ---


def test_each_kind_of_record_is_kept_mended_or_dropped_with_its_id(tmp_path: Path) -> None:
    path = rows_file(
        tmp_path / "x.jsonl",
        row("right", ("Max", 13)),
        row("moved", ("Rome", 36)),
        row("negative", ("Rome", -5)),  # context[-5:] starts with the answer, but that is no offset
        row("unknown", ("Rome", None)),
        row("beyond", ("Rome", 9999)),
        row("float", ("Max", 8.0)),
        row("some", ("Max", 8), ("Lima", 3), ("Ada", 1)),
        row("partly moved", ("Max", 8), ("Rome", 3)),
        row("absent", ("Lima", 0)),
        row("several", ("Max", 0)),
        row("unknown of several", ("Ada", None)),  # it stands at 0, but also elsewhere
        row("blank answer", (" ", 3)),
        row("no answers"),
        row("null answers", answers=None),
        row("blank question", ("Max", 8), question=" \n"),
        row("null question", ("Max", 8), question=None),
        row("blank context", ("Max", 8), context="\t"),
        row("surrogate", ("Max", 8), question="Who \ud800?"),
    )
    data = read_examples(path, role="train")
    assert {e.id: e.answers for e in data.examples} == {
        "right": (Answer("Max", 13),),
        "moved": (Answer("Rome", 37),),
        "negative": (Answer("Rome", 37),),
        "unknown": (Answer("Rome", 37),),
        "beyond": (Answer("Rome", 37),),
        "float": (Answer("Max", 8),),
        "some": (Answer("Max", 8),),
        "partly moved": (Answer("Max", 8), Answer("Rome", 37)),
    }
    report = data.report
    assert {reason: part["ids"] for reason, part in report["dropped"].items()} == {
        "answer not in context": ["absent"],
        "answer misplaced and ambiguous": ["several", "unknown of several"],
        "no answer": ["blank answer", "no answers", "null answers"],
        "no question": ["blank question", "null question"],
        "no context": ["blank context"],
        "broken characters": ["surrogate"],
    }
    assert report["repaired"] == {"count": 5, "ids": ["moved", "negative", "unknown", "beyond", "partly moved"]}
    assert report["answers_dropped"] == {"count": 1, "ids": ["some"]}
    assert report["read"] == 18 == report["kept"] + sum(part["count"] for part in report["dropped"].values())
    assert data.summary().startswith("train data: 8 of 18 records; repaired 5; answers dropped 1; dropped 2 (")


def test_an_answer_that_overlaps_itself_is_ambiguous(tmp_path: Path) -> None:
    path = rows_file(tmp_path / "x.jsonl", row("ok", ("Max", 8)), row("aa", ("aa", 7), context="Baaa!"))
    dropped = read_examples(path, role="train").report["dropped"]
    assert dropped == {"answer misplaced and ambiguous": {"count": 1, "ids": ["aa"]}}


def test_offsets_count_unicode_characters(tmp_path: Path) -> None:
    path = rows_file(tmp_path / "x.jsonl", row("x", ("Ünï", 3), context="😀é Ünï"))
    assert read_examples(path, role="train").report["repaired"]["count"] == 0


def test_impossible_questions_of_squad_v2_are_dropped_with_a_count(tmp_path: Path) -> None:
    answers = [{"text": "Max", "answer_start": 8}]
    qas = [
        {"id": "yes", "question": "Who?", "answers": answers, "is_impossible": False},
        {"id": "no", "question": "Who not?", "answers": [], "plausible_answers": answers, "is_impossible": True},
        {"id": "neither", "question": "Who not?", "is_impossible": True},
    ]
    path = tmp_path / "v2.json"
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]}))
    data = read_examples(path, role="train")
    assert [e.id for e in data.examples] == ["yes"]
    assert data.report["dropped"] == {"impossible question": {"count": 2, "ids": ["no", "neither"]}}


def test_unlabelled_records_are_kept_when_asked_for(tmp_path: Path) -> None:
    bare = row("bare", ("Max", 8))
    del bare["question"]
    path = rows_file(tmp_path / "x.jsonl", row("blank", ("Max", 8), question=""), bare, row("full", ("Max", 8)))
    questions = [e.question for e in read_examples(path, role="train", allow_unlabelled=True).examples]
    assert questions == ["", "", "Who?"]


def test_repeated_ids_become_unique_and_are_counted(tmp_path: Path) -> None:
    first = rows_file(tmp_path / "x.jsonl", *[row(key, ("Max", 8)) for key in ("a", "a-2", "a", "b")])
    second = rows_file(tmp_path / "y.jsonl", *[row(key, ("Max", 8)) for key in ("b", "a", "c")])
    data = read_examples([first, str(second)], role="train")
    assert [e.id for e in data.examples] == ["a", "a-2", "a-3", "b", "b-2", "a-4", "c"]
    assert data.report["duplicate_ids"] == {"count": 3, "ids": ["a", "b", "a"]}
    assert (data.report["read"], data.report["kept"]) == (7, 7)
    assert data.report["sources"] == [str(first), str(second)]
    assert data.hashes == {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in (first, second)}


def test_the_report_counts_all_but_lists_the_first_thousand(tmp_path: Path) -> None:
    path = rows_file(tmp_path / "x.jsonl", row("ok", ("Max", 8)), *[row(f"r{i}", ("Lima", 0)) for i in range(1500)])
    part = read_examples(path, role="train").report["dropped"]["answer not in context"]
    assert part == {"count": 1500, "ids": [f"r{i}" for i in range(1000)]}


def test_one_useless_source_among_good_ones_is_named(tmp_path: Path) -> None:
    good = rows_file(tmp_path / "good.jsonl", row("ok", ("Max", 8)))
    bad = rows_file(tmp_path / "bad.jsonl", row("no", ("Lima", 8)))
    with pytest.raises(InputError, match=r"bad.jsonl: no usable record: 1 read; 1 dropped \(answer not in context\)"):
        read_examples([good, bad], role="train")


# --- Passages ---


def test_passages_are_equal_but_for_white_space() -> None:
    assert passage_hash("a b\n c ") == passage_hash(" a\tb c") == hashlib.sha256(b"a b c").hexdigest()
    assert len({passage_hash(text) for text in ("a b", "ab", "A b", "a b.")}) == 4


def test_leakage_finds_the_shared_passages() -> None:
    train = [example("1", "One  x"), example("2", "One x"), example("3", "Two x"), example("4", "Three x")]
    found = leakage(train, [example("5", "Two\nx"), example("6", "Four x"), example("7", "Two x")])
    assert (found.train_passages, found.validation_passages, found.shared) == (3, 2, 1)
    assert found.shared_hashes == (passage_hash("Two x"),)
    assert leakage(train, []).shared == 0


# --- Samples ---


def passages(number: int, per_passage: int = 3) -> list[QAExample]:
    return [example(f"{p}.{q}", f"Passage {p}") for p in range(number) for q in range(per_passage)]


@pytest.mark.parametrize(("fraction", "expected"), [(0.001, 1), (0.1, 4), (0.25, 10), (0.99, 40), (1.0, 40)])
def test_labels_are_split_by_passage(fraction: float, expected: int) -> None:
    everything = passages(40)
    labelled, unlabelled = sample_labelled(everything, fraction, seed=3)
    assert len({e.context for e in labelled}) == expected
    assert leakage(labelled, unlabelled).shared == 0
    assert {e.question for e in unlabelled} <= {""}
    place = {e.id: i for i, e in enumerate(everything)}
    for part in (labelled, unlabelled):
        assert [place[e.id] for e in part] == sorted(place[e.id] for e in part)
    assert Counter(e.id for e in labelled + unlabelled) == Counter(list(place))
    assert all(e == everything[place[e.id]] for e in labelled)


def test_smaller_labelled_sets_nest_and_seeds_differ() -> None:
    chosen = [{e.context for e in sample_labelled(passages(40), f, seed=3)[0]} for f in (0.1, 0.3, 0.6)]
    assert chosen[0] < chosen[1] < chosen[2]
    assert chosen[0] != {e.context for e in sample_labelled(passages(40), 0.1, seed=4)[0]}
    assert chosen[1] == {e.context for e in sample_labelled(passages(40)[::-1], 0.3, seed=3)[0]}


@pytest.mark.parametrize("fraction", [0, -0.1, 1.1, float("nan")])
def test_a_fraction_that_is_none(fraction: float) -> None:
    with pytest.raises(InputError, match="labelled_fraction"):
        sample_labelled(passages(2), fraction, seed=0)


def test_take_samples_in_order() -> None:
    everything = passages(30)
    some, more = take(everything, 20, seed=1), take(everything, 50, seed=1)
    assert len(some) == 20
    assert len(more) == 50
    ids = [e.id for e in everything]
    assert [ids.index(e.id) for e in some] == sorted(ids.index(e.id) for e in some)
    assert {e.id for e in some} < {e.id for e in more}
    assert some != take(everything, 20, seed=2)
    assert some != everything[:20]
    assert take(everything, None, seed=1) == take(everything, 90, seed=1) == take(everything, 91, seed=1) == everything
    with pytest.raises(InputError, match="a limit of 0 examples"):
        take(everything, 0, seed=1)


def test_every_example_is_taken_equally_often() -> None:
    counts = Counter(e.id for seed in range(1000) for e in take(passages(10, 1), 3, seed=seed))
    assert len(counts) == 10
    assert all(abs(count - 300) < 75 for count in counts.values())  # 5 standard deviations of a binomial


# --- Writing ---

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)


@st.composite
def qa_examples(draw: st.DrawFn) -> list[QAExample]:
    titles = draw(st.lists(st.sampled_from(["", "A", "B"]), min_size=1, max_size=8))
    found = []
    for number, title in enumerate(titles):
        context = draw(st.sampled_from(["Same passage.", "x"]) | texts)
        spans = draw(st.lists(st.tuples(st.integers(0, len(context) - 1), st.integers(1, 9)), min_size=1, max_size=3))
        answers = tuple(Answer(context[start : start + size], start) for start, size in spans)
        answers = tuple(answer for answer in answers if answer.text.strip()) or (Answer(context, 0),)
        found.append(QAExample(f"id{number}", title, context, draw(texts), answers))
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(examples=qa_examples())
def test_what_is_written_is_read_again(tmp_path: Path, examples: list[QAExample]) -> None:
    path = tmp_path / "deep" / "x.json"
    assert write_squad(path, iter(examples)) == len(examples)
    data = read_examples(path, role="train")
    assert data.examples == examples
    assert data.report["repaired"]["count"] == 0
    assert examples_hash(data.examples) == examples_hash(examples)


def test_the_written_form_is_squad(tmp_path: Path) -> None:
    one, two, three = example("1"), example("2"), example("3", "Other context")
    write_squad(
        tmp_path / "x.json", [one, two, three, QAExample("4", "T", "cab", "q", (Answer("a", 1), Answer("b", 2)))]
    )
    qas = [{"id": key, "question": "Who?", "answers": [{"text": CONTEXT[:3], "answer_start": 0}]} for key in "12"]
    other = {"id": "3", "question": "Who?", "answers": [{"text": "Oth", "answer_start": 0}]}
    last = {
        "id": "4",
        "question": "q",
        "answers": [{"text": "a", "answer_start": 1}, {"text": "b", "answer_start": 2}],
    }
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == {
        "version": "1.1",
        "data": [
            {
                "title": "",
                "paragraphs": [{"context": CONTEXT, "qas": qas}, {"context": "Other context", "qas": [other]}],
            },
            {"title": "T", "paragraphs": [{"context": "cab", "qas": [last]}]},
        ],
    }
    assert write_squad(tmp_path / "empty.json", []) == 0
    assert json.loads((tmp_path / "empty.json").read_text()) == {"version": "1.1", "data": []}


def test_a_writer_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_squad(path, [example("1")])
    before = path.read_bytes()

    def failing() -> Any:
        yield example("2")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_squad(path, failing())
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["x.json"]


def test_the_hash_of_examples_sees_every_field_and_the_order() -> None:
    base = QAExample("i", "t", "abc", "q", (Answer("a", 0),))
    variants = [
        [base],
        [QAExample("j", "t", "abc", "q", (Answer("a", 0),))],
        [QAExample("i", "u", "abc", "q", (Answer("a", 0),))],
        [QAExample("i", "t", "abcd", "q", (Answer("a", 0),))],
        [QAExample("i", "t", "abc", "r", (Answer("a", 0),))],
        [QAExample("i", "t", "abc", "q", (Answer("b", 1),))],
        [QAExample("i", "t", "abc", "q", (Answer("a", 0), Answer("a", 0)))],
        [base, example("1")],
        [example("1"), base],
    ]
    assert len({examples_hash(variant) for variant in variants}) == len(variants)


# --- Real files: the counts their source states ---


@needs_shared
@pytest.mark.parametrize(
    ("name", "articles", "passage_count", "questions", "answers", "repaired"),
    [
        ("squad/dev_part1-v1.1.json.gz", 24, 913, 4961, 17778, []),
        ("squad/du_test-v1.1.json.gz", 44, 2430 - 1, 11877, 11877, []),  # one of 2430 paragraphs occurs twice
        ("piaf/piaf-v1.0.json.gz", 191, 761, 3835, 3835, ["p140295202390160", "p140295202893328"]),
        ("xquad/xquad.ar.json.gz", 48, 240, 1190, 1190, []),
        ("xquad/xquad.zh.json", 48, 240, 1190, 1190, []),
    ],
)
def test_real_files_give_the_counts_of_their_source(
    name: str, articles: int, passage_count: int, questions: int, answers: int, repaired: list[str]
) -> None:
    data = read_examples(SHARED / name, role="train")
    examples = data.examples
    assert len(examples) == questions == data.report["read"] == data.report["kept"]
    assert len({e.title for e in examples}) == articles
    assert len({e.context for e in examples}) == passage_count
    assert sum(len(e.answers) for e in examples) == answers
    assert all(e.context[a.start : a.start + len(a.text)] == a.text for e in examples for a in e.answers)
    assert sorted(data.report["repaired"]["ids"]) == repaired
    assert data.report["dropped"] == {}


@needs_shared
def test_real_train_and_validation_do_not_share_passages_but_xquad_does() -> None:
    train, dev, xquad = (
        read_examples(SHARED / name, role="validation").examples
        for name in ("squad/du_test-v1.1.json.gz", "squad/dev_part1-v1.1.json.gz", "xquad/xquad.en.json")
    )
    assert leakage(train, dev).shared == 0
    assert leakage(xquad, dev).shared > 0
