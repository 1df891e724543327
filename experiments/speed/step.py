"""One self-critical step, ours against the straightforward loop: the same sizes and lengths, the same reward formula.

    python experiments/speed/step.py --naive ../shared/bench/naive_scst.py --batch 4 --output step.json

Runs the straightforward loop and the real `SelfCriticalTrainer` in turn, several rounds. The file is written after
each measurement, and the same command goes on where it was stopped.
Texts are words of a made-up vocabulary in which a word is a token of every model, so both sides read the same tokens;
ours also turns tokens into text and back. Rollouts are held to `--new-tokens` tokens on both sides. The data are read
twice: in the second epoch the reward knows the contexts.

`--clock cpu` counts the processor's seconds of one thread on both sides, for a machine on which others work too.
`--samples 4 --baseline leave_one_out` measures another objective; the straightforward loop stays as it is.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measurements import Measurements, count_cpu_seconds
from metrics import blocks, peaks
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from rewards import QRelScore
from rl_qg.data.examples import Answer, QAExample
from rl_qg.runtime.processes import keep_freed_memory
from rl_qg.training.trainer import SelfCriticalConfig, SelfCriticalTrainer

SIZES = {"tiny": (64, 2, 4), "small": (256, 4, 4), "base": (768, 6, 12)}  # width, layers per stack, heads
VOCABULARY = 50265
PARTS = ("step", "rollout", "reward", "update")


def tokenizer(size: int, template: str) -> PreTrainedTokenizerFast:
    """Words `w5` … are tokens 5 …; the first five ids are special."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = {token: index for index, token in enumerate(special)} | {f"w{k}": k for k in range(5, size)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        single=template, pair=f"{template} $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=words, mask_token="<mask>", cls_token="<s>", sep_token="</s>", **names
    )


def metric(size: str, folder: Path, dtype: str) -> QRelScore:
    """QRelScore of random BERT and GPT-2 of that size."""
    width, layers, heads = SIZES[size]
    torch.manual_seed(0)
    bert = BertConfig(
        hidden_size=width, num_hidden_layers=2 * layers, num_attention_heads=heads, intermediate_size=4 * width
    )
    gpt2 = GPT2Config(n_embd=width, n_layer=2 * layers, n_head=heads, bos_token_id=0, eos_token_id=2)
    for name, model, words in (
        ("bert", BertModel(bert), tokenizer(bert.vocab_size, "<s> $A </s>")),
        ("gpt2", GPT2LMHeadModel(gpt2), tokenizer(gpt2.vocab_size, "$A")),
    ):
        model.save_pretrained(folder / name)
        words.save_pretrained(folder / name)
    return QRelScore(encoder=str(folder / "bert"), decoder=str(folder / "gpt2"), variant="paper", dtype=dtype)


def generator(size: str) -> BartForConditionalGeneration:
    width, layers, heads = SIZES[size]
    torch.manual_seed(0)
    return BartForConditionalGeneration(
        BartConfig(
            d_model=width,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=4 * width,
            decoder_ffn_dim=4 * width,
            dropout=0.0,
            forced_eos_token_id=None,
        )
    )


def examples(count: int, context: int, question: int) -> list[QAExample]:
    """Contexts and questions of these lengths in tokens, marks and special tokens of the generator included."""
    draw = np.random.default_rng(1)
    found = []
    for number in range(count):
        words = [f"w{k}" for k in draw.integers(10, 20000, context - 4)]
        asked = " ".join(f"w{k}" for k in draw.integers(10, 20000, question - 2))
        found.append(QAExample(f"e{number}", "t", " ".join(words), asked, (Answer(words[0], 0),)))
    return found


