"""A new domain of real text: a generator of SQuAD learns to ask about passages whose questions nobody gave it.

    python experiments/learning-by-reward/real_text.py --shared ../shared --models MODELS --output runs/real-text

MODELS holds `minilm` (a pretrained encoder) and `warm` (the generator of experiments/augmentation after its template
questions, which are in `templates.json` beside MODELS). Each step is a command of `rl-qg`, so what is done is not done
again. Half of the passages of a domain are learned from, without their questions; the other half is what everything is
judged on.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rl_qg.data.examples import QAExample, passage_hash, write_squad
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import take

DOMAINS = {"new-wiki": "new_wiki_v1.0.json.gz", "amazon": "amazon_reviews_v1.0.json.gz"}
TARGET, HELD_OUT = 3200, 1000  # answers to learn from, questions to be judged on
TEMPLATES = 3000
COMMON = (
    "model.max_source_length=128",
    "model.max_target_length=40",
    "training.use_cpu=true",
    "training.precision=bf16",
    "training.batch_size=16",
    "training.logging_steps=10",
    "training.eval_samples=32",
    "training.eval_steps=100",
    "training.save_steps=50",
    "training.report_to=none",
    "training.save_total_limit=1",
    "scst.max_new_tokens=32",
)
READER = (
    "training.use_cpu=true",
    "training.precision=bf16",
    "qa.batch_size=16",
    "qa.learning_rate=2e-4",
    "qa.max_length=192",
    "qa.doc_stride=64",
    "qa.save_steps=100",
)
SCST = (
    "stages=scst",
    "scst.baseline=leave_one_out",
    "scst.num_samples=4",
    "scst.schedule=constant",
    "scst.epochs=1",
    "scst.learning_rate=3e-4",
    "scst.unlabelled_share=0.8",
)
TARGETED = ("scst.kl_coefficient=0.3", "scst.kl_target=0.2")
BEST_OF_N = ("algorithm=best_of_n", "data.max_train=800")  # it samples for every answer, with a question or not
ARMS = {  # the reward, and how it is learned from
    "scst-reader": ("reader", TARGETED),
    "best-of-n": ("reader", BEST_OF_N),
    "scst-reader-form": ("form", TARGETED),
    "best-of-n-form": ("form", BEST_OF_N),
}


def reward(kind: str, models: Path) -> list[str]:
    """The reader's log-probability of the answer (its probability is 0 for nearly all questions of this generator);
    or 5 nats more for a text that has the form of a question and copies little.
    """
    reader = f"model: {models / 'reader'}, dtype: bfloat16, measure: log_probability"
    if kind == "reader":
        return ["reward=reader", *(f"reward.{option.replace(': ', '=')}" for option in reader.split(", "))]
    return ["reward=weighted", f"reward.parts={{reader: {{{reader}}}, form: {{weight: 5.0}}}}"]


def run(command: str, *options: str) -> None:
    """Run one command of rl-qg; its output goes to a file beside the first output that it names."""
    target = next(value.partition("=")[2] for value in options if value.startswith(("output_dir=", "output=")))
    log = Path(f"{target}.{command}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as stream:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "rl_qg", command, *options], stdout=stream, stderr=stream, env=environment
        )
    print(f"{'done' if done.returncode == 0 else 'FAILED'}: {command} {target}", flush=True)
    done.check_returncode()


def write_data(shared: Path, folder: Path) -> None:
    """The two halves of each domain, by the hash of the passage; questions of the first half are dropped."""
    for name, file in DOMAINS.items():
        rows = read_examples(shared / "data/squadshifts" / file, role="validation").examples
        halves: tuple[list[QAExample], list[QAExample]] = ([], [])
        for row in sorted(rows, key=lambda row: passage_hash(row.context)):
            halves[int(passage_hash(row.context)[-1], 16) % 2].append(row)
        target, held_out = halves
        write_squad(folder / f"{name}-target.json", [replace(row, question="") for row in target[:TARGET]])
        write_squad(folder / f"{name}-target-gold.json", target[:TARGET])
        write_squad(folder / f"{name}-held-out.json", held_out[:HELD_OUT])


def teach_readers(shared: Path, models: Path) -> list[Callable[[], None]]:
    """The reader of the reward, which abstains, and another one for judging; both read the same SQuAD questions."""
    squad, development = shared / "data/squad/du_test-v1.1.json.gz", shared / "data/squad/dev_part1-v1.1.json.gz"
    data = [f"data.train={squad}", f"data.validation={development}", "data.max_validation=500"]
    start = [f"qa.model.path={models / 'minilm'}", *READER, *data]
    return [
        lambda: run(
            "qa", *start, "qa.max_steps=700", "qa.unanswerable=1", "qa.seeds=[1]", f"output_dir={models / 'reader'}"
        ),
        lambda: run("qa", *start, "qa.max_steps=450", "qa.seeds=[2]", f"output_dir={models / 'other-reader'}"),
    ]


def first_stage(shared: Path, models: Path, output: Path) -> None:
    """Cross-entropy on SQuAD and some template questions, without which so small a model forgets how to copy."""
    templates = output / "data/templates.json"
    if not templates.exists():
        known = read_examples(models.parent / "templates.json", role="train").examples
        write_squad(templates, take(known, TEMPLATES, 0))
    sources = f"[{shared / 'data/squad/du_test-v1.1.json.gz'},{templates}]"
    data = [f"data.train={sources}", f"data.validation={output / 'data/new-wiki-held-out.json'}"]
    run(
        *("train", f"model.path={models / 'warm'}", "stages=ce", "ce.epochs=1", "ce.learning_rate=3e-4"),
        *(*data, *COMMON, "data.max_validation=64", f"output_dir={output / 'ce'}"),
    )


def adapt(shared: Path, models: Path, output: Path, domain: str, arm: str, seed: int) -> None:
    """One generator for a domain: 250 updates, of 16 answers without questions in four of five cases."""
    squad, folder = shared / "data/squad/du_test-v1.1.json.gz", output / domain
    held_out = f"data.validation={output / f'data/{domain}-held-out.json'}"
    start = [f"model.path={output / 'ce/ce'}", f"data.train={squad}", held_out, "data.max_validation=64", *COMMON]
    into = f"output_dir={folder / f'{arm}-{seed}'}"
    if arm == "ce-continued":
        rest = ["stages=ce", f"ce.epochs={250 * 16 / 11877:.5f}", "ce.learning_rate=3e-4"]
    else:
        target = f"data.unlabelled={output / f'data/{domain}-target.json'}"
        kind, options = ARMS[arm]
        rest = [*SCST, *options, *reward(kind, models), "evaluation.check_reward=0", target]
    run("train", *start, *rest, into, f"seed={seed}")


def taught_reader(models: Path, output: Path, domain: str, arm: str, seed: int) -> None:
    """The other reader, fine-tuned on one greedy question for each answer of the domain's first half."""
    folder = output / domain / f"{arm}-{seed}"
    questions, made = folder / "reader/questions.jsonl", folder / "reader/made.json"
    if arm == "gold":
        made = output / f"data/{domain}-target-gold.json"
    else:
        name = "ce" if arm == "ce-continued" else "scst"
        target = f"data.train={output / f'data/{domain}-target.json'}"
        run("generate", f"model.path={folder / name}", target, f"output={questions}", "num_beams=1")
        run("augment", f"questions={questions}", "filters=none", "num_samples=90000", f"output={made}")
    data = [f"data.train={made}", f"data.validation={output / f'data/{domain}-held-out.json'}"]
    start = [f"qa.model.path={models / 'other-reader'}", "qa.max_steps=150", "qa.warmup_fraction=0.1"]
    run(
        "qa",
        *start,
        *READER,
        "qa.learning_rate=5e-5",
        *data,
        f"qa.seeds=[{seed}]",
        f"output_dir={folder / 'reader/qa'}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--domains", nargs="+", default=["new-wiki"], choices=list(DOMAINS))
    parser.add_argument("--arms", nargs="+", default=["ce-continued", *ARMS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--at-once", type=int, default=2)
    given = parser.parse_args()
    shared, models, output = given.shared, given.models, given.output
    if not (output / "data").exists():
        write_data(shared, output / "data")
    jobs: Sequence[tuple[str, str, int]] = [
        (domain, arm, seed) for seed in given.seeds for domain in given.domains for arm in given.arms
    ]
    with ThreadPoolExecutor(given.at_once) as pool:
        first: list[Callable[[], None]] = [lambda: first_stage(shared, models, output)]
        list(pool.map(lambda job: job(), first + teach_readers(shared, models)))
        list(pool.map(lambda job: adapt(shared, models, output, *job), jobs))
        gold = [(domain, "gold", seed) for seed in given.seeds for domain in given.domains]
        list(pool.map(lambda job: taught_reader(models, output, *job), [*gold, *jobs]))


if __name__ == "__main__":
    main()
