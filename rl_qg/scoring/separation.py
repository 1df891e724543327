"""How well a reward orders a right question above wrong ones for the same passage and answer.

    rl-qg separate reward=reader data.train=train.json data.validation=dev.json output=DIR

A reward can only teach what it can tell. For every held-out example the human question is compared with wrong ones of
several kinds (`rl_qg.scoring.wrong_questions`): the share of pairs in which the human question has the larger
reward, ties counted half. That is the area under the ROC curve of pairs; 0.5 is chance. The intervals are bootstraps
over passages. With `model.path=` the errors that a generator makes are compared with its right questions too
(`rl_qg.scoring.separation`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewards import EntityFaithfulness, QuestionForm
from rewards.overlap.answerability import looks_english
from rl_qg.data.examples import QAExample, passage_hash
from rl_qg.data.oracle import BESIDE, VERDICTS, OracleJudgement, judgements
from rl_qg.data.splits import take
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.pages.results import NONE, Page, Table, as_text, estimate_text, write_results
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, write_json
from rl_qg.runtime.processes import OutOfMemoryRetry
from rl_qg.scoring.reward_scorer import Reward, RewardScorer, score_or_refuse, signature_of
from rl_qg.scoring.wrong_questions import ANSWER_KINDS, KINDS, wrong_questions
from rl_qg.stats.intervals import FEW, SHARE, Floats, PassageDraws, few_passages, mean_interval
from rl_qg.text.languages import OTHER

# Questions that a generator samples, what is wrong with them, and whether a reward tells them from right ones.
#
# Kinds of wrong questions that people thought of need not be those that a generator writes. Reinforcement compares the
# samples of one answer with each other, so a reward teaches nothing about a frequent error that it ranks among them by
# chance.


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
_ANSWERS_AT_ONCE = 16  # answers
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
        in_parts = OutOfMemoryRetry(
            "questions of the generator", "lower separate.samples, or set training.use_cpu=true"
        )
        questions: list[list[str]] = []
        with ProgressBar(total=len(examples), desc="sample", unit="answer", leave=False, delay=2) as bar:
            for start in range(0, len(examples), _ANSWERS_AT_ONCE):
                for groups in in_parts(draw, examples[start : start + _ANSWERS_AT_ONCE]):
                    questions += [[candidate.question for candidate in group] for group in groups]
                bar.update(len(questions) - bar.n)
        return labelled(name, questions, examples, reader)

    return sample


# --- what is wrong with them


def labelled(
    model: str, questions: list[list[str]], examples: Sequence[QAExample], reader: Reward | None = None
) -> SampledQuestions:
    """Say of what kind each of the questions (n, k) about n examples is.

    On the embedded corpus the oracle says it (`rl_qg.data.oracle.VERDICTS`). Elsewhere it is the first of these
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


FILE = "separation.json"
CHANCE = 0.5
ABOVE, CANNOT_TELL, PREFERS_WRONG = "above", "cannot tell", "prefers the wrong one"  # what `told` says
_DOUBTS = {
    CANNOT_TELL: "the reward cannot tell the human question from",
    PREFERS_WRONG: "the reward prefers the wrong one to the human question",
}
_SAMPLED_DOUBTS = {
    CANNOT_TELL: "of the generator's own questions the reward cannot tell right ones from",
    PREFERS_WRONG: "of the generator's own questions the reward prefers to right ones",
}
FREQUENT = 0.02  # share of the samples from which on a kind of error is in doubt
_SEEN_AS = {
    "other_answer": ("wrong_relation", "other_subject", "not_answered"),
    "wrong_entity": ("other_subject", "not_answered"),
    "wrong_attribute": ("wrong_relation",),
}  # the kinds of sampled questions that say how frequent a kind made by rule is
SHOWN = 2  # examples of each kind on the page
_QUESTIONS_AT_ONCE = 256  # questions
_OVERALL = "all kinds together"
log = logging.getLogger(__name__)


