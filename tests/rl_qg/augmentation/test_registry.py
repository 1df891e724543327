"""Filters from YAML: their order, kinds and options, and one clear error for invalid ones."""

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
import yaml

from rl_qg.augmentation.augment import FILTERS, build_filters
from rl_qg.augmentation.funnel import Record
from rl_qg.augmentation.near_duplicates import NearDuplicates
from rl_qg.augmentation.row_filters import Length
from rl_qg.runtime.errors import InputError
from rl_qg.settings.yaml_files import CONFIGS


def test_filters_keep_the_order_of_the_file_and_null_is_left_out() -> None:
    filters = build_filters({"near_duplicates": {"threshold": 1}, "duplicates": None, "length": {"max_words": 9}})
    assert filters == [NearDuplicates(threshold=1), Length(max_words=9)]
    assert [filter_.name for filter_ in filters] == ["near_duplicates", "length"]
    assert build_filters({}) == []


def test_two_filters_of_one_kind_have_different_names() -> None:
    first, second = build_filters({"length": {}, "short": {"kind": "length", "max_words": 12}})
    assert (first.name, first.prefix) == ("length", "")
    assert (second.name, second.prefix) == ("short", "short: ")
    assert second == Length(max_words=12)


def keep(record: Record, limit: int = 0) -> bool:
    """A custom filter: a function."""
    return len(record["question"]) > limit


