"""The documentation builds as a site, without warnings and without network, and asks no other host for anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rl_qg.commands.catalogue import COMMANDS
from tests.docs.markdown import ROOT

pytestmark = pytest.mark.slow

LOADED = re.compile(r"""<(?:script|img|iframe)[^>]*\ssrc="(https?:)?//|<link[^>]*stylesheet[^>]*href="(https?:)?//""")
NO_NETWORK = {f"{name}_proxy": "http://127.0.0.1:9" for name in ("http", "https", "all")}  # nothing listens there


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | NO_NETWORK | {"NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "WARNING" not in ran.stderr
    return folder


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert not [page for page in pages if LOADED.search(page.read_text(encoding="utf-8"))]


def test_reference_pages_are_made_from_the_code(site: Path) -> None:
    commands = (site / "reference/commands/index.html").read_text(encoding="utf-8")
    assert all(f'id="rl-qg-{name.replace(" ", "-")}"' in commands for name in COMMANDS)
    settings = (site / "reference/settings/index.html").read_text(encoding="utf-8")
    assert "kl_coefficient" in settings and "qrelscore" in settings
    rewards = (site / "reference/rewards/index.html").read_text(encoding="utf-8")
    assert "rewards.load" in rewards and "MetricInputError" in rewards
    trainer = (site / "reference/trainer/index.html").read_text(encoding="utf-8")
    assert "SelfCriticalConfig" in trainer and "scst_learning_rate" in trainer


def test_linked_experiments_are_part_of_the_site(site: Path) -> None:
    assert (site / "experiments/speed/index.html").exists()
    assert (site / "experiments/meta-evaluation/results/copying.json").exists()
