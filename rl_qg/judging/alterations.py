"""Human questions, made wrong by one change (`rl_qg.scoring.wrong_questions`) and paraphrased
(`rl_qg.judging.paraphrases`). The seed and a question's number decide what becomes of it.
"""

import logging
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from rewards.overlap.answerability import looks_english
from rl_qg.data.examples import report_limit, seeded_rank
from rl_qg.data.question_tables import QuestionTable
from rl_qg.generation.propose_answers import SpacyAnswers
from rl_qg.judging.paraphrases import by_model, by_rules, negate, read_pairs, replace_by_antonym, wordnet_antonyms
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import packaged_yaml, write_json_lines
from rl_qg.scoring.kept_scores import MetricRow
from rl_qg.scoring.wrong_questions import (
    ANY_LANGUAGE,
    CHANGES,
    WORD,
    EntityFinder,
    Perturbation,
    cased,
    entities_by_kind,
    replaced,
    rule_finder,
    swap_entity,
    swap_pronoun,
)
from rl_qg.settings import RobustnessSettings
from rl_qg.text.english import AUXILIARIES, CONJUNCTIONS, PREPOSITIONS
from rl_qg.text.words import normalised_words

log = logging.getLogger(__name__)
ORIGINAL, PARAPHRASE = "original", "paraphrase"
ENGLISH = "en"
PASSAGES = 1024  # whose entities are kept: neighbouring questions share a passage
FEWEST = 20  # questions from which on their language is checked
Paraphrase = tuple[str, Any]  # its text, and how it was made
Change = Callable[[MetricRow, random.Random], Perturbation | None]

_WORDS: Mapping[str, Mapping[str, str]] = packaged_yaml(__file__, "alterations.yaml")
_FOUR = {kind: group for group, kinds in _WORDS["entities"].items() for kind in kinds.split()}
# The paper speaks of "four groups" and names persons, location/institution/organization and numbers: both readings.
GROUPS: Mapping[str, Mapping[str, str]] = {"three": _FOUR | {"org": "place"}, "four": _FOUR}
_SINGULAR = re.compile(r"(?:is|was|has|does)(?:n['’]t)?")


def swap_in_group(
    question: str, context: str, find: EntityFinder, groups: Mapping[str, str], chance: random.Random
) -> Perturbation | None:
    """Replace an entity of the question by another of its group, drawn from question and context; None where no entity
    of the question has another. Entities of a kind without a group (works, events) stay.
    """
    inside = [(span, groups[span.kind]) for span in find(question) if span.kind in groups]
    pool = {(group, question[span.start : span.end]) for span, group in inside}
    pool |= {(groups[span.kind], context[span.start : span.end]) for span in find(context) if span.kind in groups}
    chance.shuffle(inside)
    for span, group in inside:
        old = question[span.start : span.end]
        same = normalised_words(old)
        if others := sorted(text for other, text in pool if other == group and normalised_words(text) != same):
            new = chance.choice(others)
            return Perturbation(question[: span.start] + new + question[span.end :], old, new, f"{group} group")
    return None


def swap_pronoun_in_group(question: str, chance: random.Random) -> Perturbation | None:
    """Replace a pronoun that has a gender by another of its group (subject, object, possessive, reflexive), both
    drawn; None where the question has none. A subject whose verb is singular stays singular.
    """
    found = [(match, others) for match in WORD.finditer(question) if (others := _others(question, match))]
    if not found:
        return None
    match, others = chance.choice(found)
    return replaced(question, match, cased(chance.choice(others), match.group()), "pronoun group")


def _others(question: str, match: re.Match[str]) -> list[str]:
    """What may replace a word; nothing where it is no pronoun with a gender."""
    before = (WORD.findall(question[: match.start()].casefold()) or [""])[-1]
    after = (WORD.findall(question[match.end() :].casefold()) or [""])[0]
    word = match.group().casefold()
    group = _WORDS["with_gender"].get(word, "")
    if word in ("his", "her"):
        alone = not after or after in PREPOSITIONS | CONJUNCTIONS | AUXILIARIES
        group = "possessive" if not alone else "alone" if word == "his" else "object"
    others = _WORDS["pronouns"].get(group, "").split()
    if group == "subject" and (after.endswith("s") or any(map(_SINGULAR.fullmatch, (before, after)))):
        others = ["he", "she"]
    return [other for other in others if other != word]


class Paraphraser(Protocol):
    """What paraphrases questions by a dotted path, such as `BackTranslation` of `experiments/robustness`."""

    made_by: str

    def paraphrases(
        self, questions: Sequence[str], folder: Path, *, seed: int, use_cpu: bool
    ) -> Sequence[Sequence[Paraphrase]]:
        """For each question its paraphrases, each with how it was made; `folder` is for what the object keeps."""


@dataclass(frozen=True)
class AlteredQuestion:
    """A question as it was, made wrong, or paraphrased: the number of the original, the kind, and what was changed."""

    number: int
    kind: str
    row: MetricRow
    change: Mapping[str, Any]


