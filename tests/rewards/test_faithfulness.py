"""Which names and numbers a passage supports: each rule by hand, other languages, and what holds for any text."""

import json
import re
import resource
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from rewards import EntityFaithfulness, MetricInputError, Product, load
from rl_qg.data.corpus import synthetic_examples
from tests.processes import ROOT

PASSAGE = (
    "Paula Eklini, mother of Carlo Dornberg, left Germany in Dec. 1204 with two mills and 1,000 ships. Anna María "
    "Lorenz of the United Harbour Company (UHC) met her in Arlen. The U.S. fleet came in the 1990s; World War Two "
    "was over. The KitchenAid mill is old."
)


def unsupported(question, context=PASSAGE, **options):
    metric = EntityFaithfulness(**options)
    entities = metric.entities(question, context)
    assert all(question[entity.start : entity.end] == entity.text for entity in entities)
    missing = [entity.text for entity in entities if not entity.supported]
    [score], parts = (result := metric.score([question], [context])).scores, result.parts
    assert (parts["entities"], parts["unsupported"]) == ([len(entities)], [len(missing)])
    assert score == (1 - len(missing) / len(entities) if entities else 1.0)
    return missing


@pytest.mark.parametrize(
    "question",
    [
        "Who is the mother of Carlo Dornberg?",
        "What did Paula own?",  # a part of a name
        "Who met Anna Lorenz?",  # without the middle of a name
        "Who met Anna Maria Lorenz's mother?",  # accent, possessive
        "Who met PAULA EKLINI?",
        "Who met paula eklini?",
        "Paula Eklini left when?",
        "Which German mills were there?",
        "Did the Germans leave?",
        "Who left in December?",
        "Which 2 mills were there?",
        "Who had 1000 ships, or 1.000?",
        "Who had 1,000 ships?",
        "What came in 1990?",
        "Who won World War II?",
        "Who won World War 2?",
        "What did the UHC do?",
        "What did the US do?",
        "What is the U.H.C.?",
        "Which Kitchen Aid mill is old?",
        "Which Kitchen-Aid mill is old?",
        "What did I do, and what The mill?",  # no names
        "Where? In Arlen?",
    ],
)
def test_supported(question):
    assert unsupported(question) == []


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("Who is the mother of Carlo Eklini?", ["Carlo Eklini"]),
        ("Who is the mother of carlo eklini?", ["carlo eklini"]),
        ("Carlo Eklini is whose son?", ["Carlo Eklini"]),
        ("Who met Lorenz Anna?", ["Lorenz Anna"]),
        ("Who met Dornberg in Zorro?", ["Zorro"]),
        ("Who met Dornberg's Carlo in 1205?", ["1205"]),
        ("Who had 100 ships in 120?", ["100", "120"]),
        ("Who met Paul?", ["Paul"]),  # Paula is no other form of it
        ("What did NATO do?", ["NATO"]),
        ("Who met IDA?", ["IDA"]),
    ],
)
def test_not_supported(question, missing):
    assert unsupported(question) == missing


@pytest.mark.parametrize(
    ("acronym", "name"), [("UN", "United Nations"), ("U.N.", "United Nations"), ("DOJ", "Department of Justice")]
)
def test_initials_of_a_name(acronym, name):
    assert unsupported(f"Who leads the {acronym}?", f"She leads the {name} now.") == []
    assert unsupported(f"Who leads the {acronym}?", "She leads the Union of Towns now.") != []


def test_a_name_of_which_the_passage_has_the_initials():
    assert unsupported("Who leads the United Nations?", "She leads the UN now.") == []
    assert unsupported("Who leads the United Nations?", "She leads the EU now.") == ["United Nations"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("China", "Chinese"), ("Mexico", "Mexicans"), ("Europe", "European"), ("France", "French"),
        ("Hungary", "Hungarian"), ("Sweden", "Swedish"), ("Buddhist", "Buddhism"), ("London", "Londoners"),
        ("Mount", "Mt"), ("Sept", "September"), ("Puritan", "Puritans"),
    ],
)  # fmt: skip
def test_forms_of_english_words(one, other):
    assert unsupported(f"Who knew {one}?", f"She knew {other} well.") == []
    assert unsupported(f"Who knew {other}?", f"She knew {one} well.") == []
    assert unsupported(f"Who knew {one}?", "She knew Denmark well.") == [one]


@pytest.mark.parametrize(
    ("language", "question", "context", "missing"),
    [
        ("ru", "Кто жил в Москве?", "Столица — Москва.", []),
        ("ru", "Кто жил в Париже?", "Столица — Москва.", ["Париже"]),
        ("es", "¿Quién vio a María Koll en 1204?", "En 1204 vino Maria Koll.", []),
        ("es", "¿Quién vio a Ida Koll?", "En 1204 vino Maria Koll.", ["Ida Koll"]),
        ("tr", "Kim ISPARTA'ya gitti?", "O gün Isparta güzeldi.", []),
        ("de", "Welche Mühle baute Ida Koll?", "Im Jahr 1204 baute Ida Koll das Haus.", []),
        ("de", "Welche Mühle baute Ida Esk?", "Im Jahr 1204 baute Ida Koll das Haus am Esk.", ["Ida Esk"]),
        ("zh", "谁在1204年建造了磨坊？", "磨坊建于1204年。", []),
        ("zh", "谁在1205年建造了NATO？", "磨坊建于1204年。", ["1205", "NATO"]),
        ("ar", "من بنى الطاحونة في ١٢٠٤؟", "بنيت الطاحونة في 1204.", []),
        ("hi", "मिल 1205 में किसने बनाई?", "मिल 1204 में बनी।", ["1205"]),
    ],
)
def test_other_languages(language, question, context, missing):
    assert unsupported(question, context, language=language) == missing


