"""Rows of the six strategies, written by hand for a toy data set; units by offsets; texts that survive anything."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from transformers import AutoTokenizer

from rl_qg.data.examples import Answer, QAExample
from rl_qg.generation.prompts import Prompt, PromptEncoder, add_highlight
from rl_qg.generation.sets import Unit, join_questions, question_parts, set_rows, unit_row, units_of
from rl_qg.generation.tasks import QUESTION, TYPE_TOKENS, shown
from rl_qg.runtime.errors import InputError
from rl_qg.text.question_types import NINE_TYPES
from tests.tiny_models import byte_tokenizer, save, tiny_bart

ROLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
# The second and the fourth sentence are the same text.
CONTEXT = "Ada met Ben in Rome in 1830. Ben sang. Eve left because of him. Ben sang."
OTHER = "Alone here."


def asked(question: str, answer: str, start: int, key: str, context: str = CONTEXT) -> QAExample:
    assert context.startswith(answer, start)
    return QAExample(key, "", context, question, (Answer(answer, start),))


EXAMPLES = [
    asked("When did they meet?", "1830", 23, "q1"),
    asked("Who met Ben?", "Ada", 0, "q2"),
    asked("Who was met?", "Ben", 8, "q3"),
    asked("Why did she leave?", "because of him", 48, "q4"),
    asked("Who sang again?", "Ben", 64, "q5"),
    asked("Who is alone?", "Alone", 0, "q6", OTHER),
]
MEETING = f"<hl> Ada met Ben in Rome in 1830. <hl>{CONTEXT[28:]}"
LEAVING = f"{CONTEXT[:39]}<hl> Eve left because of him. <hl>{CONTEXT[63:]}"
SINGING = f"{CONTEXT[:64]}<hl> Ben sang. <hl>"
HERE = "<hl> Alone here. <hl>"
ROWS = {
    ("paragraph", "one2one"): [
        (CONTEXT, "Who met Ben?"),
        (CONTEXT, "Who was met?"),
        (CONTEXT, "When did they meet?"),
        (CONTEXT, "Why did she leave?"),
        (CONTEXT, "Who sang again?"),
        (OTHER, "Who is alone?"),
    ],
    ("paragraph", "one2many"): [
        (
            CONTEXT,
            "Who met Ben? <question> Who was met? <question> When did they meet? <question> Why did she leave? "
            "<question> Who sang again?",
        ),
        (OTHER, "Who is alone?"),
    ],
    ("sentence", "one2one"): [
        (MEETING, "Who met Ben?"),
        (MEETING, "Who was met?"),
        (MEETING, "When did they meet?"),
        (LEAVING, "Why did she leave?"),
        (SINGING, "Who sang again?"),
        (HERE, "Who is alone?"),
    ],
    ("sentence", "one2many"): [
        (MEETING, "Who met Ben? <question> Who was met? <question> When did they meet?"),
        (LEAVING, "Why did she leave?"),
        (SINGING, "Who sang again?"),
        (HERE, "Who is alone?"),
    ],
    ("type", "one2one"): [
        (f"<who> {MEETING}", "Who met Ben?"),
        (f"<who> {MEETING}", "Who was met?"),
        (f"<when> {MEETING}", "When did they meet?"),
        (f"<why> {LEAVING}", "Why did she leave?"),
        (f"<who> {SINGING}", "Who sang again?"),
        (f"<who> {HERE}", "Who is alone?"),
    ],
    ("type", "one2many"): [
        (f"<who> {MEETING}", "Who met Ben? <question> Who was met?"),
        (f"<when> {MEETING}", "When did they meet?"),
        (f"<why> {LEAVING}", "Why did she leave?"),
        (f"<who> {SINGING}", "Who sang again?"),
        (f"<who> {HERE}", "Who is alone?"),
    ],
}
HOSTILE = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [
                QUESTION,
                "<\\question>",
                "<\\\\question>",
                "<who>",
                "<\\other>",
                "<pair>",
                "<",
                ">",
                "\\",
                "\n",
                " ",
                "?",
            ]
        )
    ).map("".join),
)


def encoder(granularity: str, length: int = 300, prefix: str = "") -> PromptEncoder:
    tokenizer = byte_tokenizer([CONTEXT], ROLES)
    add_highlight(tokenizer, tiny_bart(len(tokenizer)), "sets")
    return PromptEncoder(tokenizer, Prompt(prefix, length, 300, task="sets", granularity=granularity))


@pytest.mark.parametrize(("granularity", "mode"), ROWS)
def test_rows_are_those_written_by_hand(granularity: str, mode: str) -> None:
    rows = set_rows(granularity, mode, EXAMPLES)
    subject = encoder(granularity)
    inputs = [subject.tokenizer.decode(source.ids) for source in subject.encode(rows)]
    assert [(text, row.question) for text, row in zip(inputs, rows, strict=True)] == ROWS[granularity, mode]
    assert subject.decoded(_padded(subject, rows), rows) == [row.question for row in rows]
    assert len({row.id for row in rows}) == len(rows)
    assert {row.task for row in rows} == {"sets"}


def _padded(subject: PromptEncoder, rows: list) -> object:  # type: ignore[type-arg]
    labels = subject(rows)["labels"]
    return labels.masked_fill(labels == -100, subject.tokenizer.pad_token_id)  # type: ignore[attr-defined]


def test_rows_hold_all_questions_of_their_unit() -> None:
    for mode in ("one2one", "one2many"):
        for row in set_rows("type", mode, EXAMPLES):
            assert row.unit is not None
            start, end = row.unit.start, row.unit.end
            inside = [e.id for e in EXAMPLES if e.context == row.context and start <= e.answers[0].start < end]
            assert {source.id for source in row.sources} <= {*inside}
            assert row.question in join_questions(source.question for source in row.sources)
    (first, *_) = set_rows("sentence", "one2one", EXAMPLES)
    assert [source.id for source in first.sources] == ["q2", "q3", "q1"]


def test_a_sentence_that_stands_twice_is_two_units() -> None:
    first, second = (unit for unit in units_of(CONTEXT, "sentence") if CONTEXT[unit.start : unit.end] == "Ben sang.")
    assert (first.start, first.end, second.start, second.end) == (29, 38, 64, 73)
    (row,) = set_rows("sentence", "one2many", [EXAMPLES[4]])
    assert row.unit == second
    assert encoder("sentence").tokenizer.decode(encoder("sentence").encode([unit_row("x", first)])[0].ids) == (
        f"{CONTEXT[:29]}<hl> Ben sang. <hl>{CONTEXT[38:]}"
    )


def test_an_answer_that_ends_in_another_sentence_belongs_where_it_begins() -> None:
    (row,) = set_rows("sentence", "one2many", [asked("What?", "1830. Ben", 23, "q")])
    assert row.unit == Unit(CONTEXT, 0, 28)
    (row,) = set_rows("sentence", "one2many", [asked("What?", " Ben", 28, "q")])
    assert row.unit == Unit(CONTEXT, 29, 38)


def test_units_follow_the_classifiers() -> None:
    worthy = [True, False, True, False]
    assert [unit.start for unit in units_of(CONTEXT, "sentence", worthy)] == [0, 39]
    types = [["when", "who"], ["what"], ["why"], []]
    assert [(unit.start, unit.type) for unit in units_of(CONTEXT, "type", worthy, types)] == [
        (0, "who"),
        (0, "when"),
        (39, "why"),
    ]
    assert len(units_of(CONTEXT, "type")) == 4 * len(NINE_TYPES)
    assert units_of(CONTEXT, "paragraph", worthy) == [Unit(CONTEXT, 0, len(CONTEXT))]
    assert units_of(" \n", "sentence") == []
    with pytest.raises(InputError, match="worthy: 1 for 4 sentences"):
        units_of(CONTEXT, "sentence", [True])
    with pytest.raises(InputError, match="'whom' is not one of who, when"):
        units_of(CONTEXT, "type", types=[["whom"], [], [], []])
    with pytest.raises(InputError, match=r"ask\.granularity=word is not one of paragraph, sentence, type"):
        units_of(CONTEXT, "word")


def test_a_sentence_without_a_word_is_no_unit() -> None:
    context = "Er kam. ... \n\n* * *\n\n他来了。"
    assert [context[unit.start : unit.end] for unit in units_of(context, "sentence")] == ["Er kam.", "他来了。"]
    assert units_of("?!", "type") == []


def test_questions_without_an_answer_belong_to_the_first_sentence() -> None:
    row = QAExample("u", "t", "Ada came. Ben sang.", "Who came?", ())
    assert [row.unit for row in set_rows("type", "one2many", [row])] == [Unit(row.context, 0, 9, "who")]


def test_a_question_that_is_asked_twice_counts_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    again = asked("who  MET Ben?", "Ben", 8, "again")
    assert [row.question for row in set_rows("sentence", "one2many", [EXAMPLES[1], again])] == ["Who met Ben?"]
    assert "1 questions that are asked twice" in caplog.text


def test_passages_without_questions_give_units_without_texts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    unlabelled = [replace(example, question="") for example in EXAMPLES]
    for mode in ("one2one", "one2many"):
        rows = set_rows("sentence", mode, unlabelled)
        assert [(row.question, len(row.sources)) for row in rows] == [("", 3), ("", 1), ("", 1), ("", 1)]
    assert set_rows("type", "one2many", unlabelled) == []
    assert "6 examples without a question are left out" in caplog.text


def test_shuffled_rows_keep_their_questions_and_depend_on_seed_and_passage_alone() -> None:
    def orders(seed: int, examples: list[QAExample]) -> list[list[str]]:
        rows = set_rows("paragraph", "one2many", examples, order="shuffle", seed=seed)
        return [question_parts(row.question) for row in rows]

    position = question_parts(set_rows("paragraph", "one2many", EXAMPLES)[0].question)
    found = [orders(seed, EXAMPLES)[0] for seed in range(8)]
    assert all(sorted(order) == sorted(position) for order in found) and len({*map(tuple, found)}) > 3
    assert orders(3, EXAMPLES[:5][::-1])[0] == found[3]  # neither other passages nor the order of the data matter


@given(st.lists(HOSTILE, min_size=1))
def test_any_questions_survive_the_round_trip(questions: list[str]) -> None:
    text = join_questions(questions)
    expected = [question.strip() for question in questions]
    assert question_parts(text) == (expected if text.strip() else [])


def test_empty_parts_stay() -> None:
    assert question_parts(f"Who? {QUESTION} {QUESTION} Where?{QUESTION}") == ["Who?", "", "Where?", ""]
    assert question_parts(" \n") == []


@given(st.lists(HOSTILE, min_size=1, max_size=3), HOSTILE)
def test_questions_and_passages_survive_the_tokenizer(questions: list[str], context: str) -> None:
    subject = SUBJECT
    row = replace(unit_row("x", Unit(context, 0, len(context), "who")), question=join_questions(questions))
    (ids,) = subject.targets([row])
    separators = ids.count(subject.tokenizer.convert_tokens_to_ids(QUESTION))
    assert separators == len(questions) - 1
    (source,) = subject.encode([row])
    tokens = subject.tokenizer.convert_tokens_to_ids([QUESTION, *TYPE_TOKENS.values()])
    assert [token for token in source.ids if token in tokens] == [tokens[1]]


SUBJECT = encoder("type", length=10_000)


def test_measures_see_no_tokens() -> None:
    row = unit_row("x", Unit(OTHER, 0, 5, "who"))
    assert shown(row, f"Who? {QUESTION} Is it <\\who>?") == "Who? Is it <who>?"


def test_a_long_passage_is_cut_around_its_sentence_and_keeps_the_type() -> None:
    unit = Unit(CONTEXT, 39, 63, "why")
    (source,) = encoder("type", 26, "ask: ").encode([unit_row("x", unit)])
    text = encoder("type").tokenizer.decode(source.ids)
    assert len(source.ids) == 26 and text.startswith("ask: <why>")
    assert "<hl> Eve left because of him. <hl>" in text


def test_tokens_are_saved_with_the_model_and_reloaded(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer([CONTEXT], ROLES)
    model = tiny_bart(len(tokenizer))
    add_highlight(tokenizer, model, "sets")
    again = AutoTokenizer.from_pretrained(save(tmp_path / "model", tokenizer, model))
    for token in (QUESTION, *TYPE_TOKENS.values()):
        assert again.tokenize(f"a{token}b").count(token) == 1
        assert again.convert_tokens_to_ids(token) == tokenizer.convert_tokens_to_ids(token)
    Prompt(task="sets", granularity="type", mode="one2one").save(tmp_path)
    assert Prompt.of(tmp_path, model, tokenizer) == Prompt(task="sets", granularity="type", mode="one2one")
