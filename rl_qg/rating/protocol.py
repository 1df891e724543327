"""What is asked of raters, and how tasks are made: a protocol, read from YAML (`configs/protocol/`).

Texts for raters may be given in several languages of the interface: `{en: …, de: …}`; one text alone is that of the
protocol's own language.
"""

# ruff: noqa: RUF009  # `_read` makes a field, as `dataclasses.field` does
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rl_qg.data.formats import is_unicode
from rl_qg.runtime.errors import InputError, suggestion
from rl_qg.settings.yaml_files import read_content
from rl_qg.text.languages import AUTO, OTHER, code_fault

Texts = Mapping[str, str]  # by language code of the interface
Reader = Callable[[str, Any, str], Any]  # place for messages, plain value, language of texts without one

TAKEN = {"overall": "the name of the mean over criteria"}  # what no criterion is called
TAKEN |= dict.fromkeys(("system", "questions", "shown"), "the name of another column of the results")
ORDINARY, REPEAT, DEGRADED, REFERENCE = "ordinary", "repeat", "degraded", "reference"
KINDS = (ORDINARY, REPEAT, DEGRADED, REFERENCE)  # of the items of a task
SLIDER, CHOICE = "slider", "choice"
ONE_PASSAGE, BLOCKS, ITEMS = "one_passage", "blocks", "items"  # recipes
LENGTHS = ("qascore", "appraise", "crowd_alone")  # tables of `rl_qg.rating.planning.questions`
SIGNED_RANK, RANK_SUM = "signed_rank", "rank_sum"
ITEM_MEANS, RATINGS = "item_means", "ratings"
BLOCK = 10  # items of a block of `blocks`


# --- Readers of a field: the value from a plain one, or one line that says what is wrong with it ---


def _read(reader: Reader, default: Any = MISSING) -> Any:
    """A field of a protocol with its reader; without a default it must be given."""
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"reader": reader})
    return field(default=default, metadata={"reader": reader})


def _object(form: type[Any]) -> Reader:
    """An object of a dataclass from a mapping of its fields."""

    def read(where: str, given: Any, language: str) -> Any:
        known = {item.name: item for item in fields(form)}
        if not isinstance(given, Mapping):
            raise InputError(f"{where}: expected fields such as {', '.join([*known][:3])}, got {given!r:.40}")
        if unknown := [name for name in given if name not in known]:
            meant = suggestion(str(unknown[0]), known)
            raise InputError(f"{where}: there is no field {unknown[0]!r}{meant}; the fields are {', '.join(known)}")
        for name, item in known.items():
            if name not in given and item.default is MISSING and item.default_factory is MISSING:
                raise InputError(f"{where}: {name} is missing")
        readers = {name: item.metadata["reader"] for name, item in known.items() if name in given}
        return form(**{name: read(f"{where}: {name}", given[name], language) for name, read in readers.items()})

    return read


def _checked(
    is_right: Callable[[Any], bool], what: str, convert: Callable[[Any], Any] = lambda given: given
) -> Reader:
    def read(where: str, given: Any, language: str) -> Any:
        if not is_right(given):
            raise InputError(f"{where}={given!r:.40} is not {what}")
        return convert(given)

    return read


def _one_of(*choices: str) -> Reader:
    return _checked(lambda given: given in choices, f"one of {', '.join(choices)}")


def _number(low: float, high: float, *, whole: bool = False) -> Reader:
    def is_right(given: Any) -> bool:
        is_number = isinstance(given, int if whole else int | float) and not isinstance(given, bool)
        return is_number and low <= given <= high

    what = f"a {'whole ' if whole else ''}number from {low:g} to {high:g}"
    return _checked(is_right, what, int if whole else float)


_FLAG = _checked(lambda given: isinstance(given, bool), "true or false")
_COUNT = _number(1, 10_000, whole=True)
_PART = _number(0, 1000, whole=True)  # items of a task
_RATING = _number(-100, 100, whole=True)


def _code(where: str, given: Any, language: str = "") -> str:
    if not isinstance(given, str) or code_fault(given) or given.casefold() in (AUTO, OTHER):
        raise InputError(f"{where}={given!r:.40} is no code of a language, such as en")
    return given.casefold()


def _name(where: str, given: Any, language: str) -> str:
    text = _text(where, given, language)
    if not re.fullmatch(r"[\w.-]{1,64}", text):
        raise InputError(f"{where}={text!r:.80}: give 1 to 64 letters, digits, dots, hyphens or underscores")
    return text


def _text(where: str, given: Any, language: str) -> str:
    if not isinstance(given, str) or not given.strip() or not is_unicode(given):
        raise InputError(f"{where}: expected a text, got {given!r:.40}")
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n[^\S\n]*\n", given) if part.strip())