def check_settings(settings: RobustnessSettings) -> None:
    """Raise `InputError` for kinds that do not exist, and where English rules would be applied to another language."""
    unknown = [kind for kind in settings.kinds if kind not in CHANGES]
    if unknown or not settings.kinds:
        why = f", not {unknown}" if unknown else ""
        raise InputError(f"kinds={settings.kinds}: choose of {', '.join(CHANGES)}{why}")
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


def read_questions(source: QuestionTable, settings: RobustnessSettings) -> tuple[list[MetricRow], int]:
    """A seeded sample of the questions, and how many the file has; one without references is its own reference."""
    rows = []
    for row in ProgressBar(source, desc="read", unit="row", leave=False, delay=2):
        question, context = source.text(row, "question"), source.text(row, "context")
        references = tuple(source.value(row, "references") or [question])
        rows.append(
            MetricRow(
                row.where, question, context, source.value(row, "answer"), references, title=source.value(row, "title")
            )
        )
    if not rows:
        raise InputError(f"{source}: holds no question; check the file")
    ranked = sorted(range(len(rows)), key=lambda number: seeded_rank(settings.seed, str(number)))
    sample = [rows[number] for number in sorted(ranked[: settings.max_questions])]
    report_limit("robustness.max_questions", settings.max_questions, len(sample), len(rows))
    english = sum(looks_english(row.question) for row in sample)
    if settings.language.casefold() == ENGLISH and len(sample) >= FEWEST and english < len(sample) / 2:
        raise InputError(
            f"{source}: only {english:,} of {len(sample):,} questions have an English question word or two "
            "function words; name their language, such as language=de"
        )
    return sample, len(rows)


def alter_questions(
    rows: Sequence[MetricRow],
    settings: RobustnessSettings,
    folder: Path,
    paraphraser: Paraphraser | None = None,
    *,
    use_cpu: bool = False,
) -> tuple[list[AlteredQuestion], dict[str, Any]]:
    """Every question as it was, followed by what was made of it; and how many of each kind there are.

    With `positives` or `negatives` so many paraphrases or wrong questions are drawn of all that were made, and the
    questions of which none was drawn are left out. `folder` is for what a paraphraser keeps.
    """
    changes, made_by = _changes(rows, settings)
    paraphrases, source = _paraphrases(rows, settings, folder, paraphraser, use_cpu)
    questions = []
    counts = {kind: {"made": 0, "no_rule_applies": 0} for kind in (*settings.kinds, PARAPHRASE)}
    for number, row in enumerate(ProgressBar(rows, desc="perturb", unit="question", leave=False, delay=2)):
        questions.append(AlteredQuestion(number, ORIGINAL, row, {}))
        chance = random.Random(f"{settings.seed} {number}")
        for kind in settings.kinds:
            change = changes[kind](row, chance)
            counts[kind]["made" if change else "no_rule_applies"] += 1
            if change:
                details = {key: value for key, value in vars(change).items() if key != "question"}
                questions.append(AlteredQuestion(number, kind, replace(row, question=change.question), details))
        counts[PARAPHRASE]["made"] += len(paraphrases[number])
        counts[PARAPHRASE]["no_rule_applies"] += not paraphrases[number]
        for text, how in paraphrases[number]:
            questions.append(AlteredQuestion(number, PARAPHRASE, replace(row, question=text), {"rule": how}))
    if not counts[PARAPHRASE]["made"] or not any(counts[kind]["made"] for kind in settings.kinds):
        raise InputError(
            f"input: of {len(rows)} questions there is no paraphrase, or none could be made wrong; nothing to compare"
        )
    drawn, sizes = _drawn(questions, settings)
    return drawn, {"questions": len(rows), **sizes, **counts, **made_by, "paraphrases": source}


def _drawn(
    questions: Sequence[AlteredQuestion], settings: RobustnessSettings
) -> tuple[list[AlteredQuestion], dict[str, int]]:
    kept, sizes = set[int](), {}
    for key, what in (("positives", "paraphrases"), ("negatives", "wrong questions")):
        made = [
            index
            for index, question in enumerate(questions)
            if question.kind != ORIGINAL and (question.kind == PARAPHRASE) == (key == "positives")
        ]
        wanted = getattr(settings, key)
        if wanted is not None and wanted > len(made):
            raise InputError(
                f"{key}={wanted}: only {len(made)} were made of the questions; give {key}={len(made)} or less, "
                "more questions (max_questions=null)"
            )
        made.sort(key=lambda index: seeded_rank(settings.seed, f"draw {index}"))
        kept |= set(made[:wanted])
        sizes[key] = len(made[:wanted])
        report_limit(f"robustness.{key}", wanted, sizes[key], len(made), f"{what} are drawn")
    if settings.positives is None and settings.negatives is None:
        return list(questions), sizes
    numbers = {questions[index].number for index in kept}
    return [
        question
        for index, question in enumerate(questions)
        if index in kept or (question.kind == ORIGINAL and question.number in numbers)
    ], sizes


