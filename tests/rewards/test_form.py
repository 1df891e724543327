"""The gate: each of its checks on questions that pass and that do not, and its use in a product."""

import pytest
from hypothesis import given, strategies as st

from rewards import MetricInputError, Product, QuestionForm, load
from rewards.form import CHECKS
from rewards.overlap.answerability import opens_question
from tests.tiny_models import PIECE_SPECIALS, piece_tokenizer

PASSAGE = "Ida Koll built the first mill on the river Esk in 1204. Duran Duran sang in the town of Arlen."


def checks(question, answer="Ida Koll", context=PASSAGE, **options):
    """The names of the checks that fail."""
    result = QuestionForm(**options).score([question], [context], answers=[answer])
    failed = {name for name, values in result.parts.items() if values != [1.0]}
    assert result.scores == [float(not failed)]
    return failed


QUESTIONS = [
    "Who built the first mill?",
    "In what year did Ida build it?",
    "At the end of which war was it built?",
    "Is it in Arlen?",
    "Didn't she sing?",
    "In 1204, who built a mill?",
    "In 1204 who built a mill?",
    "According to the passage, what did she build?",
    "If so, was it a mill?",
    "When it was built, did she sing?",
    "Referring to the passage, how many were there?",
    "“What” was the mill’s name?",
    "WHO BUILT IT?",
    "Can't a mill be built?",
    "Won't it burn?",
    "Based on the passage, what did she build?",
]
FRAGMENTS = [
    "The mill on the river?",
    "The mill, which was built?",
    "The man who built it?",
    "It was built by whom?",
    "Who?",
    "In the town?",
    "In the town was which mill?",
    "Arlen, is it?",
    "Beijing, which is the capital?",
    "Alfred, who built the tower?",
    "Red Army, who led it?",
    "?",
    "",
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_pass(question):
    assert opens_question(question)
    assert checks(question, answer="Koll") == set()


@pytest.mark.parametrize("text", FRAGMENTS)
def test_fragments_do_not(text):
    assert not opens_question(text)
    assert "question_word" in checks(text)


def test_other_languages_have_no_check_of_words():
    assert checks("Wurde die Mühle gebaut?", language="de") == set()
    assert checks("谁建造了磨坊？", language="zh") == set()
    assert checks("من بنى الطاحونة؟", language="ar") == set()
    assert checks("Wurde die Mühle gebaut?") == {"question_word"}


@pytest.mark.parametrize(
    "question", ["Who built it", "Who built it.", "Who built it? Why?", "Who? built it", "Who?? "]
)
def test_one_question_mark_at_the_end(question):
    assert "question_mark" in checks(question)


def test_white_space_after_the_mark_does_not_count():
    assert checks("Who built it ? \n") == set()


@pytest.mark.parametrize(
    ("question", "repeated"),
    [
        ("Who built the the mill?", True),
        ("Who built The the mill?", True),
        ("What is the name of the river of the name of the mill?", True),
        ("Who built the mill and the river?", False),
        ("What did Duran Duran sing?", False),
        ("What did Ida Ida sing?", True),
        ("Was it 1.1 million or 10 10 ?", True),
        ("Was it 1.1 million?", False),
    ],
)
def test_repetition(question, repeated):
    """A name that the passage repeats may be repeated."""
    assert checks(question, answer="x") == ({"no_repetition"} if repeated else set())


def test_three_words_that_the_passage_repeats_too():
    context = "The mill of Ida Koll and the house of Ida Koll and the town."
    question = "Who owns the mill of Ida Koll and the house of Ida Koll and it?"
    assert checks(question, answer="x", context=context, max_copied=20) == set()
    assert checks(question, answer="x", max_copied=20) == {"no_repetition"}


def test_characters_of_scripts_without_spaces_may_be_repeated():
    assert checks("谢谢谢谢谢谢是什么意思？", language="zh") == set()


@pytest.mark.parametrize(
    ("answer", "inside"),
    [
        ("mill", True), ("the first mill", True), ("A first Mill!", True), ("first", True), ("fir", False),
        ("mill first", False), ("", False), ("the", False),
    ],
)  # fmt: skip
def test_the_answer(answer, inside):
    question = "Who built the first mill?"
    assert checks(question, answer=answer) == ({"no_answer"} if inside else set())
    assert checks(question, answer=answer, allow_answer=True) == set()


@pytest.mark.parametrize(
    ("question", "inside"),
    [
        ("What is Ada Elmford's year of birth?", True), ("What is “Ada Elmford” about?", True),
        ("Who is Ada Elmford’s mother?", True), ("What is it—Ada Elmford?", True), ("What is Ada-Elmford?", True),
        ("What is Ada's Elmford?", False), ("Who is Adam Elmford?", False),
    ],
)  # fmt: skip
def test_the_answer_beside_signs(question, inside):
    assert checks(question, answer="Ada Elmford") == ({"no_answer"} if inside else set())


def test_the_answer_in_a_script_without_spaces():
    assert checks("谁建造了磨坊？", answer="磨坊", language="zh") == {"no_answer"}


@pytest.mark.parametrize("most", [0, 3, 4, 8])
def test_copied_words(most):
    """ "the first mill on" are four words in a row of the passage, capital letters aside."""
    assert checks("Who saw The first mill on Arlen?", max_copied=most) == ({"no_copy"} if most < 4 else set())


def test_a_copied_sentence_with_a_question_word_in_front():
    assert checks("What built the first mill on the river Esk in 1204?") == {"no_copy"}


WORDS = st.lists(st.sampled_from("ida built the first mill on river who".split()), max_size=12)


@given(question=WORDS, context=WORDS, most=st.integers(0, 5))
def test_copies_against_a_search_in_texts(question, context, most):
    text = f" {' '.join(context)} "
    copied = any(f" {' '.join(question[at : at + most + 1])} " in text for at in range(len(question) - most))
    metric = QuestionForm(max_copied=most, allow_answer=True)
    parts = metric.score([" ".join(question)], [text]).parts
    assert parts["no_copy"] == [float(not copied)]


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40), st.text(max_size=9)), max_size=3))
def test_any_text_has_a_score_of_0_or_1(rows):
    questions, contexts, answers = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    result = QuestionForm().score(questions, contexts, answers=answers)
    assert set(result.scores) <= {0.0, 1.0}
    assert {*result.parts, "known_words"} == set(CHECKS)


