"""CIDEr against numbers computed by hand and those of the captioning scripts."""

import json
import math

import pytest
from pandas import DataFrame

from rewards import MetricInputError, load
from rewards.sets import Multi

QUESTIONS = [
    "When was the old mill on the Esk built?",
    "Who built the mill?",
    "What is the name of the river near the old town?",
    "Why?",
    "",
    "Where did Ida Koll live live live in 1204?",
]
REFERENCES = [
    ["When was the mill on the Esk built?", "In what year was the mill built?"],
    ["Who built the old mill on the Esk?"],
    ["What is the name of the river?", "Which river is near the town of Arlen?", "What river is it?"],
    ["Why did the mill burn?"],
    ["Who was it?"],
    ["Where did Ida Koll live in 1204?"],
]
# `CiderScorer` of pycocoevalcap 1.2 on these texts, split by `rewards.words.ptb`
SCRIPTS = [3.583049367880451, 3.0142667473703435, 2.799732265227777, 1.2470636242742534, 0.0, 5.925727243217969]


def test_scores_are_those_of_the_captioning_scripts():
    assert load("cider").score(QUESTIONS, references=REFERENCES).scores == pytest.approx(SCRIPTS, abs=1e-12)
    given = load("cider", documents=REFERENCES)
    assert given.score(QUESTIONS, references=REFERENCES).scores == pytest.approx(SCRIPTS, abs=1e-12)
    alone = [
        given.score([text], references=[group]).scores[0] for text, group in zip(QUESTIONS, REFERENCES, strict=True)
    ]
    assert alone == pytest.approx(SCRIPTS, abs=1e-12)


def test_both_formulas_by_hand():
    """Documents: "mill esk", "mill town", "arlen". d(mill) = 2, all others 1; a = log 3/2, b = log 3.

    Question "mill mill esk" against "mill esk". One word: h = (2a, b), r = (a, b), and min(h, r) = r:
    clipped (a² + b²), else (2a² + b²), over |h| |r|. Two words: h has "mill mill" and "mill esk", b each, and r has
    "mill esk": b² / (b √2 · b). No longer n-gram of both: 0. Lengths 2 and 1 (words less one): exp(-1/72).
    """
    a, b = math.log(3 / 2), math.log(3)
    norms = math.hypot(2 * a, b) * math.hypot(a, b)
    rows = ["mill mill esk", "x", "arlen"], [["mill esk"], ["mill town"], ["arlen"]]
    coco = load("cider").score(rows[0], references=rows[1]).scores
    want = 10 / 4 * ((a * a + b * b) / norms + 1 / math.sqrt(2)) * math.exp(-1 / 72)
    assert coco == pytest.approx([want, 0.0, 10 / 4])  # a text of one word has no n-gram of two to four
    paper = load("cider", variant="paper", stem=False).score(rows[0], references=rows[1]).scores
    assert paper == pytest.approx([((2 * a * a + b * b) / norms + 1 / math.sqrt(2)) / 4, 0.0, 1 / 4])


def test_several_references_are_one_document_and_their_mean_counts():
    """d(mill) = 1 of 2 documents, though two texts have it; (1 + 0) / 2 of the second row's references."""
    rows = ["mill", "esk"], [["mill", "mill"], ["esk", "arlen"]]
    assert load("cider", order=1).score(rows[0], references=rows[1]).scores == pytest.approx([10.0, 5.0])


def test_the_papers_variant_stems():
    pytest.importorskip("nltk")
    rows = ["mills", "x"], [["mill"], ["arlen"]]
    assert load("cider", variant="paper", order=1).score(rows[0], references=rows[1]).scores == pytest.approx([1, 0])
    assert load("cider", order=1).score(rows[0], references=rows[1]).scores == [0.0, 0.0]


