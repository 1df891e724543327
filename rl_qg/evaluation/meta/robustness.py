"""Robustness: do metrics see that a question has become wrong, and not mind that it is said in other words.

    rl-qg robustness input=dev.json metrics=[rouge_l,qrelscore] output=DIR

Human questions are made wrong by one change (`rl_qg.evaluation.meta.perturbations`) and said in other words
(`rl_qg.evaluation.meta.paraphrases`); a metric is judged by the area under the ROC curve of paraphrases against wrong
questions. A row without references has the human question as its reference. Writes `questions.jsonl` (every question
made, with what was changed), `robustness.json`, `.txt`, `.html` and CSV. The same command after a kill goes on.
"""

import json
import logging
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from rewards.overlap.word_classes import looks_english
from rl_qg.confidence_intervals import Floats, PassageDraws, estimate, few_passages
from rl_qg.data.examples import seeded_rank
from rl_qg.data.question_tables import QuestionTable
from rl_qg.evaluation.meta.paraphrases import by_model, by_rules, read_pairs
from rl_qg.evaluation.meta.perturbations import (
    ANY_LANGUAGE,
    KINDS,
    Finder,
    entities_by_kind,
    negate,
    rule_finder,
    swap_entity,
    swap_pronoun,
)
from rl_qg.evaluation.meta.roc import auc_draws
from rl_qg.evaluation.metric_scores import MetricRow, check_rows, direction_of, scores_of
from rl_qg.evaluation.prediction_analysis import passage_groups
from rl_qg.evaluation.result_pages import Page, Table, as_text, estimate_text, write_results
from rl_qg.evaluation.reward_scorer import Reward, signature_of
from rl_qg.generation.answers.parser import ParserAnswers
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer
from rl_qg.settings import RobustnessSettings

log = logging.getLogger(__name__)
ORIGINAL, PARAPHRASE = "original", "paraphrase"
ENGLISH = "en"
FEWEST = 20  # questions from which their language is looked at


@dataclass(frozen=True)
class Made:
    """A question as it was or as it was made: of which question, what kind, and what was changed."""

    number: int
    kind: str
    row: MetricRow
    change: Mapping[str, Any]


def robustness(metrics: Mapping[str, Reward], settings: RobustnessSettings, folder: Path) -> dict[str, Any]:
    """Make questions, score them with every metric, and write the results to `folder`; return the record.

    Raises:
        InputError: a file that cannot be read, a row without question or passage, a kind that there is not; a
            language other than English without what takes the place of the rules.
    """
    if unknown := [kind for kind in settings.kinds if kind not in KINDS] or not settings.kinds:
        raise InputError(
            f"kinds={settings.kinds}: choose of {', '.join(KINDS)}"
            + (f", not {unknown}" if unknown is not True else "")
        )
    _check_language(settings)
    source = QuestionTable(settings.input, asdict(settings.columns))
    rows, in_file = _rows(source, settings)
    made, counts = _make(rows, settings)
    own = np.array([one.row.references != (rows[one.number].question,) for one in made])
    draws = PassageDraws(passage_groups([one.row for one in made]), resamples=settings.resamples, seed=settings.seed)
    counts |= {"in_file": in_file, "passages": draws.passages, "without_score": {}}
    counts["without_references"] = sum(row.references == (row.question,) for row in rows)
    for label, metric in metrics.items():
        check_rows(label, metric, [one.row for one in made])
    _write_questions(folder / "questions.jsonl", made)
    every = [one.row for one in made]
    results = []
    for label, metric in metrics.items():
        found = scores_of(label, metric, every, folder / "scores", batch_size=settings.batch_size)
        scores = direction_of(metric) * np.array([np.nan if value is None else value for value in found])
        if missing := int(np.isnan(scores).sum()):
            counts["without_score"][label] = missing
        telling = own if "references" in getattr(metric, "needs", ()) else np.ones_like(own)
        results += _areas(label, scores, made, draws, settings.kinds, telling)
    signatures = {label: signature_of(metric) for label, metric in metrics.items()}
    record = {
        "input": source.hashes(),
        "settings": asdict(settings),
        "counts": counts,
        "references": _references(counts),
        "signatures": signatures,
        "results": results,
    }
    page = Page(
        "robustness", ", ".join(path.name for path in source.paths), _facts(record), _tables(results, made), signatures
    )
    write_results(folder, "robustness", record, page, {"results": results})
    log.info("%s\ndone: open %s", as_text(page), folder / "robustness.html")
    return record


