import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from rl_qg.studies.jobs import command_hash, read_job_file
from rl_qg.studies.study import Grid, ResourceData, Study, StudyExamples, make_grid
from tests.questions import example

FILE = """
output_dir: OUT
preset: smoke
settings: [qa.max_steps=7, ce.epochs=3, training.batch_size=2, model.path=some/bart]
data: {train: t.json, validation: v.json}
resources: {"25": {fraction: 0.25, settings: [scst.epochs=9]}, "100": 1.0}
generators:
  ce: {stages: ce}
  qrelscore: {reward: qrelscore}
  bartscore: {reward: bartscore}
  ready: {path: "/models/{resource}-{seed}"}
filters: {paper: [], round_trip: ["+filters.round_trip={model: {gold_reader}}"]}
generate: [generate.num_beams=2]
amounts: [0, 0.5, 2]
seeds: [1, 2, 3]
"""


def study(folder: Path, *overrides: str) -> Study:
    path = folder / "study.yaml"
    path.write_text(FILE.replace("OUT", str(folder / "out")))
    return read_job_file(Study, path, overrides)


def grid(study: Study, gold: int = 3, updates: dict[str, int] | None = None) -> Grid:
    question = example("A b c.", "b", "what?")
    examples = [replace(question, id=str(number)) for number in range(gold)]
    data = study.output_dir / "data"
    names = list(study.resources)
    resources = {name: ResourceData(name, data / name, examples, examples, examples) for name in names}
    all_examples = StudyExamples(data / "validation", examples, examples, {}, resources, {}, {})
    folders = ["model.path=mini/bart", "qa.model.path=mini/bert", "reward_models.bert=mini/bert"]
    return make_grid(study, all_examples, {name: folders for name in names}, updates)


def count(grid: Grid) -> dict[str, int]:
    kinds = [job.kind for job in grid.jobs]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def test_every_cell_once_and_shared_jobs_once(tmp_path: Path) -> None:
    job_grid = grid(study(tmp_path))
    keys = [(cell.resource, cell.generator, cell.filter, cell.amount, cell.seed) for cell in job_grid.cells]
    assert len(set(keys)) == len(keys) == 2 * 3 * (1 + 4 * 2 * 2)
    assert count(job_grid) == {"ce": 6, "scst": 12, "generate": 24, "augment": 96, "reader": 102}
    assert len({job.name for job in job_grid.jobs}) == len(job_grid.jobs)
    assert len({cell.reader.name for cell in job_grid.cells}) == len(job_grid.cells)
    assert {cell.requested for cell in job_grid.cells} == {0, 2, 6}


def test_every_reader_of_a_resource_makes_as_many_updates(tmp_path: Path) -> None:
    job_grid = grid(study(tmp_path), updates={"25": 9})
    for cell in job_grid.cells:
        given = [text for text in cell.reader.arguments if text.startswith("qa.max_steps=")]
        assert given == [
            "qa.max_steps=7",
            *(["qa.max_steps=9"] if cell.resource == "25" else []),
        ]  # the last one holds
    before = {job.name for job in grid(study(tmp_path)).jobs}
    changed = {job.name for job in job_grid.jobs} - before
    assert changed and all("-25-" in name for name in changed)  # other resources find their jobs done


def test_jobs_come_after_the_jobs_they_need(tmp_path: Path) -> None:
    job_grid, seen = grid(study(tmp_path)), set()
    for job in job_grid.jobs:
        assert seen.issuperset(job.needs)
        seen.add(job.name)
        for path in [text for text in job.arguments if "/jobs/" in text]:  # what it reads of others is named
            assert any(name in path for name in (*job.needs, job.name))
    seeds = [job.seed for job in job_grid.jobs]
    assert seeds == sorted(seeds)


def test_reward_training_starts_from_the_ce_model_of_its_resource_and_seed(tmp_path: Path) -> None:
    job_grid = grid(study(tmp_path))
    ce = {job.name: job for job in job_grid.jobs if job.kind == "ce"}
    for job in job_grid.jobs:
        if job.kind == "scst":
            (start,) = job.needs
            assert start.rpartition("-")[0].removeprefix("ce-") == job.name.rpartition("-")[0].replace(
                "qrelscore", "ce"
            ).replace("bartscore", "ce").removeprefix("scst-")
            assert [text for text in job.arguments if text.startswith("model.path=")][-1] == (
                f"model.path={ce[start].results / 'ce'}"
            )
    readers = {cell.generator: cell for cell in job_grid.cells if cell.seed == 2 and cell.resource == "25"}
    assert "model.path=/models/25-2" in next(
        job.arguments for job in job_grid.jobs if job.name == readers["ready"].augment.needs[0]
    )


