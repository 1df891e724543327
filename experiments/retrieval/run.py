"""Retrievers taught by generated and human questions: `python experiments/retrieval/run.py --data DATA --encoder E`.

DATA is the folder of prepare.py, with the generator's `DOMAIN-generated.jsonl`. Both arms of a domain have one
question about each of the same passages, so that updates and collection are equal. Runs that are finished are kept.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from prepare import SHIFTS, Row, write

DOMAINS = (*SHIFTS, "fairytale")
QUESTIONS, BATCH, SEED = 480, 16, 13


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.open(encoding="utf-8")]


def one_each(found: list[Row], contexts: list[str], rng: random.Random) -> list[Row]:
    """A drawn question of each passage."""
    by_passage: dict[str, list[Row]] = {}
    for row in found:
        by_passage.setdefault(row["context"], []).append(row)
    return [{"context": text, "question": rng.choice(by_passage[text])["question"]} for text in contexts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--domains", nargs="+", default=DOMAINS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[SEED])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for domain in options.domains:
        arms = {who: rows(options.data / f"{domain}-{who}.jsonl") for who in ("generated", "human")}
        contexts = list(dict.fromkeys(row["context"] for row in arms["generated"]))
        contexts = random.Random(SEED).sample(contexts, QUESTIONS)
        for who, found in arms.items():
            questions = options.data / f"{domain}-{who}-one.jsonl"
            write(questions, one_each(found, contexts, random.Random(SEED)))
            for seed in options.seeds:
                folder = options.data / f"{domain}-{who}-{seed}"
                command = [sys.executable, "-m", "rl_qg", "retrieve", f"questions={questions}"]
                command += [f"data={options.data / domain}-test.jsonl", f"output_dir={folder}", f"seed={seed}"]
                command += [f"retrieve.model.path={options.encoder}", "training.use_cpu=true", "max_length=128"]
                command += [f"batch_size={BATCH}", "learning_rate=5e-5", "save_steps=10"]
                subprocess.run(command, check=True)
                results[f"{domain} {who} {seed}"] = json.loads((folder / "retrieval.json").read_text())
                options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
