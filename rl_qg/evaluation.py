"""Generators judged on held-out passages: greedy questions of each stage, their rewards and BLEU-4, and the paired
difference.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from tqdm import tqdm

from rl_qg.bootstrap import mean_interval, paired_interval
from rl_qg.policy import Policy
from rl_qg.qa_data import QAExample, passage_hash
from rl_qg.run_folder import write_json
from rl_qg.trainer import Reward

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
) -> dict[str, Any]:
    """Judge `models` (such as `{"ce": …, "scst": …}`) on the same held-out `examples` and write `output` (JSON).

    BLEU-4 is sacrebleu's corpus BLEU against the one gold question, with its bootstrap interval; the reward interval
    is a bootstrap over questions, and `difference` the paired bootstrap of the last model over the first.
    """
    gold = [example.question for example in examples]
    questions = {
        name: _greedy(name, path, examples, max_new_tokens=max_new_tokens, batch_size=batch_size, device=device)
        for name, path in models.items()
    }
    rewards = {name: _rewards(reward, examples, texts) for name, texts in {**questions, "gold": gold}.items()}
    result: dict[str, Any] = {
        "examples": len(examples),
        "passages": len({passage_hash(example.context) for example in examples}),
        "reward_signature": getattr(reward, "signature", type(reward).__name__),
        "models": {name: _summary(texts, gold, rewards[name]) for name, texts in questions.items()},
    }
    result["models"]["gold"] = {"reward": asdict(mean_interval(rewards["gold"]))}
    if len(models) > 1:
        first, *_, last = models
        result["difference"] = {
            "of": f"{last} - {first}",
            "reward": asdict(paired_interval(rewards[last], rewards[first])),
        }
    result["samples"] = [
        {
            "id": example.id,
            "context": example.context,
            "answer": example.answers[0].text,
            "answer_start": example.answers[0].start,
            "gold": example.question,
            "reward_gold": rewards["gold"][index],
            **{name: questions[name][index] for name in models},
            **{f"reward_{name}": rewards[name][index] for name in models},
        }
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


def _rewards(reward: Reward, examples: Sequence[QAExample], questions: Sequence[str]) -> list[float]:
    scores = reward.score(
        questions,
        [example.context for example in examples],
        answers=[example.answers[0].text for example in examples],
        references=[[example.question] for example in examples],
    ).scores
    return [float(score) for score in scores]


def _summary(questions: Sequence[str], gold: Sequence[str], rewards: Sequence[float]) -> dict[str, Any]:
    bleu = sacrebleu.metrics.BLEU()
    score = bleu.corpus_score(list(questions), [list(gold)], n_bootstrap=1000)
    return {
        "bleu4": {
            "mean": score.score,
            "low": score._mean - score._ci,
            "high": score._mean + score._ci,
            "n": len(gold),
        },
        "bleu_signature": str(bleu.get_signature()),
        "reward": asdict(mean_interval(rewards)),
        "length_words": sum(len(text.split()) for text in questions) / len(questions),
        "distinct_questions": len(set(questions)) / len(questions),
        "exact_matches": sum(a == b for a, b in zip(questions, gold, strict=True)) / len(gold),
    }
