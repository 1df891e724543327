"""The check of claimed numbers notices what it is for, and finds the repository in order."""

import json
import re
from pathlib import Path

import pytest

from tests.docs import claims
from tests.docs.markdown import ROOT

RESULTS = {
    "ce": {"right": {"mean": 0.31345, "low": 0.265, "high": 0.37, "p_holm": 0.0004}, "bleu4": 0.326},
    "scst": {"name": "x", "right": {"mean": 0.5584, "low": 0.495, "high": 0.61}, "bleu4": 0.4244, "words": None},
    "runs": [{"seed": 13, "f1": 6.2}, {"seed": 14, "f1": -1.5}],
    "passages": 1200,
    "spread": [0.1, 0.05, 0.15],
}
TABLE = """
<!-- numbers: experiments/x/results.json
labels: given
columns: right x100 | bleu4 | words
ce
scst
scst/right minus ce/right x100 | scst/bleu4 minus ce/bleu4 |
-->

| generator, 3 seeds | right | BLEU-4 | words |
| --- | --- | --- | --- |
| CE | 31.3 % [26.5, 37.0], p < 0.001 | 0.326 | |
| **SCST** | **55.8 %** | 0.42 | |
| difference | +24.5 | +0.098 | |
"""
TEXT = """
<!-- numbers: experiments/x/results.json
passages; max(runs/f1); min(runs/f1); runs/seed=13/f1;
mean(runs/f1); spread; given
-->

Of 1,200 passages, from +6.2 to -1.5 with `x 17`; seed 13's is 6.2 and the mean 2.4 (0.1 [0.05,
0.15]; BLEU-4, version 1.2.3, at 95 %).
"""
TEXT = TEXT.replace("seed 13's", "that of the demo")


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is wrong in a repository of one README with these texts, and one experiment."""
    folder = tmp_path / "experiments" / "x"
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(RESULTS))
    monkeypatch.setattr(claims, "ROOT", tmp_path)

    def check(readme: str, experiment: str = "", known: int = 0) -> list[str]:
        (tmp_path / "README.md").write_text(readme)
        (folder / "README.md").write_text(experiment)
        return claims.check([tmp_path / "README.md", folder / "README.md"], known)

    return check


def test_the_repository_has_a_result_for_every_claim() -> None:
    assert claims.check() == []


def test_numbers_that_agree(wrong) -> None:
    assert wrong(TABLE + TEXT) == []


@pytest.mark.parametrize("text", (TABLE, TEXT))
def test_every_changed_digit_is_noticed(wrong, text: str) -> None:
    reference, shown = text.split("-->")
    read = re.sub(r"`[^`]*`|1\.2\.3|95|BLEU-4|3 seeds|0\.001", lambda match: "_" * len(match[0]), shown)
    digits = [match.start() for match in re.finditer(r"\d", read)]
    assert len(digits) > 15
    for place in digits:
        changed = shown[:place] + str((int(shown[place]) + 1) % 10) + shown[place + 1 :]
        assert wrong(f"{reference}-->{changed}"), changed


@pytest.mark.parametrize(
    ("old", "new", "message"),
    (
        ("+24.5", "-24.5", "-24.5 is 0.24495"),
        ("p < 0.001", "p < 0.0003", "0.0003 is 0.0004"),
        ("columns: right", "columns: wrong", "no wrong in"),
        ("x/results.json", "y/results.json", "no file"),
        ("scst\n", "scst\nscst\n", "the table has 3 rows, its comment 4"),
        ("| bleu4 | words", "| bleu4", "3 cells, but 2 references"),
        ("| 0.42 |", "| |", "row **SCST**: no number for scst/bleu4"),
        ("[26.5, 37.0], p", "[26.5, 37.0] 9, p", "no reference for 9, 0.001"),
        ("55.8 %", "55.8 % of 989", "no reference for 989"),
        ("labels: given\n", "", "no reference for 3"),
        ("scst/right minus", "median(scst/right) minus", "median"),
        ("bleu4 minus ce/bleu4", "name minus ce/bleu4", "cannot be computed"),
    ),
)
def test_what_does_not_hold(wrong, old: str, new: str, message: str) -> None:
    assert TABLE.count(old) == 1
    found = wrong(TABLE.replace(old, new))
    assert any(message in line for line in found), found
    assert all(line.startswith("README.md, line ") for line in found)


def test_an_unknown_claim_in_the_readme(wrong) -> None:
    assert wrong("# Title\n\nIt is 3.5 times as good.\n") == ["README.md, line 3: no reference for 3.5"]
    assert wrong("| a | b |\n| --- | --- |\n| x | 7 |\n") == ["README.md, line 1: no reference for 7"]
    assert wrong("```\nmake demo  # 6 minutes\n```\n\nAs `k=4` in [a page](x-4.md#5), F1, BLEU-4.\n") == []
    assert wrong("<!-- numbers: given -->\n\nOn 2 cores.\n\nIn 3 minutes.\n") == [
        "README.md, line 5: no reference for 3"
    ]


def test_tables_of_experiments_without_a_reference_are_counted(wrong) -> None:
    bare = "| a | b |\n| --- | --- |\n| x | 7 |\n"
    words = "| a | b |\n| --- | --- |\n| x 1 | y |\n"
    named = "<!-- numbers: results.json\nce/bleu4\n-->\n" + bare.replace("7", "0.33")
    assert wrong("", f"{bare}\n{bare}\n{words}\n{named}", known=2) == []
    (more,) = wrong("", f"{bare}\n{bare}", known=1)
    (fewer,) = wrong("", named, known=1)
    assert more.startswith("2 tables") and fewer.startswith("0 tables")


def test_the_numbers_of_the_readme_are_all_compared() -> None:
    """Changing one is noticed, but for those that are named as given."""
    for _, text, reference in claims.blocks(ROOT / "README.md"):
        shown = claims.NOT_READ.sub("", text)
        unnoticed = 0
        for match in claims.WRITTEN.finditer(shown):
            digit = str((int(match["digits"][-1]) + 5) % 10)
            changed = shown[: match.end() - 1] + digit + shown[match.end() :]
            unnoticed += not list(claims.check_block(changed, reference, ROOT, every_number=True))
        assert unnoticed == (reference or "").count("given")