class Keeper:
    """The same custom filter as an object."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, record: Record) -> bool:
        return keep(record, self.limit)


class NotCallable:
    """Cannot be called."""


@pytest.mark.parametrize("name", ["keep", "Keeper"])
def test_a_custom_filter_is_a_function_or_an_object(name: str) -> None:
    (custom,) = build_filters({"mine": {"_target_": f"tests.rl_qg.augmentation.test_registry.{name}", "limit": 3}})
    rejects = custom.rules()["mine"]  # type: ignore[attr-defined]
    assert custom.active_reasons() == ("mine",)
    assert [rejects({"question": text}) for text in ("Who", "Whom")] == [True, False]


def test_an_exception_in_a_custom_filter_is_one_error_line() -> None:
    (custom,) = build_filters(
        {"mine": {"_target_": "json.dumps", "limitt": 3}}
    )  # takes any option, and fails on this one
    rejects = custom.rules()["mine"]  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"augment\.filters\.mine: TypeError: .*'limitt'"):
        rejects({"question": "Who?"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lenght": {}}, r"lenght: no such filter; choose one of length, .*question_types, or give _target_"),
        ({"length": 3}, r"length=3: give its options, such as \{\} for none, or null to leave it out"),
        ({"length": {"min_word": 3}}, r"length: no option 'min_word'; there is min_words, max_words"),
        ({"answer_in_question": {"x": 3}}, r"answer_in_question: no option 'x'; there is language"),
        ({"length": {"min_words": "six"}}, r"length\.min_words=six must be a whole number"),
        ({"length": {"min_words": 1.5}}, r"length\.min_words=1.5 must be a whole number"),
        ({"length": {"min_words": True}}, r"length\.min_words=True must be a whole number"),
        ({"length": {"min_words": 40}}, r"length: min_words=40 is above max_words=30"),
        ({"well_formed": {"balanced": 1}}, r"well_formed\.balanced=1 must be true or false"),
        (
            {"well_formed": {"language": "English"}},
            r"well_formed: language=English is no code of a language: give one such as de",
        ),
        ({"well_formed": {"repeated_ngram": -1}}, r"repeated_ngram=-1 must not be negative"),
        ({"language": {"min_share": 1.2}}, r"language: min_share=1.2 is not in \[0, 1\]"),
        ({"near_duplicates": {"threshold": 0}}, r"near_duplicates: threshold=0 is not in \(0, 1\]"),
        ({"near_duplicates": {"within": "file"}}, r"within=file is not one of passage, all"),
        ({"same_meaning": {"threshold": 1.5}}, r"same_meaning: threshold=1.5 is not in \(0, 1\]"),
        ({"near_duplicates": {"shingle": 0}}, r"shingle=0 must be at least 1"),
        ({"cap": {}}, r"cap: give per_answer or per_context"),
        ({"cap": {"reason": 3}}, r"cap: no option 'reason'; there is per_answer, per_context, by$"),
        ({"cap": {"reasons": 3}}, r"cap: no option 'reasons'; there is per_answer, per_context, by$"),
        ({"cap": {"per_answer": 0}}, r"cap: per_answer=0 must be at least 1"),
        ({"cap": {"per_answer": "two"}}, r"cap\.per_answer=two must be a whole number or null"),
        ({"round_trip": {}}, r"round_trip: needs a reader"),
        ({"round_trip": {"reader": "r", "min_f1": 50}}, r"min_f1=50 is not in \[0, 1\]"),
        ({"round_trip": {"reader": "r", "doc_stride": 384}}, r"doc_stride=384 must be below max_length=384"),
        ({"reward": {"top_fraction": 0}}, r"reward: top_fraction=0 is not in \(0, 1\]"),
        ({"reward": {"field": "score", "metric": "qascore"}}, r"give either metric or field"),
        ({"question_types": {}}, r"question_types: give either max_share or shares"),
        (
            {"question_types": {"max_share": {"what": "all"}}},
            r"max_share=.* must be a number or numbers by name or null",
        ),
        ({"reward": {"field": "logprob", "min": math.nan}}, r"min=nan must be a number or null"),
        ({"reward": {"field": "logprob", "min": math.inf}}, r"min=inf must be a number or null"),
        ({"question_types": {"max_share": {"wat": 0.5}}}, r"no question type wat; they are what, .*other"),
        ({"question_types": {"shares": {1: 0.5, "wat": 0.5}}}, r"no question type 1, wat; they are what, .*other"),
        ({"question_types": {"max_share": {1: 0.5}}}, r"no question type 1; they are what"),
        ({"question_types": {"max_share": 0}}, r"max_share=0 is not in \(0, 1\]"),
        ({"question_types": {"shares": {"what": 0.5}}}, r"shares=.* must be above 0 and sum to 1"),
        ({"question_types": {"max_share": 0.5, "language": "ja"}}, r"language=ja: there are types for en, de, fr, es"),
        (
            {"mine": {"_target_": f"{__name__}.keep", "limitt": 3}},
            r"mine\._target_=.*unexpected keyword argument 'limitt'",
        ),
        ({"mine": {"_target_": f"{__name__}.Keeper"}}, r"mine\._target_=.*missing .*'limit'"),
        ({"mine": {"_target_": "nowhere.keep"}}, r"mine\._target_=nowhere\.keep: cannot be imported"),
        ({"mine": {"_target_": "keep"}}, r"mine\._target_=keep: cannot be imported"),
        (
            {"mine": {"_target_": "tests.rl_qg.augmentation.test_registry.Keeper"}},
            r"mine\._target_=.*Keeper: .*limit",
        ),
        (
            {"mine": {"_target_": "tests.rl_qg.augmentation.test_registry.NotCallable"}},
            r"cannot be called with a record",
        ),
    ],
)
def test_what_cannot_be_is_one_clear_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        build_filters(options)
    text = str(caught.value)
    assert text.startswith(f"augment.filters.{next(iter(options))}")
    assert re.search(message, text), text
    assert "\n" not in text


def test_every_option_of_every_filter_has_a_default_and_is_documented() -> None:
    guide = (CONFIGS.parent / "docs" / "how-to" / "augment.md").read_text(encoding="utf-8")
    for name, kind in FILTERS.items():
        assert f"`{name}`" in guide
        for field in fields(kind):  # type: ignore[arg-type]
            assert f"`{field.name}`" in guide, f"{name}.{field.name}"
            kind()  # type: ignore[call-arg]


@pytest.mark.parametrize("path", sorted((CONFIGS / "filters").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_files_of_the_group_are_filters(path: Any) -> None:
    text = path.read_text()
    assert text.startswith("# @package augment.filters\n")
    options = yaml.safe_load(text)
    options.pop("defaults", None)
    assert isinstance(options, Mapping)
    build_filters(
        {name: {**given, "reader": "r"} if name == "round_trip" else given for name, given in options.items()}
    )
