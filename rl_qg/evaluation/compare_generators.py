"""Generators compared on held-out passages: the greedy questions of each stage about the human answers, their rewards,
measures that no reward sees (`rl_qg.scoring.held_out`), and the paired differences. Of a generator that writes
answers too (`multitask`) only its questions are measured.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewards.contract import bounds_of
from rl_qg.data.examples import QAExample, passage_hash
from rl_qg.data.oracle import judgements, share_differences, shares
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import write_json
from rl_qg.scoring.held_out import bleu4, held_out_measures, measure_signatures, rouge_l
from rl_qg.scoring.reward_scorer import Reward, RewardScorer, ScoredBatch, signature_of
from rl_qg.stats.intervals import (
    SHARE,
    Bounds,
    Floats,
    Interval,
    PassageDraws,
    bounds_of_difference,
    interval_ends,
    mean_interval,
    paired_interval,
)

SAMPLES = 40  # questions in the file at least, where there are as many; evenly spread, so fewer than twice that
log = logging.getLogger(__name__)


def greedy_questions(
    model: str | Path,
    examples: Sequence[QAExample],
    name: str,
    max_new_tokens: int,
    batch_size: int = 32,
    device: torch.device | None = None,
) -> list[str]:
    """The greedy question of each example; `name` is for the progress bar."""
    generator, texts = CandidateGenerator(model, device=device or torch.device("cpu")), list[str]()
    with ProgressBar(total=len(examples), desc=name, unit="question") as bar:
        for start in range(0, len(examples), batch_size):
            texts += generator.greedy(examples[start : start + batch_size], max_new_tokens=max_new_tokens)
            bar.update(len(texts) - bar.n)
    return texts


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
    choice: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Measure `models` (such as `{"ce": …, "scst": …}`) on the same held-out `examples` and write `output` (JSON).

    Intervals of rewards, of their parts and of BLEU-4 are bootstraps over passages, and `difference` is the paired
    bootstrap of the last model minus the first, of ROUGE-L too. On the embedded corpus `oracle` holds the shares of
    the verdicts of `rl_qg.data.oracle`, of questions with a name or number that the passage lacks, and of those that
    name no subject. `held_out` is a second reward, which training did not optimise. Gold questions are measured too,
    except by what compares with gold questions. A question that a reward fails on is left out of its means, and their
    `n` counts the others. `choice` says what chose the last model, and on which passages (`rl_qg.commands.runs`).
    """
    if not examples:
        raise InputError("no held-out examples to measure the generators on; see data.validation")
    draws = PassageDraws([passage_hash(example.context) for example in examples])
    gold = [example.question for example in examples]

    questions = {
        name: greedy_questions(path, examples, f"evaluate {name}", max_new_tokens, batch_size, device)
        for name, path in models.items()
    }
    rewards = {"reward": reward} | ({} if held_out is None else {"held_out": held_out})
    texts_of = {**questions, "gold": gold}
    scored = {
        kind: {name: _scored(kind, metric, examples, texts) for name, texts in texts_of.items()}
        for kind, metric in rewards.items()
    }
    judged = {name: judgements(texts, examples) for name, texts in texts_of.items()}
    summaries = {
        name: _text_summary(texts, examples, draws, is_gold=name == "gold") | _oracle(shares(judged[name], draws))
        for name, texts in texts_of.items()
    }
    for kind, by_model in scored.items():
        for name, summary in summaries.items():
            parts = {part: _finite(values) for part, values in by_model[name].parts.items()}
            bounds = bounds_of(rewards[kind])
            summary[kind] = asdict(mean_interval(_finite(by_model[name].scores), draws, bounds=bounds))
            summary[f"{kind}_parts"] = {
                part: asdict(mean_interval(values, draws))
                for part, values in parts.items()
                if not np.isnan(values).all()
            }
    result: dict[str, Any] = {
        "examples": len(examples),
        "passages": draws.passages,
        "resampled": "passages",
        **({} if choice is None else {"model_choice": dict(choice)}),
        **{f"{kind}_signature": signature_of(metric) for kind, metric in rewards.items()},
        "models": summaries,
    }
    if len(models) > 1:
        first, *_, last = models
        difference = {
            kind: _difference(batch[last], batch[first], draws, bounds_of(rewards[kind]))
            for kind, batch in scored.items()
        }
        difference |= _overlap_differences(questions[last], questions[first], gold, draws)
        difference |= _oracle(share_differences(judged[last], judged[first], draws))
        result["difference"] = {"of": f"{last} - {first}", **difference}
    result["samples"] = [
        _sample(index, example, {name: texts[index] for name, texts in questions.items()}, scored)
        | _oracle({name: one.verdict for name, given in judged.items() if (one := given[index])} or None)
        for index, example in enumerate(examples)
        if index % max(1, len(examples) // SAMPLES) == 0
    ]
    write_json(output, result)
    return result


def _scored(kind: str, reward: Reward, examples: Sequence[QAExample], questions: Sequence[str]) -> ScoredBatch:
    scored = RewardScorer(reward)(examples, questions)
    faults = [fault for fault in scored.faults if fault is not None]
    if len(faults) == len(examples):
        raise InputError(f"{kind}: it fails on every question: {faults[0]}")
    if faults:
        message = "%s: fails on %d of %d questions, which its means leave out: %s"
        log.warning(message, kind, len(faults), len(examples), faults[0])
    return scored


def _text_summary(
    questions: Sequence[str], examples: Sequence[QAExample], draws: PassageDraws, *, is_gold: bool
) -> dict[str, Any]:
    gold = [example.question for example in examples]
    measures: dict[str, Any] = {**held_out_measures(questions, gold, [example.context for example in examples])}
    measures["distinct_questions"] = len(set(questions)) / len(questions)
    if is_gold:
        del measures["bleu4"], measures["rouge_l"]
        return measures
    counts = bleu4().statistics(questions, [[text] for text in gold])
    measures["bleu4"] = asdict(_interval(bleu4().corpus(draws.sums(counts)), draws, SHARE))
    signatures = measure_signatures()
    measures |= {"bleu_signature": signatures["bleu4"], "rouge_l_signature": signatures["rouge_l"]}
    measures["exact_matches"] = sum(a == b for a, b in zip(questions, gold, strict=True)) / len(gold)
    return measures


def _interval(values: Floats, draws: PassageDraws, bounds: Bounds | None = None) -> Interval:
    """A statistic of all questions from its values (1 + resamples,)."""
    low, high = interval_ends(values, draws.units_of(), bounds=bounds) if draws.passages > 1 else (None, None)
    return Interval(float(values[0]), low, high, len(draws.passage_index), draws.passages)


def _difference(
    last: ScoredBatch, first: ScoredBatch, draws: PassageDraws, bounds: Bounds | None
) -> dict[str, Any] | None:
    """The paired difference over the questions that both have a score for; None when there are none."""
    scores = _finite(last.scores), _finite(first.scores)
    return None if np.isnan(scores[0] - scores[1]).all() else asdict(paired_interval(*scores, draws, bounds=bounds))


def _overlap_differences(
    last: Sequence[str], first: Sequence[str], gold: Sequence[str], draws: PassageDraws
) -> dict[str, Any]:
    references = [[text] for text in gold]
    values = [bleu4().corpus(draws.sums(bleu4().statistics(texts, references))) for texts in (last, first)]
    of_bleu4 = _interval(values[0] - values[1], draws, bounds_of_difference(SHARE))
    after, before = (rouge_l().score(texts, references=references).scores for texts in (last, first))
    return {"bleu4": asdict(of_bleu4), "rouge_l": asdict(paired_interval(after, before, draws, bounds=SHARE))}


def _oracle(value: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if value is None else {"oracle": dict(value)}


def _finite(values: Sequence[float]) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


def _sample(
    index: int, example: QAExample, questions: Mapping[str, str], scored: Mapping[str, Mapping[str, ScoredBatch]]
) -> dict[str, Any]:
    scores = {
        f"{kind}_{name}": batch.scores[index] for kind, by_model in scored.items() for name, batch in by_model.items()
    }
    return {
        "id": example.id,
        "context": example.context,
        "answer": example.answers[0].text if example.answers else None,
        "answer_start": example.answers[0].start if example.answers else None,
        "gold": example.question,
        **questions,
        **{name: score if math.isfinite(score) else None for name, score in scores.items()},
    }
