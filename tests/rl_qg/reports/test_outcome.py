"""The report's answer: three readers, the oracle, marks on samples, the separation of the reward, one warning."""

import json
import re

import pytest

from rl_qg.data.oracle import BESIDE, SUMS, VERDICTS
from rl_qg.reports.report import run_summary, write_report
from rl_qg.reports.run_files import TABLES, read_run
from rl_qg.reports.views import outcome_text, warning
from rl_qg.runtime.errors import InputError
from tests.rl_qg.reports.run_folders import auc, evaluation, interval, page_of, reader, three_readers, write


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("runs") / "three", **three_readers())
    return folder, page_of(folder, output=folder / "report.html")


def run_of(folder, **changes):
    return write(folder, **{**three_readers(), **changes})


def test_the_page_answers_with_three_readers_at_equal_updates(three):
    _, page = three
    for text in (
        "What was learning by the reward worth?",
        "F1 of the reader on gold + SCST minus that on gold + CE: +2.0 points [−0.5, +4.5]; the interval includes 0",
        "657 updates each, 3 reader seeds",
        "F1, gold alone",
        "F1, gold + CE",
        "EM, gold + SCST",
        "64.8 → 66.8",
        "gold alone 61.8",
        "All make the same number of updates",
        "gold + SCST − gold alone",
        "EM: interval above 0",
        "CE generator 5,900",
        "right by the oracle (%) 70.0 [66.0, 74.0] 80.0 [76.0, 84.0] +10.0 [+6.0, +14.0] 100.0",
        "with a name or number that the passage lacks (%) 10.0 [6.0, 14.0] 7.5 [3.5, 11.5] −6.0 [−10.0, −2.0] 0.0",
        "invented name wrong detail name or number not in passage no subject named",
        "CE 70.0 [66.0, 74.0] 0.0 [0.0, 0.0] 0.0 [0.0, 0.0] 10.0 [6.0, 14.0] 0.0 [0.0, 0.0] 15.0 [11.0, 19.0] 5.0",
        "SCST − CE +10.0 [+6.0, +14.0] – – – – −5.0 [−9.0, −1.0] – −6.0 [−10.0, −2.0] –",
        "Parts of the reward",
    ):
        assert text in page.text, text
    assert page.open == [] and len(set(page.ids)) == len(page.ids)
    rise = '<td class="num total"><span class="up">'  # more right questions and fewer unsupported ones are both good
    assert f"{rise}+10.0</span>" in page.source and f"{rise}−6.0</span>" in page.source


def test_a_terminal_shows_the_same_tables_and_sentence(three):
    folder, page = three
    lines = outcome_text(read_run(folder)).splitlines()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    cells = {first: rest for first, *rest in table}
    assert cells["questions, held-out"] == ["CE", "SCST", "difference", "human"]
    right = ["70.0 [66.0, 74.0]", "80.0 [76.0, 84.0]", "+10.0 [+6.0, +14.0]"]  # as on the page, above
    assert cells["right by the oracle (%)"][:3] == right
    assert cells["gold alone"][1].startswith("61.8") and cells["gold + SCST"][1].startswith("66.8")
    assert lines[-1].startswith("F1 of the reader on gold + SCST minus that on gold + CE: +2.0 points")
    assert lines[-1] in page.text


def test_the_card_of_f1_names_updates_and_training_sizes(three, tmp_path):
    _, page = three
    card = "657 updates each, 3 reader seeds learned from 1,200 questions (gold alone), 3,200 (gold + CE), 3,200 (gold"
    assert f"{card} + SCST)" in page.text
    unknown = {f"qa/{name}/qa_metrics.json": reader(51.5, 61.8) for name in ("gold", "ce", "scst")}
    page = page_of(run_of(tmp_path / "unknown", **unknown), output=tmp_path / "report.html")
    assert "3 reader seeds number of questions learned from not recorded" in page.text


def test_the_algorithm_and_the_passages_without_questions_are_named(three, tmp_path):
    _, page = three
    assert "algorithm scst" in page.text
    assert "3,600 answers without questions learned from by the reward, 75 % of its examples" in page.text
    unused = {"trained.json": {"model": "scst"}}
    page = page_of(run_of(tmp_path / "unused", **unused), output=tmp_path / "report.html")
    assert "3,600 answers without questions, not used in training" in page.text
    other = {**unused, "config.yaml": "algorithm: best_of_n\nstages: both\n"}
    page = page_of(run_of(tmp_path / "other", **other), output=tmp_path / "report.html")
    assert "algorithm best_of_n" in page.text and "gold + best of n" in page.text
    assert "3,600 answers without questions sampled for too" in page.text


