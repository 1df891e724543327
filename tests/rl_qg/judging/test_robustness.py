"""`rl-qg robustness`: areas of metrics that know the answer or nothing, and the file of the questions made."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.judging.robustness import robustness
from rl_qg.runtime.errors import InputError
from rl_qg.settings import RobustnessSettings
from tests.toy_metrics import WordCount, write_lines

COLOURS = "red blue grey green white black brown pink".split()
NAMES = ["Ada Bell", "Carl Foss", "Ilva Maron", "Nils Holt"]


def human(count: int = 8) -> list[dict[str, Any]]:
    rows = []
    for number in range(count):
        name, other = NAMES[number % 4], NAMES[(number + 1) % 4]
        context = f"In {1900 + number} it was {name} who met {other} in Lorn. Later {other} left."
        question = f"How many people met {name} in his {COLOURS[number]} town?"
        rows.append({"question": question, "context": context, "answer": other})
    return [*rows, {"question": "Name the river.", "context": "It was Lorn.", "answer": "Lorn"}]


def german(count: int = 8) -> list[dict[str, Any]]:
    """What `human` gives, in German: `was` is a word of both languages."""
    rows = []
    for number in range(count):
        name, other = NAMES[number % 4], NAMES[(number + 1) % 4]
        context = f"Im Jahr {1900 + number} traf {name} in Lorn {other}. Dann ging {other} nach Tessel."
        rows.append({"question": f"Was hat {name} danach getan?", "context": context, "answer": "traf"})
    return rows


def german_pairs(tmp_path: Path) -> str:
    other_words = {row["question"]: row["question"].replace("getan", "gemacht") for row in german()}
    pairs = [{"question": question, "paraphrase": other} for question, other in other_words.items()]
    return str(write_lines(tmp_path / "p.jsonl", pairs))


class Sparse(WordCount):
    """Gives every second question no score."""

    def score(self, questions, contexts, **columns) -> Any:
        values = super().score(questions, contexts, **columns).scores
        return SimpleNamespace(scores=[value if number % 2 else None for number, value in enumerate(values)])


class Knows(WordCount):
    """Scores each question by its kind, which it reads from the file of the questions made."""

    def __init__(self, path: Path, value: dict[str, float]) -> None:
        super().__init__(needs=("contexts",))
        self.path, self.value, self.signature = path, value, f"knows{value}"

    def score(self, questions, contexts, **columns) -> Any:
        kinds = {row["question"]: row["kind"] for row in lines(self.path)}
        return SimpleNamespace(scores=[self.value.get(kinds[question], 0.0) for question in questions])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run(tmp_path: Path, rows: Any = None, metrics: Any = None, **options: Any) -> dict[str, Any]:
    source = write_lines(tmp_path / "in.jsonl", rows or human())
    given = {"input": str(source), "resamples": 40, "spacy_model": "", **options}
    made = tmp_path / "out" / "questions.jsonl"
    sees = Knows(made, {"original": 1.0, "paraphrase": 1.0, "pronoun": 2.0})
    return robustness(metrics or {"sees": sees, "blind": WordCount()}, RobustnessSettings(**given), tmp_path / "out")


def pick(record: dict[str, Any], metric: str, kind: str) -> dict[str, Any]:
    (row,) = [row for row in record["results"] if (row["metric"], row["kind"]) == (metric, kind)]
    return row


def test_areas_by_kind(tmp_path: Path) -> None:
    record = run(tmp_path)
    assert pick(record, "sees", "entity")["paraphrase"]["value"] == 1.0
    assert pick(record, "sees", "negation")["original"]["value"] == 1.0
    assert pick(record, "sees", "pronoun")["paraphrase"]["value"] == 0.0  # it likes what is wrong
    counts = {kind: record["counts"][kind]["made"] for kind in ("entity", "pronoun", "negation")}
    assert counts["pronoun"] == counts["negation"] == 8
    assert pick(record, "sees", "all")["paraphrase"]["value"] == pytest.approx(
        (counts["entity"] + 8) / (counts["entity"] + 16)
    )
    low = 1 - (1 - 0.025 ** (1 / 8))  # the exact binomial end for 0 of eight passages
    assert pick(record, "sees", "entity")["own_pair"] == {
        **{"value": 1, "low": pytest.approx(low), "high": 1, "n": 8, "ties": 0}
    }
    blind = pick(record, "blind", "pronoun")["own_pair"]
    assert blind["n"] == 8 and blind["value"] == 1.0  # "What number of": a word more
    assert 0 <= pick(record, "blind", "all")["paraphrase"]["low"] <= 1


def test_every_question_made_names_its_change_and_the_others_are_counted(tmp_path: Path) -> None:
    record = run(tmp_path)
    made = lines(tmp_path / "out" / "questions.jsonl")
    for kind in ("entity", "pronoun", "negation", "paraphrase"):
        rows_of_kind = [row for row in made if row["kind"] == kind]
        assert record["counts"][kind] == {"made": len(rows_of_kind), "no_rule_applies": 9 - len(rows_of_kind)}
        assert len(rows_of_kind) == 8, kind
        for row in rows_of_kind:
            original = made[[one["number"] for one in made].index(row["number"])]
            assert original["kind"] == "original" and row["references"] == [original["question"]]
            if kind != "paraphrase":
                assert original["question"].replace(row["before"], row["after"], 1) == row["question"]
    assert "Name the river." in {row["question"] for row in made if row["kind"] == "original"}


def test_a_metric_of_references_has_no_area_for_questions_that_are_their_own_reference(tmp_path: Path) -> None:
    metrics = {"refs": WordCount(needs=("references",)), "free": WordCount()}
    record = run(tmp_path, metrics=metrics)
    assert pick(record, "refs", "entity")["original"]["why"] == "the question is its own reference"
    assert pick(record, "free", "entity")["original"]["value"] is not None
    record = run(tmp_path, [{**row, "references": ["Who?"]} for row in human()], metrics)
    assert record["references"] == "those of the input"
    assert pick(record, "refs", "entity")["original"]["value"] is not None


def test_supplied_paraphrases_and_a_sample(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rows = human()
    pairs = write_lines(tmp_path / "p.jsonl", [{"question": rows[0]["question"], "paraphrase": "Whom?"}])
    metrics = {"words": WordCount()}
    record = run(tmp_path, metrics=metrics, paraphrases=str(pairs), kinds=["negation"])
    assert record["counts"]["paraphrase"] == {"made": 1, "no_rule_applies": 8}
    assert [row["kind"] for row in record["results"]] == ["negation"]
    few = run(tmp_path, metrics=metrics, max_questions=3)
    assert (few["counts"]["questions"], few["counts"]["in_file"]) == (3, 9)
    assert "robustness.max_questions=3: 3 of 9 questions are used" in caplog.messages
    assert "3 human questions of 9 in the file; made" in (tmp_path / "out" / "robustness.txt").read_text("utf-8")


def test_references_count_row_by_row(tmp_path: Path) -> None:
    rows = [{**row, "references": ["Who?"]} for row in human()]
    rows[0]["references"] = None
    rows[1]["references"] = [rows[1]["question"]]
    metrics = {"refs": WordCount(needs=("references",)), "free": WordCount()}
    record = run(tmp_path, rows, metrics, kinds=["negation"])
    assert record["references"] == "those of the input; for 2 of 9 questions the human question itself"
    made = lines(tmp_path / "out" / "questions.jsonl")
    assert {row["number"] for row in made if row["references"] != ["Who?"]} == {0, 1}
    used = {name: pick(record, name, "negation")["original"]["n"] for name in metrics}
    assert used == {"refs": 7 + 6, "free": 9 + 8}  # questions as they were and negated ones; one cannot be negated


def test_questions_without_a_score_are_counted(tmp_path: Path) -> None:
    record = run(tmp_path, metrics={"sparse": Sparse(), "words": WordCount()}, kinds=["negation"])
    made = 9 + 8 + 8
    assert record["counts"]["without_score"] == {"sparse": (made + 1) // 2}
    text = (tmp_path / "out" / "robustness.txt").read_text(encoding="utf-8")
    assert "Questions without a score: sparse 13" in text and " negation (16) |" in text
    sparse = pick(record, "sparse", "negation")
    assert sparse["paraphrase"]["n"] + sparse["original"]["n"] < 2 * 16
    assert "Only 8 passages" not in text and "Only 9 passages" in text


def test_a_supplied_paraphrase_equal_to_the_question_does_not_count(tmp_path: Path) -> None:
    texts = dict.fromkeys(row["question"] for row in human(4))
    pairs = [{"question": text, "paraphrase": text.replace("met", " met")} for text in texts]
    pairs[0]["paraphrase"] = "Whom?"
    supplied = str(write_lines(tmp_path / "p.jsonl", pairs))
    record = run(tmp_path, human(4), {"words": WordCount()}, paraphrases=supplied)
    assert record["counts"]["paraphrase"] == {"made": 1, "no_rule_applies": 4}


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"question": "q"}], {}, r"in\.jsonl: line 1: field 'context' is missing"),
        ([{"question": "Name it.", "context": "c"}], {}, "there is no paraphrase, or none"),
        (None, {"kinds": ["typo"]}, r"choose of entity, pronoun, negation, not \['typo'\]"),
        (None, {"kinds": []}, "choose of entity"),
        (None, {"paraphrases": "a", "paraphraser": "b"}, "either paraphrases"),
        (None, {"positives": 9}, "positives=9: only 8 were made of the questions; give positives=8 or less"),
        (None, {"negatives": 100}, "negatives=100: only 24 were made of the questions; give negatives=24 or less"),
        (None, {"language": "german"}, "language=german is no code of two or three letters, such as en or de"),
        (None, {"language": ""}, "language= is no code of two"),
        (
            german(),
            {"language": "de"},
            r"language=de: the rules are for English; give kinds=\[entity\], and paraphrases=FILE or "
            "paraphraser=MODEL, and spacy_model=PIPELINE of that language",
        ),
        (
            german(),
            {"language": "de", "kinds": ["entity"], "spacy_model": "x"},
            "language=de: the rules are for English; give paraphrases=FILE or paraphraser=MODEL$",
        ),
        (
            german(),
            {"language": "de", "kinds": ["entity", "negation"], "spacy_model": "x", "paraphraser": "x"},
            r"give kinds=\[entity\]$",
        ),
        (
            german(),
            {"language": "de", "kinds": ["entity"], "spacy_model": "no_such", "paraphraser": "x"},
            "language=de: entities are found by a spaCy pipeline of that language alone; .*spa[cC]y",
        ),
        (
            [*human(8), *human(1)[:1], *german(10)],  # "Name the river." has one function word alone
            {},
            r"in\.jsonl: only 9 of 20 questions have an English question .*; name their language, such as language=de",
        ),
    ],
)
def test_unusable_settings_and_files_are_one_line(tmp_path: Path, rows: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        run(tmp_path, rows, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("rows", [[*human(8)[:8], *human(2)[:2], *german(10)], german(19)])
def test_questions_that_may_be_english_are_accepted(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    record = run(tmp_path, rows, {"words": WordCount()}, paraphrases=german_pairs(tmp_path), language="EN")
    assert record["counts"]["questions"] == len(rows)  # half of twenty, and too few to tell


def test_german_with_a_pipeline_and_pairs(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy", reason="spaCy is optional")
    patterns = [{"label": "PER", "pattern": name} for name in NAMES]
    for language in ("de", "en", "xx"):
        parse = spacy.blank(language)
        parse.add_pipe("entity_ruler").add_patterns(patterns)
        parse.to_disk(tmp_path / language)
    given = {"language": "de", "kinds": ["entity"], "paraphrases": german_pairs(tmp_path)}
    for pipeline in ("de", "xx"):
        record = run(tmp_path, german(), {"words": WordCount()}, spacy_model=str(tmp_path / pipeline), **given)
        wrong = [row for row in lines(tmp_path / "out" / "questions.jsonl") if row["kind"] == "entity"]
        assert len(wrong) == record["counts"]["entity"]["made"] == 8
        for number, row in enumerate(wrong):  # the other person of the passage, and nothing else
            assert row["question"] == f"Was hat {NAMES[(number + 1) % 4]} danach getan?"
    with pytest.raises(InputError, match=r"model=.*en is for language=en, the questions for language=de") as error:
        run(tmp_path, german(), spacy_model=str(tmp_path / "en"), **given)
    assert "\n" not in str(error.value)


def test_a_balanced_draw(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    options: dict[str, Any] = {"positives": 5, "negatives": 7}
    record = run(tmp_path, **options)
    made = lines(tmp_path / "out" / "questions.jsonl")
    kinds = [row["kind"] for row in made if row["kind"] != "original"]
    assert (kinds.count("paraphrase"), len(kinds)) == (5, 12)
    assert (record["counts"]["positives"], record["counts"]["negatives"]) == (5, 7)
    assert record["counts"]["paraphrase"]["made"] == 8  # of which five were drawn
    assert "robustness.positives=5: 5 of 8 paraphrases are drawn" in caplog.messages
    assert "robustness.negatives=7: 7 of 24 wrong questions are drawn" in caplog.messages
    for row in made:  # an original is there for what was made of it alone
        assert {other["kind"] for other in made if other["number"] == row["number"]} != {"original"}
    assert pick(record, "blind", "all")["paraphrase"]["n"] == 12
    run(tmp_path, **options)
    assert lines(tmp_path / "out" / "questions.jsonl") == made
    run(tmp_path, **options, seed=1)
    assert lines(tmp_path / "out" / "questions.jsonl") != made


def test_the_rules_of_the_paper(tmp_path: Path) -> None:
    record = run(tmp_path, rules="qrelscore")
    assert record["counts"]["rules"] == "qrelscore" and record["counts"]["negations"] == "not"
    assert record["counts"]["entities"].endswith("; groups: name, number")
    made = lines(tmp_path / "out" / "questions.jsonl")
    assert {row["rule"] for row in made if row["kind"] == "entity"} == {"name group"}
    assert {row["after"] for row in made if row["kind"] == "pronoun"} <= set("my your her its our their".split())
    assert len({row["after"] for row in made if row["kind"] == "pronoun"}) > 1


def test_antonyms_name_their_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = "rl_qg.judging.alterations.wordnet_antonyms"
    monkeypatch.setattr(where, lambda: (lambda base: ["miss"] if base == "meet" else [], "WordNet toy"))
    record = run(tmp_path, kinds=["negation"], negation="antonym")
    made = [row for row in lines(tmp_path / "out" / "questions.jsonl") if row["kind"] == "negation"]
    assert {(row["before"], row["after"]) for row in made} == {("met", "missed")} and len(made) == 8
    assert record["counts"]["negations"] == "antonym, by WordNet toy"
    assert "Negations: antonym, by WordNet toy." in (tmp_path / "out" / "robustness.txt").read_text("utf-8")
    with_verb = [{**row, "question": row["question"].replace("people", "people who are old")} for row in human()]
    run(tmp_path, with_verb, kinds=["negation"], negation="either")
    rules = {row["rule"] for row in lines(tmp_path / "out" / "questions.jsonl") if row["kind"] == "negation"}
    assert rules == {"antonym", "negated"}


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_qg.commands.cli._stay_offline_without_a_hub", lambda: None)
    source = write_lines(tmp_path / "in.jsonl", human())
    arguments = [f"input={source}", "metrics=[rouge_l]", f"output={tmp_path}/out", "resamples=40"]
    run_command("robustness", [*arguments, "training.use_cpu=true"])
    record = json.loads((tmp_path / "out" / "robustness.json").read_text())
    assert record["counts"]["entities"] == "rules of rl_qg.generation.answer_rules"  # no spaCy pipeline is installed
    assert "Questions as they were" not in (tmp_path / "out" / "robustness.txt").read_text(encoding="utf-8")


def test_a_classifier_and_a_metric_of_one_label_are_refused(tmp_path: Path) -> None:
    options = RobustnessSettings(input=str(write_lines(tmp_path / "in.jsonl", human())))
    classifiers: dict[str, Any] = {"other": None, "blind": None}
    with pytest.raises(InputError, match="supervised: there is a metric 'blind' already"):
        robustness({"blind": WordCount()}, options, tmp_path / "out", classifiers=classifiers)
