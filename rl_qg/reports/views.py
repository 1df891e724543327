"""What the report shows of one run: numbers as text with intervals; a part is empty when its file is missing."""

import math
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import Any

from rl_qg.data.oracle import BESIDE, VERDICTS
from rl_qg.pages.plots import ReportedMean, interval_plot, reader_plot
from rl_qg.pages.results import MINUS, NONE, text_table
from rl_qg.reports.run_files import (
    BY_KEY,
    MEASURES,
    MODELS,
    REWARD,
    SCORES,
    TABLES,
    JsonObject,
    ReportedMeasure,
    ReportedRun,
    diverging,
    fallen_measures,
)
from rl_qg.reports.training_plots import small_plot, training_plots
from rl_qg.scoring.held_out import DIRECTION, FEWEST, LEAST, SeriesChange, rises, rouge_l
from rl_qg.scoring.separation import ABOVE, FREQUENT, SAMPLED_KINDS, WRONG, is_rare, told
from rl_qg.stats.intervals import FEW

Cell = Mapping[str, Any] | None  # of a table, as `estimate_cell` makes it
LISTED = 20
DATA_KEYS = ("data", "data_report", "examples", "leakage")  # shown in a section of their own
_BETTER = {1: "more is better", -1: "less is better"}
SAMPLES_SHOWN = 24
EXCERPT = 150
ORACLE, OVERLAP = "the oracle of the embedded corpus", "ROUGE-L to the human question"


def estimate_cell(estimate: ReportedMean | None, digits: int | None = None, *, signed: bool = False) -> Cell:
    """A mean for a cell of the template: value and interval as text, n, and for a difference (`signed`) on which side
    of 0 the interval is. As one text it is `rl_qg.pages.results.estimate_text`. The default of `digits`: `digits_of`.
    """
    if estimate is None:
        return None
    digits = digits_of([estimate]) if digits is None else digits
    value, low, high = (
        None if number is None else number_text(number, digits, signed=signed)
        for number in (estimate.mean, estimate.low, estimate.high)
    )
    side = "up" if estimate.mean > 0 else "down"
    verdict = {None: "", False: "unclear", True: side}[estimate.excludes_zero if signed else None]
    interval = f"[{low}, {high}]" if low is not None and high is not None else ""
    return {"value": value, "interval": interval, "n": estimate.n, "verdict": verdict}


def number_text(value: float, digits: int, *, signed: bool = False) -> str:
    """A number with a fixed number of decimals, thousands separated, and a true minus sign."""
    return format(value, f"{'+' if signed else ''},.{digits}f").replace("-", MINUS)


def digits_of(estimates: Collection[ReportedMean | None]) -> int:
    """How many decimals show one digit of the narrowest interval's half-width, from 2 to 5; 3 without intervals."""
    widths = [(e.high - e.low) / 2 for e in estimates if e and e.low is not None and e.high is not None]
    widths = [width for width in widths if 0 < width < math.inf]
    return min(5, max(2, -math.floor(math.log10(min(widths))))) if widths else 3


def percent(estimate: ReportedMean | None) -> ReportedMean | None:
    if estimate is None:
        return None
    low, high = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
    return ReportedMean(100 * estimate.mean, low, high, estimate.n)


def means_of(run: ReportedRun, *field: str) -> dict[str, ReportedMean | None]:
    return {model: run.measured(model, *field) for model in (*MODELS, "difference")}


def cells_of(means: Mapping[str, ReportedMean | None], digits: int | None = None) -> dict[str, Cell]:
    digits = digits_of(means.values()) if digits is None else digits
    return {name: estimate_cell(mean, digits, signed=name == "difference") for name, mean in means.items()}


