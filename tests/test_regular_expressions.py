"""No regular expression takes quadratic time on any text: a hostile one would stop a server.

Every call of `re` is found in the code. Their patterns are recorded while a process imports all modules and calls what
makes patterns of its own (`call`); others are the constants of the calls. Each is tried on texts of 30,000 characters
made of what it looks for, in a child process. None may take a third of the processor time that the cheapest quadratic
pattern takes there, many times what a linear one takes. Run as a program, this file is that child.
"""

import ast
import importlib
import os
import random
import re
import re._compiler as compiler  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
LENGTH = 30_000
CPU_SECONDS = 10  # for the texts of one pattern, of which one may take much longer than the cheapest quadratic
TOO_SLOW = 3  # the exit code
FUNCTIONS = frozenset("compile sub subn split findall finditer search match fullmatch".split())
SAMPLES = "a1 .A,-\n'\"…é。東กк%([{<_\t\u0301"  # characters that stand for classes
MOST_CHARACTERS = 4  # of a pattern, of which texts are made
# What these match is made here: sentences of the embedded corpus and questions about them, settings, drawings.
OWN_TEXTS = frozenset(["rl_qg.data.corpus", "rl_qg.data.oracle", "rl_qg.commands.compose", "rl_qg.pages.plots"])
SHORT_TEXTS = {
    ("rl_qg.data.layouts", "pattern"): "names of files",
    ("rl_qg.rating.study.tables", "f'{letter}[0-9]{{4,15}}'"): "ids",
}
Found = dict[tuple[str, int, str], str]  # pattern, flags and how it is tried; where it stands


def call() -> None:
    """Call the functions that make patterns when they are called."""
    from rewards import faithfulness, standalone
    from rewards.overlap.published_lmqg import normalised_as_published
    from rl_qg.data.layouts import first_place
    from rl_qg.generation import answer_rules, tasks
    from rl_qg.judging import paraphrases
    from rl_qg.text.languages import LANGUAGES
    from rl_qg.text.question_types import nine_type
    from rl_qg.text.words import occurrences

    faithfulness._word_pattern()
    normalised_as_published("a")
    first_place("a", "a")
    occurrences("a b", "a b")
    nine_type("x")
    for language in standalone.known_languages():
        standalone.rules_of(language)
    for language in LANGUAGES:
        answer_rules.rule_spans("Ada 1843 東京 กขค พ.ศ. 2500, é", language=language)
    for task in tasks.TASKS:
        tasks.unescape(tasks.escape("a", tasks.tokens_of(task)), tasks.tokens_of(task))
    for change in (paraphrases._other_question_word, paraphrases._contracted, paraphrases._synonym):
        change("x y z", random.Random(1))


@cache
def sources() -> dict[str, tuple[str, ast.Module]]:
    """The text and the tree of each module that uses `re`."""
    found = {}
    for path in sorted([*ROOT.glob("rl_qg/**/*.py"), *ROOT.glob("rewards/**/*.py")]):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^import re$", text, re.MULTILINE):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = text, ast.parse(text)
    return found


def calls_of_re(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name)) if name in FUNCTIONS:
                yield name, node


@cache
def used_as() -> dict[tuple[str, int], str]:
    """By module and line, how a named pattern is used that is only used with `match`, or only with `fullmatch`."""
    methods_of, found = defaultdict[str, set[str]](set), {}
    for text, _ in sources().values():
        for name, method in re.findall(r"\b(\w+)\.(\w+)\(", text):
            methods_of[name].add(method)
    for module, (_, tree) in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                methods = methods_of[node.targets[0].id]
                if methods in ({"match"}, {"fullmatch"}):
                    found |= {(module, call.lineno): max(methods) for _, call in calls_of_re(node)}
    return found


def shape(pattern: str) -> str:
    """A pattern without its words, by which those of languages differ."""
    return re.sub(r"(\\.)|\w+(?:\|\w+)*", lambda part: part[1] or "word", pattern)


class Recorder:
    """The patterns that the packages compile while this stands in the place of `re._compile`."""

    def __init__(self) -> None:
        self.found: Found = {}
        self.lines: set[tuple[str, int]] = set()
        self.shapes: set[tuple[str, str, int]] = set()
        self.compile = re._compile  # type: ignore[attr-defined]

    def __call__(self, pattern: Any, flags: Any) -> Any:
        caller = sys._getframe(2)
        module = caller.f_globals.get("__name__", "")
        if module in sources() and isinstance(pattern, str):
            self.note(pattern, int(flags), sys._getframe(1).f_code.co_name, module, caller.f_lineno)
        return self.compile(pattern, flags)

    def note(self, pattern: str, flags: int, function: str, module: str, line: int) -> None:
        self.lines.add((module, line))
        if function == "compile":
            function = used_as().get((module, line), "search")
        how = function if function in ("match", "fullmatch") else "search"
        if module not in OWN_TEXTS and (key := (shape(pattern), module, line)) not in self.shapes:
            self.shapes.add(key)
            self.found.setdefault((pattern, flags, how), f"{module}:{line}")


