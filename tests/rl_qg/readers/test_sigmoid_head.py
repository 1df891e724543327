"""The reader with a decision at each position (QRelScore paper, appendix F): loss, decoding, files, scores."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, TrainingArguments

from rewards import ReaderScore
from rewards.relevance.reading import SPAN_HEAD, span_scores
from rl_qg.readers.reader import encode, load_model, load_tokenizer
from rl_qg.readers.train_reader import QATrainer
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json
from tests.toy_reader import run, save_distilbert, toy_examples, toy_settings


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def test_the_loss_is_binary_cross_entropy_over_the_positions(distilbert: Path, tmp_path: Path) -> None:
    """Position by position, by hand; padding does not count, so a window's loss does not depend on its batch."""
    tokenizer, types = load_tokenizer(str(distilbert), max_length=32)
    examples = toy_examples(3, 1)
    windows = encode(examples, tokenizer, max_length=32, doc_stride=8, token_types=types)
    model = load_model(str(distilbert), tokenizer).eval()
    setattr(model.config, SPAN_HEAD, "sigmoid")
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    trainer = QATrainer(model, arguments, processing_class=tokenizer)
    collate, want = trainer.data_collator, []
    for row in range(3):
        output = model(**{name: value for name, value in collate([windows[row]]).items() if name != "labels"})
        total = 0.0
        for logits, label in zip((output.start_logits, output.end_logits), windows[row]["labels"], strict=True):
            for position, value in enumerate(logits[0].tolist()):
                probability = sigmoid(value)
                total -= math.log(probability if position == label else 1 - probability)
        want.append(total)
    assert len(set(windows.lengths.tolist())) > 1  # so that some are padded
    together = trainer.compute_loss(model, collate([windows[row] for row in range(3)])).item()
    assert together == pytest.approx(sum(want) / 6, rel=1e-5)  # two labels a window


def test_spans_are_ranked_by_the_product_of_their_probabilities() -> None:
    """Sums of logits choose 5 - 1 = 4 over 2 + 1.5 = 3.5; s(5) s(-1) = 0.267 is less than s(2) s(1.5) = 0.720."""
    starts, ends = torch.tensor([5.0, 2.0]), torch.tensor([-1.0, 1.5])

    class Config:
        span_head = "sigmoid"

    scores = [span_scores(part, Config()) for part in (starts, ends)]
    assert (scores[0][0] + scores[1][0]).exp().item() == pytest.approx(sigmoid(5) * sigmoid(-1))
    assert scores[0][0] + scores[1][0] < scores[0][1] + scores[1][1]
    assert starts[0] + ends[0] > starts[1] + ends[1]
    assert span_scores(starts, object()) is starts  # readers that do not say


@pytest.mark.slow
def test_a_sigmoid_reader_learns_is_saved_and_scores(tmp_path: Path) -> None:
    model = save_distilbert(tmp_path / "model")
    validation = toy_examples(60, 2)
    chosen = toy_settings(model, head="sigmoid")
    result = run(tmp_path / "qa", chosen, toy_examples(960, 1), validation)
    assert result["exact_match"] > 80
    assert read_json(tmp_path / "qa" / "config.json")[SPAN_HEAD] == "sigmoid"
    # The folder is one that the library loads; its predictions are the spans with the highest product.
    reader, tokenizer = (
        auto.from_pretrained(tmp_path / "qa") for auto in (AutoModelForQuestionAnswering, AutoTokenizer)
    )
    predictions = read_json(tmp_path / "qa" / "predictions.json")
    examples = validation[:8]
    probabilities = []
    for row in examples:
        encoded = tokenizer(row.question, row.context, return_tensors="pt")
        inside = [index for index, part in enumerate(encoded.sequence_ids(0)) if part == 1]
        with torch.inference_mode():
            output = reader(**encoded)
        start, end = (part[0, inside].sigmoid().numpy() for part in (output.start_logits, output.end_logits))
        spans = [(i, j) for i, j in product(range(len(inside)), repeat=2) if 0 <= j - i < 4]
        first, last = max(spans, key=lambda span: start[span[0]] * end[span[1]])
        words = row.context.split()
        assert " ".join(words[first : last + 1]) == predictions[row.id]
        answer = row.answers[0].text.split()
        at = len(row.context[: row.answers[0].start].split())
        probabilities.append(start[at] / np.sum(start) * (end[at + len(answer) - 1] / np.sum(end)))
    metric = ReaderScore(str(tmp_path / "qa"), max_length=32, stride=8, max_answer_length=4)
    got = metric.score(
        [row.question for row in examples],
        [row.context for row in examples],
        answers=[row.answers[0].text for row in examples],
    )
    assert got.scores == pytest.approx(probabilities, rel=1e-4)
    with pytest.raises(InputError, match=r"other settings \(head\)"):
        run(tmp_path / "qa", toy_settings(model), toy_examples(960, 1), validation)
