"""Settings of all tests."""

import gc
import os
import time
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

from rl_qg.generation import decoding
from rl_qg.text import languages
from tests.long_tests import changed_since, is_affected, subject_of

BEGIN = time.monotonic()

# Machines are shared and slow at times: no test may fail because of that. The same examples every time, so that a
# failure can be run again.
settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")

os.environ.setdefault("RL_QG_PACKED", "always")  # the small models of tests too, on every processor


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--affected", metavar="REV", help="run the long tests whose subject has changed since a commit")
    parser.addoption("--minutes", type=float, help="begin no test after so many minutes; the others are skipped")


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the long tests. Files with slow tests come first, so that worker processes end at about the same time."""
    revision = config.getoption("--affected")
    changed = changed_since(revision) if revision else []
    left_out = []
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        subject = subject_of(name)
        if subject is not None:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.slow)
        if revision and (subject is None or not is_affected(subject, changed)):
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        kept = {*items} - {*left_out}
        items[:] = [item for item in items if item in kept]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A machine may be too slow for all: what is left to the run of every night is skipped, and counted."""
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() - BEGIN > 60 * minutes:
        pytest.skip(f"the {minutes:g} minutes are over; make test-all runs it")


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: garbage is looked for in the rest alone."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _warnings_are_said_again() -> None:
    """What a process says once is said again in the next test, whichever tests ran before it."""
    languages.known_code.cache_clear()
    decoding._warn_once.cache_clear()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Of PyTorch: rows of several texts then share batches, and batches may be decoded side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
