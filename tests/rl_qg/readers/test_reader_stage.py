"""The QA stage end to end on a toy task: it learns, and refuses what it cannot do."""

import gc
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    XLNetConfig,
    XLNetModel,
)

from rl_qg.commands.compose import compose
from rl_qg.data.examples import passage_hash
from rl_qg.readers.fine_tuning import FineTuning
from rl_qg.readers.reader import encode, load_model, load_tokenizer, score_predictions
from rl_qg.readers.train_reader import train_reader
from rl_qg.runtime.errors import InputError, NothingLearned
from rl_qg.runtime.files import read_json, write_json
from rl_qg.settings import QASettings
from rl_qg.stats.intervals import PassageDraws, mean_interval
from tests.tiny_models import save, tiny, tiny_bart
from tests.toy_reader import run, save_bert, save_distilbert, toy_examples, toy_settings, toy_tokenizer


@pytest.fixture(scope="module", autouse=True)
def _collected_once() -> Iterator[None]:
    """The library collects garbage whenever training begins; what is loaded by now need not be looked at each time."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.slow
def test_a_toy_task_is_learned_and_the_files_agree(tmp_path) -> None:
    model = save_distilbert(tmp_path / "model")
    train, validation = toy_examples(960, 1), toy_examples(150, 2)
    validation += [replace(example, id=f"{example.id} again") for example in validation[:50]]  # two on a passage
    output = tmp_path / "qa"
    result = run(output, toy_settings(model, seeds=[0, 1]), train, validation)

    assert result["exact_match"] > 90 and result["f1"] >= result["exact_match"]
    assert result == read_json(output / "qa_metrics.json")
    assert result["total"] == 200 and result["missing"] == 0
    assert [row["seed"] for row in result["seeds"]] == [0, 1]
    for name in ("exact_match", "f1"):
        assert result[name] == pytest.approx(sum(row[name] for row in result["seeds"]) / 2)
        low, high = result["intervals"][name]
        assert low <= result[name] <= high
    assert result["features"]["train"] == {
        "examples": 960,
        "windows": 960,
        "questions_cut": 0,
        "answers_in_no_window": 0,
    }

    # The predictions are those of the first seed, and give its scores.
    predictions = read_json(output / "predictions.json")
    assert list(predictions) == [example.id for example in validation]
    scores = score_predictions(predictions, validation)
    assert (scores.exact_match, scores.f1) == (result["seeds"][0]["exact_match"], result["seeds"][0]["f1"])

    # Scores of the questions are means over the seeds; intervals are over passages.
    passages = {example.id: passage_hash(example.context) for example in validation}
    assert (result["resampled"], result["passages"]) == ("passages", 150)
    tables = [read_json(output / f"seed-{seed}" / "question_scores.json") for seed in (0, 1)]
    rows = read_json(output / "question_scores.json")
    draws = PassageDraws([passages[key] for key in rows])
    for name, ends in result["intervals"].items():
        interval = mean_interval([100 * row[name] for row in rows.values()], draws, bounds=(0.0, 100.0))
        assert (interval.passages, ends) == (150, [interval.low, interval.high])
    for key, row in rows.items():
        assert row["passage"] == passages[key]
        for name in ("exact_match", "f1"):
            assert row[name] == (tables[0][key][name] + tables[1][key][name]) / 2

    # The model in the folder is the first seed's reader.
    reader, tokenizer = AutoModelForQuestionAnswering.from_pretrained(output), AutoTokenizer.from_pretrained(output)
    for example in validation[:10]:
        encoded = tokenizer(example.question, example.context, return_tensors="pt")
        logits = reader(**encoded)
        first, last = int(logits.start_logits.argmax()), int(logits.end_logits.argmax())
        assert tokenizer.decode(encoded["input_ids"][0, first : last + 1]) == predictions[example.id]
    left = {path.name for path in output.rglob("*") if path.is_file()}
    assert "model.safetensors" in left and not any(name.endswith((".bin", ".pt", ".pth", ".part")) for name in left)


@pytest.mark.slow
def test_bert_reads_question_and_passage_as_different_types(tmp_path) -> None:
    model = save_bert(tmp_path / "bert")
    tokenizer, token_types = load_tokenizer(str(model), max_length=32)
    assert token_types
    windows = encode(toy_examples(2, 1), tokenizer, max_length=32, doc_stride=8, token_types=token_types)
    assert sorted(set(windows[0]["token_type_ids"].tolist())) == [0, 1]
    result = run(tmp_path / "qa", toy_settings(model), toy_examples(960, 1), toy_examples(60, 2))
    assert result["exact_match"] > 60  # one in three is what blind guessing of the kind gives
    assert load_model(str(tmp_path / "qa")).config.num_labels == 2


def test_distilbert_takes_no_token_types_even_from_a_tokenizer_that_has_them(distilbert, tmp_path) -> None:
    load_tokenizer(str(distilbert), max_length=32)[0].save_pretrained(tmp_path)
    (tmp_path / "config.json").write_bytes((distilbert / "config.json").read_bytes())
    config = read_json(tmp_path / "tokenizer_config.json")
    write_json(
        tmp_path / "tokenizer_config.json",
        {**config, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]},
    )
    tokenizer, token_types = load_tokenizer(str(tmp_path), max_length=32)
    assert "token_type_ids" in tokenizer.model_input_names
    assert not token_types


def test_long_passages_and_an_exact_number_of_steps(distilbert, tmp_path) -> None:
    examples = toy_examples(12, 1)
    long = [replace(e, context=" ".join([e.context] + ["the"] * 60)) for e in examples]
    result = run(tmp_path / "qa", toy_settings(distilbert, max_steps=2), long, long)
    assert result["features"]["validation"]["windows"] > 3 * result["features"]["validation"]["examples"]
    assert len(read_json(tmp_path / "qa" / "predictions.json")) == 12


def test_missing_weights_are_reported_except_those_of_the_new_span_head(distilbert, tmp_path, caplog) -> None:
    transformers_logger = logging.getLogger("transformers")
    propagates, transformers_logger.propagate = transformers_logger.propagate, True
    try:
        load_model(str(distilbert))
        assert not caplog.records
        config = read_json(distilbert / "config.json")
        (tmp_path / "model.safetensors").write_bytes((distilbert / "model.safetensors").read_bytes())
        write_json(tmp_path / "config.json", {**config, "n_layers": 3})
        load_model(str(tmp_path))
    finally:
        transformers_logger.propagate = propagates
    assert [record.name for record in caplog.records] == ["rl_qg.readers.reader"]
    assert "weights besides the span head start at random, such as distilbert.transformer.layer.2" in caplog.text


def test_files_are_json_that_other_programs_read(distilbert, tmp_path) -> None:
    run(tmp_path / "qa", toy_settings(distilbert, epochs=1))
    for name in ("predictions.json", "qa_metrics.json", "question_scores.json"):
        json.loads((tmp_path / "qa" / name).read_text(encoding="utf-8"), parse_constant=pytest.fail)


def test_of_xlnet_the_first_token_stands_for_no_answer(tmp_path) -> None:
    """Its class token is the last one, and its configuration has no number of token types."""
    tokenizer = toy_tokenizer(model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    ids = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("[SEP]", "[CLS]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A [SEP] [CLS]", pair="$A [SEP] $B [SEP] [CLS]", special_tokens=ids
    )
    config = XLNetConfig(vocab_size=len(tokenizer), d_model=16, n_layer=1, n_head=2, d_inner=32)
    save(tmp_path, tokenizer, XLNetModel(config))
    tokenizer, token_types = load_tokenizer(str(tmp_path), max_length=32)
    load_model(str(tmp_path), tokenizer)
    unanswered = [replace(toy_examples(1, 1)[0], answers=())]
    windows = encode(unanswered, tokenizer, max_length=32, doc_stride=8, token_types=token_types)
    assert not token_types and windows.ids[-1] == tokenizer.cls_token_id and windows.labels.tolist() == [[0, 0]]


@pytest.mark.parametrize(("fraction", "steps"), [(0.0, 0), (0.1, 4), (1.0, 40)])
def test_a_warm_up_is_a_fraction_of_all_updates(tmp_path, fraction: float, steps: int) -> None:
    settings = QASettings(warmup_fraction=fraction)
    assert FineTuning(settings, tmp_path, seed=0, use_cpu=True).arguments().get_warmup_steps(40) == steps


# --- It refuses ---


def test_unusable_examples_and_settings_are_refused(distilbert, tmp_path) -> None:
    settings, examples = toy_settings(distilbert), toy_examples(3, 1)

    def refused(text: str, train=examples, validation=examples, **changes) -> None:
        with pytest.raises(InputError, match=text):
            train_reader(
                train,
                validation,
                settings=replace(settings, **changes),
                output_dir=tmp_path / "qa",
                use_cpu=True,
            )

    refused("data.train: no examples for the reader", train=[])
    refused("data.validation: no examples for the reader", validation=[])
    refused("data.train: example q1 has no question", train=[examples[0], replace(examples[1], question=" ")])
    refused("some ids occur twice", validation=[examples[0], examples[0]])
    refused(r"qa.seeds=\[1, 1\]: name each seed once", seeds=[1, 1])
    refused("qa.max_length=65 is above the 64 tokens", max_length=65)
    assert not (tmp_path / "qa").exists()
    with pytest.raises(InputError, match="is the model to start from"):
        run(distilbert, settings)


def test_folders_that_hold_no_reader_are_refused(distilbert, tmp_path, monkeypatch) -> None:
    def refused(text: str, folder: Path | str) -> None:
        with pytest.raises(InputError, match=text) as caught:
            load_tokenizer(str(folder), max_length=32)
            load_model(str(folder))
        assert "\n" not in str(caught.value)

    refused("qa.model.path=/no/such/place: no such folder", "/no/such/place")
    refused("no such folder", "runs/qa/model")
    (tmp_path / "empty").mkdir()
    refused(r"no model folder \(it has no config.json\)", tmp_path / "empty")

    tokenizer = toy_tokenizer()
    tiny_bart(len(tokenizer)).save_pretrained(tmp_path / "bart")
    refused("a model of type 'bart' is no extractive reader: give an encoder", tmp_path / "bart")

    tiny(GPT2LMHeadModel, len(tokenizer)).save_pretrained(tmp_path / "gpt2")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, unk_token="[UNK]", model_max_length=64
    ).save_pretrained(tmp_path / "gpt2")
    refused("its tokenizer has no padding token", tmp_path / "gpt2")

    def copy_of(name: str, left_out: str = "") -> Path:
        (tmp_path / name).mkdir()
        for path in distilbert.iterdir():
            if path.name != left_out:
                (tmp_path / name / path.name).write_bytes(path.read_bytes())
        return tmp_path / name

    refused("no reader in this folder can be loaded", copy_of("no-weights", "model.safetensors"))
    torn = copy_of("torn")
    (torn / "model.safetensors").write_bytes((torn / "model.safetensors").read_bytes()[:1000])
    refused("no reader in this folder can be loaded", torn)
    mixed = copy_of("mixed")
    write_json(mixed / "config.json", {**read_json(mixed / "config.json"), "vocab_size": 10})
    refused("no reader in this folder can be loaded", mixed)
    refused("qa.model.path=.*no-tokenizer: .*it has no tokenizer", copy_of("no-tokenizer", "tokenizer.json"))

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused(
        "could not be reached, .*; offline, give a local folder with qa.model.path=", "no-such-user/no-such-reader"
    )


def test_a_tokenizer_without_offsets_is_refused(distilbert, monkeypatch) -> None:
    monkeypatch.setattr(PreTrainedTokenizerFast, "is_fast", property(lambda self: False))
    with pytest.raises(InputError, match="its tokenizer gives no character offsets"):
        load_tokenizer(str(distilbert), max_length=32)


def test_a_reader_that_has_learned_nothing_is_not_saved(tmp_path: Path) -> None:
    output, model = tmp_path / "qa", save_distilbert(tmp_path / "model")
    for _ in range(2):  # the same command, once more, does not save it either
        with pytest.raises(NothingLearned, match="no model is saved: lower the learning rate"):
            run(output, toy_settings(model, learning_rate=1e30, epochs=4))
        assert not list(output.rglob("qa_metrics.json")) and not (output / "config.json").exists()


def test_the_preset_of_distilbert_has_the_published_values() -> None:
    """The guide "Question answering" of transformers."""
    chosen = compose("qa", ["preset=distilbert", "data.train=a.json", "data.validation=b.json"]).qa
    assert (chosen.model.path, chosen.head, chosen.max_length) == ("distilbert-base-uncased", "softmax", 384)
    assert (chosen.learning_rate, chosen.batch_size, chosen.epochs, chosen.warmup_fraction) == (2e-5, 16, 3, 0)
