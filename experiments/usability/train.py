"""Teach the packaged reader what is usable, from readings of generated questions: a classifier on the same encoder.

    python experiments/usability/train.py --shared ../shared --questions DATA/reader.json --output USABILITY
    python experiments/real-generator/pack.py USABILITY english/reader

The reader that has learned the first round of readings learns on from both with `--rounds 2 --epochs 1 --newest 2`.
Each step learns from 16 graded pairs and from 8 of the reader's own questions (DATA is what
experiments/real-generator/prepare.py wrote), so that it goes on reading. A pair is read as `rewards.Usability` reads
it. z is the difference of the two outputs: p(usable) = sigmoid(z), and p(right) = sigmoid(z + b) with b of its own
uses the middle grade (an ordinal regression). Held out are the pairs of a sixth of the texts. A command that was
killed goes on from its last hundred steps, which lie in `progress.pt` of the output.
"""

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from texts import all_texts, lines
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as bce, cross_entropy, softplus
from transformers import AutoModelForQuestionAnswering, AutoModelForSequenceClassification, AutoTokenizer

from rl_qg.asking.models import reader_path
from rl_qg.data.splits import read_role
from rl_qg.readers.reader import WindowCollator, encode_in_parts
from rl_qg.runtime.bars import ProgressBar
from rl_qg.settings import DataSettings

READINGS = Path(__file__).parent / "readings.jsonl.gz"
PAIRS, QUESTIONS, LENGTH = 16, 8, 256
KEPT = 100  # steps after which the progress is saved
USABLE, RIGHT = 2, 1  # grades
Row = Mapping[str, Any]


def readings(shared: Path) -> list[dict[str, Any]]:
    """The graded pairs with their texts."""
    texts = {key: text for key, (_, text) in all_texts(shared).items()}
    cut = {name: (lambda row, name=name: texts[row["text"]][slice(*row[name])]) for name in ("passage", "answer")}
    found = ({"round": 1} | row | {"answer_place": row["answer"]} for row in lines(READINGS))
    return [row | {name: part(row) for name, part in cut.items()} for row in found]


def batches(rows: Sequence[Row], rng: random.Random) -> Iterator[list[Row]]:
    """Pairs of similar length together, without end."""
    while True:
        order = rng.sample(rows, len(rows))
        blocks = [order[first : first + 20 * PAIRS] for first in range(0, len(order), 20 * PAIRS)]
        sorted_blocks = [sorted(block, key=lambda row: len(row["passage"])) for block in blocks]
        found = [block[first : first + PAIRS] for block in sorted_blocks for first in range(0, len(block), PAIRS)]
        rng.shuffle(found)
        yield from found


