"""Explanations: their numbers add up to the score, agree with a slow reference, and the page shows them safely."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cosine_similarity
from transformers import AutoModel, AutoModelForCausalLM

from rewards import MetricInputError, QRelScore
from rewards.relevance import explanation_page
from rewards.relevance.explanation_page import BLUE, GREEN, ORANGE, RED
from tests.rewards.ablated import AblatedQRelScore
from tests.rewards.reference import causal, open_pair, tokens, weigh

VARIANTS = ("official", "paper")
SWITCHES = [
    {},
    {"attention": "raw"},
    {"attention": "weighted", "aggregation": "mean"},
    {"attention": "hard", "aggregation": "mean"},
    {"attention": "weighted", "aggregation": "mover"},
    {"attention": "hard", "aggregation": "mover"},
    {"layers": "last", "last_tokens": "keep"},
    {"last_tokens": "skip", "long_context": "chunk"},
    {"long_context": "truncate", "confidence": "log_likelihood", "scope": "sequence"},
    {"confidence": "probability", "scope": "context", "gain": "absolute", "clip_gain": False},
]


@pytest.fixture(scope="module", params=VARIANTS)
def metric(request, folders):
    return QRelScore(folders["bert"], folders["gpt2"], request.param)


@pytest.fixture(scope="module")
def official(folders):
    return QRelScore(folders["bert"], folders["gpt2"])


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def recomputed(explanation, chosen):
    """lrm and grg from the numbers of the JSON form alone."""
    layers = [mean(match["contribution"] for match in layer["matches"]) for layer in explanation["layers"]]
    gains = []
    for piece in {gain["piece"] for gain in explanation["gains"]}:
        conf = []
        for side in ("base", "prompt"):
            logprobs = [
                gain[side] for gain in explanation["gains"] if gain["piece"] == piece and gain[side] is not None
            ]
            conf.append(
                sum(logprobs) if chosen["confidence"] == "log_likelihood" else mean(math.exp(lp) for lp in logprobs)
            )
        gain = conf[1] - conf[0]
        gain = gain / abs(conf[0]) if chosen["gain"] == "relative" else gain
        gains.append(max(0.0, gain) if chosen["clip_gain"] == "yes" else gain)
    return mean(layers), mean(gains) if gains else 0.0


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_numbers_add_up_to_the_score(folders, rows, variant, switches):
    metric = (AblatedQRelScore if switches else QRelScore)(folders["bert"], folders["gpt2"], variant, **switches)
    for question, context in zip(rows["questions"], rows["contexts"], strict=True):
        want = metric.score([question], [context])
        try:
            result = metric.explain(question, context).to_dict()
        except MetricInputError:
            assert want.parts["lrm"] == [0.0]
            continue
        assert (result["score"], result["lrm"], result["grg"]) == pytest.approx(
            (want.scores[0], want.parts["lrm"][0], want.parts["grg"][0]), abs=1e-6
        )
        lrm, grg = recomputed(result, metric.choices())
        assert lrm == pytest.approx(result["lrm"], abs=1e-5)
        assert grg == pytest.approx(result["grg"], rel=1e-5, abs=1e-5)
        assert sum(result["matched"]) == pytest.approx(result["lrm"], abs=1e-5)
        assert mean(one["gain"] for one in result["confidences"]) == pytest.approx(result["grg"], abs=1e-5)
        assert [layer["number"] for layer in result["layers"]] == ([2] if "layers" in switches else [1, 2])


@pytest.mark.parametrize("attention", ["hard", "weighted", "raw"])
def test_matches_agree_with_a_slow_reference(metric, folders, rows, attention):
    chosen = AblatedQRelScore(folders["bert"], folders["gpt2"], metric.variant, attention=attention)
    question, context = rows["questions"][0], rows["contexts"][0]
    result = chosen.explain(question, context)
    tokenizer, model = open_pair(AutoModel, folders["bert"], attn_implementation="eager")
    q, c = tokens(tokenizer, question), tokens(tokenizer, context)
    c = c[: 40 - 3 - len(q)]
    ids = [tokenizer.cls_token_id, *q, tokenizer.sep_token_id, *c, tokenizer.sep_token_id]
    types = torch.tensor([[0] * (len(q) + 2) + [1] * (len(c) + 1)])
    with torch.no_grad():
        out = model(torch.tensor([ids]), token_type_ids=types, output_attentions=True, output_hidden_states=True)
    drop = 1 if chosen.local.skipped else 0
    for layer in result.layers:
        attended, hidden = out.attentions[layer.number - 1][0].amax(0), out.hidden_states[layer.number][0]
        first = [match for match in layer.matches if match.piece == 0]
        assert [match.question_token for match in first] == list(range(len(q) - drop))
        for match in first:
            m, at = 1 + match.question_token, range(len(q) + 2, len(q) + 2 + len(c) - drop)
            weights = weigh([attended[m, n].item() for n in at], attention)
            cosines = [cosine_similarity(hidden[m], hidden[n], dim=0).item() for n in at]
            products = [weight * cosine for weight, cosine in zip(weights, cosines, strict=True)]
            best = weights.index(max(weights)) if attention == "hard" else products.index(max(products))
            assert match.context_token == best
            assert match.weight == pytest.approx(weights[best], abs=1e-5)
            assert match.cosine == pytest.approx(cosines[best], abs=1e-5)
            assert match.contribution == pytest.approx(products[best], abs=1e-5)


@pytest.mark.parametrize("scope", ["sequence", "context"])
def test_log_probabilities_agree_with_a_slow_reference(folders, scope):
    metric = AblatedQRelScore(folders["bert"], folders["gpt2"], scope=scope)
    question, context = "Who built it?", "Arlen lies"
    gains = metric.explain(question, context).gains
    tokenizer, model = open_pair(AutoModelForCausalLM, folders["gpt2"])
    bos = tokenizer.bos_token_id
    q, spaced = tokens(tokenizer, question), tokens(tokenizer, " " + context)
    if scope == "sequence":
        base = causal(model, [bos, *tokens(tokenizer, context), bos], 1)
        prompt = causal(model, [bos, *tokens(tokenizer, f"{question} {context}"), bos], 1)
    else:
        base, prompt = causal(model, [bos, *spaced], 1), causal(model, [bos, *q, *spaced], 1 + len(q))
    assert [gain.base for gain in gains if gain.base is not None] == pytest.approx(base, abs=1e-4)
    assert [gain.prompt for gain in gains if gain.prompt is not None] == pytest.approx(prompt, abs=1e-4)
    both = [gain for gain in gains if gain.gain is not None]
    assert [gain.gain for gain in both] == pytest.approx(
        [math.exp(gain.prompt) - math.exp(gain.base) for gain in both]
    )
    if scope == "context":
        assert len(both) == len(gains) == len(spaced)


def test_the_gain_is_the_difference_in_the_unit_of_the_confidence(folders):
    result = QRelScore(folders["bert"], folders["gpt2"], "paper").explain("Who built it?", "Arlen lies on the Esk.")
    assert [gain.gain for gain in result.gains] == pytest.approx([gain.prompt - gain.base for gain in result.gains])
    (conf,) = result.confidences
    assert sum(gain.gain for gain in result.gains) == pytest.approx(conf.prompt - conf.base)


def test_the_first_word_has_no_counterpart_and_every_other_token_has_one(official):
    question, context = "Who built it?", "town of the Esk."
    first = [tokens(official.decoder.tokenizer, text) for text in ("town", " town")]
    assert first[0] != first[1]
    gains = official.explain(question, context).gains
    question_gains = [gain for gain in gains if gain.part == "question"]
    alone = [gain for gain in gains if gain.part == "context" and gain.gain is None]
    both = [gain for gain in gains if gain.gain is not None]
    assert "".join(gain.text for gain in question_gains).replace(" ", "") == question.replace(" ", "")
    assert all(gain.base is None and question[gain.start : gain.end] == gain.text for gain in question_gains)
    for side in ("base", "prompt"):
        assert "".join(gain.text for gain in alone if getattr(gain, side) is not None) == "town"
    assert "".join(gain.text for gain in both).replace(" ", "") == "oftheEsk."
    assert [gain.part for gain in both] == ["context"] * (len(both) - 1) + ["end"]
    assert all(context[gain.start : gain.end] == gain.text for gain in [*alone, *both[:-1]])


def test_the_space_between_the_texts_belongs_to_neither(official):
    gains = official.explain("Who?", "Arlen lies").gains
    assert [(gain.text, gain.start) for gain in gains if gain.part == "question"][-1] == (" ", None)
    assert "".join(gain.text for gain in gains if gain.part == "context").replace(" ", "") == "Arlenlies"


CONTEXTS = [
    "Arlen lies on the Esk.",
    "  Arlen lies\n\non\tthe Esk.  ",
    "naïve 🎉 café — 川 Esk",
    "<script>alert(1)</script> & \"Arlen\" 'lies'",
    "a\u0301 Esk \u00a0 \u200b mill",
]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("encoder", ["bert", "roberta"])
def test_tokens_are_at_their_positions(folders, encoder, context):
    question = "Who <b> built it?"
    result = QRelScore(folders[encoder], folders["gpt2"]).explain(question, context)
    for text, located in {question: result.question_tokens, context: result.context_tokens}.items():
        assert [text[token.start : token.end] for token in located] == [token.text for token in located]
        covered = {at for token in located for at in range(token.start, token.end)}
        assert all(letter.isspace() or at in covered or not letter.isprintable() for at, letter in enumerate(text))
        assert [token.start for token in located] == sorted(token.start for token in located)


def test_tokens_that_are_cut_or_left_out_are_marked(folders, rows):
    question, context = rows["questions"][0], rows["contexts"][2]
    for long_context in ("truncate", "chunk"):
        metric = QRelScore(folders["bert"], folders["gpt2"], long_context=long_context)
        result = metric.explain(question, context)
        (pieces, _), q = metric.local.pairs([question], [context]), len(result.question_tokens)
        reasons = [token.left_out for token in result.context_tokens]
        lengths = [len(piece) for _, piece in pieces]
        assert [token.left_out for token in result.question_tokens] == [None] * (q - 1) + ["last token"]
        assert reasons.count("last token") == len(lengths)
        assert reasons.count("cut off") == len(reasons) - sum(lengths)
        assert [token.piece for token in result.context_tokens if token.left_out is None] == [
            at for at, length in enumerate(lengths) for _ in range(length - 1)
        ]
        named = {match.context_token: match.piece for layer in result.layers for match in layer.matches}
        assert all(result.context_tokens[at].piece == piece for at, piece in named.items())
        assert all(value == 0 for value, reason in zip(result.matched, reasons, strict=True) if reason)
        notes = " ".join(result.notes)
        assert (f"last {reasons.count('cut off')} of" in notes) == (long_context == "truncate")
        assert (f"in {len(lengths)} pieces; a layer" in notes) == (long_context == "chunk")
        assert "The decoder reads the context in" in notes


def test_explaining_does_not_count_as_scoring(folders, rows):
    metric = QRelScore(folders["bert"], folders["gpt2"])
    metric.explain(rows["questions"][0], rows["contexts"][2])
    assert metric.truncated == 1


def test_baselines_and_powers_are_noted(folders):
    given = "Who built the mill?", "Arlen lies on the Esk."
    plain = AblatedQRelScore(folders["bert"], folders["gpt2"], clip_gain=False).explain(*given)
    baselines = {"lrm": [-1.0, 0.5], "grg": [-2.0, 2.0]}
    result = AblatedQRelScore(folders["bert"], folders["gpt2"], clip_gain=False, baselines=baselines).explain(*given)
    assert result.measured == pytest.approx({"lrm": plain.lrm, "grg": plain.grg}, abs=1e-6)
    assert (result.lrm, result.grg) == pytest.approx(((plain.lrm + 1) / 1.5, (plain.grg + 2) / 4), abs=1e-6)
    assert "rescaled by baselines (lrm=-1..0.5,grg=-2..2)" in " ".join(result.notes)
    assert "before rescaling" in result.to_html()
    powered = AblatedQRelScore(folders["bert"], folders["gpt2"], power="inf").explain(*given)
    assert powered.lrm == pytest.approx(max(0.0, *(layer.value for layer in powered.layers)), abs=1e-6)
    assert "power mean" in " ".join(powered.notes)


@pytest.mark.parametrize(
    ("question", "context", "message"),
    [
        ("Who", "The town of Arlen", "nothing to explain: there is no token of the question or of the context"),
        ("Who is it?", "", "nothing to explain"),
        ("Who is it?", None, r"contexts\[0\] is NoneType, not text"),
        (3, "The town", r"questions\[0\] is int, not text"),
    ],
)
def test_nothing_to_explain_is_one_clear_line(official, question, context, message):
    with pytest.raises(MetricInputError, match=message) as error:
        official.explain(question, context)
    assert "\n" not in str(error.value)


def test_references_are_not_explained(folders):
    with pytest.raises(MetricInputError, match="use references=False"):
        QRelScore(folders["bert"], folders["gpt2"], references=True).explain("Who?", "The town")


class Page(HTMLParser):
    """Contents of a page: balanced tags, the text of the two coloured contexts, and attributes."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.paragraphs = [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs)))
        if tag == "p":
            self.paragraphs.append((dict(attrs).get("class"), ""))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if any(tag == "p" for tag, _ in self.open) and self.open[-1][0] != "sup":
            kind, text = self.paragraphs[-1]
            self.paragraphs[-1] = (kind, text + data)

    def count(self, tag, **attributes):
        return sum(name == tag and attributes.items() <= result.items() for name, result in self.seen)


