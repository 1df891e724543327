"""Learned metrics: checkpoints of the same interface run pair by pair, and stubs of the packages."""

import hashlib
import json
import pickle
import re
import shutil
import string
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    RobertaForSequenceClassification,
)

from rewards import BLEURT, COMET, CTC, RQUGE, MetricInputError, Usability, load
from tests.rewards.conftest import ROBERTA, TEXT, byte_level, roberta_tokenizer, without
from tests.tiny_models import piece_tokenizer, save, tiny, tiny_bart, tiny_t5


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, str]:
    """Regressions (BERT, RoBERTa), one with two outputs, and a T5, all with random weights."""
    from tokenizers import processors

    root = tmp_path_factory.mktemp("learned")
    pieces, bytes_ = piece_tokenizer(text=TEXT), roberta_tokenizer()
    bytes_.backend_tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    ends = byte_level({"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"})
    ends.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    sizes = {"layers": 2, "spread": 0.5}
    special = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    models = {
        "bert": (pieces, tiny(BertForSequenceClassification, len(pieces), num_labels=1, **sizes)),
        "two": (pieces, tiny(BertForSequenceClassification, len(pieces), num_labels=2, **sizes)),
        "roberta": (
            bytes_,
            tiny(RobertaForSequenceClassification, len(bytes_), positions=300, num_labels=1, **ROBERTA, **sizes),
        ),
        "t5": (ends, tiny_t5(len(ends), layers=2, spread=2.0, **special)),
        "bart": (ends, tiny_bart(len(ends), positions=40, **special)),
    }
    return {name: save(root / name, *model) for name, model in models.items()}


def test_bleurt_reads_reference_then_question(checkpoints, rows):
    tokenizer = AutoTokenizer.from_pretrained(checkpoints["bert"])
    model = AutoModelForSequenceClassification.from_pretrained(checkpoints["bert"]).eval()

    def value(reference, question):
        encoded = tokenizer(reference, question, return_tensors="pt", truncation=True, max_length=64)
        with torch.no_grad():
            return float(model(**encoded).logits)

    got = BLEURT(checkpoints["bert"], batch_size=2).score(rows["questions"], references=rows["references"])
    for row, question in enumerate(rows["questions"]):
        want = max(value(reference, question) for reference in rows["references"][row])
        assert got.scores[row] == pytest.approx(want, abs=1e-5)
    assert load("bleurt", model=checkpoints["bert"]).signature.startswith("bleurt|model:bert@")


def test_usability_is_the_probability_of_the_last_label(checkpoints):
    tokenizer = AutoTokenizer.from_pretrained(checkpoints["two"])
    model = AutoModelForSequenceClassification.from_pretrained(checkpoints["two"]).eval()
    questions, answers = ["When?", "Who was it?", "Where is a mill?"], ["1833", "Ada", "in Arlen"]
    contexts = ["It was in 1833.", "Ada came in 1833.", "A mill is in Arlen."]
    got = Usability(checkpoints["two"], batch_size=2).score(questions, contexts=contexts, answers=answers)
    for question, context, answer, score in zip(questions, contexts, answers, got.scores, strict=True):
        encoded = tokenizer(f"{question} [SEP] {answer}", context, return_tensors="pt")
        with torch.no_grad():
            unusable, usable = model(**encoded).logits[0]
        assert encoded["input_ids"].shape[1] <= 64
        assert score == pytest.approx(float(1 / (1 + torch.exp(unusable - usable))), abs=1e-5)
    metric = load("usability", model=checkpoints["two"], batch_size=2)
    assert metric.signature.startswith("usability|model:two@")
    assert pickle.loads(pickle.dumps(metric)).score(questions, contexts=contexts, answers=answers).scores == got.scores


def test_usability_reads_a_long_passage_around_the_answer(checkpoints):
    """What is far before and after the answer changes nothing, a word beside it does."""
    far = [("a " * 90, "c", "a " * 90), ("b " * 90, "c", "d " * 90), ("b " * 90, "d", "d " * 90)]
    passages = [f"{before}{'e ' * 20}{near} 1833 {'e ' * 20}{after}" for before, near, after in far]
    metric = Usability(checkpoints["two"], max_length=24)
    first, second, third = metric.score(["When?"] * 3, contexts=passages, answers=["1833"] * 3).scores
    assert first == second != third


