"""How well a reward orders a right question above wrong ones for the same passage and answer.

    rl-qg separate reward=reader data.train=train.json data.validation=dev.json output=DIR

A reward can only teach what it can tell. For every held-out example the human question is compared with wrong ones of
several kinds (`rl_qg.evaluation.wrong_questions`): the share of pairs in which the human question has the larger
reward, ties counted half. That is the area under the ROC curve of pairs; 0.5 is chance. The intervals are bootstraps
over passages. With `model.path=` the errors that a generator makes are compared with its right questions too
(`rl_qg.evaluation.sampled_questions`).
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import FEW, SHARE, Floats, PassageDraws, few_passages, mean_interval
from rl_qg.data.examples import QAExample, passage_hash
from rl_qg.data.splits import take
from rl_qg.evaluation.result_pages import NONE, Page, Table, as_text, estimate_text, write_results
from rl_qg.evaluation.reward_scorer import Reward, RewardScorer, signature_of
from rl_qg.evaluation.sampled_questions import RIGHT, SAMPLED_KINDS, WRONG, SampledQuestions, Sampler, sampled_record
from rl_qg.evaluation.wrong_questions import ANSWER_KINDS, KINDS, wrong_questions
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import read_json, write_json

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
SHOWN = 2  # examples of each kind on the page
_AT_ONCE = 256  # questions
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
    right_scores, by_column = _scores(reward, examples, {**wrong, **numbered})
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
    reward: Reward, examples: Sequence[QAExample], wrong: Mapping[str, Sequence[str | None]]
) -> tuple[Floats, dict[str, Floats]]:
    """The rewards of the examples' questions (examples,) and of each kind of wrong ones; NaN where there is none."""
    rows = [(number, "", example.question) for number, example in enumerate(examples)]
    rows += [
        (number, kind, text) for kind, texts in wrong.items() for number, text in enumerate(texts) if text is not None
    ]
    rows.sort(key=lambda row: row[0])  # questions about one passage together: rewards keep what they know of it
    scorer = RewardScorer(reward, "separation test", references=False)
    columns = {kind: np.full(len(examples), np.nan) for kind in ("", *wrong)}
    with ProgressBar(total=len(rows), desc="separate", unit="question", leave=False, delay=2) as bar:
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
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
    questions the kinds that are at least `FREQUENT` of the samples, and all wrong ones together. Fewer than ten
    passages say nothing either way.
    """
    if record["passages"] < FEW:
        return None
    shares = {KINDS[kind]: record["pairs"][kind] for kind in ANSWER_KINDS if kind in record["pairs"]}
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


def _wrong_kinds(record: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The kinds of wrong questions that a generator wrote, in words, and all of them; none without a generator."""
    sampled = record.get("sampled")
    if sampled is None:
        return []
    kinds = [(SAMPLED_KINDS[kind], found) for kind, found in sampled["kinds"].items() if kind not in RIGHT]
    return [*kinds, (WRONG, sampled["wrong"])]


def check_reward(reward: Reward, validation: Sequence[QAExample], folder: Path, *, count: int, seed: int) -> None:
    """Before training with a reward: write `separation.json` in the run folder, and warn of what it cannot tell.

    Nothing is done where the file has a test of this reward, for `count` 0, and for a reward that compares with human
    questions. A reward that fails on all questions is left to training, which has rules for it.
    """
    output = folder / FILE
    asked = [example for example in validation if example.question]
    if not count or not asked or "references" in getattr(reward, "needs", ()):
        return
    if output.exists() and read_json(output).get("reward") == signature_of(reward):
        return
    try:
        sample = take(asked, count, seed, "evaluation.check_reward", "validation questions test the reward")
        record = separation(reward, sample, pool=validation, seed=seed, resamples=2000)
    except InputError as error:
        log.warning("separation test: %s", error)
        return
    write_json(output, record)
    if line := doubts(record):
        log.warning("separation test: %s; see %s and rl-qg separate", line, output)
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
