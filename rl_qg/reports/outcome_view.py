"""The report's answer in one place: readers before and after, and the measures of the questions beside each other."""

from typing import Any

from rl_qg.evaluation.oracle import BESIDE
from rl_qg.reports.estimates import digits_of, estimate_cell, number_text, percent
from rl_qg.reports.measures import BY_KEY, fallen_measures
from rl_qg.reports.reader_view import equal_conditions, picture, reader_label
from rl_qg.reports.run_files import MODELS, OLDER_READER, JsonObject, ReportedMean, ReportedRun

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
OLDER_COLOURS = {
    "right": "greedy",
    "ill_formed": "bad",
    "ambiguous": "muted",
    "wrong_attribute": "extra",
    "wrong_entity": "sample",
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
    pairs = (("scst", "ce"), ("scst", "gold"), (OLDER_READER, "gold"), ("ce", "gold"))
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
    """A measure of both generators and of human questions, with its paired difference where one was computed."""
    scale = percent if as_percent else _unchanged
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


def _unchanged(estimate: ReportedMean | None) -> ReportedMean | None:
    return estimate


def _oracle(run: ReportedRun) -> dict[str, Any] | None:
    """The shares of the verdicts, and of what a question may have beside its verdict, in percent, for each generator
    and for human questions; None without an oracle. Folders of earlier versions have coarser verdicts.
    """
    parts = {model: part for model in MODELS if (part := run.evaluation.part("models", model, "oracle")).value}
    if not parts:
        return None
    known = {name for part in parts.values() for name in part.value}
    colours = VERDICT_COLOURS if "wrong_relation" in known else OLDER_COLOURS
    verdicts = tuple(colours)
    beside = [name for name in BESIDE if name in known]
    difference = run.evaluation.part("difference", "oracle")
    return {
        "verdicts": [(verdict, verdict.replace("_", " "), colour) for verdict, colour in colours.items()],
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