def separation(
    reward: Reward,
    examples: Sequence[QAExample],
    *,
    pool: Sequence[QAExample] = (),
    seed: int = 0,
    resamples: int = 10_000,
    sampler: Sampler | None = None,
) -> dict[str, Any]:
    """Score right and wrong questions about the examples with a reward, as training would, and compare them.

    Returns a record for JSON: `reward` (its signature), `examples`, `passages`, `seed`, `mean` (reward of the human
    questions), `pairs` ({kind: {auc, low, high, n, mean}}, `mean` being the reward of the wrong questions, and n the
    pairs; kinds without a pair are left out), `auc` ({auc, low, high, n} of all pairs), `failed` (questions without a
    score, whose pairs are left out), and `samples`; with a `sampler` also `sampled`: that of `sampled_record`, with
    some `samples`. Intervals are None where all examples are about one passage.

    Args:
        reward: larger is better; it is taken as it is, since training raises it.
        examples: with a question each; those without are left out.
        pool: further examples whose questions serve as wrong ones.
        seed: of the choice of wrong questions.
        resamples: draws of passages.
        sampler: samples and labels a generator's questions about the examples.

    Raises:
        InputError: no example has a question, the reward compares with the human question, or it fails on all.
    """
    examples = [example for example in examples if example.question]
    if not examples:
        raise InputError("no example with a question to test the reward on; see data.validation")
    if "references" in getattr(reward, "needs", ()):
        raise InputError(
            "the reward compares with the human question, which is its own best match; choose a reward that reads "
            "passage or answer"
        )
    wrong = wrong_questions(examples, pool, seed)
    sampled = None if sampler is None else sampler(examples)
    columns = [] if sampled is None else list(zip(*sampled.questions, strict=True))  # (k, examples)
    numbered = {f"sample {number}": texts for number, texts in enumerate(columns)}
    title = "separation test" if sampler is None else "separation test with samples"
    right_scores, by_column = _scores(reward, examples, {**wrong, **numbered}, title)
    wrong_scores = {kind: by_column[kind] for kind in wrong}
    draws = PassageDraws([passage_hash(example.context) for example in examples], resamples=resamples)
    pairs, won = {}, []
    for kind, scores in wrong_scores.items():
        outcomes = _outcomes(right_scores, scores)
        won.append(outcomes)
        if not np.isnan(outcomes).all():
            pairs[kind] = _share(outcomes, draws) | {"mean": float(np.nanmean(scores))}
    if not pairs:
        raise InputError(
            f"the reward {signature_of(reward)} fails on every question of the test; see the warning above"
        )
    everything = PassageDraws(
        [number for _ in won for number in draws.passage_index.tolist()], resamples=resamples
    )  # the same draws of the same passages
    asked = sum(question is not None for questions in wrong.values() for question in questions)
    return {
        "reward": signature_of(reward),
        "examples": len(examples),
        "passages": draws.passages,
        "seed": seed,
        "mean": float(np.nanmean(right_scores)),
        "pairs": pairs,
        "auc": _share(np.concatenate(won), everything),
        "failed": asked
        + len(examples)
        - sum(int(np.isfinite(one).sum()) for one in (right_scores, *wrong_scores.values())),
        "samples": _samples(examples, wrong, right_scores, wrong_scores),
        **(
            {}
            if sampled is None
            else {"sampled": _sampled(sampled, examples, right_scores, [by_column[name] for name in numbered], draws)}
        ),
    }


def _sampled(
    sampled: SampledQuestions,
    examples: Sequence[QAExample],
    right_scores: Floats,
    columns: Sequence[Floats],
    draws: PassageDraws,
) -> dict[str, Any]:
    """The record of the sampled questions, with the first wrong ones of each kind."""
    rewards = np.stack(columns, axis=1)
    texts: dict[str, list[str | None]] = {}
    of_kind: dict[str, Floats] = {}
    for kind, mask in sampled.kinds.items():
        if kind not in RIGHT:
            first = list(enumerate(mask.argmax(axis=1)))
            texts[kind] = [sampled.questions[row][column] if mask[row, column] else None for row, column in first]
            of_kind[kind] = np.array([rewards[at] for at in first])
    record = sampled_record(sampled, rewards, right_scores, draws)
    return {**record, "samples": _samples(examples, texts, right_scores, of_kind)}


