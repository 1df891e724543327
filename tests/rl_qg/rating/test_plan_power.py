"""Time, pay and the smallest difference that is found, against numbers of the papers and the exact power of a test."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import nct, t as students_t

from rl_qg.rating.plan_files import Hit, Item, TaskPassage
from rl_qg.rating.planning.plan import LEVEL, POWER, Noise, detectable_difference, effort_of
from rl_qg.rating.protocol import load_protocol
from rl_qg.settings.yaml_files import CONFIGS


def item(position: int, kind: str, question: str, systems: tuple[str, ...], original: int | None = None) -> Item:
    return Item(position, kind, 0, question, "", None, systems, "subject", original)


def task(number: int, items: list[Item]) -> Hit:
    named = [Item(**{**vars(each), "item": f"s{number}"}) for each in items]
    return Hit(f"h{number}", "en", (TaskPassage(f"p{number}", "", "Ada."),), tuple(named))


def tasks(count: int, *, equal: int = 0, repeated: bool = False) -> list[Hit]:
    """Tasks with a question of each of two systems; of the first `equal` ones it is the same question."""
    found = []
    for number in range(count):
        if number < equal:
            found.append(task(number, [item(1, "ordinary", "Who?", ("a", "b"))]))
            continue
        items = [item(1, "ordinary", "Who?", ("a",)), item(2, "ordinary", "When?", ("b",))]
        if repeated:
            items += [item(3, "repeat", "Who?", ("a",), 1), item(4, "repeat", "When?", ("b",), 2)]
        found.append(task(number, items))
    return found


def exact(count: int, sd: float, level: float = LEVEL) -> float:
    """The smallest difference that a paired t test finds with the power, by the noncentral t distribution."""
    bound = students_t.isf(level / 2, count - 1)
    differences = np.linspace(0.001, 5, 20_000)
    centre = differences / sd * np.sqrt(count)
    power = nct.sf(bound, count - 1, centre) + nct.cdf(-bound, count - 1, centre)
    return float(differences[np.argmax(power >= POWER)])


@pytest.mark.parametrize("count", [8, 40, 300])
@pytest.mark.parametrize(("raters", "repeated"), [(1, False), (5, False), (1, True)])
def test_the_difference_is_that_of_the_exact_power(count: int, raters: int, repeated: bool) -> None:
    noise = Noise(question_sd=0.3, rating_sd=0.5)
    found = detectable_difference(tasks(count, repeated=repeated), ["a", "b"], raters, noise, seed=1)
    assert found is not None
    ratings = raters * (2 if repeated else 1)
    assert found["one"] == pytest.approx(exact(count, np.sqrt(2 * (0.3**2 + 0.5**2 / ratings))), rel=0.07)
    assert (found["shared"], found["pairs"], found["holm"]) == (count, 1, found["one"])


def test_holm_over_all_pairs() -> None:
    hits = [
        task(number, [item(place + 1, "ordinary", f"{name}?", (name,)) for place, name in enumerate("abcd")])
        for number in range(100)
    ]
    found = detectable_difference(hits, [*"abcd"], 1, Noise(0.4, 0.4), seed=2)
    assert found is not None and found["pairs"] == 6
    sd = np.sqrt(4 * 0.4**2)
    assert found["one"] == pytest.approx(exact(100, sd), rel=0.05)
    assert found["holm"] == pytest.approx(exact(100, sd, LEVEL / 6), rel=0.05)


def test_half_of_the_tasks_count_as_half_as_many() -> None:
    half = detectable_difference(tasks(400), ["a", "b"], 1, Noise(pass_rate=0.5), seed=3)
    fewer = detectable_difference(tasks(200), ["a", "b"], 1, Noise(), seed=3)
    assert half is not None and fewer is not None
    assert half["one"] == pytest.approx(fewer["one"], rel=0.05)


def test_equal_questions_leave_less_to_find() -> None:
    """With half of the questions equal, the others differ by twice as much: 100 differences of which 50 are 0."""
    sd = np.sqrt(2 * (0.37**2 + 0.37**2))
    found = detectable_difference(tasks(100, equal=50), ["a", "b"], 1, Noise(0.37, 0.37), seed=4)
    assert found is not None
    rng = np.random.default_rng(9)
    values = rng.standard_normal((4000, 50)) * sd + 2 * found["one"]
    values = np.concatenate([values, np.zeros((4000, 50))], axis=1)
    t = values.mean(axis=1) / (values.std(axis=1, ddof=1) / 10)
    assert float(np.mean(np.abs(t) > students_t.isf(LEVEL / 2, 99))) == pytest.approx(POWER, abs=0.05)


def test_what_shows_nothing_is_none() -> None:
    assert detectable_difference(tasks(1), ["a", "b"], 1, Noise(), seed=1) is None
    assert detectable_difference(tasks(5), ["a"], 1, Noise(), seed=1) is None
    assert detectable_difference(tasks(5), ["a", "c"], 1, Noise(), seed=1) is None
    assert detectable_difference(tasks(5, equal=5), ["a", "b"], 1, Noise(), seed=1) is None


def test_pay_of_the_qascore_paper() -> None:
    """Its first run: 786 tasks of 29.61 minutes; at 8 USD an hour that is 388 hours and 3,100 USD."""
    protocol = load_protocol("qascore", CONFIGS / "protocol")
    full = [item(place, "ordinary", "Who?", ("a",)) for place in range(1, 21)]
    hits = [task(number, full) for number in range(786)]
    effort = effort_of(hits, type(protocol)(**{**vars(protocol), "minutes_per_hit": 29.61}), 1, 8.0)
    assert (effort["assignments"], effort["minutes"]) == (786, pytest.approx(29.61))
    assert effort["hours"] == pytest.approx(387.9, abs=0.1)
    assert effort["total"] == pytest.approx(3103, abs=1)
    paid = effort_of(hits, type(protocol)(**{**vars(protocol), "minutes_per_hit": 33.24}), 1, 1.787)
    assert paid["pay_per_hit"] == pytest.approx(0.99, abs=0.001)
    shorter = effort_of([task(1, full[:10])], protocol, 3, 12.0)
    assert (shorter["minutes"], shorter["hours"], shorter["total"]) == (15.0, 0.75, 9.0)


SHARED = Path(__file__).parents[4] / "shared" / "data"


@pytest.mark.skipif(not (SHARED / "lmqg_human").exists(), reason=f"{SHARED} is not here")
def test_the_standard_deviations_are_those_of_qg_benchs_ratings() -> None:
    """Two ways of analysis of variance: system and passage taken out of the means of questions, raters within them."""
    import gzip
    import json

    with gzip.open(SHARED / "lmqg_human" / "items.jsonl.gz", "rt", encoding="utf-8") as stream:
        records = [json.loads(line) for line in stream]
    criteria = ("correctness", "grammaticality", "understandability")
    values = np.array([[[q[name] for name in criteria] for q in record["questions"]] for record in records], float)
    z = ((values - values.mean()) / values.std()).mean(axis=2)  # passage, system, rater
    passages, systems, raters = z.shape
    rating = z.var(axis=2, ddof=1).mean()
    means = z.mean(axis=2)
    rest = means - means.mean(axis=0) - means.mean(axis=1, keepdims=True) + means.mean()
    question = (rest**2).sum() / ((passages - 1) * (systems - 1)) - rating / raters
    assert np.sqrt(rating) == pytest.approx(Noise().rating_sd, abs=0.005)
    assert np.sqrt(question) == pytest.approx(Noise().question_sd, abs=0.005)
