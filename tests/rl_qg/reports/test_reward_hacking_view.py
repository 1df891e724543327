"""The section "Is the reward being hacked?" and the held-out measures, on the page and in summary.json."""

import json

import pytest

from rl_qg.reports.report import run_summary
from rl_qg.reports.run_files import MEASURES, JsonObject, Metrics, read_run
from rl_qg.scoring.held_out import DIRECTION
from tests.rl_qg.reports.run_folders import evaluation, interval, metrics, page_of, write

START = {"reward_greedy": 0.3, "held_out": -2.0, "bleu4": 0.17, "rouge_l": 0.4, "loss": 1.0, "kl": 0.1}
START |= {"distinct_1": 0.4, "distinct_2": 0.8, "length_words": 11.0, "copy_rate": 0.2}
START |= {"no_question_mark": 0.01, "repeated_3grams": 0.01, "unsupported": 0.05}


def evaluations(**ends):
    """60 steps of both stages, evaluated each fifth; in the second stage `ends` are reached in a straight line."""
    lines = [line for line in metrics() if "eval_loss" not in line]
    for step in range(5, 61, 5):
        fraction = max(0, step - 30) / 30
        values = {key: value + fraction * (ends.get(key, value) - value) for key, value in START.items()}
        if step <= 30:
            del values["kl"]
        stage = "ce" if step <= 30 else "scst"
        lines.append({"step": step, "stage": stage, **{f"eval_{key}": value for key, value in values.items()}})
    return "".join(json.dumps(line) + "\n" for line in lines)


def evaluation_with_measures(**scst):
    result = evaluation()
    for model, mean in (("gold", -1.9), ("ce", -2.0), ("scst", -2.4)):
        result["models"][model] |= {"held_out": interval(mean, 0.1), "copy_rate": 0.21, "distinct_2": 0.8}
    result["models"]["scst"] |= scst
    return {**result, "held_out_signature": "bartscore|direction:faithfulness"}


def page(folder, lines, **files):
    return page_of(write(folder, **{"metrics.jsonl": lines}, **files), output=folder / "report.html")


def section(report):
    text = report.text
    return text[text.index("Is the reward being hacked?") : text.index("Samples", text.index("hacked?") + 60)]


@pytest.mark.slow
def test_every_measure_of_an_evaluation_has_its_plot(tmp_path):
    report = page(tmp_path, evaluations(reward_greedy=0.36))
    assert {measure.key for measure in MEASURES} == set(DIRECTION) | {"kl"}
    for measure in MEASURES:
        assert measure.label in report.words
    assert report.source.count('<figure class="mini') == len(MEASURES)
    assert report.open == [] and len(set(report.ids)) == len(report.ids)


@pytest.mark.slow
def test_a_reward_that_rises_while_others_fall_is_flagged_in_words(tmp_path):
    lines = evaluations(reward_greedy=0.36, bleu4=0.09, copy_rate=0.6, no_question_mark=0.02)
    report = page(tmp_path, lines)
    assert "Reward up, BLEU-4 down, copied 2-grams up: look at the samples" in section(report)
    assert "BLEU-4: 0.157 → 0.103 · Copied 2-grams: 27 % → 53 %" in section(report)
    assert report.source.count('<figure class="mini wrong"') == 2
    assert "No sign of it" not in report.text
    assert run_summary(read_run(tmp_path))["diverging"]["bleu4"] == {
        "start": pytest.approx(0.17 - 0.08 / 6),
        "end": pytest.approx(0.17 - 0.08 * 5 / 6),
    }


@pytest.mark.slow
def test_many_measures_are_counted_in_the_headline_and_listed_below(tmp_path):
    ends = {"held_out": -3, "bleu4": 0.05, "rouge_l": 0.2, "distinct_1": 0.2, "length_words": 30}
    text = section(page(tmp_path, evaluations(reward_greedy=0.36, **ends)))
    assert "Reward up, held-out reward down, BLEU-4 down, ROUGE-L down, 2 more: look at the samples" in text
    assert "Words per question: 14.2 → 26.8" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ({"reward_greedy": 0.36, "kl": 5.0}, "No sign of it"),
        ({"reward_greedy": 0.36, "bleu4": 0.2, "copy_rate": 0.1, "loss": 0.5}, "No sign of it"),
        ({"bleu4": 0.05}, "The optimised reward did not go up"),
    ],
)
def test_nothing_is_flagged_otherwise(tmp_path, ends, verdict):
    report = page(tmp_path, evaluations(**ends))
    assert verdict in section(report)
    assert "look at the samples" not in report.text and "mini wrong" not in report.source
    assert run_summary(read_run(tmp_path))["diverging"] == {}