# --- Questions ---


def _check_language(settings: RobustnessSettings) -> None:
    """Raise `InputError` where English rules would be applied to another language."""
    if not re.fullmatch("[a-z]{2,3}", settings.language.casefold()):
        raise InputError(f"language={settings.language} is no code of two or three letters, such as en or de")
    if settings.language.casefold() == ENGLISH:
        return
    needed = [
        (not set(settings.kinds) <= set(ANY_LANGUAGE), f"kinds=[{','.join(ANY_LANGUAGE)}]"),
        (not (settings.paraphrases or settings.paraphraser), "paraphrases=FILE or paraphraser=MODEL"),
        (settings.spacy_model.partition("_")[0] in ("", ENGLISH), "spacy_model=PIPELINE of that language"),
    ]
    if missing := [text for wrong, text in needed if wrong]:
        raise InputError(f"language={settings.language}: the rules are for English; give {', and '.join(missing)}")


def _rows(source: QuestionTable, settings: RobustnessSettings) -> tuple[list[MetricRow], int]:
    """A seeded sample of the questions, and how many the file has; one without references is its own."""
    if settings.max_questions is not None and settings.max_questions < 1:
        raise InputError(f"max_questions={settings.max_questions}: give at least 1, or null for all")
    rows = []
    for row in tqdm(source, desc="read", unit="row", leave=False, delay=2):
        columns = ("question", "context", "answer", "references")
        question, context, answer, references = (source.value(row, column) for column in columns)
        for column, value in (("question", question), ("context", context)):
            if value is None:
                raise InputError(
                    f"{row.where}: field {source.columns[column]!r} is missing or no text; the row has "
                    f"{', '.join(map(repr, row.fields))} (columns.{column}=… names another field)"
                )
        rows.append(MetricRow(row.where, question, context, answer, tuple(references or [question])))
    if not rows:
        raise InputError(f"{source}: holds no question; check the file")
    ranked = sorted(range(len(rows)), key=lambda place: seeded_rank(settings.seed, str(place)))
    sample = [rows[place] for place in sorted(ranked[: settings.max_questions])]
    english = sum(looks_english(row.question) for row in sample)
    if settings.language.casefold() == ENGLISH and len(sample) >= FEWEST and english < len(sample) / 2:
        raise InputError(
            f"{source}: only {english:,} of {len(sample):,} questions have an English question word or two "
            "function words; name their language, such as language=de"
        )
    return sample, len(rows)


def _make(rows: Sequence[MetricRow], settings: RobustnessSettings) -> tuple[list[Made], dict[str, Any]]:
    find, finder = _finder(settings.spacy_model, settings.language.casefold())
    others = entities_by_kind([str(row.context) for row in rows], find) if "entity" in settings.kinds else {}
    paraphrases, how = _paraphrases(rows, settings)
    made = []
    counts = {kind: {"made": 0, "no_rule_applies": 0} for kind in settings.kinds}
    counts[PARAPHRASE] = {"made": 0, "no_rule_applies": 0}
    for number, row in enumerate(tqdm(rows, desc="perturb", unit="question", leave=False, delay=2)):
        made.append(Made(number, ORIGINAL, row, {}))
        chance = random.Random(f"{settings.seed} {number}")
        for kind in settings.kinds:
            if kind == "entity":
                change = swap_entity(row.question, str(row.context), row.answer or "", find, others, chance)
            else:
                change = swap_pronoun(row.question, chance) if kind == "pronoun" else negate(row.question)
            counts[kind]["made" if change else "no_rule_applies"] += 1
            if change:
                told = {key: value for key, value in vars(change).items() if key != "question"}
                made.append(Made(number, kind, replace(row, question=change.question), told))
        other = paraphrases[number]
        counts[PARAPHRASE]["made" if other else "no_rule_applies"] += 1
        if other:
            made.append(Made(number, PARAPHRASE, replace(row, question=other[0]), {"rule": other[1]}))
    if not counts[PARAPHRASE]["made"] or not any(counts[kind]["made"] for kind in settings.kinds):
        raise InputError(f"{len(rows)} questions: not one paraphrase, or none made wrong; nothing to compare")
    return made, {"questions": len(rows), **counts, "entities": finder, "paraphrases": how}