@pytest.mark.parametrize(
    ("question", "context", "answer"), [("when " * 99, "x " * 50 + "1833", "1833"), ("?", "", "")]
)
def test_usability_of_what_does_not_fit_or_is_empty(checkpoints, question, context, answer):
    metric = Usability(checkpoints["two"], max_length=24)
    (score,) = metric.score([question], contexts=[context], answers=[answer]).scores
    assert 0 < score < 1


def test_usability_keeps_the_answer_of_a_long_question(checkpoints):
    """The model reads as much of the question as four special tokens, its answer and a token of the passage leave."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoints["two"])
    model = AutoModelForSequenceClassification.from_pretrained(checkpoints["two"]).eval()
    answers, context = ["c", "c d"], "b b c d b b"
    metric = Usability(checkpoints["two"], max_length=24)
    got = metric.score(["a " * 99] * 2, contexts=[context] * 2, answers=answers).scores
    for answer, score in zip(answers, got, strict=True):
        question = " ".join(["a"] * (24 - 5 - len(answer.split())))
        encoded = tokenizer(f"{question} [SEP] {answer}", answer[-1], return_tensors="pt")
        with torch.no_grad():
            expected = float(model(**encoded).logits.softmax(1)[0, 1])
        assert encoded["input_ids"].shape[1] == 24 and score == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("build", "texts", "cut"),
    [
        (lambda paths: BLEURT(paths["bert"]), {"references": [["one"], ["two " * 99, "three " * 99]]}, 2),
        (lambda paths: Usability(paths["two"]), {"contexts": ["one", "two " * 99], "answers": ["two", "one"]}, 1),
        (
            lambda paths: RQUGE(paths["bart"], paths["roberta"]),
            {"contexts": ["one", "two " * 3000], "answers": ["two", "one"]},
            2,  # by the reader, whose positions end at 40, and by the regression
        ),
        (
            lambda paths: RQUGE(paths["t5"], paths["roberta"]),
            {"contexts": ["one", "the mill " * 25], "answers": ["two", "one"]},
            0,  # T5 reads any length
        ),
    ],
    ids=["bleurt", "usability", "rquge", "rquge-t5"],
)
def test_what_is_cut_is_counted_and_logged_once(checkpoints, caplog, build, texts, cut):
    metric = build(checkpoints)
    metric.score(["Who?"] * 2, **texts)
    assert (metric.truncated, len(caplog.messages)) == (cut, cut and 1 + (metric.name == "rquge"))
    metric.score(["Why?"] * 2, **texts)
    assert (metric.truncated, len(caplog.messages)) == (2 * cut, cut and 1 + (metric.name == "rquge"))
    assert all(text.startswith(f"{metric.name}: a text is longer than ") for text in caplog.messages)


def test_how_the_reader_of_rquge_writes_is_in_the_signature(checkpoints, tmp_path):
    folder = shutil.copytree(checkpoints["t5"], tmp_path / "t5")
    rules, signatures = folder / "generation_config.json", set()
    for beams in (1, 4):
        rules.write_text(json.dumps({**json.loads(rules.read_text()), "num_beams": beams}))
        metric = RQUGE(str(folder), checkpoints["roberta"])
        assert metric.reader.model.generation_config.num_beams == beams
        signatures.add(metric.signature)
    assert len(signatures) == 2


def test_rquge_reads_as_much_as_the_positions_of_its_reader(checkpoints):
    """BART's are absolute: of a longer input it reads the beginning and the end token, as a shorter one."""
    metric = RQUGE(checkpoints["bart"], checkpoints["roberta"])
    read = []
    metric.reader.batch, batch = lambda rows: read.extend(rows) or batch(rows), metric.reader.batch
    metric.score(["Who?"] * 2, ["the mill " * 90, "a mill"], answers=["a mill"] * 2)
    ids = metric.reader.tokenizer("Who? \\n " + "the mill " * 90)["input_ids"]
    assert read[0] == [*ids[:39], ids[-1]] and len(read[1]) < 40


