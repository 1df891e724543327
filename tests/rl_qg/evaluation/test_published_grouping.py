"""The published numbers of lmqg to six digits, and what is unfair about them, on real questions."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rewards import load
from rewards.base import Inputs, MetricResult
from rewards.overlap.base import OverlapMetric
from rewards.overlap.published_lmqg import normalised_as_published
from rl_qg.commands.cli import run_command
from rl_qg.evaluation.references import FirstReference, as_published, grouped_rows, stated_sentence
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import processes
from rl_qg.scoring.kept_scores import MetricRow
from rl_qg.scoring.metrics import PartOf, load_metrics
from rl_qg.settings import EvaluateSettings, Settings
from tests.real_languages import DATA, FILES, WRITTEN, real_records
from tests.toy_metrics import write_lines

NQG = "lmqg_nqg_baseline"


def lines(path: str) -> list[str]:
    if not (DATA / path).exists():
        pytest.skip(f"the published outputs (../shared/data/{path}) are not here")
    return gzip.decompress((DATA / path).read_bytes()).decode().split("\n")[:11877]


def corpus(metric: Any, questions: list[str], references: list[list[str]]) -> float:
    return float(metric.corpus(metric.statistics(questions, references).sum(0)))


@pytest.mark.parametrize("level", ["answer", "sentence"])
def test_the_published_numbers_of_the_nqg_baseline(level: str) -> None:
    texts = [lines(path) for path in (f"{NQG}/nonlm_fixed.sample.test.hyp.txt.gz", "nqg/tgt-test.txt.gz")]
    rows = [
        MetricRow("", question, references=(gold,), sentence=sentence)
        for question, gold, sentence in zip(*texts, lines("nqg/src-test.txt.gz"), strict=True)
    ]
    rows = grouped_rows(rows, level, "first")
    assert len(rows) == {"answer": 11877, "sentence": 6652}[level]
    questions, references = [row.question for row in rows], [list(row.references or ()) for row in rows]
    published = json.loads((DATA / NQG / f"metric.first.{level}.json").read_text())["test"]
    counts = load("lmqg_bleu4").statistics(questions, references).sum(0)
    for order in range(1, 5):  # counts of the lower orders are among those of the highest
        chosen = [0, 1, *range(2, 2 + order), *range(6, 6 + order)]
        value = float(load(f"lmqg_bleu{order}").corpus(counts[chosen]))
        assert value == pytest.approx(published[f"Bleu_{order}"], abs=5e-7)
    rouge = load("lmqg_rouge_l").score(questions, references=references).scores
    assert np.mean(rouge) == pytest.approx(published["ROUGE_L"], abs=5e-7)


def test_human_questions_in_german_do_not_match_themselves_as_published() -> None:
    questions = [record.question for record in real_records("de", 1190)]
    gold = [[question] for question in questions]
    assert corpus(load("lmqg_bleu4"), questions, gold) == pytest.approx(0.119, abs=5e-4)
    assert np.mean(load("lmqg_rouge_l").score(questions, references=gold).scores) == pytest.approx(0.462, abs=5e-4)


def assert_perfect(questions: list[str], language: str) -> None:
    """Every question against itself: 100 under each metric, with the tokenisers that evaluate takes for a language."""
    names = ["bleu1", "bleu4", "rouge_l", "coco_rouge_l", "gleu", "chrf"]
    for label, metric in load_metrics(names, Settings(), processes(use_cpu=True), language=language).items():
        any_metric: Any = metric
        references = [[question] for question in questions]
        assert any_metric.score(questions, references=references).scores == pytest.approx([1.0] * len(questions)), (
            label
        )
        if hasattr(metric, "statistics"):
            assert corpus(metric, questions, references) == pytest.approx(1.0)


@pytest.mark.parametrize("code", FILES)
def test_human_questions_score_100_against_themselves(code: str) -> None:
    assert_perfect([record.question for record in real_records(code, 150)], code)


@pytest.mark.parametrize("code", [*WRITTEN, "other"])
def test_questions_in_each_script_score_100_against_themselves(code: str) -> None:
    assert_perfect([WRITTEN.get(code, "Nork egin zuen zubi hau?")], code)


class FixedWords(OverlapMetric):
    """A metric that has one way to split words, as the true-cased Q-BLEU."""

    name, tokenize = "fixed_words", "ptb"

    def compute(self, inputs: Inputs) -> MetricResult:
        return MetricResult([1.0] * len(inputs.questions), {})

    def choices(self) -> Mapping[str, object]:
        return {}


def test_a_metric_without_the_option_keeps_its_words_in_every_language() -> None:
    entry = {"_target_": f"{__name__}.FixedWords", "label": "fixed"}
    assert [*load_metrics([entry], Settings(), processes(use_cpu=True), language="tr")] == ["fixed"]


def test_tokenisers_of_a_language_are_in_the_signature_and_those_of_the_user_stay() -> None:
    def signatures(language: str, *entries: Any) -> list[str]:
        loaded: dict[str, Any] = load_metrics([*entries], Settings(), processes(use_cpu=True), language=language)
        return [metric.signature for metric in loaded.values()]

    chosen: Any = {"metric": "bleu4", "tokenize": "13a"}
    assert "tokenize:13a+char|" in signatures("en", "bleu4")[0]
    assert "tokenize:intl+char|" in signatures("ar", "bleu4")[0] and "tokenize:13a|" in signatures("ar", chosen)[0]
    assert "tokenize:words+tr|" in signatures("tr", "rouge_l")[0]
    assert "stages:exact|" in signatures("de", "meteor")[0]
    turkish = load_metrics(["rouge_l"], Settings(), processes(use_cpu=True), language="tr")["rouge_l"]
    english = load_metrics(["rouge_l"], Settings(), processes(use_cpu=True))["rouge_l"]
    pair: Any = (["ISPARTA nerede"],), {"references": [["Isparta nerede"]]}
    other: Any = (["ISPARTA nerede"],), {"references": [["ısparta nerede"]]}
    assert [m.score(*pair[0], **pair[1]).scores for m in (turkish, english)] == [[1.0], [1.0]]
    assert [m.score(*other[0], **other[1]).scores[0] for m in (turkish, english)] == [1.0, pytest.approx(0.5)]


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("first", "bbb"), ("last", "cc"), ("long", "dddd"), ("short", "cc"), ("middle", "bbb")],
)
def test_one_question_of_each_sentence(aggregation: str, expected: str) -> None:
    texts = ["bbb", "dddd", "cc"]
    rows = [MetricRow(text, text, references=(f"r{text}",), sentence=f" The {text[:0]}End ") for text in texts]
    [row] = grouped_rows(
        [*rows[:2], MetricRow("", "cc", references=("rcc",), sentence="the end")], "sentence", aggregation
    )
    assert (row.question, row.references) == (expected, ("rbbb", "rdddd", "rcc"))


def test_the_sentence_of_an_answer_whose_place_is_known() -> None:
    context = "It is old. Ida built it in 1902. It stands."
    start = context.index("Ida")
    assert stated_sentence(start, context, "Ida") == "Ida built it in 1902."
    assert stated_sentence(0, context, "Ida") is None
    assert stated_sentence(None, context, "Ida") is None and stated_sentence(start, None, "Ida") is None


def test_what_grouping_needs() -> None:
    with pytest.raises(InputError, match=r"f: line 1: 'sentence' is missing .*columns.sentence=… names"):
        grouped_rows([MetricRow("f: line 1", "q", references=("r",))], "sentence", "first")
    with pytest.raises(InputError, match="'references' is missing, and compat=lmqg needs it"):
        grouped_rows([MetricRow("f: line 1", "q")], "answer", "first")
    [fault] = EvaluateSettings(level="sentence").faults()
    assert fault.startswith("level=sentence is a way to score of compat")
    [fault] = EvaluateSettings(compat="lmqg", aggregation="last").faults()
    assert fault.startswith("aggregation=last is for level=sentence or paragraph")


def test_only_the_first_reference() -> None:
    rouge = load("rouge_l")
    metric = FirstReference(rouge)
    assert metric.score(["a b"], references=[["a c", "a b"]]).scores == [pytest.approx(0.5)]
    assert rouge.score(["a b"], references=[["a c", "a b"]]).scores == [1.0]
    assert metric.signature == f"{rouge.signature}|references:first"
    cider = load("cider")
    assert FirstReference(cider).whole_set and FirstReference(cider).needs == cider.needs
    assert as_published({"cider": cider}) == {"cider": cider}  # lmqg has none
    bertscore: Any = SimpleNamespace(name="bertscore", signature="bertscore", part_names=("precision",))
    assert isinstance(as_published({"p": PartOf(bertscore, "precision", "p")})["p"], FirstReference)


def test_normalisation_as_published() -> None:
    assert (
        normalised_as_published('Is "Ida\'s" mill (old) 5% of $9, or...')
        == "is `` ida 's '' mill -lrb -old -rrb - 5 % of $9 , or ..."
    )


def test_the_command_names_what_it_did(tmp_path: Path) -> None:
    rows = [
        {
            "question": question,
            "references": [WRITTEN["de"]],
            "sentence": sentence,
            "context": "Die Brücke ist alt und schön.",
        }
        for question, sentence in (
            (WRITTEN["de"], "Eins."),
            ("Who built the old bridge in the town?", "eins."),
            ("Who built the old bridge and when?", "Zwei."),
            ("Кто построил мост?", "Drei."),
        )
    ]
    source = write_lines(tmp_path / "q.jsonl", rows)
    options = [f"predictions={source}", "metrics=[bleu4,rouge_l]", "resamples=40"]
    run_command("evaluate", [*options, f"output={tmp_path / 'fair'}"])
    fair = json.loads((tmp_path / "fair" / "evaluate.json").read_text())
    assert fair["settings"]["language"] == "de" and "tokenize:intl+char" in fair["signatures"]["bleu4"]
    share = fair["languages"]["q"]
    assert (share["in_script"], share["in_language"], share["others"]) == (0.75, 0.25, {"en": 2, "ru": 1})
    assert "Language of the questions" in (tmp_path / "fair" / "evaluate.html").read_text()
    assert "Language not known" not in (tmp_path / "fair" / "evaluate.txt").read_text()
    run_command("evaluate", [*options, "compat=lmqg", "level=sentence", f"output={tmp_path / 'published'}"])
    unknown = write_lines(tmp_path / "unknown.jsonl", [{"question": "Zilk 1902?", "references": ["Zilk?"]}])
    output = tmp_path / "unknown"
    run_command("evaluate", [f"predictions={unknown}", "metrics=[bleu1]", "resamples=40", f"output={output}"])
    assert "Language not known" in (output / "evaluate.txt").read_text()
    published = json.loads((tmp_path / "published" / "evaluate.json").read_text())
    assert published["counts"]["q"]["questions"] == 3 and "sides:questions" in published["signatures"]["bleu4"]
    assert "compat=lmqg" in (tmp_path / "published" / "evaluate.txt").read_text()
