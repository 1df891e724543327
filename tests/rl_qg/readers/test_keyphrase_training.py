"""Training of the keyphrase predictor as its paper describes it: head, best epoch, repetitions, several data sets."""

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import AutoTokenizer, BertForTokenClassification, BertModel, Qwen2Config

from rewards import KPQA
from rewards.frozen import TOKEN_HEAD, token_classifier
from rewards.pretrained import ModelFault
from rl_qg.commands.cli import run_command
from rl_qg.commands.compose import compose
from rl_qg.data.examples import QAExample, passage_hash, write_squad
from rl_qg.data.splits import load_splits
from rl_qg.readers import kpqa
from rl_qg.readers.encoders import IGNORED
from rl_qg.readers.fine_tuning import FineTuning
from rl_qg.readers.kpqa import KEYPHRASE, OTHER, KeyphraseItems, answered_sentence, train_predictor
from rl_qg.runtime.errors import InputError
from rl_qg.settings import DataSettings, QAModelSettings, TrainKPQASettings
from tests.questions import example
from tests.rl_qg.data.test_published_layouts import MILL, hotpot
from tests.rl_qg.readers.test_keyphrase_predictor import toy
from tests.tiny_models import save, tiny
from tests.toy_reader import toy_tokenizer


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    tokenizer = toy_tokenizer()
    return save(tmp_path_factory.mktemp("bert"), tokenizer, tiny(BertModel, len(tokenizer), spread=0.1))


def settings(bert: str, **changes: object) -> TrainKPQASettings:
    few = TrainKPQASettings(QAModelSettings(bert), max_steps=2, batch_size=8, max_length=32, learning_rate=1e-2)
    return replace(few, **changes)  # type: ignore[arg-type]


def train(folder: Path, chosen: TrainKPQASettings, rows: list[QAExample] | None = None) -> dict:
    return train_predictor(toy(24, 1), rows or toy(8, 2), FineTuning(chosen, folder, seed=3, use_cpu=True))


def test_the_preset_has_the_published_values() -> None:
    """KPQA paper, section 5.1 and appendix C.1."""
    chosen = compose("train-kpqa", ["preset=kpqa-paper", "data.train=a.json"]).train_kpqa
    assert (chosen.model.path, chosen.head, chosen.keep) == ("bert-base-uncased", "tanh", "best")
    assert (chosen.learning_rate, chosen.batch_size, chosen.max_length) == (2e-5, 16, 256)
    assert (chosen.epochs, chosen.development, chosen.repetitions) == (5, 0.1, 5)


@pytest.mark.slow
def test_the_tanh_head_is_trained_saved_and_read_by_the_metric(bert: str, tmp_path: Path) -> None:
    """The weights of the metric, computed from the encoder's states by out(tanh(dense(states)))."""
    train(tmp_path, settings(bert, head="tanh"))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config[TOKEN_HEAD] == "tanh"
    text, question = "the fox saw paris", "which city ?"
    [got] = KPQA(str(tmp_path), "bleu1").weights([text], [question])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    front, back = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in (question, text))
    ids = [tokenizer.cls_token_id, *front, tokenizer.sep_token_id, *back, tokenizer.sep_token_id]
    types = [1, *[0] * (len(front) + 1), *[1] * (len(back) + 1)]
    from safetensors.torch import load_file

    weights = load_file(tmp_path / "model.safetensors")
    with torch.inference_mode():
        encoder = BertModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
        states = encoder(torch.tensor([ids]), token_type_ids=torch.tensor([types])).last_hidden_state[0]
        hidden = (states @ weights["classifier.dense.weight"].T + weights["classifier.dense.bias"]).tanh()
        logits = hidden @ weights["classifier.out.weight"].T + weights["classifier.out.bias"]
    want = logits.softmax(-1)[-1 - len(back) : -1, KEYPHRASE].tolist()
    assert [weight for _, weight in got] == pytest.approx(want, abs=1e-5)


