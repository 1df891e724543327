# /// script
# requires-python = ">=3.11"
# dependencies = ["rl-qg[trl]"]
# ///
"""A causal model learns from pairs of questions, one with a higher score than the other, by DPO of TRL.

rl-qg export questions=scored.jsonl format=preferences output=preferences.jsonl
uv run examples/offline.py preferences.jsonl --model gpt2 --output run
"""

import argparse

import torch
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("preferences")
parser.add_argument("--model", default="gpt2")
parser.add_argument("--output", default="run")
parser.add_argument("--steps", type=int, default=-1)
given = parser.parse_args()

data = load_dataset("json", data_files=given.preferences, split="train")
arguments = DPOConfig(output_dir=given.output, max_steps=given.steps, report_to="none", bf16=torch.cuda.is_available())
subject = DPOTrainer(given.model, args=arguments, train_dataset=data)
subject.train()
subject.save_model(given.output)
