"""The tokenisers of the overlap metrics: each against its source, and scripts that English rules do not split."""

import ast
import gc
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import rewards
from rewards import MetricInputError
from rewards.errors import library
from rewards.words import case_of, ptb, tokenizer, tokenizer_for

PTB = [
    # text, words of Stanford's PTBTokenizer (CoreNLP 3.4.1, -lowerCase) without the punctuation the scripts drop
    ("Who wasn't Beyoncé's friend, in the U.S.?", "who was n't beyoncé 's friend in the u.s."),
    ("Why did OPEC raise the price of oil to $5.11?", "why did opec raise the price of oil to $ 5.11"),
    ("an Initial Teacher Education (ITE) program?", "an initial teacher education -lrb- ite -rrb- program"),
    ("Which gas makes up 20.8% of the Earth's atmosphere?", "which gas makes up 20.8 % of the earth 's atmosphere"),
    ('What is "R. E. Lee" known for?', "what is r. e. lee known for"),
    ("the students' 1,200 books: who cannot read", "the students 1,200 books who can not read"),
    ("the moon left by the u.s. manned missions", "the moon left by the u.s. manned missions"),
    ("Dr. King – who’d have thought... at 12:30?", "dr. king who 'd have thought at 12:30"),
    ("notre dame 's students", "notre dame 's students"),
]


@pytest.mark.parametrize(("text", "words"), PTB)
def test_ptb(text, words):
    assert " ".join(ptb(text)) == words


UNSPACED = [
    ("谁在1931年写了《灰色海岸》？", "谁 在 1931 年 写 了 《 灰 色 海 岸 》 ？"),
    ("誰がガギ町を?", "誰 が ガ ギ 町 を ?"),
    ("ใครตั้งเมืองนี้", "ใ ค ร ตั้ ง เ มื อ ง นี้"),
    ("मिल कब बनी?", "मिल कब बनी ?"),
    ("Wer gründete Köln?", "Wer gründete Köln ?"),
    ("누가 마을을 세웠나?", "누가 마을을 세웠나 ?"),
]


@pytest.mark.parametrize(("text", "words"), UNSPACED)
def test_every_script_has_words(text, words):
    marks = {"《", "》", "？", "?"}
    assert " ".join(tokenizer("13a+char")(text)) == words
    letters = [word for word in words.lower().split() if word not in marks]
    assert list(tokenizer("words")(text)) == letters
    assert [word for word in ptb(text) if word not in marks] == letters


MARKED = [
    ("¿Quién escribió el libro? ¡Nadie!", "quién escribió el libro nadie"),
    ("Ποιος το έγραψε\u037e", "ποιος το έγραψε"),
    ("Ով գրեց\u0589", "ով գրեց"),
    ("من كتب الكتاب؟", "من كتب الكتاب"),
    ("کتاب کس نے لکھی۔", "کتاب کس نے لکھی"),
    ("यह किताब किसने लिखी।", "यह किताब किसने लिखी"),
    ("यह किताब॥", "यह किताब"),
    ("ማን ጻፈ፧", "ማን ጻፈ"),
    ("谁写的？我！他，她。", "谁 写 的 我 他 她"),
]


@pytest.mark.parametrize(("text", "words"), MARKED)
def test_marks_of_other_scripts_are_dropped_like_western_ones(text, words):
    assert " ".join(ptb(text)) == words


@pytest.mark.parametrize("name", ["13a+char", "zh", "ptb"])
def test_long_texts_are_not_cached(name):
    """Not by sacrebleu either: after three texts of 8,000 characters less memory is used than by one of them."""
    cut = tokenizer(name)
    cut("Who built it ?")
    tracemalloc.start()
    try:
        for at in range(3):
            assert len(cut(f"{at} mill? " * 1_000)) > 1_000
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 8_000
    assert cut("Who built it ?") is cut("Who built it ?")


def test_one_word_by_any_spelling_of_its_accents():
    composed, decomposed = "Beyonc\u00e9", "Beyonce\u0301"
    assert tokenizer("words")(composed) == tokenizer("words")(decomposed) == ("beyonc\u00e9",)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="ascii"), max_size=50))
def test_on_ascii_the_rules_for_all_scripts_are_the_libraries(text):
    assert tokenizer("13a+char")(text) == tokenizer("13a")(text)
    assert tokenizer("words")(text) == tokenizer("rouge_score")(text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=50))
def test_any_text_becomes_words_without_spaces(text):
    for name in ("13a+char", "ptb", "words", "rouge_score"):
        assert all(word and not any(map(str.isspace, word)) for word in tokenizer(name)(text))


def test_words_of_rouge_score_are_those_of_the_package():
    tokenize = pytest.importorskip("rouge_score.tokenize").tokenize
    for text, _ in [*PTB, *UNSPACED]:
        assert list(tokenizer("rouge_score")(text)) == tokenize(text, None)


def test_missing_tokenisers_and_libraries_are_named():
    with pytest.raises(MetricInputError, match=r"tokenize=moses: no such tokeniser; known are ptb, words"):
        tokenizer("moses")
    with pytest.raises(MetricInputError, match=r"meteor needs the package no_such: pip install nltk"):
        library("no_such.part", "meteor", "nltk")


def test_the_libraries_are_imported_on_first_use():
    for path in Path(rewards.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {getattr(node, "module", None) or node.names[0].name for node in top}
        assert not {name.split(".")[0] for name in names} & {
            "sacrebleu",
            "nltk",
            "rouge_score",
            "scipy",
            "ot",
            "comet",
            "ctc_score",
        }, path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Why?? Who?!! No!!", ("why", "??", "who", "?!!", "no", "!!")),  # the program's tokens, which are not dropped
        ("Why? Who! x ? y", ("why", "who", "x", "y")),
        ("Who?Me!Now", ("who", "me", "now")),
        ("Really?!?!...", ("really", "?!?!")),
    ],
)
def test_ptb_keeps_runs_of_marks_and_drops_single_ones(text: str, expected: tuple[str, ...]) -> None:
    assert ptb(text) == expected


def test_tokenisers_by_language() -> None:
    assert tokenizer("intl+char")("¿Qué «es»? 東京") == ("¿", "Qué", "«", "es", "»", "?", "東", "京")
    assert tokenizer("intl+char")("ما هو؟")[-1] == "؟" and tokenizer("13a+char")("ما هو؟")[-1] == "هو؟"
    assert tokenizer("words+tr")("ISPARTA'da İzmir") == ("ısparta", "da", "izmir")
    assert tokenizer("words")("ISPARTA") == ("isparta",)
    assert (case_of("words+tr"), case_of("13a+char"), case_of("intl+char")) == ("lower", "mixed", "mixed")
    assert tokenizer("ascii_space")(" a\u00a0b \t c\n") == ("a\u00a0b", "c")  # bytes.split
    assert [tokenizer_for(name, "tr") for name in ("13a+char", "words", "space")] == ["intl+char", "words+tr", "space"]
    assert [tokenizer_for(name, "en") for name in ("13a+char", "words")] == ["13a+char", "words"]
    with pytest.raises(MetricInputError, match=r"tokenize=words\+xx: no such tokeniser"):
        tokenizer("words+xx")
