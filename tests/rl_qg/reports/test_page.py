import base64
import csv
import io
import json
import re

import numpy as np
import pytest

from rl_qg.pages.plots import ReportedMean, interval_plot, reader_plot
from rl_qg.pages.results import csv_address
from rl_qg.reports.report import run_summary, write_report
from rl_qg.reports.run_files import JsonObject, Metrics, read_run
from rl_qg.reports.training_plots import moving_mean
from rl_qg.runtime.errors import InputError
from tests.rl_qg.reports.run_folders import FILES, NASTY, evaluation, interval, metrics, page_of, write

CSV = "data:text/csv;charset=utf-8;base64,"
SECTIONS = ("headline", "separation", "curves", "samples", "funnel", "qa", "data", "record")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("runs") / "first")
    return folder, page_of(folder, output=folder / "report.html")


def test_the_page_loads_nothing_and_runs_nothing(whole):
    _, page = whole
    assert page.addresses
    assert [address for address in page.addresses if not address.startswith("#")] == []
    assert all(address.startswith(CSV) for address in page.downloads)
    assert re.search(r"https?:|url\((?!#)|@import", page.source) is None
    assert not {"script", "iframe", "object", "link", "img"} & set(page.tags)


def test_the_page_is_well_formed(whole):
    _, page = whole
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert {address[1:] for address in page.addresses} <= set(page.ids)


def test_every_wide_table_has_its_cells_as_csv(whole):
    _, page = whole
    files = [base64.b64decode(address.removeprefix(CSV)).decode() for address in page.downloads]
    tables = [csv.reader(io.StringIO(file)) for file in files]
    assert len(tables) == page.source.count('class="csv"') == len(re.findall(r' scroll" role="region"', page.source))
    rows = [row for table in tables for row in table]
    assert ["BLEU-4 (0–1)", "0.174 [0.159, 0.189]", "0.180", "+0.006", "–"] in rows
    assert ["gold + SCST − gold alone", "+3.5 [−0.5, +7.5]", "+3.4 [+1.8, +5.0]"] in [row[:3] for row in rows]
    assert any("seed 2: 52.5 / 62.8" in row[-1] for row in rows)


def test_cells_that_a_spreadsheet_would_run_are_texts():
    table = "<tr><th>=1+1</th></tr><tr><td>a,<b>b</b>\n c</td></tr><tr><td>−1.5</td></tr>"
    content = base64.b64decode(csv_address(table).removeprefix(CSV)).decode()
    assert list(csv.reader(io.StringIO(content))) == [["'=1+1"], ["a, b c"], ["−1.5"]]


def test_every_section_is_there(whole):
    _, page = whole
    assert {f"run-1-{section}" for section in SECTIONS} <= set(page.ids)
    assert page.tags.count("figure") == 11
    assert "metrics.jsonl in this run folder" not in page.text
    for title in ("Loss", "Reward", "Advantage", "λ", "Question length", "Gradient norm", "Learning rate", "Time"):
        assert title in page.words


def test_numbers_have_their_intervals_signatures_and_counts(whole):
    _, page = whole
    for text in (
        "0.31 → 0.36",
        "+0.05 [+0.04, +0.06]",
        "interval above 0",
        "0.174 → 0.180",
        "CE [0.159, 0.189]",
        "qrelscore|variant:official|version:0.1.0",
        "bleu|order:4|set:corpus",
        "61.8 → 65.2",
        "+3.4 points [+1.8, +5.0]",
        "EM: interval includes 0",
        "3 reader seeds",
        "seed 2: 52.5 / 62.8",
        "50 held-out questions, 20 passages",
        "6,000",
        "of 9,600 candidates (62 %)",
        "− no question mark",
        "2,400 · 25.0 %",
        "4,000 added to 1,200 human ones",
        "no shared passage",
        "12 dropped (no answer)",
        "ab" * 32,
        "commit 0123456789 with uncommitted changes",
        "rl-qg pipeline 'output_dir=runs/my run'",
        "path: miniature:bart",
    ):
        assert text in page.text, text


