"""The measures of a run's evaluations as reports and model cards show them, and those that went the wrong way."""

from dataclasses import dataclass

from rl_qg.evaluation.reward_hacking import FEWEST, SeriesChange, divergences, diverges, rises
from rl_qg.evaluation.text_measures import DIRECTION
from rl_qg.reports.run_files import ReportedMean, ReportedRun

REWARD = "reward_greedy"


@dataclass(frozen=True)
class ReportedMeasure:
    """A measure of the evaluations in training, `eval_<key>` in `metrics.jsonl`.

    `digits` are decimals as shown; `percent`: a fraction that is shown in percent.
    """

    key: str
    label: str
    digits: int
    percent: bool = False

    @property
    def field(self) -> str:
        """Its name in `metrics.jsonl`."""
        return f"eval_{self.key}"

    @property
    def factor(self) -> float:
        """What the file's values are multiplied by when they are shown."""
        return 100.0 if self.percent else 1.0

    def text(self, value: float) -> str:
        """The value as it is shown."""
        return f"{self.factor * value:.{self.digits}f}{' %' if self.percent else ''}".replace("-", "\N{MINUS SIGN}")


MEASURES = (
    ReportedMeasure(REWARD, "Optimised reward", 3),
    ReportedMeasure("held_out", "Held-out reward", 3),
    ReportedMeasure("bleu4", "BLEU-4", 3),
    ReportedMeasure("rouge_l", "ROUGE-L", 3),
    ReportedMeasure("loss", "Cross-entropy of gold", 3),
    ReportedMeasure("kl", "KL from the start", 3),
    ReportedMeasure("distinct_1", "Distinct words", 0, percent=True),
    ReportedMeasure("distinct_2", "Distinct 2-grams", 0, percent=True),
    ReportedMeasure("length_words", "Words per question", 1),
    ReportedMeasure("copy_rate", "Copied 2-grams", 0, percent=True),
    ReportedMeasure("no_question_mark", "No question mark", 0, percent=True),
    ReportedMeasure("repeated_3grams", "Repeated 3-grams", 0, percent=True),
    ReportedMeasure("unsupported", "Unsupported names", 0, percent=True),
)
BY_KEY = {measure.key: measure for measure in MEASURES}


def diverging(run: ReportedRun) -> dict[str, SeriesChange]:
    """The held-out measures that went clearly the wrong way while the optimised reward went up."""
    others = {key: run.metrics.self_critical(f"eval_{key}") for key in DIRECTION if key != REWARD}
    return divergences(run.metrics.self_critical(f"eval_{REWARD}"), others)


@dataclass(frozen=True)
class _Change:
    """A held-out mean of the CE generator and of the final one, and the paired difference; None: not measured."""

    before: ReportedMean | None
    after: ReportedMean | None
    difference: ReportedMean | None

    @property
    def series(self) -> list[float]:
        """Evaluations with this start and this end, for the rule of `rl_qg.evaluation.reward_hacking`."""
        return [mean.mean for mean in (self.before, self.after) if mean is not None for _ in range(FEWEST)]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the difference's interval."""
        change = self.difference
        return None if change is None or change.low is None or change.high is None else (change.low, change.high)


def fallen_measures(run: ReportedRun) -> list[tuple[str, float, float, int]]:
    """Every held-out measure before and after, where the reward rose and all of them fell; else an empty list.

    The reward must have risen by more than chance, and one of the measures fallen by more: the interval of its paired
    difference lies on that side of 0. Where there is none, it is a change that counts in the line at the end of
    training (`rl_qg.evaluation.reward_hacking`). Each is (label, value of the CE generator, of the final one,
    decimals). The values are means on held-out passages: the second reward, BLEU-4, ROUGE-L, the share of questions
    that are right by the oracle of the embedded corpus, and the F1 of the readers; those that the run has.
    """
    reward = _change(run, "reward")
    if not _rose(reward):
        return []
    by_ce, by_scst = (run.reader_score(name, "f1") for name in ("ce", "scst"))
    reader = _Change(by_ce, by_scst, run.reader_difference("scst", "ce", "f1"))
    changes = [
        ("held_out", "held-out reward", _change(run, "held_out"), 1, 3),
        ("bleu4", "BLEU-4", _change(run, "bleu4"), 1, 3),
        ("rouge_l", "ROUGE-L", _change(run, "rouge_l"), 1, 3),
        ("right", "right by the oracle in %", _change(run, "oracle", "right"), 100, 1),
        ("reader_f1", "reader F1", reader, 1, 1),
    ]
    known = [
        (label, factor * change.before.mean, factor * change.after.mean, digits)
        for _, label, change, factor, digits in changes
        if change.before is not None and change.after is not None
    ]
    clear = any(_clearly_fell(key, change, reward) for key, _, change, _, _ in changes)
    return known if clear and all(after < before for _, before, after, _ in known) else []


def _change(run: ReportedRun, *keys: str) -> _Change:
    ce, scst = (run.evaluation.estimate("models", model, *keys) for model in ("ce", "scst"))
    return _Change(ce, scst, run.evaluation.estimate("difference", *keys))


def _rose(reward: _Change) -> bool:
    return rises(reward.series) if reward.interval is None else reward.interval[0] > 0


def _clearly_fell(key: str, change: _Change, reward: _Change) -> bool:
    if change.interval is not None:
        return change.interval[1] < 0
    if key in DIRECTION:
        return key in divergences(reward.series, {key: change.series})
    return diverges(reward.series, change.series, direction=1)
