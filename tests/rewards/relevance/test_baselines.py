"""Baselines: which pairs they are estimated on, how they change a score, and invalid input."""

import json
import math
from collections import Counter

import pytest

from rewards import MetricInputError, QRelScore
from rewards.base import MetricResult
from rewards.relevance.baselines import (
    MAX_OVERLAP,
    PUBLISHED,
    Baselines,
    MaxMin,
    estimate_baselines,
    overlap,
    read_baselines,
)
from tests.rewards.ablated import AblatedQRelScore

NOUNS = "mill river keeper lighthouse novel winter bridge tower orchard harbour violin comet".split()
VERBS = "founded wrote built painted rowed sold buried crossed measured lost".split()
CONTEXTS = [
    f"The {NOUNS[at % 12]} and a {NOUNS[(5 * at + 1) % 12]} were {VERBS[at % 10]} near Esk {at}." for at in range(40)
]
QUESTIONS = [f"Who {VERBS[(3 * at) % 10]} that {NOUNS[(7 * at) % 12]}?" for at in range(40)]
QUESTIONS[3], QUESTIONS[4], CONTEXTS[6] = QUESTIONS[2], "?!", CONTEXTS[5]  # twice, no word, a passage of two questions


class Recording:
    """Scores pairs by their lengths and records them."""

    signature = "recording|references:no|version:1"

    def __init__(self):
        self.pairs = []
        self.values = {"lrm": [], "grg": []}

    def score(self, questions, contexts):
        self.pairs += zip(questions, contexts, strict=True)
        parts = {"lrm": [len(question) / 7 for question in questions], "grg": [len(text) / 9 for text in contexts]}
        for part, values in parts.items():
            self.values[part] += values
        return MetricResult([0.0] * len(questions), parts)


def bleu1(question, context):
    """Clipped unigram precision, by counting one word after the other."""

    def words(text):
        return "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()

    left = Counter(words(context))
    hits = 0
    for word in words(question):
        if left[word] > 0:
            left[word] -= 1
            hits += 1
    return hits / len(words(question))


@pytest.mark.parametrize(
    ("question", "context", "fraction"),
    [("Who wrote it?", "Ida wrote.", 1 / 3), ("the the mill", "The mill", 2 / 3), ("Who?", "", 0), ("?!", "a", 0)],
)
def test_overlap_counts_each_word_as_often_as_the_context_contains_it(question, context, fraction):
    assert overlap(question, context) == pytest.approx(fraction)


@pytest.mark.parametrize("wanted", [1, 50, 300])
def test_pairs_are_distinct_unrelated_and_not_from_the_data(wanted):
    metric = Recording()
    result = estimate_baselines(metric, QUESTIONS, CONTEXTS, pairs=wanted, seed=3)
    assert len(metric.pairs) == wanted == len(set(metric.pairs))
    own = set(zip(QUESTIONS, CONTEXTS, strict=True))
    assert not own & set(metric.pairs)
    assert max(bleu1(*pair) for pair in metric.pairs) <= MAX_OVERLAP
    assert "?!" not in {question for question, _ in metric.pairs}
    assert result["drawn"] >= wanted
    assert (result["questions"], result["contexts"]) == (len(set(QUESTIONS)) - 1, 39)


def test_every_unrelated_pair_can_be_drawn_and_no_more():
    questions = [question for question in dict.fromkeys(QUESTIONS) if question != "?!"]
    own = set(zip(QUESTIONS, CONTEXTS, strict=True))
    others = [(q, c) for q in questions for c in set(CONTEXTS) if (q, c) not in own]
    unrelated = {pair for pair in others if bleu1(*pair) <= MAX_OVERLAP}
    metric = Recording()
    estimate_baselines(metric, QUESTIONS, CONTEXTS, pairs=len(unrelated))
    assert set(metric.pairs) == unrelated
    with pytest.raises(
        MetricInputError, match=f"only {len(unrelated)} of {len(others)} pairs .* but {len(unrelated) + 1} are wanted"
    ):
        estimate_baselines(Recording(), QUESTIONS, CONTEXTS, pairs=len(unrelated) + 1)


