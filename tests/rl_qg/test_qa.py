"""The QA stage end to end on a toy task: it learns, resumes, refuses what it cannot do, and compares readers."""

import gc
import json
import logging
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from rl_qg.errors import InputError
from rl_qg.qa import compare, train_reader
from rl_qg.qa_data import Answer, QAExample
from rl_qg.qa_features import encode
from rl_qg.qa_reader import QATrainer, load_model, load_tokenizer
from rl_qg.run_folder import read_json, write_json
from rl_qg.settings import QAModelSettings, QASettings
from rl_qg.squad_scores import score_predictions

KINDS = {
    "animal": ["fox", "cat", "owl", "bee", "old horse"],
    "colour": ["red", "blue", "deep green", "pink"],
    "city": ["paris", "rome", "new york", "oslo"],
}
FILLER = ["the", "saw", "and", "near", "a", "ran", "to", "was", "very"]
WORDS = sorted({word for phrases in KINDS.values() for phrase in phrases for word in phrase.split()})


def toy_examples(count: int, seed: int) -> list[QAExample]:
    """Passages with one animal, one colour and one city in any order; each question asks for one of the three."""
    rng = random.Random(seed)
    examples = []
    for number in range(count):
        chosen = {kind: rng.choice(phrases) for kind, phrases in KINDS.items()}
        pieces = [*chosen.values(), *rng.choices(FILLER, k=8)]
        rng.shuffle(pieces)
        asked = rng.choice(list(KINDS))
        start = len(" ".join(pieces[: pieces.index(chosen[asked])]))
        answer = Answer(chosen[asked], start + (start > 0))
        examples.append(QAExample(f"q{number}", "toy", " ".join(pieces), f"which {asked} ?", (answer,)))
    return examples


def toy_tokenizer(**options) -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, "which", "?", *KINDS, *FILLER, *WORDS]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names, **options)


