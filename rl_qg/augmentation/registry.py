"""The filters by name, and how options in a YAML file become filters.

filters:
  length: {min_words: 6, max_words: 30}    # the name of a filter, and its options
  fluent: {kind: reward, metric: qascore}  # a name of one's own for a second filter of a kind
  mine: {_target_: my_package.keep, limit: 3}
  answer_in_question: null                 # off
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from inspect import Parameter, Signature, isclass, signature
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rl_qg.augmentation.funnel import Filter, Record, Rule, RuleFilter
from rl_qg.augmentation.near_duplicates import NearDuplicates
from rl_qg.augmentation.round_trip import RoundTrip
from rl_qg.augmentation.row_filters import AnswerInQuestion, Duplicates, GoldDuplicates, Length, Script, WellFormed
from rl_qg.augmentation.set_filters import Cap, RewardFilter, TypeBalance
from rl_qg.runtime.errors import InputError

KINDS: dict[str, type[Filter]] = {
    "length": Length,
    "answer_in_question": AnswerInQuestion,
    "gold_duplicates": GoldDuplicates,
    "duplicates": Duplicates,
    "near_duplicates": NearDuplicates,
    "well_formed": WellFormed,
    "language": Script,
    "round_trip": RoundTrip,
    "reward": RewardFilter,
    "cap": Cap,
    "question_types": TypeBalance,
}


def build_filters(options: Mapping[str, Any]) -> list[Filter]:
    """The filters that the options describe, in their order; null is none.

    Raises:
        InputError: names the filter, the option, and what there is instead.
    """
    return [_build(str(name), given) for name, given in options.items() if given is not None]


def kind_of(name: str, given: Any) -> str:
    """Which filter some options are for: `kind`, else their name; "" for somebody else's."""
    if not isinstance(given, Mapping) or "_target_" in given:
        return ""
    return str(given.get("kind", name))


class Foreign(RuleFilter):
    """A filter of somebody else's: a function or object that is called with a record and says whether to keep it."""

    def __init__(self, keeps: Callable[[Record], Any]) -> None:
        self.keeps = keeps

    def rules(self) -> list[Rule]:
        """One rule, with the filter's name for a reason; what goes wrong in it is said in one line."""
        return [Rule(self.name, self._rejects)]

    def _rejects(self, record: Record) -> bool:
        try:
            return not self.keeps(record)
        except Exception as error:  # whatever somebody else's code raises
            raise InputError(f"augment.filters.{self.name}: {type(error).__name__}: {error}") from error


def _build(name: str, given: Any) -> Filter:
    at = f"augment.filters.{name}"
    if not isinstance(given, Mapping):
        raise InputError(f"{at}={given}: give its options, such as {{}} for none, or null to leave it out")
    options = {str(key): value for key, value in given.items() if key != "kind"}
    made: Filter
    if "_target_" in options:
        made = Foreign(_foreign(at, str(options.pop("_target_")), options))
    else:
        kind = kind_of(name, given)
        if kind not in KINDS:
            raise InputError(f"{at}: no such filter; choose one of {', '.join(KINDS)}, or give _target_")
        made = _with_options(at, KINDS[kind], options)
        if kind != name:
            made.prefix = f"{name}: "
    made.name = name
    if wrong := [text for is_wrong, text in made.faults() if is_wrong]:
        raise InputError(f"{at}: {'; '.join(wrong)}")
    return made


def _with_options(at: str, kind: type[Filter], options: dict[str, Any]) -> Filter:
    declared: dict[str, Any] = getattr(kind, "__dataclass_fields__", {})
    there = ", ".join(declared) or "none"
    hints = get_type_hints(kind)
    for key, value in options.items():
        if key not in declared:
            raise InputError(f"{at}: no option {key!r}; there is {there}")
        if not _fits(value, hints[key]):
            raise InputError(f"{at}.{key}={value} must be {_described(hints[key])}")
    return kind(**options)


def _fits(value: Any, hint: Any) -> bool:
    """Say whether a value from YAML has the type of an option; a whole number will do for a float."""
    if hint is Any:
        return True
    if get_origin(hint) is UnionType:
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is dict:
        return isinstance(value, Mapping) and all(_fits(item, get_args(hint)[1]) for item in value.values())
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint


def _described(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"}
    if get_origin(hint) is UnionType:
        return " or ".join(map(_described, get_args(hint)))
    return names.get(hint, "numbers by name")


def _foreign(at: str, target: str, options: dict[str, Any]) -> Callable[[Record], Any]:
    """What a dotted path names: a class is built with the options, a function gets them at each call."""
    at = f"{at}._target_={target}"
    found = imported(at, target)
    try:
        if isclass(found):
            found, options = found(**options), {}
        _signature(found).bind({}, **options)
    except TypeError as error:
        raise InputError(f"{at}: cannot be called with a record and these options ({error})") from None
    return partial(found, **options)


def imported(at: str, target: str) -> Any:
    """What a dotted path names; raises `InputError`, beginning with `at`, where there is nothing."""
    module, _, attribute = target.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{at}: cannot be imported ({error}); check the path") from None


def _signature(found: Any) -> Signature:
    try:
        return signature(found)
    except ValueError:  # a builtin that does not tell
        return Signature([Parameter("anything", Parameter.VAR_POSITIONAL)])