@pytest.mark.slow
def test_rquge_step_by_step(checkpoints, rows):
    """The released scorer's steps, one question at a time, with the library's own calls."""
    reader = AutoModelForSeq2SeqLM.from_pretrained(checkpoints["t5"]).eval()
    spans = AutoModelForSequenceClassification.from_pretrained(checkpoints["roberta"]).eval()
    reads, marks = (AutoTokenizer.from_pretrained(checkpoints[name]) for name in ("t5", "roberta"))

    def plain(text):
        text = "".join(sign for sign in text.lower() if sign not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())

    expected = []
    with torch.no_grad():
        for question, context, answer in zip(rows["questions"], rows["contexts"], rows["answers"], strict=True):
            ids = reads.encode(question + " \\n " + context, return_tensors="pt")
            given = reads.batch_decode(reader.generate(ids, max_new_tokens=30), skip_special_tokens=True)[0]
            text = f"{plain(question)} <q> {plain(answer)} <r> {plain(given)} <c> {plain(context)}"
            encoded = marks(text, max_length=298, truncation=True, padding="max_length", return_tensors="pt")
            expected.append(
                (given, float(spans(encoded["input_ids"], attention_mask=encoded["attention_mask"]).logits))
            )
    assert len({given for given, _ in expected}) > 2  # answers differ, so they matter
    metric = RQUGE(checkpoints["t5"], checkpoints["roberta"], batch_size=4)
    got = metric.score(rows["questions"], rows["contexts"], answers=rows["answers"])
    assert got.scores == pytest.approx([value for _, value in expected], abs=1e-5)
    assert metric.needs == {"contexts", "answers"} and "|span_scorer:roberta@" in metric.signature


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda paths: BLEURT(paths["two"]), "bleurt: .* has 2 outputs; a regression has one"),
        (lambda paths: RQUGE(paths["t5"], paths["two"]), "rquge: .* has 2 outputs"),
        (lambda paths: Usability(paths["bert"]), "usability: .* has 1 outputs"),
        (lambda paths: RQUGE(paths["bert"], paths["roberta"]), "a BART-like encoder-decoder is needed"),
        (lambda paths: BLEURT("/no/model"), "bleurt: cannot load '/no/model'"),
        (lambda paths: COMET(), "comet needs the package comet: pip install unbabel-comet"),
        (lambda paths: CTC(), "ctc needs the package ctc_score: pip install ctc_score"),
        (lambda paths: CTC(aspect="fluency"), "ctc: aspect 'fluency' does not exist"),
    ],
)
def test_a_missing_package_or_model_is_one_line(checkpoints, monkeypatch, build, message):
    for module in ("comet", "ctc_score"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MetricInputError, match=message) as caught:
        build(checkpoints)
    assert "\n" not in str(caught.value)


def test_usability_needs_a_tokenizer_with_separators_and_offsets(checkpoints, tmp_path, monkeypatch):
    with pytest.raises(MetricInputError, match=r"usability: .* has no special tokens around a text; use BERT"):
        Usability(without(checkpoints["two"], tmp_path / "two", "sep_token"))
    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.is_fast", False)
    with pytest.raises(MetricInputError, match="gives no character offsets; use a model with"):
        Usability(checkpoints["two"])


def test_bleurt_in_the_home_folder(checkpoints, monkeypatch):
    monkeypatch.setenv("HOME", str(Path(checkpoints["bert"]).parent))
    assert BLEURT("~/bert").signature == BLEURT(checkpoints["bert"]).signature


# --- Stubs of packages: they accept only the calls that the real ones document ---


def module(name: str, **attributes) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(attributes)
    return made


def installed(folder: Path, monkeypatch, distribution: str, version: str) -> None:
    """Put the metadata that pip writes for a distribution on the path; the modules do not have a version."""
    metadata = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_bleurt_checkpoint_goes_through_its_package(checkpoints, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "bleurt"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"weights")
    monkeypatch.setitem(__import__("sys").modules, "bleurt_pytorch", None)
    with pytest.raises(MetricInputError, match=r"pip install git\+https://github.com/lucadiliello/bleurt-pytorch"):
        BLEURT(str(tmp_path))

    class Loads:
        def __init__(self, auto):
            self.from_pretrained = lambda path: auto.from_pretrained(checkpoints["bert"])

    package = module(
        "bleurt_pytorch",
        BleurtTokenizer=Loads(AutoTokenizer),
        BleurtForSequenceClassification=Loads(AutoModelForSequenceClassification),
    )
    monkeypatch.setitem(__import__("sys").modules, "bleurt_pytorch", package)
    columns = {"references": [["Who was Ida Koll?", "When?"], ["Where did it flow?"], ["the mill"]]}
    questions = ["Who built the mill?", "Where?", "Who founded the town of Arlen?"]
    got = BLEURT(str(tmp_path), batch_size=2, device="cpu").score(questions, **columns)
    assert got.scores == pytest.approx(BLEURT(checkpoints["bert"]).score(questions, **columns).scores, abs=1e-5)
    installed(tmp_path / "site", monkeypatch, "bleurt-pytorch", "0.0.7")
    first = BLEURT(str(tmp_path), device="cpu").signature
    assert re.fullmatch(rf"bleurt\|model:{tmp_path.name}@[0-9a-f]{{8}}\|bleurt-pytorch:0\.0\.7\|version:.*", first)
    (tmp_path / "pytorch_model.bin").write_bytes(b"others")
    assert BLEURT(str(tmp_path), device="cpu").signature != first
    with pytest.raises(MetricInputError, match="bleurt: dtype 'bfloat16' is for checkpoints that need no package"):
        BLEURT(str(tmp_path), device="cpu", dtype="bfloat16")


