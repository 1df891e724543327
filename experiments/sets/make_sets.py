"""The pool of questions about every passage of a file, or the sets that selections take from pools.

    python experiments/sets/make_sets.py pool passages.json --model MODEL --output pool.jsonl [--reader R]
    python experiments/sets/make_sets.py select pool.jsonl --references passages.json --number 5 --output FOLDER

A pool is made once, and every selection takes its set from the same one. Seconds are those of writing the questions
and of their answerability; `seconds.json` has those of the selections.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from selections import dpp_of_pool, harmonic_of_pool, oracle

from rl_qg.asking.learned_selector import reference_scores, train_selector
from rl_qg.asking.set_pool import PassagePool
from rl_qg.asking.sets import SetGenerator, choose
from rl_qg.data.reading import read_examples
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.files import atomic_writer, write_json

AT_ONCE = 8  # passages
SELECTIONS = ("all", "rand", "top1", "rank", "harmonic", "mmr", "dpp", "coverage", "auto", "learned", "oracle")
MEASURED_HERE = {"harmonic": harmonic_of_pool, "dpp": dpp_of_pool}
SEED = 1


def human_questions(path: Path) -> dict[str, list[str]]:
    """The human questions of each passage."""
    questions: dict[str, list[str]] = {}
    for example in read_examples(path, role="validation").examples:
        questions.setdefault(example.context, []).append(example.question)
    return questions


def write_pools(passages: Path, output: Path, generator: SetGenerator) -> None:
    """One line for each passage: its pool, and its share of the seconds of its batch."""
    contexts = [*human_questions(passages)]
    with atomic_writer(output) as stream:
        for start in ProgressBar(range(0, len(contexts), AT_ONCE), desc="pool", unit="batch"):
            begun = time.perf_counter()
            pools = generator.pools(contexts[start : start + AT_ONCE], seed=SEED)
            seconds = (time.perf_counter() - begun) / len(pools)
            for pool in pools:
                stream.write(json.dumps({**pool.to_dict(), "seconds": seconds}) + "\n")


def read_pools(path: Path) -> list[PassagePool]:
    """The pools of a file."""
    return [PassagePool.from_dict(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def write_sets(pools: Iterable[PassagePool], take: Callable[[PassagePool], list[str]], output: Path) -> float:
    """The set of each pool, as `rl-qg evaluate` reads it; the seconds that selection took."""
    begun = time.process_time()
    sets = [(pool.context, take(pool)) for pool in pools]
    seconds = time.process_time() - begun
    with atomic_writer(output) as stream:
        for context, questions in sets:
            stream.write(
                json.dumps({"context": context, "questions": [{"question": one} for one in questions]}) + "\n"
            )
    return seconds


def select(given: argparse.Namespace) -> None:
    pools = read_pools(given.input)
    human = human_questions(given.references)
    selector = None
    if "learned" in given.selections:
        learned_from = read_pools(given.learn_from)
        asked = human_questions(given.learn_references)
        selector = train_selector(learned_from, [asked[pool.context] for pool in learned_from])
        selector.save(given.output / "selector.json")

    def taken(name: str) -> Callable[[PassagePool], list[str]]:
        def take(pool: PassagePool) -> list[str]:
            if name == "oracle":
                rows = oracle(reference_scores(pool.texts, human[pool.context]), given.number)
                return [pool.texts[row] for row in rows]
            if name == "auto":
                chosen = choose(pool, "coverage", "auto")
            else:
                number = None if name in ("all", "top1") else given.number
                chosen = choose(pool, MEASURED_HERE.get(name, name), number, seed=SEED, selector=selector)
            return [question.question for question in chosen.questions]

        return take

    seconds = {name: write_sets(pools, taken(name), given.output / f"{name}.jsonl") for name in given.selections}
    write_json(given.output / "seconds.json", seconds | {"passages": len(pools)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("pool", "select"))
    parser.add_argument("input", type=Path, help="passages with human questions, or a pool")
    parser.add_argument("--output", type=Path, required=True, help="a file of pools, or a folder of sets")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--worthiness", type=Path)
    parser.add_argument("--types", type=Path)
    parser.add_argument("--reader", type=Path)
    parser.add_argument("--references", type=Path, help="the human questions, for the oracle")
    parser.add_argument("--number", type=int, default=5)
    parser.add_argument("--selections", nargs="+", choices=SELECTIONS, default=["all"])
    parser.add_argument("--learn-from", type=Path, help="pools of other passages, for the learned selector")
    parser.add_argument("--learn-references", type=Path, help="the human questions about these")
    given = parser.parse_args()
    if given.command == "select":
        given.output.mkdir(parents=True, exist_ok=True)
        select(given)
    else:
        folders = {name: getattr(given, name) for name in ("worthiness", "types", "reader")}
        write_pools(given.input, given.output, SetGenerator.from_pretrained(given.model, device="cpu", **folders))


if __name__ == "__main__":
    main()
