"""Structured mutations: valid QA documents, and changes of their fields, lists and values.

A document is a tree of Python values. `Pairs` is a JSON object whose keys may repeat, `Raw` is text that is written
into the JSON as it is.
"""

import json
import random
from collections.abc import Callable
from typing import Any

CONTEXT = "Ada lived in Älvdalen. Ada wrote to Max in 1843. 北京 is far away. 🙂"
ANSWERS = ("Älvdalen", "Ada", "Max", "1843", "北京", "🙂", "not there")
FIELDS = """id title context question answers answer answer_start text paragraph paragraphs sentence qas data
is_impossible references""".split()


class Pairs(list):
    """A JSON object as (key, value) pairs."""


class Raw(str):
    """Text that stands in the JSON as it is."""


# --- valid documents


def answer_list(draw: random.Random) -> Any:
    """Answers in one of the two accepted forms."""
    texts = draw.choices(ANSWERS, k=draw.randint(0 if draw.random() < 0.2 else 1, 3))
    found = [{"text": text, "answer_start": CONTEXT.find(text)} for text in texts]
    if draw.random() < 0.5:
        return found
    return {key: [one[key] for one in found] for key in ("text", "answer_start")}


def row(kind: int, draw: random.Random) -> dict[str, Any]:
    """One flat record: SQuAD's columns (0), those of QG-Bench (1), or a row to score (2)."""
    if kind == 0:
        asked = {"id": f"q{draw.randrange(5)}", "title": "Ada", "context": CONTEXT, "question": "Who wrote?"}
        return {**asked, "answers": answer_list(draw)}
    if kind == 1:
        return {"paragraph": CONTEXT, "sentence": CONTEXT[:22], "question": "Who?", "answer": draw.choice(ANSWERS)}
    return {"question": "Who?", "context": CONTEXT, "answer": "Ada", "references": ["Who is it?", "Who lived?"]}


def squad(draw: random.Random) -> dict[str, Any]:
    """A SQuAD document with a few questions."""

    def qa(number: int) -> dict[str, Any]:
        found = {"id": f"q{number}", "question": f"Who wrote {number}?", "answers": answer_list(draw)}
        return {**found, "is_impossible": draw.random() < 0.5} if draw.random() < 0.3 else found

    def paragraph() -> dict[str, Any]:
        return {"context": CONTEXT, "qas": [qa(number) for number in range(draw.randint(1, 3))]}

    def article() -> dict[str, Any]:
        return {"title": "Ada", "paragraphs": [paragraph() for _ in range(draw.randint(1, 2))]}

    return {"version": "1.1", "data": [article() for _ in range(draw.randint(1, 2))]}


# --- mutations


def odd_value(draw: random.Random) -> Any:
    """A value that does not belong where it is put."""
    return draw.choice(ODD)(draw)


def nested(draw: random.Random) -> Any:
    """Lists or objects in each other, up to more than a parser can follow."""
    depth = draw.choice((3, 50, 400, 900, 980, 2000, 50_000))
    key = draw.choice(FIELDS)
    opening, closing = draw.choice((("[", "]"), (f'{{"{key}":', "}")))
    return Raw(opening * depth + draw.choice(('"Ada"', "0")) + closing * depth)