def test_samples_are_marked_by_the_oracle(three):
    """By hand: the first question became worse, the second better, the third is wrong before and after."""
    _, page = three
    assert (
        "Marked by the oracle of the embedded corpus: of 3, SCST became better than CE in 1, worse in 1." in page.text
    )
    assert page.words.count("better") == 1 and page.words.count("worse") == 1
    assert "Ada? worse ill formed" in page.text
    assert "Where does Ada live? better right" in page.text


def test_without_an_oracle_samples_are_marked_by_overlap_with_the_human_question(tmp_path):
    """ROUGE-L by hand, gold of four words: a question of three of them and one other beats one that shares two."""
    row = {"context": "Ada lives in Rome.", "answer": "Rome", "answer_start": 13, "gold": "Where does Ada live?"}
    near, far = "Where does Max live?", "Where is Ada now?"
    result = evaluation()
    pairs = [(far, near), (near, far), (near, near)]
    result["samples"] = [{**row, "id": str(number), "ce": ce, "scst": scst} for number, (ce, scst) in enumerate(pairs)]
    page = page_of(write(tmp_path / "run", **{"evaluation.json": result}), output=tmp_path / "report.html")
    assert "Marked by ROUGE-L to the human question: of 3, SCST became better than CE in 1, worse in 1." in page.text
    assert f"{near} better" in page.text and f"{far} worse" in page.text


def test_what_chose_the_model_is_said(tmp_path):
    texts = {}
    for name, choice in (
        ("none", {}),
        ("other", {"model_choice": {"by": "scst.stop_on=bleu4", "on": "other passages", "passages": 15}}),
        ("same", {"model_choice": {"by": "scst.stop_on=bleu4", "on": "the same passages"}}),
    ):
        run = write(tmp_path / name, **{"evaluation.json": evaluation() | choice})
        texts[name] = page_of(run, output=tmp_path / f"{name}.html").text
        summary = run_summary(read_run(run))
        assert summary.get("model_choice") == choice.get("model_choice")
    assert "The model was chosen by scst.stop_on=bleu4 on 15 other validation passages." in texts["other"]
    assert "chosen by scst.stop_on=bleu4 on these passages, so these numbers favour it." in texts["same"]
    assert "The model was chosen" not in texts["none"]


def test_the_separation_of_the_reward(three, tmp_path):
    _, page = three
    assert "Reward: reader|measure:probability" in page.text
    assert "another passage 0.970 [0.960, 0.980] 160" in page.text
    assert "wrong entity 0.520 [0.480, 0.560] 160 cannot tell" in page.text
    assert "all kinds 0.750 [0.730, 0.770] 160" in page.text and page.words.count("cannot tell") == 1
    page = page_of(run_of(tmp_path / "run", **{"separation.json": None}), output=tmp_path / "report.html")
    assert "No separation.json in this run folder" in page.text


def test_the_report_shows_what_the_generator_writes(tmp_path):
    blind = {"auc": 0.5, "auc_low": 0.4, "auc_high": 0.6, "passages": 30, "answers": 60}
    kinds = {"right": {"share": 0.7}, "other_subject": {"share": 0.01, **blind}}
    kinds["invented_name"] = {"share": 0.19, "low": 0.15, "high": 0.23, **blind}
    sampled = {"kinds": kinds, "wrong": {"share": 0.3, **blind, "auc_low": 0.51}}
    record = {"pairs": {"wrong_entity": auc(0.5, 0.07)}, "auc": auc(0.9, 0.02), "sampled": sampled}
    page = page_of(run_of(tmp_path / "run", **{"separation.json": record}), output=tmp_path / "report.html")
    assert "a name that nobody in the passage has 0.190 [0.150, 0.230] 0.500 [0.400, 0.600] cannot tell" in page.text
    assert page.words.count("cannot tell") == 1  # the other subject is rare: neither row of it is marked


def test_a_reward_that_prefers_wrong_questions_is_marked_in_words(tmp_path):
    shares = {"wrong_entity": auc(0.09, 0.04), "other_answer": auc(0.9, 0.04), "copied": {"auc": 0.2, "n": 3}}
    files = {"separation.json": {"pairs": shares}, "metrics.jsonl": None}
    page = page_of(run_of(tmp_path / "run", **files), output=tmp_path / "report.html")
    assert "wrong entity 0.090 [0.050, 0.130] 160 prefers the wrong one other answer 0.900" in page.text
    assert page.words.count("prefers the wrong one") == 1 and "cannot tell" not in page.words
    bars = re.findall(r'<b style="width: (\S+)%; --c: var\(--(\w+)\)">', page.source)
    assert ("9.0", "bad") in bars and ("90.0", "greedy") in bars


