"""How long it takes to choose 5 questions of 20 for a passage, against generating the 20.

    python experiments/sets/selection_speed.py RUN/ce --passages 50 --copies 20

RUN is a model of `ask.granularity=paragraph ask.mode=one2one`, of any size: a larger one only makes generating slower.
Passages are of the embedded corpus. Processor seconds of this process: generating is timed on `--passages`, choosing
on `--copies` times as many, each with arrays of its own. A reader, which is a pass of an encoder for each question,
is timed apart; without it quality is the probability of the question.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from make_sets import MEASURED_HERE

from rewards import ReaderScore
from rl_qg.asking.models import reader_path
from rl_qg.asking.set_pool import PassagePool, with_answerability
from rl_qg.asking.sets import SetGenerator, choose
from rl_qg.data.corpus import synthetic_examples

SELECTIONS = ("rand", "top1", "rank", "harmonic", "mmr", "dpp", "coverage")


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--passages", type=int, default=50)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--reader", default="miniature:reader")
    arguments = parser.parse_args()
    corpus = synthetic_examples(20 * arguments.passages, seed=6, prefix="speed")
    contexts = list(dict.fromkeys(example.context for example in corpus))[: arguments.passages]
    generator = SetGenerator.from_pretrained(arguments.model, device="cpu", candidates=20)
    pools: list[PassagePool] = []
    generating = seconds(lambda: pools.extend(generator.pools(contexts)))
    distinct = sum(len(pool.questions) for pool in pools) / len(pools)
    # Samples repeat; a pool is filled up to 20 questions with those of other passages.
    written = [question for pool in pools for question in pool.questions]
    pools = [PassagePool.of(pool.context, [[*pool.questions, *written]]).kept(range(20)) for pool in pools]
    reader = ReaderScore(reader_path(arguments.reader), abstain=True, device="cpu")
    read: list[PassagePool] = []
    reading = seconds(lambda: read.extend(with_answerability(pools, reader)))

    def select(name: str) -> None:
        for pool in read if name == "rank" else pools:
            for _ in range(arguments.copies):
                choose(
                    replace(pool), MEASURED_HERE.get(name, name), 5
                )  # a copy, which computes its similarities again

    per_thousand = 1000 / len(contexts)
    record = {
        "passages": len(contexts),
        "distinct questions of 20": distinct,
        "threads": torch.get_num_threads(),
        "seconds for 1,000 passages": {
            "generating 20": generating * per_thousand,
            "reading 20": reading * per_thousand,
            **{name: seconds(lambda name=name: select(name)) * per_thousand / arguments.copies for name in SELECTIONS},
        },
    }
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