ODD: list[Callable[[random.Random], Any]] = [
    lambda draw: None,
    lambda draw: draw.choice((True, False)),
    lambda draw: draw.choice((0, -1, 7, 10**9, 2**63, -(2**63) - 1, 10**400)),
    lambda draw: Raw(draw.choice(("9" * 5000, "1e400", "-1e400", "1E-999", "NaN", "Infinity", "-Infinity", "-0"))),
    lambda draw: draw.choice((0.5, 3.0, 1e308, -2.0, 5e-324)),
    lambda draw: draw.choice(("", " ", "\n\t", "\0", "Ada\0", "\u2028", "\ufeff", "\x85", "\u202e", "a" * 100_000)),
    lambda draw: Raw(draw.choice((r'"\ud800"', r'"\udc00\ud800"', r'"Ada\ud83d"', r'"\u0000"', r'"\uD83D\uDE42"'))),
    lambda draw: draw.choice(([], {}, [[]], [None], [{}], {"": None}, {"text": []}, {"text": "Ada"}, [""])),
    lambda draw: draw.choice(("Ada", "12", "true", "nan", "=1+1", "a\tb", 'a"b', "a,b", "a\r\nb")),
    lambda draw: Pairs([("text", "Ada"), ("text", ["Ada"]), ("answer_start", 0)]),
    lambda draw: {"text": ["Ada", None, 3], "answer_start": [0, 1]},
    lambda draw: [{"text": "Ada", "answer_start": draw.choice((0, 2.0, "0", None, [], 10**30, -5))}],
    nested,
]


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or position) of a tree."""
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if type(node) is list else []
        found += [(node, key) for key in keys]
        waiting += [node[key] for key in keys]
    return found


def mutate(tree: Any, draw: random.Random) -> Any:
    """Return the tree with one change; the tree itself may be changed too."""
    found = places(tree)
    if not found or draw.random() < 0.01:
        return odd_value(draw)
    node, key = draw.choice(found)
    change = draw.choice(CHANGES)
    change(node, key, draw)
    return tree


def drop(node: Any, key: Any, draw: random.Random) -> None:
    del node[key]


def rename(node: Any, key: Any, draw: random.Random) -> None:
    if isinstance(node, dict):
        node[draw.choice([*FIELDS, "", "Context", "context ", "a\nb"])] = node.pop(key)


def retype(node: Any, key: Any, draw: random.Random) -> None:
    node[key] = odd_value(draw)


def wrap(node: Any, key: Any, draw: random.Random) -> None:
    node[key] = draw.choice(([node[key]], {draw.choice(FIELDS): node[key]}, [node[key], odd_value(draw)]))


def unwrap(node: Any, key: Any, draw: random.Random) -> None:
    value = node[key]
    if isinstance(value, dict | list) and value:
        node[key] = draw.choice(list(value.values()) if isinstance(value, dict) else value)


def duplicate_key(node: Any, key: Any, draw: random.Random) -> None:
    value = node[key]
    if isinstance(value, dict) and value:
        name = draw.choice(list(value))
        node[key] = Pairs([*value.items(), (name, odd_value(draw))])


def add(node: Any, key: Any, draw: random.Random) -> None:
    if isinstance(node, dict):
        node[draw.choice(FIELDS)] = odd_value(draw)
    else:
        node.insert(draw.randint(0, len(node)), odd_value(draw))


def shift(node: Any, key: Any, draw: random.Random) -> None:
    """Change a number a little, or cut a text: wrong offsets, answers that are not there."""
    value = node[key]
    if isinstance(value, str) and type(value) is str:
        node[key] = value[draw.randint(0, len(value)) :]
    elif isinstance(value, int):
        node[key] = value + draw.choice((-1, 1, 100))


CHANGES = [drop, rename, retype, retype, retype, wrap, unwrap, duplicate_key, add, shift]


# --- as text


def as_json(value: Any, draw: random.Random, *, indent: bool = False) -> str:
    """The JSON of a tree, with `Pairs` and `Raw`; texts are escaped or not."""
    if isinstance(value, Raw):
        return str(value)
    space = "\n " if indent else ""
    if isinstance(value, Pairs | dict):
        pairs = value.items() if isinstance(value, dict) else value
        inside = f",{space}".join(f"{json.dumps(str(key))}: {as_json(one, draw, indent=indent)}" for key, one in pairs)
        return f"{{{space}{inside}}}"
    if isinstance(value, list):
        return "[" + f",{space}".join(as_json(one, draw, indent=indent) for one in value) + "]"
    return json.dumps(value, ensure_ascii=draw.random() < 0.5)


def as_cell(value: Any) -> str:
    """The text of a value in a table."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
