"""Protocols: those of the package are whole in six languages, and a wrong file is one clear line."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_qg.rating.pages.visits import values_of
from rl_qg.rating.protocol import Criterion, Protocol, load_protocol
from rl_qg.runtime.errors import InputError
from rl_qg.settings.yaml_files import CONFIGS

FOLDER = CONFIGS / "protocol"
NAMES = ("demo", "direct-assessment", "qascore", "qg-bench", "qrelscore")
LANGUAGES = {"en", "de", "fr", "es", "ar", "zh"}
SCRIPTS = {"ar": ("\u0600", "\u06ff"), "zh": ("\u4e00", "\u9fff")}


def texts_of(value: Any, where: str = "") -> Iterator[tuple[str, Mapping[str, str]]]:
    """Every text for raters in the plain form of a protocol."""
    if isinstance(value, Mapping):
        if "en" in value:
            yield where, value
        else:
            for key, item in value.items():
                yield from texts_of(item, f"{where}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from texts_of(item, f"{where}[{number}]")


def test_the_protocols_of_the_package() -> None:
    assert tuple(sorted(path.stem for path in FOLDER.glob("*.yaml"))) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_text_is_there_in_six_languages(name: str) -> None:
    protocol = load_protocol(name, FOLDER)
    assert protocol.name == name
    found = dict(texts_of(protocol.to_dict()))
    assert {".title", ".consent", ".criteria[0].statement"} <= found.keys()
    assert len(found) >= 2 + len(protocol.instructions) + len(protocol.practice) + 2 * len(protocol.criteria)
    for where, texts in found.items():
        assert texts.keys() == LANGUAGES, where
        assert len(set(texts.values())) == len(LANGUAGES), f"{where}: the same in two languages"
        for code, (low, high) in SCRIPTS.items():
            assert any(low <= letter <= high for letter in texts[code]), f"{where}.{code}"
            assert not any(low <= letter <= high for letter in texts["en"])
        marks = {
            code: sorted(part for part in ("{minutes}", "{retention_days}") if part in texts[code]) for code in texts
        }
        assert len(set(map(tuple, marks.values()))) == 1, where
    assert "{retention_days}" in protocol.consent["en"]


@pytest.mark.parametrize("name", NAMES)
def test_a_protocol_is_the_same_after_plain_values(name: str) -> None:
    protocol = load_protocol(name, FOLDER)
    assert Protocol.from_dict("plan.json", protocol.to_dict()) == protocol


def test_constants_of_the_papers() -> None:
    qascore = load_protocol("qascore", FOLDER)
    assert [criterion.name for criterion in qascore.criteria] == [
        *("understandability", "relevancy", "answerability", "appropriateness")
    ]
    assert {(criterion.lowest, criterion.highest) for criterion in qascore.criteria} == {(0, 100)}
    assert (qascore.recipe.items, qascore.recipe.repeats, qascore.recipe.degraded) == (20, 3, 6)
    qrelscore = load_protocol("qrelscore", FOLDER)
    assert {(criterion.lowest, criterion.highest) for criterion in qrelscore.criteria} == {(1, 3)}
    assert (qrelscore.raters_per_hit, qrelscore.recipe.repeats, qrelscore.recipe.degraded) == (5, 0, 0)
    assert [name for name, _ in ((c.name, c) for c in qrelscore.criteria)] == [
        "grammaticality",
        "answerability",
        "relevance",
    ]
    assert load_protocol("direct-assessment", FOLDER).recipe.distance == 40
    test = load_protocol("qg-bench", FOLDER)
    assert test.practice_passes > 0 and all(practice.expected for practice in test.practice)


MINIMAL: dict[str, Any] = {
    "source": "me",
    "title": "Rate",
    "consent": "I agree",
    "instructions": ["Read"],
    "criteria": [{"name": "a", "statement": "Good", "low": "no", "high": "yes"}],
    "recipe": {"kind": "items", "items": 4, "repeats": 1, "degraded": 1},
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(MINIMAL | changes, allow_unicode=True), encoding="utf-8")
    return path


def test_a_file_of_ones_own_in_one_language(tmp_path: Path) -> None:
    path = written(tmp_path, language="de", title="Bewerten Sie")
    protocol = load_protocol(str(path), FOLDER)
    assert protocol.name == "mine"
    assert protocol.title == {"de": "Bewerten Sie"}
    assert protocol.control == replace(protocol.control)
    anchors = [[3, "good"], [1, {"en": "bad"}]]
    choice = {"name": "a", "statement": "Good", "scale": "choice", "anchors": anchors}
    protocol = load_protocol(str(written(tmp_path, criteria=[choice])), FOLDER)
    assert protocol.criteria[0].anchors == ((3, {"en": "good"}), (1, {"en": "bad"}))


PRACTICE = {"context": "Ada wrote it.", "answer": "Ada", "question": "Who?", "comment": "Good"}
WRONG = [
    ({"titel": "x"}, r"there is no field 'titel'; did you mean 'title'\?; the fields are name, source"),
    ({"recipe": {"kind": "item"}}, "recipe: kind='item' is not one of one_passage, blocks, items"),
    ({"recipe": {"itms": 3}}, "recipe: there is no field 'itms'; did you mean 'items'"),
    ({"recipe": {"items": 0}}, "recipe: items=0 is not a whole number from 1 to 1000"),
    ({"recipe": {"items": 4, "degraded": 3, "repeats": 1}}, "are left 0 ordinary ones"),
    ({"recipe": {"items": 30, "kind": "blocks", "repeats": 3, "degraded": 3}}, "blocks have 10 items"),
    ({"recipe": {"items": 20, "kind": "blocks", "repeats": 2, "degraded": 2, "distance": 2}}, "more than 1"),
    ({"recipe": {"items": 20, "references": 2}}, "references are for blocks and items"),
    ({"recipe": 3}, "recipe: expected fields such as kind, items, repeats, got 3"),
    ({"control": {"method": "t_test"}}, "control: method='t_test' is not one of signed_rank, rank_sum"),
    ({"control": {"level": 2}}, "control: level=2 is not a number from 0 to 1"),
    ({"title": ""}, "title: expected a text, got ''"),
    ({"title": {"english": "x"}}, "title: language='english' is no code of a language"),
    ({"title": ["x"]}, "title: expected a text, or texts by language"),
    ({"instructions": "x"}, "instructions: expected a list, got 'x'"),
    ({"criteria": []}, "criteria: give at least one"),
    ({"criteria": [{"name": "a", "statement": "Good"}]}, "a: a slider has low and high"),
    ({"criteria": [{"name": "a", "statement": "x", "scale": "choice"}]}, "a: a choice has two anchors or more"),
    ({"criteria": [{"name": "a b", "statement": "x"}]}, r"criteria\[1\]: name='a b': give 1 to 64 letters"),
    ({"criteria": [{"statement": "x"}]}, r"criteria\[1\]: name is missing"),
    ({"criteria": 2 * MINIMAL["criteria"]}, r"two have one name \(a, a\)"),
    ({"criteria": [MINIMAL["criteria"][0] | {"name": "overall"}]}, "overall is the name of the mean over criteria"),
    (
        {"criteria": [MINIMAL["criteria"][0] | {"name": "system"}]},
        "system is the name of another column of the results",
    ),
    ({"criteria": [MINIMAL["criteria"][0] | {"name": "questions"}]}, "questions is the name of another column"),
    ({"criteria": [{"name": "a", "statement": "x", "scale": "choice", "anchors": [[1]]}]}, "expected a value and its"),
    ({"practice": [PRACTICE | {"answer": "Eve"}]}, r"practice\[1\]: answer 'Eve' is not in the context"),
    ({"practice": [PRACTICE | {"expected": {"b": [1, 2]}}]}, r"expected: there is no criterion 'b'; they are a"),
    ({"practice": [PRACTICE | {"expected": {"a": [-1, 2]}}]}, "is not on the scale"),
    ({"practice": [PRACTICE | {"expected": {"a": [3, 2]}}]}, "expected the lowest and the highest value"),
    ({"practice_passes": 0.5}, "practice_passes needs practice questions with expected values"),
    ({"raters_per_hit": True}, "raters_per_hit=True is not a whole number"),
    ({"language": "auto"}, "language='auto' is no code of a language"),
]


@pytest.mark.parametrize(("changes", "fault"), WRONG, ids=[fault[:40] for _, fault in WRONG])
def test_a_wrong_file_is_one_line_that_names_the_field(changes: dict[str, Any], fault: str, tmp_path: Path) -> None:
    path = written(tmp_path, **changes)
    with pytest.raises(InputError, match=fault) as error:
        load_protocol(str(path), FOLDER)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_wrong_field_of_a_name_that_is_no_text_is_named_too() -> None:
    given = MINIMAL | {"name": "x", "practice": [PRACTICE | {"expected": {1: [3, 2]}}]}
    with pytest.raises(InputError, match=r"expected\.1: expected the lowest .* got \[3, 2\]"):
        Protocol.from_dict("file", given)


def test_a_name_that_is_none_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such protocol; did you mean 'qascore'.*choose one of demo, direct-ass"):
        load_protocol("qascor", FOLDER)
    with pytest.raises(InputError, match="cannot be read"):
        load_protocol(str(tmp_path / "missing.yaml"), FOLDER)
    (tmp_path / "twice.yaml").write_text("title: a\ntitle: b\n")
    with pytest.raises(InputError, match="line 2: title is given twice"):
        load_protocol(str(tmp_path / "twice.yaml"), FOLDER)


def test_a_form_may_have_negative_values() -> None:
    criterion = Criterion(
        "pref", {"en": "How good?"}, "choice", anchors=((1, {"en": "good"}), (0, {}), (-1, {"en": "bad"}))
    )
    assert [values_of({"value-1": given}, [criterion])[0] for given in ("1", "0", "-1")] == [
        {"pref": 1},
        {"pref": 0},
        {"pref": -1},
    ]
    for wrong in ("--1", "1-", "-", "\u0661", "1 ", "1234567"):
        with pytest.raises(InputError, match="no whole number"):
            values_of({"value-1": wrong}, [criterion])
