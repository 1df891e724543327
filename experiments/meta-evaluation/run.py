"""Every metric on every file of human judgements, by `rl-qg correlate`; a run that was killed goes on.

    python experiments/meta-evaluation/run.py --human DIR --output DIR [--encoder MINILM] [--small-models DIR]

Without further arguments the metrics that need no model. `--encoder`: the folder of a pretrained encoder
(all-MiniLM-L6-v2), for embedding metrics and the local part of QRelScore. `--small-models`: a folder with gpt2,
roberta and bart, for the metrics that need a language model. `--only`: names of files.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SMALLEST = Path(__file__).parents[2] / "rl_qg" / "pretrained" / "gpt2"  # shipped: too weak to judge with
OVERLAP: list[Any] = [
    *("bleu1", "bleu2", "bleu3", "bleu4", "coco_bleu1", "coco_bleu4"),
    {"metric": "bleu4", "variant": "nltk", "label": "bleu4_nltk"},
    *("rouge_l", "coco_rouge_l", "meteor", "gleu", "chrf"),
    *("answerability", "q_bleu1", "q_bleu4", "q_rouge_l", "q_meteor"),
]
FREE: list[Any] = [
    {"_target_": "question_length.QuestionLength", "label": "length"},
    {"metric": "answerability", "against": "context", "label": "answerability_context"},
    {"metric": "q_bleu1", "against": "context", "label": "q_bleu1_context"},
]
# What each file offers
DATA: dict[str, set[str]] = {
    "qgeval": {"references", "contexts", "answers"},
    "qgeval_systems": {"references", "contexts", "answers"},
    "lmqg_human": {"references", "contexts", "answers"},
    "simqg": {"references", "contexts"},
    "quiz_design": {"contexts", "answers"},
    "answerability": {"references"},
    "kpqa_marco": {"references"},
    "kpqa_avsd": {"references"},
}


def metrics_for(data: str, encoder: str | None, models: Path | None) -> list[Any]:
    """The metrics that a file can be given to."""
    has = DATA[data]
    chosen: list[Any] = FREE[:1]
    if "references" in has:
        chosen = [*chosen, *OVERLAP]
    if "contexts" in has:
        chosen = [*chosen, *FREE[1:]]
    if encoder:
        chosen += embedding(has, encoder)
    if encoder and models:
        chosen += language_models(has, encoder, models)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--human", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--encoder")
    parser.add_argument("--small-models", type=Path)
    parser.add_argument("--only", nargs="*", default=list(DATA))
    given = parser.parse_args()
    here = Path(__file__).parent
    root = str(here.parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, str(here)])}
    for name in given.only:
        metrics = metrics_for(name, given.encoder, given.small_models)
        command = [sys.executable, "-c", "from rl_qg.cli import main; main()", "correlate"]
        command += [
            f"human={given.human / name}.jsonl",
            f"metrics={written(metrics)}",
            f"output={given.output / name}",
        ]
        print(name, flush=True)
        subprocess.run([*command, "training.use_cpu=true"], check=True, env=environment)


if __name__ == "__main__":
    main()
