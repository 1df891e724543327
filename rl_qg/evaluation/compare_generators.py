"""Generators judged on held-out passages: greedy questions of each stage, their rewards, what no reward sees
(`rl_qg.evaluation.text_measures`), and the paired differences.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
import torch
from tqdm import tqdm

from rl_qg.confidence_intervals import Floats, PassageDraws, mean_interval, paired_interval
from rl_qg.data.examples import QAExample, passage_hash
from rl_qg.evaluation.reward_scorer import Reward, RewardScorer, ScoredBatch, signature_of
from rl_qg.evaluation.text_measures import held_out_measures
from rl_qg.generation.generator import Policy
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import write_json

SAMPLES = 40
log = logging.getLogger(__name__)


def evaluate_generators(
    models: Mapping[str, Path],
    examples: Sequence[QAExample],
    reward: Reward,
    output: Path,
    *,
    max_new_tokens: int,
    batch_size: int,
    device: torch.device,
    held_out: Reward | None = None,
) -> dict[str, Any]:
    """RewardScorer `models` (such as `{"ce": …, "scst": …}`) on the same held-out `examples` and write `output` (JSON).

    BLEU-4 is sacrebleu's corpus BLEU against the one gold question, with its bootstrap interval; intervals of rewards
    and their parts are bootstraps over passages, and `difference` the paired bootstrap of the last model over the
    first. `held_out` is a second reward, which training did not optimise. Gold questions are judged too, by everything
    that does not compare with gold questions. A question that a reward fails on is left out of its means: `n` says how
    many were not.

    Raises:
        InputError: there are no examples, or a reward fails on every question.
    """
    if not examples:
        raise InputError("no held-out examples to judge the generators on; see data.validation")
    gold = [example.question for example in examples]
    questions = {
        name: _greedy(name, path, examples, max_new_tokens=max_new_tokens, batch_size=batch_size, device=device)
        for name, path in models.items()
    }
    judges = {"reward": reward} | ({} if held_out is None else {"held_out": held_out})
    verdicts = {
        kind: {name: _judge(kind, judge, examples, texts) for name, texts in {**questions, "gold": gold}.items()}
        for kind, judge in judges.items()
    }
    draws = PassageDraws([passage_hash(example.context) for example in examples])
    result: dict[str, Any] = {
        "examples": len(examples),
        "passages": draws.passages,
        "resampled": "passages",
        **{f"{kind}_signature": signature_of(judge) for kind, judge in judges.items()},
        "models": {
            name: _texts_summary(questions.get(name, gold), examples, is_gold=name == "gold")
            | {
                key: value
                for kind in judges
                for key, value in _verdict_summary(kind, verdicts[kind][name], draws).items()
            }
            for name in (*models, "gold")
        },
    }
    if len(models) > 1:
        first, *_, last = models
        differences = {kind: _difference(found[last], found[first], draws) for kind, found in verdicts.items()}
        result["difference"] = {"of": f"{last} - {first}", **differences}
    result["samples"] = [
        _sample(index, example, {name: texts[index] for name, texts in questions.items()}, verdicts)
        for index, example in enumerate(examples)
        if index % max(1, len(examples) // SAMPLES) == 0
    ]
    write_json(output, result)
    return result


def _greedy(
    name: str,
    path: Path,
    examples: Sequence[QAExample],
    *,
    max_new_tokens: int,
    batch_size: int,
    device: torch.device,
) -> list[str]:
    policy = Policy(path, device=device)
    texts: list[str] = []
    with tqdm(total=len(examples), desc=f"evaluate {name}", unit="question") as bar:
        for start in range(0, len(examples), batch_size):
            texts += policy.greedy(examples[start : start + batch_size], max_new_tokens=max_new_tokens)
            bar.update(len(texts) - bar.n)
    return texts


def _judge(kind: str, reward: Reward, examples: Sequence[QAExample], questions: Sequence[str]) -> ScoredBatch:
    verdict = RewardScorer(reward)(examples, questions)
    failed = [fault for fault in verdict.faults if fault is not None]
    if len(failed) == len(examples):
        raise InputError(f"{kind}: it fails on every question: {failed[0]}")
    if failed:
        log.warning(
            "%s: fails on %d of %d questions, which its means leave out: %s",
            kind,
            len(failed),
            len(examples),
            failed[0],
        )
    return verdict


def _texts_summary(questions: Sequence[str], examples: Sequence[QAExample], *, is_gold: bool) -> dict[str, Any]:
    gold = [example.question for example in examples]
    measures: dict[str, Any] = {**held_out_measures(questions, gold, [example.context for example in examples])}
    measures["distinct_questions"] = len(set(questions)) / len(questions)
    if is_gold:  # against itself
        del measures["bleu4"], measures["rouge_l"]
        return measures
    bleu = sacrebleu.metrics.BLEU()
    score = bleu.corpus_score(list(questions), [gold], n_bootstrap=1000)
    measures["bleu4"] = {
        "mean": score.score,
        "low": score._mean - score._ci,
        "high": score._mean + score._ci,
        "n": len(gold),
    }
    measures["bleu_signature"] = str(bleu.get_signature())
    measures["exact_matches"] = sum(a == b for a, b in zip(questions, gold, strict=True)) / len(gold)
    return measures


def _verdict_summary(kind: str, verdict: ScoredBatch, draws: PassageDraws) -> dict[str, Any]:
    parts = {name: _finite(values) for name, values in verdict.parts.items()}
    return {
        kind: asdict(mean_interval(_finite(verdict.scores), draws)),
        f"{kind}_parts": {
            name: asdict(mean_interval(values, draws)) for name, values in parts.items() if not np.isnan(values).all()
        },
    }


def _difference(last: ScoredBatch, first: ScoredBatch, draws: PassageDraws) -> dict[str, Any] | None:
    """The paired difference over the questions that both got a score for; None when there is none."""
    scores = _finite(last.scores), _finite(first.scores)
    return None if np.isnan(scores[0] - scores[1]).all() else asdict(paired_interval(*scores, draws))


def _finite(values: Sequence[float]) -> Floats:
    """The values, NaN where one is infinite."""
    return np.where(np.isfinite(values), values, np.nan)


def _sample(
    index: int, example: QAExample, questions: Mapping[str, str], verdicts: Mapping[str, Mapping[str, ScoredBatch]]
) -> dict[str, Any]:
    """One example with the question of each model and everyone's rewards, null where a reward failed."""
    scores = {
        f"{kind}_{name}": verdict.scores[index] for kind, found in verdicts.items() for name, verdict in found.items()
    }
    return {
        "id": example.id,
        "context": example.context,
        "answer": example.answers[0].text,
        "answer_start": example.answers[0].start,
        "gold": example.question,
        **questions,
        **{name: score if math.isfinite(score) else None for name, score in scores.items()},
    }
