"""The colours of the plots differ from each other, in light and in dark mode."""

import re
from importlib import resources
from itertools import combinations

import numpy as np
import pytest

from rl_qg.pages.plots import RUN_COLOURS
from rl_qg.reports.run_files import TABLES

SAME_FROM = 20.0  # distance in CIELAB below which thin lines look alike
TO_XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
WHITE = np.array([0.9505, 1.0, 1.089])


def palette(scheme: str) -> dict[str, str]:
    """The colours that a scheme shows: those of dark mode replace those of light mode."""
    style = resources.files("rl_qg.pages").joinpath("page_style.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[:2]
    return dict(re.findall(r"--([\w-]+): (#\w{6});", light + dark if scheme == "dark" else light))


def lab(colour: str) -> np.ndarray:
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(TO_XYZ @ linear / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("names", [RUN_COLOURS, tuple(TABLES["verdicts"].values())], ids=["runs", "verdicts"])
def test_no_two_series_look_alike(scheme: str, names: tuple[str, ...]) -> None:
    colours = palette(scheme)
    close = {pair: np.linalg.norm(lab(colours[pair[0]]) - lab(colours[pair[1]])) for pair in combinations(names, 2)}
    assert {pair: round(distance) for pair, distance in close.items() if distance < SAME_FROM} == {}
