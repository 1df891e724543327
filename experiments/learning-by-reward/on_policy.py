"""Teach the packaged reader again with what the generators of CE and SCST wrote, and train SCST anew with that reader.

    python experiments/learning-by-reward/on_policy.py --output RUNS --seeds 22 12 1 --labels gates
    python experiments/learning-by-reward/on_policy.py --output RUNS --seeds 22 12 1 --labels oracle
    python experiments/learning-by-reward/on_policy.py --output RUNS --seeds 22 12 1 --labels words --scst

Reads the generators that `run.py --arms ce scst` left in RUNS. The unanswerable questions, from sampled questions
about the seed's training passages, by labels: `gates`: those to which `reward=gated` gives 0. `words`: human questions
of the reader's own passages with one word replaced by one of a sampled question that begins with the same two words.
`oracle`: of LABELLED sampled questions that pass the gates the oracle says which are right and which are not; this is
what people could do by hand, and the only kind with truth about the generator's passages. Writes what `rl-qg separate`
says of the packaged and the new reader into `on-policy.json` beside this file; with `--scst` the new generator's
measures go into `variants.json`.
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from run import ARMS, SCST, Experiment, greedy, keep, keep_variant, measures
from world_settings import WORLD_SETTINGS

from rewards import load
from rewards.words import split_question_mark
from rl_qg.commands.compose import compose
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample
from rl_qg.data.oracle import examine
from rl_qg.data.splits import load_splits
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.readers.train_reader import train_reader
from rl_qg.scoring.separation import sampler, separation
from rl_qg.settings import QAModelSettings

ANSWERS = 1500  # of the training passages; about each the generators of CE and of SCST sample a question
OWN_PASSAGES = 1000  # of the reader's 4,000
LABELLED = 400  # questions that the oracle labels
UNANSWERABLE = 1500  # questions added to the reader's training, with repetitions
UNSUITABLE = ("wrong_relation", "other_subject")  # the passage may answer these: neither right nor unanswerable
RESULTS = Path(__file__).with_name("on-policy.json")


def gates(reader: Path) -> Any:
    """The experiment's reward."""
    faithfulness = {"measure": "all", "unnamed": 0.0, "whole": True}
    form = {"max_copied": 8, "vocabulary": str(reader)}
    parts = {"reader": {"model": str(reader), "weight": 0.25}, "form": form, "faithfulness": faithfulness}
    return load("product", parts=parts)


def sampled(experiment: Experiment) -> list[QAExample]:
    """Questions that the generators sample about answers of the training passages whose questions are not known."""
    splits = load_splits(compose("train", [*WORLD_SETTINGS, *experiment.data]).data)
    examples, texts = random.Random(experiment.seed).sample(splits.unlabelled, ANSWERS), list[QAExample]()
    for arm in ("ce", "scst"):
        generator = CandidateGenerator(experiment.model(arm), device=torch.device("cpu"))
        for start in range(0, ANSWERS, 32):
            part = examples[start : start + 32]
            groups = generator.candidates(part, 1, max_new_tokens=40, top_p=0.9, temperature=1.0, seed=1)
            texts += [
                replace(one, id=f"{one.id}-{arm}", question=group[0].question)
                for one, group in zip(part, groups, strict=True)
            ]
    return texts


def negatives(experiment: Experiment, labels: str, own: Sequence[QAExample]) -> tuple[list[QAExample], dict[str, int]]:
    """Examples without an answer (for `oracle` with right ones too), and how many there are of each kind."""
    written, rng = sampled(experiment), random.Random(experiment.seed)
    if labels == "words":
        found = other_words(own, written, rng)
        return found, {"unanswerable": len(found)}
    contexts, answers = [one.context for one in written], [one.answers[0].text for one in written]
    scores = gates(SHIPPED / "reader").score([one.question for one in written], contexts, answers=answers).scores
    if labels == "gates":
        found = [replace(one, answers=()) for one, score in zip(written, scores, strict=True) if score == 0]
        return found, {"unanswerable": len(found), "sampled": len(written)}
    passing = [one for one, score in zip(written, scores, strict=True) if score > 0]
    judged = [(one, examine(one.question, one)) for one in rng.sample(passing, LABELLED)]
    found = [one for one, verdict in judged if verdict is not None and verdict.verdict == "right"]
    wrong = [
        replace(one, answers=())
        for one, verdict in judged
        if verdict is not None and verdict.verdict not in ("right", *UNSUITABLE)
    ]
    return [*found, *wrong], {"unanswerable": len(wrong), "right": len(found), "labelled": len(judged)}


