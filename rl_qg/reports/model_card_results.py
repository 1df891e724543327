"""What a run measured, for its model cards: the table of results, and the limits that follow from it."""

from collections.abc import Callable, Sequence

from rl_qg.evaluation.reward_hacking import SeriesChange, rises
from rl_qg.reports.measures import BY_KEY, MEASURES, REWARD, diverging
from rl_qg.reports.outcome_view import sentence
from rl_qg.reports.reader_view import equal_conditions, reader_label
from rl_qg.reports.run_files import SCORES, ReportedMean, ReportedRun
from rl_qg.text.tables import as_markdown

COLUMNS = {"ce": "cross-entropy", "scst": "by reward", "gold": "human questions"}
ORACLE_ROWS = {
    "right": "Right by the oracle of the embedded corpus",
    "unsupported": "With a name or number that the passage lacks",
}


def results_text(run: ReportedRun, stage: str, kept_step: int | None) -> str:
    """The measures of the model of `stage` and of the stages before it, as Markdown.

    They come from `evaluation.json`, or where there is none from the last evaluations of training. `kept_step` is the
    step of the model that was kept as the best; None: the last one was kept.
    """
    columns = ["ce", "scst"] if stage == "scst" else ["ce"]
    evaluation = run.evaluation
    count = evaluation.count("examples")
    if count is None:
        return _results_of_training(run, columns, kept_step)
    columns = [name for name in (*columns, "gold") if evaluation.get("models", name) is not None]
    rows = []
    for measure in MEASURES:
        key = "reward" if measure.key == REWARD else measure.key
        means = [evaluation.estimate("models", name, key) for name in columns]
        if any(means):
            rows.append([measure.label, *(_cell(measure.text, mean) for mean in means)])
    for key, label in ORACLE_ROWS.items():
        shares = [evaluation.estimate("models", name, "oracle", key) for name in columns]
        if any(shares):
            rows.append([label, *(_cell(_percent, share) for share in shares)])
    signature = evaluation.get("held_out_signature")
    note = f" The held-out reward, which was not optimised:\n\n    {signature}" if signature else ""
    choice = f" {evaluation.choice_text}" if evaluation.choice_text else ""
    return (
        f"Greedy questions for {count} held-out examples; 95 % intervals over {evaluation.resampled} in "
        f"brackets.{choice}{note}\n\n{_table(columns, rows)}{_readers_text(run)}"
    )


def _readers_text(run: ReportedRun) -> str:
    """The readers that the pipeline trained, and their differences; empty where there are none."""
    if not run.readers:
        return ""
    rows = [
        [
            reader_label(run, name),
            *(_cell(_one_digit, run.reader_score(name, score)) for score in SCORES),
            run.qa[name].count("updates") or "",
        ]
        for name in run.readers
    ]
    table = as_markdown(["reader trained on", *SCORES.values(), "updates"], rows)
    about = f"Extractive readers on held-out human questions, percent ({equal_conditions(run)})"
    return f"\n\n{about}:\n\n{table}\n\n{sentence(run)}".rstrip()


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _one_digit(value: float) -> str:
    return f"{value:.1f}"


def _results_of_training(run: ReportedRun, columns: Sequence[str], kept_step: int | None) -> str:
    """What the last evaluation of each stage measured; of a model that was kept, the evaluation of its step."""
    last = {}
    for line in run.metrics.lines:
        step = line.number("step") or 0
        is_later = kept_step is not None and line.get("stage") == "scst" and step > kept_step
        if line.get("eval_loss") is not None and not is_later:
            last[str(line.get("stage"))] = line
    columns = [name for name in columns if name in last]
    if not columns:
        return "None yet."
    rows = []
    for measure in MEASURES:
        values = [last[name].number(measure.field) for name in columns]
        if any(value is not None for value in values):
            rows.append([measure.label, *("" if value is None else measure.text(value) for value in values)])
    return (
        "Greedy questions for the validation examples of the run, at the last evaluation of each stage.\n\n"
        f"{_table(columns, rows)}"
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return as_markdown(["", *(COLUMNS[name] for name in columns)], rows)


def _cell(text: Callable[[float], str], mean: ReportedMean | None) -> str:
    if mean is None:
        return ""
    if mean.low is None or mean.high is None:
        return text(mean.mean)
    return f"{text(mean.mean)} ({text(mean.low)} to {text(mean.high)})"


def limits_text(run: ReportedRun, stage: str) -> str:
    """What a user should know before relying on the model, as a Markdown list."""
    limits = [
        "It asks about the marked answer as the training data would; whether the passage really answers the "
        "question is not checked, and neither are bias and truth.",
    ]
    if stage == "scst":
        limits = [_reward_hacking(run), *limits]
    return "\n".join(f"- {text}" for text in limits)


def _reward_hacking(run: ReportedRun) -> str:
    wrong = diverging(run)
    if wrong:
        changes = "; ".join(
            f"{BY_KEY[key].label} {BY_KEY[key].text(change.start)} → {BY_KEY[key].text(change.end)}"
            for key, change in wrong.items()
        )
        return (
            "**The reward may have been hacked**: it went up in training while other measures went clearly the "
            f"wrong way ({changes}). Read questions before you use them."
        )
    advice = "A metric that has been optimised is no longer an independent measure: evaluate this model by another."
    rewards = run.metrics.self_critical(f"eval_{REWARD}")
    if SeriesChange.of(rewards) is None:
        return f"{advice} There were too few evaluations in training to see whether the reward was hacked."
    if not rises(rewards):
        return f"{advice} In training it did not go up on the validation examples."
    return f"{advice} No held-out measure went clearly the wrong way while the reward rose, which proves nothing."