def _scores(
    reward: Reward, examples: Sequence[QAExample], wrong: Mapping[str, Sequence[str | None]], title: str
) -> tuple[Floats, dict[str, Floats]]:
    """The rewards of the examples' questions (examples,) and of each kind of wrong ones; NaN where there is none."""
    rows = [(number, "", example.question) for number, example in enumerate(examples)]
    rows += [
        (number, kind, text) for kind, texts in wrong.items() for number, text in enumerate(texts) if text is not None
    ]
    rows.sort(key=lambda row: row[0])  # questions about one passage together: rewards keep what they know of it
    scorer = RewardScorer(reward, title, references=False)
    columns = {kind: np.full(len(examples), np.nan) for kind in ("", *wrong)}
    with ProgressBar(total=len(rows), desc="separate", unit="question", leave=False, delay=2) as bar:
        for start in range(0, len(rows), _QUESTIONS_AT_ONCE):
            part = rows[start : start + _QUESTIONS_AT_ONCE]
            scored = scorer([examples[number] for number, _, _ in part], [text for _, _, text in part])
            for (number, kind, _), score in zip(part, scored.scores, strict=True):
                columns[kind][number] = score if np.isfinite(score) else np.nan
            bar.update(len(part))
    scorer.reset_cache()
    return columns.pop(""), columns


def _outcomes(right: Floats, wrong: Floats) -> Floats:
    """1 where the right question has the larger reward, 0.5 for a tie, else 0; NaN where one has none."""
    return np.where(np.isnan(right - wrong), np.nan, (1 + np.sign(right - wrong)) / 2)


def _share(outcomes: Floats, draws: PassageDraws) -> dict[str, Any]:
    interval = mean_interval(outcomes, draws, bounds=SHARE)
    return {"auc": interval.mean, "low": interval.low, "high": interval.high, "n": interval.n}


def _samples(
    examples: Sequence[QAExample],
    wrong: Mapping[str, Sequence[str | None]],
    right_scores: Floats,
    wrong_scores: Mapping[str, Floats],
) -> list[dict[str, Any]]:
    """Some wrong questions of each kind beside the right one, with both rewards."""
    samples = []
    for kind, texts in wrong.items():
        numbers = [number for number, text in enumerate(texts) if text is not None][:SHOWN]
        for number in numbers:
            scores = {"reward": right_scores[number], "reward_wrong": wrong_scores[kind][number]}
            known = {key: None if np.isnan(score) else float(score) for key, score in scores.items()}
            example = examples[number]
            texts_of = {"id": example.id, "question": example.question, "wrong": texts[number]}
            samples.append({"kind": kind, **texts_of, "answer": example.answers[0].text, **known})
    return samples


# --- what it says


def told(low: float | None, high: float | None) -> str:
    """What the interval of a share says of the reward: `ABOVE` chance, it tells; `PREFERS_WRONG` below it;
    `CANNOT_TELL` where the interval holds 0.5, or there is none.
    """
    if low is None or high is None or low <= CHANCE <= high:
        return CANNOT_TELL
    return ABOVE if low > CHANCE else PREFERS_WRONG


