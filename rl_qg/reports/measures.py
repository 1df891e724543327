"""The measures of a run's evaluations as reports and model cards show them, and those that went the wrong way."""

from dataclasses import dataclass

from rl_qg.evaluation.reward_hacking import SeriesChange, divergences
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
)
BY_KEY = {measure.key: measure for measure in MEASURES}


def diverging(run: ReportedRun) -> dict[str, SeriesChange]:
    """The held-out measures that went clearly the wrong way while the optimised reward went up."""
    others = {key: run.metrics.self_critical(f"eval_{key}") for key in DIRECTION if key != REWARD}
    return divergences(run.metrics.self_critical(f"eval_{REWARD}"), others)


def fallen_measures(run: ReportedRun) -> list[tuple[str, float, float, int]]:
    """Every held-out measure before and after, where the reward rose and all of them fell; else an empty list.

    Each is (label, value of the CE generator, of the final one, decimals). The values are means on held-out passages:
    the second reward, BLEU-4, ROUGE-L, the share of questions that are right by the oracle of the embedded corpus, and
    the F1 of the readers; those that the run has.
    """
    evaluation = run.evaluation
    before, after = (evaluation.estimate("models", model, "reward") for model in ("ce", "scst"))
    if before is None or after is None or after.mean <= before.mean:
        return []
    fields = {
        "held-out reward": (("held_out",), 1, 3),
        "BLEU-4": (("bleu4",), 1, 3),
        "ROUGE-L": (("rouge_l",), 1, 3),
        "right by the oracle in %": (("oracle", "right"), 100, 1),
    }
    pairs: list[tuple[str, ReportedMean | None, ReportedMean | None, int, int]] = []
    for label, (keys, factor, digits) in fields.items():
        ce, scst = (evaluation.estimate("models", model, *keys) for model in ("ce", "scst"))
        pairs.append((label, ce, scst, factor, digits))
    pairs.append(("reader F1", run.reader_score("ce", "f1"), run.reader_score("scst", "f1"), 1, 1))
    known = [
        (label, factor * ce.mean, factor * scst.mean, digits)
        for label, ce, scst, factor, digits in pairs
        if ce is not None and scst is not None
    ]
    return known if all(scst < ce for _, ce, scst, _ in known) else []
