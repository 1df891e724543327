"""The short form of the fault injection: a few faults a stage, at seeded places. `tests.distributed.long` has many.

Two cases run at a time, and only those that this session selected.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.distributed.runs import LAUNCHES
from tests.distributed.stages import STAGES
from tests.distributed.strikes import Bench, Case, Row

pytestmark = pytest.mark.slow

KILLED_TWICE = 2  # the first seed with which the run that goes on is killed too
CASES = [
    Case("SIGKILL", "both", "cpu2", 0),
    Case("SIGTERM", "both", "cpu2", 0),
    Case("elastic restart", "both", "torchrun", 0),
    *(Case("SIGKILL", stage, "python", KILLED_TWICE) for stage in STAGES),
    Case("SIGTERM", "both"),
    Case("disk full", "both"),
    Case("truncated checkpoint", "both"),
    Case("changed data", "both"),
    Case("out of memory", "both"),
]


@pytest.fixture(scope="module")
def rows(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Case, Future[Row]]]:
    """The rows of the selected cases, to come."""
    bench = Bench(tmp_path_factory.mktemp("strikes"))
    chosen = [item.callspec.params["case"] for item in request.session.items if item.path == request.path]
    with ThreadPoolExecutor(2) as pool:
        yield {case: pool.submit(bench.strike, case) for case in chosen}
        pool.shutdown(cancel_futures=True)


def parameters() -> list[object]:
    marks = {True: [pytest.mark.distributed], False: []}
    return [pytest.param(case, id=case.name, marks=marks[LAUNCHES[case.launch].processes > 1]) for case in CASES]


@pytest.mark.parametrize("case", parameters())
def test_what_is_left_is_as_if_nothing_had_happened(case: Case, rows: dict[Case, Future[Row]]) -> None:
    row = rows[case].result()
    assert not row.problems, row.json()
