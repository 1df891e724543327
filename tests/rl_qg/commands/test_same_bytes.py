"""The same command gives the same bytes: in processes with other hash seeds, and with nothing in a cache."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import run

import pytest

from tests.golden_outputs.contents import Fields, differences, read_folder
from tests.processes import ROOT, rl_qg, user_environment
from tests.rl_qg.miniatures.test_cache import TINY, passages

pytestmark = pytest.mark.slow


def train_miniatures(folder: str) -> None:
    """One of every kind."""
    from rl_qg.miniatures.cache import pretrain
    from rl_qg.miniatures.recipes import RECIPES

    for kind in RECIPES:
        pretrain(kind, passages(), TINY, Path(folder) / kind)


def test_miniatures_of_every_kind(tmp_path: Path) -> None:
    found = []
    for seed in "12":
        code = f"from {__name__} import train_miniatures; train_miniatures({str(tmp_path / seed)!r})"
        done = run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**user_environment(tmp_path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        files = sorted(path for path in (tmp_path / seed).rglob("*") if path.is_file())
        found.append({str(path.relative_to(tmp_path / seed)): path.read_bytes() for path in files})
    first, second = found
    assert {"bert/tokenizer.json", "t5/tokenizer.json", "bart/model.safetensors"} <= first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_a_pipeline_with_an_empty_cache(tmp_path: Path) -> None:
    """All that it writes, but for times: miniatures, generators, questions, scores, readers and the report."""

    def contents(seed: str) -> dict[str, Fields]:
        folder = tmp_path / seed
        (folder / "home").mkdir(parents=True)
        environment = {**user_environment(folder / "home"), "PYTHONHASHSEED": seed, "RL_QG_PACKED": "rule"}
        done = rl_qg(environment, "pipeline", "preset=smoke", "output_dir=run", cwd=folder, fresh=True)
        assert done.returncode == 0, done.stderr[-3000:]
        assert list((folder / "home").rglob("*bert-*/model.safetensors"))  # trained here
        return read_folder(folder, folder / "home", ROOT, digits=17)

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(contents, "12")
    assert {"run/ce/model.safetensors", "run/metrics.jsonl"} <= first.keys() == second.keys()
    assert {name: lines for name in first if (lines := differences(first[name], second[name]))} == {}