def other_words(own: Sequence[QAExample], written: Sequence[QAExample], rng: random.Random) -> list[QAExample]:
    """Human questions with one word replaced by one of a sampled question that begins alike; no names."""
    alike: dict[tuple[str, ...], list[list[str]]] = defaultdict(list)
    for one in written:
        words = split_question_mark(one.question)[0].split()
        alike[tuple(words[:2])].append(words)
    found = []
    for one in own:
        text, mark = split_question_mark(one.question)
        words = text.split()
        others = [word for word in rng.choice(alike.get(tuple(words[:2])) or [[]])[2:] if word.islower()]
        places = [place for place in range(2, len(words)) if words[place].islower()]
        if others and places:
            place, word = rng.choice(places), rng.choice(others)
            if word not in words:
                changed = " ".join([*words[:place], word, *words[place + 1 :]]) + mark
                found.append(replace(one, id=f"{one.id}-other-word", question=changed, answers=()))
    return found


def teach_again(experiment: Experiment, labels: str, folder: Path) -> dict[str, int]:
    """Continue to train the packaged reader, on its own questions, those made by rule, and the new ones."""
    own = list(synthetic_examples(OWN_PASSAGES, seed=0, prefix="reader"))
    found, counts = negatives(experiment, labels, own)
    unanswerable = sum(not one.answers for one in found)
    times = min(10, max(1, UNANSWERABLE // max(1, unanswerable)))
    added = [replace(one, id=f"{one.id}-{n}") for n in range(times) for one in found]
    random.Random(0).shuffle(added)
    options = ["qa.epochs=1", "qa.learning_rate=3e-4", "qa.batch_size=16", "qa.unanswerable=1.0", "qa.seeds=[0]"]
    qa = replace(compose("qa", [*WORLD_SETTINGS, *options]).qa, model=QAModelSettings(str(SHIPPED / "reader")))
    fresh = list(synthetic_examples(60, seed=1, prefix="fresh"))
    limit = 2 * UNANSWERABLE
    train_reader([*own, *added[:limit]], fresh, settings=qa, output_dir=folder, use_cpu=True)
    return counts | {"times": times, "added": min(limit, len(added))}


def told(experiment: Experiment, reader: Path) -> dict[str, Any]:
    """What `rl-qg separate` says of a reader, on 400 held-out answers and what SCST's generator samples."""
    generator = CandidateGenerator(experiment.model("scst"), device=torch.device("cpu"))
    draw = partial(sampler, "scst", generator, 4, max_new_tokens=40, top_p=0.9, temperature=1.0, seed=0)
    record = separation(load("reader", model=str(reader)), experiment.held_out()[:400], sampler=draw())
    keys = ("share", "answers", "auc", "auc_low", "auc_high", "mean")
    kinds = record["sampled"]["kinds"] | {"all wrong": record["sampled"]["wrong"]}
    return {
        "by_rule": {kind: pair["auc"] for kind, pair in record["pairs"].items()},
        "sampled": {kind: {key: found[key] for key in keys if key in found} for kind, found in kinds.items()},
        "mean_human": record["mean"],
    }


def again(experiment: Experiment, labels: str) -> tuple[str, str]:
    """The settings of a reward with the new reader; known words stay those of the packaged one."""
    reader = experiment.folder / "reward-readers" / labels
    return f"reward_models.reader={reader}", f"reward.parts.form.vocabulary={SHIPPED / 'reader'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the folder that run.py was given")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--labels", choices=("gates", "words", "oracle"), required=True)
    parser.add_argument("--scst", action="store_true", help="train SCST with the new reader too, and judge it")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for seed in given.seeds:
        experiment, arm = Experiment(given.output, 0.02, seed), f"scst-{given.labels}"
        folder = experiment.folder / "reward-readers" / given.labels
        if not (folder / "qa_metrics.json").exists():
            counts = teach_again(experiment, given.labels, folder)
            found = {"packaged": {"separate": told(experiment, SHIPPED / "reader")}}
            found[given.labels] = {"training": counts, "separate": told(experiment, folder)}
            keep(0.02, seed, found, RESULTS)
        if given.scst:
            unnamed = ("reward.parts.faithfulness.unnamed=0", "reward.parts.faithfulness.whole=true")
            ARMS[arm] = (*SCST, "reward=gated", *unnamed, *again(experiment, given.labels))
            experiment.train(arm)
            questions = greedy(experiment.model(arm), experiment.held_out())
            keep_variant(
                f"reader taught again: {given.labels}", str(seed), measures(questions, experiment.held_out(), None)
            )


if __name__ == "__main__":
    main()
