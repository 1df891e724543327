"""How many questions stand alone, human and generated: `python experiments/standalone/run.py --shared ../shared`.

`--generated DATA` is the folder of `experiments/retrieval/prepare.py` with the generator's questions. `--read N`
prints N questions that each rule fires on, and N that none does, for a person to judge.
"""

import argparse
import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rewards import Retrievability, Standalone
from rl_qg.stats.intervals import SHARE, Interval, PassageDraws, mean_interval

sys.path.insert(0, str(Path(__file__).parents[1] / "retrieval"))
from prepare import SHIFTS, Row, squad, stories

OTHER = {"de": "xquad/xquad.de.json", "es": "xquad/xquad.es.json", "fr": "piaf/piaf-v1.0.json.gz"}
RESAMPLES, ROWS, SEED = 1000, 3000, 13


def english(data: Path) -> dict[str, list[Row]]:
    """The human questions of each domain, under the names of the generator's files."""
    tales = [row for part in ("train", "val") for row in stories(data / f"fairytaleqa/{part}.jsonl.gz")]
    return {
        "squad": squad(data / "squad/du_test-v1.1.json.gz"),
        **{name: squad(data / f"squadshifts/{file}_v1.0.json.gz") for name, file in SHIFTS.items()},
        "fairytale": tales,
    }


def entry(interval: Interval) -> dict[str, float | None]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def shares(rows: list[Row], language: str) -> dict[str, Any]:
    """The share of questions that stand alone, with an interval over passages, and what each rule refuses."""
    result = Standalone(language).score([row["question"] for row in rows])
    draws = PassageDraws([row["context"] for row in rows], resamples=RESAMPLES, seed=SEED)
    parts = {name: 1 - float(np.mean(values)) for name, values in result.parts.items()}
    interval = mean_interval(result.scores, draws, bounds=SHARE)
    return {"questions": len(rows), "standalone": entry(interval), **parts}


def found(rows: list[Row], passages: list[str], engine: str) -> dict[str, Any]:
    """Reciprocal rank of the passages, of all questions and of those that stand alone or do not; share of ranks 1."""
    metric = Retrievability(passages, engine=engine)
    questions = [row["question"] for row in rows]
    result = metric.score(questions, [row["context"] for row in rows])
    alone = np.array(Standalone().score(questions).scores) == 1
    values, ranks = np.array(result.scores), np.array(result.parts["rank"])
    interval = mean_interval(
        result.scores, PassageDraws([row["context"] for row in rows], resamples=RESAMPLES, seed=SEED)
    )
    return {
        "questions": len(rows),
        "reciprocal rank": entry(interval),
        "first": float(np.mean(ranks == 1)),
        "of standalone": float(values[alone].mean()),
        "of others": float(values[~alone].mean()),
    }


def of_file(path: Path) -> list[Row]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    paragraphs = [one for article in json.loads(text)["data"] for one in article["paragraphs"]]
    return [{"context": one["context"], "question": qa["question"]} for one in paragraphs for qa in one["qas"]]


def sample(rows: list[Row], number: int) -> list[Row]:
    return rows if len(rows) <= number else random.Random(SEED).sample(rows, number)


def read(domains: dict[str, list[Row]], number: int) -> None:
    metric, rng = Standalone(), random.Random(SEED)
    everything = [row for rows in domains.values() for row in sample(rows, ROWS)]
    result = metric.score([row["question"] for row in everything])
    for name, values in {**result.parts, "none": [1 - score for score in result.scores]}.items():
        print(f"--- {name}")
        kept = [row["question"] for row, value in zip(everything, values, strict=True) if not value]
        print("\n".join(rng.sample(kept, min(number, len(kept)))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True, help="folder with data/")
    parser.add_argument("--generated", type=Path, help="folder with DOMAIN-generated.jsonl")
    parser.add_argument("--encoder", help="folder or name of an encoder, beside BM25")
    parser.add_argument("--read", type=int, default=0)
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    data = options.shared / "data"
    domains = english(data)
    if options.read:
        return read(domains, options.read)
    engines = {"bm25": "bm25", **({"encoder": options.encoder} if options.encoder else {})}
    results: dict[str, Any] = {"rules": {}, **{engine: {} for engine in engines}}
    for name, human in domains.items():
        passages = list(dict.fromkeys(row["context"] for row in human))
        path = options.generated and options.generated / f"{name}-generated.jsonl"
        generated = [json.loads(line) for line in path.open(encoding="utf-8")] if path and path.exists() else []
        for who, rows in {"human": human, **({"generator": generated} if generated else {})}.items():
            results["rules"][f"{name} {who}"] = shares(rows, "en")
            for engine, model in engines.items():
                results[engine][f"{name} {who}"] = found(sample(rows, ROWS), passages, model)
                print(name, who, engine, results[engine][f"{name} {who}"], flush=True)
            print(name, who, results["rules"][f"{name} {who}"], flush=True)
    for language, file in OTHER.items():
        results["rules"][f"{Path(file).parent.name} {language}"] = shares(of_file(data / file), language)
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
