"""The short version of the fault injection: a few faults for each stage, at times chosen by a seed.

`tests.distributed.long` has many more. Two cases run at a time, and only those that pytest has selected.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.distributed.faults import Case, FaultInjector, FaultResult
from tests.distributed.runs import LAUNCHES
from tests.distributed.stages import STAGES

pytestmark = pytest.mark.slow

KILLED_TWICE = 2  # the first seed with which the resumed run is killed too
CASES = [
    Case("SIGKILL", "both", "cpu2", 0),
    Case("elastic restart", "both", "torchrun", 0),
    Case("SIGKILL", "pipeline", "python", KILLED_TWICE),  # which begins as `both` does
    *(Case("SIGKILL", stage) for stage in STAGES if stage not in ("pipeline", "both", "ce")),
    Case("SIGTERM", "both"),
    Case("disk full", "both"),
    Case("truncated checkpoint", "both"),
    Case("changed data", "both"),
    Case("out of memory", "both"),
]


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Case, Future[FaultResult]]]:
    """The results of the selected cases, as futures."""
    injector = FaultInjector(tmp_path_factory.mktemp("faults"))
    selected = [item.callspec.params["case"] for item in request.session.items if item.path == request.path]
    with ThreadPoolExecutor(2) as pool:
        yield {case: pool.submit(injector.run_case, case) for case in selected}
        pool.shutdown(cancel_futures=True)


def parameters() -> list[object]:
    marks = {True: [pytest.mark.distributed], False: []}
    return [pytest.param(case, id=case.name, marks=marks[LAUNCHES[case.launch].processes > 1]) for case in CASES]


@pytest.mark.parametrize("case", parameters())
def test_a_resumed_run_equals_an_uninterrupted_one(case: Case, results: dict[Case, Future[FaultResult]]) -> None:
    result = results[case].result()
    assert not result.problems, result.json()