def test_text_from_files_is_escaped(whole):
    _, page = whole
    assert NASTY in page.text
    assert "<script" not in page.source


def test_the_answer_is_marked_inside_a_shortened_passage(whole):
    _, page = whole
    summary = re.search(r"<summary>(… .*?<mark>Shakespeare</mark>.*?…)</summary>", page.source)
    assert summary and summary[1].count("Before it.") < 40
    assert page.source.count("<mark>Shakespeare</mark>") == 2  # once in the excerpt, once in the whole passage


def test_the_highest_reward_is_marked_best(whole):
    _, page = whole
    cells = re.findall(
        r'<td role="cell"( class="winner")?>.*?<div class="question" dir="auto">(.*?)</div>', page.source, re.DOTALL
    )
    assert [text for winner, text in cells if winner] == ["Who was it that wrote the play in London?"]


def test_summary_holds_the_headline_numbers(whole):
    folder, _ = whole
    summary = json.loads((folder / "summary.json").read_text())
    assert summary == run_summary(read_run(folder))
    assert summary["reward"]["difference"] == {**interval(0.05, 0.01), "excludes_zero": True}
    assert summary["reward"]["signature"] == "qrelscore|variant:official|version:0.1.0"
    assert summary["bleu4"]["ce"] == interval(0.1743, 0.015)
    assert summary["bleu4"]["scst"]["mean"] == 0.18
    assert summary["qa"]["gold"]["f1"] == {"mean": 61.8, "low": 58.8, "high": 64.8, "n": 80}
    assert summary["qa"]["augmented"]["seeds"] == [0, 1, 2]
    assert summary["qa"]["difference"]["exact_match"]["excludes_zero"] is False
    assert summary["questions"]["kept"] == 6000
    assert summary["training"] == {
        "steps": 60,
        "boundary": 30,
        "seconds_rollout": 7.5,
        "seconds_reward": 3.8,
        "seconds_update": 30.0,
    }


def test_the_signature_of_bleu_is_there_where_there_is_one_generator_alone(tmp_path):
    """As with `stages=scst`."""
    result = evaluation()
    result["models"]["scst"] |= {"bleu_signature": result["models"].pop("ce")["bleu_signature"]}
    folder = write(tmp_path / "run", **{"evaluation.json": result})
    assert run_summary(read_run(folder))["bleu4"]["signature"] == "bleu|order:4|set:corpus"
    assert "BLEU-4: bleu|order:4|set:corpus" in page_of(folder, output=tmp_path / "report.html").text


@pytest.mark.parametrize(
    ("resampled", "shown"), [("passages", "passages"), ("questions", "questions"), (None, "questions")]
)
def test_the_notes_say_what_the_intervals_resample(tmp_path, resampled, shown):
    changes = {
        name: {**FILES[name], "resampled": resampled} for name in ("evaluation.json", "qa/gold/qa_metrics.json")
    }
    page = page_of(write(tmp_path / "run", **changes), output=tmp_path / "report.html")
    assert f"95 % bootstrap intervals over {shown}; differences are paired" in page.text
    assert f"95 % bootstrap intervals over {shown}; rings" in page.text


@pytest.mark.parametrize("missing", [*FILES, "metrics.jsonl", "config.yaml", "questions.jsonl"])
def test_any_one_file_may_be_missing(tmp_path, missing):
    folder = write(tmp_path / "run", **{missing: None})
    page = page_of(folder, output=tmp_path / "report.html")
    assert {f"run-1-{section}" for section in SECTIONS} <= set(page.ids)


@pytest.mark.parametrize("only", [*FILES, "metrics.jsonl"])
def test_all_other_files_may_be_missing(tmp_path, only):
    names = [*FILES, "metrics.jsonl", "config.yaml", "questions.jsonl"]
    folder = write(tmp_path / "run", **{name: None for name in names if name != only})
    page = page_of(folder, output=tmp_path / "report.html")
    assert page.text.count("in this run folder") >= 4
    assert "None" not in page.text


