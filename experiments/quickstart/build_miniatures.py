"""Rebuild the miniatures that ship with the package (rl_qg/miniatures/pretrained), or check that they match a rebuild.

    python experiments/quickstart/build_miniatures.py --output rl_qg/miniatures/pretrained
    python experiments/quickstart/build_miniatures.py --check       # rebuilds into a temporary folder and compares
    python experiments/quickstart/build_miniatures.py --reader      # the reader alone
    python experiments/quickstart/build_generator.py                # then: miniature:questions, which depends on bart

About half an hour on two cores. The text is 6,000 passages of the embedded corpus that no run trains or evaluates on;
the reader is taught by the questions of 4,000 others, and as many unanswerable ones.
"""

import argparse
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
)

from rewards import ReaderScore
from rl_qg.commands.compose import compose
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample
from rl_qg.miniatures.cache import SHIPPED, pretrain, shipping_key, text_hash
from rl_qg.miniatures.in_settings import pretraining_passages, pretraining_text
from rl_qg.miniatures.recipes import RECIPES, PretrainingPassage
from rl_qg.readers.train_reader import train_reader
from rl_qg.runtime.files import write_json
from rl_qg.runtime.processes import available_cores, worker_pool
from rl_qg.settings import MiniatureSettings, QAModelSettings

READER = {"passages": 4000, "qa.epochs": 3, "qa.batch_size": 16, "qa.unanswerable": 1.0}
STEPS = {"bart": 2400, "gpt2": 3000, "bert": 1500, "distilbert": 800, "roberta": 800}
CLASSES = {"bart": AutoModelForSeq2SeqLM, "gpt2": AutoModelForCausalLM}


def training_text() -> tuple[list[PretrainingPassage], MiniatureSettings]:
    settings = compose("pipeline", ["preset=quickstart"])
    return pretraining_text(settings.data, []), settings.miniature


def build(output: Path) -> None:
    passages, settings = training_text()
    work = Path(tempfile.mkdtemp())
    with worker_pool(available_cores(), threads=1) as pool:
        jobs = [
            pool.submit(
                pretrain,
                kind,
                passages,
                replace(settings, steps=steps, metric_steps=steps),
                work / kind,
                row,
            )
            for row, (kind, steps) in enumerate(STEPS.items())
        ]
        for job in jobs:
            job.result()
    ship(work, output, passages, settings)


def build_reader(output: Path) -> None:
    """Train the reader on passages of its own, from the miniature encoder, and store it in half precision."""
    work = Path(tempfile.mkdtemp())
    settings = compose(
        "qa", ["preset=quickstart", "qa.seeds=[0]", *(f"{k}={v}" for k, v in READER.items() if "." in k)]
    )
    qa = replace(settings.qa, model=QAModelSettings(str(output / "distilbert")))
    passages = list(synthetic_examples(READER["passages"], seed=0, prefix="reader"))
    train_reader(passages, reader_validation(), settings=qa, output_dir=work, use_cpu=True)
    store_reader(work, output)


def store_reader(trained: Path, output: Path) -> None:
    """Store a trained reader in half precision, and how well it reads in the manifest."""
    shutil.rmtree(output / "reader", ignore_errors=True)
    AutoModelForQuestionAnswering.from_pretrained(trained, dtype=torch.float16).save_pretrained(output / "reader")
    AutoTokenizer.from_pretrained(trained).save_pretrained(output / "reader")
    manifest = json.loads((output / "manifest.json").read_text())
    write_json(output / "manifest.json", {**manifest, "reader": READER | {"f1": reader_f1(output / "reader")}})


def reader_validation() -> list[QAExample]:
    return list(synthetic_examples(60, seed=1, prefix="fresh"))


def reader_f1(folder: Path) -> float:
    """F1 of the reader on fresh passages of the corpus, from 0 to 1."""
    examples = reader_validation()
    metric = ReaderScore(str(folder), measure="f1", abstain=False, max_length=192, stride=64)
    questions, contexts = [e.question for e in examples], [e.context for e in examples]
    scores = metric.score(questions, contexts, answers=[e.answers[0].text for e in examples]).scores
    return round(sum(scores) / len(scores), 4)


def ship(work: Path, output: Path, passages: list[PretrainingPassage], settings: MiniatureSettings) -> None:
    """Store weights in half precision, tokenizers as they are, and what they were made from."""
    for kind in STEPS:
        shutil.rmtree(output / kind, ignore_errors=True)
        model = CLASSES.get(kind, AutoModelForMaskedLM).from_pretrained(work / kind, dtype=torch.float16)
        model.save_pretrained(output / kind)
        AutoTokenizer.from_pretrained(work / kind).save_pretrained(output / kind)
    losses = {kind: held_out_loss(output / kind, kind) for kind in STEPS}
    key = shipping_key(text_hash(passages), settings)
    write_json(output / "manifest.json", {"key": key, "steps": STEPS, "held_out_loss": losses})
    build_reader(output)


@torch.no_grad()
def held_out_loss(folder: Path, kind: str) -> float:
    """Loss of the pretraining objective on fresh passages of the corpus."""
    fresh = pretraining_passages(list(synthetic_examples(64, seed=1, prefix="fresh")))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = CLASSES.get(kind, AutoModelForMaskedLM).from_pretrained(folder, dtype=torch.float32).eval()
    torch.manual_seed(0)
    batch = RECIPES[kind].objective(tokenizer, 256)(fresh)
    return round(float(model(**batch).loss), 4)


def check() -> None:
    rebuilt = Path(tempfile.mkdtemp())
    build(rebuilt)
    ours, theirs = (json.loads((folder / "manifest.json").read_text()) for folder in (SHIPPED, rebuilt))
    assert ours["key"] == theirs["key"], "the shipped miniatures were made from other text or recipes"
    for kind, loss in ours["held_out_loss"].items():
        print(f"{kind}: shipped {loss}, rebuilt {theirs['held_out_loss'][kind]}")
        assert abs(loss - theirs["held_out_loss"][kind]) < 0.05 * loss + 0.02, kind
    print(f"reader: shipped {ours['reader']}, rebuilt {theirs['reader']}")
    assert abs(ours["reader"]["f1"] - theirs["reader"]["f1"]) < 0.05


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=SHIPPED)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--reader", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        check()
    else:
        (build_reader if arguments.reader else build)(arguments.output)