def test_a_predictor_trained_before_is_the_librarys_own_class(bert: str) -> None:
    config = BertModel.from_pretrained(bert).config
    assert not hasattr(config, TOKEN_HEAD) and token_classifier(config) is BertForTokenClassification
    setattr(config, TOKEN_HEAD, "cosine")
    with pytest.raises(ModelFault, match="'cosine' is not one of linear, tanh"):
        token_classifier(config)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=9, num_key_value_heads=2, token_head="tanh", **sizes)
    with pytest.raises(ModelFault, match="no linear head"):
        token_classifier(config)(config)


def loss_of(folder: Path, rows: list[QAExample]) -> float:
    """The mean cross-entropy of the labelled tokens, averaged over batches of one size, by the library's model."""
    model = BertForTokenClassification.from_pretrained(folder).eval()
    items = KeyphraseItems(rows, AutoTokenizer.from_pretrained(folder), max_length=32)
    with torch.inference_mode():
        logits, labels = [], []
        for item in items:
            inputs = {name: torch.tensor([item[name]]) for name in ("input_ids", "token_type_ids")}
            logits.append(model(**inputs).logits[0])
            labels += item["labels"]
    return functional.cross_entropy(torch.cat(logits), torch.tensor(labels), ignore_index=IGNORED).item()


@pytest.mark.slow
def test_the_epoch_with_the_lowest_development_loss_is_kept(bert: str, tmp_path: Path) -> None:
    """The loss that is reported is that of the saved weights, and below that of the last ones."""
    rows, options = toy(8, 2), {"max_steps": -1, "learning_rate": 0.05, "warmup_fraction": 0.0}
    metrics = train(tmp_path / "best", settings(bert, keep="best", epochs=4, **options), rows)
    train(tmp_path / "last", settings(bert, keep="last", epochs=4, **options), rows)
    best, last = loss_of(tmp_path / "best", rows), loss_of(tmp_path / "last", rows)
    assert metrics["best"]["loss"] == pytest.approx(best, rel=1e-4)
    assert best < last
    assert metrics["best"]["step"] % 3 == 0  # 24 rows, 8 a batch
    assert not list((tmp_path / "best").glob("checkpoint-*"))


@pytest.mark.slow
def test_the_seeds_of_repetitions_begin_anew_after_the_largest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = []

    def result(items: Any, tuning: FineTuning) -> dict[str, Any]:
        seeds.append(tuning.seed)
        tuning.output_dir.mkdir()
        return {**dict.fromkeys(kpqa.MEASURES, 1.0), "examples": {"validation": {"used": 1}}}

    monkeypatch.setattr(kpqa, "_result", result)
    monkeypatch.setattr(kpqa, "repeated", lambda metrics: metrics[2**32 - 1])
    kpqa.train_predictor([], [], FineTuning(TrainKPQASettings(repetitions=3), tmp_path, 2**32 - 1, use_cpu=True))
    assert seeds == [2**32 - 1, 0, 1]


