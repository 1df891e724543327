"""The statistics of a study, as tables of plain rows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np

from rl_qg.data.examples import by_key
from rl_qg.judging.raters import OVERALL
from rl_qg.rating.analysis import quality
from rl_qg.rating.analysis.ratings import COUNTED, RatedItems, Scale, read_ratings
from rl_qg.rating.analysis.scores import (
    QuestionScores,
    SystemScores,
    ZScores,
    question_scores,
    system_scores,
    without_noisy,
    z_scores,
)
from rl_qg.rating.planning.questions import HUMAN
from rl_qg.rating.protocol import DEGRADED, ITEM_MEANS, SIGNED_RANK, TAKEN, Control, Protocol
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, read_json_lines
from rl_qg.settings.web import RateAnalyseSettings
from rl_qg.stats.agreement import fleiss_kappa, krippendorff_alpha
from rl_qg.stats.correlation import replicated
from rl_qg.stats.intervals import Floats, PassageDraws, add_holm, quotient
from rl_qg.stats.mixed_model import fit_mixed_model
from rl_qg.stats.rank_tests import rank_sum, signed_rank
from rl_qg.text.words import counted

FILES = ("ratings.jsonl", "ratings.jsonl.gz", "ratings.csv", "ratings.csv.gz")
Rows = list[dict[str, Any]]
CERTAIN = 0.05
FEW_VALUES = 10  # distinct values of a criterion, up to which κ, which knows equal or not, means something
NO_FILTER = "none"
DEGRADED_ROW = "degraded questions"  # in the table of systems
_UNDECIDED = "had too few pairs, or tasks, for the control"


@dataclass(frozen=True)
class Question:
    """An item of a task in words."""

    question: str
    context: str
    answer: str


@dataclass(frozen=True)
class RatedStudy:
    """Ratings, and what else is known of them; of a file alone the ratings."""

    name: str  # of the study, or of the file
    path: Path  # of the file of ratings
    rated: RatedItems  # the ratings that count
    control: Control  # how raters are tested
    control_criteria: list[str]
    minutes: Mapping[str, float] = field(default_factory=dict)  # of each task, where known
    questions: Mapping[tuple[str, int], Question] = field(default_factory=dict)  # by HIT and position
    states: Mapping[str, int] = field(default_factory=dict)  # assignments by state
    feedback: int = 0  # comments of raters


def read_study(source: str, settings: RateAnalyseSettings, *, key: str = "ratings") -> RatedStudy:
    if not source:
        raise InputError(f"{key} has no value; give the folder of `rl-qg rate export`, or a file of ratings")
    path = Path(source).expanduser()
    if not path.is_dir():
        ends = settings.scale or [0.0, 100.0]
        if len(ends) != 2 or not ends[0] < ends[1]:
            raise InputError(f"scale={settings.scale}: give the lowest and the highest value, as [1, 5]")
        scales = {name: Scale(ends[0], ends[1], True) for name in settings.reversed or ()}
        rated = read_ratings(path, scales, with_open=settings.with_open, key=key)
        study = RatedStudy(path.name, path, rated, Control(SIGNED_RANK, ITEM_MEANS), list(rated.criteria))
        return _with_settings(study, settings)
    file = next((path / name for name in FILES if (path / name).is_file()), None)
    if file is None:
        raise InputError(f"{key}={source}: holds no {FILES[0]}; give the folder of `rl-qg rate export`")
    if settings.reversed or settings.scale:
        raise InputError("reversed and scale are of a file alone; the protocol of an export says what is reversed")
    plan = read_json(path / "plan.json")
    if not isinstance(plan, Mapping) or not isinstance(plan.get("protocol"), Mapping):
        raise InputError(f"{path / 'plan.json'}: field 'protocol' is missing; export the study anew")
    protocol = Protocol.from_dict(str(path / "plan.json"), plan["protocol"])
    rated = read_ratings(file, quality.scales_of(protocol), with_open=settings.with_open)
    name = str(plan.get("study") or path.name)
    study = _with_settings(RatedStudy(name, file, rated, protocol.control, quality.controlled(protocol)), settings)
    minutes, states = _assignments(path / "assignments.jsonl")
    feedback = sum(1 for _ in _records(path / "feedback.jsonl"))
    questions = _questions(path / "items.jsonl")
    return replace(study, minutes=minutes, states=states, questions=questions, feedback=feedback)


def _with_settings(study: RatedStudy, settings: RateAnalyseSettings) -> RatedStudy:
    criteria, control = study.rated.criteria, study.control
    if taken := [name for name in criteria if name in TAKEN]:
        raise InputError(f"{study.path}: criterion {taken[0]!r} is {TAKEN[taken[0]]}; rename it")
    for setting, names in (("control_criteria", settings.control_criteria), ("reversed", settings.reversed)):
        for name in names or ():
            if name not in criteria:
                raise InputError(f"{setting}: nobody rated {name!r}; the criteria are {', '.join(criteria)}")
    control = replace(
        control,
        method=settings.control_method or control.method,
        unit=settings.control_unit or control.unit,
        level=control.level if settings.level is None else settings.level,
    )
    wanted = settings.control_criteria or study.control_criteria
    return replace(study, control=control, control_criteria=list(dict.fromkeys(wanted)))


def _records(path: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    return read_json_lines(path) if path.is_file() else ()


def _assignments(path: Path) -> tuple[dict[str, float], dict[str, int]]:
    minutes: dict[str, float] = {}
    states: Counter[str] = Counter()
    for number, record in _records(path):
        name, state, seconds = (record.get(key) for key in ("assignment", "state", "seconds"))
        if not isinstance(name, str | int) or not isinstance(state, str):
            raise InputError(f"{path}: line {number}: fields 'assignment' and 'state' must be there; export anew")
        states[state] += 1
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and state in COUNTED:
            minutes[str(name)] = seconds / 60
    return minutes, dict(states)


def _questions(path: Path) -> dict[tuple[str, int], Question]:
    questions = {}
    for number, record in _records(path):
        texts: list[Any] = [record.get(key) for key in ("question", "context", "answer")]
        hit, position = record.get("hit"), record.get("position")
        if not isinstance(position, int) or not all(isinstance(one, str) for one in (hit, texts[0], texts[1])):
            raise InputError(f"{path}: line {number}: needs 'hit', 'position', 'question' and 'context'; export anew")
        questions[str(hit), position] = Question(texts[0], texts[1], texts[2] or "")
    return questions


def replication_of_scores(first: SystemScores, second: SystemScores) -> Rows:
    """r, ρ and τ-b between the systems' scores in two studies, for each criterion of both and overall.

    Intervals are those of draws of each study's own raters and passages; `second` must have been drawn with another
    seed. `overall` is compared only where both have the same criteria.
    """
    same = {*first.criteria} == {*second.criteria}
    criteria = [name for name in first.criteria if name in second.criteria] + ([OVERALL] if same else [])
    units = min(first.values.units, second.values.units)  # inf: the draws are wide enough
    rows = []
    for criterion in criteria:
        parts = []
        for one in (first, second):
            column = (*one.criteria, OVERALL).index(criterion)
            parts.append((one.systems, one.values.combined()[:, :, column]))
        rows += [{"criterion": criterion, **row} for row in replicated(*parts, units=units, where="both")]
    return rows


# --- Whom people prefer: three tests of every two systems, from the most to the least that they take into account ---
#
# 1. The difference of their scores in draws of raters and passages, two-sided: the conclusion is drawn from this one.
# 2. Wilcoxon's signed-rank test of pairs, two-sided: what one rater gave to both about one passage and answer.
# 3. The rank-sum test of all questions of one against all of the other, one-sided in the direction of their means, as
#    Ji et al. (ACL 2022) published it: it takes every question as independent.


def pair_rows(scores: QuestionScores, systems: SystemScores, *, of: str = OVERALL) -> Rows:
    """One row for every two systems, the one with the higher score first; `of` is a criterion or `overall`."""
    column = (*systems.criteria, OVERALL).index(of)
    of_systems = systems.values.data[:, column]
    order = [int(at) for at in np.argsort(-of_systems, kind="stable") if np.isfinite(of_systems[at])]
    values = scores.with_overall()[:, column]
    of_pairs = _paired_means(scores, values)
    rows = []
    for pair in combinations(order, 2):
        first, second = (systems.systems[at] for at in pair)
        gap = systems.gap(*pair, column)
        cells = gap.estimate(int(systems.questions[[*pair]].sum())).to_dict()
        ranks = rank_sum(*(values[(scores.member[:, at] > 0) & ~np.isnan(values)] for at in pair))
        both = of_pairs[:, [*pair]]
        both = both[~np.isnan(both).any(axis=1)]
        gaps = both[:, 0] - both[:, 1]
        sides = [test.p for a, b in ((0, 1), (1, 0)) if (test := signed_rank(both[:, a], both[:, b])) is not None]
        rows.append(
            {
                "preferred": first,
                "to": second,
                **{"difference": cells.pop("value"), **cells},
                "p": gap.p(),
                "p_rank_sum": None if ranks is None else ranks.p,
                "pairs": len(gaps),
                "paired_difference": float(gaps.mean()) if len(gaps) else None,
                "higher": int((gaps > 1e-9).sum()),
                "equal": int((np.abs(gaps) <= 1e-9).sum()),
                "lower": int((gaps < -1e-9).sum()),
                "p_paired": min(1.0, 2 * min(sides)) if sides else None,
            }
        )
    for key in ("p", "p_rank_sum", "p_paired"):
        add_holm(rows, key, family=False)
    return rows


def _paired_means(scores: QuestionScores, values: Floats) -> Floats:
    """The mean of each system's questions by rater and item, (rater-item pairs, systems), NaN where there is none."""
    pairs = np.unique(np.column_stack([scores.rater, scores.item]), axis=0, return_inverse=True)[1].reshape(-1)
    known = ~np.isnan(values)
    member = scores.member * known[:, None]
    sums, counts = (np.zeros((int(pairs.max(initial=-1)) + 1, member.shape[1])) for _ in range(2))
    np.add.at(sums, pairs, member * np.where(known, values, 0.0)[:, None])
    np.add.at(counts, pairs, member)
    return quotient(sums, counts)


