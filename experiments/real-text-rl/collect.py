"""Judge the generators of `run.py` on held-out passages by all three rewards, and make the table and the plot.

    python experiments/real-text-rl/collect.py --shared ../shared --models runs/real-text-rl/models \
        --ce runs/real-text-rl/ce/ce --runs runs/real-text-rl/scst --work runs/real-text-rl/collected \
        --output experiments/real-text-rl

The questions judged here are another sample of the validation articles than the one watched during training. Texts
and scores are kept in `--work`, so a second call only judges runs that are new. Differences to the generator before
self-critical training are paired by question: for each question the mean over seeds, then a bootstrap over passages.
That interval says nothing about other seeds; the lowest and the highest seed stand beside it.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from rewards import load
from rl_qg.data.examples import QAExample
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import take
from rl_qg.evaluation.compare_generators import greedy_questions
from rl_qg.scoring.held_out import held_out_measures
from rl_qg.scoring.reward_scorer import RewardScorer
from rl_qg.stats.intervals import PassageDraws, mean_interval, paired_interval

JUDGES = {
    "qrelscore": {"encoder": "minilm", "decoder": "gpt2"},
    "qascore": {"model": "roberta"},
    "bartscore": {"model": "bart"},
}
MEASURES = (
    "bleu4",
    "rouge_l",
    "distinct_1",
    "distinct_2",
    "length_words",
    "copy_rate",
    "no_question_mark",
    "repeated_3grams",
)
PLOTTED = ("eval_reward_greedy", "eval_held_out", "eval_bleu4", "eval_distinct_2", "eval_length_words", "eval_kl")


def judged(name: str, texts: Sequence[str], examples: Sequence[QAExample], models: Path) -> dict[str, Any]:
    """Texts with their three rewards (one number a question, None where a reward failed) and the measures."""
    scores = {}
    for judge, paths in JUDGES.items():
        metric = load(judge, **{key: str(models / path) for key, path in paths.items()})
        verdict = RewardScorer(metric)(examples, texts)
        scores[judge] = [score if math.isfinite(score) else None for score in verdict.scores]
    measures = held_out_measures(
        texts, [example.question for example in examples], [example.context for example in examples]
    )
    measures["distinct_questions"] = len(set(texts)) / len(texts)
    return {
        "name": name,
        "ids": [example.id for example in examples],
        "texts": list(texts),
        "scores": scores,
        "measures": measures,
    }


def kept(work: Path, name: str, examples: Sequence[QAExample], models: Path, policy: Path | None) -> dict[str, Any]:
    """What `work` holds about `name`, or a new judgement; without a policy, of the human questions."""
    file = work / f"{name}.json"
    if file.exists():
        found: dict[str, Any] = json.loads(file.read_text())
        if found["ids"] == [example.id for example in examples]:
            return found
    texts = [example.question for example in examples]
    if policy is not None:
        texts = greedy_questions(policy, examples, name, 32)
    found = judged(name, texts, examples, models)
    work.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found) + "\n")
    print(f"judged {name}", flush=True)
    return found


def difference(
    runs: Sequence[dict[str, Any]], before: dict[str, Any], judge: str, passages: Sequence[str]
) -> dict[str, Any]:
    """Paired difference of a reward over the questions that all of them have a score for."""
    columns = [before["scores"][judge], *(run["scores"][judge] for run in runs)]
    numbers = [number for number, row in enumerate(zip(*columns, strict=True)) if None not in row]
    rows = [tuple(column[number] for column in columns) for number in numbers]
    draws = PassageDraws([passages[number] for number in numbers])
    after = [fmean(row[1:]) for row in rows]
    start = [row[0] for row in rows]
    by_seed = [fmean(row[place] - row[0] for row in rows) for place in range(1, len(columns))]
    return {
        "before": asdict(mean_interval(start, draws)),
        "after": asdict(mean_interval(after, draws)),
        "difference": asdict(paired_interval(after, start, draws)),
        "lowest_seed": min(by_seed),
        "highest_seed": max(by_seed),
    }


def evaluations(folder: Path) -> list[dict[str, float]]:
    """The lines of a run's log that judge the held-out slice."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "eval_reward_greedy" in line]


