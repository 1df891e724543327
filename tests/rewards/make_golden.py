"""Write golden.json: numbers of the slow float64 reference for the miniatures that ship with the package.

    python -m tests.rewards.make_golden

To be run again when the miniatures are rebuilt, and never because a metric's numbers have moved.
"""

import json
from pathlib import Path

from tests.rewards.reference import answer_logprobs, global_relevance, local_relevance, translation_score

PRETRAINED = Path(__file__).resolve().parents[2] / "rl_qg" / "miniatures" / "pretrained"
GOLDEN = Path(__file__).with_name("golden.json")

PASSAGE = (
    "Ilva Maron was born in Tessel in 1871. She studied law in Orvane before she became a painter. Her best known "
    "work, The Quiet Harbour, was finished in 1904 and hangs in the town hall of Tessel."
)
CASES = [
    {"question": "Where was Ilva Maron born?", "context": PASSAGE, "answer": "Tessel"},
    {"question": "When was The Quiet Harbour finished?", "context": PASSAGE, "answer": "1904"},
    {"question": "What did she study in Orvane?", "context": PASSAGE, "answer": "law"},
    {"question": "Which river flows through the capital?", "context": PASSAGE, "answer": "the town hall of Tessel"},
    {"question": "Why?", "context": "Because the bridge had been washed away.", "answer": "the bridge"},
    {"question": "Who wrote “Größe” — and when?", "context": "Žofie wrote “Größe” in 1931.", "answer": "Žofie"},
    {"question": "Who was born in Tessel?", "context": " ".join([PASSAGE] * 14), "answer": "Ilva Maron"},
]  # fmt: skip


def harmonic(lrm: float, grg: float, variant: str) -> float:
    if variant == "official":
        return 2 * lrm * grg / (lrm + grg + 1e-8)
    return 2 * lrm * grg / (lrm + grg) if lrm + grg > 0 else 0.0


def expected(case: dict[str, str]) -> dict[str, object]:
    folder = {name: str(PRETRAINED / name) for name in ("bert", "gpt2", "roberta", "bart")}
    question, context, answer = case["question"], case["context"], case["answer"]
    result: dict[str, object] = {}
    for variant in ("official", "paper"):
        lrm = local_relevance(folder["bert"], question, context, variant=variant)
        grg = global_relevance(folder["gpt2"], question, context, variant=variant)
        result[f"qrelscore_{variant}"] = {"lrm": lrm, "grg": grg, "score": harmonic(lrm, grg, variant)}
    for variant, unit in (("paper", "token"), ("paper", "word"), ("official", "token")):
        options = {"variant": variant, "unit": unit}
        result[f"qascore_{variant}_{unit}"] = answer_logprobs(folder["roberta"], question, context, answer, **options)
    result["bartscore"] = translation_score(folder["bart"], context, question)
    return result


if __name__ == "__main__":
    cases = [{**case, "expected": expected(case)} for case in CASES]
    GOLDEN.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
