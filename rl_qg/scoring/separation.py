"""How well a reward orders a right question above wrong ones for the same passage and answer.

A reward can only teach what it can tell. For every held-out example the human question is compared with wrong ones of
several kinds (`rl_qg.scoring.wrong_questions`): the share of pairs in which the human question has the larger
reward, ties counted half. That is the area under the ROC curve of pairs; 0.5 is chance. The intervals are bootstraps
over passages. With `model.path=` the errors that a generator makes are compared with its right questions too.
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
from rl_qg.data.examples import QAExample, by_key, passage_hash
from rl_qg.data.oracle import BESIDE, VERDICTS, judgements
from rl_qg.data.splits import take
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.pages.results import NONE, Page, Table, as_text, estimate_text, template_lines, write_results
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import packaged_yaml, read_record, write_json
from rl_qg.runtime.ranks import OutOfMemoryRetry
from rl_qg.scoring.reward_scorer import Reward, RewardScorer, finite_or_none, score_or_refuse, signature_of
from rl_qg.scoring.wrong_questions import ANSWER_KINDS, KINDS, wrong_questions
from rl_qg.stats.intervals import FEW, SHARE, Floats, PassageDraws, few_passages, mean_interval, without_rounding
from rl_qg.text.languages import OTHER

FILE = "separation.json"
RIGHT = ("right", "passes")
WORDS: Mapping[str, Any] = packaged_yaml(__file__, "separation.yaml")
SAMPLED_KINDS: Mapping[str, str] = WORDS["sampled_kinds"]
"""Verdicts of the oracle, labels by rule, and what the oracle says beside its verdict, in words."""
WRONG, OVERALL = "all that are wrong", "all kinds together"
CHANCE = 0.5
ABOVE, CANNOT_TELL, PREFERS_WRONG = "above", "cannot tell", "prefers the wrong one"  # what `told` says
FREQUENT = 0.02  # share of the samples from which on a kind of error is in doubt
SHOWN = 2  # examples of each kind on the page
ANSWERS_AT_ONCE, QUESTIONS_AT_ONCE = 16, 256
Mask = NDArray[np.bool_]
log = logging.getLogger(__name__)


# --- questions that a generator samples, and what is wrong with them: reinforcement compares the samples of one answer
# with each other, so a reward teaches nothing about a frequent error that it ranks among them by chance


@dataclass(frozen=True)
class SampledQuestions:
    """Questions (n, k) that `model` sampled for n examples, which of them are of each kind, (n, k), each of one; and
    which have what the oracle says `beside` its verdict, nothing where it judges none.
    """

    model: str
    questions: list[list[str]]
    kinds: Mapping[str, Mask]
    beside: Mapping[str, Mask]


Sampler = Callable[[Sequence[QAExample]], SampledQuestions]


def sampler(
    name: str, generator: CandidateGenerator, count: int, *, reader: Reward | None = None, **options: Any
) -> Sampler:
    """What samples `count` questions for each of some examples with the options of `generator.candidates`, and labels
    them by `labelled`; `name` is that of the generator, for the record.
    """
    draw = partial(generator.candidates, count=count, **options)

    def sample(examples: Sequence[QAExample]) -> SampledQuestions:
        remedy = "lower separate.samples, or set training.use_cpu=true"
        in_parts = OutOfMemoryRetry("questions of the generator", remedy)
        questions: list[list[str]] = []
        with ProgressBar(total=len(examples), desc="sample", unit="answer", leave=False, delay=2) as bar:
            for start in range(0, len(examples), ANSWERS_AT_ONCE):
                for groups in in_parts(draw, examples[start : start + ANSWERS_AT_ONCE]):
                    questions += [[candidate.question for candidate in group] for group in groups]
                bar.update(len(questions) - bar.n)
        return labelled(name, questions, examples, reader)

    return sample


def labelled(
    model: str, questions: list[list[str]], examples: Sequence[QAExample], reader: Reward | None = None
) -> SampledQuestions:
    """Say of what kind each of the questions (n, k) about n examples is.

    On the embedded corpus the oracle says it (`rl_qg.data.oracle.VERDICTS`). Elsewhere it is the first of these
    checks that fails: `ill_formed` by `rewards.QuestionForm`; `unsupported_name` by `rewards.EntityFaithfulness`;
    `not_answered` where `reader`, a metric, does not score 1. What none finds fault with `passes`; it need not be
    right. Raises `InputError` where the reader fails.
    """
    texts = [text for group in questions for text in group]
    about = [example for example, group in zip(examples, questions, strict=True) for _ in group]
    judged = judgements(texts, about)
    kinds = [None if one is None else one.verdict for one in judged]
    by_language = by_key((_language(about[row]), row) for row, kind in enumerate(kinds) if kind is None)
    possible = [*VERDICTS] if any(judged) else []
    for language, rows in by_language.items():
        checks: dict[str, Reward] = {
            "ill_formed": QuestionForm(language),
            "unsupported_name": EntityFaithfulness("all", language=language),
            **({} if reader is None else {"not_answered": reader}),
        }
        given = {
            "question": [texts[row] for row in rows],
            "context": [about[row].context for row in rows],
            "answer": [about[row].answers[0].text for row in rows],
        }
        scores = {kind: score_or_refuse(check, f"check for {kind}", given).scores for kind, check in checks.items()}
        for number, row in enumerate(rows):
            kinds[row] = next((kind for kind in scores if scores[kind][number] != 1), "passes")
        possible += ["passes", *checks]
    table = np.array(kinds).reshape(len(examples), -1)
    beside = {
        name: np.array([one is not None and getattr(one, name) for one in judged]).reshape(table.shape)
        for name in BESIDE
        if any(judged)
    }
    return SampledQuestions(model, questions, {kind: table == kind for kind in dict.fromkeys(possible)}, beside)


def _language(example: QAExample) -> str:
    """Of the human question: the one that the data name, else English or one without rules."""
    named = example.language.partition("_")[0].casefold()
    return named if named.isalpha() else "en" if looks_english(example.question) else OTHER


def sampled_record(sampled: SampledQuestions, rewards: Floats, human: Floats, draws: PassageDraws) -> dict[str, Any]:
    """How frequent each kind of question is, and how a reward orders it, from the rewards of the samples (n, k) and of
    the human questions (n,), NaN where there is none.

    Returns `model`, `samples_per_answer`, `failed` (questions without a reward), and in `kinds`, `beside` and `wrong`
    (all that are not right) for each kind: `share` of all samples, `low`, `high`, and of wrong kinds `auc`, `auc_low`,
    `auc_high`: the share of pairs of a right and a wrong sample of one answer in which the right one has the larger
    reward, ties counted half, as a mean over `answers` answers about `passages` passages. Where no sample of an answer
    is right the human question stands in, for `human` of these answers. They are None where there is no pair. `mean`
    is the reward of the kind.
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

    A larger reward is better, since training raises it. Examples without a question are left out; questions of `pool`
    serve as wrong ones too; `seed` chooses them, and passages are drawn `resamples` times.
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
    human, scores = _scores(reward, examples, {**wrong, **numbered}, title)
    draws = PassageDraws([passage_hash(example.context) for example in examples], resamples=resamples)
    # 1 where the human question has the larger reward, 0.5 for a tie, else 0; NaN where one has none.
    gaps = {kind: human - scores[kind] for kind in wrong}
    won = {kind: np.where(np.isnan(gap), np.nan, (1 + np.sign(gap)) / 2) for kind, gap in gaps.items()}
    pairs = {
        kind: _share(outcomes, draws) | {"mean": float(np.nanmean(scores[kind]))}
        for kind, outcomes in won.items()
        if not np.isnan(outcomes).all()
    }
    if not pairs:
        raise InputError(
            f"the reward {signature_of(reward)} fails on every question of the test; see the warning above"
        )
    of_all = PassageDraws(draws.passage_index.tolist() * len(won), resamples=resamples)  # the same passages drawn
    asked = sum(question is not None for questions in wrong.values() for question in questions)
    answered = sum(int(np.isfinite(column).sum()) for column in (human, *(scores[kind] for kind in wrong)))
    record = {
        "reward": signature_of(reward),
        "examples": len(examples),
        "passages": draws.passages,
        "seed": seed,
        "mean": float(np.nanmean(human)),
        "pairs": pairs,
        "auc": _share(np.concatenate([*won.values()]), of_all),
        "failed": asked + len(examples) - answered,
        "samples": _samples(examples, wrong, human, scores),
    }
    if sampled is None:
        return record
    rewards = np.stack([scores[name] for name in numbered], axis=1)
    texts: dict[str, list[str | None]] = {}
    of_kind: dict[str, Floats] = {}
    for kind, mask in sampled.kinds.items():  # the first of each answer
        if kind not in RIGHT:
            first = list(enumerate(mask.argmax(axis=1)))
            texts[kind] = [sampled.questions[row][column] if mask[row, column] else None for row, column in first]
            of_kind[kind] = np.array([rewards[at] for at in first])
    samples = _samples(examples, texts, human, of_kind)
    return record | {"sampled": {**sampled_record(sampled, rewards, human, draws), "samples": samples}}


