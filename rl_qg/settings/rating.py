"""Human evaluation (`rl-qg rate …`)."""

from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import COUNT, NOT_NEGATIVE, SEED, Limits, Section, key


@dataclass
class RatePlanSettings(Section):
    """From questions of several systems to tasks for raters (HITs)."""

    questions: Any = key(None, "file(s) of questions, or {system: file}; rows may name their `system`")
    gold: str = key("", "QA data whose human questions are rated too, as the system `human`; empty: none")
    output: str = key("", "folder of the plan: plan.json and hits.jsonl")
    protocol: str = key("qascore", "qascore, qrelscore, qg-bench, direct-assessment, demo, or a YAML file of your own")
    language: str = key("en", "of passages and questions: a code, as en, ar or zh")
    items: int | None = key(None, "so many passages with their answer are drawn; null: all", limits=COUNT)
    raters: int | None = key(None, "how many people rate each task; null: as the protocol says", limits=COUNT)
    pay_per_hour: float = key(12.0, "what people get, for the costs that are printed", limits=NOT_NEGATIVE)
    currency: str = key("USD", "of pay_per_hour")
    retention_days: int = key(365, "ratings and raters are deleted so long after the study began", limits=COUNT)
    seed: int = key(13, "of draws, degraded questions and order", limits=SEED)


@dataclass
class RateServeSettings(Section):
    """The web application that shows the tasks of a plan to raters."""

    plan: str = key("", "the folder of `rl-qg rate plan`")
    study: str = key("study.db", "the database: a file (SQLite), or postgresql://USER@HOST/NAME for several hosts")
    host: str = key("127.0.0.1", "address to listen on; 0.0.0.0: all of this machine")
    port: int = key(8080, "0: any free one, which the first line names", limits=Limits(0, 65535))
    public_url: str = key("", "what raters type, as https://rate.example.org; empty: http://HOST:PORT")


@dataclass
class RateStatusSettings(Section):
    """How far a study is."""

    study: str = key("study.db", "the database of the study")
    json: bool = key(False, "print JSON")


@dataclass
class RateExportSettings(Section):
    """The ratings of a study as files."""

    study: str = key("study.db", "the database of the study")
    output: str = key("", "folder for ratings.jsonl, ratings.csv, items.jsonl, assignments.jsonl and plan.json")


@dataclass
class RateForgetSettings(Section):
    """Delete what a study knows of one rater."""

    study: str = key("study.db", "the database of the study")
    rater: str = key("", "the rater: the pseudonym of exports")
    ratings: bool = key(False, "delete the ratings too; else they stay, under a pseudonym that leads nowhere")


@dataclass
class RateAnalyseSettings(Section):
    """Whose ratings count, scores of systems, and how certain they are."""

    ratings: str = key("", "the folder of `rl-qg rate export`, or a file of ratings (.jsonl, .csv)")
    output: str = key("", "folder for the report, tables and judgements.jsonl")
    replication: str = key("", "the ratings of a second run of the study; empty: none")
    with_open: bool = key(False, "tasks that nobody submitted yet count too")
    reversed: list[str] | None = key(None, "of a file: criteria whose high values are bad; a study's protocol says so")
    scale: list[float] | None = key(None, "of a file: lowest and highest value of reversed criteria; null: [0, 100]")
    control_method: str | None = key(
        None,
        "signed_rank (an ordinary question with its degraded form), rank_sum (all of both); null: as the protocol",
        choices=(None, "signed_rank", "rank_sum"),
    )
    control_unit: str | None = key(
        None,
        "item_means (mean over criteria of a question), ratings (each by itself, as published); null: as the protocol",
        choices=(None, "item_means", "ratings"),
    )
    control_criteria: list[str] | None = key(None, "that enter the control; null: as the protocol says, or all")
    level: float | None = key(
        None, "a rater counts when the control's p is below it; null: as the protocol", limits=Limits(0, 1, above=True)
    )
    raters: str = key("passed", "whose ratings count: passed, or all", choices=("passed", "all"))
    z: str = key(
        "without_degraded",
        "mean and deviation of a rater: without_degraded, with_degraded, dialogue_eval (with, 1e-6 added to it)",
        choices=("without_degraded", "with_degraded", "dialogue_eval"),
    )
    human: str = key("z", "the human scores in judgements.jsonl: z, or raw ratings", choices=("z", "raw"))
    rater_filter: str = key(
        "none",
        "leave out ratings far from the others of the question: on both_sides, or above alone; none",
        choices=("none", "both_sides", "above"),
    )
    filter_above: float = key(1.0, "standard deviations from which on rater_filter leaves out", limits=NOT_NEGATIVE)
    filter_most: int = key(5, "ratings of a question that rater_filter leaves out at most", limits=COUNT)
    resamples: int = key(2000, "of each bootstrap", limits=COUNT)
    seed: int = key(13, "of the bootstrap", limits=SEED)


@dataclass
class RateDemoSettings(Section):
    """A study to try, on one's own machine."""

    run: str = key("", "a finished run, whose questions are rated; empty: questions that come with the package")
    output: str = key("rate-demo", "folder of the plan, the study and its ratings")
    port: int = key(8080, "0: any free one", limits=Limits(0, 65535))
