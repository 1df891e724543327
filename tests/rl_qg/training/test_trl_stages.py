"""Causal generators trained by TRL: rewards are learned, runs resume, and settings without meaning are refused."""

import hashlib
import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2LMHeadModel

from rl_qg.data.examples import QAExample
from rl_qg.data.splits import Splits
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.loading import load_causal, load_seq2seq
from rl_qg.generation.prompts import add_highlight, highlight
from rl_qg.runtime.errors import InputError
from rl_qg.settings import CESettings, ModelSettings, PeftSettings, SCSTSettings, Settings, TrainingSettings
from rl_qg.training.trl_stages import CausalStage, check_algorithm, train_causal
from tests.questions import example
from tests.rl_qg.training.test_mixture import without_questions
from tests.tiny_models import save, tiny, tiny_bart, word_tokenizer

pytest.importorskip("trl")

WORDS = " ".join(f"w{k}" for k in range(20)) + " Question:"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_gpt2(tmp_path_factory.mktemp("start") / "gpt2")


def tiny_gpt2(folder: Path, *, dropout: float = 0.0, seed: int = 0) -> str:
    tokenizer = word_tokenizer(WORDS, template="$A")
    tokenizer.pad_token = None  # like the tokenizer of GPT-2
    special = {"bos_token_id": 0, "eos_token_id": 2}
    model = tiny(GPT2LMHeadModel, len(tokenizer), hidden=32, spread=0.2, dropout=dropout, seed=seed, **special)
    return save(folder, tokenizer, model)


def data(count: int) -> list[QAExample]:
    """Two thirds of the gold questions are `w1 w1`; passages differ in length."""
    return [
        example(
            " ".join(f"w{(k + j) % 20}" for j in range(3 + k % 6)),
            f"w{(k + 1) % 20}",
            "w3 w3" if k % 3 == 0 else "w1 w1",
            id=f"e{k}",
        )
        for k in range(count)
    ]


class WordReward:
    """1 for every `w3` among the first two words: the best question is `w3 w3`. It has only `score`."""

    def score(self, questions: Any, contexts: Any, *, answers: Any = None, references: Any = None) -> Any:
        assert len(questions) == len(contexts) == len(answers)
        assert references is None or len(references) == len(questions)
        values = [float(question.split()[:2].count("w3")) for question in questions]
        return SimpleNamespace(
            scores=values, parts={"words": [float(len(question.split())) for question in questions]}
        )


def settings(folder: Path, path: str, algorithm: str = "rloo", **scst: Any) -> Settings:
    chosen = {"epochs": 2.0, "learning_rate": 1e-2, "max_new_tokens": 5, **scst}
    return Settings(
        output_dir=str(folder),
        algorithm=algorithm,
        model=ModelSettings(path, max_source_length=24, max_target_length=6),
        training=TrainingSettings(
            batch_size=4,
            use_cpu=True,
            logging_steps=1,
            eval_steps=4,
            save_steps=3,
            save_total_limit=50,
            report_to="none",
        ),
        ce=CESettings(epochs=1.0, learning_rate=1e-2),
        scst=SCSTSettings(**chosen),
    )


def splits(count: int = 16) -> Splits:
    return Splits(gold=data(count), unlabelled=[], validation=data(5))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_both_stages_write_the_files_of_a_run(tmp_path: Path, start: str, algorithm: str) -> None:
    run = tmp_path / "run"
    chosen = settings(run, start, algorithm, kl_coefficient=0.01)
    assert train_causal(chosen, splits(), WordReward(), held_out=WordReward()) == run / "scst"
    for stage in ("ce", "scst"):
        AutoModelForCausalLM.from_pretrained(run / stage)
        assert "<hl>" in AutoTokenizer.from_pretrained(run / stage).get_vocab()
        assert json.loads((run / stage / "prompt.json").read_text())["separator"] == "\nQuestion:"
    logged = lines(run / "metrics.jsonl")
    steps = [line for line in logged if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 13))  # 16 examples, 4 an update: 1 epoch, then 2
    assert [line["stage"] for line in steps] == ["ce"] * 4 + ["scst"] * 8
    assert steps[-1]["epoch"] == 3
    wanted = "loss grad_norm learning_rate reward_sample reward_sample_words rewards_failed kl kl_coefficient entropy "
    wanted += "length_sample samples_per_second seconds_reward updates_skipped"
    assert set(wanted.split()) <= steps[-1].keys()
    last = [line for line in logged if "eval_loss" in line][-1]
    assert {"eval_reward_greedy", "eval_held_out", "eval_kl", "eval_bleu4", "eval_distinct_1"} <= last.keys()
    assert last["eval_held_out"] == last["eval_reward_greedy"]
    assert last["eval_kl"] > 0
    rows = lines(run / "samples.jsonl")
    assert {row["step"] for row in rows} == set(range(5, 13))
    assert all(row["reward_sample"] == row["sample"].split()[:2].count("w3") for row in rows)
    trained = json.loads((run / "trained.json").read_text())
    reward = f"WordReward|code:{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]}"
    assert trained == {"model": "scst", "steps": 12, "reward": reward, "held_out": reward}
    assert not list((run / "checkpoints").rglob("README.md"))  # TRL's cards