def save_distilbert(folder: Path, *, dropout: float = 0.0, size: int = 64) -> Path:
    """A language model with random weights: as with a real checkpoint, the span head is new."""
    torch.manual_seed(0)
    tokenizer = toy_tokenizer(model_input_names=["input_ids", "attention_mask"])
    config = DistilBertConfig(
        vocab_size=len(tokenizer),
        dim=size,
        n_layers=2,
        n_heads=4,
        hidden_dim=2 * size,
        max_position_embeddings=64,
        initializer_range=0.1,  # so that attention learns within a hundred steps
        dropout=dropout,
        attention_dropout=dropout,
        qa_dropout=dropout,
    )
    DistilBertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_bert(folder: Path) -> Path:
    torch.manual_seed(0)
    tokenizer = toy_tokenizer(model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=3,  # a classifier's left-over, which must not become the width of the span head
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def toy_settings(model: Path, **changes) -> QASettings:
    base = QASettings(
        model=QAModelSettings(str(model)),
        epochs=2,
        learning_rate=3e-3,
        batch_size=16,
        max_length=32,
        doc_stride=8,
        max_answer_length=4,
        save_steps=3,
        seeds=[0],
    )
    return replace(base, **changes)


def run(output: Path, settings: QASettings, train=None, validation=None, **options) -> dict:
    train, validation = train or toy_examples(48, 1), validation or toy_examples(24, 2)
    return train_reader(train, validation, settings=settings, output_dir=output, use_cpu=True, **options)


@pytest.fixture(scope="module")
def distilbert(tmp_path_factory) -> Path:
    return save_distilbert(tmp_path_factory.mktemp("distilbert"), dropout=0.1, size=16)


@pytest.fixture(scope="module")
def whole(distilbert, tmp_path_factory) -> Path:
    """A run of two seeds that nothing interrupted."""
    output = tmp_path_factory.mktemp("whole")
    run(output, toy_settings(distilbert, seeds=[0, 1]))
    return output


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module", autouse=True)
def _collected_once() -> Iterator[None]:
    """The library collects garbage whenever training begins; what is loaded by now need not be looked at each time."""
    gc.freeze()
    yield
    gc.unfreeze()


# --- It learns ---


def test_a_toy_task_is_learned_and_the_files_agree(tmp_path) -> None:
    model = save_distilbert(tmp_path / "model")
    train, validation = toy_examples(960, 1), toy_examples(150, 2)
    output = tmp_path / "qa"
    result = run(output, toy_settings(model, seeds=[0, 1]), train, validation)

    assert result["exact_match"] > 90 and result["f1"] >= result["exact_match"]
    assert result == read_json(output / "qa_metrics.json")
    assert result["total"] == 150 and result["missing"] == 0
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

    # Scores of the questions are means over the seeds.
    tables = [read_json(output / f"seed-{seed}" / "question_scores.json") for seed in (0, 1)]
    for key, row in read_json(output / "question_scores.json").items():
        for name in row:
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


def test_the_seed_decides_and_nothing_else_does(distilbert, whole, tmp_path) -> None:
    run(tmp_path / "same", toy_settings(distilbert, seeds=[0, 1]))
    assert contents(tmp_path / "same") == contents(whole)
    run(tmp_path / "other", toy_settings(distilbert, seeds=[1], epochs=1))
    heads = [load_model(str(folder)).state_dict()["qa_outputs.weight"] for folder in (whole, tmp_path / "other")]
    assert not torch.allclose(*heads, atol=0.02)


def test_long_passages_and_an_exact_number_of_steps(distilbert, tmp_path) -> None:
    examples = toy_examples(12, 1)
    long = [replace(e, context=" ".join([e.context] + ["the"] * 60)) for e in examples]
    result = run(tmp_path / "qa", toy_settings(distilbert, max_steps=2), long, long)
    assert result["features"]["validation"]["windows"] > 3 * result["features"]["validation"]["examples"]
    assert len(read_json(tmp_path / "qa" / "predictions.json")) == 12


def test_a_new_span_head_is_no_news_but_other_missing_weights_are(distilbert, tmp_path, caplog) -> None:
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
    assert [record.name for record in caplog.records] == ["rl_qg.qa_reader"]
    assert "weights besides the span head start at random, such as distilbert.transformer.layer.2" in caplog.text


# --- It resumes ---


@pytest.mark.parametrize(
    ("where", "calls", "steps_left"),
    [("training_step", 2, 12), ("training_step", 5, 9), ("training_step", 8, 6), ("predict_logits", 1, 0)],
)
def test_an_interrupted_run_ends_with_the_same_files(
    distilbert, whole, tmp_path, monkeypatch, where, calls, steps_left
) -> None:
    """Two seeds, two epochs of three steps: stopped before and after a checkpoint, in the second seed, at its end."""
    settings = toy_settings(distilbert, seeds=[0, 1])
    count = {"training_step": 0, "predict_logits": 0}

    def counting(name: str, limit: int):
        original = getattr(QATrainer, name)

        def wrapped(self, *args, **kwargs):
            count[name] += 1
            if name == where and count[name] > limit:
                raise KeyboardInterrupt
            return original(self, *args, **kwargs)

        return wrapped

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(QATrainer, where, counting(where, calls))
        run(tmp_path / "resumed", settings)
    assert not (tmp_path / "resumed" / "qa_metrics.json").exists()
    count["training_step"] = 0
    monkeypatch.setattr(QATrainer, "training_step", counting("training_step", 100))
    run(tmp_path / "resumed", settings)
    assert count["training_step"] == steps_left
    assert contents(tmp_path / "resumed") == contents(whole)


def test_a_torn_checkpoint_is_passed_over(distilbert, whole, tmp_path, monkeypatch) -> None:
    settings = toy_settings(distilbert, seeds=[0, 1])

    def stop(self, windows):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(QATrainer, "predict_logits", stop)
        run(tmp_path / "torn", settings)
    (checkpoint,) = (tmp_path / "torn" / "seed-0").glob("checkpoint-*")
    state = (checkpoint / "trainer_state.json").read_text()
    (checkpoint / "trainer_state.json").write_text(state[: len(state) // 2])
    (checkpoint / "model.safetensors").write_bytes(b"torn")
    run(tmp_path / "torn", settings)
    assert contents(tmp_path / "torn") == contents(whole)


def test_a_run_stopped_at_its_last_step_within_an_epoch_ends_with_the_same_files(
    distilbert, tmp_path, monkeypatch
) -> None:
    settings = toy_settings(distilbert, max_steps=4)
    run(tmp_path / "straight", settings)

    def stop(self, windows):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(QATrainer, "predict_logits", stop)
        run(tmp_path / "resumed", settings)
    assert (tmp_path / "resumed" / "seed-0" / "checkpoint-4").is_dir()
    run(tmp_path / "resumed", settings)
    assert contents(tmp_path / "resumed") == contents(tmp_path / "straight")


def test_finished_seeds_are_not_trained_again(distilbert, tmp_path, monkeypatch) -> None:
    before = run(tmp_path / "qa", toy_settings(distilbert, seeds=[0]))
    again = run(tmp_path / "qa", toy_settings(distilbert, seeds=[0, 1]))
    assert again["seeds"][0] == before["seeds"][0] and len(again["seeds"]) == 2

    def forbidden(*args, **kwargs):
        raise AssertionError("loaded although everything is finished")

    monkeypatch.setattr("rl_qg.qa.load_model", forbidden)
    monkeypatch.setattr("rl_qg.qa.load_tokenizer", forbidden)
    assert run(tmp_path / "qa", toy_settings(distilbert, seeds=[0, 1])) == again


def test_other_settings_data_or_seed_order_are_refused(distilbert, tmp_path) -> None:
    settings = toy_settings(distilbert, seeds=[0, 1], epochs=1)
    run(tmp_path / "qa", settings)
    before = contents(tmp_path / "qa")
    with pytest.raises(
        InputError, match=r"seed-0: holds a reader with other settings \(learning_rate\): choose another"
    ):
        run(tmp_path / "qa", replace(settings, learning_rate=1e-4))
    changed = r"data.train: has changed since .*seed-0 was begun \(SHA-256 of its examples \w{8}, now \w{8}\)"
    with pytest.raises(InputError, match=changed):
        run(tmp_path / "qa", settings, train=toy_examples(47, 1))
    with pytest.raises(InputError, match=changed):  # the order decides the batches
        run(tmp_path / "qa", settings, train=toy_examples(48, 1)[::-1])
    with pytest.raises(InputError, match=r"seed-1: holds a reader with other settings \(keeps_model\)"):
        run(tmp_path / "qa", replace(settings, seeds=[1, 0]))
    assert contents(tmp_path / "qa") == before
    (tmp_path / "qa" / "seed-1" / "qa_metrics.json").unlink()  # as if killed before
    told = run(tmp_path / "qa", settings, train=toy_examples(47, 1), accept_changed_data=True)
    assert [row["seed"] for row in told["seeds"]] == [0, 1]


# --- It refuses ---


def test_unusable_examples_and_settings_are_refused(distilbert, tmp_path) -> None:
    settings, examples = toy_settings(distilbert), toy_examples(3, 1)

    def refused(text: str, train=examples, validation=examples, precision="no", **changes) -> None:
        with pytest.raises(InputError, match=text):
            train_reader(
                train,
                validation,
                settings=replace(settings, **changes),
                output_dir=tmp_path / "qa",
                use_cpu=True,
                precision=precision,
            )

    refused("data.train: no examples for the reader", train=[])
    refused("data.validation: no examples for the reader", validation=[])
    refused("data.train: example q1 has no question", train=[examples[0], replace(examples[1], question=" ")])
    refused("some ids occur twice", validation=[examples[0], examples[0]])
    refused(r"qa.seeds=\[1, 1\]: name each seed once", seeds=[1, 1])
    refused(r"qa.warmup_fraction=1.0 is not in \[0, 1\)", warmup_fraction=1.0)
    refused("precision 'half' is not one of no, bf16, fp16", precision="half")
    refused("precision 'fp16' needs a GPU: use bf16 or no", precision="fp16")
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
    refused("no reader in this folder can be loaded", tmp_path / "empty")

    tokenizer = toy_tokenizer()
    bart = BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, decoder_attention_heads=2
    )
    bart.encoder_attention_heads = 2
    BartForConditionalGeneration(bart).save_pretrained(tmp_path / "bart")
    refused("a model of type 'bart' is no extractive reader: give an encoder", tmp_path / "bart")

    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2)).save_pretrained(
        tmp_path / "gpt2"
    )
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
    refused("tokens in the tokenizer do not fit 10 in the model", mixed)
    refused("qa.model.path=.*no-tokenizer", copy_of("no-tokenizer", "tokenizer.json"))

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused("could not be reached .*: give a local folder with qa.model.path=FOLDER", "no-such-user/no-such-reader")


