"""What the drawn commands read: the inputs of the golden outputs, small models, a study, and results of commands."""

import os
import shutil
from contextlib import closing
from pathlib import Path

from rl_qg.commands.cli import run_command
from rl_qg.rating.plan_files import read_plan
from rl_qg.rating.study.export import export_study
from rl_qg.rating.study.store import open_store
from tests.bad_input import workspace
from tests.golden_outputs.run_cases import INPUTS
from tests.rl_qg.rating.studies import Clock, consenting_rater

MADE = (
    "evaluate predictions=in/ce.jsonl references=in/dev.json metrics=[rouge_l] resamples=40 output=made/evaluation",
    "bench data data=in/train.json test_share=0.2 output_dir=made/a",
    "bench data data=in/dev.json test_share=0.2 output_dir=made/b",
    "answers in/passages.txt part=1/2 output=made/q.jsonl",
    "answers in/passages.txt part=2/2 output=made/q.jsonl",
    "rate plan questions={ce:in/ce.jsonl,scst:in/scst.jsonl} protocol=in/protocol.yaml items=4 output=study/plan",
)


def build(root: Path) -> None:
    """Write `in`, `models`, `made` and `study` below `root`."""
    workspace.build(root)
    for path in (root / "models").iterdir():  # broken models are those of the transcripts
        if path.name not in ("bart", "reader", "bert", "gpt2"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(INPUTS, root / "in")
    for name in ("study.yaml", "search.yaml", "transfer.yaml"):
        text = (
            (root / "in" / name)
            .read_text()
            .replace("bench/", "made/")
            .replace("model.path=gen", "model.path=models/bart")
        )
        (root / "in" / name).write_text(text)
    before = Path.cwd()
    os.chdir(root)
    try:
        for command in MADE:
            first, *rest = command.split()
            run_command(first, rest)
    finally:
        os.chdir(before)
    _study(root / "study")


def _study(folder: Path) -> None:
    """The database of the plan in it, with the ratings of two raters, and their export."""
    clock = Clock()
    with closing(open_store(str(folder / "study.db"), read_plan(folder / "plan"), clock)) as store:
        for _ in range(2):
            rater = consenting_rater(store)
            task = store.claim(rater)
            assert task is not None
            for item in task.hit.items:
                clock.now += 20
                store.save(task.id, rater, item.position, {"clear": 20 * item.position, "right": 1})
            store.submit(task.id, rater)
        export_study(store, folder / "ratings")


def lay_out(root: Path, folder: Path) -> None:
    """A user's folder for one command: copies of the data, links to the models."""
    for name in ("in", "made", "study"):
        shutil.copytree(root / name, folder / name)
    (folder / "models").symlink_to(root / "models")