def doubts(record: Mapping[str, Any]) -> str | None:
    """One line on what a reward cannot tell, and where it prefers the wrong question; None without doubts.

    In doubt are `ANSWER_KINDS` and all kinds together, where the interval does not lie above 0.5; of a generator's
    questions the kinds that are at least `FREQUENT` of the samples, and all wrong ones together. A kind made by rule
    that the generator is seen to write less often is in no doubt. Fewer than ten passages say nothing either way.
    """
    if record["passages"] < FEW:
        return None
    written = {kind: found["share"] for kind, found in record.get("sampled", {"kinds": {}})["kinds"].items()}
    asked = [kind for kind in ANSWER_KINDS if kind in record["pairs"] and not is_rare(kind, written)]
    shares = {KINDS[kind]: record["pairs"][kind] for kind in asked}
    shares[_OVERALL] = record["auc"]
    lines = []
    for verdict, meaning in _DOUBTS.items():
        found = [
            f"{name} ({_text(share)} of {share['n']} pairs in order)"
            for name, share in shares.items()
            if told(share["low"], share["high"]) == verdict
        ]
        lines += [f"{meaning}: {'; '.join(found)}"] if found else []
    frequent = {
        name: kind for name, kind in _wrong_kinds(record) if kind["share"] >= FREQUENT and kind["passages"] >= FEW
    }
    for verdict, meaning in _SAMPLED_DOUBTS.items():
        found = [
            f"{name} ({kind['share']:.1%} of the samples, {_text(kind, 'auc_')} in order)"
            for name, kind in frequent.items()
            if told(kind["auc_low"], kind["auc_high"]) == verdict
        ]
        lines += [f"{meaning}: {'; '.join(found)}"] if found else []
    return "; ".join(lines) or None


def is_rare(kind: str, shares: Mapping[str, float]) -> bool:
    """Whether a generator seldom writes a kind of wrong questions that is made by rule, from the `shares` (0 to 1) of
    the kinds in what it samples.
    """
    known = [shares[name] for name in _SEEN_AS.get(kind, ()) if name in shares]
    return bool(known) and sum(known) < FREQUENT