@pytest.mark.slow
@pytest.mark.parametrize(("share", "steps"), [(None, 8), (1, 4), (0, 4)])
def test_the_reward_stage_learns_on_passages_without_questions(
    tmp_path: Path, start: str, share: float | None, steps: int
) -> None:
    """8 gold examples and 8 others, 4 an update: 2 updates by cross-entropy, then 2 epochs."""
    chosen = settings(tmp_path, start, "rloo", unlabelled_share=share)
    mixed = Splits(gold=data(8), unlabelled=without_questions(8), validation=data(5))
    train_causal(chosen, mixed, WordReward())
    trained = json.loads((tmp_path / "trained.json").read_text())
    assert trained["steps"] == 2 + steps
    kinds = {row["id"][0] for row in lines(tmp_path / "samples.jsonl")}
    assert kinds == {None: {"e", "u"}, 1: {"u"}, 0: {"e"}}[share]
    expected = None if share == 0 else {"examples": 8, "share": share or 0.5}
    assert trained.get("unlabelled") == expected


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_a_reward_whose_best_question_is_known_is_learned(tmp_path: Path, start: str, algorithm: str) -> None:
    chosen = settings(tmp_path / "run", start, algorithm, epochs=6.0)
    chosen.ce.epochs = 4.0
    train_causal(chosen, splits(24), WordReward())
    logged = [line for line in lines(tmp_path / "run" / "metrics.jsonl") if "eval_reward_greedy" in line]
    reached = {line["stage"]: line["eval_reward_greedy"] for line in logged}
    assert reached["ce"] < 1
    assert reached["scst"] == 2  # of 2
    policy = CandidateGenerator(tmp_path / "run" / "scst", device=torch.device("cpu"))
    assert all(text.split()[:2] == ["w3", "w3"] for text in policy.greedy(data(5), max_new_tokens=5))


@pytest.mark.slow
def test_cross_entropy_is_computed_on_the_question_only(tmp_path: Path, start: str) -> None:
    """The loss of the first update against plain forward passes, one example at a time."""
    chosen = replace(settings(tmp_path, start), stages="ce")
    chosen.training.batch_size = 4
    chosen.training.gradient_accumulation_steps = 2
    train_causal(chosen, splits(8), None)
    model, tokenizer = load_causal(start)
    add_highlight(tokenizer, model)
    total, tokens = 0.0, 0
    for item in data(8):
        prompt = tokenizer(f"{highlight(item)}\nQuestion:")["input_ids"]
        target = [*tokenizer(item.question)["input_ids"], tokenizer.eos_token_id]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + target])).logits[0].log_softmax(-1)
        total -= sum(logits[len(prompt) - 1 + at, token].item() for at, token in enumerate(target))
        tokens += len(target)
    assert lines(tmp_path / "metrics.jsonl")[0]["loss"] == pytest.approx(total / tokens, rel=1e-4)


