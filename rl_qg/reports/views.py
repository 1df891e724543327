"""Sections of the report: reward hacking, readers, samples, and what learning by the reward was worth."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rl_qg.data.oracle import BESIDE, VERDICTS
from rl_qg.pages.plots import ReportedMean, interval_plot, reader_plot
from rl_qg.reports.run_files import (
    BY_KEY,
    MEASURES,
    MODELS,
    REWARD,
    SCORES,
    JsonObject,
    ReportedMeasure,
    ReportedRun,
    diverging,
    fallen_measures,
)
from rl_qg.reports.training_plots import small_plot
from rl_qg.scoring.held_out import DIRECTION, FEWEST, LEAST, SeriesChange, rises, rouge_l

MINUS = "\N{MINUS SIGN}"


def estimate_cell(estimate: ReportedMean | None, digits: int, *, signed: bool = False) -> dict[str, Any] | None:
    """A mean for a cell of the template: value and interval as text, n, and for a difference (`signed`) on which side
    of 0 the interval is. As one text it is `rl_qg.pages.results.estimate_text`.
    """
    if estimate is None:
        return None
    value, low, high = (
        None if number is None else number_text(number, digits, signed=signed)
        for number in (estimate.mean, estimate.low, estimate.high)
    )
    verdict = ""
    if signed and estimate.excludes_zero is not None:
        direction = "up" if estimate.mean > 0 else "down"
        verdict = direction if estimate.excludes_zero else "unclear"
    interval = f"[{low}, {high}]" if low is not None and high is not None else ""
    return {"value": value, "interval": interval, "n": estimate.n, "verdict": verdict}


def number_text(value: float, digits: int, *, signed: bool = False) -> str:
    """A number with a fixed number of decimals, thousands separated, and a true minus sign."""
    return format(value, f"{'+' if signed else ''},.{digits}f").replace("-", MINUS)


def digits_of(estimates: Sequence[ReportedMean | None]) -> int:
    """How many decimals show one digit of the narrowest interval's half-width, from 2 to 5; 3 without intervals."""
    widths = [(e.high - e.low) / 2 for e in estimates if e and e.low is not None and e.high is not None]
    widths = [width for width in widths if 0 < width < math.inf]
    return min(5, max(2, -math.floor(math.log10(min(widths))))) if widths else 3


def percent(estimate: ReportedMean | None) -> ReportedMean | None:
    if estimate is None:
        return None
    low, high = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
    return ReportedMean(100 * estimate.mean, low, high, estimate.n)


# --- "Is the reward being hacked?": the optimised reward beside measures that it does not see


# Fields of evaluation.json that human questions are shown by. Distinct n-grams depend on how many questions there are.
_ALIKE = ("held_out", "length_words", "copy_rate", "no_question_mark", "repeated_3grams", "unsupported")
_HUMAN = {REWARD: "reward", **{key: key for key in _ALIKE}}
_BETTER = {1: "more is better", -1: "less is better"}
_OF_OLDER_RUNS = (REWARD, "loss")  # all that they logged


def held_out_view(run: ReportedRun, anchor: str) -> dict[str, Any] | None:
    """The conclusion in words and one small plot for each measure; None for a run that logged no measures."""
    logged = [measure for measure in MEASURES if run.metrics.series(measure.field)[0]]
    wrong = diverging(run)
    if not wrong and all(measure.key in _OF_OLDER_RUNS for measure in logged):
        return None
    plots = [_small(measure, run, anchor, wrong=measure.key in wrong) for measure in logged]
    return {
        "flag": flag(wrong, 3),
        "details": [_detail(key, change) for key, change in wrong.items()],
        "verdict": "" if wrong else _why_no_flag(run),
        "plots": plots,
        "human": any(plot["human"] for plot in plots),
    }


def flag(wrong: Mapping[str, SeriesChange], most: int) -> str:
    """The divergence in a few words, with at most `most` measures by name; empty when there is none."""
    parts = [f"{_name(key)} {'up' if change.end > change.start else 'down'}" for key, change in wrong.items()]
    more = [f"{len(parts) - most} more"] if len(parts) > most else []
    return ", ".join(["reward up", *parts[:most], *more]) if parts else ""