def test_repetitions_give_means_and_spreads(bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = [replace(row, source="one.json") for row in toy(6, 2)]
    two = [replace(row, id=f"b{row.id}", source="two.json") for row in toy(4, 5)]
    chosen = settings(bert, repetitions=3, max_steps=40, learning_rate=3e-2)
    metrics = train(tmp_path, chosen, [*one, *two])
    singles = [json.loads((tmp_path / f"seed-{seed}" / "kpqa_metrics.json").read_text()) for seed in (3, 4, 5)]
    values = [single["f1"] for single in singles]
    assert len(set(values)) > 1
    assert metrics["f1"] == pytest.approx(statistics.mean(values))
    assert metrics["spread"]["f1"] == pytest.approx(statistics.stdev(values))
    assert [row["seed"] for row in metrics["seeds"]] == [3, 4, 5]
    for single in singles:  # the counts of the data sets are those of all, and F1 is 2 both / (marked + predicted)
        sets = single["data_sets"]
        assert {name: part["examples"] for name, part in sets.items()} == {"one.json": 6, "two.json": 4}
        for count in ("all", "keyphrase", "predicted", "both"):
            assert sum(part["tokens"][count] for part in sets.values()) == single["tokens"][count]
    of_two = [single["data_sets"]["two.json"]["f1"] for single in singles]
    assert metrics["data_sets"]["two.json"]["f1"] == pytest.approx(statistics.mean(of_two))
    first = tmp_path / "seed-3" / "model.safetensors"
    assert (tmp_path / "model.safetensors").read_bytes() == first.read_bytes()
    KPQA(str(tmp_path), "bleu1")
    monkeypatch.setattr("rl_qg.readers.kpqa.load_model", lambda *_: pytest.fail("trained again"))
    assert train(tmp_path, chosen, [*one, *two]) == metrics


def test_a_multi_hop_question_reads_all_its_sentences() -> None:
    context = "The old horse ran. It saw paris."
    single = example(context, "paris", "which city ?")
    assert answered_sentence(single).text == "It saw paris."
    both = answered_sentence(replace(single, multi_hop=True))
    assert both.text == context and both.text[both.start : both.end] == "paris"
    [item] = KeyphraseItems([replace(single, multi_hop=True)], toy_tokenizer(), max_length=32)
    labels = [label for label in item["labels"] if label != IGNORED]
    assert labels == [OTHER] * 7 + [KEYPHRASE, OTHER]  # the old horse ran . it saw paris .


def test_without_validation_data_passages_are_set_aside(tmp_path: Path) -> None:
    """Of the passages of several files together: 30 toy passages and 10 questions of HotpotQA are 40; a tenth is 4."""
    write_squad(tmp_path / "a.json", toy(30, 1))
    rows = [
        hotpot(str(n), "1204", [["The mill", 2]], context=[["The mill", [*MILL[:2], f" {n} mills burned in 1204."]]])
        for n in range(10)
    ]
    (tmp_path / "b.json").write_text(json.dumps(rows))
    sources = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    splits = load_splits(DataSettings(train=sources, validation=""), development=0.1)
    parts = [{passage_hash(row.context) for row in part} for part in (splits.gold, splits.validation)]
    assert not parts[0] & parts[1] and [len(part) for part in parts] == [36, 4]
    assert {row.source for row in splits.gold} == set(sources)
    with pytest.raises(InputError, match="no passage is left to train on"):
        load_splits(DataSettings(train=sources, validation=""), development=1.0)
    with pytest.raises(InputError, match=r"data\.validation has no value"):
        load_splits(DataSettings(train=sources, validation=""))


@pytest.mark.slow
def test_the_command_trains_on_several_data_sets(bert: str, tmp_path: Path) -> None:
    write_squad(tmp_path / "squad.json", toy(24, 1))
    rows = [
        hotpot(
            str(n), "paris", [["x", 0], ["y", 0]], context=[["x", [f"the fox saw {n} paris ."]], ["y", ["old horse"]]]
        )
        for n in range(16)
    ]
    (tmp_path / "hotpot.json").write_text(json.dumps([*rows, hotpot("no", "no", [["The mill", 0]])]))
    output = tmp_path / "kpqa"
    run_command(
        "train-kpqa",
        [
            f"data.train=[{tmp_path / 'squad.json'},{tmp_path / 'hotpot.json'}]",
            *("preset=kpqa-paper", f"model.path={bert}", "epochs=1", "max_length=32", "repetitions=2"),
            *("development=0.25", "training.use_cpu=true", f"output_dir={output}"),
        ],
    )
    metrics = json.loads((output / "kpqa_metrics.json").read_text())
    assert set(metrics["data_sets"]) == {str(tmp_path / "squad.json"), str(tmp_path / "hotpot.json")}
    assert (
        sum(part["examples"] for part in metrics["data_sets"].values())
        == metrics["examples"]["validation"]["used"]
        == 10
    )
    record = json.loads((output / "run.json").read_text())
    assert record["data_report"]["train"]["dropped"]["yes/no answer"]["ids"] == ["no"]
    assert [row["best"]["step"] for row in metrics["seeds"]] == [2, 2]  # 30 rows, 16 a batch