def _scores(
    reward: Reward, examples: Sequence[QAExample], wrong: Mapping[str, Sequence[str | None]], title: str
) -> tuple[Floats, dict[str, Floats]]:
    """The rewards of the examples' questions (examples,) and of each kind of wrong ones; NaN where there is none."""
    asked = {"": [example.question for example in examples], **wrong}
    rows = [
        (number, kind, text) for kind, texts in asked.items() for number, text in enumerate(texts) if text is not None
    ]
    rows.sort(key=lambda row: row[0])  # questions about one passage together: rewards keep what they know of it
    scorer = RewardScorer(reward, title, references=False)
    columns = {kind: np.full(len(examples), np.nan) for kind in asked}
    with ProgressBar(total=len(rows), desc="separate", unit="question", leave=False, delay=2) as bar:
        for start in range(0, len(rows), QUESTIONS_AT_ONCE):
            part = rows[start : start + QUESTIONS_AT_ONCE]
            scored = scorer([examples[number] for number, _, _ in part], [text for _, _, text in part])
            for (number, kind, _), score in zip(part, scored.scores, strict=True):
                columns[kind][number] = score if np.isfinite(score) else np.nan
            bar.update(len(part))
    scorer.reset_cache()
    columns = {kind: without_rounding(column) for kind, column in columns.items()}
    return columns.pop(""), columns


