"""Retrievers taught by generated and human questions: `python experiments/retrieval/run.py --data DATA --encoder E`.

DATA is the folder of prepare.py, with the questions of each generator, `DOMAIN-ARM.jsonl`. All arms of a domain have
one question about each of the same passages, so that updates and collection are equal. Runs that are finished are
kept, and so are results of other runs in the output. Of several seeds there are means with intervals over seeds and
passages, of each arm minus the untaught encoder and minus the other arms.
"""

import argparse
import json
import random
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from prepare import SHIFTS, Row, write

from rl_qg.readers.retriever import RANKS, measures
from rl_qg.runtime.files import read_json, write_json
from rl_qg.stats.intervals import PassageDraws, seed_interval

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


def over_seeds(data: Path, domain: str, arms: list[str], seeds: list[int]) -> dict[str, Any]:
    """nDCG@10 of each arm minus the untaught encoder's, and of each pair of arms."""

    def gains(arm: str) -> list[Any]:
        ranks = [read_json(data / f"{domain}-{arm}-{seed}" / RANKS) for seed in seeds]
        return [measures(found["taught"])["ndcg@10"] - measures(found["untaught"])["ndcg@10"] for found in ranks]

    tables = {arm: np.array(gains(arm)) for arm in arms}
    draws = PassageDraws([row["context"] for row in rows(data / f"{domain}-test.jsonl")], seeds=len(seeds))
    named = tables | {f"{one} - {other}": tables[one] - tables[other] for one, other in combinations(arms, 2)}
    found = {name: seed_interval(draws.means_over_seeds(table), table, draws) for name, table in named.items()}
    return {name: {"mean": one.mean, "low": one.low, "high": one.high} for name, one in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--domains", nargs="+", default=DOMAINS)
    parser.add_argument("--arms", nargs="+", default=["generated", "human"], help="the first one's passages are asked")
    parser.add_argument("--seeds", type=int, nargs="+", default=[SEED])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    results: dict[str, Any] = read_json(options.output) if options.output.exists() else {}
    for domain in options.domains:
        arms = {arm: rows(options.data / f"{domain}-{arm}.jsonl") for arm in options.arms}
        contexts = list(dict.fromkeys(row["context"] for row in arms[options.arms[0]]))
        contexts = random.Random(SEED).sample(contexts, QUESTIONS)
        for arm, found in arms.items():
            write(options.data / f"{domain}-{arm}-one.jsonl", one_each(found, contexts, random.Random(SEED)))
        for seed in options.seeds:
            for arm in arms:
                folder = options.data / f"{domain}-{arm}-{seed}"
                command = [sys.executable, "-m", "rl_qg", "retrieve"]
                command += [f"questions={options.data / f'{domain}-{arm}-one.jsonl'}"]
                command += [f"data={options.data / domain}-test.jsonl", f"output_dir={folder}", f"seed={seed}"]
                command += [f"retrieve.model.path={options.encoder}", "training.use_cpu=true", "max_length=128"]
                command += [f"batch_size={BATCH}", "learning_rate=5e-5", "save_steps=10"]
                subprocess.run(command, check=True)
                results[f"{domain} {arm} {seed}"] = read_json(folder / "retrieval.json")
                write_json(options.output, results)
        if len(options.seeds) > 1:
            results[f"{domain} over {len(options.seeds)} seeds"] = over_seeds(
                options.data, domain, options.arms, options.seeds
            )
            write_json(options.output, results)


if __name__ == "__main__":
    main()