def test_commands_get_the_settings_that_they_read(tmp_path: Path) -> None:
    job_grid = grid(study(tmp_path))
    by_kind = {job.kind: job for job in job_grid.jobs if "-25-" in job.name}
    for kind, job in by_kind.items():
        assert ("qa.max_steps=7" in job.arguments) == (kind in ("reader", "augment"))
        assert ("ce.epochs=3" in job.arguments) == (kind in ("ce", "scst"))
        assert ("scst.epochs=9" in job.arguments) == (kind in ("ce", "scst"))
        assert ("generate.num_beams=2" in job.arguments) == (kind == "generate")
        assert "training.batch_size=2" in job.arguments and "preset=smoke" in job.arguments
    assert not any(text.startswith("model.path") for text in by_kind["reader"].arguments)  # that is qa.model.path
    assert not any("scst.epochs=9" in job.arguments for job in job_grid.jobs if "-100-" in job.name)


def test_a_generation_that_reranks_gets_the_models_of_rewards(tmp_path: Path) -> None:
    mine = "reward_models.bert=mine"
    for general, override, reads in (
        ("", "generate=[generate.rerank=qrelscore]", True),
        (",generate.rerank=qrelscore", "generate=[]", True),
        ("", "generate=[generate.rerank.metric=qrelscore]", True),
        ("", "generate=[generate.rerank=null]", False),
        ("", "generate=[]", False),
    ):
        jobs = grid(study(tmp_path, f"settings=[{mine}{general}]", override)).jobs
        assert {mine in job.arguments for job in jobs if job.kind == "generate"} == {reads}
        assert {mine in job.arguments for job in jobs if job.kind in ("ce", "scst", "augment")} == {True}


def test_only_readers_see_the_validation_questions(tmp_path: Path) -> None:
    for job in grid(study(tmp_path)).jobs:
        assert any("validation/validation.json" in text for text in job.arguments) == (job.kind == "reader")


def test_filters_may_use_the_reader_on_gold_alone(tmp_path: Path) -> None:
    job_grid = grid(study(tmp_path))
    baseline = {(cell.resource, cell.seed): cell.reader for cell in job_grid.cells if cell.amount == 0}
    for cell in job_grid.cells:
        if cell.augment is not None:
            reader = baseline[cell.resource, cell.seed]
            assert (reader.name in cell.augment.needs) == (cell.filter == "round_trip")
            assert any(f"{{model: {reader.results}}}" in text for text in cell.augment.arguments) == (
                cell.filter == "round_trip"
            )
            assert cell.augment.exclusive in cell.augment.needs  # two on the same questions never at once


@pytest.mark.parametrize(
    ("override", "kinds"),
    [
        ("settings=[qa.max_steps=8, ce.epochs=3, training.batch_size=2, model.path=some/bart]", {"augment", "reader"}),
        ("generate=[generate.num_beams=3]", {"generate", "augment", "reader"}),
        ("generators.ce={stages: ce}", set()),
        ("output_dir=OTHER", set()),
        ("devices=[0, 1]", set()),
        ("seeds=[3, 1, 2]", set()),
    ],
)
def test_a_changed_file_changes_the_jobs_that_depend_on_it(tmp_path: Path, override: str, kinds: set[str]) -> None:
    before, after = grid(study(tmp_path)), grid(study(tmp_path, override.replace("OTHER", str(tmp_path / "other"))))
    old = {job.name for job in before.jobs}
    assert {job.kind for job in after.jobs if job.name not in old} == kinds


def test_a_new_amount_keeps_all_others(tmp_path: Path) -> None:
    before, after = grid(study(tmp_path)), grid(study(tmp_path, "amounts=[0, 0.5, 1, 2]"))
    new = {job.name for job in after.jobs} - {job.name for job in before.jobs}
    assert {job.name for job in before.jobs} < {job.name for job in after.jobs}
    assert all("-x1-" in name for name in new) and len(new) == 2 * 2 * 4 * 2 * 3


def test_another_reward_changes_its_own_jobs_alone(tmp_path: Path) -> None:
    before = grid(study(tmp_path))
    after = grid(study(tmp_path, "generators.bartscore={reward: bartscore, scst.epochs: 4}"))
    changed = {job.name for job in after.jobs} - {job.name for job in before.jobs}
    assert changed and all("bartscore" in name for name in changed)


def test_another_model_replaces_the_miniature(tmp_path: Path) -> None:
    job_grid = grid(
        study(tmp_path, "generators={ce: {stages: ce}, big: {stages: ce, model: bart-base}}", "settings=[]")
    )
    for job in job_grid.jobs:
        if job.kind == "ce":
            assert ("model.path=mini/bart" in job.arguments) == ("-ce-s" in job.name)


def test_a_job_keeps_the_name_that_earlier_versions_gave_it(tmp_path: Path) -> None:
    """Else a study that was begun with one would run all its jobs again."""
    for root in (tmp_path, Path("/other")):
        digits = hashlib.sha256(b"train\0output_dir={study}/a\0seed=1").hexdigest()
        assert command_hash("train", [f"output_dir={root}/a", "seed=1"], root) == digits[:8]