def _finder(model: str, language: str) -> tuple[Finder, str]:
    """What finds entities: a spaCy pipeline where there is one, else, in English, rules."""
    if model:
        try:
            parser = ParserAnswers(model, None)
        except InputError as error:
            why = str(error).partition(";")[0].removeprefix("answers.")
            if language != ENGLISH:
                raise InputError(
                    f"language={language}: entities are found by a spaCy pipeline of that language alone; {why}"
                ) from None
            log.info("entities are found by rules (%s)", why)
        else:
            own = parser.made_by["pipeline"].partition("_")[0]
            if own not in (language, "xx"):  # spaCy's code for pipelines of several languages
                raise InputError(f"spacy_model={model} is for language={own}, the questions for language={language}")
            return lambda text: [span for span in parser([text])[0] if span.kind != "chunk"], str(parser.made_by)
    return rule_finder, "rules of rl_qg.generation.answers.rules"


def _paraphrases(rows: Sequence[MetricRow], settings: RobustnessSettings) -> tuple[list[tuple[str, Any] | None], str]:
    """A paraphrase of each question and how it was made; None where there is none."""
    if settings.paraphrases and settings.paraphraser:
        raise InputError("give either paraphrases (pairs) or paraphraser (a model)")
    if settings.paraphrases:
        pairs = read_pairs(Path(settings.paraphrases).expanduser())
        return [_other(row, pairs.get(row.question, ""), "pair") for row in rows], "supplied pairs"
    if settings.paraphraser:
        questions = [row.question for row in rows]
        texts = by_model(settings.paraphraser, settings.paraphraser_prefix, questions)
        said = [_other(row, text, "model") for row, text in zip(rows, texts, strict=True)]
        return said, f"model {settings.paraphraser}"
    return [
        by_rules(row.question, random.Random(f"{settings.seed} {number}")) for number, row in enumerate(rows)
    ], "rules"


def _other(row: MetricRow, text: str, how: str) -> tuple[str, Any] | None:
    """A paraphrase with how it was made; None where it is empty or the question as it was."""
    return (text, how) if text.strip() and text.split() != row.question.split() else None


def _write_questions(path: Path, made: Sequence[Made]) -> None:
    with atomic_writer(path) as stream:
        for one in made:
            row = one.row
            line = {"number": one.number, "kind": one.kind, "question": row.question, **one.change}
            line |= {"context": row.context, "answer": row.answer, "references": list(row.references or ())}
            stream.write(json.dumps({**line, "where": row.where}, ensure_ascii=False) + "\n")


# --- Areas ---


def _areas(
    label: str, scores: Floats, made: Sequence[Made], draws: PassageDraws, kinds: Sequence[str], telling: NDArray[np.bool_]
) -> list[dict[str, Any]]:
    """For each kind, and all of them: the area with paraphrases as the good ones, with the questions as they were, and
    the share of questions whose paraphrase scores above their own wrong form.

    `telling` (made,): the metric does not compare a question as it was with itself.
    """
    is_kind = np.array([one.kind for one in made])
    rows: list[dict[str, Any]] = []
    for kind in [*kinds, "all"] if len(kinds) > 1 else kinds:
        bad = np.isin(is_kind, kinds) if kind == "all" else is_kind == kind
        row: dict[str, Any] = {"metric": label, "kind": kind, "wrong": int(bad.sum())}
        for key, used in ((PARAPHRASE, np.ones_like(telling)), (ORIGINAL, telling)):
            good = is_kind == key
            there = np.flatnonzero((good | bad) & used & np.isfinite(scores))
            area = auc_draws(scores[there], good[there], draws, there) if len(there) else np.full(2, np.nan)
            why = "one kind alone" if used.any() else "the question is its own reference"
            row[key] = estimate(area, len(there), passages=draws.passages_of(there), why=why).to_dict()
        row["own_pair"] = _own_pairs(scores, made, bad, draws)
        rows.append(row)
    return rows


