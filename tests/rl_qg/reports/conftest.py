"""Settings of the tests of reports."""

from typing import Any

import pytest
from matplotlib.figure import Figure


@pytest.fixture(autouse=True)
def _nothing_is_drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests read tables and texts, and drawing a page takes a second: `drawn` marks those that read drawings."""

    def save(self: Figure, stream: Any, **options: Any) -> None:
        stream.write("<svg></svg>")

    if not request.node.get_closest_marker("drawn"):
        monkeypatch.setattr(Figure, "savefig", save)