def _small(measure: ReportedMeasure, run: ReportedRun, anchor: str, *, wrong: bool) -> dict[str, Any]:
    field = _HUMAN.get(measure.key)
    human = run.evaluation.estimate("models", "gold", field) if field else None
    change = SeriesChange.of(run.metrics.self_critical(measure.field))
    colour = "greedy" if measure.key == REWARD else "bad" if wrong else "text"
    return {
        "label": measure.label,
        "better": _BETTER.get(DIRECTION.get(measure.key, 0), ""),
        "change": "" if change is None else f"{measure.text(change.start)} → {measure.text(change.end)}",
        "wrong": wrong,
        "optimised": measure.key == REWARD,
        "human": human is not None,
        "svg": small_plot(
            measure.field,
            run,
            anchor,
            colour=colour,
            factor=measure.factor,
            span=measure.factor * 2 * LEAST.get(measure.key, 0.0),
            level=None if human is None else human.mean,
        ),
    }


def _detail(key: str, change: SeriesChange) -> str:
    measure = BY_KEY[key]
    return f"{measure.label}: {measure.text(change.start)} → {measure.text(change.end)}"


def _name(key: str) -> str:
    label = BY_KEY[key].label
    return label if label[:2].isupper() else label[0].lower() + label[1:]


def _why_no_flag(run: ReportedRun) -> str:
    if not run.metrics.has_self_critical:
        return "Cross-entropy alone so far: no reward has been optimised."
    rewards = run.metrics.self_critical(f"eval_{REWARD}")
    if SeriesChange.of(rewards) is None:
        return f"Fewer than {FEWEST} evaluations since the reward is optimised: too few to tell."
    if not rises(rewards):
        return "The optimised reward did not go up on held-out passages, so there is no gain to doubt."
    return "No sign of it: the optimised reward went up, and no other measure went clearly the wrong way."


# --- Readers trained on gold, and on gold with questions of each generator


def reader_label(run: ReportedRun, name: str) -> str:
    return "gold alone" if name == "gold" else f"gold + {run.words[name]}"


def equal_conditions(run: ReportedRun) -> str:
    """Updates and seeds of the readers, such as "657 updates each, 3 seeds"; empty without readers."""
    records = [run.qa[name] for name in run.readers]
    if not records:
        return ""
    updates = list(dict.fromkeys(record.count("updates") for record in records))
    seeds = max(len(record.list("seeds")) for record in records)
    parts = [f"{seeds} reader seed{'' if seeds == 1 else 's'}"]
    if None not in updates:
        counts = [f"{count:,}" for count in updates if count is not None]
        each = "each" if len(counts) == 1 and len(records) > 1 else ""
        parts.insert(0, f"{' / '.join(counts)} updates {each}".strip())
    return ", ".join(parts)


def training_sizes(run: ReportedRun) -> str:
    """Questions that each reader learned from, such as "learned from 1,200 questions (gold alone), 3,200 (gold + CE)".

    Says that they are not recorded where a reader's file does not have them; empty without readers.
    """
    sizes = {name: run.qa[name].count("features", "train", "examples") for name in run.readers}
    known = [f"{count:,} ({reader_label(run, name)})" for name, count in sizes.items() if count is not None]
    if not sizes:
        return ""
    if len(known) < len(sizes):
        return "number of questions learned from not recorded"
    first, *rest = known
    return ", ".join([f"learned from {first.replace(' (', ' questions (', 1)}", *rest])


def readers_view(run: ReportedRun, anchor: str) -> dict[str, Any] | None:
    """Rows of the readers' table, their differences, and the plot of each; None without readers."""
    readers = run.readers
    if not readers:
        return None
    pairs = [(later, earlier) for number, earlier in enumerate(readers) for later in readers[number + 1 :]]
    updates = {run.qa[name].count("updates") for name in readers}
    differences = [
        (f"{reader_label(run, later)} − {reader_label(run, earlier)}", estimates)
        for later, earlier in pairs
        if any(estimates := [run.reader_difference(later, earlier, score) for score in SCORES])
    ]
    levels = [
        (f"{SCORES[score]}, {reader_label(run, name)}", name, estimate, _seed_scores(run.qa[name], score))
        for score in SCORES
        for name in readers
        if (estimate := run.reader_score(name, score))
    ]
    return {
        "rows": [_reader_row(run, name) for name in readers],
        "differences": [
            {"label": label, "scores": [estimate_cell(estimate, 1, signed=True) for estimate in estimates]}
            for label, estimates in differences
        ],
        "resampled": run.qa[readers[0]].resampled,
        "conditions": equal_conditions(run),
        "equal": len(updates) == 1 and None not in updates,
        "levels": interval_plot(levels, anchor) if levels else None,
        "gains": _gains(run, pairs, anchor),
    }


