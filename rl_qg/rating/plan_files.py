"""The files of a plan, `plan.json` and `hits.jsonl`. They hold no time: the same command gives the same bytes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, get_origin

from rl_qg.data.formats import is_unicode
from rl_qg.rating.protocol import KINDS, ORDINARY, Protocol
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash, read_json, read_json_lines, write_text

PLAN, HITS = "plan.json", "hits.jsonl"
FORMAT = 1
_PLAN = {"study": str, "language": str, "hits_sha256": str, "protocol": dict, "raters_per_hit": int}
_PLAN |= {"retention_days": int, "seed": int}
_WRONG: dict[Any, str] = {str: "not a text", int: "not a whole number", list: "not a list", dict: "not a mapping"}
_WRONG |= {int | None: "neither a whole number nor null"}


@dataclass(frozen=True)
class TaskPassage:
    """A passage of a task; `passage` is its hash (`rl_qg.data.examples.passage_hash`)."""

    passage: str
    title: str
    context: str


@dataclass(frozen=True)
class Item:
    """One question of a task."""

    position: int  # from 1, in the order shown
    kind: str  # ordinary, repeat, degraded or reference
    passage: int  # its place among the passages of the task, from 0
    question: str
    answer: str  # what the question should ask for; "" where there is none
    answer_start: int | None  # in characters of the context; None where nothing is marked
    systems: tuple[str, ...]  # who asked this very question
    item: str  # the id of passage and answer
    original: int | None = None  # position of the ordinary item that it repeats, degrades, or is the human question to


@dataclass(frozen=True)
class Hit:
    """A task: the items that one rater is given at once."""

    hit: str
    language: str
    passages: tuple[TaskPassage, ...]
    items: tuple[Item, ...]

    def fields_of(self, item: Item) -> dict[str, Any]:
        """What exports say of an item, wherever they name it."""
        passage = self.passages[item.passage].passage
        known = {"position": item.position, "kind": item.kind, "systems": [*item.systems], "item": item.item}
        return {**known, "passage": passage, "original": item.original}

    @staticmethod
    def from_dict(where: str, given: Mapping[str, Any]) -> "Hit":
        """A task from plain values; `where` names file and line in errors."""
        _check_fields(where, given, _types(Hit))
        passages = []
        for number, record in enumerate(given["passages"]):
            _check_fields(f"{where}: passages[{number}]", record, _types(TaskPassage))
            passages.append(TaskPassage(**{name: record[name] for name in _types(TaskPassage)}))
        items = []
        for number, record in enumerate(given["items"], 1):
            at = f"{where}: items[{number}]"
            _check_fields(at, record, _types(Item))
            systems = record["systems"]
            if not systems or not all(isinstance(name, str) and name for name in systems):
                raise InputError(f"{at}: field 'systems' is not a list of names: {systems!r:.40}")
            items.append(Item(**{name: record.get(name) for name in _types(Item)} | {"systems": tuple(systems)}))
        hit = Hit(given["hit"], given["language"], tuple(passages), tuple(items))
        _check_items(where, hit)
        return hit


@dataclass(frozen=True)
class StudyPlan:
    """A plan: its tasks, its protocol, and everything else that `plan.json` has (`settings`)."""

    protocol: Protocol
    hits: tuple[Hit, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def study(self) -> str:
        return str(self.settings["study"])

    @property
    def raters_per_hit(self) -> int:
        return int(self.settings["raters_per_hit"])

    @property
    def retention_days(self) -> int:
        return int(self.settings["retention_days"])

    @property
    def sha256(self) -> str:
        """SHA-256 of everything that `plan.json` holds, the hash of the tasks among it: which plan this is."""
        return sha256(json.dumps(self.settings, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def plan_texts(settings: Mapping[str, Any], protocol: Protocol, hits: Sequence[Hit]) -> dict[str, str]:
    """The files of a plan by name, `plan.json` last; `settings`: what that holds beside format, hash and protocol."""
    lines = "".join(json.dumps(asdict(hit), ensure_ascii=False) + "\n" for hit in hits)
    head = {"format": FORMAT, "study": settings["study"], "hits_sha256": sha256(lines.encode()).hexdigest()}
    record = {**head, **settings, "protocol": protocol.to_dict()}
    return {HITS: lines, PLAN: json.dumps(record, ensure_ascii=False, indent=2) + "\n"}


def write_plan_files(folder: Path, settings: Mapping[str, Any], protocol: Protocol, hits: Sequence[Hit]) -> None:
    """Write `hits.jsonl`, then `plan.json`, each atomically; see `plan_texts`."""
    texts = plan_texts(settings, protocol, hits)
    for name, text in texts.items():
        if (folder / name).exists() and (folder / name).read_bytes() != text.encode():
            raise InputError(f"output={folder}: holds another plan ({name} differs); name another folder")
    for name, text in texts.items():
        write_text(folder / name, text)


def read_plan(folder: Path) -> StudyPlan:
    path, lines = folder / PLAN, folder / HITS
    if not path.is_file():
        raise InputError(f"{folder}: no plan ({PLAN} is missing); make one with rl-qg rate plan output={folder}")
    settings = read_json(path)
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        raise InputError(f"{path}: not a plan of format {FORMAT}; make it again with rl-qg rate plan")
    _check_fields(str(path), settings, _PLAN)
    if not is_unicode(json.dumps(settings, ensure_ascii=False)):
        raise InputError(f"{path}: a text is no valid Unicode (a lone surrogate); make the plan again")
    hits = tuple(Hit.from_dict(f"{lines}: line {number}", record) for number, record in read_json_lines(lines))
    if file_hash(lines) != settings["hits_sha256"]:
        raise InputError(f"{lines}: is not the file that {PLAN} was written with; make the plan again")
    names = [hit.hit for hit in hits]
    if not names or len(set(names)) < len(names):
        what = "two tasks have one name" if names else "holds no task"
        raise InputError(f"{lines}: {what}; make the plan again")
    return StudyPlan(Protocol.from_dict(f"{path}: protocol", settings["protocol"]), hits, settings)


def _types(form: type[Any]) -> dict[str, Any]:
    """What JSON has for each field of a dataclass."""
    return {one.name: list if get_origin(one.type) is tuple else one.type for one in fields(form)}


def _check_fields(where: str, given: Any, types: Mapping[str, Any]) -> None:
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: expected a JSON object, got {given!r:.40}")
    for name, kind in types.items():
        value: Any = given.get(name)
        is_right = isinstance(value, kind) and not isinstance(value, bool)
        if not is_right or (isinstance(value, str) and not is_unicode(value)):
            raise InputError(f"{where}: field {name!r} is {_WRONG[kind]}: {value!r:.40}")


def _check_items(where: str, hit: Hit) -> None:
    ordinary = {number for number, item in enumerate(hit.items, 1) if item.kind == ORDINARY}
    if not hit.items:
        raise InputError(f"{where}: a task without items")
    for number, item in enumerate(hit.items, 1):
        at = f"{where}: items[{number}]"
        if item.position != number:
            raise InputError(f"{at}: position={item.position}; positions count from 1, in the order shown")
        if item.kind not in KINDS:
            raise InputError(f"{at}: kind={item.kind!r} is not one of {', '.join(KINDS)}")
        if not 0 <= item.passage < len(hit.passages):
            raise InputError(f"{at}: passage={item.passage}; the task has {len(hit.passages)} passages, from 0")
        if (item.original is not None) if item.kind == ORDINARY else (item.original not in ordinary):
            raise InputError(f"{at}: original={item.original} is not the position of an ordinary item")
        start, context = item.answer_start, hit.passages[item.passage].context
        if start is not None and (start < 0 or context[start : start + len(item.answer)] != item.answer):
            raise InputError(f"{at}: answer {item.answer!r:.40} is not at offset {start} of its passage")