def _own_pairs(scores: Floats, made: Sequence[Made], bad: np.ndarray, draws: PassageDraws) -> dict[str, Any]:
    """How often a question's paraphrase scores above its own wrong form, ties counted half."""
    good = {one.number: place for place, one in enumerate(made) if one.kind == PARAPHRASE}
    pairs = [
        (good[made[place].number], place) for place in map(int, np.flatnonzero(bad)) if made[place].number in good
    ]
    counts = np.zeros((len(made), 3))
    for first, second in pairs:
        gap = scores[first] - scores[second]
        if np.isfinite(gap):
            counts[second] = (1, float(gap > 0) + 0.5 * float(gap == 0), float(gap == 0))
    sums = draws.sums(counts)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(sums[:, 0] > 0, sums[:, 1] / sums[:, 0], np.nan)
    passages = draws.passages_of(counts[:, 0] > 0)
    found = estimate(share, int(sums[0, 0]), passages=passages, why="no question has both").to_dict()
    return {**found, "ties": int(sums[0, 2])}


# --- For people ---


def _references(counts: Mapping[str, Any]) -> str:
    without, every = counts["without_references"], counts["questions"]
    if without in (0, every):
        return "the human question itself" if without else "those of the input"
    return f"those of the input; for {without:,} of {every:,} questions the human question itself"


def _facts(record: Mapping[str, Any]) -> list[str]:
    counts = record["counts"]
    parts = [
        f"{kind} {counts[kind]['made']:,} ({counts[kind]['no_rule_applies']:,} without)"
        for kind in (*record["settings"]["kinds"], PARAPHRASE)
    ]
    of = f" of {counts['in_file']:,} in the file" if counts["questions"] < counts["in_file"] else ""
    facts = [
        f"{counts['questions']:,} human questions{of}; made: {', '.join(parts)}.",
        f"Entities: {counts['entities']}. Paraphrases: {counts['paraphrases']}. References: {record['references']}.",
    ]
    if missing := counts["without_score"]:
        facts.append("Questions without a score: " + ", ".join(f"{name} {count:,}" for name, count in missing.items()))
    return [*facts, *filter(None, [few_passages(counts["passages"])])]


def _tables(results: Sequence[Mapping[str, Any]], made: Sequence[Made]) -> list[Table]:
    def area(part: str) -> list[dict[str, str]]:
        used: dict[str, int] = {}
        for row in results:
            used[row["kind"]] = max(used.get(row["kind"], 0), row[part]["n"])
        lines: dict[str, dict[str, str]] = {}
        for row in results:
            line = lines.setdefault(row["metric"], {"metric": row["metric"]})
            line[f"{row['kind']} ({used[row['kind']]:,})"] = estimate_text(row[part])
        return list(lines.values())

    note = (
        "Area under the ROC curve; 0.5: the metric cannot tell. Brackets: 95 % bootstrap intervals over passages. "
        "Behind a kind the number of questions compared, good and wrong ones."
    )
    examples: dict[str, list[dict[str, str]]] = {}
    for one in made:
        if one.kind != ORIGINAL and len(examples.setdefault(one.kind, [])) < 3:
            before = next(other.row.question for other in made[one.number :] if other.number == one.number)
            examples[one.kind].append({"kind": one.kind, "question": before, "made": one.row.question})
    tables = [
        Table("Paraphrases against wrong questions", area(PARAPHRASE), note),
        Table("Questions as they were against wrong questions", area(ORIGINAL), note),
        Table(
            "A question's paraphrase against its own wrong form",
            area("own_pair"),
            "Share of pairs, ties counted half.",
        ),
        Table("Examples", [row for rows in examples.values() for row in rows]),
    ]
    trivial = all(row[ORIGINAL]["value"] is None for row in results)
    return [table for place, table in enumerate(tables) if not (trivial and place == 1)]
