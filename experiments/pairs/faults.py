"""What QAAligned and the one-to-one assignment give to pairs whose quality is known: human pairs of SQuAD, changed.

    python experiments/pairs/faults.py --shared ../shared --model MODELS/minilm --output experiments/pairs/faults.json

Each row replaces the predictions of all passages; the references are all human pairs of the passage.
"""

import argparse
from pathlib import Path
from typing import Any

from rewards import QAAligned, load
from rewards.sets import Pair
from rl_qg.data.reading import read_examples
from rl_qg.runtime.files import write_json

REWORDED = ("{}", "Tell me: {}", "Do you know: {}", "In this text, {}", "Please say: {}")


def passages(path: Path, count: int) -> list[list[Pair]]:
    """The human pairs of passages with at least three, spread over the file."""
    groups: dict[str, list[Pair]] = {}
    for one in read_examples(path, role="train").examples:
        groups.setdefault(one.context, []).append((one.question, one.answers[0].text))
    large = [list(dict.fromkeys(pairs)) for pairs in groups.values() if len(set(pairs)) > 2]
    return large[:: max(1, len(large) // count)][:count]


def systems(human: list[list[Pair]]) -> dict[str, list[list[Pair]]]:
    """Predictions by name."""
    far = human[len(human) // 2 :] + human[: len(human) // 2]
    return {
        "all human pairs": human,
        "the first human pair": [pairs[:1] for pairs in human],
        "the first human pair in five wordings": [
            [(form.format(pairs[0][0]), pairs[0][1]) for form in REWORDED] for pairs in human
        ],
        "human questions, each with the answer of the next": [
            [(question, pairs[(at + 1) % len(pairs)][1]) for at, (question, _) in enumerate(pairs)] for pairs in human
        ],
        "human pairs of a passage of another article": far,
        "the template alone": [[("", "")]] * len(human),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="an encoder for BERTScore; without it ROUGE-L alone")
    parser.add_argument("--passages", type=int, default=200)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    human = passages(given.shared / "data/squad/du_test-v1.1.json.gz", given.passages)
    metrics = {"rouge_l": load("rouge_l")}
    if given.model:
        metrics["bertscore precision"] = load("bertscore", model=str(given.model), part="precision", device="cpu")
    rows: list[dict[str, Any]] = []
    for label, metric in metrics.items():
        for name, predictions in systems(human).items():
            scores = QAAligned(metric).score(predictions, human).mean()
            rows.append({"metric": label, "predictions": name, **{part: round(v, 4) for part, v in scores.items()}})
            print(rows[-1], flush=True)
    signatures = {label: QAAligned(metric).signature for label, metric in metrics.items()}
    write_json(given.output, {"passages": len(human), "rows": rows, "signatures": signatures})


if __name__ == "__main__":
    main()