def _share(outcomes: Floats, draws: PassageDraws) -> dict[str, Any]:
    interval = mean_interval(outcomes, draws, bounds=SHARE)
    return {"auc": interval.mean, "low": interval.low, "high": interval.high, "n": interval.n}


def _samples(
    examples: Sequence[QAExample],
    wrong: Mapping[str, Sequence[str | None]],
    human: Floats,
    scores: Mapping[str, Floats],
) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "id": examples[number].id,
            "question": examples[number].question,
            "wrong": texts[number],
            "answer": examples[number].answers[0].text,
            "reward": finite_or_none(human[number]),
            "reward_wrong": finite_or_none(scores[kind][number]),
        }
        for kind, texts in wrong.items()
        for number in [number for number, text in enumerate(texts) if text is not None][:SHOWN]
    ]


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
    sampled = record.get("sampled")
    written = {} if sampled is None else {kind: found["share"] for kind, found in sampled["kinds"].items()}
    shares = {KINDS[kind]: record["pairs"].get(kind) for kind in ANSWER_KINDS if not is_rare(kind, written)}
    by_rule = {
        f"{name} ({_text(share)} of {share['n']} pairs in order)": told(share["low"], share["high"])
        for name, share in (shares | {OVERALL: record["auc"]}).items()
        if share is not None
    }
    by_generator = {
        f"{name} ({kind['share']:.1%} of the samples, {_text(kind, 'auc_')} in order)": told(
            kind["auc_low"], kind["auc_high"]
        )
        for name, kind, is_wrong in ([] if sampled is None else _sampled_kinds(sampled))
        if is_wrong and kind["share"] >= FREQUENT and kind["passages"] >= FEW
    }
    lines = [
        f"{meaning}: {'; '.join(found)}"
        for name, verdicts in (("by_rule", by_rule), ("sampled", by_generator))
        for verdict, meaning in WORDS["doubts"][name].items()
        if (found := [text for text, said in verdicts.items() if said == verdict])
    ]
    return "; ".join(lines) or None