def write_questions(path: Path, questions: Sequence[AlteredQuestion]) -> None:
    def line(one: AlteredQuestion) -> dict[str, Any]:
        row, head = one.row, {"number": one.number, "kind": one.kind, "question": one.row.question}
        rest = {"context": row.context, "answer": row.answer, "references": list(row.references or ())}
        return {**head, **one.change, **rest, "where": row.where}

    write_json_lines(path, map(line, questions))


def _changes(rows: Sequence[MetricRow], settings: RobustnessSettings) -> tuple[dict[str, Change], dict[str, str]]:
    finds, finder = _entity_finder(settings.spacy_model, settings.language.casefold())
    find = lru_cache(PASSAGES)(finds)
    negation, by = _negation(settings) if "negation" in settings.kinds else (lambda row, chance: None, "none")
    by_paper = settings.rules == "qrelscore"
    groups, others = GROUPS[settings.entity_groups], dict[str, list[str]]()
    if by_paper:
        absent = {"person", "place", "organisation"} if finds is rule_finder else {"name"}
        finder += f"; groups: {', '.join(sorted({*groups.values()} - absent))}"
    elif "entity" in settings.kinds:
        others = entities_by_kind([str(row.context) for row in rows], find)

    def entity(row: MetricRow, chance: random.Random) -> Perturbation | None:
        if by_paper:
            return swap_in_group(row.question, str(row.context), find, groups, chance)
        return swap_entity(row.question, str(row.context), row.answer or "", find, others, chance)

    def pronoun(row: MetricRow, chance: random.Random) -> Perturbation | None:
        return (swap_pronoun_in_group if by_paper else swap_pronoun)(row.question, chance)

    made_by = {"rules": settings.rules, "entities": finder, "negations": by}
    return {"entity": entity, "pronoun": pronoun, "negation": negation}, made_by


def _negation(settings: RobustnessSettings) -> tuple[Change, str]:
    """What negates a question: under the paper's rules a drawn verb, else the first."""

    def plain(row: MetricRow, chance: random.Random) -> Perturbation | None:
        return negate(row.question, chance if settings.rules == "qrelscore" else None)

    def antonym(row: MetricRow, chance: random.Random) -> Perturbation | None:
        return replace_by_antonym(row.question, antonyms, chance)

    def either(row: MetricRow, chance: random.Random) -> Perturbation | None:
        first, second = chance.sample([plain, antonym], 2)
        return first(row, chance) or second(row, chance)

    if settings.negation == "not":
        return plain, "not"
    antonyms, wordnet = wordnet_antonyms()
    return (either if settings.negation == "either" else antonym), f"{settings.negation}, by {wordnet}"


def _entity_finder(model: str, language: str) -> tuple[EntityFinder, str]:
    if model:
        try:
            parser = SpacyAnswers(model, None)
        except InputError as error:
            why = str(error).partition(";")[0].removeprefix("answers.")
            if language != ENGLISH:
                raise InputError(
                    f"language={language}: entities are found by a spaCy pipeline of that language alone; {why}"
                ) from None
            log.info("entities are found by rules (%s)", why)
        else:
            pipeline = parser.made_by["pipeline"].partition("_")[0]
            if pipeline not in (language, "xx"):  # spaCy's code for pipelines of several languages
                raise InputError(
                    f"spacy_model={model} is for language={pipeline}, the questions for language={language}"
                )
            return lambda text: [span for span in parser([text])[0] if span.kind != "chunk"], str(parser.made_by)
    return rule_finder, "rules of rl_qg.generation.answer_rules"


def _paraphrases(
    rows: Sequence[MetricRow], settings: RobustnessSettings, folder: Path, by: Paraphraser | None, use_cpu: bool
) -> tuple[list[list[Paraphrase]], str]:
    if settings.paraphrases and settings.paraphraser:
        raise InputError("give either paraphrases (pairs), or paraphraser (a model)")
    questions = [row.question for row in rows]
    made: Iterable[Sequence[Paraphrase]]
    if settings.paraphrases:
        pairs = read_pairs(Path(settings.paraphrases).expanduser())
        made, source = ([(pairs.get(question, ""), "pair")] for question in questions), "supplied pairs"
    elif by is not None:
        made, source = by.paraphrases(questions, folder, seed=settings.seed, use_cpu=use_cpu), by.made_by
    elif settings.paraphraser:
        texts = by_model(settings.paraphraser, settings.paraphraser_prefix, questions, use_cpu=use_cpu)
        made, source = ([(text, "model")] for text in texts), f"model {settings.paraphraser}"
    else:
        ruled = [by_rules(text, random.Random(f"{settings.seed} {number}")) for number, text in enumerate(questions)]
        return [[paraphrase] if paraphrase else [] for paraphrase in ruled], "rules"
    return [_different(row, own) for row, own in zip(rows, made, strict=True)], source


def _different(row: MetricRow, paraphrases: Sequence[Paraphrase]) -> list[Paraphrase]:
    by_text = {" ".join(text.split()): (text, how) for text, how in reversed(paraphrases)}
    return [
        paraphrase
        for text, paraphrase in reversed(by_text.items())
        if text not in ("", " ".join(row.question.split()))
    ]
