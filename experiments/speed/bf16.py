"""Is bf16 harmless? The gradient of one self-critical update in float32 and with bf16, on real text.

    python experiments/speed/bf16.py --model RUN/ce --encoder minilm --decoder gpt2 --data dev.json.gz --output o.json

The update is compared on the same sampled questions (those of the float32 rollout), and the rollout by its next-token
distributions at their positions: a sampler that inverts a distribution function takes another token at the slightest
change, so the questions themselves differ. The yardstick is the float32 gradient with other samples: the noise which
every update has anyway.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
from measurements import processor

from rewards import QRelScore
from rl_qg.data.examples import QAExample
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import take
from rl_qg.generation.decoding import Rollout
from rl_qg.generation.loading import load_seq2seq
from rl_qg.training.trainer import SelfCriticalConfig, SelfCriticalTrainer

WAYS = {
    "float32": ("no", "float32", 0),
    "rewards in bf16": ("no", "bfloat16", 0),
    "update in bf16": ("bf16", "float32", 0),
    "both in bf16": ("bf16", "bfloat16", 0),
    "float32, other samples": ("no", "float32", 1),
}
Distributions = list[torch.Tensor]  # log-probabilities (tokens, vocabulary) of each batch


def measure(
    args: argparse.Namespace, way: str, batches: list[list[QAExample]], rollouts: list[Rollout]
) -> tuple[list[torch.Tensor], Distributions]:
    """The gradients of the reward's part of the loss, one a batch, and the next-token distributions at the samples.

    The first way fills `rollouts`; those with its seed take them from there.
    """
    precision, dtype, seed = WAYS[way]
    model, tokenizer = load_seq2seq(args.model)
    reward = QRelScore(encoder=args.encoder, decoder=args.decoder, dtype=dtype)
    with tempfile.TemporaryDirectory() as folder:
        trainer = SelfCriticalTrainer(
            model=model,
            args=SelfCriticalConfig(
                output_dir=folder,
                max_source_length=128,
                max_new_tokens=32,
                bf16=precision == "bf16",
                normalise_advantage=True,
                schedule="constant",
                use_cpu=True,
                report_to="none",
                watch_kl=False,
                seed=seed,
                max_steps=10,
            ),
            reward=reward,
            train_dataset=batches[0],
            processing_class=tokenizer,
        )
        trainer.state.max_steps = 10
        prepared = trainer.accelerator.prepare(trainer.model)
        trainer.model.eval()  # without dropout, whose noise is none of precision
        gradients, distributions = [], []
        for step, batch in enumerate(batches):
            trainer.state.global_step = step
            inputs = dict(trainer.encoder(batch))
            if seed or len(rollouts) <= step:
                rollout = trainer.roll_out(inputs, samples=1, greedy=True)
                if not seed:
                    rollouts.append(rollout)
            else:
                rollout = rollouts[step]
            trainer.roll_out = lambda *a, known=rollout, **k: known
            parts = []
            for weight in (1.0, 0.0):  # the difference is the part that the reward teaches
                trainer.args.lambda_max = weight
                trainer.model.zero_grad()
                trainer.compute_loss(prepared, dict(inputs)).backward()
                found = [p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None]
                parts.append(torch.cat(found).double())
            del trainer.roll_out
            gradients.append(parts[0] - parts[1])
            with torch.no_grad():
                logits = trainer.logits(prepared, inputs, rollout.samples.tokens)
            distributions.append(logits[rollout.samples.mask].float().log_softmax(-1))
    return gradients, distributions


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("model", "encoder", "decoder", "data"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--batches", type=int, default=3)
    args = parser.parse_args()
    examples = take(read_examples(args.data, role="validation").examples, 8 * args.batches, 3)
    batches = [examples[start : start + 8] for start in range(0, len(examples), 8)]
    rollouts: list[Rollout] = []
    found, result = {way: measure(args, way, batches, rollouts) for way in WAYS}, {}
    exact, policy = found["float32"]
    for way, (gradients, other) in found.items():
        pairs = list(zip(exact, gradients, strict=True))
        result[way] = {
            "cosine": [float(torch.nn.functional.cosine_similarity(a, b, dim=0)) for a, b in pairs],
            "relative_difference": [float((a - b).norm() / a.norm()) for a, b in pairs],
        }
        if WAYS[way][2] == 0:
            both = [(p.exp() - q.exp()).abs().sum(-1) / 2 for p, q in zip(policy, other, strict=True)]
            result[way]["total_variation"] = [float(torch.cat(both).mean())]
    args.output.write_text(json.dumps({"processor": processor(), "ways": result}, indent=1) + "\n")
    for way, row in result.items():
        print(way, row)


if __name__ == "__main__":
    main()
