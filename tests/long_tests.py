"""The long tests, which `make test` leaves out, and what each of them is about.

`make test-affected` runs those whose subject has changed since a commit: a subject is a list of files and folders.
`{id}` in it stands for the parameter of a test. The files of a test's own folder belong to its subject. A long test is
an end-to-end run, a browser, or the full table of something of which `make test` has some rows.
"""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ("rl_qg", "rewards", "configs")
LEARNING = tuple(
    f"rl_qg/{room}"
    for room in ("training", "generation", "miniatures", "scoring", "runtime", "data", "settings", "commands")
)
PAGES = tuple(
    f"rl_qg/{room}" for room in ("reports", "pages", "text", "evaluation", "scoring", "judging", "studies", "bench")
)
EVERYTHING = ("pyproject.toml", "constraints.txt", "Makefile", "tests/conftest.py", "tests/processes.py")
"""A change of these may change the result of any test."""

LONG: dict[str, tuple[str, ...]] = {
    "bad_input/test_transcripts.py::test_bad_input_ends_in_its_line": SOURCE,
    "distributed/test_faults.py": SOURCE,
    "docs/test_commands.py::test_documented_commands": (
        *("rl_qg/commands", "rl_qg/settings", "configs", "docs", "experiments", "README.md", "CONTRIBUTING.md"),
    ),
    "docs/test_commands.py::test_every_command_runs": (*SOURCE, "README.md", "docs/tutorial.md"),
    "docs/test_how_to.py::test_every_command_runs": (*SOURCE, "docs/{id}.md"),
    "docs/test_papers.py::test_every_name_on_the_page_exists": (*SOURCE, "docs/papers.md", "experiments"),
    "docs/test_site.py": ("docs", "mkdocs.yml", "rl_qg", "rewards"),
    "pages/test_pages_in_browser.py": PAGES,
    "rewards/overlap/test_truecased.py": ("rewards",),
    "rewards/test_older_processors.py": ("rewards", "rl_qg/training", "rl_qg/generation", "experiments/speed"),
    "rl_qg/asking/test_question_generator.py::test_a_result_does_not_depend_on_the_other_texts": (
        *("rl_qg/asking", "rl_qg/generation", "rewards"),
    ),
    "rl_qg/commands/test_answers_pipeline.py": (*LEARNING, "rl_qg/readers", "rl_qg/augmentation"),
    "rl_qg/commands/test_causal_pipeline.py": SOURCE,
    "rl_qg/commands/test_cli.py::test_a_killed_pipeline_continues": (*LEARNING, "rl_qg/readers", "rl_qg/augmentation"),
    "rl_qg/commands/test_cli.py::test_each_stage_runs_by_its_own_command": SOURCE,
    "rl_qg/commands/test_cli.py::test_t5_trains_too": LEARNING,
    "rl_qg/commands/test_estimate.py::test_the_updates_of_a_training": LEARNING,
    "rl_qg/commands/test_launcher.py::test_parts_by_a_launcher": (
        *("rl_qg/data", "rl_qg/runtime", "rl_qg/commands", "rl_qg/generation", "rl_qg/studies/jobs.py"),
        *("rl_qg/scoring", "rl_qg/augmentation"),
    ),
    "rl_qg/commands/test_parts_on_slurm.py": (
        *("rl_qg/data", "rl_qg/runtime", "rl_qg/commands", "rl_qg/generation", "docs/how-to/parts.md"),
    ),
    "rl_qg/commands/test_parts_of_stages.py::test_parts_and_merges_that_are_killed": (
        *("rl_qg/data", "rl_qg/runtime", "rl_qg/commands", "rl_qg/generation"),
    ),
    "rl_qg/commands/test_same_bytes.py::test_a_pipeline": SOURCE,
    "rl_qg/commands/test_same_bytes.py::test_miniatures_of_every_kind": (
        *("rl_qg/miniatures", "rl_qg/generation", "rl_qg/data", "rl_qg/runtime"),
    ),
    "rl_qg/commands/test_study_stage.py::test_every_job_was_run": SOURCE,
    "rl_qg/commands/test_study_stage.py::test_study_json_has_the_scores": SOURCE,
    "rl_qg/commands/test_study_stage.py::test_the_command_of_a_job": SOURCE,
    "rl_qg/commands/test_study_stage.py::test_dry_run_shows": SOURCE,
    "rl_qg/commands/test_train_unlabelled.py": LEARNING,
    "rl_qg/miniatures/test_cache.py::test_workers_end": ("rl_qg/miniatures", "rl_qg/runtime"),
    "rl_qg/studies/test_ray_data.py::test_stages_in_parts": (
        *LEARNING,
        "rl_qg/studies/ray_data.py",
        "rl_qg/augmentation",
    ),
    "rl_qg/rating/test_rating_pages_in_browser.py": ("rl_qg/rating", "rl_qg/web", "rl_qg/pages", "configs/protocol"),
    "rl_qg/rating/test_whole_study.py": (
        "rl_qg/rating",
        "rl_qg/web",
        "rl_qg/judging",
        "rl_qg/stats",
        "configs/protocol",
    ),
    "rl_qg/readers/test_readers_side_by_side.py": ("rl_qg/readers", "rl_qg/runtime"),
    "rl_qg/readers/test_sentence_training.py": ("rl_qg/readers", "rl_qg/runtime"),
    "rl_qg/scoring/test_judge.py::test_a_training_that_the_budget": (
        *LEARNING,
        "rewards/judge.py",
        "rewards/endpoint.py",
    ),
    "rl_qg/serving/test_page_access.py": ("rl_qg/serving", "rl_qg/web", "rl_qg/asking", "rl_qg/pages"),
    "rl_qg/serving/test_page_in_browser.py": ("rl_qg/serving", "rl_qg/web", "rl_qg/asking", "rl_qg/pages"),
    "rl_qg/serving/test_page_input.py": ("rl_qg/serving", "rl_qg/web", "rl_qg/asking", "rl_qg/pages"),
    "rl_qg/serving/test_page_of_server.py": ("rl_qg/serving", "rl_qg/web", "rl_qg/asking", "rl_qg/pages"),
    "rl_qg/studies/test_job_pool.py::test_a_job_imports": ("rl_qg/studies", "rewards"),
    "rl_qg/studies/test_job_pool.py::test_jobs_end_with_the_process": ("rl_qg/studies", "rl_qg/runtime"),
    "rl_qg/training/test_best_of_n.py::test_a_killed_run": LEARNING,
    "rl_qg/training/test_equal_steps.py": LEARNING,
    "rl_qg/training/test_equivalence.py::test_bf16": (*LEARNING, "configs/accelerate", "rewards"),
    "rl_qg/training/test_equivalence.py::test_positions": (*LEARNING, "configs/accelerate", "rewards"),
    "rl_qg/training/test_equivalence.py::test_zero_equals": (*LEARNING, "configs/accelerate", "rewards"),
    "rl_qg/training/test_mixture.py::test_a_resumed_run": LEARNING,
    "rl_qg/training/test_resume.py::test_a_complete_training": LEARNING,
    "rl_qg/training/test_resume.py::test_early_stopping": LEARNING,
    "rl_qg/training/test_task_training.py": LEARNING,
    "rl_qg/training/test_trl_stages.py": LEARNING,
    "test_example_path.py": (*SOURCE, "docs/architecture.md"),
    "test_gpu_experiment.py::test_each": (*SOURCE, *(f"experiments/{name}" for name in ("gpu", "speed", "serving"))),
    "test_notebook.py::test_its_cells": (*SOURCE, "examples"),
    "test_slurm_file.py": (*LEARNING, "examples"),
    "test_wheel.py": (*SOURCE, "README.md"),
}