def test_the_draw_depends_on_the_seed_alone():
    def drawn(seed):
        metric = Recording()
        return metric.pairs, estimate_baselines(metric, QUESTIONS, CONTEXTS, pairs=30, seed=seed)

    assert drawn(0) == drawn(0)
    assert drawn(0)[0] != drawn(1)[0]


def test_many_contexts_are_drawn_with_equal_probability():
    """More pairs than are tried, so that they are drawn one by one: none twice, and every region is drawn from."""
    contexts = [f"c{at}" for at in range(300)]
    metric = Recording()
    estimate_baselines(metric, [f"q{at}" for at in range(300)], contexts, pairs=400)
    assert len(set(metric.pairs)) == 400
    quarters = Counter((int(q[1:]) // 150, int(c[1:]) // 150) for q, c in metric.pairs)
    assert len(quarters) == 4 and min(quarters.values()) > 60


def test_the_estimate_is_the_mean_over_the_pairs_with_its_standard_error():
    metric = Recording()
    reported = []
    result = estimate_baselines(metric, QUESTIONS, CONTEXTS, pairs=300, progress=reported.append)
    for part, values in metric.values.items():
        mean = sum(values) / 300
        assert result[part] == pytest.approx(mean)
        error = math.sqrt(sum((value - mean) ** 2 for value in values) / 299 / 300)
        assert result["standard_error"][part] == pytest.approx(error)
    assert sum(reported) == 300 and len(reported) > 1
    assert result["signature"] == metric.signature
    assert (result["pairs"], result["seed"], result["max_overlap"]) == (300, 0, 0.05)


@pytest.mark.parametrize(
    ("questions", "contexts", "pairs", "message"),
    [
        (["Who?"], ["One passage."], 1, "only 0 of 0 pairs .*these are 1 questions and 1 contexts"),
        ([], [], 1, "these are 0 questions"),
        (["Who is it?", "Who was it?"], ["It is.", "It was."], 1, "only 0 of 2 pairs"),
        (["Who?", "When?"], ["One.", "Two."], 0, "pairs=0"),
        (["Who?", "When?"], ["One."], 1, "2 questions but 1 contexts"),
    ],
)
def test_too_few_pairs_is_one_clear_line(questions, contexts, pairs, message):
    with pytest.raises(MetricInputError, match=message) as error:
        estimate_baselines(Recording(), questions, contexts, pairs=pairs)
    assert "\n" not in str(error.value)


def test_a_metric_with_baselines_or_references_raises(folders):
    for options in ({"baselines": {"lrm": 0.1}}, {"references": True}):
        metric = QRelScore(folders["bert"], folders["gpt2"], **options)
        with pytest.raises(MetricInputError, match="baselines=None and references=False"):
            estimate_baselines(metric, QUESTIONS, CONTEXTS, pairs=2)


@pytest.mark.parametrize("variant", ["official", "paper"])
def test_an_estimate_goes_back_into_the_metric(folders, tmp_path, variant):
    own = {"gain": "absolute" if variant == "official" else "relative"}  # random models: relative gains above 1
    metric = AblatedQRelScore(folders["bert"], folders["gpt2"], variant, **own)
    result = estimate_baselines(metric, QUESTIONS, CONTEXTS, pairs=6)
    path = tmp_path / "baselines.json"
    path.write_text(json.dumps(result))
    plain = metric.score(QUESTIONS[:5], CONTEXTS[:5])
    for given in (result, path, str(path)):
        rescaled = AblatedQRelScore(folders["bert"], folders["gpt2"], variant, baselines=given, **own)
        got = rescaled.score(QUESTIONS[:5], CONTEXTS[:5])
        for part in ("lrm", "grg"):
            want = [(value - result[part]) / (1 - result[part]) for value in plain.parts[part]]
            want = [max(0.0, value) for value in want] if variant == "official" else want
            assert got.parts[part] == pytest.approx(want, abs=1e-9)
    pairs = list(zip(got.parts["lrm"], got.parts["grg"], strict=True))
    assert got.scores == pytest.approx([2 * a * b / (a + b) if a + b > 0 else 0.0 for a, b in pairs], abs=1e-7)
    with_references = AblatedQRelScore(
        folders["bert"], folders["gpt2"], variant, baselines=path, references=True, **own
    )
    assert with_references.baselines == rescaled.baselines  # a pair is scored the same way
    for other in ({"attention": "raw"}, {"layers": "last"}, {"clip_gain": False}, {"encoder": folders["roberta"]}):
        options = {"encoder": folders["bert"], **own, **other}
        with pytest.raises(MetricInputError, match=r"were estimated for qrelscore\|.* but this is qrelscore\|"):
            AblatedQRelScore(decoder=folders["gpt2"], variant=variant, baselines=path, **options)


@pytest.mark.parametrize(
    ("value", "linear"),
    [(0.2, 0.0), (0.1, -0.25), (-1.0, -3.0), (0.4, 0.5), (0.6, 1.0), (1.0, 2.0)],
)
def test_rescaling(value, linear):
    for clip, want in ((True, max(0.0, linear)), (False, linear)):
        assert Baselines((MaxMin(0.2, 0.6), MaxMin(0.0, 1.0)), clip).rescale("lrm", value) == pytest.approx(want)
        assert Baselines((MaxMin(0.0, 1.0), MaxMin(0.2, 0.6)), clip).rescale("grg", value) == pytest.approx(want)


def test_rescaling_as_in_the_paper():
    """Equation 5 with b of bert-base-cased on SQuAD: (0.5 - 0.691) / (1 - 0.691) = -0.191 / 0.309."""
    assert Baselines((MaxMin(0.691, 1.0), MaxMin(0.0, 1.0)), clip=False).rescale("lrm", 0.5) == pytest.approx(
        -0.191 / 0.309
    )


TABLE_9 = """
lrm bert-base-cased  0.691 0.541
lrm bert-large-cased 0.612 0.505
lrm roberta-base     0.678 0.556
lrm roberta-large    0.642 0.549
grg gpt2             0.546 0.327
grg gpt2-medium      0.435 0.303
"""


def test_published_baselines_are_those_of_table_9():
    for line in TABLE_9.split("\n")[1:-1]:
        part, model, squad, hotpotqa = line.split()
        assert (PUBLISHED["squad"][part][model], PUBLISHED["hotpotqa"][part][model]) == (float(squad), float(hotpotqa))
    assert sum(len(table) for parts in PUBLISHED.values() for table in parts.values()) == 2 * 6


@pytest.fixture(scope="module")
def published(folders, tmp_path_factory):
    """Models under the names of published ones."""
    root = tmp_path_factory.mktemp("published")
    for name, folder in (("bert-base-cased", "bert"), ("gpt2-medium", "gpt2")):
        (root / name).symlink_to(folders[folder])
    return {"encoder": str(root / "bert-base-cased"), "decoder": str(root / "gpt2-medium")}


def test_published_baselines_by_name(published, caplog):
    plain = QRelScore(**published).score(QUESTIONS[:3], CONTEXTS[:3])
    for name, low in (("squad", (0.691, 0.435)), ("hotpotqa", (0.541, 0.303))):
        metric = QRelScore(**published, baselines=name, clip_rescaled=False)
        got = metric.score(QUESTIONS[:3], CONTEXTS[:3])
        for part, b in zip(("lrm", "grg"), low, strict=True):
            assert got.parts[part] == pytest.approx([(value - b) / (1 - b) for value in plain.parts[part]])
        assert f"|baselines:lrm={low[0]}..1,grg={low[1]}..1,unclipped|" in metric.signature
    assert not caplog.records


@pytest.mark.parametrize("options", [{"variant": "paper"}, {"attention": "raw"}, {"confidence": "log_likelihood"}])
def test_published_baselines_of_another_scale_are_warned_about(published, caplog, options):
    (QRelScore if "variant" in options else AblatedQRelScore)(**published, baselines="squad", **options)
    assert len(caplog.records) == 1
    assert "baselines=squad (Table 9) are 0.3 to 0.7, but with attention=" in caplog.text


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (("bert", "gpt2"), "baselines=squad have no lrm of 'bert', only of bert-base-cased, bert-large-cased, "),
        (("google-bert/bert-base-cased", "me/llama"), "have no grg of 'llama', only of gpt2, gpt2-medium"),
    ],
)
def test_models_without_published_baselines(models, message):
    with pytest.raises(MetricInputError, match=message) as error:
        read_baselines("squad", "s", models=models, official=True, clip=True)
    assert "\n" not in str(error.value)


