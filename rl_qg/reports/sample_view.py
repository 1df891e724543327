"""The report's samples: questions of both generators for the same answers, and which became better or worse."""

import math
import re
from collections.abc import Mapping
from typing import Any

from rl_qg.evaluation.oracle import SUMS, VERDICTS
from rl_qg.evaluation.text_measures import rouge_l
from rl_qg.reports.estimates import number_text
from rl_qg.reports.run_files import MODELS, JsonObject, ReportedRun

SAMPLES_SHOWN = 24
EXCERPT = 150
ORACLE, OVERLAP = "the oracle of the embedded corpus", "ROUGE-L to the human question"


def samples_view(run: ReportedRun) -> dict[str, Any]:
    """The samples to show, which generator's are better in how many of all samples, and what decides that."""
    samples = [JsonObject(run.evaluation.path, sample) for sample in run.evaluation.list("samples")]
    rewards = [_rewards(sample) for sample in samples]
    known = [reward for row in rewards for reward in row.values() if reward is not None]
    span = (min(known), max(known)) if known else (0.0, 1.0)
    pairs = [(row["ce"], row["scst"]) for row in rewards if row["ce"] is not None and row["scst"] is not None]
    wins = {
        "scst": sum(scst > ce for ce, scst in pairs),
        "ce": sum(ce > scst for ce, scst in pairs),
        "equal": sum(ce == scst for ce, scst in pairs),
    }
    verdicts = [_verdicts(sample) for sample in samples]
    by_oracle = any(verdict is not None for row in verdicts for verdict in row.values())
    marks = [_mark_by_oracle(row) for row in verdicts]
    if not by_oracle:
        marks = [_mark_by_overlap(sample) for sample in samples]
    judged = [mark for mark in marks if mark is not None]
    return {
        "samples": [
            _sample(sample, span, mark, verdict)
            for sample, mark, verdict in list(zip(samples, marks, verdicts, strict=True))[:SAMPLES_SHOWN]
        ],
        "samples_total": len(samples),
        "wins": wins if pairs else None,
        "marks": {name: judged.count(name) for name in ("better", "worse", "")} if judged else None,
        "marked_by": ORACLE if by_oracle else OVERLAP,
    }


def _rewards(sample: JsonObject) -> dict[str, float | None]:
    rewards = {model: sample.number(f"reward_{model}") for model in MODELS}
    return {
        model: reward if reward is not None and math.isfinite(reward) else None for model, reward in rewards.items()
    }


# --- Better or worse ---


def _verdicts(sample: JsonObject) -> dict[str, str | None]:
    """The oracle's verdict on each question of a sample; None for text that is not of the embedded corpus."""
    given = sample.part("oracle")
    for model, verdict in given.value.items():
        if verdict is not None and verdict not in (*VERDICTS, *SUMS):  # the sums: of earlier versions
            raise given.error(("samples", "oracle", model), f"one of {', '.join(VERDICTS)}", verdict)
    return {model: given.get(model) for model in MODELS}


def _mark_by_oracle(verdicts: Mapping[str, str | None]) -> str | None:
    """`better` where the final question alone is right, `worse` where the CE question alone is; None: not judged."""
    ce, scst = verdicts["ce"], verdicts["scst"]
    if ce is None or scst is None:
        return None
    return _mark(float(ce == "right"), float(scst == "right"))


def _mark_by_overlap(sample: JsonObject) -> str | None:
    """By which question shares more with the human one; None where one of the three is missing."""
    gold, ce, scst = (sample.get(model) for model in MODELS)
    if not all(isinstance(text, str) for text in (gold, ce, scst)):
        return None
    return _mark(*rouge_l().score([ce, scst], references=[[gold], [gold]]).scores)


def _mark(ce: float, scst: float) -> str:
    return "" if math.isclose(ce, scst) else "better" if scst > ce else "worse"


# --- One row ---


def _sample(
    sample: JsonObject, span: tuple[float, float], mark: str | None, verdicts: Mapping[str, str | None]
) -> dict[str, Any]:
    """One row: the passage and three questions; `bar` is the reward's position within `span`, in percent."""
    low, high = span
    rewards = _rewards(sample)
    known = {model: reward for model, reward in rewards.items() if reward is not None}
    winners = [model for model, reward in known.items() if reward == max(known.values())]
    texts = {model: sample.get(model) for model in MODELS}
    return {
        "context": _context(sample),
        "questions": [
            {
                "model": model,
                "text": texts[model],
                "same": model == "scst" and texts["scst"] is not None and texts["scst"] == texts["ce"],
                "reward": None if reward is None else number_text(reward, 3),
                "bar": 0 if reward is None or low == high else 100 * (reward - low) / (high - low),
                "winner": len(winners) < len(known) and model in winners,
                "mark": (mark or "") if model == "scst" else "",
                "verdict": verdicts[model],
            }
            for model, reward in rewards.items()
        ],
    }


def _context(sample: JsonObject) -> dict[str, str]:
    """The passage split at the answer: whole (before, answer, after), and an excerpt around the answer."""
    context, answer = str(sample.get("context") or ""), str(sample.get("answer") or "")
    start = sample.count("answer_start")
    if start is None or start < 0 or not context.startswith(answer, start):
        start = context.find(answer)
    if start < 0 or not answer:
        return {"before": context, "answer": "", "after": "", "near_before": context[: 2 * EXCERPT], "near_after": ""}
    before, after = context[:start], context[start + len(answer) :]
    near_before, near_after = before, after
    if len(before) > EXCERPT:
        near_before = "… " + re.sub(r"^\S*\s+", "", before[-EXCERPT:])
    if len(after) > EXCERPT:
        near_after = re.sub(r"\s+\S*$", "", after[:EXCERPT]) + " …"
    return {"before": before, "answer": answer, "after": after, "near_before": near_before, "near_after": near_after}
