"""The server (`rl-qg serve`)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from rl_qg.settings.generation import AskModelSettings
from rl_qg.settings.keys import COUNT, NOT_NEGATIVE, POSITIVE, RESAMPLES, SEED, SHARE, Limits, Section, choice, key
from rl_qg.text.languages import AUTO, OTHER, code_fault

SPREAD = Limits(0, 100, above=True)  # of z-scores
OUTCOMES = ("completed", "no_consent", "screened_out", "full")  # of a person who comes from a panel


@dataclass
class RatePlanSettings(Section):
    """From questions of several systems to tasks for raters (HITs)."""

    questions: Any = key(None, "file(s) of questions, or {system: file}; rows may name their `system`")
    gold: str = key("", "QA data whose human questions are rated too, as the system `human`; empty: none")
    output: str = key("", "folder of the plan: plan.json and hits.jsonl")
    study: str = key("", "name of the study; empty: that of the folder")
    protocol: str = key("qascore", "qascore, qrelscore, qg-bench, direct-assessment, demo, or a YAML file of your own")
    language: str = key("en", "of passages and questions: a code, as en, ar or zh")
    items: int | None = key(None, "so many passages with their answer are drawn; null: all", COUNT)
    raters: int | None = key(None, "how many people rate each task; null: as the protocol says", COUNT)
    pay_per_hour: float = key(12.0, "what people get, for the costs that are printed", NOT_NEGATIVE)
    currency: str = key("USD", "of pay_per_hour")
    retention_days: int = key(365, "so long after its beginning the owner deletes the study (rate forget)", COUNT)
    pass_rate: float | None = key(
        None,
        "share of tasks whose raters will pass the control, for what the plan can show; null: 0.45, as in QAScore's "
        "crowd, or 1 without degraded questions",
        SHARE,
    )
    question_sd: float = key(
        0.37, "spread of a system's questions, in z of the mean over criteria (QG-Bench's ratings)", SPREAD
    )
    rating_sd: float = key(0.37, "spread of raters' values of one question, in the same unit", SPREAD)
    seed: int = key(13, "of draws, degraded questions and order", SEED)

    def conflicts(self) -> Iterator[str]:
        if code_fault(self.language) or self.language.casefold() in (AUTO, OTHER):
            yield f"language={self.language}: give the code of the language of passages and questions, such as en"


@dataclass
class RateServeSettings(Section):
    """The web application that shows the tasks of a plan to raters."""

    plan: str = key("", "the folder of `rl-qg rate plan`")
    study: str = key("study.db", "the database: a file (SQLite), or postgresql://USER@HOST/NAME for several hosts")
    host: str = key("127.0.0.1", "address to listen on; 0.0.0.0: all of this machine")
    port: int = key(8080, "0: any free one, which the first line names", Limits(0, 65535))
    public_url: str = key("", "what raters type, as https://rate.example.org; empty: http://HOST:PORT")
    trusted_proxies: str = key("", "addresses whose X-Forwarded-For is believed, separated by commas; *: all")
    volunteers: bool = key(False, "whoever opens the address may take part")
    invites: int = key(0, "so many links, each for one person, are made and printed at this start", NOT_NEGATIVE)
    panel: str = key("prolific", "a name for the panel whose people come by /s/STUDY")
    panel_parameter: str = key("PROLIFIC_PID", "of such an address: who comes, as participantId; empty: no panel")
    panel_extra: list[str] = key(["STUDY_ID", "SESSION_ID"], "other parameters of the address that are kept")
    panel_secret: str = key("", "a file with the secret by which the panel signs its addresses; empty: it does not")
    completion_url: Any = key(
        None, "where people go back to; {code} in it is filled in; or {completed: …, no_consent: …, …}; null: nowhere"
    )
    codes: Any = key(
        None,
        "codes that the panel has set: {completed: …, no_consent: …, screened_out: …, full: …}; null: random ones",
    )
    redirect: bool = key(False, "go to completion_url at once, without a page that shows the code")
    tasks_per_rater: int | None = key(1, "of one person; null: as many as there are", COUNT)
    language: str = key("en", "of the pages where the browser asks for none that there is")
    lease_minutes: float | None = key(
        None,
        "a task goes to somebody else so long after its rater's last sign of life; null: as the protocol takes, "
        "at least 30",
        POSITIVE,
    )
    admin_token: str = key(
        "", "a file that holds the token of /admin; or the variable RL_QG_ADMIN_TOKEN; neither: a new one is printed"
    )
    rate: float | None = key(5.0, "requests a second of one person; null: any", POSITIVE)
    burst: int = key(40, "requests of one person that may come at once, with rate", COUNT)
    address_rate: float | None = key(
        30.0, "requests a second of one network address, behind which many may sit; null: any", POSITIVE
    )
    address_burst: int = key(200, "requests of one address that may come at once, with address_rate", COUNT)
    address_tasks: int | None = key(30, "tasks that one network address may have open at once; null: any", COUNT)

    def completion_urls(self) -> dict[str, str]:
        """Where people go back to, by kind of outcome; those without an address are left out."""
        given = self.completion_url
        urls = dict.fromkeys(OUTCOMES, given) if isinstance(given, str) else dict(given or {})
        return {str(kind): str(url) for kind, url in urls.items() if url}

    def conflicts(self) -> Iterator[str]:
        yield from _faults_of_addresses(self.host, self.trusted_proxies)
        yield from _faults_of_url("public_url", self.public_url, path=False)
        if self.panel_parameter and not re.fullmatch(r"[\w.-]+", self.panel_parameter):
            yield f"panel_parameter={self.panel_parameter} is no name of a parameter, such as PROLIFIC_PID"
        for name in ("completion_url", "codes"):
            yield from _faults_of_outcomes(name, getattr(self, name), text=name == "completion_url")
        if isinstance(self.completion_url, str | Mapping | None):
            for url in dict.fromkeys(self.completion_urls().values()):
                yield from _faults_of_url("completion_url", url, path=True)
        if self.panel_secret and not self.panel_parameter:
            yield "panel_secret needs panel_parameter, the parameter that the panel signs"
        if self.redirect and not self.completion_url:
            yield "redirect=true needs completion_url, where people go"


def _faults_of_addresses(host: str, proxies: str) -> Iterator[str]:
    if not host.strip():
        yield "host has no value; give an address, such as host=127.0.0.1"
    for one in proxies.split(",") if proxies not in ("", "*") else ():
        try:
            ip_network(one.strip())  # a name would be compared with addresses, and never be equal
        except ValueError:
            yield f"trusted_proxies: {one.strip()} is no address; give them as 10.0.0.5 or 10.0.0.0/8, or * alone"


def _faults_of_url(name: str, url: str, *, path: bool) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        usable = not url or (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0  # reading it refuses what is no number
            and not re.search(r"[\s;,]", url)
        )
    except ValueError:
        usable = False
    if not usable:
        yield f"{name}={url} is no address; write it as https://rate.example.org"
    elif not path and (parts.path.strip("/") or parts.query or parts.fragment):
        yield f"{name}={url} has a path; the pages lie at the top of a host, as https://rate.example.org"


def _faults_of_outcomes(name: str, given: Any, *, text: bool) -> Iterator[str]:
    if given is None or (text and isinstance(given, str)):
        return
    if not isinstance(given, Mapping):
        yield f"{name}={given} is no mapping such as {{completed: …}}"
        return
    for kind, value in given.items():
        if kind not in OUTCOMES:
            yield f"{name}: {kind} is not one of {', '.join(OUTCOMES)}"
        if not isinstance(value, str) or not value.strip():
            yield f"{name}.{kind} has no value; give a text"


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
    payments: str = key("", "a table (CSV) of who is to be paid, with identities, outside output; empty: none")


@dataclass
class RateForgetSettings(Section):
    """Delete what a study knows of one rater, or of all when its time is over."""

    study: str = key("study.db", "the database of the study")
    rater: str = key("", "the rater: the pseudonym of exports")
    expired: bool = key(False, "all raters, once the days of the plan's retention_days are over")
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
    control_method: str | None = choice(
        "null signed_rank rank_sum",
        "signed_rank (an ordinary question with its degraded form), rank_sum (all of both); null: as the protocol",
    )
    control_unit: str | None = choice(
        "null item_means ratings",
        "item_means (mean over criteria of a question), ratings (each by itself, as published); null: as the protocol",
    )
    control_criteria: list[str] | None = key(None, "that enter the control; null: as the protocol says, or all")
    level: float | None = key(
        None, "a rater counts when the control's p is below it; null: as the protocol", Limits(0, 1, above=True)
    )
    raters: str = choice(
        "passed not_failed all",
        "whose ratings count: passed; not_failed, also those with too few pairs for the control; all",
    )
    z: str = choice(
        "without_degraded with_degraded dialogue_eval",
        "mean and deviation of a rater: without_degraded, with_degraded, dialogue_eval (with, 1e-6 added to it)",
    )
    human: str = choice("z raw", "the human scores in judgements.jsonl: z, or raw ratings")
    rater_filter: str = choice(
        "none both_sides above",
        "leave out ratings far from the others of the question: on both_sides, or above alone; none",
    )
    filter_above: float = key(1.0, "standard deviations from which on rater_filter leaves out", NOT_NEGATIVE)
    filter_most: int = key(5, "ratings of a question that rater_filter leaves out at most", COUNT)
    resamples: int = key(2000, "of each bootstrap", RESAMPLES)
    seed: int = key(13, "of the bootstrap", SEED)


@dataclass
class RateDemoSettings(Section):
    """A study to try, on one's own machine."""

    run: str = key("", "a finished run, whose questions are rated; empty: questions that come with the package")
    output: str = key("rate-demo", "folder of the plan, the study and its ratings")
    port: int = key(8080, "0: any free one", Limits(0, 65535))


