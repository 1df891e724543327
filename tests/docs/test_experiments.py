"""Experiments give the settings that their numbers depend on: a preset that changes does not change them."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rl_qg.commands.compose import compose
from rl_qg.data.examples import write_squad
from rl_qg.data.reading import read_examples
from rl_qg.studies.jobs import read_job_file
from rl_qg.studies.study import Study
from tests.docs.markdown import ROOT
from tests.questions import example

EXPERIMENTS = ROOT / "experiments"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
# These are about the quickstart itself, or make the models that it comes with.
ABOUT_THE_QUICKSTART = {"quickstart", "speed", "gpu", "rating"}
INHERITS = re.compile(r"^(?!#).*?(?<!`)preset(=|: *|\", default=\")(quickstart|smoke)", re.MULTILINE)


def test_no_experiment_inherits_from_a_preset_for_trying_out() -> None:
    files = [path for path in EXPERIMENTS.rglob("*") if path.suffix in (".py", ".sh", ".yaml", ".md")]
    found = set()
    for path in files:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".md":  # commands alone
            text = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        if INHERITS.search(text):
            found.add(path.relative_to(EXPERIMENTS).parts[0])
    assert found <= ABOUT_THE_QUICKSTART


def test_the_study_of_the_embedded_corpus_has_its_settings() -> None:
    """Those of the commit that stored its results, f4e08f96: its own and those of `preset=quickstart` of that time."""
    study = read_job_file(Study, EXPERIMENTS / "augmentation" / "world.yaml")
    given = [f"preset={study.preset}", *study.settings, *study.generate, "data=world", "output_dir=unused"]
    settings = compose("train", given)
    world, ce, scst, qa = settings.data.world, settings.ce, settings.scst, settings.qa
    assert (world.train_passages, world.validation_passages, settings.model.path) == (1200, 120, "miniature:bart")
    assert (ce.epochs, ce.learning_rate, settings.training.batch_size) == (4, 1e-3, 16)
    assert (scst.epochs, scst.learning_rate, scst.baseline, scst.num_samples) == (2, 3e-4, "greedy", None)
    assert (scst.schedule, scst.kl_coefficient, scst.kl_target, scst.max_new_tokens) == ("linear", 0, None, 40)
    assert (scst.normalise_advantage, scst.reward_scale) == ("none", 100)
    assert (qa.max_steps, qa.learning_rate, qa.max_length, qa.doc_stride, qa.threads) == (600, 1e-3, 192, 64, 1)
    assert (settings.generate.num_beams, settings.generate.max_new_tokens) == (4, 40)
    assert settings.reward["_target_"] == "rewards.QRelScore" and not settings.held_out
    assert study.resources["25"].settings == ["ce.epochs=8"]  # twice as many passes over a quarter


def test_the_commands_on_real_text_have_the_settings_of_their_run() -> None:
    text = (EXPERIMENTS / "real-text" / "README.md").read_text(encoding="utf-8")
    commands = [
        shlex.split(block.replace("\\\n", " ")) for block in re.findall(r"^```\n(rl-qg.*?)^```", text, re.M | re.S)
    ]
    pipeline, qa = (compose(words[1], words[2:]) for words in commands)
    data = pipeline.data
    assert (data.max_train, data.max_validation, data.labelled_fraction) == (8000, 600, 0.25)  # as its page says
    assert pipeline.evaluation.max_examples == 500 and pipeline.augment.num_samples == 2000
    assert pipeline.reward["_target_"] == "rewards.QRelScore" and pipeline.model.path == "miniature:bart"
    assert (pipeline.qa.seeds, pipeline.qa.epochs, pipeline.ce.epochs, pipeline.scst.epochs) == ([0, 1], 3, 4, 2)
    assert (qa.data.max_train, qa.data.max_validation, qa.qa.max_steps, qa.qa.seeds) == (None, 600, 100, [0])


def test_lines_of_a_published_split_find_their_questions(tmp_path: Path) -> None:
    """The same question about two passages, one asked twice about one of them, brackets, accents, and one unknown."""
    first, second = "Ada (born 1815) lived in Köln. She wrote.", "Ada lived in Bonn. She wrote."
    rows = [(first, "Köln", "Where did Ada live?"), (second, "Bonn", "Where did Ada live?")]
    rows += [(second, "Bonn", "Where did Ada live?"), (first, "1815", "When was Ada (the writer) born?")]
    examples = [
        example(id=f"q{number}", context=context, answer=answer, question=question)
        for number, (context, answer, question) in enumerate(rows)
    ]
    write_squad(tmp_path / "squad.json", examples)
    lines = [
        ("ada lived in bonn .", "where did ada live ?"),
        ("ada -lrb- born 1815 -rrb- lived in köln .", "where did ada live ?"),
        ("ada -lrb- born 1815 -rrb- lived in köln .", "when was ada -lrb- the writer -rrb- born ?"),
        ("ada lived in bonn .", "where did ada live ?"),
        ("ada lived in rome .", "when did ada die ?"),
    ]
    for name, column in (("src", 0), ("tgt", 1)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{line[column]}\n" for line in lines), encoding="utf-8")
    files = [tmp_path / name for name in ("src.txt", "tgt.txt")]
    given = [
        "--squad",
        tmp_path / "squad.json",
        "--output",
        tmp_path / "out.json",
        "--counts",
        tmp_path / "counts.json",
    ]
    script = EXPERIMENTS / "splits" / "align.py"
    said = subprocess.run(
        [sys.executable, script, *files, *given], check=True, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True
    ).stdout
    assert {one.id for one in read_examples(tmp_path / "out.json", role="test").examples} == {"q0", "q1", "q2", "q3"}
    assert json.loads((tmp_path / "counts.json").read_text()) == {"lines": 5, "aligned": 4, "not found": 1}
    assert said.endswith("not found: when did ada die ?\n")