SHORT = (
    "bad_input/test_transcripts.py::test_bad_input_ends_in_its_line[commands.txt",
    "distributed/test_faults.py::test_a_resumed_run_equals_an_uninterrupted_one[SIGKILL-augment-python-0]",
)
"""Rows of a long table that `make test` runs too, by the begin of their ids."""


def subject_of(test: str) -> tuple[str, ...] | None:
    """The subject of a test, by its id below `tests/`; None for one that is not long."""
    if test.startswith(SHORT):
        return None
    for begin, paths in LONG.items():
        if test.startswith(begin):
            parameter = test.partition("[")[2].removesuffix("]")
            folder = "tests" if "/" not in begin else f"tests/{begin.rpartition('/')[0]}"
            own = f"tests/{test.partition('::')[0]}" if folder == "tests" else folder
            return (*(path.replace("{id}", parameter) for path in paths), own)
    return None


def changed_since(revision: str) -> list[str]:
    """The files that differ from a commit, and those that git does not know yet; all of them if there is no commit."""
    base = last_landed() if revision == "last-landed" else revision
    differ = git("diff", "--name-only", base) if base else git("ls-files")
    return [*differ, *git("ls-files", "--others", "--exclude-standard")]


def last_landed() -> str:
    """Where this work left `origin/main`, else the last commit of at least four hours before it; empty: neither."""
    if git("branch", "--remotes", "--list", "origin/main"):
        base = git("merge-base", "HEAD", "origin/main")
        if base != git("rev-parse", "HEAD"):
            return base[0]
    (seconds,) = git("log", "-1", "--format=%ct")
    return next(iter(git("rev-list", "-1", f"--before={int(seconds) - 4 * 3600}", "HEAD")), "")


def git(*words: str) -> list[str]:
    """The lines that a command of git writes."""
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def is_affected(subject: tuple[str, ...], changed: list[str]) -> bool:
    """Whether one of the changed files lies in the subject, or may change any test."""
    paths = (*subject, *EVERYTHING)
    return any(file == path or file.startswith(f"{path}/") for file in changed for path in paths)