@pytest.mark.slow
def test_a_run_of_cross_entropy_alone(tmp_path):
    result = evaluation()
    del result["models"]["scst"], result["difference"], result["samples"][0]["scst"]
    lines = "".join(json.dumps(line) + "\n" for line in metrics(ce=40, scst=0))
    folder = write(tmp_path / "run", **{"evaluation.json": result, "metrics.jsonl": lines})
    page = page_of(folder, output=tmp_path / "report.html")
    assert "Advantage" not in page.words
    assert "BLEU-4 (0–1), CE" in page.text and "BLEU-4 (0–1), CE → SCST" not in page.text
    assert run_summary(read_run(folder))["reward"]["difference"] is None


def test_a_leakage_check_without_a_count_is_not_called_clean(tmp_path):
    record = {**FILES["run.json"], "leakage": {"train_passages": 61}}
    page = page_of(write(tmp_path / "run", **{"run.json": record}), output=tmp_path / "report.html")
    assert "no shared passage" not in page.text


def test_shared_passages_that_stayed_in_training_are_reported(tmp_path):
    leakage = {"shared_passages": 3, "train_examples_dropped": 0}
    page = page_of(
        write(tmp_path / "run", **{"run.json": {**FILES["run.json"], "leakage": leakage}}),
        output=tmp_path / "report.html",
    )
    assert "shared passages in both sets" in page.text


def test_a_commit_that_is_a_number_is_shown(tmp_path):
    record = {**FILES["run.json"], "code": {"commit": 123456789012345}}
    runs = [write(tmp_path / name, **{"run.json": record, "metrics.jsonl": None}) for name in "ab"]
    page = page_of(*runs, output=tmp_path / "report.html")
    assert page.text.count("seed 13 · 1234567890") == 2 and "12345678901" not in page.text.split("Run record")[0]


def test_rewards_are_compared_where_both_are_known(tmp_path):
    result = evaluation()
    known = result["samples"][0]
    result["samples"] = [known, {**known, "reward_ce": 0.5}, {**known, "reward_scst": None}]
    changes = {"evaluation.json": result, "metrics.jsonl": None}
    page = page_of(write(tmp_path / "run", **changes), output=tmp_path / "report.html")
    assert "Of 2 with both rewards, SCST has the higher one in 1, CE in 1, equal 0." in page.text


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("evaluation.json", '{"models": ', "malformed JSON at column"),
        ("evaluation.json", "[1, 2]", "expected a JSON object, got list"),
        ("evaluation.json", '{"models": {"ce": {"reward": "high"}}}', "field models.ce.reward: expected a number or"),
        ("evaluation.json", '{"samples": ["a"]}', "field samples: expected a list of objects"),
        ("run.json", "{'seed': 13}", "malformed JSON"),
        ("metrics.jsonl", '{"step": 1, "loss": 1.0}\n{"step": 2, "lo', "line 2: malformed JSON"),
        ("metrics.jsonl", '{"step": 1, "loss": "low"}\n', "line 1: field loss: expected a number, got str"),
        ("augmented.report.json", '{"candidates": 5, "dropped": {"a": "b"}}', "field dropped.a: expected a number"),
        ("qa/gold/qa_metrics.json", '{"f1": 5, "intervals": {"f1": [1]}}', "field intervals.f1: expected [low, high]"),
        (
            "qa/comparison.json",
            '{"differences": {"ce - gold": {"f1": "up"}}}',
            "field differences.ce - gold.f1: expected",
        ),
        ("config.yaml", "a: [1", "not readable as YAML"),
    ],
)
def test_a_broken_file_is_named(tmp_path, name, text, where):
    folder = write(tmp_path / "run", **{name: text})
    with pytest.raises(InputError) as caught:
        write_report([folder], tmp_path / "report.html")
    assert str(folder / name) in str(caught.value)
    assert where in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()