class Trained:
    """The classifier and the reader, which share their encoder."""

    def __init__(self, folder: str) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.0, "attn_implementation": "eager"}
        self.classifier: Any = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2, **dropout)
        self.reader: Any = AutoModelForQuestionAnswering.from_pretrained(folder, num_labels=2, **dropout)
        self.reader.bert.embeddings = self.classifier.bert.embeddings
        self.reader.bert.encoder = self.classifier.bert.encoder
        self.between = torch.nn.Parameter(torch.tensor(1.0))

    def parameters(self) -> list[Tensor]:
        found = [*self.classifier.parameters(), *self.reader.parameters(), self.between]
        return list({id(one): one for one in found}.values())

    def logits(self, rows: Sequence[Row]) -> Tensor:
        asked = [f"{row['question']} {self.tokenizer.sep_token} {row['answer']}" for row in rows]
        given = {"truncation": True, "max_length": LENGTH, "padding": True, "return_tensors": "pt"}
        encoded = self.tokenizer(asked, [row["passage"] for row in rows], **given)
        with torch.autocast("cpu", torch.bfloat16):
            outputs = self.classifier(**encoded).logits.float()
        return outputs[:, 1] - outputs[:, 0]

    def loss(self, rows: Sequence[Row], questions: Mapping[str, Tensor]) -> Tensor:
        logits, grades = self.logits(rows), torch.tensor([row["grade"] for row in rows])
        usable = bce(logits, (grades >= USABLE).float())
        right = bce(logits + softplus(self.between), (grades >= RIGHT).float())
        labels = questions["labels"]
        with torch.autocast("cpu", torch.bfloat16):
            output = self.reader(**{name: value for name, value in questions.items() if name != "labels"})
        spans = cross_entropy(output.start_logits.float(), labels[:, 0])
        spans = spans + cross_entropy(output.end_logits.float(), labels[:, 1])
        return usable + 0.5 * right + 0.35 * spans

    def save(self, folder: Path) -> None:
        """One set of weights with both heads; the reader's configuration names both."""
        folder.mkdir(parents=True, exist_ok=True)
        weights = self.classifier.state_dict() | {
            name: value for name, value in self.reader.state_dict().items() if name.startswith("qa_outputs.")
        }
        save_file({name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors")
        self.tokenizer.save_pretrained(folder)
        config = self.reader.config.to_dict() | {"hidden_dropout_prob": 0.0}
        config |= {"architectures": ["BertForQuestionAnswering", "BertForSequenceClassification"]}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


class Progress:
    """What a killed command goes on from; `of` is what the steps depend on."""

    def __init__(self, path: Path, of: Mapping[str, str], parameters: Sequence[Tensor], *others: Any) -> None:
        self.path, self.of, self.parameters, self.others = path, dict(of), parameters, others

    def load(self) -> int:
        """Restore everything, and return how many steps are done."""
        if not self.path.exists():
            return 0
        kept = torch.load(self.path)
        if kept["of"] != self.of:
            raise SystemExit(f"{self.path}: of another command; delete it, or name another output")
        with torch.no_grad():
            for parameter, value in zip(self.parameters, kept["parameters"], strict=True):
                parameter.copy_(value)
        for other, state in zip(self.others, kept["others"], strict=True):
            other.load_state_dict(state)
        torch.set_rng_state(kept["rng"])
        return int(kept["steps"])

    def save(self, steps: int) -> None:
        others, part = [other.state_dict() for other in self.others], self.path.with_suffix(".part")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"of": self.of, "steps": steps, "parameters": list(self.parameters), "others": others}
        torch.save({**kept, "rng": torch.get_rng_state()}, part)
        part.replace(self.path)


def windows_of(path: Path, tokenizer: Any) -> list[dict[str, Any]]:
    examples = read_role(DataSettings(train=str(path)), "train").examples
    parts = encode_in_parts(examples, tokenizer, max_length=LENGTH, doc_stride=64, token_types=True)
    return [part[number] for part in parts for number in range(len(part))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--reader", default="packaged:english/reader")
    parser.add_argument("--epochs", type=float, default=3.5)
    parser.add_argument("--rounds", type=int, default=1, help="of the readings, the first so many")
    parser.add_argument("--newest", type=int, default=1, help="how often the pairs of the last round are in an epoch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    rng, model = random.Random(given.seed), Trained(reader_path(given.reader))
    rows = [row for row in readings(given.shared) if not row["held_out"] and row["round"] <= given.rounds]
    rows += [row for row in rows if row["round"] == given.rounds] * (given.newest - 1)
    windows, collate = windows_of(given.questions, model.tokenizer), WindowCollator(model.tokenizer.pad_token_id)
    steps, parameters = int(len(rows) * given.epochs / PAIRS), model.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / steps / 0.06, 1 - step / steps))
    model.classifier.train()
    model.reader.train()
    of = {name: str(value) for name, value in vars(given).items()}
    progress = Progress(given.output / "progress.pt", of, parameters, optimizer, rate)
    done = progress.load()
    bar = ProgressBar(islice(batches(rows, rng), steps), total=steps, desc="usability", unit="step")
    for step, batch in enumerate(bar, 1):
        questions = [windows[rng.randrange(len(windows))] for _ in range(QUESTIONS)]
        if step <= done:
            continue
        loss = model.loss(batch, collate(questions))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
        bar.set_postfix(loss=f"{loss.item():.2f}", refresh=False)
        if step % KEPT == 0:
            progress.save(step)
    model.save(given.output)
    progress.path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
