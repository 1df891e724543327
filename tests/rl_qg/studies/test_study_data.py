import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample, passage_hash, write_squad
from rl_qg.data.reading import read_examples
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json
from rl_qg.settings import WorldSettings
from rl_qg.studies.jobs import read_job_file
from rl_qg.studies.study import Study, StudyExamples, load_examples, write_examples

STUDY = """
output_dir: OUT
data: {train: TRAIN, validation: {first: FIRST, second: SECOND}, development: 0.2}
resources: {"25": 0.25, "100": 1.0, few: {max_gold: 12}}
generators: {ce: {stages: ce}}
filters: {paper: []}
amounts: [1]
seeds: [1]
"""


def passages(examples) -> set[str]:
    return {passage_hash(example.context) for example in examples}


@pytest.fixture
def corpus() -> list[QAExample]:
    return list(synthetic_examples(20, seed=3, prefix="train"))


def load(folder: Path, corpus: list[QAExample], *overrides: str) -> StudyExamples:
    """Passages 0-15 to train on; sets of 14-17 and 16-19, so that each shares two passages with the one before."""
    by_passage = list(dict.fromkeys(example.context for example in corpus))
    passage_ranges = {"TRAIN": (0, 16), "FIRST": (14, 18), "SECOND": (16, 20)}
    text = STUDY.replace("OUT", str(folder / "out"))
    for name, (begin, end) in passage_ranges.items():
        chosen = set(by_passage[begin:end])
        write_squad(folder / f"{name}.json", [example for example in corpus if example.context in chosen])
        text = text.replace(name, str(folder / f"{name}.json"))
    (folder / "study.yaml").write_text(text)
    return load_examples(read_job_file(Study, folder / "study.yaml", overrides), WorldSettings())


def test_no_passage_has_two_roles(tmp_path: Path, corpus: list[QAExample]) -> None:
    loaded = load(tmp_path, corpus)
    validation, development = passages(loaded.validation), passages(loaded.development)
    assert len(validation) == 6 and development and not validation & development
    for resource in loaded.resources.values():
        assert not passages(resource.text) & (validation | development)
        assert passages(resource.spans) == passages(resource.text)
    by_passage = list(dict.fromkeys(example.context for example in corpus))
    shared = [example for example in corpus if example.context in by_passage[14:16]]
    assert loaded.counts["train_questions_on_validation_passages_dropped"] == len(shared) > 0
    assert passages(loaded.resources["100"].text) | development == {passage_hash(text) for text in by_passage[:14]}


def test_a_passage_in_two_sets_belongs_to_the_first(tmp_path: Path, corpus: list[QAExample]) -> None:
    loaded = load(tmp_path, corpus)
    by_passage = list(dict.fromkeys(example.context for example in corpus))
    sets = {name: {e.context for e in loaded.validation if loaded.sets[e.id] == name} for name in ("first", "second")}
    assert sets == {"first": set(by_passage[14:18]), "second": set(by_passage[18:20])}
    doubled = sum(example.context in by_passage[16:18] for example in corpus)
    assert loaded.counts["in_an_earlier_set_dropped"] == {"first": 0, "second": doubled}


def test_resources_are_nested_and_lose_only_questions(tmp_path: Path, corpus: list[QAExample]) -> None:
    loaded = load(tmp_path, corpus)
    quarter, whole, few = (loaded.resources[name] for name in ("25", "100", "few"))
    assert passages(quarter.gold) < passages(whole.gold) == passages(whole.text)
    assert passages(quarter.text) == passages(whole.text)
    assert {e.id for e in quarter.gold} == {
        e.id for e in whole.gold if passage_hash(e.context) in passages(quarter.gold)
    }
    assert all(not example.question for example in quarter.spans)
    assert 0 < len(few.gold) <= 12 and len(few.spans) == len(whole.spans)
    assert {e.id for e in few.gold} == {e.id for e in whole.gold if passage_hash(e.context) in passages(few.gold)}


def test_resources_by_question(tmp_path: Path, corpus: list[QAExample]) -> None:
    """A quarter of the questions, and three of them: nested, and not in whole passages."""
    loaded = load(
        tmp_path,
        corpus,
        "resources.q={fraction: 0.25, unit: questions}",
        "resources.three={max_gold: 3, unit: questions}",
    )
    whole, quarter, three = (loaded.resources[name] for name in ("100", "q", "three"))
    assert len(quarter.gold) == round(0.25 * len(whole.gold))
    assert {e.id for e in three.gold} < {e.id for e in quarter.gold} and len(three.gold) == 3
    assert quarter.spans and len(quarter.spans) == len(whole.spans)
    labelled = passages(quarter.gold)
    assert len(quarter.gold) < sum(passage_hash(e.context) in labelled for e in whole.gold)
    with pytest.raises(InputError, match=r"resources\.q\.unit: 'words' is not one of passages, questions"):
        load(tmp_path, corpus, "resources.q={fraction: 0.25, unit: words}")


