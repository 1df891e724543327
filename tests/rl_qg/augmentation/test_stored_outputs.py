"""What `augment` writes for many settings is what it wrote when every candidate was held in memory.

`stored_outputs.json` has the SHA-256 of each output and the counts of its report. It was made by the version that held
sets, lists and heaps of all candidates. After a change that means other outputs:

    python -m tests.rl_qg.augmentation.test_stored_outputs
"""

import hashlib
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rl_qg.augmentation.augment import augment
from rl_qg.data.examples import Answer, QAExample
from rl_qg.settings import AugmentSettings
from tests.questions import record, write_questions

STORED = Path(__file__).with_name("stored_outputs.json")
WORDS = "who what when where which why how is was the a of did Ada Babbage London engine party city year met".split()
ROW_FILTERS: dict[str, Any] = {"length": {"min_words": 3}, "answer_in_question": {}, "gold_duplicates": {}}
FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "duplicates": ROW_FILTERS | {"duplicates": {}},
    "form": {"well_formed": {"question_word": False}, "language": {}, "faithful": {}, "duplicates": {}},
    "near": {"near_duplicates": {}},
    "near, half": ROW_FILTERS | {"near_duplicates": {"threshold": 0.5, "gold": False}},
    "near, all": {"near_duplicates": {"threshold": 0.6, "within": "all", "by": "candidate"}},
    "near, same words": {"near_duplicates": {"threshold": 1.0, "within": "all"}},
    "near, pairs of words": {"near_duplicates": {"threshold": 0.4, "shingle": 2}},
    "cap": {"cap": {"per_answer": 3, "per_context": 8}},
    "cap of answers": {"cap": {"per_answer": 2, "by": "random"}},
    "cap of passages": {"cap": {"per_context": 7, "by": "score"}},
    "share": {"question_types": {"max_share": {"who": 0.1, "what": 0.05}}},
    "shares": {"question_types": {"shares": {"who": 0.5, "what": 0.3, "why": 0.2}, "by": "score"}},
    "reward": {"reward": {"field": "score", "min": 0.2, "top_fraction": 0.4}},
    "reward, all": {"reward": {"field": "score", "top_fraction": 0.25}, "cap": {"per_context": 5}},
    "several": {"cap": {"per_answer": 6}, "length": {"min_words": 4}, "near_duplicates": {}, "duplicates": {}},
}
SAMPLES: dict[str, dict[str, Any]] = {
    "uniform": {"sampling": "uniform"},
    "reward": {"sampling": "reward"},
    "diverse": {"sampling": "diverse", "sample_relevance": 0.3},
    "diverse, by score": {"sampling": "diverse", "sample_by": "score", "seed": 3},
}


def candidates() -> list[dict[str, Any]]:
    """700 candidates of 13 passages, mixed, with equal and nearly equal questions and equal and missing numbers."""
    rng = random.Random(5)
    lines = []
    for number in range(700):
        passage = rng.randrange(13)
        context = f"{'Ada met Babbage. ' * (passage % 3)}In London, {passage}, at a party."
        words = rng.sample(WORDS, rng.randint(2, 5)) if rng.random() < 0.6 else rng.sample(WORDS[:7], 4)
        question = f"{' '.join(words)}{rng.choice(['?', '?', '?', '', ' ( ?'])}"
        if lines and rng.random() < 0.2:
            context, question = rng.choice([(line["context"], line["question"]) for line in lines])
        lines.append(
            record(
                question,
                rng.choice(["London", "party", "In", "at"]),
                context,
                id=f"q{number // 4}",
                candidate=number % 4,
                logprob=rng.choice([None, -1.0, -2.5, -rng.random()]),
                score=rng.choice([None, 0.5, rng.random()]),
            )
        )
    return lines


def outcome(folder: Path, name: str, sample: str, count: int, ending: str = ".jsonl") -> dict[str, Any]:
    """The hash of what is written, and the counts."""
    gold = [
        QAExample(f"g{n}", "", line["context"], line["question"], (Answer(line["answer"], line["answer_start"]),))
        for n, line in enumerate(candidates()[:20])
    ]
    settings = AugmentSettings(num_samples=count, filters=FILTERS[name], **SAMPLES[sample])
    questions = write_questions(folder / "questions.jsonl", candidates())
    output = folder / f"augmented{ending}"
    report = augment(questions, gold, output, settings=settings)
    counts = {key: value for key, value in report["dropped"].items() if value}
    return {"sha256": hashlib.sha256(output.read_bytes()).hexdigest(), "kept": report["kept"], "dropped": counts}


CASES = [(name, "uniform", 10_000, ".jsonl") for name in FILTERS]
CASES += [("none", sample, count, ".json") for sample in SAMPLES for count in (0, 90, 400, 10_000)]
CASES += [("near", sample, 60, ".jsonl") for sample in SAMPLES]


@pytest.mark.parametrize(("name", "sample", "count", "ending"), CASES)
def test_the_output_is_the_stored_one(tmp_path: Path, name: str, sample: str, count: int, ending: str) -> None:
    stored = json.loads(STORED.read_text())
    assert outcome(tmp_path, name, sample, count, ending) == stored[f"{name}; {sample} {count}{ending}"]


@pytest.mark.parametrize(("name", "sample", "count", "ending"), [CASES[5], CASES[17], CASES[-2]])
def test_words_in_a_file_and_samples_in_parts_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sample: str, count: int, ending: str
) -> None:
    monkeypatch.setattr("rl_qg.augmentation.near_duplicates.HELD", 100)
    monkeypatch.setattr("rl_qg.augmentation.augment.SPARE", 1)
    test_the_output_is_the_stored_one(tmp_path, name, sample, count, ending)


if __name__ == "__main__":
    found = {}
    for name, sample, count, ending in CASES:
        with tempfile.TemporaryDirectory() as folder:
            found[f"{name}; {sample} {count}{ending}"] = outcome(Path(folder), name, sample, count, ending)
    STORED.write_text(json.dumps(found, indent=1) + "\n")
