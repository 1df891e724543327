"""Human evaluation (`rl-qg rate …`)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import COUNT, NOT_NEGATIVE, POSITIVE, SEED, SHARE, Limits, Section, key
from rl_qg.text.languages import AUTO, OTHER, code_fault


@dataclass
class RatePlanSettings(Section):
    """From questions of several systems to tasks for raters (HITs)."""

    questions: Any = key(None, "file(s) of questions, or {system: file}; rows may name their `system`")
    gold: str = key("", "QA data whose human questions are rated too, as the system `human`; empty: none")
    output: str = key("", "folder of the plan: plan.json and hits.jsonl")
    study: str = key("", "name of the study; empty: that of the folder")
    protocol: str = key("qascore", "qascore, qrelscore, qg-bench, direct-assessment, demo, or a YAML file of your own")
    language: str = key("en", "of passages and questions: a code, as en, ar or zh")
    items: int | None = key(None, "so many passages with their answer are drawn; null: all", limits=COUNT)
    raters: int | None = key(None, "how many people rate each task; null: as the protocol says", limits=COUNT)
    pay_per_hour: float = key(12.0, "what people get, for the costs that are printed", limits=NOT_NEGATIVE)
    currency: str = key("USD", "of pay_per_hour")
    retention_days: int = key(365, "ratings and raters are deleted so long after the study began", limits=COUNT)
    pass_rate: float | None = key(
        None,
        "share of tasks whose raters will pass the control, for what the plan can show; null: 0.45, as in QAScore's "
        "crowd, or 1 without degraded questions",
        limits=SHARE,
    )
    question_sd: float = key(
        0.37, "spread of a system's questions, in z of the mean over criteria (QG-Bench's ratings)", limits=POSITIVE
    )
    rating_sd: float = key(0.37, "spread of raters' values of one question, in the same unit", limits=POSITIVE)
    seed: int = key(13, "of draws, degraded questions and order", limits=SEED)

    def faults(self) -> Iterator[str]:
        """Choices and limits, and a language that passages can be in."""
        yield from super().faults()
        if code_fault(self.language) or self.language.casefold() in (AUTO, OTHER):
            yield f"language={self.language}: give the code of the language of passages and questions, such as en"


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

    ratings: str = key("", "the folder of `rl-qg rate export`, or a file of ratings (ratings.jsonl, .csv)")
    output: str = key("", "folder for the report, tables and judgements.jsonl")
    replication: str = key("", "the ratings of a second run of the study; empty: none")
    resamples: int = key(2000, "of each bootstrap", limits=COUNT)
    level: float = key(0.05, "a rater counts when the control's p is below it", limits=Limits(0, 1, above=True))
    seed: int = key(13, "of the bootstrap", limits=SEED)


@dataclass
class RateDemoSettings(Section):
    """A study to try, on one's own machine."""

    run: str = key("", "a finished run, whose questions are rated; empty: questions that come with the package")
    output: str = key("rate-demo", "folder of the plan, the study and its ratings")
    port: int = key(8080, "0: any free one", limits=Limits(0, 65535))