def _wrong_kinds(record: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The kinds of wrong questions that a generator wrote, in words, and all of them; none without a generator."""
    sampled = record.get("sampled")
    if sampled is None:
        return []
    kinds = [(SAMPLED_KINDS[kind], found) for kind, found in sampled["kinds"].items() if kind not in RIGHT]
    return [*kinds, (WRONG, sampled["wrong"])]


def check_reward(
    reward: Reward,
    validation: Sequence[QAExample],
    folder: Path,
    *,
    count: int,
    seed: int,
    sampler: Sampler | None = None,
    again: bool = False,
) -> None:
    """Before training with a reward: write `separation.json` in the run folder, and warn of what it cannot tell.

    With a `sampler` the generator's own questions are tested too. Where that is done later (`again`), kinds made by
    rule are no warning yet: nobody knows how frequent they are. Nothing is done where the file has such a test of
    this reward, for `count` 0, and for a reward that compares with human
    questions. A reward that fails on all questions is left to training, which has rules for it.
    """
    output = folder / FILE
    asked = [example for example in validation if example.question]
    if not count or not asked or "references" in getattr(reward, "needs", ()):
        return
    known = read_json(output) if output.exists() else {}
    if known.get("reward") == signature_of(reward) and (sampler is None or "sampled" in known):
        return
    try:
        sample = take(asked, count, seed, "evaluation.check_reward", "validation questions test the reward")
        record = separation(reward, sample, pool=validation, seed=seed, resamples=2000, sampler=sampler)
    except InputError as error:
        log.warning("separation test: %s", error)
        return
    write_json(output, record)
    if line := doubts(record):
        blind = told(record["auc"]["low"], record["auc"]["high"]) != ABOVE
        level = logging.INFO if again and not blind else logging.WARNING
        log.log(level, "separation test: %s; see %s and rl-qg separate", line, output)
    else:
        log.info("separation test: right questions above wrong ones in %s of pairs", _text(record["auc"]))


def write_separation(folder: Path, record: Mapping[str, Any]) -> None:
    """Write `separation.json`, `.txt`, `.html` and a CSV of the table, and print the table."""
    rows = [{"kind": kind, **share} for kind, share in record["pairs"].items()]
    rows.append({"kind": "all", **record["auc"]})
    page = Page("separate", "Right and wrong questions", _facts(record), _tables(record), {"reward": record["reward"]})
    sampled = record.get("sampled", {"kinds": {}, "beside": {}})
    rows_of_samples = [
        {"kind": kind, **found} for part in ("kinds", "beside") for kind, found in sampled[part].items()
    ]
    rows_of_samples += [{"kind": "wrong", **sampled["wrong"]}] if rows_of_samples else []
    write_results(folder, "separation", record, page, {"separation": rows, "sampled_questions": rows_of_samples})
    log.info("%s\ndone: open %s", as_text(page), folder / "separation.html")


def _facts(record: Mapping[str, Any]) -> list[str]:
    facts = [f"{record['examples']:,} human questions about {record['passages']:,} passages, seed {record['seed']}"]
    if record["failed"]:
        facts.append(f"{record['failed']:,} questions have no reward and are left out")
    if warning := few_passages(record["passages"]):
        return [*facts, warning]
    line = doubts(record)
    return [*facts, f"In doubt: {line}." if line else "Right questions are above each kind that concerns the answer."]


def _tables(record: Mapping[str, Any]) -> list[Table]:
    rows = [
        {
            "wrong question": KINDS[kind],
            "pairs": f"{share['n']:,}",
            "in order (0–1)": _text(share),
            "its mean reward": f"{share['mean']:.4g}",
        }
        for kind, share in record["pairs"].items()
    ]
    total = {"wrong question": _OVERALL, "pairs": f"{record['auc']['n']:,}", "in order (0–1)": _text(record["auc"])}
    note = (
        "Share of pairs in which the human question has the larger reward, ties counted half, with its 95 % interval "
        f"over passages; 0.5 is chance. The mean reward of the human questions is {record['mean']:.4g}."
    )
    tables = [Table("Pairs in order", [*rows, total], note), Table("Examples", _shown(record["samples"]))]
    if "sampled" in record:
        sampled = record["sampled"]
        tables += [_sampled_table(sampled), Table("Examples of sampled questions", _shown(sampled["samples"]))]
    return tables


def _sampled_table(sampled: Mapping[str, Any]) -> Table:
    parts = [(SAMPLED_KINDS[kind], found) for kind, found in sampled["kinds"].items()]
    parts += [(WRONG, sampled["wrong"])]
    parts += [(f"beside: {SAMPLED_KINDS[name]}", found) for name, found in sampled["beside"].items()]
    rows = [
        {
            "sampled question": name,
            "share of the samples (0–1)": estimate_text({**found, "value": found["share"]}),
            "answers": f"{found['answers']:,}" if "answers" in found else NONE,
            "in order (0–1)": _text(found, "auc_") if found.get("auc") is not None else NONE,
            "its mean reward": _number(found["mean"]),
        }
        for name, found in parts
    ]
    wrong = sampled["wrong"]
    note = (
        f"{sampled['samples_per_answer']} questions for each answer by {sampled['model']}. In order: share of pairs "
        "of a right and a wrong question of the same answer in which the right one has the larger reward, ties "
        "counted half, as a mean over answers. Where no sample is right the human question stands in: of all that "
        f"are wrong for {wrong['human']:,} of {wrong['answers']:,} answers."
    )
    if sampled["failed"]:
        note += f" {sampled['failed']:,} samples have no reward and are in no pair."
    return Table("Questions that the generator samples", rows, note)


def _shown(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {
            "wrong question": sample["wrong"],
            "kind": sample["kind"],
            "human question": sample["question"],
            "reward of the human one": _number(sample["reward"]),
            "of the wrong one": _number(sample["reward_wrong"]),
        }
        for sample in samples
    ]


def _text(share: Mapping[str, Any], ends: str = "") -> str:
    return estimate_text({"value": share["auc"], "low": share[f"{ends}low"], "high": share[f"{ends}high"]})


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.4g}"