@pytest.mark.slow
def test_too_few_evaluations_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("rl_qg.reports.views.FEWEST", 7)
    few = [line for line in evaluations(reward_greedy=0.9, bleu4=0.01).splitlines() if json.loads(line)["step"] <= 40]
    assert "Fewer than 7 evaluations since" in section(page(tmp_path, "\n".join(few)))


def test_cross_entropy_alone_is_reported(tmp_path):
    alone = [line for line in evaluations().splitlines() if json.loads(line)["stage"] == "ce"]
    assert "no reward has been optimised" in section(page(tmp_path, "\n".join(alone)))


def test_older_runs_without_these_measures_have_a_line_instead(tmp_path):
    report = page(tmp_path, "".join(json.dumps(line) + "\n" for line in metrics()))
    assert "This run logged no held-out measures" in report.text
    assert '<figure class="mini' not in report.source
    assert run_summary(read_run(tmp_path))["held_out"]["difference"] is None


def test_measures_of_older_runs_are_flagged_too(tmp_path):
    lines = [json.loads(line) for line in evaluations(reward_greedy=0.36, loss=2.0).splitlines()]
    known = {"step", "stage", "eval_loss", "eval_reward_greedy"}
    lines = "".join(json.dumps({key: line[key] for key in line.keys() & known}) + "\n" for line in lines)
    assert "Reward up, cross-entropy of gold up: look at the samples" in section(page(tmp_path, lines))


@pytest.mark.slow
def test_human_questions_are_the_dotted_line(tmp_path):
    lines = evaluations(reward_greedy=0.36)
    assert (
        "Dotted: human questions"
        in page(tmp_path / "with", lines, **{"evaluation.json": evaluation_with_measures()}).text
    )
    assert "Dotted" not in page(tmp_path / "without", lines, **{"evaluation.json": None}).text


@pytest.mark.slow
def test_the_table_holds_what_was_measured_and_no_empty_column(tmp_path):
    lines = evaluations(reward_greedy=0.36)
    report = page(tmp_path / "new", lines, **{"evaluation.json": evaluation_with_measures(copy_rate=0.613)})
    cells = report.text.replace("\N{NON-BREAKING HYPHEN}", "-")
    assert "Greedy, held-out reward held-out reward BLEU-4 (0–1) words per question" in cells
    assert "distinct 2-grams (%) copied 2-grams (%) human" in cells and "61.3" in cells
    assert "−2.40 [−2.50, −2.30]" in cells
    assert "bartscore|direction:faithfulness" in cells
    old = page(tmp_path / "old", lines)
    assert "held-out reward BLEU" not in old.text.replace("\N{NON-BREAKING HYPHEN}", "-").split("Training")[0]


@pytest.mark.slow
def test_the_held_out_reward_has_its_difference(tmp_path):
    result = evaluation_with_measures()
    result["difference"]["held_out"] = interval(-0.4, 0.1)
    text = page(tmp_path, evaluations(), **{"evaluation.json": result}).text
    assert "held-out reward −0.40 [−0.50, −0.30] interval below 0" in text
    assert run_summary(read_run(tmp_path))["held_out"]["difference"]["excludes_zero"] is True


@pytest.mark.slow
def test_compared_runs_show_their_flags(tmp_path):
    bad = write(tmp_path / "bad", **{"metrics.jsonl": evaluations(reward_greedy=0.36, bleu4=0.09, rouge_l=0.2)})
    good = write(tmp_path / "good", **{"metrics.jsonl": evaluations(reward_greedy=0.36)})
    report = page_of(bad, good, output=tmp_path / "report.html")
    assert report.words.count("reward up, BLEU-4 down, 1 more") == 2  # in the comparison and on the run's own card
    assert len(set(report.ids)) == len(report.ids) and {a[1:] for a in report.addresses} <= set(report.ids)


def test_a_stage_begins_with_the_last_evaluation_before_it(tmp_path):
    steps = [("ce", 10, 1.0), ("ce", 20, 2.0), ("ce", 25, None), ("scst", 30, 3.0), ("scst", 40, float("nan"))]
    lines = [JsonObject(tmp_path, {"stage": stage, "step": step, "eval_x": value}) for stage, step, value in steps]
    assert Metrics(tuple(lines)).self_critical("eval_x") == [2.0, 3.0]
    assert Metrics(tuple(lines[:3])).self_critical("eval_x") == []
    assert Metrics(tuple(lines[3:])).self_critical("eval_x") == [3.0]