def is_rare(kind: str, shares: Mapping[str, float]) -> bool:
    """Whether a generator seldom writes a kind of wrong questions made by rule, from the kinds' `shares` (0 to 1)."""
    known = [shares[name] for name in WORDS["seen_as"].get(kind, ()) if name in shares]
    return bool(known) and sum(known) < FREQUENT


def _sampled_kinds(sampled: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], bool]]:
    """The kinds of questions that a generator wrote, in words, and all that are wrong; whether a kind is wrong."""
    kinds = [(SAMPLED_KINDS[kind], found, kind not in RIGHT) for kind, found in sampled["kinds"].items()]
    return [*kinds, (WRONG, sampled["wrong"], True)]


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
    this reward, for `count` 0, and for a reward that compares with human questions. A reward that fails on all
    questions is left to training, which has rules for it.
    """
    output = folder / FILE
    asked = [example for example in validation if example.question]
    if not count or not asked or "references" in getattr(reward, "needs", ()):
        return
    known = read_record(output) if output.exists() else {}
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
    page = Page("separate", "Right and wrong questions", _facts(record), _tables(record), {"reward": record["reward"]})
    pairs = {**record["pairs"], "all": record["auc"]}
    sampled = record.get("sampled", {"kinds": {}, "beside": {}, "wrong": None})
    kinds = [*sampled["kinds"].items(), *sampled["beside"].items(), ("wrong", sampled["wrong"])]
    rows = {
        "separation": [{"kind": kind, **share} for kind, share in pairs.items()],
        "sampled_questions": [{"kind": kind, **found} for kind, found in kinds if found is not None],
    }
    write_results(folder, "separation", record, page, rows)
    log.info("%s\ndone: open %s", as_text(page), folder / "separation.html")


def _facts(record: Mapping[str, Any]) -> list[str]:
    known = {"doubts": doubts(record), "few": few_passages(record["passages"])}
    return template_lines("rl_qg.scoring", "separation_facts.txt", **record, **known)


def _tables(record: Mapping[str, Any]) -> list[Table]:
    rows = [
        {
            "wrong question": name,
            "pairs": f"{share['n']:,}",
            "in order (0–1)": _text(share),
            **({"its mean reward": f"{share['mean']:.4g}"} if "mean" in share else {}),
        }
        for name, share in (
            {KINDS[kind]: share for kind, share in record["pairs"].items()} | {OVERALL: record["auc"]}
        ).items()
    ]
    note = WORDS["notes"]["pairs"].format(**record)
    tables = [Table("Pairs in order", rows, note), Table("Examples", _shown(record["samples"]))]
    if "sampled" not in record:
        return tables
    sampled = record["sampled"]
    parts = [(name, found) for name, found, _ in _sampled_kinds(sampled)]
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
    note = "".join(WORDS["notes"][name] for name in ("sampled", *(("failed",) if sampled["failed"] else ())))
    shown = Table("Examples of sampled questions", _shown(sampled["samples"]))
    return [*tables, Table("Questions that the generator samples", rows, note.format(**sampled)), shown]


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