def test_right_questions_of_the_corpus_are_faithful():
    """The corpus's names are made up, and its questions are right: each name stands in its passage."""
    examples = list(synthetic_examples(600, seed=3))
    questions, contexts = [e.question for e in examples], [e.context for e in examples]
    result = EntityFaithfulness().score(questions, contexts)
    assert set(result.scores) == {1.0} and min(result.parts["entities"]) > 0
    others = EntityFaithfulness(measure="all").score(questions, [*contexts[10:], *contexts[:10]])
    assert sum(others.scores) < 0.01 * len(questions)


WORDS = st.sampled_from("Ida Koll Esk mill who in 1204 12 the of The US and Dornberg's river, What (Arlen)".split())
TEXT = st.lists(WORDS, max_size=14).map(" ".join)


@given(TEXT, TEXT)
def test_an_unsupported_name_never_raises_the_score(question, context):
    metric = EntityFaithfulness()
    before, after = metric.score([f"{question} x", f"{question} x Zorro"], [context] * 2).scores
    assert 0 <= after <= before <= 1
    assert after < 1


@given(TEXT, TEXT.map(lambda text: f"x {text}"))
def test_a_passage_supports_its_own_names(before, context):
    """In any case, and in the possessive: a passage as its own question has nothing that is not supported."""
    metric = EntityFaithfulness()
    context = context.replace("(", "").replace(")", "")
    possessive = re.sub(r"(?<=[a-z])(?= |$)", "'s", context.replace("'s", ""))
    questions = [context, context.upper(), context.lower(), possessive]
    assert metric.score(questions, [f"{context}. {before}"] * 4).scores == [1.0] * 4


@given(
    st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), max_size=3), st.sampled_from("en de ru tr".split())
)
def test_any_text_has_a_score(rows, language):
    questions, contexts = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [])
    shares = EntityFaithfulness(language=language).score(questions, contexts)
    gates = EntityFaithfulness("all", language=language).score(questions, contexts)
    assert all(0 <= share <= 1 for share in shares.scores)
    assert gates.scores == [float(bad == 0) for bad in shares.parts["unsupported"]]


@pytest.mark.parametrize("language", ["en", "fr"])
def test_a_half_width_mark_alone_is_a_word(language):
    """Its decomposition is a combining mark, which is no letter without another before it."""
    assert EntityFaithfulness(language=language).score(["Qui est \uff9e Ada ?"], ["\u30ab\uff9e A."]).scores == [0.0]


def test_options():
    chosen = [load("faithfulness"), load("faithfulness", measure="all"), load("faithfulness", language="de")]
    assert len({metric.signature for metric in chosen}) == 3
    assert chosen[0].signature.startswith("faithfulness|measure:share|language:en|")
    with pytest.raises(MetricInputError, match="measure 'some' does not exist; use share or all"):
        EntityFaithfulness("some")
    with pytest.raises(MetricInputError, match="language 'English' is no code"):
        EntityFaithfulness(language="English")


def test_the_gate_in_a_product():
    gate = Product({"form": {"allow_answer": True}, "faithfulness": {"measure": "all"}})
    questions = ["Who is Carlo Dornberg?", "Who is Carlo Eklini?", "Carlo Dornberg."]
    assert gate.score(questions, [PASSAGE] * 3).scores == [1.0, 0.0, 0.0]
    assert gate.bounds == (0.0, 1.0)


def test_an_explanation_marks_the_words():
    explanation = EntityFaithfulness().explain("Who is <Carlo> Eklini & Paula in Zorro?", PASSAGE)
    assert json.loads(json.dumps(explanation.to_dict()))["score"] == explanation.score == 0.75
    assert explanation.summary == "score 0.7500 (not in the passage: “Zorro”)"
    page = explanation.to_html()
    assert "&lt;<ins>Carlo</ins>&gt; <ins>Eklini</ins> &amp; <ins>Paula</ins> in <del>Zorro</del>?" in page


UNITS = ["A ", "Ab.", "A.", "1,", "1.1.", "'s", "’", "Ida Koll ", "\n", " ", "\n ", "a\u0301", "A-", "Xyzs "]


