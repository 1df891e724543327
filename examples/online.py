# /// script
# requires-python = ">=3.11"
# dependencies = ["rl-qg[trl]"]
# ///
"""A causal model learns to ask by GRPO or RLOO of TRL, with a reward of this package.

rl-qg export questions=questions.jsonl format=prompts output=prompts.jsonl
uv run examples/online.py prompts.jsonl --model gpt2 --reward qrelscore --algorithm grpo --output run
"""

import argparse

import torch
import trl
from datasets import load_dataset

from rewards import load

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("prompts")
parser.add_argument("--model", default="gpt2")
parser.add_argument("--reward", default="qrelscore", help="a metric of `rewards`, with its default models")
parser.add_argument("--algorithm", choices=("grpo", "rloo"), default="grpo")
parser.add_argument("--output", default="run")
parser.add_argument("--steps", type=int, default=-1)
given = parser.parse_args()

trainer, config = {
    "grpo": (trl.GRPOTrainer, trl.GRPOConfig),
    "rloo": (trl.RLOOTrainer, trl.RLOOConfig),
}[given.algorithm]
arguments = config(
    output_dir=given.output,
    max_steps=given.steps,
    num_generations=4,
    per_device_train_batch_size=16,  # samples: four questions of each of four answers
    max_completion_length=32,
    report_to="none",
    bf16=torch.cuda.is_available(),  # the default of TRL, which a CPU may lack
)
data = load_dataset("json", data_files=given.prompts, split="train")
subject = trainer(given.model, reward_funcs=load(given.reward), args=arguments, train_dataset=data)
subject.train()
subject.save_model(given.output)