def fallen(bleu4=0.15, right=0.6, f1=64.0, halves=None):
    """Changes of a run whose reward rose while measures fell: BLEU-4 from 0.174, right from 70 %, F1 from 64.8.

    `halves`: half-widths of the intervals of the differences, None for a difference without one.
    """
    changes = three_readers()
    result = changes["evaluation.json"]
    result["models"]["scst"] |= {"bleu4": bleu4, "oracle": {"right": interval(right, 0.04)}}
    changes["qa/scst/qa_metrics.json"]["f1"] = f1
    halves = {"reward": 0.01, "bleu4": 0.03, "right": 0.04, "f1": 0.5} | (halves or {})
    moved = {"reward": 0.05, "bleu4": bleu4 - 0.1743, "right": right - 0.7, "f1": f1 - 64.8}
    parts = {name: moved[name] if half is None else interval(moved[name], half) for name, half in halves.items()}
    result["difference"] = {"reward": parts["reward"], "bleu4": parts["bleu4"], "oracle": {"right": parts["right"]}}
    changes["qa/comparison.json"]["differences"]["scst - ce"]["f1"] = parts["f1"]
    return changes


@pytest.mark.parametrize(("better", "expected"), [({}, True), ({"right": 0.8}, False), ({"f1": 65.0}, False)])
def test_one_line_where_the_reward_rose_and_everything_else_fell(tmp_path, better, expected):
    folder = write(tmp_path / "run", **fallen(**better))
    page = page_of(folder, output=tmp_path / "report.html")
    line = (
        "The reward rose and every held-out measure fell: BLEU-4 0.174 → 0.150, right by the oracle in % 70.0 → 60.0, "
        "reader F1 64.8 → 64.0."
    )
    assert (line in page.text) is expected
    assert run_summary(read_run(folder))["every_held_out_measure_fell"] is expected
    first_card = page.text.index("Reward, CE → SCST")
    assert not expected or first_card < page.text.index(line) < page.text.index("BLEU-4 (0–1), CE → SCST")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),  # of the oracle and the reader the interval is below 0, of BLEU-4 it is not
        ({"right": 0.69, "f1": 64.7}, False),  # of none it is
        ({"right": 0.69, "f1": 64.7, "halves": {"bleu4": 0.01}}, True),
        ({"halves": {"reward": 0.06}}, False),  # the reward may not have risen
        ({"right": 0.69, "f1": 64.7, "halves": {"reward": None, "bleu4": None}}, True),  # 14 % of BLEU-4
        ({"bleu4": 0.165, "right": 0.69, "f1": 64.7, "halves": {"bleu4": None}}, False),  # 5 %
        ({"bleu4": 0.165, "right": 0.62, "f1": 64.7, "halves": {"right": None}}, True),  # 11 % of the right ones
        ({"bleu4": 0.165, "right": 0.64, "f1": 64.7, "halves": {"right": None}}, False),  # 9 %
    ],
)
def test_the_line_needs_more_than_noise(tmp_path, changes, expected):
    run = read_run(write(tmp_path / "run", **fallen(**changes)))
    assert bool(warning(run)) is expected
    assert run_summary(run)["every_held_out_measure_fell"] is expected


def test_a_reward_without_an_interval_must_rise_by_one_percent(tmp_path):
    changes = fallen(halves={"reward": None})
    changes["evaluation.json"]["models"]["scst"]["reward"] = 0.3129  # from 0.31
    assert not warning(read_run(write(tmp_path / "little", **changes)))
    changes["evaluation.json"]["models"]["scst"]["reward"] = 0.3134
    assert warning(read_run(write(tmp_path / "more", **changes)))


def test_no_warning_where_the_reward_fell_too(tmp_path):
    changes = fallen()
    changes["evaluation.json"]["models"]["scst"]["reward"] = interval(0.3, 0.02)
    changes["evaluation.json"]["difference"]["reward"] = interval(-0.01, 0.005)
    page = page_of(write(tmp_path / "run", **changes), output=tmp_path / "report.html")
    assert "every held-out measure fell" not in page.text


