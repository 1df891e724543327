"""The texts of pairs and answers survive any content, and rows hold what people asked."""

import pytest
from hypothesis import given, strategies as st

from rl_qg.data.examples import Answer, QAExample
from rl_qg.generation.prompts import HIGHLIGHT, Prompt, PromptEncoder, add_highlight, highlight
from rl_qg.generation.tasks import (
    ANSWER,
    PAIR,
    TaskRow,
    escape,
    join_answers,
    join_pairs,
    pair_parts,
    pairs_row,
    parse_answers,
    row_tasks,
    sentence_rows,
    task_rows,
    tokens_of,
    unescape,
)
from rl_qg.runtime.errors import InputError
from tests.questions import example
from tests.tiny_models import byte_tokenizer, tiny_bart

HOSTILE = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [PAIR, ANSWER, "<\\pair>", "<\\\\answer>", "|", ", answer: ", "question: ", "\n", " ", "<", ">", "\\", "x"]
        )
    ).map("".join),
)
ROLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
CONTEXT = "Ada met Ben in Rome. Ben died in 1900."
EXAMPLES = [
    example(CONTEXT, "1900", "When did Ben die?", "e1"),
    example(CONTEXT, "Ada", "Who met Ben?", "e2"),
    example(CONTEXT, "Rome", "Where did they meet?", "e3"),
    example("Alone here.", "here", "Where?", "e4"),
]


@given(st.lists(st.tuples(HOSTILE, HOSTILE)))
def test_any_pairs_survive_the_round_trip(pairs: list[tuple[str, str]]) -> None:
    stripped = [(question.strip(), answer.strip()) for question, answer in pairs]
    assert pair_parts(join_pairs(pairs)) == stripped


@given(st.lists(HOSTILE))
def test_any_answers_survive_the_round_trip(answers: list[str]) -> None:
    assert parse_answers(join_answers(answers)) == [answer.strip() for answer in answers if answer.strip()]


@given(HOSTILE)
def test_escaped_text_has_no_separator_and_can_be_read_back(text: str) -> None:
    assert unescape(escape(text)) == text
    assert not any(token in escape(text) for token in (PAIR, ANSWER, HIGHLIGHT))


def test_parts_that_are_no_pair_are_kept_apart() -> None:
    text = f"Who? {ANSWER} Ada {PAIR} no answer {PAIR} a {ANSWER} b {ANSWER} c {PAIR} {ANSWER} Ben {PAIR}"
    assert pair_parts(text) == [("Who?", "Ada"), ("no answer", ""), ("", ""), ("", "Ben"), ("", "")]
    assert pair_parts(" \n") == []


def test_pairs_of_a_passage_are_in_the_order_of_their_answers() -> None:
    first, second = task_rows("pairs", [*EXAMPLES, EXAMPLES[0]])  # a repeated example counts once
    assert pair_parts(first.question) == [
        ("Who met Ben?", "Ada"),
        ("Where did they meet?", "Rome"),
        ("When did Ben die?", "1900"),
    ]
    assert not first.answers and isinstance(first, TaskRow) and len(first.sources) == 3
    assert pair_parts(second.question) == [("Where?", "here")]


def test_answers_have_a_row_for_each_sentence_that_people_asked_about() -> None:
    rows = task_rows("answers", EXAMPLES)
    assert [(row.answers[0].text, row.answers[0].start, parse_answers(row.question)) for row in rows] == [
        ("Ada met Ben in Rome.", 0, ["Ada", "Rome"]),
        ("Ben died in 1900.", 21, ["1900"]),
        ("Alone here.", 0, ["here"]),
    ]
    assert len({row.id for row in rows}) == 3


def test_an_answer_beyond_its_sentence_is_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert not task_rows("answers", [example(CONTEXT, "Rome. Ben", "What?")])
    assert "1 answers that go beyond a sentence" in caplog.text


def test_passages_without_questions_teach_pairs_but_no_answers() -> None:
    unlabelled = [example(CONTEXT, "Ada", ""), example(CONTEXT, "Rome", "")]
    (row,) = task_rows("pairs", unlabelled)
    assert row.question == "" and isinstance(row, TaskRow) and len(row.sources) == 2
    assert task_rows("answers", unlabelled) == []