def conclusion(rows: Rows) -> list[str]:
    """A sentence for each pair; of more than three systems one for the best two, and the best against all others."""
    if len(rows) <= 3:
        return [preference(row) for row in rows]
    best = [row for row in rows if row["preferred"] == rows[0]["preferred"]]
    certain = [row["to"] for row in best if is_certain(row)]
    other = [row["to"] for row in best if row["to"] not in certain]
    text = f"best is {rows[0]['preferred']}: "
    text += f"people prefer it to {', '.join(certain)} (p (Holm) < {CERTAIN:g})" if certain else ""
    text += ("; " if certain and other else "") + (f"not certain for {', '.join(other)}" if other else "")
    return [preference(rows[0]), text]


def preference(row: Mapping[str, Any]) -> str:
    """One pair as a sentence: "people prefer scst to ce: +0.21 z [0.08, 0.35], p (Holm) 0.003"."""
    p, who = row.get("p_holm"), f"people prefer {row['preferred']} to {row['to']}"
    if not is_certain(row):
        who = f"it is not certain that {who}"
    text = f"{who}: {row['difference']:+.2f} z"
    if row.get("low") is not None:
        text += f" [{row['low']:.2f}, {row['high']:.2f}]"
    shown = "" if p is None else f", p (Holm) {p:.3f}" if p >= 0.001 else ", p (Holm) < 0.001"
    return text + shown