def test_a_tokenizer_without_offsets_is_refused(distilbert, monkeypatch) -> None:
    monkeypatch.setattr(PreTrainedTokenizerFast, "is_fast", property(lambda self: False))
    with pytest.raises(InputError, match="its tokenizer gives no character offsets"):
        load_tokenizer(str(distilbert), max_length=32)


# --- It compares ---


def write_folder(folder: Path, rows: dict[str, tuple[float, float]], *, data: str = "d") -> Path:
    means = {
        name: 100 * sum(row[i] for row in rows.values()) / len(rows) for i, name in enumerate(("exact_match", "f1"))
    }
    metrics = {**means, "seeds": [{"seed": 0, **means}], "intervals": {}, "model": "m", "data": {"validation": data}}
    write_json(folder / "qa_metrics.json", metrics)
    scores = {key: {"exact_match": em, "f1": f1} for key, (em, f1) in rows.items()}
    write_json(folder / "question_scores.json", scores)
    return folder


def test_compare_pairs_by_question_whatever_their_order(tmp_path) -> None:
    gold = {f"q{i}": (float(i % 2), 0.5) for i in range(40)}
    # Ten of forty questions get better by one whole match; F1 rises by 0.25 on each question.
    augmented = {key: (1.0 if i < 20 else em, f1 + 0.25) for i, (key, (em, f1)) in enumerate(gold.items())}
    shuffled = dict(reversed(augmented.items()))
    baseline_dir, augmented_dir = write_folder(tmp_path / "a", gold), write_folder(tmp_path / "b", shuffled)
    result = compare(baseline_dir, augmented_dir, tmp_path / "compare.json")
    assert result == read_json(tmp_path / "compare.json")
    assert result["difference"]["f1"] == {"mean": 25.0, "low": 25.0, "high": 25.0, "n": 40}
    matches = result["difference"]["exact_match"]
    # 95 % of the means of 40 draws with chance 1/4 lie within 25 ± 1.96 * sqrt(0.25 * 0.75 / 40) * 100 = 25 ± 13.4.
    assert matches["mean"] == 25.0
    assert matches["low"] == pytest.approx(25 - 13.4, abs=2.6) and matches["high"] == pytest.approx(25 + 13.4, abs=2.6)
    assert (result["baseline"]["exact_match"], result["augmented"]["exact_match"]) == (50.0, 75.0)
    assert result["augmented"]["seeds"] == [{"seed": 0, "exact_match": 75.0, "f1": 75.0}]
    backwards = compare(augmented_dir, baseline_dir, tmp_path / "backwards.json")
    assert backwards["difference"]["f1"]["mean"] == -25.0


