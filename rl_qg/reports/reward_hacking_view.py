"""The report's section "Is the reward being hacked?": the optimised reward beside measures that it does not see."""

from collections.abc import Mapping
from typing import Any

from rl_qg.evaluation.reward_hacking import FEWEST, LEAST, SeriesChange, rises
from rl_qg.evaluation.text_measures import DIRECTION
from rl_qg.reports.measures import BY_KEY, MEASURES, REWARD, ReportedMeasure, diverging
from rl_qg.reports.run_files import ReportedRun
from rl_qg.reports.training_plots import small_plot

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
    """The label within a sentence; acronyms keep their case."""
    label = BY_KEY[key].label
    return label if label[:2].isupper() else label[0].lower() + label[1:]


def _why_no_flag(run: ReportedRun) -> str:
    """Why nothing is flagged."""
    if not run.metrics.has_self_critical:
        return "Cross-entropy alone so far: no reward has been optimised."
    rewards = run.metrics.self_critical(f"eval_{REWARD}")
    if SeriesChange.of(rewards) is None:
        return f"Fewer than {FEWEST} evaluations since the reward is optimised: too few to tell."
    if not rises(rewards):
        return "The optimised reward did not go up on held-out passages, so there is no gain to doubt."
    return "No sign of it: the optimised reward went up, and no other measure went clearly the wrong way."