@dataclass
class ServeSettings(Section):
    """Questions over HTTP: where the server listens, what it accepts, and how requests share batches."""

    host: str = key("127.0.0.1", "address to listen on; 0.0.0.0: all of this machine (then set api_keys)")
    port: int = key(8000, "0: any free one, which the first line names", Limits(0, 65535))
    model: AskModelSettings = key(AskModelSettings(), "the generator that asks")
    name: str = key("", "of the model, for clients; empty: that of its folder, without the path, or on the Hub")
    reader: str = key(
        "",
        "an extractive reader that has to find each answer; empty: the one that comes with a packaged generator, else "
        "none; none: not checked",
    )
    extractor: str = key("", "the output folder of train-answers, which proposes answers; empty: rules")
    rerank: Any = key(None, "the metric, as an entry of metrics=[…], that orders the pairs; null: their score")
    explain: bool = key(
        True, "answer /v1/explain: by the metric of rerank if it can explain, else the words that a question shares"
    )
    api_keys: str = key("", "a file with one key a line; the variable RL_QG_API_KEYS adds more; neither: no key asked")
    origins: list[str] | None = key(None, "web pages of these origins may call the server, as [https://example.org]")
    trusted_proxies: str = key("", "addresses whose X-Forwarded-For is believed, separated by commas; *: all")
    rate: float | None = key(None, "requests a second of one key, or of one address without keys; null: any", POSITIVE)
    burst: int = key(20, "requests that may come at once, with rate", COUNT)
    max_body_bytes: int = key(1_000_000, "longest request", COUNT)
    max_characters: int = key(50_000, "longest text", COUNT)
    max_questions: int = key(50, "most pairs, or answers, of one request", COUNT)
    passage_characters: int = key(
        1500, "longer texts are cut into passages of at most so many, at ends of paragraphs and sentences", COUNT
    )
    threads: int = key(
        1, "of the model on a CPU; with 1, requests share batches; with more, one alone is answered sooner", COUNT
    )
    batch_size: int = key(32, "pairs that are made together", COUNT)
    max_wait_ms: float = key(10.0, "a request waits so long for others to share its batch", NOT_NEGATIVE)
    max_queue: int = key(256, "passages that may wait; more get 503", COUNT)
    timeout_seconds: float = key(120.0, "longest time to an answer (of a stream: each passage's); then 503", POSITIVE)
    body_seconds: float = key(20.0, "longest time in which a client may send its request", POSITIVE)
    drain_seconds: float = key(
        1.0, "after SIGTERM new requests get 503 for at least this time, before the port closes", NOT_NEGATIVE
    )
    shutdown_seconds: float = key(60.0, "after SIGTERM requests under way get this long, in all", NOT_NEGATIVE)
    log_texts: bool = key(False, "write the bodies of requests and the messages of errors to the log too")

    def conflicts(self) -> Iterator[str]:
        yield from _faults_of_addresses(self.host, self.trusted_proxies)
        for origin in self.origins or ():
            if origin != "*" and not re.fullmatch(r"https?://[^/]+", origin):
                yield f"origins: {origin} is no origin; write it as https://example.org"