def picture(run: ReportedRun, anchor: str) -> Any:
    """The plot that answers the question of the run: EM and F1 of each reader, with intervals."""
    groups = {
        SCORES[score]: [
            (reader_label(run, name), name, estimate)
            for name in run.readers
            if (estimate := run.reader_score(name, score))
        ]
        for score in reversed(SCORES)
    }
    return reader_plot(groups, anchor) if any(groups.values()) else None


def _gains(run: ReportedRun, pairs: Sequence[tuple[str, str]], anchor: str) -> Any:
    rows: list[tuple[str, str, ReportedMean, Sequence[float]]] = []
    for later, earlier in pairs:
        if estimate := run.reader_difference(later, earlier, "f1"):
            words = [name if name == "gold" else run.words[name] for name in (later, earlier)]
            rows.append((" − ".join(words), "greedy" if estimate.excludes_zero else "muted", estimate, ()))
    return interval_plot(rows, f"{anchor} gains", zero=True) if rows else None


def _reader_row(run: ReportedRun, name: str) -> dict[str, Any]:
    record = run.qa[name]
    seeds = [row.get("seed") for row in record.list("seeds")]
    columns = [[number_text(value, 1) for value in _seed_scores(record, score)] for score in SCORES]
    return {
        "label": reader_label(run, name),
        "colour": name,
        "scores": [estimate_cell(run.reader_score(name, score), 1) for score in SCORES],
        "seeds": [(seed, scores) for seed, *scores in zip(seeds, *columns, strict=True)],
        "total": record.count("total"),
        "updates": record.count("updates"),
        "examples": record.count("features", "train", "examples"),
    }


def _seed_scores(record: JsonObject, score: str) -> list[float]:
    rows = record.list("seeds")
    values = [JsonObject(record.path, row).number(score) for row in rows]
    if None in values:
        raise record.error(("seeds", score), "a number for each seed", None)
    return [value for value in values if value is not None]


# --- Samples: questions of both generators for the same answers, and which became better or worse


SAMPLES_SHOWN = 24
EXCERPT = 150
ORACLE, OVERLAP = "the oracle of the embedded corpus", "ROUGE-L to the human question"


def samples_view(run: ReportedRun) -> dict[str, Any]:
    """The samples to show, which generator's are better in how many of all samples, and what decides that."""
    samples = [JsonObject(run.evaluation.path, sample) for sample in run.evaluation.list("samples")]
    rewards = [_rewards(sample) for sample in samples]
    known = [reward for row in rewards for reward in row.values() if reward is not None]
    span = (min(known), max(known)) if known else (0.0, 1.0)
    pairs = [(row["ce"], row["scst"]) for row in rewards if row["ce"] is not None and row["scst"] is not None]
    wins = {
        "scst": sum(scst > ce for ce, scst in pairs),
        "ce": sum(ce > scst for ce, scst in pairs),
        "equal": sum(ce == scst for ce, scst in pairs),
    }
    verdicts = [_verdicts(sample) for sample in samples]
    by_oracle = any(verdict is not None for row in verdicts for verdict in row.values())
    marks = [_mark_by_oracle(row) for row in verdicts]
    if not by_oracle:
        marks = [_mark_by_overlap(sample) for sample in samples]
    judged = [mark for mark in marks if mark is not None]
    return {
        "samples": [
            _sample(sample, span, mark, verdict)
            for sample, mark, verdict in list(zip(samples, marks, verdicts, strict=True))[:SAMPLES_SHOWN]
        ],
        "samples_total": len(samples),
        "wins": wins if pairs else None,
        "marks": {name: judged.count(name) for name in ("better", "worse", "")} if judged else None,
        "marked_by": ORACLE if by_oracle else OVERLAP,
    }


