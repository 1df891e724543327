"""How many of the answers that people chose are proposed, and how many proposals people chose: `results.json`.

    python experiments/answers/measure.py --data ../shared/data --out experiments/answers/results.json
    python experiments/answers/measure.py … --extractor RUN/answers        # a folder of rl-qg train-answers
    python experiments/answers/measure.py … --parser en_core_web_sm        # a pipeline of spaCy

Intervals: 95 %, percentile bootstrap over passages (questions about one passage are not independent), 2,000 draws.
Each call measures one method on every set and adds its part to `--out`.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewards.words import normalise_answer
from rl_qg.data.examples import QAExample, passage_hash, seeded_rank
from rl_qg.data.reading import read_examples
from rl_qg.generation.answer_rules import rule_spans
from rl_qg.generation.propose_answers import SpacyAnswers
from rl_qg.readers.answer_extractor import ExtractorAnswers, score_proposals
from rl_qg.runtime.files import write_json
from rl_qg.text.spans import Span

SETS = {
    "du_test": "squad/du_test-v1.1.json.gz",
    "dev_part1": "squad/dev_part1-v1.1.json.gz",
    "new_wiki": "squadshifts/new_wiki_v1.0.json.gz",
}
OTHERS = {  # in other languages, not of --sets unless named
    "xquad_th": "xquad/xquad.th.json",
    "xquad_vi": "xquad/xquad.vi.json",
    "korquad": "korquad/KorQuAD_v1.0_dev.json",
}
LIMITS = (5, 10, 20, None)
BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--extractor")
    parser.add_argument("--min-probability", type=float, default=0.02)
    parser.add_argument("--parser")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=[*SETS, *OTHERS])
    parser.add_argument("--max-passages", type=int, help="a seeded sample of a set's passages, as a part of its own")
    chosen = parser.parse_args()
    name, propose = method(chosen)
    name += f", {chosen.max_passages} passages" if chosen.max_passages else ""
    results = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    for key in chosen.sets:
        examples = read_examples(chosen.data / (SETS | OTHERS)[key], role="validation").examples
        if chosen.max_passages:
            keys = sorted({passage_hash(example.context) for example in examples}, key=lambda key: seeded_rank(0, key))
            sample = set(keys[: chosen.max_passages])
            examples = [example for example in examples if passage_hash(example.context) in sample]
        results.setdefault(name, {})[key] = measure(propose, examples)
        print(name, key, json.dumps(results[name][key]["proposals"]["10"]), flush=True)
        write_json(chosen.out, results)


def method(chosen: argparse.Namespace) -> tuple[str, Callable[[Sequence[str]], list[list[Span]]]]:
    if chosen.extractor:
        cpu = torch.device("cpu")
        extractor = ExtractorAnswers(chosen.extractor, None, min_probability=chosen.min_probability, device=cpu)
        return "extractor", extractor
    if chosen.parser:
        return "spacy", SpacyAnswers(chosen.parser, None)
    return "rules", lambda contexts: [rule_spans(context) for context in contexts]


def measure(propose: Callable[[Sequence[str]], list[list[Span]]], examples: Sequence[QAExample]) -> dict[str, Any]:
    passages: dict[str, list[QAExample]] = defaultdict(list)
    for example in examples:
        passages[example.context].append(example)
    contexts = list(passages)
    begun = time.process_time()
    found: dict[str, list[Span]] = {}
    for begin in range(0, len(contexts), BATCH):
        batch = contexts[begin : begin + BATCH]
        found |= zip(batch, propose(batch), strict=True)
    seconds = time.process_time() - begun
    texts = {context: [context[span.start : span.end] for span in spans] for context, spans in found.items()}
    proposals = {str(limit or "all"): with_intervals(texts, passages, limit) for limit in LIMITS}
    return {"proposals": proposals, "kinds": kinds(found, passages), "cpu_seconds": round(seconds, 1)}


def with_intervals(
    texts: dict[str, list[str]], passages: dict[str, list[QAExample]], limit: int | None
) -> dict[str, Any]:
    """The scores over all passages, and the intervals of recall and precision."""
    cut = {context: spans[:limit] for context, spans in texts.items()}
    whole = score_proposals(cut, [example for rows in passages.values() for example in rows])
    each = [score_proposals(cut, rows) for rows in passages.values()]
    draws = np.random.default_rng(0).integers(len(each), size=(2000, len(each)))
    weights = {"recall": "questions", "close_recall": "questions", "precision": "spans_per_passage"}
    for name, weight in weights.items():
        below = np.array([row[weight] for row in each])
        above = np.array([row[name] for row in each]) * below
        low, high = np.percentile(above[draws].sum(1) / below[draws].sum(1), [2.5, 97.5])
        whole[f"{name}_interval"] = [round(float(low), 4), round(float(high), 4)]
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in whole.items()}


def kinds(found: dict[str, list[Span]], passages: dict[str, list[QAExample]]) -> dict[str, Any]:
    """Of each kind: proposals a passage, and the share of them that people chose."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for context, spans in found.items():
        human = {normalise_answer(answer.text) for example in passages[context] for answer in example.answers}
        for span in spans:
            counts[span.kind][0] += 1
            counts[span.kind][1] += normalise_answer(context[span.start : span.end]) in human
    return {
        kind: {"per_passage": round(all_ / len(passages), 2), "precision": round(right / all_, 3)}
        for kind, (all_, right) in sorted(counts.items(), key=lambda item: -item[1][1] / item[1][0])
    }


if __name__ == "__main__":
    main()
