"""LoRA: the right layers, the new `<hl>` row, whole models, and training that saving a model does not change."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, GPT2LMHeadModel

from rewards.arithmetic import VARIABLE, PackedLinear, can_pack
from rl_qg.generation import decoding
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.loading import add_lora, check_lora, lora_config, merge_lora
from rl_qg.generation.prompts import HIGHLIGHT, add_highlight
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.trainer_base import last_checkpoint
from rl_qg.settings import PeftSettings
from rl_qg.training.reference_policy import ReferencePolicy
from rl_qg.training.trainer import SelfCriticalTrainer
from tests.rl_qg.training.word_task import WORDS, data, lines, trainer
from tests.tiny_models import tiny, tiny_bart, tiny_pair, tiny_prefix, tiny_t5, word_tokenizer

pytest.importorskip("peft")
LORA = PeftSettings("lora", r=4, alpha=8, dropout=0.1)


def adapted(build: Callable[..., Any] = tiny_bart, settings: PeftSettings = LORA) -> Any:
    tokenizer = word_tokenizer(WORDS)
    model = build(len(tokenizer), seed=1)
    add_highlight(tokenizer, model)
    torch.manual_seed(5)
    return add_lora(model, settings, [tokenizer.convert_tokens_to_ids(HIGHLIGHT)])


def stirred(model: Any) -> Any:
    """With random adapters; new ones have no effect."""
    torch.manual_seed(6)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value.add_(0.3 * torch.randn_like(value))
    return model.eval()


def batch(subject: SelfCriticalTrainer) -> dict[str, torch.Tensor]:
    results = subject.encoder(data(4))
    labels = results["labels"]
    assert isinstance(labels, torch.Tensor)
    return {
        "input_ids": results["input_ids"],  # type: ignore[dict-item]
        "attention_mask": results["attention_mask"],  # type: ignore[dict-item]
        "decoder_input_ids": labels.clamp(min=0),
    }


def trained_names(model: Any) -> set[str]:
    return {name for name, value in model.named_parameters() if value.requires_grad}


@pytest.mark.parametrize(
    ("build", "layers"),
    [(tiny_bart, {"q_proj", "v_proj"}), (tiny_t5, {"q", "v"}), (tiny_pair, {"query", "value"})],
)
def test_query_and_value_projections_and_the_new_row_are_trained(build: Callable[..., Any], layers: set[str]) -> None:
    model = adapted(build)
    names = trained_names(model)
    rows = {name for name in names if "trainable_tokens" in name}
    assert rows
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in names - rows} == layers
    assert not any("tokens_original" in name for name in names)


def test_layers_by_name_and_causal_models() -> None:
    model = tiny_bart(25)
    assert lora_config(PeftSettings("lora", target_modules=["fc1"]), model).target_modules == {"fc1"}
    with pytest.raises(InputError, match=r"this bart model has no layer c_attn; it has fc1, fc2, k_proj"):
        lora_config(PeftSettings("lora", target_modules=["c_attn"]), model)
    gpt2 = lora_config(LORA, tiny(GPT2LMHeadModel, 9))
    assert (gpt2.task_type, gpt2.target_modules, gpt2.fan_in_fan_out) == ("CAUSAL_LM", {"c_attn"}, True)


@pytest.mark.parametrize("settings", [PeftSettings("lora", r=0), PeftSettings("lora", dropout=1.0)])
def test_invalid_settings_are_one_line(settings: PeftSettings) -> None:
    with pytest.raises(InputError, match=r"settings: (r=0 must be at least 1|dropout=1\.0 is not in \[0, 0\.99\])$"):
        check_lora(settings)


def test_without_peft_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_lora(PeftSettings())
    with pytest.raises(InputError, match=r'pip install "rl-qg\[peft\]"'):
        check_lora(LORA)


def prefix_with_bias(vocabulary: int, **sizes: Any) -> Any:
    torch.manual_seed(3)
    model = tiny_prefix(vocabulary, **sizes)
    model.head.bias.data.uniform_(-1, 1)
    return model


@pytest.mark.parametrize("build", [tiny_bart, tiny_t5, tiny_pair, prefix_with_bias])
def test_the_merged_model_equals_the_adapted_one(tmp_path: Path, build: Callable[..., Any]) -> None:
    model = stirred(adapted(build))
    subject = trainer(tmp_path, model=model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs = batch(subject)
    with torch.no_grad():
        expected = model(**inputs).logits
        with model.disable_adapter():
            assert (model(**inputs).logits - expected).abs().max() > 1e-2
        torch.testing.assert_close(merge_lora(model).eval()(**inputs).logits, expected, atol=1e-4, rtol=1e-4)
    after = model.state_dict()
    assert before.keys() == after.keys() and all(after[name].equal(value) for name, value in before.items())


@pytest.mark.slow
@pytest.mark.parametrize("build", [tiny_bart, tiny_t5])
def test_both_stages_train_adapters_and_save_whole_models(tmp_path: Path, build: Callable[..., Any]) -> None:
    model = adapted(build)
    frozen = {name: value.clone() for name, value in model.named_parameters() if not value.requires_grad}
    start = {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}
    subject = trainer(tmp_path, model=model, kl_coefficient=0.1, eval_strategy="steps", eval_steps=2)
    subject.train()
    parameters = dict(model.named_parameters())
    assert all(parameters[name].equal(value) for name, value in frozen.items())
    assert all(not parameters[name].equal(value) for name, value in start.items())  # also the row of <hl>
    ce = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ce")
    assert ce.state_dict().keys() == build(26).state_dict().keys()
    assert not list((tmp_path / "ce").glob("adapter*"))
    policy = CandidateGenerator(tmp_path / "ce", device=torch.device("cpu"))
    assert len(policy.greedy(data(2), max_new_tokens=5)) == 2
    last = lines(tmp_path / "metrics.jsonl")[-1]
    assert last["eval_kl"] > 0
    hl = subject.processing_class.convert_tokens_to_ids(HIGHLIGHT)
    rows, learnt = adapted(build).get_input_embeddings()(torch.arange(26)), ce.get_input_embeddings().weight
    assert learnt[:hl].equal(rows[:hl]) and not learnt[hl].equal(rows[hl])


@pytest.mark.slow
def test_the_whole_model_needs_no_peft(tmp_path: Path) -> None:
    subject = trainer(tmp_path, model=adapted(), scst_epochs=0)
    from rl_qg.training.run_files import save_model_folder

    save_model_folder(subject, tmp_path / "whole")
    code = (
        "import sys; sys.modules['peft'] = None\n"
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer\n"
        f"AutoModelForSeq2SeqLM.from_pretrained({str(tmp_path / 'whole')!r})\n"
        f"assert '<hl>' in AutoTokenizer.from_pretrained({str(tmp_path / 'whole')!r}).get_vocab()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}


@pytest.mark.slow
def test_saving_a_model_does_not_change_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout, which would differ if saving drew a random number."""
    results = []
    for name in ("with", "without"):
        if name == "without":
            monkeypatch.setattr("rl_qg.training.run_files.save_model_folder", lambda *args: None)
        model = adapted()
        trainer(tmp_path / name, model=model).train()
        assert (tmp_path / name / "ce").exists() == (name == "with")
        results.append(weights(model))
    assert all(results[1][name].equal(value) for name, value in results[0].items())


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 3])  # in the first stage, in the second
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path, stop: int) -> None:
    from transformers import TrainerCallback

    class Killed(Exception):
        pass

    class Kill(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == stop:
                raise Killed

    saving = {"save_strategy": "steps", "save_steps": 1, "kl_coefficient": 0.1}
    whole = adapted()
    trainer(tmp_path / "whole", model=whole, **saving).train()
    first = trainer(tmp_path / "killed", model=adapted(), **saving)
    first.add_callback(Kill())
    with pytest.raises(Killed):
        first.train()
    checkpoint = last_checkpoint(tmp_path / "killed")
    assert checkpoint is not None and checkpoint.endswith(f"-{stop}")
    assert (Path(checkpoint) / "adapter_model.safetensors").exists()
    assert not (Path(checkpoint) / "model.safetensors").exists()
    resumed = adapted()
    trainer(tmp_path / "killed", model=resumed, **saving).train(resume_from_checkpoint=checkpoint)
    assert weights(resumed).keys() == weights(whole).keys()
    for name, value in weights(whole).items():
        torch.testing.assert_close(weights(resumed)[name], value, atol=0, rtol=0)


def test_the_reference_policy_of_a_new_adapter_is_the_model_without_it(tmp_path: Path) -> None:
    model = adapted().eval()
    subject = trainer(tmp_path, model=model)
    inputs = batch(subject)
    reference = ReferencePolicy.copy_of(model)
    assert sum(value.numel() for value in reference.weights.values()) < 0.2 * sum(
        value.numel() for value in model.parameters()
    )
    stirred(model)
    with torch.no_grad():
        moved = model(**inputs).logits
        with model.disable_adapter():
            off = model(**inputs).logits
        with reference.swapped_into(model):
            torch.testing.assert_close(model(**inputs).logits, off, atol=1e-5, rtol=1e-5)
        assert model(**inputs).logits.equal(moved)
    assert (moved - off).abs().max() > 1e-2


@pytest.mark.slow
def test_checkpointing_does_not_change_the_gradient(tmp_path: Path) -> None:
    results = []
    for on in (False, True):
        settings = PeftSettings("lora", r=4, dropout=0.0)
        model = adapted(settings=settings)
        options = {"activation_checkpointing": on, "max_steps": 2, "optim": "sgd", "learning_rate": 1.0}
        trainer(tmp_path / str(on), model=model, **options).train()
        results.append(weights(model))
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, atol=1e-5, rtol=1e-4)
    assert any(not value.equal(weights(adapted())[name]) for name, value in results[0].items())