def run_view(run: ReportedRun, anchor: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the template shows of one run beside its files; `anchor` is its id on the page."""
    return {
        "files": run,
        "words": run.words,
        "facts": _facts(run, summary),
        "reward": cells_of(means_of(run, "reward")),
        "bleu4": cells_of(means_of(run, "bleu4"), 3),
        "flag": flag(diverging(run), 1),
        "conditions": equal_conditions(run),
        "sizes": training_sizes(run),
        "outcome": outcome_view(run, anchor),
        "evaluation": evaluation_view(run),
        "separation": separation_view(run),
        "plots": training_plots(run, anchor),
        "hacking": held_out_view(run, anchor),
        **samples_view(run),
        "funnel": _funnel(run),
        "qa": readers_view(run, anchor),
        "reading": _reading(run.record.part("data_report")),
        "record": list(_record_rows({key: run.record.value[key] for key in run.record.value if key not in DATA_KEYS})),
    }


def _facts(run: ReportedRun, summary: Mapping[str, Any]) -> list[str]:
    logged = dict.fromkeys(str(line.get("stage")) for line in run.metrics.lines)
    stages = " → ".join(run.words[stage] for stage in logged if stage in run.words)
    steps, seed, commit = summary["training"]["steps"], summary["seed"], summary["commit"]
    changed = " with uncommitted changes" if run.record.get("code", "dirty") else ""
    facts = {
        stages: stages,
        f"algorithm {run.settings.get('algorithm')}": run.settings.get("algorithm"),
        unlabelled_use(run): unlabelled_use(run),
        f"{steps or 0:,.0f} steps": steps,
        f"seed {seed}": seed is not None,
        f"commit {str(commit)[:10]}{changed}": commit,
        f"started {str(run.record.get('started')).replace('T', ' ')}": run.record.get("started"),
    }
    return [text for text, known in facts.items() if known]


def unlabelled_use(run: ReportedRun) -> str:
    """How training used the answers without questions; empty where there are none, or none was trained by reward."""
    known, used = run.record.count("examples", "unlabelled"), run.trained.part("unlabelled")
    if used.value:
        share = used.number("share")
        part = "" if share is None else f", {100 * share:.0f} % of its examples"
        return f"{used.count('examples') or 0:,} answers without questions learned from by the reward{part}"
    if not known or run.trained.get("model") != "scst":
        return ""
    if run.settings.get("algorithm") == "best_of_n":
        return f"{known:,} answers without questions sampled for too"
    return f"{known:,} answers without questions, not used in training"


def _funnel(run: ReportedRun) -> list[dict[str, Any]]:
    """Bars from all candidates to the sampled ones; `left` and `width` are percent of all candidates."""
    total = run.augmentation.count("candidates")
    if not total:
        return []
    bars: list[tuple[str, str, int | None, float]] = [("candidates", "all", total, 0.0)]
    remaining = total
    for reason in run.augmentation.part("dropped").value:
        count = run.augmentation.count("dropped", reason) or 0
        remaining -= count
        bars.append((reason, "dropped", count, 100 * max(remaining, 0) / total))
    bars += [(kind, kind, run.augmentation.count(kind), 0.0) for kind in ("kept", "sampled")]
    return [
        {"label": label, "kind": kind, "count": count, "left": left, "width": 100 * count / total}
        for label, kind, count, left in bars
        if count is not None
    ]


def _reading(report: JsonObject) -> list[dict[str, Any]]:
    """For each role's data: records read and kept, and the count of each kind of change and drop."""
    rows = []
    for role in report.value:
        part = report.part(role)
        changes = {key: part.count(key, "count") for key in part.value if isinstance(part.value[key], Mapping)}
        drops = {reason: part.count("dropped", reason, "count") for reason in part.part("dropped").value}
        notes = [f"{count:,} {key.replace('_', ' ')}" for key, count in changes.items() if count]
        notes += [f"{count:,} dropped ({reason})" for reason, count in drops.items() if count]
        rows.append({"role": role, "read": part.count("read"), "kept": part.count("kept"), "notes": ", ".join(notes)})
    return rows


def _record_rows(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, part in value.items():
        name = f"{prefix}{key}"
        if isinstance(part, Mapping):
            yield from _record_rows(part, f"{name}.")
        elif key == "command" and isinstance(part, list):
            yield name, shlex.join(map(str, part))
        elif isinstance(part, list):
            more = f" … ({len(part):,} in all)" if len(part) > LISTED else ""
            yield name, ", ".join(map(str, part[:LISTED])) + more or "none"
        else:
            yield name, "unknown" if part is None else str(part)


def evaluation_view(run: ReportedRun) -> dict[str, Any] | None:
    """The table of human, CE and SCST questions, with the columns that any of them has; the parts of the reward."""
    models = [model for model in MODELS if run.evaluation.part("models", model).value]
    if not models:
        return None
    headings, columns = [], []
    for field, (heading, *form) in TABLES["columns"].items():
        means = {model: run.measured(model, field) for model in models}
        if any(means.values()):
            headings.append(heading)
            cells = cells_of(means, 3 if field == "bleu4" else None)
            if form:  # without an interval
                texts = {model: form[0].format(mean.mean).removesuffix("%") for model, mean in means.items() if mean}
                cells = {model: {"value": texts[model], "interval": ""} if model in texts else None for model in means}
            columns.append(cells)
    names = [name for model in MODELS for name in run.evaluation.part("models", model, "reward_parts").value]
    parts = {name: {model: run.measured(model, "reward_parts", name) for model in MODELS} for name in names}
    return {
        "headings": headings,
        "rows": [{"model": model, "cells": [cells[model] for cells in columns]} for model in models],
        "parts": [{"name": name, "cells": [*cells_of(means).values()]} for name, means in parts.items()],
    }


def separation_view(run: ReportedRun) -> dict[str, Any] | None:
    """A row for each kind and over all: name, share, a doubt in words; of sampled kinds also how frequent they are."""
    pairs, sampled = run.separation.part("pairs"), run.separation.part("sampled")
    parts = {kind: pairs.part(kind) for kind in pairs.value}
    if run.separation.get("auc") is not None:
        parts["all kinds"] = run.separation.part("auc")
    known = {kind: mean for kind, part in parts.items() if (mean := _share(part, "auc", n="n"))}
    if not known:
        return None
    kinds = sampled.part("kinds")
    written = {kind: share for kind in kinds.value if (share := kinds.part(kind).number("share")) is not None}
    of_samples = [(SAMPLED_KINDS.get(kind, kind), kinds.part(kind)) for kind in kinds.value]
    of_samples += [(WRONG, sampled.part("wrong"))] if of_samples else []
    return {
        "rows": [
            (kind.replace("_", " "), mean, "" if is_rare(kind.replace(" ", "_"), written) else _doubt(mean))
            for kind, mean in known.items()
        ],
        "sampled": [_sampled(kind, part) for kind, part in of_samples],
    }


def _sampled(kind: str, part: JsonObject) -> tuple[str, ReportedMean | None, ReportedMean | None, str]:
    share, auc = _share(part, "share"), _share(part, "auc", "auc_", "answers")
    frequent = share is not None and share.mean >= FREQUENT and (part.count("passages") or 0) >= FEW
    return kind, share, auc, _doubt(auc) if auc is not None and frequent else ""


def _share(part: JsonObject, key: str, ends: str = "", n: str = "") -> ReportedMean | None:
    share = part.number(key)
    if share is None:
        return None
    return ReportedMean(share, part.number(f"{ends}low"), part.number(f"{ends}high"), part.count(n) if n else None)


def _doubt(share: ReportedMean) -> str:
    """In words, that the reward does not prefer the right question; empty where it does, or without an interval."""
    verdict = told(share.low, share.high)
    return "" if share.low is None or verdict == ABOVE else verdict


def held_out_view(run: ReportedRun, anchor: str) -> dict[str, Any] | None:
    """The conclusion in words and one small plot for each measure; None for a run that logged no measures."""
    logged = [measure for measure in MEASURES if run.metrics.series(measure.field)[0]]
    wrong = diverging(run)
    if not wrong and all(measure.key in (REWARD, "loss") for measure in logged):  # all that older runs logged
        return None
    plots = [_small(measure, run, anchor, wrong=measure.key in wrong) for measure in logged]
    rewards = run.metrics.self_critical(f"eval_{REWARD}")
    return {
        "flag": flag(wrong, 3),
        "details": [f"{BY_KEY[key].label}: {BY_KEY[key].moved(change)}" for key, change in wrong.items()],
        "too_few": SeriesChange.of(rewards) is None,
        "fewest": FEWEST,
        "rose": rises(rewards),
        "plots": plots,
        "human": any(plot["human"] for plot in plots),
    }


def flag(wrong: Mapping[str, SeriesChange], most: int) -> str:
    """The divergence in a few words, with at most `most` measures by name; empty when there is none."""
    parts = []
    for key, change in wrong.items():
        label = BY_KEY[key].label
        name = label if label[:2].isupper() else label[0].lower() + label[1:]
        parts.append(f"{name} {'up' if change.end > change.start else 'down'}")
    more = [f"{len(parts) - most} more"] if len(parts) > most else []
    return ", ".join(["reward up", *parts[:most], *more]) if parts else ""


def _small(measure: ReportedMeasure, run: ReportedRun, anchor: str, *, wrong: bool) -> dict[str, Any]:
    optimised = measure.key == REWARD
    human = run.measured("gold", "reward" if optimised else measure.key) if measure.key in TABLES["human"] else None
    change = SeriesChange.of(run.metrics.self_critical(measure.field))
    colour, level = "greedy" if optimised else "bad" if wrong else "text", None if human is None else human.mean
    return {
        "label": measure.label,
        "better": _BETTER.get(DIRECTION.get(measure.key, 0), ""),
        "change": "" if change is None else measure.moved(change),
        "wrong": wrong,
        "optimised": optimised,
        "human": human is not None,
        "svg": small_plot(measure, run, anchor, colour=colour, span=2 * LEAST.get(measure.key, 0.0), level=level),
    }


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
    """Such as "learned from 1,200 questions (gold alone), 3,200 (gold + CE)"; empty without readers."""
    sizes = {name: run.qa[name].count("features", "train", "examples") for name in run.readers}
    if None in sizes.values():
        return "number of questions learned from not recorded"
    parts = [
        f"{count:,}{'' if number else ' questions'} ({reader_label(run, name)})"
        for number, (name, count) in enumerate(sizes.items())
    ]
    return f"learned from {', '.join(parts)}" if parts else ""


def readers_view(run: ReportedRun, anchor: str) -> dict[str, Any] | None:
    """Rows of the readers' table, their differences, and the plot of each; None without readers."""
    readers = run.readers
    if not readers:
        return None
    updates = {run.qa[name].count("updates") for name in readers}
    rows: list[dict[str, Any]] = [
        {
            "label": reader_label(run, name),
            "colour": name,
            "scores": [run.reader_score(name, score) for score in SCORES],
            "seeds": _seed_scores(run.qa[name]),
            "record": run.qa[name],
        }
        for name in readers
    ]
    levels = [
        (f"{SCORES[score]}, {row['label']}", row["colour"], estimate, [values[number] for _, *values in row["seeds"]])
        for number, score in enumerate(SCORES)
        for row in rows
        if (estimate := row["scores"][number])
    ]
    differences, gains = [], []
    for earlier, later in combinations(readers, 2):
        estimates = [run.reader_difference(later, earlier, score) for score in SCORES]
        if any(estimates):
            differences.append((f"{reader_label(run, later)} − {reader_label(run, earlier)}", estimates))
        if f1 := estimates[-1]:
            words = [name if name == "gold" else run.words[name] for name in (later, earlier)]
            gains.append((" − ".join(words), "greedy" if f1.excludes_zero else "muted", f1, ()))
    return {
        "rows": rows,
        "differences": differences,
        "resampled": run.qa[readers[0]].resampled,
        "equal": len(updates) == 1 and None not in updates,
        "levels": interval_plot(levels, anchor) if levels else None,
        "gains": interval_plot(gains, f"{anchor} gains", zero=True) if gains else None,
    }


def _seed_scores(record: JsonObject) -> list[tuple[Any, ...]]:
    rows = [JsonObject(record.path, row) for row in record.list("seeds")]
    for score in SCORES:
        if None in [row.number(score) for row in rows]:
            raise record.error(("seeds", score), "a number for each seed", None)
    return [(row.get("seed"), *(row.number(score) for score in SCORES)) for row in rows]


def samples_view(run: ReportedRun) -> dict[str, Any]:
    """The samples to show, which generator's are better in how many of all samples, and what decides that."""
    samples = [JsonObject(run.evaluation.path, sample) for sample in run.evaluation.list("samples")]
    found = [{model: sample.number(f"reward_{model}") for model in MODELS} for sample in samples]
    rewards = [{model: one if math.isfinite(one or 0.0) else None for model, one in row.items()} for row in found]
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
    marks = [
        _mark(row if by_oracle else sample.value, by_oracle) for sample, row in zip(samples, verdicts, strict=True)
    ]
    judged = [mark for mark in marks if mark is not None]
    rows = list(zip(samples, rewards, marks, verdicts, strict=True))
    return {
        "samples": [
            {"context": _context(sample), "texts": sample.value, "rewards": reward, "best": _best(reward)}
            | {"mark": mark or "", "verdicts": verdict}
            for sample, reward, mark, verdict in rows[:SAMPLES_SHOWN]
        ],
        "span": span,
        "samples_total": len(samples),
        "wins": wins if pairs else None,
        "marks": {name: judged.count(name) for name in ("better", "worse", "")} if judged else None,
        "marked_by": ORACLE if by_oracle else OVERLAP,
    }


def _best(rewards: Mapping[str, float | None]) -> list[str]:
    """Whose question has the highest reward; none where all are alike."""
    known = {model: reward for model, reward in rewards.items() if reward is not None}
    best = [model for model, reward in known.items() if reward == max(known.values())]
    return best if len(best) < len(known) else []


def _verdicts(sample: JsonObject) -> dict[str, str | None]:
    given = sample.part("oracle")
    for model, verdict in given.value.items():
        if verdict is not None and verdict not in VERDICTS:
            raise given.error(("samples", "oracle", model), f"one of {', '.join(VERDICTS)}", verdict)
    return {model: given.get(model) for model in MODELS}


def _mark(given: Mapping[str, Any], by_oracle: bool) -> str | None:
    """`better` where the final question alone is right, or nearer to the human one, and `worse` where the CE question
    is; None: not judged. `given`: verdicts, or questions.
    """
    gold, ce, scst = (given.get(model) for model in MODELS)
    if not all(isinstance(one, str) for one in ((ce, scst) if by_oracle else (gold, ce, scst))):
        return None
    first, second = float(ce == "right"), float(scst == "right")
    if not by_oracle:
        first, second = rouge_l().score([ce, scst], references=[[gold], [gold]]).scores
    return "" if math.isclose(first, second) else "better" if second > first else "worse"


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


def outcome_view(run: ReportedRun, anchor: str) -> dict[str, Any]:
    """Conclusion, picture of the readers, measures before and after; whose questions the oracle judged, and how."""
    known = {model: run.evaluation.part("models", model, "oracle").value for model in MODELS}
    bars = {
        SCORES[score]: [
            (reader_label(run, name), name, estimate)
            for name in run.readers
            if (estimate := run.reader_score(name, score))
        ]
        for score in reversed(SCORES)
    }
    return {
        "sentence": sentence(run),
        "warning": warning(run),
        "picture": reader_plot(bars, f"{anchor} picture") if any(bars.values()) else None,
        "rows": [row for field, label in TABLES["outcome"].items() if (row := _row(run, field, label))],
        "oracle": [model for model in MODELS if known[model]],
        "beside": [name for name in BESIDE if any(name in names for names in known.values())],
    }


def outcome_text(run: ReportedRun) -> str:
    """What the report begins with, for a terminal: measures of the questions, readers, and what these say."""

    def text(cell: Cell) -> str:
        return f"{cell['value']} {cell['interval']}".strip() if cell else NONE

    heads = {"ce": "CE", "scst": run.words["scst"], "difference": "difference", "gold": "human"}
    rows = [row for field, label in TABLES["outcome"].items() if (row := _row(run, field, label))]
    questions = [
        {"questions, held-out": row["label"]} | {head: text(row[name]) for name, head in heads.items()} for row in rows
    ]
    readers = [
        {"reader on": reader_label(run, name)}
        | {label: text(estimate_cell(run.reader_score(name, score), 1)) for score, label in SCORES.items()}
        for name in run.readers
    ]
    tables = [text_table(table) for table in (questions, readers) if table]
    return "\n\n".join(filter(None, [*tables, sentence(run), warning(run)]))


def sentence(run: ReportedRun) -> str:
    """What the readers say about the reward, or about the questions where there is no reader to compare with."""
    for later, earlier in (("scst", "ce"), ("scst", "gold"), ("ce", "gold")):
        estimate = run.reader_difference(later, earlier, "f1")
        if estimate is not None:
            text = estimate_cell(estimate, 1, signed=True) or {}
            of = f"F1 of the reader on {reader_label(run, later)} minus that on {reader_label(run, earlier)}"
            meaning = {
                None: "",
                True: f"; the interval is {'above' if estimate.mean > 0 else 'below'} 0",
                False: "; the interval includes 0, so the difference may be chance",
            }
            return f"{of}: {text['value']} points {text['interval']}{meaning[estimate.excludes_zero]}."
    return ""


def warning(run: ReportedRun) -> str:
    """One line where the reward rose and every held-out measure fell; empty otherwise."""
    fallen = fallen_measures(run)
    if not fallen:
        return ""
    parts = [f"{label} {number_text(ce, digits)} → {number_text(scst, digits)}" for label, ce, scst, digits in fallen]
    return f"The reward rose and every held-out measure fell: {', '.join(parts)}. Read questions before you use them."


def _row(run: ReportedRun, field: str, label: str) -> dict[str, Any] | None:
    means, as_percent = means_of(run, *field.split(".")), field.startswith("oracle.")
    if means["ce"] is None and means["scst"] is None:
        return None
    if as_percent:
        means = {name: percent(mean) for name, mean in means.items()}
    if means["difference"] is None and (ce := means["ce"]) and (scst := means["scst"]):
        means["difference"] = ReportedMean(scst.mean - ce.mean)
    cells = cells_of(means, 1 if as_percent else 3 if field in BY_KEY else None)
    if (change := cells["difference"]) and field == "oracle.unsupported":  # the only row of which less is better
        verdict = {"up": "down", "down": "up"}.get(change["verdict"], change["verdict"])
        cells["difference"] = {**change, "verdict": verdict}
    return {"label": label, **cells}