@pytest.mark.parametrize("against", ["references", "context"])
def test_comet_receives_source_translation_and_reference(tmp_path, monkeypatch, against):
    calls, checkpoint = [], tmp_path / "model.ckpt"
    checkpoint.write_bytes(b"weights")
    installed(tmp_path / "site", monkeypatch, "unbabel-comet", "2.2.7")

    class Model:
        def predict(self, samples, batch_size, gpus, progress_bar):
            calls.append((samples, batch_size, gpus, progress_bar))
            return SimpleNamespace(scores=[len(" ".join(sample.values())) / 100 for sample in samples])

    package = module(
        "comet", download_model=lambda name: str(checkpoint) if name == "Unbabel/x" else pytest.fail(name),
        load_from_checkpoint=lambda path: Model() if path == str(checkpoint) else pytest.fail(path),
    )  # fmt: skip
    monkeypatch.setitem(__import__("sys").modules, "comet", package)
    metric = COMET("Unbabel/x", against=against, batch_size=4, device="cpu")
    got = metric.score(["Who?", "When?"], ["a mill", "a town"], references=[["Where?", "What is it?"], ["Why?"]])
    samples, *rest = calls[0]
    assert rest == [4, 0, False]
    if against == "context":
        assert samples == [{"src": "a mill", "mt": "Who?"}, {"src": "a town", "mt": "When?"}]
        assert metric.needs == {"contexts"} and got.scores == pytest.approx([0.11, 0.12])
    else:
        assert samples[1] == {"src": "a mill", "mt": "Who?", "ref": "What is it?"}
        assert metric.needs == {"contexts", "references"} and got.scores == pytest.approx([0.23, 0.17])
    known = hashlib.sha256(b"weights").hexdigest()[:8]
    assert metric.signature.startswith(f"comet|model:Unbabel/x@{known}|against:{against}|unbabel-comet:2.2.7|")
    checkpoint.write_bytes(b"others")
    others = hashlib.sha256(b"others").hexdigest()[:8]
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (str(checkpoint), "~/model.ckpt"):
        assert COMET(path, device="cpu").signature.startswith(f"comet|model:model.ckpt@{others}|")


@pytest.mark.parametrize("aspect", ["consistency", "relevance"])
def test_ctc_treats_a_question_as_a_summary(tmp_path, monkeypatch, aspect):
    installed(tmp_path, monkeypatch, "ctc-score", "0.1.3")

    class Scorer:
        def __init__(self, align, aggr_type="mean", device="cuda"):
            assert (align, device) == ("E-bert", "cpu")

        def score(self, doc, refs, hypo, aspect, remove_stopwords=False):
            return None if not hypo else len(doc) + 10 * len(refs) + (100 if aspect == "relevance" else 0)

    monkeypatch.setitem(__import__("sys").modules, "ctc_score", module("ctc_score", SummarizationScorer=Scorer))
    metric = CTC("E-bert", aspect, device="cpu")
    got = metric.score(["Who?", ""], ["a mill", "a town"], references=[["Where?", "What?"], ["Why?"]])
    assert got.scores == ([126.0, 0.0] if aspect == "relevance" else [6.0, 0.0])
    assert metric.signature.startswith(f"ctc|align:E-bert|aspect:{aspect}|ctc_score:0.1.3|")