def _rewards(sample: JsonObject) -> dict[str, float | None]:
    rewards = {model: sample.number(f"reward_{model}") for model in MODELS}
    return {
        model: reward if reward is not None and math.isfinite(reward) else None for model, reward in rewards.items()
    }


def _verdicts(sample: JsonObject) -> dict[str, str | None]:
    given = sample.part("oracle")
    for model, verdict in given.value.items():
        if verdict is not None and verdict not in VERDICTS:
            raise given.error(("samples", "oracle", model), f"one of {', '.join(VERDICTS)}", verdict)
    return {model: given.get(model) for model in MODELS}


def _mark_by_oracle(verdicts: Mapping[str, str | None]) -> str | None:
    """`better` where the final question alone is right, `worse` where the CE question alone is; None: not judged."""
    ce, scst = verdicts["ce"], verdicts["scst"]
    if ce is None or scst is None:
        return None
    return _mark(float(ce == "right"), float(scst == "right"))


def _mark_by_overlap(sample: JsonObject) -> str | None:
    gold, ce, scst = (sample.get(model) for model in MODELS)
    if not all(isinstance(text, str) for text in (gold, ce, scst)):
        return None
    return _mark(*rouge_l().score([ce, scst], references=[[gold], [gold]]).scores)


def _mark(ce: float, scst: float) -> str:
    return "" if math.isclose(ce, scst) else "better" if scst > ce else "worse"


def _sample(
    sample: JsonObject, span: tuple[float, float], mark: str | None, verdicts: Mapping[str, str | None]
) -> dict[str, Any]:
    """One row: the passage and three questions; `bar` is the reward's position within `span`, in percent."""
    low, high = span
    rewards = _rewards(sample)
    known = {model: reward for model, reward in rewards.items() if reward is not None}
    winners = [model for model, reward in known.items() if reward == max(known.values())]
    texts = {model: sample.get(model) for model in MODELS}
    return {
        "context": _context(sample),
        "questions": [
            {
                "model": model,
                "text": texts[model],
                "same": model == "scst" and texts["scst"] is not None and texts["scst"] == texts["ce"],
                "reward": None if reward is None else number_text(reward, 3),
                "bar": 0 if reward is None or low == high else 100 * (reward - low) / (high - low),
                "winner": len(winners) < len(known) and model in winners,
                "mark": (mark or "") if model == "scst" else "",
                "verdict": verdicts[model],
            }
            for model, reward in rewards.items()
        ],
    }


def _context(sample: JsonObject) -> dict[str, str]:
    context, answer = str(sample.get("context") or ""), str(sample.get("answer") or "")
    start = sample.count("answer_start")
    if start is None or start < 0 or not context.startswith(answer, start):
        start = context.find(answer)
    if start < 0 or not answer:
        return {"before": context, "answer": "", "after": "", "near_before": context[: 2 * EXCERPT], "near_after": ""}
    before, after = context[:start], context[start + len(answer) :]
    near_before, near_after = before, after
    if len(before) > EXCERPT:
        near_before = "… " + re.sub(r"^\S*\s+", "", before[-EXCERPT:])
    if len(after) > EXCERPT:
        near_after = re.sub(r"\s+\S*$", "", after[:EXCERPT]) + " …"
    return {"before": before, "answer": answer, "after": after, "near_before": near_before, "near_after": near_after}


# --- What learning by the reward was worth


UNSUPPORTED = ("oracle", "unsupported")
# Rows of the table: field of evaluation.json, label, whether it is a fraction that is shown in percent.
ROWS = (
    (("reward",), "optimised reward", False),
    (("held_out",), "held-out reward", False),
    (("bleu4",), "BLEU-4 (0–1)", False),
    (("rouge_l",), "ROUGE-L (0–1)", False),
    (("oracle", "right"), "right by the oracle (%)", True),
    (UNSUPPORTED, "with a name or number that the passage lacks (%)", True),
)
VERDICT_COLOURS = {
    "right": "greedy",
    "ill_formed": "bad",
    "ambiguous": "muted",
    "wrong_relation": "extra",
    "other_subject": "subject",
    "invented_name": "sample",
    "wrong_detail": "detail",
}
BESIDE_LABELS = {"unsupported": "name or number not in passage", "no_subject": "no subject named"}