def test_a_folder_without_a_run_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        write_report([tmp_path / "absent"], tmp_path / "report.html")
    with pytest.raises(InputError, match="none of the files of a run"):
        write_report([tmp_path], tmp_path / "report.html")
    with pytest.raises(InputError, match="no run folder given"):
        write_report([], tmp_path / "report.html")


@pytest.mark.slow
def test_several_runs_are_compared(tmp_path):
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    page = page_of(first, second, output=tmp_path / "report.html")
    assert {"comparison", "run-1", "run-2", "run-2-curves"} <= set(page.ids)
    assert page.open == [] and len(set(page.ids)) == len(page.ids)
    assert "2 runs compared" in page.text
    assert "cannot be compared" not in page.text
    assert page.words.count("Greedy reward") == 1
    assert not (first / "summary.json").exists()


def test_the_mean_of_runs_that_differ_in_seeds_alone(tmp_path):
    gains, bare = (1.0, 2.0, 6.0), {"metrics.jsonl": None}
    settings = "lr: {}\nseed: {}\nqa: {{seeds: [{}, {}]}}\n"
    comparisons = [{"differences": {"scst - ce": {"f1": interval(gain, 0.5)}}} for gain in gains]
    folders = [
        write(
            tmp_path / str(n), **bare, **{"qa/comparison.json": part, "config.yaml": settings.format(1, n, n, n + 1)}
        )
        for n, part in enumerate(comparisons)
    ]
    # t of 2 degrees of freedom is 4.303, the standard deviation √7: half a width is 4.303 · √(7 / 3) = 6.57
    text = page_of(*folders, output=tmp_path / "report.html").text
    assert "mean of 3 runs" in text and "+3.0 [−3.6, +9.6]" in text
    (folders[1] / "config.yaml").write_text(settings.format(2, 1, 1, 2))
    text = page_of(*folders, output=tmp_path / "report.html").text
    assert "mean of 3 runs" not in text and "differ in more than their seeds" in text


def test_runs_of_the_same_seed_have_no_mean(tmp_path):
    bare = {"metrics.jsonl": None}
    folders = [
        write(tmp_path / str(n), **bare, **{"config.yaml": f"lr: 1\nseed: {seed}\n"})
        for n, seed in enumerate((1, 2, 1))
    ]
    text = page_of(*folders, output=tmp_path / "report.html").text
    assert "mean of 3 runs" not in text and "two have the same seed" in text
    assert "mean of 2 runs" in page_of(*folders[:2], output=tmp_path / "report.html").text


def test_rewards_of_two_signatures_have_no_mean(tmp_path):
    settings = {"config.yaml": "lr: 1\nseed: 2\n"}  # only the version of the metric differs
    later = write(tmp_path / "b", **settings, **{"evaluation.json": {**evaluation(), "reward_signature": "version:2"}})
    earlier = write(tmp_path / "a", **{"config.yaml": "lr: 1\nseed: 1\n"})
    text = page_of(earlier, later, output=tmp_path / "report.html").text
    assert "Rewards cannot be compared" in text and "mean of 2 runs" not in text


def test_steps_are_all_that_were_trained_and_stages_have_the_name_of_the_algorithm(tmp_path):
    """The last logged loss is of step 60; an evaluation, and the note of a complete training, may be of later ones."""
    lines = "".join(json.dumps(line) + "\n" for line in [*metrics(), {"step": 64, "stage": "scst", "eval_loss": 1.0}])
    changes = {"metrics.jsonl": lines, "config.yaml": "algorithm: rloo\n"}
    folder = write(tmp_path / "a", **changes)
    assert run_summary(read_run(folder))["training"]["steps"] == 64
    (folder / "trained.json").write_text('{"model": "scst", "steps": 67}')
    assert "CE → RLOO · algorithm rloo · 67 steps" in page_of(folder, output=tmp_path / "page.html").text


