"""The report's answer to "is the reward being hacked?": the optimised reward beside everything it does not see."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rl_qg.evaluation.reward_hacking import FEWEST, LEAST, Change, divergences, rises
from rl_qg.evaluation.text_measures import DIRECTION
from rl_qg.reports.plots import small_plot
from rl_qg.reports.run_files import Run

REWARD = "reward_greedy"
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Measure:
    """One small plot: `eval_<key>` of `metrics.jsonl`; a share is shown in percent."""

    key: str
    label: str
    digits: int
    share: bool = False

    @property
    def field(self) -> str:
        """Its name in `metrics.jsonl`."""
        return f"eval_{self.key}"

    @property
    def factor(self) -> float:
        """From the file's unit to the page's."""
        return 100.0 if self.share else 1.0

    def text(self, value: float) -> str:
        """The value as the page shows it."""
        return f"{self.factor * value:.{self.digits}f}{' %' if self.share else ''}".replace("-", MINUS)


MEASURES = (
    Measure(REWARD, "Optimised reward", 3),
    Measure("held_out", "Held-out reward", 3),
    Measure("bleu4", "BLEU-4", 3),
    Measure("rouge_l", "ROUGE-L", 3),
    Measure("loss", "Cross-entropy of gold", 3),
    Measure("kl", "KL from the start", 3),
    Measure("distinct_1", "Distinct words", 0, share=True),
    Measure("distinct_2", "Distinct 2-grams", 0, share=True),
    Measure("length_words", "Words per question", 1),
    Measure("copy_rate", "Copied 2-grams", 0, share=True),
    Measure("no_question_mark", "No question mark", 0, share=True),
    Measure("repeated_3grams", "Repeated 3-grams", 0, share=True),
)
LABELS = {measure.key: measure for measure in MEASURES}
# What human questions are compared in; the distinct n-grams of another number of questions are another unit.
_HUMAN = {REWARD: "reward", **{key: key for key in ("held_out", "length_words", "copy_rate", "no_question_mark")}}
_HUMAN["repeated_3grams"] = "repeated_3grams"
_BETTER = {1: "more is better", -1: "less is better"}
_OWN = (REWARD, "loss")  # older runs have these alone


def diverging(run: Run) -> dict[str, Change]:
    """The held-out measures that went clearly the wrong way while the optimised reward went up."""
    others = {key: run.metrics.self_critical(f"eval_{key}") for key in DIRECTION if key != REWARD}
    return divergences(run.metrics.self_critical(f"eval_{REWARD}"), others)


def held_out_view(run: Run, anchor: str) -> dict[str, Any] | None:
    """The panel: a verdict in words, and one small plot for each measure; None for a run that logged no measures."""
    found = [measure for measure in MEASURES if run.metrics.series(measure.field)[0]]
    wrong = diverging(run)
    if not wrong and all(measure.key in _OWN for measure in found):
        return None
    plots = [_small(measure, run, anchor, wrong=measure.key in wrong) for measure in found]
    return {
        "flag": flag(wrong, 3),
        "details": [_detail(key, change) for key, change in wrong.items()],
        "verdict": "" if wrong else _quiet(run),
        "plots": plots,
        "human": any(plot["human"] for plot in plots),
    }


def flag(wrong: Mapping[str, Change], most: int) -> str:
    """The divergence in a few words, at most so many measures by name; empty when there is none."""
    parts = [f"{_name(key)} {'up' if change.end > change.start else 'down'}" for key, change in wrong.items()]
    more = [f"{len(parts) - most} more"] if len(parts) > most else []
    return ", ".join(["reward up", *parts[:most], *more]) if parts else ""


def _small(measure: Measure, run: Run, anchor: str, *, wrong: bool) -> dict[str, Any]:
    place = _HUMAN.get(measure.key)
    human = run.evaluation.estimate("models", "gold", place) if place else None
    change = Change.of(run.metrics.self_critical(measure.field))
    colour = "greedy" if measure.key == REWARD else "bad" if wrong else "text"
    return {
        "label": measure.label,
        "better": _BETTER.get(DIRECTION.get(measure.key, 0), ""),
        "change": "" if change is None else f"{measure.text(change.start)} → {measure.text(change.end)}",
        "wrong": wrong,
        "optimised": measure.key == REWARD,
        "human": human is not None,
        "svg": Markup(
            small_plot(
                measure.field,
                run.metrics,
                anchor,
                colour=colour,
                factor=measure.factor,
                span=measure.factor * 2 * LEAST.get(measure.key, 0.0),
                level=None if human is None else human.mean,
            )
        ),
    }


def _detail(key: str, change: Change) -> str:
    measure = LABELS[key]
    return f"{measure.label}: {measure.text(change.start)} → {measure.text(change.end)}"


def _name(key: str) -> str:
    """The label inside a sentence: acronyms stay as they are."""
    label = LABELS[key].label
    return label if label[:2].isupper() else label[0].lower() + label[1:]


def _quiet(run: Run) -> str:
    """Why nothing is flagged."""
    if not run.metrics.has_self_critical:
        return "Cross-entropy alone so far: no reward has been optimised."
    rewards = run.metrics.self_critical(f"eval_{REWARD}")
    if Change.of(rewards) is None:
        return f"Fewer than {FEWEST} evaluations since the reward is optimised: too few to tell."
    if not rises(rewards):
        return "The optimised reward did not go up on held-out passages, so there is no gain to doubt."
    return "No sign of it: the optimised reward went up, and no other measure went clearly the wrong way."
