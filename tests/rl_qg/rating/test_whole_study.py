"""A study from the questions of systems to the agreement of metrics with people: plan, thirty raters with a browser
each, export, analysis, `rl-qg correlate`. What raters think is planted, and must come out.
"""

import json
import random
from collections import defaultdict
from html import unescape
from math import sqrt
from pathlib import Path
from statistics import correlation, fmean, stdev

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.rating.demo import PACKAGED, question_rows
from rl_qg.rating.plan_files import read_plan
from rl_qg.rating.study.store import open_store
from rl_qg.runtime.files import read_json
from tests.rl_qg.rating.page_studies import RaterClient, settings_of

LENGTH = 5.0  # points that a further word is worth to every rater
BETTER = {"scst": 20.0}  # points that raters see in a system's questions besides
NOISE = 8.0  # standard deviation of a value
WORSE = 35.0  # points that a degraded question loses


class ScriptedRater:
    """Somebody who rates what the page shows, by the words of the question alone."""

    def __init__(
        self, number: int, client: RaterClient, degraded: set[str], asked: dict[str, tuple[str, ...]]
    ) -> None:
        self.client, self.degraded, self.asked = client, degraded, asked
        self.random = random.Random(number)
        self.bias = self.random.gauss(0, 10)
        self.given: list[tuple[str, list[float]]] = []  # question and values, as sent

    def rate_what_is_open(self) -> None:
        client = self.client
        client.begin()
        while "/task/" in client.path and not client.path.endswith(("feedback", "done")):
            question = unescape(
                client.page.text.partition('<p class="question"')[2].partition(">")[2].partition("<")[0]
            )
            liked = 25 + LENGTH * len(question.split()) + self.bias - WORSE * (question in self.degraded)
            liked += max((BETTER.get(name, 0.0) for name in self.asked.get(question, ())), default=0.0)
            values = [round(min(100.0, max(0.0, liked + self.random.gauss(0, NOISE)))) for _ in range(4)]
            self.given.append((question, values))
            sliders = {f"value_{at}": value for at, value in enumerate(values, 1)}
            client.post(action="next", **sliders, **{f"set_{at}": 1 for at in range(1, 5)})
        client.post(feedback="")
        assert client.path.endswith("/done") and client.code


@pytest.mark.slow
def test_what_raters_think_is_what_the_metrics_are_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = question_rows(read_json(PACKAGED))
    Path("questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_command("rate", ["plan", "questions=questions.jsonl", "items=30", "raters=1", "output=plan"])
    plan = read_plan(Path("plan"))
    items = [item for hit in plan.hits for item in hit.items]
    degraded = {item.question for item in items if item.kind == "degraded"}
    asked = {item.question: item.systems for item in items if item.kind != "degraded"}
    store = open_store("study.db", plan)
    crowd = []
    for number in range(30):
        client = RaterClient(store, settings_of())
        crowd.append(ScriptedRater(number, client, degraded, asked))
        crowd[-1].rate_what_is_open()
    store.close()

    run_command("rate", ["export", "study=study.db", "output=ratings"])
    exported = [json.loads(line) for line in Path("ratings/ratings.jsonl").read_text().splitlines()]
    assert len(exported) == 4 * len(items), "every item once, on four criteria"
    run_command("rate", ["analyse", "ratings=ratings", "raters=all", "resamples=200", "output=analysis"])
    metric = "{_target_: tests.toy_metrics.WordCount}"
    run_command(
        "correlate",
        ["human=analysis/judgements.jsonl", f"metrics=[{metric}]", "overall=true", "output=correlated"],
    )

    scores = expected_scores(crowd, degraded)
    planted = correlation([len(question.split()) for question in scores], [*scores.values()])
    table = json.loads(Path("correlated/correlate.json").read_text())
    found = [row for row in table["correlations"] if row["criterion"] == "overall" and row["coefficient"] == "pearson"]
    assert found[0]["value"] == pytest.approx(planted, abs=1e-9)
    assert planted > 3 / sqrt(len(scores)), "raters like long questions, in this study"
    pairs = {(one["preferred"], one["to"]): one for one in read_json(Path("analysis/analysis.json"))["pairs"]}
    assert pairs["scst", "ce"]["low"] > 0


def expected_scores(crowd: list[ScriptedRater], degraded: set[str]) -> dict[str, float]:
    """The mean z of each question over criteria and raters, from what was sent."""
    scores: defaultdict[str, list[float]] = defaultdict(list)
    for rater in crowd:
        own = [(question, values) for question, values in rater.given if question not in degraded]
        every = [value for _, values in own for value in values]
        seen: defaultdict[str, list[float]] = defaultdict(list)
        for question, values in own:
            seen[question].append((fmean(values) - fmean(every)) / stdev(every))
        for question, z in seen.items():
            scores[question].append(fmean(z))
    return {question: fmean(values) for question, values in scores.items()}