def test_a_page_elsewhere_leaves_the_run_folder_as_it_is(tmp_path):
    folder = write(tmp_path / "run")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_report([folder], tmp_path / "page.html")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    write_report([folder], folder / "report.html")
    assert (folder / "summary.json").exists()


@pytest.mark.slow
def test_rewards_of_different_metrics_are_kept_apart(tmp_path):
    other = {**evaluation(), "reward_signature": "qascore|variant:paper"}
    runs = write(tmp_path / "a"), write(tmp_path / "b", **{"evaluation.json": other})
    page = page_of(*runs, output=tmp_path / "report.html")
    assert "Rewards cannot be compared across all rows" in page.text
    assert "A qrelscore|variant:official|version:0.1.0 B qascore|variant:paper" in page.text
    assert page.words.count("Greedy reward A") == page.words.count("Greedy reward B") == 1


def test_runs_on_different_data_are_reported(tmp_path):
    other = {**FILES["run.json"], "data": {"train.json": "cd" * 32}}
    bare = {"metrics.jsonl": None}
    runs = write(tmp_path / "a", **bare), write(tmp_path / "b", **{"run.json": other}, **bare)
    assert "These runs read different data" in page_of(*runs, output=tmp_path / "report.html").text


def test_runs_of_the_same_name_are_shown_by_their_paths(tmp_path):
    bare = {"metrics.jsonl": None}
    runs = write(tmp_path / "a" / "run", **bare), write(tmp_path / "b" / "run", **bare)
    page = page_of(*runs, output=tmp_path / "report.html")
    assert str(runs[0]) in page.text and str(runs[1]) in page.text


@pytest.mark.slow
@pytest.mark.drawn
def test_the_same_files_give_the_same_page(tmp_path):
    folder = write(tmp_path / "run")
    pages = [page_of(folder, output=tmp_path / f"{name}.html").source for name in "ab"]
    assert pages[0] == pages[1]


def test_moving_mean_against_a_direct_computation():
    values = np.random.default_rng(0).normal(size=50).tolist()
    expected = [np.mean(values[max(0, i - 3) : i + 4]) for i in range(50)]
    assert moving_mean(values, 7) == pytest.approx(expected)
    assert moving_mean(values, 1) == pytest.approx(values)


def test_series_leave_out_what_is_missing_or_not_finite(tmp_path):
    lines = [{"step": 1, "a": 1.0}, {"step": 2}, {"step": 3, "a": float("nan")}, {"step": 4, "a": 4}]
    series = Metrics(tuple(JsonObject(tmp_path, line) for line in lines)).series("a")
    assert series == ([1, 4], [1.0, 4])


@pytest.mark.drawn
def test_plots_keep_text_as_text_and_take_the_colours_of_the_page():
    svg = interval_plot([("F1 & EM", "ce", ReportedMean(3.0, 1.0, 5.0, 9), [2.0, 4.0])], "salt", zero=True)
    assert "F1 &amp; EM" in svg and "percentage points" in svg
    assert "var(--ce)" in svg and "#0072b2" not in svg
    assert len(svg) < 20_000


@pytest.mark.drawn
def test_a_name_in_a_plot_is_short_and_no_formula():
    groups = {"F1": [("gold + $\\frac$ " + "n" * 300, "ce", ReportedMean(3.0, 1.0, 5.0, 9))]}
    svg = reader_plot(groups, "salt")
    assert "F1, gold + $\\frac$…<" in svg and "nn" not in svg


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.1, 0.3, True), (-0.3, -0.1, True), (-0.1, 0.3, False), (0.0, 0.3, False)]
)
def test_an_interval_excludes_zero_only_when_zero_lies_outside(low, high, expected):
    assert ReportedMean((low + high) / 2, low, high).excludes_zero is expected
    assert ReportedMean(0.1).excludes_zero is None