def _texts(where: str, given: Any, language: str) -> Texts:
    """One text, or one for each language of the interface."""
    if isinstance(given, str):
        return {language: _text(where, given, language)}
    if not isinstance(given, Mapping) or not given:
        raise InputError(f"{where}: expected a text, or texts by language ({{en: …, de: …}}), got {given!r:.40}")
    return {_code(f"{where}: language", code): _text(f"{where}.{code}", text, code) for code, text in given.items()}


def _end(where: str, given: Any, language: str) -> Texts:
    return {} if given == {} else _texts(where, given, language)


def _list_of(read: Reader) -> Reader:
    def read_all(where: str, given: Any, language: str) -> tuple[Any, ...]:
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise InputError(f"{where}: expected a list, got {given!r:.40}")
        return tuple(read(f"{where}[{number}]", item, language) for number, item in enumerate(given, 1))

    return read_all


def _anchor(where: str, given: Any, language: str) -> tuple[int, Texts]:
    """A value and its meaning, `[3, {en: …}]`."""
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise InputError(f"{where}: expected a value and its meaning, as [3, no errors], got {given!r:.40}")
    return _RATING(where, given[0], language), _texts(where, given[1], language)


def _anchors(where: str, given: Any, language: str) -> tuple[tuple[int, Texts], ...]:
    pairs: tuple[tuple[int, Texts], ...] = _list_of(_anchor)(where, given, language)
    if len(dict(pairs)) < len(pairs):
        raise InputError(f"{where}: a value is given twice")
    return pairs


def _expected(where: str, given: Any, language: str) -> Mapping[str, tuple[int, int]]:
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: expected the lowest and highest value of criteria, got {given!r:.40}")
    found = {}
    for name, pair in given.items():
        values = _list_of(_RATING)(f"{where}.{name}", pair, language)
        if len(values) != 2 or values[0] > values[1]:
            raise InputError(f"{where}.{name}: expected the lowest and the highest value, as [2, 3], got {pair!r:.40}")
        found[str(name)] = values
    return found


@dataclass(frozen=True)
class Criterion:
    """One statement that raters agree with more or less, or one scale with described values."""

    name: str = _read(_name)
    statement: Texts = _read(_texts)
    scale: str = _read(_one_of(SLIDER, CHOICE), SLIDER)  # 0 to 100 without a number shown; or one of `anchors`
    low: Texts = _read(_end, {})  # what the left end of a slider means
    high: Texts = _read(_end, {})
    anchors: tuple[tuple[int, Texts], ...] = _read(_anchors, ())  # value and meaning, best first
    reversed: bool = _read(_FLAG, False)  # a high value is bad
    control: bool = _read(_FLAG, True)  # enters the test of raters

    @property
    def is_slider(self) -> bool:
        return self.scale == SLIDER

    @property
    def middle(self) -> int:
        return (self.lowest + self.highest) // 2

    @property
    def lowest(self) -> int:
        return 0 if self.is_slider else min(value for value, _ in self.anchors)

    @property
    def highest(self) -> int:
        return 100 if self.is_slider else max(value for value, _ in self.anchors)


@dataclass(frozen=True)
class TaskRecipe:
    """How the items of a task (HIT) are chosen.

    `one_passage`: all systems' questions about one passage and answer, some repeated, some degraded; `blocks`: blocks
    of questions of any passages, each with degraded, reference and repeated ones, whose originals are in another
    block; `items`: questions of any passages.
    """

    kind: str = _read(_one_of(ONE_PASSAGE, BLOCKS, ITEMS), ONE_PASSAGE)
    # Of a task; with `one_passage` and other than eleven systems it follows from their number.
    items: int = _read(_number(1, 1000, whole=True), 20)
    repeats: int = _read(_PART, 3)
    degraded: int = _read(_PART, 6)
    references: int = _read(_PART, 0)
    distance: int = _read(_PART, 2)  # least one between an item and its repeat or degraded form
    lengths: str = _read(_one_of(*LENGTHS), "qascore")  # the table of degraded words


@dataclass(frozen=True)
class Practice:
    """A question that raters try before the task, with what one would say of it."""

    context: str = _read(_text)
    answer: str = _read(_text)
    question: str = _read(_text)
    comment: Texts = _read(_texts)
    expected: Mapping[str, tuple[int, int]] = _read(_expected, {})  # values that pass, where it is a test


@dataclass(frozen=True)
class Control:
    """How raters are tested against degraded questions."""

    method: str = _read(_one_of(SIGNED_RANK, RANK_SUM), SIGNED_RANK)
    unit: str = _read(_one_of(ITEM_MEANS, RATINGS), ITEM_MEANS)  # `ratings`: every criterion by itself, as published
    level: float = _read(_number(0, 1), 0.05)
    least_tasks: int = _read(_COUNT, 1)