def test_needs_and_parts_without_the_answer():
    metric = QuestionForm(allow_answer=True)
    assert metric.needs == {"contexts"}
    assert metric.part_names == tuple(name for name in CHECKS if name not in ("no_answer", "known_words"))
    assert metric.score(["Who built it?"], [PASSAGE]).scores == [1.0]
    assert QuestionForm().needs == {"contexts", "answers"}


def test_signature_names_every_choice():
    chosen = [load("form"), load("form", language="de"), load("form", max_copied=5), load("form", allow_answer=True)]
    assert len({metric.signature for metric in chosen}) == 4
    assert chosen[0].signature.startswith("form|language:en|max_copied:8|allow_answer:no|")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "English"}, "language 'English' is no code"),
        ({"language": None}, "language None is no code"),
        ({"max_copied": -1}, "max_copied -1 is out of range; give a whole number from 0"),
        ({"allow_answer": 1}, "allow_answer 1 is neither true nor false"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(MetricInputError, match=message):
        QuestionForm(**options)


VOCABULARY = "How many workers does employ who built the mill in year how ? ##well ##s 2 ' Do es".split()
WORKERS = "Eklwell Mills employs 5 workers. Éva works there."


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A folder with a tokenizer whose words are known: those without ## above."""
    folder = tmp_path_factory.mktemp("vocabulary")
    piece_tokenizer(VOCABULARY).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("question", "known"),
    [
        ("How many workers does Eklwell Mills employ?", True),  # the vocabulary's words, and the passage's
        ("How many workers doeswell Mills employ?", False),  # two tokens
        ("How many workers does EKLWELL MILLS employ?", True),  # case does not count
        ("HOW many Workers does mills employ?", True),
        ("How many workers does ÉVA employ?", True),
        ("How many workers does Eklmann employ?", False),  # not in the passage
        ("How many workers does the mill's built?", False),  # the s is no word of its own
        ("How many workers does 7 employ?", True),  # numbers are none of its concern
        ("How many works does employ?", True),
        ("How many workses does employ?", False),
    ],
)
def test_known_words(question, known, vocabulary):
    failed = checks(question, answer="x", context=WORKERS, vocabulary=vocabulary)
    assert failed == (set() if known else {"known_words"})


