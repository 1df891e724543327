"""Settings of all tests."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

# Machines are shared and slow at times: no test may fail because of that. The same examples every time, so that a
# failure can be run again.
settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")

os.environ.setdefault("RL_QG_PACKED", "always")  # no test, and no process that one starts, depends on measured times


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that worker processes end at about the same time."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: garbage is looked for in the rest alone."""
    gc.freeze()