def summary(
    runs: Sequence[dict[str, Any]], folders: Sequence[Path], before: dict[str, Any], passages: Sequence[str]
) -> dict[str, Any]:
    """What the seeds of one reward did to every reward and measure; `kl` is of the watched slice at the last step."""
    divergence = [evaluations(folder)[-1].get("eval_kl", math.nan) for folder in folders]
    return {
        "seeds": len(runs),
        "rewards": {judge: difference(runs, before, judge, passages) for judge in JUDGES},
        "measures": {
            name: {
                "before": before["measures"][name],
                "after": fmean(run["measures"][name] for run in runs),
                "lowest_seed": min(run["measures"][name] for run in runs),
                "highest_seed": max(run["measures"][name] for run in runs),
            }
            for name in (*MEASURES, "distinct_questions")
        },
        "kl": {"mean": fmean(divergence), "lowest_seed": min(divergence), "highest_seed": max(divergence)},
        "examples": [[run["texts"][row] for run in runs] for row in range(5)],
    }


def table(found: dict[str, Any], before: dict[str, Any], human: dict[str, Any]) -> str:
    """Markdown: a column for each trained reward."""
    names = list(found)
    heads = ["", "human", "before", *(f"{name} ({found[name]['seeds']})" for name in names)]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for judge in JUDGES:
        digits = 3 if judge == "qrelscore" else 2
        cells = [fmean(x for x in one["scores"][judge] if x is not None) for one in (human, before)]
        row = [judge, *(f"{cell:.{digits}f}" for cell in cells)]
        for name in names:
            one = found[name]["rewards"][judge]
            gap = one["difference"]
            low, high = (f"{gap[end]:+.{digits}f}" for end in ("low", "high"))
            row.append(f"{one['after']['mean']:.{digits}f} ({gap['mean']:+.{digits}f} [{low}, {high}])")
        lines.append("| " + " | ".join(row) + " |")
    for measure in (*MEASURES, "distinct_questions"):
        own = "" if measure in ("bleu4", "rouge_l") else f"{human['measures'][measure]:.3f}"
        cells = [own, f"{before['measures'][measure]:.3f}"]
        for name in names:
            one = found[name]["measures"][measure]
            cells.append(f"{one['after']:.3f} ({one['lowest_seed']:.3f} to {one['highest_seed']:.3f})")
        lines.append("| " + " | ".join([measure, *cells]) + " |")
    spans = [found[name]["kl"] for name in names]
    cells = ["", "0", *(f"{k['mean']:.2f} ({k['lowest_seed']:.2f} to {k['highest_seed']:.2f})" for k in spans)]
    lines.append("| " + " | ".join(["KL, nats per token", *cells]) + " |")
    return "\n".join(lines)


def plot(groups: dict[str, list[Path]], output: Path) -> None:
    """Course of the watched measures, a line for each run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        len(PLOTTED), len(groups), figsize=(2.6 * len(groups), 1.4 * len(PLOTTED)), sharex="col", squeeze=False
    )
    for column, (name, folders) in enumerate(groups.items()):
        axes[0][column].set_title(name, fontsize=9)
        for folder in folders:
            lines = evaluations(folder)
            for row, key in enumerate(PLOTTED):
                points = [(line["step"], line[key]) for line in lines if key in line]
                if points:
                    axes[row][column].plot(*zip(*points, strict=True), marker=".", linewidth=1)
    for row, key in enumerate(PLOTTED):
        axes[row][0].set_ylabel(key.removeprefix("eval_"), fontsize=7)
        for axis in axes[row]:
            axis.tick_params(labelsize=6)
    for axis in axes[-1]:
        axis.set_xlabel("updates", fontsize=7)
    figure.tight_layout()
    figure.savefig(output, dpi=70)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("shared", "models", "ce", "runs", "work", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--examples", type=int, default=300)
    args = parser.parse_args()
    file = args.shared / "data" / "squad" / "dev_part1-v1.1.json.gz"
    validation = read_examples(str(file), role="validation").examples
    watched = {example.id for example in take(validation, 96, 0)}
    examples = [one for one in take(validation, args.examples + 96, 1) if one.id not in watched][: args.examples]
    human = kept(args.work, "human", examples, args.models, None)
    before = kept(args.work, "ce", examples, args.models, args.ce)
    groups: dict[str, list[Path]] = {}
    for folder in sorted(args.runs.iterdir()):
        if (folder / "trained.json").exists() and (folder / "scst").exists():
            reward, _, course = folder.name.rpartition("-")
            groups.setdefault(folder.name if course == "pushed" else reward, []).append(folder)
    found = {}
    for name, folders in groups.items():
        runs = [kept(args.work, folder.name, examples, args.models, folder / "scst") for folder in folders]
        found[name] = summary(runs, folders, before, [example.context for example in examples])
    result = {
        "questions": len(examples),
        "passages": len({example.context for example in examples}),
        "human": human["measures"],
        "before": before["measures"],
        "trained_with": found,
    }
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "results.json").write_text(json.dumps(result, indent=2) + "\n")
    if groups:
        plot(groups, args.output / "course.png")
    print(table(found, before, human))


if __name__ == "__main__":
    main()