def patterns() -> Found:
    """Every pattern; a call of `re` whose pattern is not known is an error."""
    used_as()  # with patterns of its own
    recorder = re._compile = Recorder()  # type: ignore[attr-defined]
    try:
        modules = {name: importlib.import_module(name) for name in sources()}
        call()
    finally:
        re._compile = recorder.compile  # type: ignore[attr-defined]
    for module, (_, tree) in sources().items():
        for function, node in calls_of_re(tree):
            source = ast.unparse(node.args[0])
            lines = {(module, line) for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
            if lines & recorder.lines or module in OWN_TEXTS or (module, source) in SHORT_TEXTS:
                continue
            given = [ast.unparse(part) for part in (*node.args[1:], *(word.value for word in node.keywords))]
            flags = [eval(part, {"re": re}) for part in given if re.fullmatch(r"re\.[A-Z]+( \| re\.[A-Z]+)*", part)]
            try:
                recorder.note(eval(source, dict(vars(modules[module]))), sum(flags), function, module, node.lineno)
            except NameError:
                raise AssertionError(f"{module}:{node.lineno}: call the function in `call` above: {source}") from None
    return recorder.found


class Parts:
    """Characters that a pattern looks for, and a text that it is likely to match."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.characters: dict[str, None] = {}
        self.text = ""
        self._visit(parser.parse(pattern, flags))

    def _visit(self, nodes: Any) -> None:
        for node in nodes:
            name, value = str(node[0]), node[1]
            if name == "LITERAL":
                self._take([chr(value)])
            elif name in ("IN", "NOT_LITERAL", "ANY"):
                self._take([char for char in SAMPLES if _matches(node, char)] or _members(value))
            elif name.endswith("REPEAT"):
                for _ in range(max(1, min(value[0], 3))):
                    self._visit(value[2])
            elif name == "BRANCH":
                for branch in value[1]:
                    self._visit(branch)
            elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
                self._visit(value[-1] if name == "SUBPATTERN" else value)
            elif name.startswith("ASSERT"):
                before = self.text
                self._visit(value[1])
                self.text = before

    def _take(self, found: list[str]) -> None:
        self.characters |= dict.fromkeys(found[:2])
        self.text += found[0] if found else ""


def _matches(node: Any, char: str) -> bool:
    state = parser.State()
    state.str = ""
    return compiler.compile(parser.SubPattern(state, [node])).match(char) is not None


def _members(value: Any) -> list[str]:
    named = [(str(name), inside) for name, inside in value if str(name) in ("LITERAL", "RANGE")]
    return [chr(inside if name == "LITERAL" else inside[0]) for name, inside in named]


def hostile(pattern: str, flags: int) -> Iterator[str]:
    """Rows of one character, of pairs, and of what the pattern matches, whole and in part; none matches at its end."""
    parts = Parts(pattern, flags)
    rare_first = sorted(parts.characters, key=lambda char: (char.isalnum(), ord(char)))
    signs, letters = [char for char in rare_first if not char.isalnum()], [c for c in rare_first if c.isalnum()]
    chosen = [*signs[: MOST_CHARACTERS - 2], *letters[:2]]
    pairs = ["".join(pair) for pair in product(chosen, repeat=2)]
    for part in dict.fromkeys([*chosen, *pairs, parts.text, parts.text[:-1], parts.text[1:]]):
        yield part * (LENGTH // len(part)) + "\0" if part else ""
    for char in chosen:
        yield char * LENGTH + "a"
    for first, then in pairs:
        if first != then:
            yield first + then * LENGTH + "\0"


def attempt(pattern: re.Pattern[str], how: str, text: str) -> float:
    """The processor time."""
    start = time.process_time()
    if how == "search":
        for _ in pattern.finditer(text):
            pass
    else:
        getattr(pattern, how)(text)
    return time.process_time() - start


def quadratic() -> float:
    """The processor time of the cheapest quadratic pattern, from a shorter text."""
    part = 4
    return part**2 * min(attempt(re.compile("a*+b"), "search", "a" * (LENGTH // part)) for _ in range(3))


def limit_cpu(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def main(given: list[str]) -> None:
    """Try these patterns, else all; each is named before: the last one named is that which was too slow."""
    found: Found = {(pattern, 0, "search"): "given" for pattern in given} or patterns()
    limit = quadratic() / 3
    for (pattern, flags, how), where in found.items():
        print(where, how, repr(pattern[:300]), flush=True)
        limit_cpu(CPU_SECONDS)
        compiled = re.compile(pattern, flags)
        for text in hostile(pattern, flags):
            if all(attempt(compiled, how, text) > limit for _ in range(2)):  # a machine may be busy
                sys.exit(TOO_SLOW)
    print(len(found), "patterns")


def child(*given: str) -> tuple[int, str, str]:
    """Exit code, last line of the output, and errors."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.test_regular_expressions", *given]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return run.returncode, (run.stdout.splitlines() or [""])[-1], run.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_regular_expression_takes_quadratic_time() -> None:
    code, last, errors = child()
    assert code == 0, f"too slow on a text of {LENGTH} characters: {last} {errors}"
    assert int(last.split()[0]) > 150


@pytest.mark.slow
def test_a_quadratic_one_is_found_and_a_linear_one_is_not() -> None:
    quadratic = r"""[.!?…]+["')]*(?=\s)"""  # which stopped the server
    code, last, _ = child(quadratic)
    assert code in (TOO_SLOW, -signal.SIGXCPU) and repr(quadratic) in last
    assert child("a*+b")[0] == TOO_SLOW
    assert child(quadratic.replace("+", "++").replace("*", "*+").replace("[.", "(?<![.!?…])[.", 1))[:2] == (
        0,
        "1 patterns",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
