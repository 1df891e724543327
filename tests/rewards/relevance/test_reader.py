"""The reader metric against a slow reference, against the project's own reader, and its documented special cases."""

import json
import logging
import math
import pickle
from types import SimpleNamespace

import pytest
import torch
from tokenizers import processors
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    BertForMaskedLM,
    BertForQuestionAnswering,
    DistilBertForQuestionAnswering,
    ElectraForQuestionAnswering,
    RobertaForQuestionAnswering,
)

from rewards import MetricInputError, ReaderScore, load
from rewards.relevance.reader import LOWEST, MEASURES
from rewards.relevance.reading import tokenized_passages
from rewards.words import answer_exact_match as exact_match, answer_f1 as f1
from rl_qg.data.examples import Answer, QAExample
from rl_qg.readers.reader import WindowCollator, best_answers, encode
from tests.rewards.conftest import ROBERTA, TEXT, roberta_tokenizer
from tests.rewards.reader_reference import answer_logprob, predicted, read
from tests.tiny_models import piece_tokenizer, save, tiny, word_tokenizer

ROWS = [
    ("Who founded the town of Arlen?", TEXT[0], "Ida Koll"),
    ("Who?", TEXT[0], "1204"),
    ("Where did the river flow, and who built the mill?", " ".join(TEXT), "the"),
    ("What did Tomas Brandt write in 1931?", " ".join(TEXT[::-1]), "The Grey Shore"),
    ("What did Tomas Brandt write in 1931?", TEXT[2], "Tomas Brandt wrote the novel"),
    ("Who was it?", "Ida Koll", "Ida Koll"),
    ("", TEXT[1], "the river flow"),
]
"""The answer "the" stands at several places."""


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    root = tmp_path_factory.mktemp("readers")
    pieces = piece_tokenizer(text=TEXT, model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    marks = roberta_tokenizer()
    marks.backend_tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    marks.model_input_names = ["input_ids", "attention_mask"]
    plain = piece_tokenizer(text=TEXT, model_input_names=["input_ids", "attention_mask"])
    sizes = {"layers": 2, "spread": 0.5, "positions": 120}
    models = {
        "bert": (pieces, tiny(BertForQuestionAnswering, len(pieces), **sizes)),
        "distilbert": (plain, tiny(DistilBertForQuestionAnswering, len(pieces), **sizes)),
        "roberta": (marks, tiny(RobertaForQuestionAnswering, len(marks), **sizes, **ROBERTA)),
        "electra": (pieces, tiny(ElectraForQuestionAnswering, len(pieces), embedding_size=8, **sizes)),
    }
    return {name: save(root / name, *model) for name, model in models.items()}


def score(metric, rows=ROWS):
    questions, contexts, answers = (list(column) for column in zip(*rows, strict=True))
    return metric.score(questions, contexts, answers=answers)


@pytest.mark.parametrize("abstain", [False, True])
@pytest.mark.parametrize("window", [(110, 30), (48, 10), (34, 0)])
@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta", "electra"])
def test_slow_reference(readers, kind, window, abstain):
    """One window, several that overlap, and several that do not."""
    size, stride = window
    options = {"abstain": abstain, "max_length": size, "stride": stride}
    metric = ReaderScore(readers[kind], max_answer_length=4, batch_size=3, **options)
    room = size - metric._format.size
    rows = [row for row in ROWS if len(metric.model.ids([row[0]])[0]) <= min(room // 2, room - stride - 1)]
    assert len(rows) > 3
    got = score(metric, rows)
    assert metric.truncated == 0
    assert (metric._format.token_types is not None) == (kind in ("bert", "electra"))
    abstained = 0
    for row, (question, context, answer) in enumerate(rows):
        tokens, no_answer = read(readers[kind], question, context, **options)
        logprob = answer_logprob(tokens, context, answer)
        prediction = predicted(tokens, no_answer, context, 4)
        abstained += prediction is None
        want = {
            "probability": math.exp(logprob),
            "log_probability": max(LOWEST, logprob),
            "f1": 0.0 if prediction is None else f1(prediction, answer),
            "exact_match": 0.0 if prediction is None else exact_match(prediction, answer),
        }
        assert {name: got.parts[name][row] for name in MEASURES} == pytest.approx(want, rel=2e-5, abs=1e-7)
    assert abstain or not abstained


SCRIPT = {"a": (1.0, 0.5), "b": (2.0, 1.5), "c": (0.0, 3.0), "<s>": (1.5, 2.5)}
"""Logits of each token of a reader that looks at nothing else."""


@pytest.fixture
def scripted(tmp_path):
    """Build a reader with the logits of `SCRIPT`, and others for some class tokens."""
    tokenizer = word_tokenizer("a b c q", template="<s> $A </s>")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A </s> $B", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.cls_token = "<s>"
    folder = save(tmp_path, tokenizer, tiny(DistilBertForQuestionAnswering, len(tokenizer), positions=16))

    def build(nulls=None, **options):
        metric = ReaderScore(folder, **{"max_length": 8, "stride": 1, **options})
        known = tokenizer.get_vocab()
        table = torch.zeros(2, len(tokenizer))
        for token, values in SCRIPT.items():
            table[:, known[token]] = torch.tensor(values)

        def forward(input_ids, attention_mask):
            logits = table[:, input_ids]
            for row, ids in enumerate(input_ids.tolist()):
                if nulls:
                    logits[:, row, 0] = torch.tensor(nulls[ids[3]])  # by the first token of the passage
            return SimpleNamespace(start_logits=logits[0], end_logits=logits[1])

        metric.model.model.forward = forward
        return metric

    return build


def test_abstaining_by_hand(scripted):
    """One window: the class token joins both softmaxes, and wins where it is more probable than the best span."""
    rows = [("q", "a b c", "b c"), ("q", "a", "a")]
    plain, abstaining = (score(scripted(abstain=abstain), rows) for abstain in (False, True))
    begin, end = (sum(math.exp(SCRIPT[token][side]) for token in "abc") for side in (0, 1))
    assert plain.scores[0] == pytest.approx(math.exp(2 + 3) / (begin * end), rel=1e-6)
    begin, end = begin + math.exp(1.5), end + math.exp(2.5)
    assert abstaining.scores[0] == pytest.approx(math.exp(2 + 3) / (begin * end), rel=1e-6)
    assert plain.scores[1] == 1.0
    want = 1 / ((1 + math.exp(1.5 - 1)) * (1 + math.exp(2.5 - 0.5)))
    assert abstaining.scores[1] == pytest.approx(want, rel=1e-6)
    assert plain.parts["exact_match"] == [1.0, 1.0]
    assert abstaining.parts["exact_match"] == [1.0, 0.0]


def test_what_is_impossible_by_hand(scripted):
    """The class token's share of both softmaxes over itself and the passage, question and separators left out."""
    begin, end = (sum(math.exp(SCRIPT[token][side]) for token in ("a", "b", "c", "<s>")) for side in (0, 1))
    alone = math.exp(1.5 + 2.5) / ((math.exp(1) + math.exp(1.5)) * (math.exp(0.5) + math.exp(2.5)))
    got = scripted(abstain=True).impossible(["q", "q q", "q", ""], ["a b c", "a", " ", "a"])
    assert got == pytest.approx([math.exp(1.5 + 2.5) / (begin * end), alone, 1.0, alone], rel=1e-6)
    assert scripted(abstain=True).impossible([], []) == []
    with pytest.raises(MetricInputError, match="has not learned to abstain"):
        scripted(abstain=False).impossible(["q"], ["a"])


def test_the_window_that_abstains_least_counts_once(scripted):
    """Windows of three tokens that share one, "a b c" and "c b a": only the second one thinks it has the answer."""
    nulls = {5: (4.0, 4.0), 7: (-1.0, -2.0)}
    rows = [("q", "a b c b b", "b c")]
    options = {"max_length": 6, "stride": 1, "abstain": True}
    got = score(scripted(nulls, **options), rows)
    starts = [SCRIPT[token][0] for token in "abcbb"]
    ends = [SCRIPT[token][1] for token in "abcbb"]
    starts[2] += math.log(2)  # read in both windows
    ends[2] += math.log(2)
    begin = sum(map(math.exp, starts)) + math.exp(-1)
    end = sum(map(math.exp, ends)) + math.exp(-2)
    assert got.scores == pytest.approx([math.exp(starts[1] + ends[2]) / (begin * end)], rel=1e-6)
    assert got.parts["exact_match"] == [1.0]
    sure = {5: (40.0, 40.0), 7: (40.0, 40.0)}
    silent = score(scripted(sure, **options), rows)
    assert silent.parts["f1"] == silent.parts["exact_match"] == [0.0]
    assert silent.parts["log_probability"] == [LOWEST]


def test_the_readers_configuration_says_whether_it_abstains(readers, tmp_path):
    model = AutoModelForQuestionAnswering.from_pretrained(readers["bert"])
    model.config.abstains = True
    folder = save(tmp_path, AutoTokenizer.from_pretrained(readers["bert"]), model)
    found = {folder: ReaderScore(folder), readers["bert"]: ReaderScore(readers["bert"])}
    assert [metric.abstain for metric in found.values()] == [True, False]
    for path, metric in found.items():
        assert score(metric).scores == score(ReaderScore(path, abstain=metric.abstain)).scores
    assert ReaderScore(folder, abstain=False).signature != found[folder].signature


@pytest.mark.parametrize("max_length", [110, 40])
def test_the_probabilities_of_all_tokens_sum_to_one(readers, max_length):
    metric = ReaderScore(readers["bert"], max_length=max_length, stride=10)
    passages = [row[1] for row in ROWS]
    spans = metric._spans(metric._questions([row[0] for row in ROWS]), tokenized_passages(metric.model, passages))
    for side in (spans.start, spans.end):
        totals = torch.zeros(len(ROWS), dtype=torch.float64).index_add(0, spans.rows, side.exp())
        torch.testing.assert_close(totals, torch.ones_like(totals))


def test_the_projects_reader_answers_the_same(readers):
    """On passages of one window `rl-qg qa` takes the same span, when it looks at all starts and ends."""
    tokenizer = AutoTokenizer.from_pretrained(readers["bert"])
    examples = [
        QAExample(str(row), "", context, question, (Answer(answer, context.find(answer)),))
        for row, (question, context, answer) in enumerate(ROWS)
    ]
    windows = encode(examples, tokenizer, max_length=110, doc_stride=30, token_types=True)
    assert len(windows) == len(examples)
    batch = WindowCollator(tokenizer.pad_token_id)([windows[at] for at in range(len(windows))])
    del batch["labels"]
    with torch.no_grad():
        output = AutoModelForQuestionAnswering.from_pretrained(readers["bert"])(**batch)
    logits = (output.start_logits.numpy(), output.end_logits.numpy())
    metric = ReaderScore(readers["bert"], "f1", max_answer_length=6, max_length=110, stride=30)
    texts = best_answers(windows, examples, *logits, n_best=110, max_answer_length=6)
    rows = [(question, context, texts[str(row)]) for row, (question, context, _) in enumerate(ROWS)]
    assert score(metric, rows).parts["exact_match"] == [1.0] * len(ROWS)
    assert len(set(texts.values())) > 3


def test_order_batch_size_and_padding_change_nothing(readers):
    options = {"measure": "log_probability", "max_length": 48, "stride": 10}
    together = score(ReaderScore(readers["roberta"], **options)).scores
    assert score(ReaderScore(readers["roberta"], batch_size=1, **options)).scores == pytest.approx(together, rel=1e-5)
    turned = score(ReaderScore(readers["roberta"], batch_size=2, **options), ROWS[::-1]).scores
    assert turned[::-1] == pytest.approx(together, rel=1e-5)


def test_a_context_is_tokenised_once_and_every_pair_read_once(readers, monkeypatch):
    metric = ReaderScore(readers["bert"])
    texts, rows = [], []
    tokenizer, forward = metric.model.tokenizer, metric.model.model.forward
    monkeypatch.setattr(
        metric.model, "tokenizer", _Recording(tokenizer, lambda given: texts.extend(given)), raising=True
    )
    monkeypatch.setattr(
        metric.model.model, "forward", lambda **inputs: rows.append(len(inputs["input_ids"])) or forward(**inputs)
    )
    score(metric, [(question, TEXT[0], "Ida Koll") for question, _, _ in ROWS])
    assert texts.count(TEXT[0]) == 1
    assert sum(rows) == len({question for question, _, _ in ROWS})


class _Recording:
    """A tokenizer that notes what it is called with."""

    def __init__(self, tokenizer, note):
        self._tokenizer, self._note = tokenizer, note

    def __call__(self, texts, **options):
        self._note(texts)
        return self._tokenizer(texts, **options)

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)


@pytest.mark.parametrize(
    ("question", "context", "answer"),
    [
        ("Who built it?", TEXT[0], "Tomas Brandt"),
        ("Who built it?", TEXT[0], ""),
        ("Who built it?", TEXT[0], " \n"),
        ("Who built it?", "", "Ida Koll"),
        ("Who built it?", "  ", "Ida Koll"),
        ("", "", ""),
    ],
)
def test_an_answer_that_is_not_there_has_the_lowest_score(readers, question, context, answer):
    rows = [(question, context, answer), ROWS[0]]
    for abstain in (False, True):
        parts = score(ReaderScore(readers["bert"], abstain=abstain), rows).parts
        assert parts["probability"][0] == 0.0
        assert parts["log_probability"][0] == LOWEST
        assert parts["probability"][1] > 0
        if not context.strip():
            assert parts["f1"][0] == parts["exact_match"][0] == 0.0


def test_white_space_around_an_answer_does_not_count(readers):
    metric = ReaderScore(readers["roberta"])
    plain, spaced = score(metric, [ROWS[0], (*ROWS[0][:2], " Ida Koll\n")]).scores
    assert plain == spaced > 0


def test_a_question_that_is_too_long_is_cut_and_counted(readers, caplog):
    metric = ReaderScore(readers["bert"], max_length=40, stride=10)
    long = ("Who founded the town of Arlen and why and when and where " * 9, TEXT[0], "Ida Koll")
    with caplog.at_level(logging.WARNING):
        first = score(metric, [long])
        score(metric, [long, ROWS[0]])
    assert metric.truncated == 2
    assert caplog.text.count("reader: a text is longer than 18 tokens and is cut (logged once") == 1
    kept = metric.model.tokenizer.decode(metric.model.ids([long[0]])[0][: (40 - 3) // 2])
    assert score(metric, [(kept, *long[1:])]).scores == pytest.approx(first.scores, rel=1e-5)


def test_the_smallest_room_for_a_question_is_one_token(readers):
    """Of 40 tokens 3 are special and 35 are shared; a new one of the passage leaves one."""
    metric = ReaderScore(readers["bert"], max_length=40, stride=35)
    [first] = metric.model.ids([ROWS[0][0]])
    word = metric.model.tokenizer.decode(first[:1])
    cut, short = score(metric, [ROWS[0], (word, *ROWS[0][1:])]).scores
    assert cut == pytest.approx(short, rel=1e-5) and metric.truncated == 1


def test_windows_fit_a_model_that_is_shorter_than_asked_for(readers):
    metric = ReaderScore(readers["bert"], max_length=384, stride=128)
    assert (metric.max_length, metric.stride) == (120, 40)
    assert "|max_length:120|stride:40|" in metric.signature


def test_the_measure_is_the_score_and_the_log_probability_has_a_floor(readers, tmp_path):
    results = {measure: score(ReaderScore(readers["bert"], measure)) for measure in MEASURES}
    for measure, result in results.items():
        assert result.scores == result.parts[measure] == results["f1"].parts[measure]
    model = AutoModelForQuestionAnswering.from_pretrained(readers["bert"])
    model.qa_outputs.weight.data.mul_(1e3)
    folder = save(tmp_path, AutoTokenizer.from_pretrained(readers["bert"]), model)
    sharp = score(ReaderScore(folder, "log_probability"))
    assert min(sharp.scores) == LOWEST == ReaderScore(folder, "log_probability").bounds[0]
    assert all(map(math.isfinite, sharp.scores))


def test_signature_names_every_choice(readers):
    folder = readers["bert"]
    options = [{}, {"measure": "f1"}, {"abstain": True}, {"max_length": 70}, {"stride": 20}, {"max_answer_length": 5}]
    chosen = [
        ReaderScore(folder, **{"max_length": 100, "stride": 30, **given})
        for given in [*options, {"dtype": "bfloat16"}]
    ]
    chosen.append(ReaderScore(readers["electra"], max_length=100, stride=30))
    assert len({metric.signature for metric in chosen}) == len(chosen)
    assert chosen[0].signature.startswith("reader|measure:probability|model:bert@")


def test_pickle_and_trl(readers):
    metric = load("reader", model=readers["bert"])
    want = score(metric, ROWS[:2]).scores
    assert score(pickle.loads(pickle.dumps(metric)), ROWS[:2]).scores == pytest.approx(want)
    columns = {"context": [ROWS[0][1], None, ROWS[1][1]], "answer": [ROWS[0][2], "x", ROWS[1][2]]}
    logged = {}
    got = metric(
        prompts=["p"] * 3, completions=[ROWS[0][0], "Who?", ROWS[1][0]], log_metric=logged.__setitem__, **columns
    )
    assert got == [pytest.approx(want[0]), None, pytest.approx(want[1])]
    assert set(logged) == {f"reader/{name}" for name in MEASURES}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": "span"}, "measure 'span' does not exist; use probability, log_probability, f1 or exact_match"),
        ({"abstain": "yes"}, "abstain 'yes' is neither true nor false"),
        ({"max_answer_length": 0}, "max_answer_length 0 is out of range"),
        ({"stride": 384}, "stride 384 is out of range"),
        ({"max_length": 40, "stride": 36}, "windows of max_length 40 that share stride 36 tokens have no room"),
    ],
)
def test_wrong_options(readers, options, message):
    with pytest.raises(MetricInputError, match=message):
        ReaderScore(readers["bert"], **options)


def test_models_that_are_no_readers(readers, folders, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(readers["bert"])
    masked = save(tmp_path / "masked", tokenizer, tiny(BertForMaskedLM, len(tokenizer)))
    with pytest.raises(
        MetricInputError, match=r"lacks the weights 'qa_outputs\.bias' .* an extractive reader is needed"
    ):
        ReaderScore(masked)
    with pytest.raises(MetricInputError, match="an extractive reader is needed"):
        ReaderScore(folders["bart"])
    tags = BertForQuestionAnswering(tiny(BertForMaskedLM, len(tokenizer), num_labels=3).config)
    with pytest.raises(MetricInputError, match="has a span head with 3 outputs for each token"):
        ReaderScore(save(tmp_path / "tags", tokenizer, tags))
    words = word_tokenizer(TEXT[0], template="$A")
    without = save(tmp_path / "words", words, tiny(DistilBertForQuestionAnswering, len(words)))
    assert score(ReaderScore(without), ROWS[:1]).scores[0] > 0
    with pytest.raises(MetricInputError, match="has no class token; abstain=true needs one"):
        ReaderScore(without, abstain=True)


def test_the_command_scores_a_file(readers, tmp_path):
    from rl_qg.commands.cli import run_command

    path = tmp_path / "questions.jsonl"
    lines = [
        {"id": str(row), "question": question, "context": context, "answer": answer}
        for row, (question, context, answer) in enumerate(ROWS[:3])
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = tmp_path / "scored.jsonl"
    model = f"reward_models.reader={readers['bert']}"
    run_command("score", ["reward=reader", model, f"input={path}", f"output={output}", "training.use_cpu=true"])
    scored = [json.loads(line) for line in output.read_text().splitlines()]
    want = score(ReaderScore(readers["bert"]), ROWS[:3])
    assert [line["score"] for line in scored] == pytest.approx(want.scores)
