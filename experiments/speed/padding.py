"""How many of the tokens of a pass by cross-entropy are padding, with and without `ce.by_length`.

    python experiments/speed/padding.py --data DATA/train.json --output experiments/speed/results/padding.json

The inputs are those of `packaged:english`; they are counted as the trainer pads them, and nothing is trained.
"""

import argparse
import json
from fractions import Fraction
from pathlib import Path

from rewards.frozen import load_tokenizer
from rl_qg.data.reading import read_examples
from rl_qg.generation.prompts import Prompt, PromptEncoder
from rl_qg.miniatures.packaged import packaged_folder
from rl_qg.training.row_schedule import RowSchedule

BATCHES, LENGTHS = (16, 32), (128, 512)  # examples; tokens at most


def padded(lengths: list[int], batch: int, *, by_length: bool) -> float:
    """The share of padding, of all tokens of one pass."""
    number = len(lengths)
    sizes = {"gold": number, "unlabelled": 0, "share": Fraction(0), "update_size": batch, "updates_per_rollout": 1}
    schedule = RowSchedule(
        **sizes, ce_epochs=1, scst_epochs=0, max_steps=0, seed=0, lengths=lengths if by_length else ()
    )
    updates = [[lengths[row] for row in rows] for rows in schedule]
    return 1 - sum(map(sum, updates)) / sum(max(rows) * len(rows) for rows in updates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="file of SQuAD's format")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    examples = read_examples(options.data, role="train").examples
    tokenizer = load_tokenizer(packaged_folder("packaged:english"))
    found = {}
    for longest in LENGTHS:
        lengths = PromptEncoder(tokenizer, Prompt(max_source_length=longest)).lengths(examples)
        found[longest] = {"mean": sum(lengths) / len(lengths)} | {
            f"{way}, {batch}": padded(lengths, batch, by_length=way == "by_length")
            for batch in BATCHES
            for way in ("random", "by_length")
        }
    options.output.write_text(json.dumps({"examples": len(examples), "tokens": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