class StepTimes(TrainerCallback):
    """Seconds of each step, with its parts; what is neither rollout nor reward is update."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.trainer: Any = None
        self._seen = {"rollout": 0.0, "reward": 0.0}
        self._start = 0.0

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._start = _now()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        row = {"step": _now() - self._start}
        for part in ("rollout", "reward"):
            total = self.trainer.step_metrics.seconds()[part]
            row[part], self._seen[part] = total - self._seen[part], total
        row["update"] = row["step"] - row["rollout"] - row["reward"]
        self.rows.append(row)


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def trainer_of(
    args: argparse.Namespace,
    model: PreTrainedModel,
    words: PreTrainedTokenizerFast,
    reward: QRelScore,
    folder: Path,
    callbacks: Sequence[TrainerCallback] = (),
    **changed: Any,
) -> SelfCriticalTrainer:
    """A trainer that takes `args.steps` + 1 steps an epoch; `changed` are other arguments of training."""
    options: dict[str, Any] = {
        "scst_epochs": 2,
        "scst_learning_rate": 1e-12,  # at 1e-5 the random policy soon says one thing, and that is scored once
        "save_strategy": "no",
        "max_source_length": args.context_tokens,
        "min_new_tokens": args.new_tokens,
        "max_new_tokens": args.new_tokens,
        "num_samples": args.samples,
        "baseline": args.baseline,
        "normalise_advantage": "none",
        "watch_kl": False,
    }
    return SelfCriticalTrainer(
        model=model,
        args=SelfCriticalConfig(
            output_dir=str(folder),
            per_device_train_batch_size=args.batch,
            bf16=args.precision == "bf16",
            use_cpu=not torch.cuda.is_available(),
            report_to="none",
            logging_steps=10**6,
            disable_tqdm=True,
            **(options | changed),
        ),
        reward=reward,
        train_dataset=examples(args.batch * (args.steps + 1), args.context_tokens, args.new_tokens),
        processing_class=words,
        callbacks=[*callbacks],
    )


def ours(
    args: argparse.Namespace, model: PreTrainedModel, words: PreTrainedTokenizerFast, reward: QRelScore, folder: Path
) -> dict[str, dict[str, float]]:
    """Median seconds of a step and its parts in the first epoch (without its first step) and in the second."""
    times, steps = StepTimes(), args.steps + 1
    reward.reset_cache()
    trainer = trainer_of(args, model, words, reward, folder / "run", [times])
    times.trainer = trainer
    trainer.train()
    assert len(times.rows) == 2 * steps
    batch = next(iter(trainer.get_train_dataloader()))
    drawn = trainer.roll_out(batch, samples=1, greedy=True)
    assert drawn.samples is not None and drawn.greedy is not None
    assert not (drawn.samples.tokens == drawn.greedy.tokens).all(1).any(), "the reward scores distinct questions once"
    return {
        name: {part: statistics.median(row[part] for row in rows) for part in PARTS}
        for name, rows in (("first", times.rows[1:steps]), ("second", times.rows[steps:]))
    }


def needed(args: argparse.Namespace, *, later: bool = False) -> dict[str, float]:
    """`operations` of a step of the size that `args` names."""
    return operations(SIZES[args.size], SIZES[args.size], VOCABULARY, args, later=later)


def operations(
    generator: tuple[int, int, int],
    metric: tuple[int, int, int],
    vocabulary: int,
    args: argparse.Namespace,
    *,
    later: bool = False,
) -> dict[str, float]:
    """GFLOP that each part cannot avoid: every product once, nothing padded.

    Args:
        generator, metric: width, layers per stack and heads of the generator; and so of the metric, whose models have
            twice as many layers.
        vocabulary: of the generator.
        args: batch, context_tokens, new_tokens, samples and baseline.
        later: in a later epoch, in which the reward has kept what GPT-2 says of a context alone.

    The rollout and the reward have the samples and, where it is the baseline, the greedy question of each context; the
    update has the gold question and the samples. A decoder's token costs its own block, the queries and outputs of
    cross attention and the vocabulary; keys and values of a context are made once. A backward pass is twice its
    forward pass.
    """
    width, layers, _ = generator
    batch, context, question = args.batch, args.context_tokens, args.new_tokens
    encoder = blocks(batch * context, width, layers, batch * context**2)
    memory = layers * 4 * width**2 * batch * context
    token = layers * (28 * width**2 + 4 * width * (context + question / 2)) + head(1, width, vocabulary)
    drawn = batch * (args.samples + (args.baseline == "greedy"))
    rollout = encoder + memory + drawn * question * token
    update = 3 * (encoder + memory + batch * (1 + args.samples) * question * token)
    width, layers, _ = metric
    pairs, length, alone = drawn, context + question, 0 if later else batch
    bert = blocks(pairs * (length + 3), width, 2 * layers, pairs * (length + 3) ** 2)
    gpt2 = blocks(pairs * length + alone * context, width, 2 * layers, (pairs * length**2 + alone * context**2) / 2)
    found = {
        "rollout": rollout,
        "reward": bert + gpt2 + head((pairs + alone) * context, width, VOCABULARY),
        "update": update,
    }
    return {part: round(work / 1e9, 1) for part, work in {**found, "step": sum(found.values())}.items()}


def floors(
    args: argparse.Namespace, counts: dict[str, dict[str, float]], rates: dict[str, dict[str, float | None]]
) -> dict[str, dict[str, float]]:
    """Seconds of each part if its operations (`counts`, by epoch) ran at the best product measured (`rates`)."""
    found = {}
    for epoch, work in counts.items():
        seconds = {}
        for part in PARTS[1:]:
            half = args.reward_dtype == "bfloat16" if part == "reward" else args.precision == "bf16"
            best = max(filter(None, rates[str(torch.bfloat16 if half else torch.float32)].values()))
            seconds[part] = work[part] / best
        found[epoch] = {part: round(value, 4) for part, value in {"step": sum(seconds.values()), **seconds}.items()}
    return found


def head(tokens: float, width: int, vocabulary: int) -> float:
    return 2 * width * vocabulary * tokens


def naive(args: argparse.Namespace) -> dict[str, float]:
    script = f"import runpy, time\nrunpy.run_path({args.naive!r}, run_name='__main__')"
    if args.clock == "cpu":
        script = "import time, torch\ntorch.set_num_threads(1)\ntime.perf_counter = time.thread_time\n" + script
    command = [sys.executable, "-c", script, "--size", args.size, "--batch", str(args.batch)]
    command += ["--context-tokens", str(args.context_tokens), "--new-tokens", str(args.new_tokens)]
    done = subprocess.run([*command, "--steps", str(args.steps)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {part: found[f"{part}_s"] for part in PARTS}


def ours_of_size(args: argparse.Namespace, reward: QRelScore, folder: Path) -> dict[str, dict[str, float]]:
    return ours(args, generator(args.size), tokenizer(VOCABULARY, "<s> $A </s>"), reward, folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--naive", required=True, help="the straightforward loop, a script")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--context-tokens", type=int, default=192)
    parser.add_argument("--new-tokens", type=int, default=20)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--precision", choices=("no", "bf16"), default="no")
    parser.add_argument("--reward-dtype", default="float32")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--baseline", default="greedy")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    args = parser.parse_args()
    keep_freed_memory()  # as the commands do
    if args.clock == "cpu":
        count_cpu_seconds()
    given = {name: value for name, value in vars(args).items() if name not in ("naive", "output")}
    results = Measurements(args.output, given)
    with tempfile.TemporaryDirectory() as folder:
        reward = metric(args.size, Path(folder), args.reward_dtype)
        for number in range(1, args.rounds + 1):
            results.measure(f"straightforward, round {number}", lambda: naive(args))
            results.measure(f"ours, round {number}", lambda: ours_of_size(args, reward, Path(folder)))
    rates = {str(dtype): peaks(results, dtype) for dtype in (torch.float32, torch.bfloat16)}
    rounds = range(1, args.rounds + 1)
    sides = {
        "naive": [results[f"straightforward, round {number}"] for number in rounds],
        **{epoch: [results[f"ours, round {number}"][epoch] for number in rounds] for epoch in ("first", "second")},
    }
    medians = {
        side: {part: round(statistics.median(row[part] for row in rows), 4) for part in PARTS}
        for side, rows in sides.items()
    }
    times = {
        epoch: {part: round(medians["naive"][part] / medians[epoch][part], 2) for part in PARTS}
        for epoch in ("first", "second")
    }
    counts = {"first": needed(args), "second": needed(args, later=True)}
    results.write(
        **medians,
        gflop_needed=counts["first"],
        gflop_needed_later=counts["second"],
        peak_gflop_per_s=rates,
        times=times,
        floor=floors(args, counts, rates),
    )
    print(json.dumps(times))


if __name__ == "__main__":
    main()
