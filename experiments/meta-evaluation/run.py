"""Every metric on every file of human judgements, by `rl-qg correlate`; a run that was killed goes on.

    python experiments/meta-evaluation/run.py --human DIR --output DIR [--encoder MINILM] [--keyphrases DIR]

Without further arguments the metrics that need no model. `--encoder`: the folder of a pretrained encoder
(all-MiniLM-L6-v2), for embedding metrics and the local part of QRelScore. `--keyphrases`: a folder of `rl-qg
train-kpqa`, for the metrics weighted by it; `--keyphrases-alone`: one trained with `train_kpqa.question=false`.
`--small-models`: a folder with gpt2, roberta and bart, for the metrics that need a language model. `--only`: names of
files.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SMALLEST = (
    Path(__file__).parents[2] / "rl_qg" / "miniatures" / "pretrained" / "gpt2"
)  # shipped: too weak to judge with
OVERLAP: list[Any] = [
    *(f"bleu{order}" for order in range(1, 5)),
    *(f"coco_bleu{order}" for order in range(1, 5)),
    {"metric": "bleu4", "variant": "nltk", "label": "bleu4_nltk"},
    *("rouge_l", "coco_rouge_l", "meteor", "gleu", "chrf"),
    *("answerability", "q_rouge_l", "q_meteor", *(f"q_bleu{order}" for order in range(1, 5))),
]
FREE: list[Any] = [
    {"_target_": "question_length.QuestionLength", "label": "length"},
    "faithfulness",
    {"metric": "answerability", "against": "context", "label": "answerability_context"},
    *(
        {"metric": name, "against": "context", "label": f"{name}_context"}
        for name in ("q_bleu1", "q_bleu4", "q_rouge_l", "q_meteor")
    ),
]
EVERYTHING = {"references", "contexts", "answers"}
# What each file offers
DATA: dict[str, set[str]] = {
    "qgeval": EVERYTHING,
    "qgeval_systems": EVERYTHING,
    "qgeval_judges": EVERYTHING,
    "lmqg_human": EVERYTHING,
    "simqg": {"references", "contexts"},
    "quiz_design": {"contexts", "answers"},
    "answerability": {"references"},
    "kpqa_marco": {"references", "questions"},  # rows are answers, their contexts the questions
    "kpqa_avsd": {"references", "questions"},
}


def add_models(parser: argparse.ArgumentParser) -> None:
    """The options that say which models there are."""
    parser.add_argument("--encoder")
    parser.add_argument("--keyphrases")
    parser.add_argument("--keyphrases-alone")
    parser.add_argument("--small-models", type=Path)


def metrics_for(has: set[str], given: argparse.Namespace) -> list[Any]:
    """The metrics for what a file has, by the models that are given."""
    chosen: list[Any] = FREE[:1]
    if "references" in has:
        chosen = [*chosen, *OVERLAP]
    if "contexts" in has:
        chosen = [*chosen, *FREE[1:]]
    if given.encoder:
        chosen += embedding(has, given.encoder)
    if "references" in has:
        chosen += weighted(has, given.keyphrases, given.keyphrases_alone)
    if given.encoder and given.small_models:
        chosen += language_models(has, given.encoder, given.small_models)
    return chosen


def embedding(has: set[str], encoder: str) -> list[Any]:
    """BERTScore, MoverScore, and the local part of QRelScore: its decoder, which that part does not read, is small."""
    chosen: list[Any] = []
    if "references" in has:
        chosen.append({"metric": "bertscore", "model": encoder, "label": "bertscore"})
        chosen += [{"metric": "moverscore", "model": encoder, "n": n, "label": f"moverscore{n}"} for n in (1, 2)]
    if "contexts" in has:
        for part in ("precision", "recall"):
            label = f"bertscore_context_{part[0]}"
            chosen.append(
                {"metric": "bertscore", "model": encoder, "against": "context", "part": part, "label": label}
            )
        local = {"metric": "qrelscore", "encoder": encoder, "decoder": str(SMALLEST), "score": "lrm"}
        chosen.append({**local, "label": "qrelscore_local"})
    return chosen


def weighted(has: set[str], predictor: str | None, alone: str | None) -> list[Any]:
    """KPQA's metrics: of answers under the question they answer, of questions under the answer they ask for; and
    under a predictor that reads the text alone (`_kp`), the paper's ablation.
    """
    condition = "context" if "questions" in has else "answer" if "answers" in has else None
    chosen = [(predictor, condition, "kpqa")] if predictor and condition else []
    chosen += [(alone, "none", "kp")] if alone else []
    return [
        {"metric": f"{name}_kpqa", "model": model, "condition": condition, "label": f"{name}_{label}"}
        for model, condition, label in chosen
        for name in ("bleu1", "rouge_l", "bertscore")
    ]


def language_models(has: set[str], encoder: str, models: Path) -> list[Any]:
    """QRelScore, QAScore and BARTScore with small language models."""
    if "contexts" not in has:
        return []
    decoder = str(models / "gpt2")
    chosen: list[Any] = [
        {"metric": "qrelscore", "encoder": encoder, "decoder": decoder, "label": "qrelscore_small"},
        {"metric": "bartscore", "model": str(models / "bart"), "label": "bartscore_small"},
    ]
    if "answers" in has:
        chosen.append({"metric": "qascore", "model": str(models / "roberta"), "label": "qascore_small"})
    return chosen


def written(value: Any) -> str:
    """A list or mapping as Hydra reads it on the command line."""
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}: {written(item)}" for key, item in value.items()) + "}"
    return f"'{value}'" if isinstance(value, str) and not value.replace("_", "").isalnum() else str(value)


def judge(command: str, arguments: list[str], metrics: list[Any]) -> None:
    """Run a command of `rl-qg` with these metrics, those of this folder among them."""
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parents[1]), str(here)])}
    line = [sys.executable, "-c", "from rl_qg.commands.cli import main; main()", command, *arguments]
    subprocess.run([*line, f"metrics={written(metrics)}", "training.use_cpu=true"], check=True, env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--human", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    add_models(parser)
    parser.add_argument("--only", nargs="*", default=list(DATA))
    given = parser.parse_args()
    for name in given.only:
        print(name, flush=True)
        arguments = [f"human={given.human / name}.jsonl", f"output={given.output / name}"]
        judge("correlate", arguments, metrics_for(DATA[name], given))


if __name__ == "__main__":
    main()