def is_certain(row: Mapping[str, Any]) -> bool:
    """Whether a pair has a p-value, and its corrected one is small."""
    p = row.get("p_holm")
    return p is not None and p < CERTAIN


def agreement_rows(rated: RatedItems, *, resamples: int, seed: int) -> Rows:
    """Krippendorff's α (interval, ordinal) and, for scales of few values, Fleiss' κ of each criterion, over the
    questions that two raters or more have rated; of a repeated question a rater's mean counts.

    Empty where no question has two raters.
    """
    scores = question_scores(rated, rated.values)
    units = by_key((int(rated.question[row]), number) for number, row in enumerate(scores.rows))
    if max(map(len, units.values()), default=0) < 2:
        return []
    draws = PassageDraws([int(scores.passage[rows[0]]) for rows in units.values()], resamples=resamples, seed=seed)
    found: Rows = []
    for column, criterion in enumerate(scores.criteria):
        values = scores.values[:, column]
        table = [[None if np.isnan(values[at]) else float(values[at]) for at in rows] for rows in units.values()]
        statistics = {
            f"Krippendorff's α, {level}": krippendorff_alpha(table, level, draws) for level in ("interval", "ordinal")
        }
        if len(np.unique(rated.values[~np.isnan(rated.values[:, column]), column])) <= FEW_VALUES:
            statistics["Fleiss' κ"] = fleiss_kappa(table, draws)
        found += [{"criterion": criterion, "statistic": name, **one.to_dict()} for name, one in statistics.items()]
    return found


