"""What a generator reads of an example, against inputs that were written by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from rl_qg.data.examples import Answer, QAExample
from rl_qg.generation.prompts import INPUTS, CausalPromptEncoder, Prompt, PromptEncoder, add_highlight
from rl_qg.generation.tasks import sentence_rows
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AskSettings, ModelSettings, Settings
from tests.questions import example
from tests.tiny_models import tiny_bart, word_tokenizer

PASSAGE = "Ada met Ben . Ben met Ada in Rome . He died ."
WORDS = f"{PASSAGE} ask: extract answers: generate question: Question:"
BY_HAND = {  # the second Ada is the answer
    "paragraph_answer": "Ada met Ben . Ben met <hl> Ada <hl> in Rome . He died .",
    "sentence_answer": "Ben met <hl> Ada <hl> in Rome .",
    "paragraph_sentence": "Ada met Ben . <hl> Ben met Ada in Rome . <hl> He died .",
    "paragraph": "Ada met Ben . Ben met Ada in Rome . He died .",
}
ASKED = example(PASSAGE, "Ada", "Who met Ben ?", start=22)


def encoder(
    form: str, *, length: int = 100, kind: type[PromptEncoder] = PromptEncoder, **prompt: str
) -> PromptEncoder:
    tokenizer = word_tokenizer(WORDS, "$A" if kind is CausalPromptEncoder else "<s> $A </s>")
    task = prompt.get("task", "questions")
    add_highlight(tokenizer, tiny_bart(len(tokenizer)), task)
    return kind(tokenizer, Prompt(max_source_length=length, input=form, **prompt))  # type: ignore[arg-type]


def read(subject: PromptEncoder, item: QAExample) -> str:
    (source,) = subject.encode([item])
    return str(subject.tokenizer.decode(source.ids))


@pytest.mark.parametrize("form", INPUTS)
def test_the_input_is_that_written_by_hand(form: str) -> None:
    assert read(encoder(form, prefix="ask: "), ASKED) == f"<s> ask: {BY_HAND[form]} </s>"
    causal = encoder(form, kind=CausalPromptEncoder, prefix="ask: ", separator=" Question:")
    assert read(causal, ASKED) == f"ask: {BY_HAND[form]} Question:"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("sentence_answer", "Ada met <hl> Ben . Ben met Ada <hl> in Rome ."),
        ("paragraph_sentence", "<hl> Ada met Ben . Ben met Ada in Rome . <hl> He died ."),
    ],
)
def test_an_answer_in_two_sentences_takes_both(form: str, expected: str) -> None:
    assert read(encoder(form), example(PASSAGE, "Ben . Ben met Ada", "?")) == f"<s> {expected} </s>"


def test_a_passage_without_an_answer_is_read_as_it_is() -> None:
    bare = replace(ASKED, answers=())
    assert {read(encoder(form), bare) for form in INPUTS} == {f"<s> {PASSAGE} </s>"}


def test_long_inputs_are_cut_around_what_is_marked_or_at_their_end() -> None:
    assert read(encoder("sentence_answer", length=9), ASKED) == "<s> Ben met <hl> Ada <hl> in Rome </s>"
    assert read(encoder("paragraph", length=6), ASKED) == "<s> Ada met Ben . </s>"
    assert read(encoder("paragraph", length=4, kind=CausalPromptEncoder), ASKED) == "Ada met Ben ."
    (cut,) = encoder("paragraph_sentence", length=8).encode([ASKED])
    assert cut.answer_cut and cut.tokens_cut > 0
    assert encoder("sentence_answer", length=10).count_cuts([ASKED])["windowed"] == 0  # that is its length


def test_rows_for_answers_of_multitask_do_not_change() -> None:
    subject = encoder("sentence_answer", task="multitask")
    assert read(subject, ASKED) == f"<s> generate question: {BY_HAND['sentence_answer']} </s>"
    row = sentence_rows("x", PASSAGE)[0]
    assert read(subject, row) == "<s> extract answers: <hl> Ada met Ben . <hl> Ben met Ada in Rome . He died . </s>"


@pytest.mark.parametrize("form", INPUTS[:3])
def test_an_answer_that_is_not_at_its_offset_is_refused(form: str) -> None:
    with pytest.raises(InputError, match="example q7: answer 'Ada' is not at offset 5"):
        encoder(form).encode([QAExample("q7", "", PASSAGE, "?", (Answer("Ada", 5),))])


def test_the_input_is_stored_with_the_model_and_old_models_have_the_default(tmp_path: Path) -> None:
    Prompt(input="paragraph").save(tmp_path)
    assert Prompt.of(tmp_path, tiny_bart(10), word_tokenizer("a")).input == "paragraph"
    (tmp_path / "prompt.json").write_text('{"prefix": "ask: ", "max_source_length": 100, "max_target_length": 20}')
    assert Prompt.of(tmp_path, tiny_bart(10), word_tokenizer("a")) == Prompt(
        "ask: ", 100, 20, input="paragraph_answer", language=""
    )
    (tmp_path / "prompt.json").write_text('{"input": "sentence"}')
    with pytest.raises(InputError, match=r"prompt\.json: input=sentence is not one of paragraph_answer, sentence_a"):
        Prompt.of(tmp_path, tiny_bart(10), word_tokenizer("a"))


def test_other_tasks_have_no_choice_of_inputs() -> None:
    Settings(model=ModelSettings("x", input="sentence_answer", task="multitask")).check()
    for wrong in (
        Settings(model=ModelSettings("x", input="paragraph", task="pairs")),
        Settings(model=ModelSettings("x", input="paragraph"), ask=AskSettings(granularity="sentence")),
    ):
        with pytest.raises(
            InputError, match=r"model\.input=paragraph: is for model\.task=questions or multitask, not"
        ):
            wrong.check()