@pytest.mark.parametrize("language", ["en", "ru"])
def test_long_texts_take_linear_time(language):
    """All together take about 5 s of the processor's time; of quadratic time, one would take minutes."""
    code = (
        f"from rewards import EntityFaithfulness; texts = [unit * (100_000 // len(unit)) for unit in {UNITS!r}]\n"
        f"EntityFaithfulness(language={language!r}).score(texts, [text[::-1] for text in texts])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, preexec_fn=_sixty_seconds)


def _sixty_seconds() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


def test_the_score_of_a_question_that_names_nothing() -> None:
    questions, passages = ["What is it famous for?", "Who is Ida?", "Who is Ada?"], ["Ida is famous for tea."] * 3
    for unnamed in (0.0, 0.25, 1.0):
        assert EntityFaithfulness(unnamed=unnamed).score(questions, passages).scores == [unnamed, 1.0, 0.0]
        assert EntityFaithfulness("all", unnamed=unnamed).score(questions, passages).scores == [unnamed, 1.0, 0.0]
    with pytest.raises(MetricInputError, match="unnamed 2 is out of range"):
        EntityFaithfulness(unnamed=2)


WHOLE_PASSAGE = (
    "The Vessini Mills hired Lukas Vessini. In 1907 Ada Elmford left Elmford, where “The Silent Harbor” hung."
)


@pytest.mark.parametrize(
    ("question", "whole"),
    [
        ("Whom did the Vessini Mills hire?", True),
        ("Whom did The Vessini Mills hire?", True),
        ("When did ADA ELMFORD leave Elmford?", True),  # case does not count, and the town has that name
        ("Who hired Lukas Vessini's brother?", True),
        ("What hung where Ada Elmford left in 1907?", True),
        ("Where did Lukas film go?", False),
        ("When did Ada leave?", False),
        ("Whom did film Mills hire?", False),
        ("Where did “Silent Harbor” hang?", True),  # without the function word before it
        ("Where did the Harbor hang?", False),
    ],
)
def test_whole_names(question: str, whole: bool) -> None:
    assert EntityFaithfulness("all", whole=True).score([question], [WHOLE_PASSAGE]).scores == [float(whole)]
    assert EntityFaithfulness("all").score([question], [WHOLE_PASSAGE]).scores == [1.0]


@pytest.mark.parametrize(
    ("question", "passage", "whole"),
    [
        ("When did World War I begin?", "World War I began in 1914.", True),
        ("Who owned Elizabeth I's ring?", "The ring of Elizabeth I was found.", True),
        ("Where is Rotterdam The Hague Airport?", "Rotterdam The Hague Airport lies north.", True),
        ("Who wrote To Kill A Mockingbird?", "Lee wrote To Kill A Mockingbird in 1960.", True),
        ("Whom did the US Army hire?", "The US Army hired Ada.", True),
        ("Whom did the Army hire?", "The US Army hired Ada.", False),  # US is no function word
        ("When did World begin?", "World War I began in 1914.", False),
        ("Where is the Airport?", "Rotterdam The Hague Airport lies north.", False),
    ],
)
def test_whole_names_with_function_words(question: str, passage: str, whole: bool) -> None:
    assert EntityFaithfulness("all", whole=True).score([question], [passage]).scores == [float(whole)]


def test_human_questions_of_the_corpus_give_whole_names() -> None:
    examples = list(synthetic_examples(100, seed=6, prefix="whole"))
    gate = EntityFaithfulness("all", unnamed=0, whole=True)
    questions = [example.question for example in examples]
    assert set(gate.score(questions, [example.context for example in examples]).scores) == {1.0}


def test_a_title_counts_where_the_metric_reads_titles() -> None:
    question, passage = "Where was Kanye West born?", "He was born in Atlanta."
    reads = EntityFaithfulness(titles=True)
    assert reads.score([question] * 3, [passage] * 3, titles=["Kanye_West", "Rome", ""]).scores == [1.0, 0.0, 0.0]
    assert EntityFaithfulness().score([question], [passage], titles=["Kanye West"]).scores == [0.0]
    assert "titles" in reads.signature and "titles" not in EntityFaithfulness().signature
    gate = Product({"names": {"metric": "faithfulness", "titles": True}, "form": {"allow_answer": True}})
    assert gate.score([question] * 2, [passage] * 2, titles=["Kanye West", "Rome"]).scores == [1.0, 0.0]
    trl = reads(completions=[question] * 2, context=[passage] * 2, title=["Kanye West", None])
    assert trl == [1.0, None]
    assert reads.explain(question, passage, "Kanye West").score == 1.0
    with pytest.raises(MetricInputError, match=r"faithfulness needs titles; pass titles=\[\.\.\.\]"):
        reads.score([question], [passage])


def test_a_script_without_case_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    metric = EntityFaithfulness(language="zh")
    for _ in range(2):
        assert metric.score(["谁建造了磨坊？"], ["磨坊建于一二〇四年。"]).scores == [1.0]
    assert [line.split(":")[0] for line in caplog.messages] == ["faithfulness"]
    assert "names are not judged" in caplog.text
    caplog.clear()
    EntityFaithfulness(language="zh").score(["谁建造了磨坊？", "谁？"], ["磨坊建于一二〇四年。", "NATO 磨坊"])
    EntityFaithfulness().score(["Who?"], ["Ida."])
    assert not caplog.messages