def judgement_lines(
    rated: RatedItems, z: Floats, questions: Mapping[tuple[str, int], Question], *, raw: bool
) -> tuple[list[dict[str, Any]], int]:
    """Records in the format of `rl_qg.judging.judgements`, one for each question in words, and how many have
    no score and are left out.

    `ratings` are as given, reversed ones turned, with the mean of both for a question that a rater saw twice. With z,
    ratings without one (of a rater whose ratings are all equal) are null: they would count on another scale; with
    `raw`, `human` are means of ratings. `questions`: by HIT and position.
    """
    plain, standard = question_scores(rated, rated.values), question_scores(rated, z)
    rows = [*zip(plain.rows.tolist(), plain.values, standard.values, strict=True)]
    degraded = rated.is_kind(DEGRADED)
    rows += [(row, rated.values[row], z[row]) for row in np.flatnonzero(degraded).tolist()]
    given: dict[tuple[Any, ...], list[tuple[int, Floats, Floats]]] = {}
    for row, values, standardised in rows:
        known = questions[rated.hits[rated.hit[row]], int(rated.position[row])]
        key = (bool(degraded[row]), rated.passage[row], rated.item[row], known)
        given.setdefault(key, []).append((row, values, standardised))
    lines = [
        _line(rated, known, of_question, raw=raw) | ({"control": True} if is_degraded else {})
        for (is_degraded, *_, known), of_question in given.items()
    ]
    kept = [line for line in lines if line["human"]]
    return kept, len(lines) - len(kept)


