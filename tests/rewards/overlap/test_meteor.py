"""METEOR against nltk's function, with and without a dictionary of synonyms, and computed by hand."""

import itertools
from types import SimpleNamespace

import pytest

from rewards import MetricInputError, load
from rewards.overlap import meteor
from rewards.words import ptb

pytest.importorskip("nltk")

QUESTIONS = [
    "Who founded the town of Arlen?",
    "Who was the founder of the towns of Arlen?",
    "Which physician bought the car?",
    "What auto did the doctor buy?",
    "Where?",
    "谁写了《灰色海岸》？",
    "",
]
PAIRS = list(itertools.product(QUESTIONS, QUESTIONS))


class Dictionary:
    """A stub of WordNet: the same calls, four words."""

    MEANINGS = (("physician", "doctor", "medical_man"), ("auto", "car"))

    def get_version(self):
        return "toy"

    def synsets(self, word):
        return [
            SimpleNamespace(
                lemmas=lambda group=group: [SimpleNamespace(name=lambda name=name: name) for name in group]
            )
            for group in self.MEANINGS
            if word in group
        ]


@pytest.fixture
def dictionary(monkeypatch):
    import nltk.corpus

    monkeypatch.setattr(nltk.corpus, "wordnet", Dictionary())
    meteor._wordnet.cache_clear()
    yield Dictionary()
    meteor._wordnet.cache_clear()


@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.5, "beta": 1.0, "gamma": 0.25}])
def test_scores_are_those_of_nltk(dictionary, parameters):
    from nltk.translate.meteor_score import meteor_score

    metric = load("meteor", **parameters)
    got = metric.score([one for one, _ in PAIRS], references=[[other, "Who?"] for _, other in PAIRS]).scores
    want = [meteor_score([ptb(other), ("who",)], ptb(one), wordnet=dictionary, **parameters) for one, other in PAIRS]
    assert got == want


def test_stages_computed_by_hand(dictionary):
    """Of five words each, two pairs are synonyms (none stemmed), in two runs: P = R = 2/5, half of gamma's penalty."""
    question, gold = ["the big physician saw auto"], [["one doctor had his car"]]
    with_synonyms, without = load("meteor"), load("meteor", synonyms="none")
    assert with_synonyms.score(question, references=gold).scores == [pytest.approx(0.4 * (1 - 0.5))]
    assert without.score(question, references=gold).scores == [0.0]
    assert load("meteor", synonyms="none", stem=False).score(["mills"], references=[["mill"]]).scores == [0.0]
    assert without.score(["mills"], references=[["mill"]]).scores == [0.5]


def test_the_signature_lists_the_stages(dictionary):
    assert "|stages:exact+stem+wordnet-toy|alpha:0.9|beta:3.0|gamma:0.5|" in load("meteor").signature
    assert "|stages:exact+stem|" in load("meteor", synonyms="none").signature
    assert "|stages:exact|" in load("meteor", synonyms="none", stem=False).signature


def test_a_missing_or_broken_wordnet(monkeypatch, dictionary):
    def raising(error):
        meteor._wordnet.cache_clear()
        monkeypatch.setattr(Dictionary, "get_version", lambda self: (_ for _ in ()).throw(error))

    raising(LookupError("no data"))
    assert "|stages:exact+stem|" in load("meteor").signature
    with pytest.raises(MetricInputError, match=r"nltk finds no WordNet; python -m nltk\.downloader wordnet"):
        load("meteor", synonyms="wordnet")
    raising(FileNotFoundError("index.sense"))
    with pytest.raises(MetricInputError, match=r"WordNet is incomplete: index\.sense"):
        load("meteor")


def test_scores_are_fractions_and_more_references_never_lower_them():
    metric = load("meteor", synonyms="none")
    alone = metric.score([one for one, _ in PAIRS], references=[[other] for _, other in PAIRS]).scores
    both = metric.score([one for one, _ in PAIRS], references=[[other, QUESTIONS[0]] for _, other in PAIRS]).scores
    assert all(0 <= one <= more <= 1 for one, more in zip(alone, both, strict=True))
    for (one, _), score in zip(PAIRS, alone, strict=True):
        words = len(ptb(one))
        assert score <= 1 - 0.5 / words**3 + 1e-12 if words else score == 0


def test_an_unknown_option():
    with pytest.raises(MetricInputError, match="synonyms 'yes' does not exist"):
        load("meteor", synonyms="yes")
    with pytest.raises(MetricInputError, match="tokenize=no: no such tokeniser"):
        load("meteor", tokenize="no")
    with pytest.raises(MetricInputError, match="stem 'no' is neither true nor false"):
        load("meteor", stem="no")


@pytest.mark.parametrize("options", [{"alpha": "x"}, {"alpha": 2.0}, {"beta": -1}, {"gamma": 1.5}, {"beta": None}])
def test_parameters_out_of_range(options):
    [name] = options
    with pytest.raises(MetricInputError, match=f"meteor: {name} .* is out of range; give a number from 0"):
        load("meteor", **options)