class DiesAfter(WordReward):
    """A reward that ends the process after a number of calls."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def score(self, questions: Any, contexts: Any, **columns: Any) -> Any:
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt
        return super().score(questions, contexts, **columns)


@pytest.mark.slow
@pytest.mark.parametrize("calls", [0, 9], ids=["in the first stage", "in the second epoch of the second"])
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, calls: int) -> None:
    path = tiny_gpt2(tmp_path / "start", dropout=0.1)
    weights, logged = [], []
    for name in ("whole", "killed"):
        chosen = settings(tmp_path / name, path, temperature=0.9)
        if name == "killed":
            with pytest.raises(KeyboardInterrupt):
                train_causal(chosen, splits(), DiesAfter(calls))
            assert not (tmp_path / name / "scst").exists()
        train_causal(chosen, splits(), WordReward())
        weights.append(load_causal(str(tmp_path / name / "scst"))[0].state_dict())
        timed = ("seconds_reward", "samples_per_second")
        for file in ("metrics.jsonl", "samples.jsonl"):
            rows = lines(tmp_path / name / file)
            logged.append([{key: value for key, value in row.items() if key not in timed} for row in rows])
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    assert logged[0] == logged[2]
    assert logged[1] == logged[3]


@pytest.mark.slow
def test_a_complete_run_is_not_trained_again_and_one_stage_runs_alone(tmp_path: Path, start: str) -> None:
    first = replace(settings(tmp_path / "ce", start), stages="ce")
    assert train_causal(first, splits(), None) == tmp_path / "ce" / "ce"
    assert train_causal(first, splits(), None) == tmp_path / "ce" / "ce"
    second = replace(settings(tmp_path / "rl", str(tmp_path / "ce" / "ce"), kl_coefficient=0.1), stages="scst")
    assert train_causal(second, splits(), WordReward()) == tmp_path / "rl" / "scst"
    assert {line["stage"] for line in lines(tmp_path / "rl" / "metrics.jsonl")} == {"scst"}
    # a model without <hl>: the reference of the KL, which TRL loads itself, has a row for it too
    third = replace(settings(tmp_path / "new", start, kl_coefficient=0.1), stages="scst")
    train_causal(third, splits(), WordReward())
    assert lines(tmp_path / "new" / "metrics.jsonl")[0]["kl"] == pytest.approx(0, abs=1e-6)


@pytest.fixture
def trainer(tmp_path: Path, start: str) -> Any:
    from rl_qg.training.trl_stages import CausalStage

    chosen = replace(settings(tmp_path, start), stages="scst")
    return CausalStage("scst", chosen, splits(), WordReward(), None)._trainer()


def test_padding_does_not_change_the_positions_of_a_prompt(trainer: Any) -> None:
    """GPT-2 has absolute positions, and batches are padded on the left."""
    model, encoder = trainer.model.eval(), trainer.encoder
    examples = data(6)
    batch = encoder.batch(examples)
    assert (batch["attention_mask"][:, 0] == 0).any()
    tokens = torch.tensor(encoder.targets(examples))
    with torch.no_grad():
        both = torch.cat((batch["input_ids"], tokens), 1)
        mask = torch.cat((batch["attention_mask"], torch.ones_like(tokens)), 1)
        found = trainer._get_per_token_logps_and_entropies(model, both, mask, tokens.shape[1])[0]
        for row, source in enumerate(encoder.encode(examples)):
            alone = torch.tensor([source.ids + tokens[row].tolist()])
            logits = GPT2LMHeadModel.forward(model, alone).logits[0, -tokens.shape[1] - 1 : -1].log_softmax(-1)
            expected = logits.gather(-1, tokens[row].unsqueeze(-1)).squeeze(-1)
            torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=1e-5)


def test_dropout_and_telemetry_are_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL samples in training mode, so with dropout the samples would not come from the policy."""
    import trl.trainer.base_trainer

    from rl_qg.training.trl_stages import CausalStage

    sent: list[Any] = []
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(trl.trainer.base_trainer, "send_telemetry", lambda *args, **rest: sent.append(rest))
    chosen = replace(settings(tmp_path, tiny_gpt2(tmp_path / "start", dropout=0.5)), stages="scst")
    subject = CausalStage("scst", chosen, splits(), WordReward(), None)._trainer()
    ids = torch.arange(5, 15).unsqueeze(0)
    model = subject.model.train()
    assert torch.equal(model(input_ids=ids).logits, model(input_ids=ids).logits)
    assert not sent


