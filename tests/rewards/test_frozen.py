"""Loading frozen models, and the arithmetic that all metrics share."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PegasusForConditionalGeneration, RobertaModel

import rewards.frozen
from rewards import BARTScore, MetricInputError, QAScore
from rewards.frozen import FrozenModel, batches_by_length, loading_on, target_logprobs
from tests.tiny_models import save, tiny, word_tokenizer


def frozen(folder, kind="causal", dtype="float32"):
    return FrozenModel(folder, kind, device="cpu", dtype=dtype)


def test_a_frozen_model_does_not_train(folders):
    model = frozen(folders["gpt2"]).model
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_model_on_its_device_is_not_packed_again(folders):
    model = frozen(folders["gpt2"])
    before = [id(module) for module in model.model.modules()]
    model.to("cpu")
    assert [id(module) for module in model.model.modules()] == before


def test_the_plain_model_has_one_matrix_for_embeddings_and_head_again(folders):
    for name, kind in (("gpt2", "causal"), ("roberta", "masked"), ("bart", "seq2seq")):
        model = frozen(folders[name], kind)
        plain = model.plain()
        assert plain.get_input_embeddings().weight is plain.get_output_embeddings().weight
        assert {type(module).__name__ for module in plain.modules()}.isdisjoint({"PackedLinear"})


def test_models_load_on_the_device_that_is_named_outside(folders, monkeypatch):
    recorded = []
    monkeypatch.setattr(FrozenModel, "_put", lambda self, device: recorded.append(device))
    with loading_on("meta"):
        FrozenModel(folders["gpt2"], "causal", device=None, dtype="float32")
        FrozenModel(folders["gpt2"], "causal", device="cpu", dtype="float32")
    FrozenModel(folders["gpt2"], "causal", device=None, dtype="float32")
    assert recorded[:2] == [torch.device("meta"), "cpu"]
    assert recorded[2] != torch.device("meta")


def test_longest_sequence(folders):
    limits = {kind: frozen(folders[name], kind).max_tokens for name, kind in
              [("bert", "encoder"), ("gpt2", "causal"), ("roberta", "masked"), ("bart", "seq2seq")]}  # fmt: skip
    assert limits == {"encoder": 40, "causal": 48, "masked": 56, "seq2seq": 40}


def test_identity_depends_on_the_contents_not_on_the_path(folders, tmp_path):
    copy = Path(shutil.copytree(folders["gpt2"], tmp_path / "gpt2"))
    assert frozen(str(copy)).identity == frozen(folders["gpt2"]).identity
    config = copy / "config.json"
    config.write_text(config.read_text().replace('"layer_norm_epsilon": 1e-05', '"layer_norm_epsilon": 1e-04'))
    assert frozen(str(copy)).identity != frozen(folders["gpt2"]).identity


def test_a_repeated_text_is_tokenised_once(folders, monkeypatch):
    model = frozen(folders["gpt2"])
    recorded, real = [], model.tokenizer
    model.tokenizer = lambda texts, **options: recorded.extend(texts) or real(texts, **options)
    first, other, again = model.ids(["the town", "a mill", "the town"])
    assert recorded == ["the town", "a mill"]
    assert first == again != other


def test_batches_contain_similar_lengths_and_every_row_once():
    lengths = [3, 9, 1, 9, 4]
    batches = list(batches_by_length(lengths, 2, 1000))
    assert [[lengths[at] for at in batch] for batch in batches] == [[9, 9], [4, 3], [1]]
    assert sorted(at for batch in batches for at in batch) == [0, 1, 2, 3, 4]


def test_a_batch_holds_no_more_tokens_than_allowed_or_one_row():
    lengths = [30, 3, 9, 1, 9, 4, 12]
    batches = list(batches_by_length(lengths, 4, 20))
    assert [[lengths[at] for at in batch] for batch in batches] == [[30], [12], [9, 9], [4, 3, 1]]


def test_chunks_of_the_vocabulary_head_change_nothing(monkeypatch):
    torch.manual_seed(0)
    head, hidden = torch.nn.Linear(8, 50), torch.randn(23, 8)
    targets = torch.randint(0, 50, (23,))
    want = head(hidden).log_softmax(-1)[torch.arange(23), targets]
    monkeypatch.setitem(rewards.frozen.LOGITS_AT_ONCE, "cpu", 200)
    sizes = []
    got = target_logprobs(lambda states: sizes.append(len(states)) or head(states), hidden, targets, vocabulary=50)
    torch.testing.assert_close(got, want)
    assert max(sizes) == 4


def test_close_probabilities_differ_in_float64():
    """Two almost equal sets of logits, far from 0 as those of GPT-2 are."""
    torch.manual_seed(0)
    first = torch.randn(40, 5000) * 3 - 100
    second = first.clone()
    second[:, 0] += 1e-3
    targets = first.argmax(-1)

    def difference(exact):
        logprobs = [
            target_logprobs(torch.nn.Identity(), logits, targets, vocabulary=5000, exact=exact).double()
            for logits in (first, second)
        ]
        return (logprobs[1].exp().mean() - logprobs[0].exp().mean()).item()

    rows = torch.arange(40)
    a, b = (logits.double().softmax(-1)[rows, targets].mean().item() for logits in (first, second))
    assert difference(exact=True) == pytest.approx(b - a, rel=1e-9)
    assert difference(exact=False) != pytest.approx(b - a, rel=1e-3)


def test_no_folder_and_a_folder_without_a_model(tmp_path):
    with pytest.raises(MetricInputError, match=r"nowhere' does not exist"):
        frozen(str(tmp_path / "nowhere"))
    with pytest.raises(MetricInputError, match=r"has no config\.json"):
        frozen(str(tmp_path))


def test_a_folder_with_pickled_weights_only(folders, tmp_path):
    copy = Path(shutil.copytree(folders["gpt2"], tmp_path / "gpt2"))
    (copy / "model.safetensors").unlink()
    torch.save({}, copy / "pytorch_model.bin")
    with pytest.raises(MetricInputError, match="has no safetensors weights"):
        frozen(str(copy))


def test_a_folder_without_a_tokenizer(folders, tmp_path):
    copy = Path(shutil.copytree(folders["gpt2"], tmp_path / "gpt2"))
    for path in copy.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(MetricInputError, match="has no tokenizer"):
        frozen(str(copy))


def test_a_model_without_its_head(folders, tmp_path):
    copy = Path(shutil.copytree(folders["roberta"], tmp_path / "roberta"))
    RobertaModel.from_pretrained(folders["roberta"], add_pooling_layer=False).save_pretrained(copy)
    with pytest.raises(MetricInputError, match=r"lacks the weights 'lm_head\."):
        frozen(str(copy), "masked")


def test_positions_that_pegasus_computes_need_not_be_in_its_files(tmp_path):
    tokenizer = word_tokenizer("w1 w2")
    model = tiny(PegasusForConditionalGeneration, len(tokenizer))
    folder = Path(save(tmp_path / "pegasus", tokenizer, model))
    whole = BARTScore(str(folder), device="cpu").score(["w1"], ["w2 w1"]).scores
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "embed_positions" not in name}
    assert len(weights) - len(kept) == 2
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    assert BARTScore(str(folder), device="cpu").score(["w1"], ["w2 w1"]).scores == whole


def test_a_folder_in_the_home_folder(folders, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(folders["gpt2"], tmp_path / "gpt2")
    assert frozen("~/gpt2").identity == frozen(str(tmp_path / "gpt2")).identity


@pytest.mark.parametrize("device", ["gpu", "xla:0", 1.5])
def test_a_device_that_is_not_there(folders, device):
    with pytest.raises(MetricInputError, match=f"device '{device}' cannot be used: ") as caught:
        FrozenModel(folders["gpt2"], "causal", device=device, dtype="float32")
    assert "\n" not in str(caught.value)


def test_an_unknown_dtype(folders):
    for dtype in ("float31", "int64", "nn", torch.float16):
        with pytest.raises(MetricInputError, match="use float32, tf32, bfloat16 or float16"):
            frozen(folders["gpt2"], dtype=dtype)


def test_tf32_is_for_products_on_a_gpu_while_the_metric_computes(folders, monkeypatch):
    texts = {"questions": ["Who ran?", "Where?"], "contexts": ["He ran home."] * 2, "answers": ["home"] * 2}
    seen, compute = [], QAScore.compute

    def noted(self, inputs):
        seen.append(torch.backends.cuda.matmul.allow_tf32)
        return compute(self, inputs)

    monkeypatch.setattr(QAScore, "compute", noted)
    exact, same = (QAScore(folders["roberta"], dtype=dtype, device="cpu") for dtype in ("float32", "tf32"))
    assert exact.score(**texts) == same.score(**texts)  # a CPU multiplies as before
    assert seen == [False, True] and not torch.backends.cuda.matmul.allow_tf32
    assert same.model.model.dtype is torch.float32 and "|dtype:tf32|" in same.signature
    with pytest.raises(MetricInputError):
        same.score(questions=[""], contexts=[""], answers=[""])
    assert not torch.backends.cuda.matmul.allow_tf32  # an error restores it too