@pytest.mark.parametrize("bf16", [False, True])
def test_a_policy_with_adapters_asks_as_it_would_unpacked(
    bf16: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Head and embeddings are one weight, of which the row of <hl> learns."""
    built = trainer(tmp_path, model=adapted(), bf16=bf16)
    batch, found, layers = next(iter(built.get_train_dataloader())), [], []

    def decode(policy: Any, *args: Any, **options: Any) -> Any:
        layers.append(sum(isinstance(layer, PackedLinear) for layer in policy.modules()))
        return decoding.decode(policy, *args, **options)

    monkeypatch.setattr("rl_qg.training.trainer.decode", decode)
    for choice in ("never", "always"):
        monkeypatch.setenv(VARIABLE, choice)
        found.append(built.roll_out(batch, samples=2, greedy=True))
    packs = can_pack(torch.bfloat16 if bf16 else torch.float32)  # not every processor does in bfloat16
    assert layers[0] == 0 and (layers[1] > 0) == packs
    for one, other in ((found[0].greedy, found[1].greedy), (found[0].samples, found[1].samples)):
        assert torch.equal(one.tokens, other.tokens)


def test_bf16_saves_whole_models_too(tmp_path: Path) -> None:
    model = adapted()
    assert hasattr(model, "merge_and_unload")
    trainer(tmp_path, model=model, bf16=True).train()
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ce").dtype == torch.float32
