"""What is asked of raters, and how tasks are made: a protocol, read from YAML (`configs/protocol/`).

Texts for raters may be given in several languages of the interface: `{en: …, de: …}`; one text alone is that of the
protocol's own language.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rl_qg.data.formats import is_unicode
from rl_qg.runtime.errors import InputError
from rl_qg.settings.yaml_files import read_content
from rl_qg.text.languages import AUTO, OTHER, code_fault

Texts = Mapping[str, str]  # by language code of the interface

ORDINARY, REPEAT, DEGRADED, REFERENCE = "ordinary", "repeat", "degraded", "reference"
KINDS = (ORDINARY, REPEAT, DEGRADED, REFERENCE)  # of the items of a task
SLIDER, CHOICE = "slider", "choice"
ONE_PASSAGE, BLOCKS, ITEMS = "one_passage", "blocks", "items"  # recipes
LENGTHS = ("qascore", "appraise", "crowd_alone")  # tables of `rl_qg.rating.planning.questions`
SIGNED_RANK, RANK_SUM = "signed_rank", "rank_sum"
ITEM_MEANS, RATINGS = "item_means", "ratings"
BLOCK = 10  # items of a block of `blocks`


@dataclass(frozen=True)
class Criterion:
    """One statement that raters agree with more or less, or one scale with described values."""

    name: str
    statement: Texts
    scale: str = SLIDER  # 0 to 100 without a number shown; or `choice`: one of `anchors`
    low: Texts = field(default_factory=dict)  # what the left end of a slider means
    high: Texts = field(default_factory=dict)
    anchors: tuple[tuple[int, Texts], ...] = ()  # value and meaning, best first
    reversed: bool = False  # a high value is bad
    control: bool = True  # enters the test of raters

    @property
    def lowest(self) -> int:
        return 0 if self.scale == SLIDER else min(value for value, _ in self.anchors)

    @property
    def highest(self) -> int:
        return 100 if self.scale == SLIDER else max(value for value, _ in self.anchors)


@dataclass(frozen=True)
class TaskRecipe:
    """How the items of a task (HIT) are chosen.

    `one_passage`: all systems' questions about one passage and answer, some repeated, some degraded; `blocks`: blocks
    of questions of any passages, each with degraded, reference and repeated ones, whose originals are in another
    block; `items`: questions of any passages.
    """

    kind: str = "one_passage"
    items: int = 20  # of a task; with `one_passage` and other than eleven systems it follows from their number
    repeats: int = 3
    degraded: int = 6
    references: int = 0
    distance: int = 2  # least distance between an item and its repeat or degraded form
    lengths: str = "qascore"  # the table of degraded words: qascore, appraise or crowd_alone


@dataclass(frozen=True)
class Practice:
    """A question that raters try before the task, with what one would say of it."""

    context: str
    answer: str
    question: str
    comment: Texts
    expected: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # values that pass, where it is a test


@dataclass(frozen=True)
class Control:
    """How raters are tested against degraded questions."""

    method: str = "signed_rank"  # or rank_sum
    unit: str = "item_means"  # or `ratings`: every criterion by itself, as published
    level: float = 0.05
    least_tasks: int = 1


@dataclass(frozen=True)
class Protocol:
    """A whole protocol."""

    name: str
    source: str
    criteria: tuple[Criterion, ...]
    recipe: TaskRecipe
    control: Control
    title: Texts
    instructions: tuple[Texts, ...]
    consent: Texts
    consent_version: str = "1"
    practice: tuple[Practice, ...] = ()
    practice_passes: float = 0.0  # share of practice questions rated as expected, below which a rater is screened out
    raters_per_hit: int = 1
    minutes_per_hit: float = 30.0
    language: str = "en"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `plan.json` has them; `from_dict` gives the same protocol again."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}

    @staticmethod
    def from_dict(where: str, given: Mapping[str, Any]) -> "Protocol":
        """A protocol from plain values; `where` names the file in errors."""
        language = _code(f"{where}: language", given.get("language", "en"))
        nested = {"recipe": TaskRecipe, "control": Control}
        protocol: Protocol = _filled(Protocol, where, {"control": {}} | dict(given), language, nested)
        _check_whole(where, protocol)
        return protocol


def text_in(texts: Texts, language: str, fallback: str = "en") -> str:
    """A text in a language of the interface; where it has none, in `fallback`, else in the first language given."""
    return texts.get(language) or texts.get(fallback) or next(iter(texts.values()), "")


def load_protocol(name: str, folder: Path) -> Protocol:
    """The protocol of a name in a folder (`configs/protocol/`), or of a YAML file."""
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    is_file = name.endswith((".yaml", ".yml"))
    if not is_file and name not in known:
        near = get_close_matches(name, known, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(
            f"protocol={name}: no such protocol{meant}; choose one of {', '.join(known)}, or name a file that ends "
            "in .yaml"
        )
    path = Path(name).expanduser() if is_file else known[name]
    content = read_content(
        path, "protocol", keys="criteria and recipe", page=str(known.get("qascore", folder)), allow_imports=False
    )
    return Protocol.from_dict(str(path), {"name": path.stem} | content)


# --- From plain values ---


def _plain(value: Any) -> Any:
    if isinstance(value, Criterion | TaskRecipe | Practice | Control):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _filled(
    form: type[Any], where: str, given: Any, language: str, nested: Mapping[str, type[Any]] | None = None
) -> Any:
    """An object of a dataclass from a mapping of its fields."""
    known = {item.name: item for item in fields(form)}
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: expected fields such as {', '.join([*known][:3])}, got {given!r:.40}")
    for name in given:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"{where}: there is no field {name!r}{meant}; the fields are {', '.join(known)}")
    values = {}
    for name, item in known.items():
        at = f"{where}: {name}"
        if name in given:
            if nested and name in nested:
                values[name] = _filled(nested[name], at, given[name], language)
            else:
                values[name] = _READ[form, name](at, given[name], language)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise InputError(f"{at} is missing")
    return form(**values)


def _code(where: str, given: Any) -> str:
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


def _flag(where: str, given: Any, language: str) -> bool:
    if not isinstance(given, bool):
        raise InputError(f"{where}={given!r:.40} is not true or false")
    return given


def _one_of(*choices: str) -> Callable[[str, Any, str], str]:
    def read(where: str, given: Any, language: str) -> str:
        if given not in choices:
            raise InputError(f"{where}={given!r:.40} is not one of {', '.join(choices)}")
        return str(given)

    return read


def _whole(low: int, high: int = 10_000) -> Callable[[str, Any, str], int]:
    def read(where: str, given: Any, language: str) -> int:
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            raise InputError(f"{where}={given!r:.40} is not a whole number from {low} to {high}")
        return given

    return read


def _number(low: float, high: float) -> Callable[[str, Any, str], float]:
    def read(where: str, given: Any, language: str) -> float:
        if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= high:
            raise InputError(f"{where}={given!r:.40} is not a number from {low:g} to {high:g}")
        return float(given)

    return read


def _list_of(read: Callable[[str, Any, str], Any]) -> Callable[[str, Any, str], tuple[Any, ...]]:
    def read_all(where: str, given: Any, language: str) -> tuple[Any, ...]:
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise InputError(f"{where}: expected a list, got {given!r:.40}")
        return tuple(read(f"{where}[{number}]", item, language) for number, item in enumerate(given, 1))

    return read_all


def _anchors(where: str, given: Any, language: str) -> tuple[tuple[int, Texts], ...]:
    """Lists of value and meaning, `[[3, {en: …}], …]`."""
    pairs = []
    for number, pair in enumerate(_list_of(lambda _, item, __: item)(where, given, language), 1):
        at = f"{where}[{number}]"
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise InputError(f"{at}: expected a value and its meaning, as [3, no errors], got {pair!r:.40}")
        pairs.append((_whole(-100, 100)(at, pair[0], language), _texts(at, pair[1], language)))
    if len({value for value, _ in pairs}) < len(pairs):
        raise InputError(f"{where}: a value is given twice")
    return tuple(pairs)


def _expected(where: str, given: Any, language: str) -> Mapping[str, tuple[int, int]]:
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: expected the lowest and highest value of criteria, got {given!r:.40}")
    found = {}
    for name, pair in given.items():
        values = _list_of(_whole(-100, 100))(f"{where}.{name}", pair, language)
        if len(values) != 2 or values[0] > values[1]:
            raise InputError(f"{where}.{name}: expected the lowest and the highest value, as [2, 3], got {pair!r:.40}")
        found[str(name)] = (values[0], values[1])
    return found


def _each(form: type[Any]) -> Callable[[str, Any, str], tuple[Any, ...]]:
    return _list_of(lambda where, given, language: _filled(form, where, given, language))


_READ: dict[tuple[type[Any], str], Callable[[str, Any, str], Any]] = {
    (Criterion, "statement"): _texts,
    **{(Criterion, name): lambda *given: {} if given[1] == {} else _texts(*given) for name in ("low", "high")},
    **{(Criterion, name): _flag for name in ("reversed", "control")},
    (Criterion, "name"): _name,
    (Criterion, "scale"): _one_of(SLIDER, CHOICE),
    (Criterion, "anchors"): _anchors,
    (TaskRecipe, "kind"): _one_of(ONE_PASSAGE, BLOCKS, ITEMS),
    (TaskRecipe, "items"): _whole(1, 1000),
    **{(TaskRecipe, name): _whole(0, 1000) for name in ("repeats", "degraded", "references", "distance")},
    (TaskRecipe, "lengths"): _one_of(*LENGTHS),
    **{(Practice, name): _text for name in ("context", "answer", "question")},
    (Practice, "comment"): _texts,
    (Practice, "expected"): _expected,
    (Control, "method"): _one_of(SIGNED_RANK, RANK_SUM),
    (Control, "unit"): _one_of(ITEM_MEANS, RATINGS),
    (Control, "level"): _number(0, 1),
    (Control, "least_tasks"): _whole(1),
    (Protocol, "name"): _name,
    **{(Protocol, name): _text for name in ("source", "consent_version")},
    **{(Protocol, name): _texts for name in ("title", "consent")},
    (Protocol, "criteria"): _each(Criterion),
    (Protocol, "practice"): _each(Practice),
    (Protocol, "instructions"): _list_of(_texts),
    (Protocol, "practice_passes"): _number(0, 1),
    (Protocol, "raters_per_hit"): _whole(1),
    (Protocol, "minutes_per_hit"): _number(0.1, 1000),
    (Protocol, "language"): lambda where, given, _: _code(where, given),
}


# --- What depends on several fields ---


def _check_whole(where: str, protocol: Protocol) -> None:
    names = [criterion.name for criterion in protocol.criteria]
    if not names:
        raise InputError(f"{where}: criteria: give at least one")
    if len(set(names)) < len(names):
        raise InputError(f"{where}: criteria: two have one name ({', '.join(names)})")
    for criterion in protocol.criteria:
        _check_criterion(f"{where}: criteria: {criterion.name}", criterion)
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


def _check_criterion(where: str, criterion: Criterion) -> None:
    if criterion.scale == SLIDER and (criterion.anchors or not (criterion.low and criterion.high)):
        raise InputError(f"{where}: a slider has low and high, the meanings of its ends, and no anchors")
    if criterion.scale == CHOICE and (len(criterion.anchors) < 2 or criterion.low or criterion.high):
        raise InputError(f"{where}: a choice has two anchors or more, and neither low nor high")


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
