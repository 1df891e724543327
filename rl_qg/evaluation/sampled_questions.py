"""Questions that a generator samples, what is wrong with them, and whether a reward tells them from right ones.

Kinds of wrong questions that people thought of need not be those that a generator writes. Reinforcement compares the
samples of one answer with each other, so a reward teaches nothing about a frequent error that it ranks among them by
chance.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewards import EntityFaithfulness, QuestionForm
from rewards.overlap.word_classes import looks_english
from rl_qg.confidence_intervals import SHARE, Floats, PassageDraws, mean_interval
from rl_qg.data.examples import QAExample
from rl_qg.evaluation.oracle import BESIDE, VERDICTS, OracleJudgement, judgements
from rl_qg.evaluation.reward_scorer import Reward, score_or_refuse
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.out_of_memory import OutOfMemoryRetry
from rl_qg.text.languages import OTHER

RIGHT = ("right", "passes")
BY_RULE = ("passes", "ill_formed", "unsupported_name", "not_answered")
SAMPLED_KINDS: Mapping[str, str] = {
    "right": "right",
    "passes": "passes all checks",
    "ill_formed": "ill-formed",
    "ambiguous": "no subject, or one that fits two",
    "wrong_relation": "another relation",
    "other_subject": "the passage's other subject",
    "invented_name": "a name that nobody in the passage has",
    "wrong_detail": "a detail that is not the subject's",
    "unsupported_name": "a name or number that the passage lacks",
    "not_answered": "the second reader does not give the answer",
    "unsupported": "a name or number that the passage lacks",
    "no_subject": "nothing says what it is about",
}
"""Verdicts of the oracle, labels of `BY_RULE`, and what the oracle says beside its verdict, in words."""
WRONG = "all that are wrong"
_AT_ONCE = 16  # answers
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class SampledQuestions:
    """Questions sampled for n examples, k for each.

    Attributes:
        model: the generator's name.
        questions: (n, k).
        kinds: which questions (n, k) are of each kind; each question is of one.
        beside: which have what the oracle says beside its verdict; empty where it judges none.
    """

    model: str
    questions: list[list[str]]
    kinds: Mapping[str, Mask]
    beside: Mapping[str, Mask]


Sampler = Callable[[Sequence[QAExample]], SampledQuestions]


def sampler(
    name: str,
    generator: CandidateGenerator,
    count: int,
    *,
    max_new_tokens: int,
    top_p: float,
    temperature: float,
    seed: int,
    reader: Reward | None = None,
) -> Sampler:
    """What samples and labels `count` questions for each of some examples.

    Args:
        name: of the generator, for the record.
        generator: it samples from the most likely tokens of the total probability `top_p`.
        count: of questions for each example.
        max_new_tokens: of a question.
        top_p: from above 0 to 1, where all tokens are possible.
        temperature: of sampling.
        seed: with an example's id it decides the random numbers of its questions.
        reader: as for `labelled`.
    """
    options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "top_p": top_p, "temperature": temperature}

    def sample(examples: Sequence[QAExample]) -> SampledQuestions:
        draw = partial(generator.candidates, count=count, seed=seed, **options)
        in_parts = OutOfMemoryRetry("separation test", "lower separate.samples, or set training.use_cpu=true")
        questions: list[list[str]] = []
        with ProgressBar(total=len(examples), desc="sample", unit="answer", leave=False, delay=2) as bar:
            for start in range(0, len(examples), _AT_ONCE):
                for groups in in_parts(draw, examples[start : start + _AT_ONCE]):
                    questions += [[candidate.question for candidate in group] for group in groups]
                bar.update(len(questions) - bar.n)
        return labelled(name, questions, examples, reader)

    return sample


# --- what is wrong with them


def labelled(
    model: str, questions: list[list[str]], examples: Sequence[QAExample], reader: Reward | None = None
) -> SampledQuestions:
    """Say of what kind each of the questions (n, k) about n examples is.

    On the embedded corpus the oracle says it (`rl_qg.evaluation.oracle.VERDICTS`). Elsewhere it is the first of these
    checks that fails: `ill_formed` by `rewards.QuestionForm`; `unsupported_name` by `rewards.EntityFaithfulness`;
    `not_answered` where `reader`, a metric, does not score 1. What none finds fault with `passes`; it need not be
    right.

    Raises:
        InputError: the reader fails.
    """
    texts = [text for group in questions for text in group]
    about = [example for example, group in zip(examples, questions, strict=True) for _ in group]
    judged = judgements(texts, about)
    kinds = [None if one is None else one.verdict for one in judged]
    by_language: dict[str, list[int]] = {}
    for row, kind in enumerate(kinds):
        if kind is None:
            by_language.setdefault(_language(about[row]), []).append(row)
    for language, rows in by_language.items():
        found = _by_rule([texts[row] for row in rows], [about[row] for row in rows], language, reader)
        for row, kind in zip(rows, found, strict=True):
            kinds[row] = kind
    possible = [*(VERDICTS if any(judged) else ()), *(BY_RULE[: 3 if reader is None else 4] if by_language else ())]
    table = np.array(kinds).reshape(len(examples), -1)
    return SampledQuestions(
        model,
        questions,
        {kind: table == kind for kind in dict.fromkeys(possible)},
        {name: _flags(judged, name).reshape(table.shape) for name in BESIDE if any(judged)},
    )


def _by_rule(
    questions: Sequence[str], examples: Sequence[QAExample], language: str, reader: Reward | None
) -> list[str]:
    checks: list[Reward] = [QuestionForm(language), EntityFaithfulness("all", language=language)]
    checks += [] if reader is None else [reader]
    contexts, answers = [one.context for one in examples], [one.answers[0].text for one in examples]
    scores = [
        score_or_refuse(check, f"check for {kind}", questions, contexts, answers=answers).scores
        for kind, check in zip(BY_RULE[1:], checks, strict=False)
    ]
    return [
        next((kind for kind, score in zip(BY_RULE[1:], row, strict=False) if score != 1), "passes")
        for row in zip(*scores, strict=True)
    ]


def _language(example: QAExample) -> str:
    """Of the human question: the one that the data name, else English or one without rules."""
    named = example.language.partition("_")[0].casefold()
    return named if named.isalpha() else "en" if looks_english(example.question) else OTHER


def _flags(judged: Sequence[OracleJudgement | None], name: str) -> Mask:
    return np.array([one is not None and getattr(one, name) for one in judged])


# --- whether a reward tells


def sampled_record(sampled: SampledQuestions, rewards: Floats, human: Floats, draws: PassageDraws) -> dict[str, Any]:
    """How frequent each kind of question is, and how a reward orders it.

    Returns `model`, `samples_per_answer`, `failed` (questions without a reward), and in `kinds`, `beside` and `wrong`
    (all that are not right) for each kind: `share` of all samples, `low`, `high`, and of wrong kinds `auc`, `auc_low`,
    `auc_high`: the share of pairs of a right and a wrong sample of one answer in which the right one has the larger
    reward, ties counted half, as a mean over `answers` answers about `passages` passages. Where no sample of an answer
    is right the human question stands in, for `human` of these answers. They are None where there is no pair. `mean`
    is the reward of the kind.

    Args:
        sampled: n examples with k questions each.
        rewards: of the samples, (n, k); NaN where there is none.
        human: of the human questions, (n,).
        draws: of the examples' passages.
    """
    right: Mask = np.logical_or.reduce([mask for kind, mask in sampled.kinds.items() if kind in RIGHT])
    of_kind = partial(_of_kind, right=right, rewards=rewards, human=human, draws=draws)
    return {
        "model": sampled.model,
        "samples_per_answer": rewards.shape[1],
        "kinds": {kind: of_kind(mask, is_right=kind in RIGHT) for kind, mask in sampled.kinds.items()},
        "beside": {name: of_kind(mask & ~right) for name, mask in sampled.beside.items()},
        "wrong": of_kind(~right),
        "failed": int(np.isnan(rewards).sum()),
    }


def _of_kind(
    mask: Mask, *, right: Mask, rewards: Floats, human: Floats, draws: PassageDraws, is_right: bool = False
) -> dict[str, Any]:
    share = mean_interval(mask.mean(axis=1), draws, bounds=SHARE)
    known = rewards[mask & ~np.isnan(rewards)]
    record = {"share": share.mean, "low": share.low, "high": share.high}
    record["mean"] = float(known.mean()) if known.size else None
    if is_right:
        return record
    stands_in: Mask = np.logical_not(np.any(right & ~np.isnan(rewards), axis=1))
    outcomes = np.full(len(rewards), np.nan)
    for number, row in enumerate(rewards):
        better = human[number : number + 1] if stands_in[number] else row[right[number]]
        order = np.sign(better[:, None] - row[mask[number]])
        if not np.isnan(order).all():
            outcomes[number] = (1 + np.nanmean(order)) / 2
    paired = ~np.isnan(outcomes)
    record |= {"answers": int(paired.sum()), "human": int((paired & stands_in).sum())}
    if not paired.any():
        return record | {"auc": None, "auc_low": None, "auc_high": None, "passages": 0}
    auc = mean_interval(outcomes, draws, bounds=SHARE)
    return record | {"auc": auc.mean, "auc_low": auc.low, "auc_high": auc.high, "passages": auc.passages}