@given(st.lists(st.sampled_from(["How", "many", "workers", "does", "employ", "Eklwell", "Éva"]), max_size=8))
def test_words_of_vocabulary_and_passage_pass_in_any_order_and_glued_ones_fail(vocabulary, words):
    gate = QuestionForm(vocabulary=vocabulary)
    glued = "".join(["How", *words, "many"])
    parts = gate.score([" ".join(words), glued], [WORKERS] * 2, answers=["x"] * 2).parts
    assert parts["known_words"] == [1.0, 0.0]


def test_scripts_without_spaces_have_no_known_words(vocabulary):
    assert checks("谁建造了磨坊？", language="zh", vocabulary=vocabulary) == set()


def test_the_vocabulary_is_part_of_the_signature(vocabulary, tmp_path):
    assert "vocabulary" not in QuestionForm().signature
    assert f"vocabulary:{len(PIECE_SPECIALS) + len(VOCABULARY)}@" in QuestionForm(vocabulary=vocabulary).signature
    with pytest.raises(MetricInputError, match="cannot load the tokenizer of"):
        QuestionForm(vocabulary=str(tmp_path))


def test_the_gate_of_a_reader(folders):
    """`reward=gated`: the reader's probability for a question, 0 for what is none; bounds 0 to 1."""
    gated = Product({"reader": {"model": folders["reader"]}, "form": {}})
    questions = ["Who built it?", "Ida Koll built the first mill on the river Esk", "Who built it? Who?"]
    result = gated.score(questions, [PASSAGE] * 3, answers=["1204"] * 3)
    assert result.scores == [result.parts["reader"][0], 0.0, 0.0]
    assert min(result.parts["reader"]) > 0
    assert gated.bounds == (0.0, 1.0)


def test_the_configuration_of_the_gate(folders):
    from accelerate import PartialState

    from rl_qg.commands.compose import compose
    from rl_qg.scoring.metrics import load_reward

    more = "+reward.parts.qascore={clip:[-20,-0.05],scale:-1,weight:-0.5}"
    models = [f"reward_models.{key}={folders[key]}" for key in ("reader", "roberta")]
    settings = compose("train", ["reward=gated", "reward.parts.form.max_copied=6", more, *models])
    built = load_reward(settings.reward, PartialState(cpu=True))
    assert list(built.parts) == ["reader", "form", "faithfulness", "qascore"]
    assert built.parts["reader"].metric.measure == "probability"
    assert built.parts["reader"].weight == 0.25
    assert "known_words" in built.parts["form"].metric.part_names
    assert built.parts["form"].metric.max_copied == 6


@pytest.mark.parametrize(
    ("question", "context"),
    [
        ("İzmir", "İzmir batıda."),
        ("Ταΐζω", "Ταΐζω."),
        ("Cafe\u0301", "Café"),
        ("Café", "Cafe\u0301"),
        ("हिन्दी", "हिन्दी"),
    ],
)
def test_words_of_the_passage_are_known_in_any_script(question, context, vocabulary):
    gate = QuestionForm(vocabulary=vocabulary, allow_answer=True)
    other = f"{question}{question[-1]}"
    assert gate.score([question, other], [context] * 2).parts["known_words"] == [1.0, 0.0]
