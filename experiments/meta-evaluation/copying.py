"""What answerability and Q-BLEU1 give texts that nobody would want for a question, beside the human question.

    python experiments/meta-evaluation/copying.py --questions xquad.en.json --output results/copying.json

Each text stands in the place of the human question; "beats" is how often the human question scores higher, ties count
half. Intervals: 95 %, bootstrap over passages.
"""

import argparse
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rewards import load
from rewards.base import Metric
from rewards.overlap.answerability import FUNCTION_WORDS
from rl_qg.data.examples import QAExample
from rl_qg.data.reading import read_examples
from rl_qg.runtime.files import file_hash
from rl_qg.stats.intervals import Floats, PassageDraws, estimate

METRICS = ("answerability", "q_bleu1")
FIXED = ("", "?", "the", "who", "What", "Who is it?")
HUMAN = "the human question"


def texts_for(example: QAExample, others: Sequence[str], rng: random.Random) -> dict[str, str]:
    """Return what stands in the place of a question, by what it is; `others` are questions on other passages."""
    sentence = rng.choice(re.split(r"(?<=[.!?])\s+", example.context.strip()))
    words = re.findall(r"[^\W\d_]+", example.context)
    nouns = [word for word in words if word.islower() and len(word) > 3 and word not in FUNCTION_WORDS] or words
    names = [word for word in words if word.istitle() and word.lower() not in FUNCTION_WORDS] or words
    return {
        HUMAN: example.question,
        **{f'"{text}"': text for text in FIXED},
        "a word of the passage": rng.choice(nouns),
        "two words of the passage": f"{rng.choice(names)} {rng.choice(nouns)}",
        "a sentence of the passage": sentence,
        "a question on another passage": rng.choice(others),
        '"What of", a name and a word of the passage': f"What of {rng.choice(names)} {rng.choice(nouns)}?",
        '"What" and a sentence of the passage': f"What {sentence}",
    }


def score(metric: Metric, texts: Sequence[str], examples: Sequence[QAExample]) -> Floats:
    """Return the score of each text, against the passage or the human question as the metric has it."""
    contexts, gold = [example.context for example in examples], [[example.question] for example in examples]
    return np.array(metric.score(texts, contexts, references=gold).scores)


def judged(scores: Floats, human: Floats, draws: PassageDraws) -> dict[str, object]:
    """Return mean score, and the share of human questions that score higher, with intervals."""
    higher = (human > scores) + 0.5 * (human == scores)
    sums = draws.sums(np.column_stack([scores, higher, np.ones(len(scores))]))
    means = sums[:, :2] / sums[:, 2:]
    mean, beats = (estimate(column, len(scores), passages=draws.passages).to_dict() for column in means.T)
    return {"mean": mean, "beats": beats}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=Path, required=True, help="in SQuAD's form")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    examples = read_examples(given.questions, role="validation").examples
    rng, draws = random.Random(given.seed), PassageDraws([example.context for example in examples], seed=given.seed)
    asked = [(example.context, example.question) for example in examples]
    rows = [
        texts_for(example, [question for context, question in asked if context != example.context], rng)
        for example in examples
    ]
    found: dict[str, dict[str, object]] = {kind: {} for kind in rows[0]}
    signatures = {}
    for against in ("context", "references"):
        for name in METRICS:
            metric, key = load(name, against=against), f"{name} against {against}"
            signatures[key] = metric.signature
            human = score(metric, [row[HUMAN] for row in rows], examples)
            for kind in found:
                found[kind][key] = judged(score(metric, [row[kind] for row in rows], examples), human, draws)
    result = {
        "questions": f"{given.questions.name}@{file_hash(given.questions)[:8]}",
        "count": len(examples),
        "passages": draws.passages,
        "seed": given.seed,
        "signatures": signatures,
        "texts": found,
    }
    given.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