@pytest.mark.parametrize("context", [*CONTEXTS, " ".join([CONTEXTS[0], CONTEXTS[2]] * 4)])
@pytest.mark.parametrize("options", [{}, {"variant": "paper", "aggregation": "mean"}, {"long_context": "chunk"}])
def test_the_page_shows_the_texts_unchanged_and_nothing_else_can_run(folders, options, context):
    question = '<script>steal()</script> Who\'s "it"?'
    result = AblatedQRelScore(folders["bert"], folders["gpt2"], **options).explain(question, context)
    html = result.to_html()
    page = Page(html)
    texts = [text for kind, text in page.paragraphs if kind in ("source", "text")]
    assert texts == [context] * 3
    assert page.count("script") == 2  # that of the template
    assert "steal()" in html and "<script>steal" not in html and "<script>alert" not in html
    markup = re.sub(r"<(script|style).*?</\1>", "", html, flags=re.DOTALL)
    assert not re.findall(r"<(?!/?[a-z]+[1-6]?[\s>]|!doctype)|&(?!#?\w+;)", markup)  # every < and & is of the template
    assert not {"src", "href", "onclick", "onload"} & {name for _, attributes in page.seen for name in attributes}
    assert "default-src 'none'" in html and "http://" not in html and "https://" not in html
    compared = sum(token.left_out is None for token in result.question_tokens)
    assert page.count("button") == compared
    assert page.count("td", **{"class": "whole"}) == compared
    assert json.loads(html.split('id="matches">')[1].split("</script>")[0]).keys() == set(map(str, range(compared)))
    assert result.signature in html