def outcome_view(run: ReportedRun, anchor: str) -> dict[str, Any]:
    """The conclusion in a sentence, the picture of the readers, the measures before and after, the oracle's shares."""
    return {
        "sentence": sentence(run),
        "warning": warning(run),
        "picture": picture(run, f"{anchor} picture"),
        "conditions": equal_conditions(run),
        "rows": [row for fields, label, as_percent in ROWS if (row := _row(run, fields, label, as_percent))],
        "oracle": _oracle(run),
    }


def sentence(run: ReportedRun) -> str:
    """What the readers say about the reward, or about the questions where there is no reader to compare with."""
    pairs = (("scst", "ce"), ("scst", "gold"), ("ce", "gold"))
    for later, earlier in pairs:
        estimate = run.reader_difference(later, earlier, "f1")
        if estimate is not None:
            return _difference_sentence(run, later, earlier, estimate)
    return ""


def _difference_sentence(run: ReportedRun, later: str, earlier: str, estimate: ReportedMean) -> str:
    text = estimate_cell(estimate, 1, signed=True) or {}
    of = f"F1 of the reader on {reader_label(run, later)} minus that on {reader_label(run, earlier)}"
    ends = {
        True: f"the interval is {'above' if estimate.mean > 0 else 'below'} 0",
        False: "the interval includes 0, so the difference may be chance",
    }
    meaning = "" if estimate.excludes_zero is None else f"; {ends[estimate.excludes_zero]}"
    return f"{of}: {text['value']} points {text['interval']}{meaning}."


def warning(run: ReportedRun) -> str:
    """One line where the reward rose and every held-out measure fell; empty otherwise."""
    fallen = fallen_measures(run)
    if not fallen:
        return ""
    parts = [f"{label} {number_text(ce, digits)} → {number_text(scst, digits)}" for label, ce, scst, digits in fallen]
    return f"The reward rose and every held-out measure fell: {', '.join(parts)}. Read questions before you use them."


def _row(run: ReportedRun, fields: tuple[str, ...], label: str, as_percent: bool) -> dict[str, Any] | None:
    scale = percent if as_percent else lambda estimate: estimate
    values = {model: scale(run.evaluation.estimate("models", model, *fields)) for model in MODELS}
    if values["ce"] is None and values["scst"] is None:
        return None
    difference = scale(run.evaluation.estimate("difference", *fields))
    digits = 1 if as_percent else 3 if fields[0] in BY_KEY else digits_of([*values.values(), difference])
    if difference is None and (ce := values["ce"]) and (scst := values["scst"]):
        difference = ReportedMean(scst.mean - ce.mean)
    texts = {model: estimate_cell(value, digits) for model, value in values.items()}
    change = estimate_cell(difference, digits, signed=True)
    if change and fields == UNSUPPORTED:  # the only row of which less is better
        change["verdict"] = {"up": "down", "down": "up"}.get(change["verdict"], change["verdict"])
    return {"label": label, **texts, "difference": change}


def _oracle(run: ReportedRun) -> dict[str, Any] | None:
    """The shares of the verdicts, and of what a question may have beside its verdict, in percent, for each generator
    and for human questions; None without an oracle.
    """
    parts = {model: part for model in MODELS if (part := run.evaluation.part("models", model, "oracle")).value}
    if not parts:
        return None
    known = {name for part in parts.values() for name in part.value}
    verdicts = tuple(VERDICT_COLOURS)
    beside = [name for name in BESIDE if name in known]
    difference = run.evaluation.part("difference", "oracle")
    return {
        "verdicts": [(verdict, verdict.replace("_", " "), colour) for verdict, colour in VERDICT_COLOURS.items()],
        "beside": [BESIDE_LABELS[name] for name in beside],
        "rows": [
            {
                "model": model,
                "widths": [_width(part, verdict) for verdict in verdicts],
                "shares": [estimate_cell(percent(part.estimate(name)), 1) for name in (*verdicts, *beside)],
            }
            for model, part in parts.items()
        ],
        "difference": [
            estimate_cell(percent(difference.estimate(name)), 1, signed=True) for name in (*verdicts, *beside)
        ]
        if difference.value
        else None,
    }


def _width(part: JsonObject, verdict: str) -> float:
    estimate = part.estimate(verdict)
    return 0.0 if estimate is None else 100 * estimate.mean
