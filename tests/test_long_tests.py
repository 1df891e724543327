"""The table of long tests: its names exist, and a change runs the tests whose subject it touches."""

import ast

import pytest

from tests.long_tests import EVERYTHING, LONG, ROOT, SHORT, is_affected, subject_of


@pytest.mark.parametrize("begin", [*LONG, *SHORT])
def test_every_name_of_the_table_is_a_test(begin: str) -> None:
    path, _, function = begin.partition("::")
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    tests = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    assert any(name.startswith(function.partition("[")[0]) for name in tests)


@pytest.mark.parametrize(
    "path", sorted({path for paths in [*LONG.values(), EVERYTHING] for path in paths} - {"docs/{id}.md"})
)
def test_every_path_of_the_table_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(
    ("changed", "runs"),
    [
        ("rl_qg/serving/gate.py", {"page", "how-to", "faults"}),
        ("rl_qg/training/trainer.py", {"how-to", "faults"}),
        ("docs/how-to/train.md", {"how-to"}),
        ("docs/how-to/ask.md", set()),
        ("tests/rl_qg/serving/page_server.py", {"page"}),
        ("tests/rl_qg/training/word_task.py", set()),
        ("rl_qg_else/file.py", set()),
        ("constraints.txt", {"page", "how-to", "faults"}),
    ],
)
def test_a_change_runs_the_long_tests_that_are_about_it(changed: str, runs: set[str]) -> None:
    tests = {
        "page": "rl_qg/serving/test_page_input.py::test_a_wrong_field_is_named[0]",
        "how-to": "docs/test_how_to.py::test_every_command_runs[how-to/train]",
        "faults": "distributed/test_faults.py::test_a_resumed_run_equals_an_uninterrupted_one[SIGTERM-both-python-0]",
    }
    assert {name for name, test in tests.items() if is_affected(subject_of(test) or (), [changed])} == runs


def test_a_short_row_and_any_other_test_are_not_long() -> None:
    assert subject_of(SHORT[0]) is None
    assert subject_of("rl_qg/stats/test_confidence_intervals.py::test_a") is None