def test_documents_from_files(tmp_path):
    groups, texts = tmp_path / "documents.jsonl", tmp_path / "documents.txt"
    groups.write_text("".join(json.dumps(group) + "\n" for group in REFERENCES))
    one = [group[:1] for group in REFERENCES]
    texts.write_text("".join(f"{group[0]}\n" for group in REFERENCES))
    for path, documents in ((groups, REFERENCES), (texts, one), (texts, [group[0] for group in one])):
        from_file, from_list = load("cider", documents=path), load("cider", documents=documents)
        got = from_file.score(QUESTIONS, references=REFERENCES)
        assert got == from_list.score(QUESTIONS, references=REFERENCES)
        assert from_file.signature == from_list.signature
    texts.write_text("\ufeff" + texts.read_text(encoding="utf-8"), encoding="utf-8")  # a byte order mark is no letter
    assert load("cider", documents=texts).signature == from_file.signature
    assert "|documents:6@" in from_file.signature and "|documents:call|" in load("cider").signature


def test_one_row_alone_is_reported_once(caplog):
    metric = load("cider")
    for _ in range(2):
        assert metric.score(["Who?"], references=[["Who?"]]).scores == [0.0]
    assert [record.getMessage() for record in caplog.records] == [
        "cider: one row has no document frequencies, so it scores 0; give the option documents"
    ]
    assert metric.score([], references=[]).scores == []


def test_equal_rows_count_as_documents():
    """Twice "mill" of three documents: d = 2, log(3/2), which the cosine of one word does not show; "x" is 0."""
    rows = ["mill esk", "mill esk", "arlen"], [["mill"], ["mill"], ["arlen"]]
    a, b = math.log(3 / 2), math.log(3)  # "esk" is in no document
    got = load("cider", order=1, sigma=1e6).score(rows[0], references=rows[1]).scores
    assert got == pytest.approx([10 * a / math.hypot(a, b)] * 2 + [10.0])


def test_what_scores_batches_needs_documents():
    call = load("cider")
    for refused in (
        lambda: load("weighted", parts={"cider": {}}),
        lambda: load("product", parts={"cider": {}}),
        lambda: Multi(call),
        lambda: call(completions=["Who?"], references=[["Who?"]]),
    ):
        with pytest.raises(
            MetricInputError,
            match=r"its scores depend on all rows of a call.* cider has the option documents.*reward\.documents=FILE",
        ):
            refused()
    documents = load("weighted", parts={"cider": {"documents": REFERENCES}})
    assert documents.score(QUESTIONS, references=REFERENCES).scores == pytest.approx(SCRIPTS)
    Multi(load("cider", documents=REFERENCES))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "d"}, "variant 'd' does not exist; use coco or paper"),
        ({"order": 0}, "order 0 is out of range"),
        ({"sigma": 0}, "sigma 0 is out of range"),
        ({"tokenize": "x"}, "x"),
        ({"documents": []}, r"documents has 0 row\(s\)"),
        ({"documents": ["Who?"]}, r"documents has 1 row\(s\), so that every n-gram weighs 0"),
        ({"documents": [["Who?"], []]}, r"documents has \[\]; give for each row a text or a list of texts"),
        ({"documents": [["Who?"], [3]]}, r"documents has \[3\]; give for each row"),
        ({"documents": "/no/file"}, "documents '/no/file' cannot be read"),
        ({"documents": ""}, "documents '' is no path of a file"),
        ({"documents": 3}, "documents 3 is neither a file nor a list"),
        ({"documents": {"Who?": "a", "Why?": "b"}}, "documents {.*} is neither a file nor a list"),
        ({"documents": DataFrame({"a": ["Who?"], "b": ["Why?"]})}, "documents is a DataFrame of 2 dimensions; give"),
        ({"sigma": 1e200}, r"sigma 1e\+200 is out of range"),
        ({"stem": "no"}, "stem 'no' is neither true nor false"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(MetricInputError, match=message) as caught:
        load("cider", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["{", "[]", '{"a": 1}', "[1]"])
def test_a_bad_line_of_documents_is_named(tmp_path, line):
    path = tmp_path / "documents.jsonl"
    path.write_text(f'["Who?"]\n{line}\n')
    with pytest.raises(MetricInputError, match="line 2: no list of texts; give a text file"):
        load("cider", documents=path)


def test_bounds() -> None:
    assert load("cider").bounds == (0, 10) and load("cider", variant="paper").bounds == (0, 1)