def test_compare_refuses_other_questions(tmp_path) -> None:
    first = write_folder(tmp_path / "a", {"q1": (1.0, 1.0), "q2": (0.0, 0.0)})
    second = write_folder(tmp_path / "b", {"q1": (1.0, 1.0), "q3": (0.0, 0.0), "q4": (0.0, 0.0)})
    text = r"other questions \(1 only in the first, 2 only in the second, such as q2\): score both on the same"
    with pytest.raises(InputError, match=text):
        compare(first, second, tmp_path / "compare.json")
    edited = write_folder(tmp_path / "c", {"q1": (1.0, 1.0), "q2": (0.0, 0.0)}, data="edited")
    with pytest.raises(InputError, match="questions of the same ids, but other content"):
        compare(first, edited, tmp_path / "compare.json")
    with pytest.raises(InputError, match=r"nothing/qa_metrics\.json: cannot be read"):
        compare(tmp_path / "nothing", first, tmp_path / "compare.json")
    assert not (tmp_path / "compare.json").exists()


def test_files_are_json_that_other_programs_read(distilbert, tmp_path) -> None:
    run(tmp_path / "qa", toy_settings(distilbert, epochs=1))
    for name in ("predictions.json", "qa_metrics.json", "question_scores.json"):
        json.loads((tmp_path / "qa" / name).read_text(encoding="utf-8"), parse_constant=pytest.fail)