def test_the_summary_has_three_readers_and_keeps_the_older_fields(three):
    folder, _ = three
    summary = json.loads((folder / "summary.json").read_text())
    qa = summary["qa"]
    assert qa["gold"]["f1"] == {"mean": 61.8, "low": 58.8, "high": 64.8, "n": 80}
    assert qa["ce"]["exact_match"]["mean"] == 53.9 and qa["scst"]["f1"]["mean"] == 66.8
    for name in ("gold", "ce", "scst"):
        assert (qa[name]["seeds"], qa[name]["updates"]) == ([0, 1, 2], 657)
    assert list(qa["differences"]) == ["ce - gold", "scst - gold", "scst - ce"]
    assert qa["differences"]["scst - ce"]["f1"] == {**interval(2.0, 2.5, 80), "excludes_zero": False}
    assert qa["differences"]["ce - gold"]["exact_match"]["excludes_zero"] is True
    assert qa["augmented"] == qa["scst"] and qa["difference"] == qa["differences"]["scst - gold"]
    assert summary["oracle"]["ce"]["right"] == interval(0.7, 0.04)
    assert summary["oracle"]["difference"]["right"] == {**interval(0.1, 0.04), "excludes_zero": True}
    assert tuple(TABLES["verdicts"]) == VERDICTS
    assert list(summary["oracle"]["scst"]) == [*VERDICTS, *SUMS, *BESIDE]
    assert sum(summary["oracle"]["scst"][verdict]["mean"] for verdict in VERDICTS) == pytest.approx(1)
    assert summary["every_held_out_measure_fell"] is False


def test_a_run_without_updates_oracle_and_separation(tmp_path):
    folder = write(tmp_path / "run")
    page = page_of(folder, output=tmp_path / "report.html")
    assert "F1 of the reader on gold + SCST minus that on gold alone: +3.4 points [+1.8, +5.0]" in page.text
    assert "part of a difference may be longer training" in page.text
    assert "oracle" not in page.text and "algorithm" not in page.text
    qa = run_summary(read_run(folder))["qa"]
    assert qa["ce"] is None and qa["augmented"] == qa["scst"] and qa["scst"]["f1"]["mean"] == 65.2
    assert qa["scst"]["updates"] is None and list(qa["differences"]) == ["scst - gold"]


@pytest.mark.parametrize("missing", [name for name, content in three_readers().items() if content is not None])
def test_any_one_of_the_new_files_may_be_missing(tmp_path, missing):
    page = page_of(run_of(tmp_path / "run", **{missing: None}), output=tmp_path / "report.html")
    assert "None" not in page.text and page.open == []


def test_a_run_of_cross_entropy_alone_has_two_readers(tmp_path):
    changes = three_readers()
    comparison = changes["qa/comparison.json"]
    comparison["differences"] = {"ce - gold": comparison["differences"]["ce - gold"]}
    comparison["difference"] = comparison["differences"]["ce - gold"]
    changes |= {"qa/scst/qa_metrics.json": None, "config.yaml": "algorithm: scst\nstages: ce\n"}
    folder = write(tmp_path / "run", **changes)
    page = page_of(folder, output=tmp_path / "report.html")
    assert "F1 of the reader on gold + CE minus that on gold alone: +3.0 points" in page.text
    assert "gold + SCST" not in page.text
    qa = run_summary(read_run(folder))["qa"]
    assert qa["augmented"] == qa["ce"] and qa["scst"] is None


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("separation.json", '{"pairs": {"a": {"auc": "high"}}}', "field auc: expected a number, got str"),
        ("separation.json", '{"pairs": 3}', "field pairs: expected an object"),
        ("qa/ce/qa_metrics.json", '{"f1": 5, "updates": "many"}', "field updates: expected a number"),
        ("evaluation.json", '{"samples": [{"oracle": {"ce": "good"}}]}', "expected one of right, ill_formed"),
        ("qa/comparison.json", '{"differences": {"scst - ce": {"f1": "more"}}}', "scst - ce.f1: expected a number"),
    ],
)
def test_a_broken_new_file_is_named(tmp_path, name, content, where):
    folder = run_of(tmp_path / "run", **{name: content})
    with pytest.raises(InputError) as caught:
        write_report([folder], tmp_path / "report.html")
    assert str(folder / name) in str(caught.value) and where in str(caught.value)


@pytest.mark.slow
def test_new_and_older_runs_side_by_side(tmp_path):
    older, newer = write(tmp_path / "older"), run_of(tmp_path / "newer")
    page = page_of(older, newer, output=tmp_path / "report.html")
    assert "SCST − CE" in page.text and "last − gold" in page.text
    row = page.text[page.text.index("newer seed 13") :]
    assert row.index("61.8") < row.index("64.8") < row.index("66.8") < row.index("+2.0")