def test_multitask_is_questions_and_answers_and_questions_are_the_examples() -> None:
    assert task_rows("questions", EXAMPLES) == EXAMPLES
    assert task_rows("multitask", EXAMPLES) == [*EXAMPLES, *task_rows("answers", EXAMPLES)]
    with pytest.raises(InputError, match=r"model\.task=both is not one of questions, answers, multitask, pairs, sets"):
        row_tasks("both")


# --- with a tokenizer


def encoder(task: str, prefix: str = "", length: int = 100) -> PromptEncoder:
    tokenizer = byte_tokenizer([CONTEXT], ROLES)
    add_highlight(tokenizer, tiny_bart(len(tokenizer)), task)
    return PromptEncoder(tokenizer, Prompt(prefix, length, 100, task=task))


@given(st.lists(st.tuples(HOSTILE, HOSTILE), min_size=1, max_size=3))
def test_pairs_survive_the_tokenizer(pairs: list[tuple[str, str]]) -> None:
    subject = ENCODERS["pairs"]
    row = TaskRow("x", "", "text", join_pairs(pairs), (), task="pairs")
    (ids,) = subject.tokenizer(text_target=[subject.target(row)])["input_ids"]
    separators = subject.tokenizer.convert_tokens_to_ids([PAIR, ANSWER])
    assert sum(token in separators for token in ids) == 2 * len(pairs) - 1
    (text,) = subject.decoded(as_tensor(ids), [row])
    assert pair_parts(text) == pair_parts(row.question)


@given(HOSTILE)
def test_no_text_puts_a_separator_into_an_input(text: str) -> None:
    for task, subject in ENCODERS.items():
        rows = [*sentence_rows("x", text), QAExample("x", "", f"{text} w", "", (Answer("w", len(text) + 1),))]
        rows = [pairs_row("x", text)] if task == "pairs" else rows if task == "multitask" else rows[:-1]
        for source in subject.encode(rows) if rows else []:
            assert not {*subject.tokenizer.convert_tokens_to_ids([PAIR, ANSWER])} & {*source.ids}


def test_each_row_of_multitask_has_the_prefix_of_its_task() -> None:
    subject = encoder("multitask")
    rows = [EXAMPLES[1], *task_rows("answers", EXAMPLES[1:2])]
    texts = subject.tokenizer.batch_decode([source.ids for source in subject.encode(rows)])
    assert texts[0].startswith(f"generate question: {HIGHLIGHT} Ada {HIGHLIGHT} met")
    assert texts[1].startswith(f"extract answers: {HIGHLIGHT} Ada met Ben in Rome. {HIGHLIGHT} Ben")


def test_a_question_of_a_multitask_model_has_no_separator() -> None:
    subject = encoder("multitask")
    (ids,) = subject.tokenizer([f"Who? {ANSWER} {escape(PAIR)}"])["input_ids"]
    assert subject.decoded(as_tensor(ids), [EXAMPLES[0]]) == [f"Who?  {PAIR}"]


def test_nothing_marked_is_cut_at_the_end() -> None:
    subject = encoder("pairs", "ask: ", 20)
    row = pairs_row("x", CONTEXT)
    whole = encoder("pairs", "ask: ").encode([row])[0].ids
    assert subject.encode([row])[0].ids == whole[:20]
    assert highlight(row, tokens_of("pairs")) == CONTEXT


@pytest.mark.parametrize(("task", "row"), [("pairs", EXAMPLES[0]), ("questions", pairs_row("x", CONTEXT))])
def test_a_model_refuses_rows_of_another_task(task: str, row: QAExample) -> None:
    with pytest.raises(InputError, match=f"the model was trained with model.task={task}, and cannot do"):
        encoder(task).encode([row])


def as_tensor(ids: list[int]):
    import torch

    return torch.tensor([ids])


ENCODERS = {task: encoder(task) for task in ("pairs", "answers", "multitask")}
