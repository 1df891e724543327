"""The filters by name, and how options in a YAML file become filters. A new filter is added to `FILTERS`.

filters:
  length: {min_words: 6, max_words: 30}    # the name of a filter, and its options
  fluent: {kind: reward, metric: qascore}  # another name for a second filter of a kind
  mine: {_target_: my_package.keep, limit: 3}
  answer_in_question: null                 # off
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from inspect import Parameter, Signature, isclass, signature
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rewards.errors import MetricInputError
from rewards.loading import check_allowed
from rl_qg.augmentation.candidates import Record
from rl_qg.augmentation.funnel import Filter, RowFilter, Rule
from rl_qg.augmentation.near_duplicates import NearDuplicates
from rl_qg.augmentation.round_trip import RoundTrip
from rl_qg.augmentation.row_filters import (
    AnswerInQuestion,
    Duplicates,
    Faithful,
    GoldDuplicates,
    Length,
    PassageScript,
    WellFormed,
)
from rl_qg.augmentation.set_filters import Cap, RewardFilter, TypeBalance
from rl_qg.runtime.errors import InputError

FILTERS: dict[str, type[Filter]] = {
    "length": Length,
    "answer_in_question": AnswerInQuestion,
    "gold_duplicates": GoldDuplicates,
    "duplicates": Duplicates,
    "near_duplicates": NearDuplicates,
    "well_formed": WellFormed,
    "faithful": Faithful,
    "language": PassageScript,
    "round_trip": RoundTrip,
    "reward": RewardFilter,
    "cap": Cap,
    "question_types": TypeBalance,
}


class CustomFilter(RowFilter):
    """A user's filter: a function or object that is called with a record and returns whether to keep it."""

    def __init__(self, keeps: Callable[[Record], Any]) -> None:
        self.keeps = keeps

    def rules(self) -> list[Rule]:
        """One rule, whose reason is the filter's name; an exception in it becomes one line."""
        return [Rule(self.name, self._rejects)]

    def _rejects(self, record: Record) -> bool:
        try:
            return not self.keeps(record)
        except Exception as error:  # the user's code may raise anything
            raise InputError(f"augment.filters.{self.name}: {type(error).__name__}: {error}") from error


def build_filters(options: Mapping[str, Any]) -> list[Filter]:
    """The filters that the options describe, in their order; null is left out.

    Raises:
        InputError: names the filter, the option, and the valid ones.
    """
    return [_build(str(name), given) for name, given in options.items() if given is not None]


def filter_kind(name: str, given: Any) -> str:
    """The kind of filter that options describe: `kind`, else their name; "" for a custom filter."""
    if not isinstance(given, Mapping) or "_target_" in given:
        return ""
    return str(given.get("kind", name))


def _build(name: str, given: Any) -> Filter:
    at = f"augment.filters.{name}"
    if not isinstance(given, Mapping):
        raise InputError(f"{at}={given}: give its options, such as {{}} for none, or null to leave it out")
    options = {str(key): value for key, value in given.items() if key != "kind"}
    result: Filter
    if "_target_" in options:
        result = CustomFilter(_custom_function(at, str(options.pop("_target_")), options))
    else:
        kind = filter_kind(name, given)
        if kind not in FILTERS:
            raise InputError(f"{at}: no such filter; choose one of {', '.join(FILTERS)}, or give _target_")
        result = _with_options(at, FILTERS[kind], options)
        if kind != name:
            result.prefix = f"{name}: "
    result.name = name
    if errors := [text for is_wrong, text in result.option_errors() if is_wrong]:
        raise InputError(f"{at}: {'; '.join(errors)}")
    return result


def _with_options(at: str, kind: type[Filter], options: dict[str, Any]) -> Filter:
    declared: dict[str, Any] = getattr(kind, "__dataclass_fields__", {})
    known = ", ".join(declared) or "none"
    hints = get_type_hints(kind)
    for key, value in options.items():
        if key not in declared:
            raise InputError(f"{at}: no option {key!r}; there is {known}")
        if not _has_type(value, hints[key]):
            raise InputError(f"{at}.{key}={value} must be {_described(hints[key])}")
    return kind(**options)


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a value from YAML has the type of an option; a whole number is accepted as a float."""
    if hint is Any:
        return True
    if get_origin(hint) is UnionType:
        return any(_has_type(value, member) for member in get_args(hint))
    if get_origin(hint) is dict:
        return isinstance(value, Mapping) and all(_has_type(item, get_args(hint)[1]) for item in value.values())
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint


def _described(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"}
    if get_origin(hint) is UnionType:
        return " or ".join(map(_described, get_args(hint)))
    return names.get(hint, "numbers by name")


# --- custom filters


def _custom_function(at: str, target: str, options: dict[str, Any]) -> Callable[[Record], Any]:
    """The function of a custom filter: a class is instantiated with the options, a function gets them in each call."""
    at = f"{at}._target_={target}"
    function = import_target(at, target)
    try:
        if isclass(function):
            function, options = function(**options), {}
        _signature(function).bind({}, **options)
    except TypeError as error:
        raise InputError(f"{at}: cannot be called with a record and these options ({error})") from None
    return partial(function, **options)


def import_target(at: str, target: str) -> Any:
    """Import the object at a dotted path; raise `InputError`, beginning with `at`, if there is none."""
    module, _, attribute = target.rpartition(".")
    try:
        check_allowed(target)
    except MetricInputError as error:
        raise InputError(f"{at}: {error}") from None
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{at}: cannot be imported ({error}); check the path") from None


def _signature(function: Any) -> Signature:
    try:
        return signature(function)
    except ValueError:  # some builtins have none
        return Signature([Parameter("anything", Parameter.VAR_POSITIONAL)])
