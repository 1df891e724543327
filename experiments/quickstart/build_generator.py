"""Rebuild `miniature:questions`, the generator of the embedded corpus that ships with the package.

    python experiments/quickstart/build_generator.py                 # train, store, measure
    python experiments/quickstart/build_generator.py --trained RUN/ce  # store and measure a trained one

The packaged `bart` learns questions and answers (`model.task=multitask`) by cross-entropy from the training passages
of `preset=quickstart`, all with their questions. The package gets the difference from `bart` in low rank
(`rl_qg.miniatures.cache`), and the manifest what the stored model does on fresh passages. About ten
minutes on one core, four on two.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from rl_qg.commands.cli import run_command
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample
from rl_qg.data.oracle import judgements
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.loading import load_seq2seq
from rl_qg.generation.propose_answers import GeneratedAnswers
from rl_qg.miniatures.cache import (
    BASE,
    DIFFERENCE,
    LEFT,
    QUESTIONS,
    RIGHT,
    ROWS,
    SHIPPED,
    generator_folder,
)
from rl_qg.runtime.files import write_json

RANK = 40
SETTINGS = [
    *("preset=quickstart", "model.task=multitask", "stages=ce", "data.labelled_fraction=1", "data.max_train=null"),
    *("ce.epochs=4", "ce.learning_rate=1.5e-3", "training.eval_steps=10000", "training.save_steps=10000"),
]


def train(folder: Path) -> Path:
    """Train into a run folder; return the folder of the model."""
    run_command("train", [*SETTINGS, f"output_dir={folder}"])
    return folder / "ce"


@torch.no_grad()
def difference(base: PreTrainedModel, trained: PreTrainedModel, rank: int) -> dict[str, Tensor]:
    """What `trained` differs in from `base`, in half precision: of a matrix (m, n) the factors (m, r) and (r, n) of
    the best approximation of rank r (Eckart and Young 1936), the rows that it has in addition; other weights whole.
    """
    parts: dict[str, Tensor] = {}
    before = base.state_dict()
    for name, weight in trained.named_parameters():
        rows = len(before[name])
        change = weight[:rows] - before[name]
        if len(weight) > rows:
            parts[name + ROWS] = weight[rows:]
        if change.dim() == 2 and min(change.shape) > rank:
            u, s, v = torch.linalg.svd(change, full_matrices=False)
            root = s[:rank].sqrt()
            parts[name + LEFT], parts[name + RIGHT] = u[:, :rank] * root, root[:, None] * v[:rank]
        elif change.any():
            parts[name] = change
    return {name: part.half().contiguous() for name, part in parts.items()}


def store(trained: Path) -> None:
    """Write the difference from `bart` into the package, and what the stored model does into the manifest."""
    base, model = (load_seq2seq(str(folder))[0] for folder in (BASE, trained))
    DIFFERENCE.parent.mkdir(exist_ok=True)
    save_file(difference(base, model, RANK), DIFFERENCE)
    manifest = json.loads((SHIPPED / "manifest.json").read_text())
    with tempfile.TemporaryDirectory() as cache:
        scores = measure(generator_folder(QUESTIONS, cache))
    print(f"whole: {measure(str(trained))}\nstored: {scores}")
    write_json(SHIPPED / "manifest.json", {**manifest, "questions": {"rank": RANK, **scores}})


def fresh_examples() -> list[QAExample]:
    """Examples that no miniature has seen."""
    return list(synthetic_examples(40, seed=1, prefix="fresh"))


def measure(folder: str) -> dict[str, float]:
    """The share of greedy questions that the oracle finds right, and precision and recall of the answers that the
    model writes, as spans at their places, on fresh passages.
    """
    generator, examples = CandidateGenerator(folder, device=torch.device("cpu")), fresh_examples()
    questions: list[str] = []
    for start in range(0, len(examples), 32):
        questions += generator.greedy(examples[start : start + 32], max_new_tokens=40)
    right = [one is not None and one.verdict == "right" for one in judgements(questions, examples)]
    precision, recall = _answers(generator, examples)
    return {"right": _share(right), "answer_precision": precision, "answer_recall": recall}


def _answers(generator: CandidateGenerator, examples: Sequence[QAExample]) -> tuple[float, float]:
    contexts = list(dict.fromkeys(example.context for example in examples))
    gold = {(example.context, example.answers[0].start, example.answers[0].text) for example in examples}
    found = {
        (context, span.start, context[span.start : span.end])
        for context, spans in zip(contexts, GeneratedAnswers(generator, None, beams=1)(contexts), strict=True)
        for span in spans
    }
    return _share([span in gold for span in found]), _share([span in found for span in gold])


def _share(hits: Sequence[bool]) -> float:
    return round(sum(hits) / max(1, len(hits)), 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trained", type=Path)
    arguments = parser.parse_args()
    if arguments.trained:
        store(arguments.trained)
    else:
        with tempfile.TemporaryDirectory() as work:
            store(train(Path(work) / "run"))