def test_nearly_equal_baselines_have_different_signatures(folders):
    texts = {str(Baselines((MaxMin(low, 1.0), MaxMin(0.0, 1.0)))) for low in (0.26209762, 0.26209763)}
    assert len(texts) == 2
    assert str(Baselines((MaxMin(0.3, 1.0), MaxMin(-0.1, 0.4)))) == "lrm=0.3..1,grg=-0.1..0.4"


def test_the_released_baselines_belong_to_the_released_formula(folders):
    released = QRelScore(folders["bert"], folders["gpt2"], baselines="released")
    assert released.baselines == Baselines((MaxMin(0.26209762, 0.68293935), MaxMin(-0.21804565, 0.55268557)))
    spelled_out = {"attention": "hard", "scope": "sequence", "long_context": "truncate", "layers": "all"}
    assert AblatedQRelScore(folders["bert"], folders["gpt2"], baselines="released", **spelled_out).baselines
    others = [
        {"variant": "paper"},
        {"attention": "raw"},
        {"aggregation": "mean"},
        {"layers": "last"},
        {"power": 2},
        {"clip_gain": False},
        {"gain": "absolute"},
        {"last_tokens": "keep"},
    ]
    for options in others:
        with pytest.raises(MetricInputError, match="belong to variant='official' unchanged"):
            AblatedQRelScore(folders["bert"], folders["gpt2"], baselines="released", **options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("missing.json", r"baselines=missing\.json: cannot be read .*No such file"),
        (3, "baselines 3 is no path of a file"),
        ({"lmr": 0.2}, "baselines have no part 'lmr'; they have lrm and grg"),
        ({"lrm": 1.0}, "lrm=1.0 is neither a number below 1 nor a pair"),
        ({"grg": [0.5, 0.5]}, r"grg=\[0.5, 0.5\] is neither"),
        ({"grg": [0.1, 0.2, 0.3]}, "is neither"),
        ({"lrm": "a"}, "lrm='a' is neither"),
        ({"lrm": True}, "lrm=True is neither"),
        ({"lrm": None}, "lrm=None is neither"),
        ({"lrm": float("nan")}, "lrm=nan is neither"),
        ({"lrm": float("-inf")}, "lrm=-inf is neither"),
        (
            {"lrm": 0.1, "grg": 0.1, "signature": "other|version:1"},
            r"were estimated for other\|version:1, but this is",
        ),
    ],
)
def test_invalid_baselines_are_one_clear_line(given, message):
    with pytest.raises(MetricInputError, match=message) as error:
        read_baselines(given, "qrelscore|version:1", models=("bert", "gpt2"), official=True, clip=True)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[1]", "not a file from rl-qg baselines"),
        ('{"lrm": 0.1, "grg": 0.1}', "were estimated for no signature"),
        ('{"lrm": 0.1, "signature": "s"}', "grg=None is neither"),
    ],
)
def test_a_file_without_baselines_is_one_clear_line(tmp_path, content, message):
    path = tmp_path / "b.json"
    path.write_text(content)
    with pytest.raises(MetricInputError, match=message) as error:
        read_baselines(path, "s", models=("bert", "gpt2"), official=True, clip=True)
    assert str(path) in str(error.value) or "grg" in message