@dataclass(frozen=True)
class Protocol:
    """A whole protocol."""

    name: str = _read(_name)
    source: str = _read(_text)
    criteria: tuple[Criterion, ...] = _read(_list_of(_object(Criterion)))
    recipe: TaskRecipe = _read(_object(TaskRecipe))
    control: Control = _read(_object(Control))
    title: Texts = _read(_texts)
    instructions: tuple[Texts, ...] = _read(_list_of(_texts))
    consent: Texts = _read(_texts)
    consent_version: str = _read(_text, "1")
    practice: tuple[Practice, ...] = _read(_list_of(_object(Practice)), ())
    # The share of practice questions rated as expected, below which a rater is screened out.
    practice_passes: float = _read(_number(0, 1), 0.0)
    raters_per_hit: int = _read(_COUNT, 1)
    minutes_per_hit: float = _read(_number(0.1, 1000), 30.0)
    language: str = _read(_code, "en")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `plan.json` has them; `from_dict` gives the same protocol again."""
        return json.loads(json.dumps(asdict(self)))

    @staticmethod
    def from_dict(where: str, given: Mapping[str, Any]) -> "Protocol":
        """A protocol from plain values; `where` names the file in errors."""
        language = _code(f"{where}: language", given.get("language", "en"))
        protocol: Protocol = _object(Protocol)(where, {"control": {}} | dict(given), language)
        _check_whole(where, protocol)
        return protocol


def load_protocol(name: str, folder: Path) -> Protocol:
    """The protocol of a name in a folder (`configs/protocol/`), or of a YAML file."""
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    is_file = name.endswith((".yaml", ".yml"))
    if not is_file and name not in known:
        raise InputError(
            f"protocol={name}: no such protocol{suggestion(name, known)}; choose one of {', '.join(known)}, or name a "
            "file that ends in .yaml"
        )
    path = Path(name).expanduser() if is_file else known[name]
    content = read_content(
        path, "protocol", keys="criteria and recipe", page=str(known.get("qascore", folder)), allow_imports=False
    )
    return Protocol.from_dict(str(path), {"name": path.stem} | content)


def _check_whole(where: str, protocol: Protocol) -> None:
    names = [criterion.name for criterion in protocol.criteria]
    if not names:
        raise InputError(f"{where}: criteria: give at least one")
    if len(set(names)) < len(names):
        raise InputError(f"{where}: criteria: two have one name ({', '.join(names)})")
    if taken := [name for name in names if name in TAKEN]:
        raise InputError(f"{where}: criteria: {taken[0]} is {TAKEN[taken[0]]}; rename it")
    for one in protocol.criteria:
        at = f"{where}: criteria: {one.name}"
        if one.scale == SLIDER and (one.anchors or not (one.low and one.high)):
            raise InputError(f"{at}: a slider has low and high, the meanings of its ends, and no anchors")
        if one.scale == CHOICE and (len(one.anchors) < 2 or one.low or one.high):
            raise InputError(f"{at}: a choice has two anchors or more, and neither low nor high")
    _check_recipe(f"{where}: recipe", protocol.recipe)
    by_name = {criterion.name: criterion for criterion in protocol.criteria}
    for number, practice in enumerate(protocol.practice, 1):
        at = f"{where}: practice[{number}]"
        if practice.answer not in practice.context:
            raise InputError(f"{at}: answer {practice.answer!r:.40} is not in the context")
        for name, (low, high) in practice.expected.items():
            if name not in by_name:
                raise InputError(f"{at}: expected: there is no criterion {name!r}; they are {', '.join(names)}")
            if low < by_name[name].lowest or high > by_name[name].highest:
                raise InputError(f"{at}: expected.{name}=[{low}, {high}] is not on the scale of the criterion")
    if protocol.practice_passes and not any(practice.expected for practice in protocol.practice):
        raise InputError(f"{where}: practice_passes needs practice questions with expected values")


def _check_recipe(where: str, recipe: TaskRecipe) -> None:
    controls = (recipe.repeats, recipe.degraded, recipe.references)
    ordinary = recipe.items - sum(controls)
    if ordinary < 1 or max(controls) > ordinary:
        raise InputError(
            f"{where}: of items={recipe.items}, repeats={recipe.repeats}, degraded={recipe.degraded} and "
            f"references={recipe.references} are left {ordinary} ordinary ones; each of them needs its ordinary one"
        )
    if recipe.references and recipe.kind == ONE_PASSAGE:
        raise InputError(f"{where}: references are for blocks and items; with one_passage people are a system")
    if recipe.kind == BLOCKS:
        blocks = recipe.items // BLOCK
        if recipe.items % (2 * BLOCK) or any(count % blocks for count in controls):
            raise InputError(
                f"{where}: blocks have {BLOCK} items and are an even number: give items=100, and repeats, degraded "
                "and references as multiples of their number"
            )
        if recipe.distance > (farthest := recipe.items // 2 - BLOCK + 1):
            raise InputError(f"{where}: distance={recipe.distance} is more than {farthest}, that of opposite blocks")