def test_the_page_shows_the_numbers(folders):
    result = QRelScore(folders["bert"], folders["gpt2"]).explain("Who built the mill?", "Arlen lies on the Esk.")
    page = result.to_html()
    for value in (
        result.score,
        result.lrm,
        result.grg,
        result.layers[1].value,
        result.layers[0].matches[1].contribution,
    ):
        shown = f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:.2g}"
        assert f">{shown.replace('-', '−')}<" in page


def test_the_json_form_is_complete(metric, rows):
    result = metric.explain(rows["questions"][0], rows["contexts"][1])
    again = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert again == result.to_dict()
    assert again["signature"] == metric.signature
    assert again["layers"][0]["matches"][0].keys() == vars(result.layers[0].matches[0]).keys()


def test_tokenizers_without_positions(official, monkeypatch):
    given = "Who built it?", "town of the Esk."
    want = official.explain(*given)
    for model in (official.encoder, official.decoder):
        monkeypatch.setattr(type(model.tokenizer), "is_fast", False)
    result = official.explain(*given)
    assert {token.start for token in [*result.context_tokens, *result.gains]} == {None}
    assert [gain.gain for gain in result.gains] == pytest.approx([gain.gain for gain in want.gains])
    assert [gain.part for gain in result.gains] == [gain.part for gain in want.gains]
    assert "Esk" in "".join(token.text for token in result.context_tokens).replace("#", "")
    Page(result.to_html())


def test_a_question_that_fills_the_decoder(folders):
    long = "who founded the town of arlen and its mill " * 3
    metric = QRelScore(folders["roberta"], folders["gpt2"])
    question = metric.decoder.tokenizer.decode(metric.decoder.ids([long])[0][:47])
    result = metric.explain(question, "The mill")
    assert (result.grg, result.gains, result.confidences) == (0.0, [], [])
    assert "no room for the context in the decoder" in " ".join(result.notes)
    Page(result.to_html())


def luminance(colour):
    """Relative luminance (WCAG 2) of `#rrggbb`."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_every_colour(scheme):
    style = Path(explanation_page.__file__).with_name("explanation.html").read_text()
    colours = dict(re.findall(r"--(\w+): (#\w{6});", re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]))
    text = luminance(colours["text"])
    for end in (BLUE, ORANGE, GREEN, RED):
        low, high = sorted([text, luminance(colours[end.removeprefix("var(--").removesuffix(")")])])
        assert (high + 0.05) / (low + 0.05) > 7, (end, round((high + 0.05) / (low + 0.05), 1))