def with_references(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The judgements of systems with a human question as the reference; those of people would be their own."""
    asked = {line["item"]: line["question"] for line in lines if HUMAN in line["system"] and "control" not in line}
    return [
        {**line, "system": systems, "references": [asked[line["item"]]]}
        for line in lines
        if line["item"] in asked and (systems := [name for name in line["system"] if name != HUMAN])
    ]


def _line(
    rated: RatedItems, known: Question, given: Sequence[tuple[int, Floats, Floats]], *, raw: bool
) -> dict[str, Any]:
    """One question and what raters gave it: row, ratings and z of each."""
    human, ratings = {}, {}
    for column, criterion in enumerate(rated.criteria):
        pairs = [((values if raw else z)[column], values[column]) for _, values, z in given]
        ratings[criterion] = [None if np.isnan(score) else float(value) for score, value in pairs]
        if present := [float(score) for score, _ in pairs if not np.isnan(score)]:
            human[criterion] = float(np.mean(present))
    first = given[0][0]
    return {
        **asdict(known),
        "system": list(dict.fromkeys(name for row, *_ in given for name in rated.systems[row])),
        "item": rated.items[rated.item[first]],
        "group": rated.passages[rated.passage[first]],
        "human": human,
        "ratings": ratings,
        "raters": [rated.raters[rated.rater[row]] for row, *_ in given],
    }


@dataclass(frozen=True)
class StudyScores:
    """Who counts, z-scores and scores of systems: no rows in `counted` if nobody passed, no `systems` without a z."""

    controls: list[quality.RaterControl]
    counted: RatedItems
    z: ZScores
    questions: QuestionScores
    systems: SystemScores | None


def scores_of_study(study: RatedStudy, settings: RateAnalyseSettings, *, seed: int) -> StudyScores:
    controls = quality.control_of_raters(study.rated, study.control, study.control_criteria)
    counted = study.rated.of_raters(quality.counted_raters(controls, settings.raters))
    if settings.rater_filter != NO_FILTER:
        sides, threshold, most = settings.rater_filter, settings.filter_above, settings.filter_most
        counted = without_noisy(counted, sides=sides, threshold=threshold, most=most)
    z = z_scores(counted, settings.z)
    questions = question_scores(counted, z.values)
    if np.isnan(questions.values).all():
        return StudyScores(controls, counted, z, questions, None)
    systems = system_scores(counted, questions, resamples=settings.resamples, seed=seed)
    return StudyScores(controls, counted, z, questions, systems)


def tables_of(study: RatedStudy, scores: StudyScores, settings: RateAnalyseSettings) -> dict[str, Rows]:
    """Every table but that of the replication; empty where there is nothing to say."""
    habits = quality.habits_of_raters(study.rated, seed=settings.seed)
    tables: dict[str, Rows] = {
        "summary": quality.summary_rows(study.rated, scores.controls, study.minutes),
        "raters": quality.rater_rows(scores.controls, habits, study.minutes, study.rated),
        **{name: [] for name in ("systems", "pairs", "pairs_by_criterion", "mixed_model")},
        "agreement": agreement_rows(scores.counted, resamples=settings.resamples, seed=settings.seed),
    }
    if settings.rater_filter != NO_FILTER:
        before = study.rated.of_raters(scores.counted.raters)
        unfiltered = agreement_rows(before, resamples=settings.resamples, seed=settings.seed)
        both = {"all": unfiltered, "filtered": tables["agreement"]}
        tables["agreement"] = [{"ratings": name, **row} for name, rows in both.items() for row in rows]
    if scores.systems is not None:
        tables["systems"] = system_rows(scores.systems, scores)
        tables["mixed_model"], contrasts = mixed_rows(scores)
        pairs = pair_rows(scores.questions, scores.systems)
        tables["pairs"] = [{**row, **contrasts.get((row["preferred"], row["to"]), {})} for row in pairs]
        add_holm(tables["pairs"], "p_mixed", family=False)
        tables["pairs_by_criterion"] = [
            {"criterion": name, **row}
            for name in scores.systems.criteria
            for row in pair_rows(scores.questions, scores.systems, of=name)
        ]
    return tables


def system_rows(systems: SystemScores, scores: StudyScores) -> Rows:
    """The scores of every system with intervals; and the mean z of degraded questions, which is no system's."""
    rows = []
    criteria = (*systems.criteria, OVERALL)
    for at, name in enumerate(systems.systems):
        counts = {"shown": int(systems.shown[at]), "ratings": int(systems.ratings[at])}
        for criterion in criteria:
            statistic = systems.of(name, criterion).estimate(int(systems.questions[at]))
            rows.append({"system": name, "criterion": criterion, **statistic.to_dict(), **counts})
    z = scores.z.values[scores.counted.is_kind(DEGRADED)]
    z = z[~np.isnan(z).all(axis=1)]
    if len(z):
        counts = {"n": len(z), "shown": len(z), "ratings": int(np.count_nonzero(~np.isnan(z)))}
        for criterion, column in zip(criteria, np.column_stack([z, z.mean(axis=1)]).T, strict=True):
            value = None if np.isnan(column).all() else float(np.nanmean(column))
            cells = {"value": value, "low": None, "high": None}
            rows.append({"system": DEGRADED_ROW, "criterion": criterion, **cells, **counts})
    return rows


def mixed_rows(scores: StudyScores) -> tuple[Rows, Mapping[tuple[str, str], dict[str, Any]]]:
    """The mixed model of raw values: means of systems in points, standard deviations; contrasts of `overall`."""
    raw = question_scores(scores.counted, scores.counted.values)
    values = raw.with_overall()
    rows: Rows = []
    contrasts: dict[tuple[str, str], dict[str, Any]] = {}
    for column, criterion in enumerate((*raw.criteria, OVERALL)):
        model = fit_mixed_model(values[:, column], raw.member, raw.systems, raw.rater, raw.item)
        if model is None:
            continue
        spread = {"rater_sd": model.rater_sd, "item_sd": model.item_sd, "residual_sd": model.residual_sd}
        for at, name in enumerate(model.systems):
            if np.isfinite(model.means[at]):
                cells = {"mean": float(model.means[at]), "standard_error": model.error(at), "n": model.n}
                rows.append({"system": name, "criterion": criterion, **cells, **spread})
        if criterion == OVERALL:
            known = [at for at in range(len(model.systems)) if np.isfinite(model.means[at])]
            for first, second in permutations(known, 2):
                value, error, p = model.contrast(first, second)
                pair = model.systems[first], model.systems[second]
                contrasts[pair] = {"mixed_difference": value, "mixed_error": error, "p_mixed": p}
    return rows, contrasts


def left_out(study: RatedStudy, scores: StudyScores) -> dict[str, int]:
    counts = dict(scores.counted.left_out)
    for verdict, why in (("failed", "failed the control"), ("undecided", _UNDECIDED)):
        names = [one.rater for one in scores.controls if one.verdict == verdict]
        if names := [name for name in names if name not in scores.counted.raters]:
            lost = int(study.rated.known[study.rated.is_of(names)].sum())
            counts[f"of {counted(len(names), 'rater')} who {why}"] = lost
    if scores.z.ratings_left_out:
        reason = f"of {counted(len(scores.z.without_spread), 'rater')} without two different ratings, and so without z"
        counts[reason] = scores.z.ratings_left_out
    degraded = scores.z.values[scores.counted.is_kind(DEGRADED)]  # those without a z are counted above
    counts["of degraded questions, which enter no score"] = int(np.count_nonzero(~np.isnan(degraded)))
    return {reason: count for reason, count in counts.items() if count}


def shared_questions(scores: QuestionScores) -> int:
    scored = ~np.isnan(scores.values).all(axis=1)
    return int((scored & (scores.member.sum(axis=1) > 1)).sum())