def test_a_warm_up_of_one_is_all_of_the_stage(tmp_path: Path) -> None:
    from rl_qg.training.trl_stages import CausalStage

    chosen = settings(tmp_path, tiny_gpt2(tmp_path / "start"))
    chosen = replace(chosen, ce=replace(chosen.ce, warmup_fraction=1.0))
    assert CausalStage("ce", chosen, splits(), WordReward(), None)._trainer().args.get_warmup_steps(40) == 40


@pytest.mark.slow
def test_failed_rewards_are_skipped_or_stop_the_run(
    tmp_path: Path, start: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Partly(WordReward):
        def score(self, questions: Any, contexts: Any, **columns: Any) -> Any:
            if any("w1" in question for question in questions):
                raise RuntimeError("no w1, please")
            return super().score(questions, contexts, **columns)

    chosen = replace(settings(tmp_path / "skip", start, epochs=1.0), stages="scst")
    train_causal(chosen, splits(8), Partly())
    assert "All reward functions returned None" not in caplog.text
    failed = [row for row in lines(tmp_path / "skip" / "samples.jsonl") if "fault" in row]
    assert failed and all("no w1, please" in row["fault"] and row["reward_sample"] is None for row in failed)
    logged = [line for line in lines(tmp_path / "skip" / "metrics.jsonl") if "loss" in line]
    assert max(line["rewards_failed"] for line in logged) > 0
    weights = load_causal(str(tmp_path / "skip" / "scst"))[0].state_dict()
    assert all(torch.isfinite(value).all() for value in weights.values())
    stops = replace(settings(tmp_path / "stop", start, on_bad_reward="stop"), stages="scst")
    with pytest.raises(InputError, match="no w1, please"):
        train_causal(stops, splits(8), Partly())


@pytest.mark.slow
def test_the_best_model_by_a_held_out_measure_is_saved(tmp_path: Path, start: str) -> None:
    chosen = replace(settings(tmp_path / "run", start, stop_on="loss", patience=1, epochs=50.0), stages="scst")
    chosen.training.eval_steps = 2
    train_causal(chosen, splits(8), WordReward())
    measured = [line for line in lines(tmp_path / "run" / "metrics.jsonl") if "eval_loss" in line]
    losses = [line["eval_loss"] for line in measured]
    assert len(losses) < 50  # it ended early
    assert losses[-1] >= min(losses[:-1])
    kept = json.loads((tmp_path / "run" / "trained.json").read_text())["kept"]
    assert kept["value"] == min(losses) and measured[losses.index(min(losses))]["step"] == kept["step"]
    policy = CandidateGenerator(tmp_path / "run" / "scst", device=torch.device("cpu"))
    assert mean_loss(policy) == pytest.approx(min(losses), rel=1e-4)


def mean_loss(policy: CandidateGenerator) -> float:
    """Cross-entropy per gold token, one plain forward pass each, averaged over the validation questions."""
    losses = []
    for item in data(5):
        (source,), (target,) = policy.encoder.encode([item]), policy.encoder.targets([item])
        with torch.no_grad():
            logits = policy.model(input_ids=torch.tensor([source.ids + target])).logits[0].log_softmax(-1)
        positions = range(len(source.ids) - 1, len(source.ids) + len(target) - 1)
        losses.append(
            -sum(logits[at, token].item() for at, token in zip(positions, target, strict=True)) / len(target)
        )
    return sum(losses) / len(losses)


@pytest.mark.parametrize(
    ("algorithm", "scst", "message"),
    [
        (
            "rloo",
            {"schedule": "cosine"},
            r"cannot honour scst.schedule=cosine; leave the default, or use algorithm=scst",
        ),
        ("rloo", {"baseline": "mean"}, "scst.baseline=mean .it is leave_one_out by definition"),
        ("grpo", {"baseline": "leave_one_out"}, "scst.baseline=leave_one_out .it is mean by definition"),
        ("grpo", {"normalise_advantage": "batch"}, "scst.normalise_advantage=batch"),
        (
            "rloo",
            {"normalise_advantage": "group"},
            "scst.normalise_advantage=group .it divides by the spread of the batch",
        ),
        ("rloo", {"unlabelled_share": 0.5}, "scst.unlabelled_share=0.5"),
        ("rloo", {"clip_advantage": 1.0, "kl_target": 0.1}, "scst.clip_advantage=1.0, scst.kl_target=0.1"),
        ("rloo", {"num_samples": 1}, "scst.num_samples must be at least 2"),
        ("rloo", {"temperature": 0.0}, "temperature=0.0 must be above 0"),
        ("grpo", {"stop_on": "blue4"}, "blue4.*bleu4"),
        ("grpo", {"stop_on": "held_out"}, "there is no held-out reward"),
    ],
)
def test_settings_without_meaning_for_the_algorithm_are_named(
    algorithm: str, scst: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        check_algorithm(settings(Path("run"), "x", algorithm, **scst))
    assert "\n" not in str(error.value)
    for name, value in {"rate_factors": {"lm_head": 2.0}, "stop_after": 1.0}.items():
        refused = settings(Path("run"), "x", algorithm)
        refused.training = replace(refused.training, **{name: value})
        with pytest.raises(InputError, match=rf"algorithm={algorithm}: cannot honour training\.{name}="):
            check_algorithm(refused)
    refused = settings(Path("run"), "x", algorithm)
    refused.ce = replace(refused.ce, by_length=True)
    with pytest.raises(InputError, match=r"cannot honour ce\.by_length=true"):
        check_algorithm(refused)
    for share in (None, 0, 1):
        chosen = {"baseline": "leave_one_out", "normalise_advantage": "batch", "unlabelled_share": share}
        check_algorithm(settings(Path("run"), "x", "rloo", **chosen))


def test_a_model_of_the_wrong_kind_for_the_algorithm_is_an_error(tmp_path: Path, start: str) -> None:
    tokenizer = word_tokenizer(WORDS)
    tiny_bart(len(tokenizer)).save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    with pytest.raises(InputError, match=r"a bart model is an encoder-decoder.*use algorithm=scst"):
        train_causal(settings(tmp_path / "run", str(tmp_path / "bart")), splits(), WordReward())
    with pytest.raises(InputError, match=r"a gpt2 model is no seq2seq model.*algorithm=rloo"):
        load_seq2seq(start)


def test_too_few_examples_long_inputs_and_a_missing_package_are_errors(
    tmp_path: Path, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"takes 4 contexts, and there are 3; lower training.batch_size"):
        train_causal(replace(settings(tmp_path / "a", start), stages="scst"), splits(3), WordReward())
    long = settings(tmp_path / "b", start)
    long.model.max_source_length = 60
    with pytest.raises(InputError, match=r"reads 64 tokens.*needs 66; lower model.max_source_length"):
        train_causal(long, splits(), WordReward())
    found: Callable[[str], Any] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "trl" else found(name))
    with pytest.raises(InputError, match=r'install it: pip install "rl-qg\[trl\]"'):
        train_causal(settings(tmp_path / "c", start), splits(), WordReward())


def test_what_an_epoch_leaves_out_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = CausalStage("scst", settings(tmp_path, "gpt2"), splits(), None, None)
    with caplog.at_level("INFO"):
        stage._check_update_size(8, 4)
        assert "leaves out" not in caplog.text
        stage._check_update_size(10, 4)
    assert "each epoch leaves out 2 of 10 examples" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_adapters_are_merged_into_the_saved_model(tmp_path: Path, start: str, algorithm: str) -> None:
    pytest.importorskip("peft")
    chosen = replace(settings(tmp_path / "run", start, algorithm, kl_coefficient=0.01), peft=PeftSettings("lora", r=4))
    train_causal(chosen, splits(), WordReward())
    before, tokenizer = load_causal(start)
    add_highlight(tokenizer, before)
    ce, scst = (load_causal(str(tmp_path / "run" / stage))[0] for stage in ("ce", "scst"))
    names = [set(model.state_dict()) for model in (before, ce, scst)]
    assert names[0] == names[1] == names[2]
    for one, other in ((before, ce), (ce, scst)):
        assert any(not one.state_dict()[name].equal(other.state_dict()[name]) for name in names[0])
    row = tokenizer.convert_tokens_to_ids("<hl>")
    rows = [model.get_input_embeddings().weight[row] for model in (before, ce, scst)]
    assert not rows[0].equal(rows[1]) and not rows[1].equal(rows[2])  # a new token, which no adapter reaches
    found = lines(tmp_path / "run" / "metrics.jsonl")
    assert next(line["kl"] for line in found if "kl" in line) == pytest.approx(0, abs=1e-6)