def test_limits_are_counted(tmp_path: Path, corpus: list[QAExample], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    whole = load(tmp_path, corpus)
    loaded = load(tmp_path, corpus, "data.max_spans=7", "data.max_validation=5", "data.max_passages=6")
    said = {text.partition(": ")[0]: text.partition(": ")[2] for text in caplog.messages}
    questions, known = len(loaded.resources["100"].gold), len(loaded.resources["25"].gold)
    assert said["resources.25.fraction=0.25"].startswith(f"{known} of {questions} training questions are used, and of")
    assert re.fullmatch(rf"\d+ of {questions} training questions are used, and .*", said["resources.few.max_gold=12"])
    assert (
        said["data.max_passages=6"]
        == f"6 of {len(passages([*whole.resources['100'].text, *whole.development]))} training passages are used"
    )
    assert said["data.max_validation=5"].startswith("5 of ") and said["data.max_spans=7"].startswith("7 of ")
    assert len(loaded.resources["100"].spans) == 7 and len(loaded.validation) == 10
    assert len(passages(loaded.resources["100"].text) | passages(loaded.development)) == 6
    every = sum(len(part) for part in (whole.resources["100"].gold, whole.development))
    kept = sum(len(part) for part in (loaded.resources["100"].gold, loaded.development))
    assert loaded.counts["train_questions_beyond_max_passages_left_out"] == every - kept > 0
    counts = loaded.counts["resource 100"]
    assert counts["spans"] + counts["spans_left_out"] == len(
        {(e.context, e.answers) for e in loaded.resources["100"].text}
    )


def test_unlabelled_files_give_spans_alone(tmp_path: Path, corpus: list[QAExample]) -> None:
    more = list(synthetic_examples(3, seed=9, prefix="more"))
    leaking = [example for example in corpus if example.context == corpus[-1].context]  # of the second set
    write_squad(tmp_path / "more.json", [*more, *leaking])
    loaded = load(tmp_path, corpus, f"resources.more={{fraction: 0.5, unlabelled: {tmp_path / 'more.json'}}}")
    more_passages = passages(more)
    assert more_passages <= passages(loaded.resources["more"].spans)
    assert not more_passages & passages(loaded.resources["more"].gold)
    name = "unlabelled_on_validation_or_development_passages_dropped"
    assert loaded.counts["resource more"][name] == len(leaking)


def test_files_say_what_was_chosen(tmp_path: Path, corpus: list[QAExample]) -> None:
    loaded = load(tmp_path, corpus)
    write_examples(loaded)
    quarter = loaded.resources["25"]
    assert read_examples(quarter.folder / "gold.json", role="train").examples == quarter.gold
    spans = read_examples(quarter.folder / "spans.jsonl", role="train", allow_unlabelled=True).examples
    assert [(e.id, e.context, e.answers[0]) for e in spans] == [(e.id, e.context, e.answers[0]) for e in quarter.spans]
    assert read_examples(loaded.folder / "validation.json", role="validation").examples == loaded.validation
    assert read_json(loaded.folder / "sets.json") == loaded.sets
    assert {json.loads(line)["question"] for line in (quarter.folder / "spans.jsonl").read_text().splitlines()} == {""}


def test_files_keep_the_language_of_examples(tmp_path: Path, corpus: list[QAExample]) -> None:
    loaded = load(tmp_path, [replace(example, language="de") for example in corpus])
    write_examples(loaded)
    folder = loaded.resources["25"].folder
    for name in ("gold.json", "spans.jsonl"):
        examples = read_examples(folder / name, role="train", allow_unlabelled=True).examples
        assert {example.language for example in examples} == {"de"}


def test_folders_are_named_by_what_they_hold(tmp_path: Path, corpus: list[QAExample]) -> None:
    first, again = load(tmp_path, corpus), load(tmp_path, corpus)
    other = load(tmp_path, corpus[1:])
    assert first.resources["25"].folder == again.resources["25"].folder and first.folder == again.folder
    assert first.resources["100"].folder != other.resources["100"].folder


def test_a_set_without_passages_of_its_own(tmp_path: Path, corpus: list[QAExample]) -> None:
    with pytest.raises(InputError, match=r"validation\.third: every passage is in an earlier set"):
        load(tmp_path, corpus, f"data.validation.third={tmp_path / 'FIRST.json'}")
