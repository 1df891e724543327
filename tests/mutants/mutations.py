"""Mutants of Python source: copies in which one token is wrong, as a slip of the hand would make it.

Not changed: docstrings and annotations, imports, decorators, `__all__`, assertions and the texts of errors and logs,
f-strings, abstract methods, blocks for type checking and `zip(…, strict=…)`.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
}
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
LOGS = {"print", "warn", "warning", "info", "debug", "error", "exception", "log", "echo"}
NO_CODE = {"abstractmethod", "overload"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        start: The first byte of what is replaced.
        end: The byte after it.
        new: What stands there instead.
        operator: The kind of change.
        line: The line of the change, from 1.
        statement: The line of the innermost statement of a function that holds it; 0 outside of functions.
    """

    start: int
    end: int
    new: str
    operator: str
    line: int
    statement: int

    def apply(self, source: bytes) -> bytes:
        """The changed source."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def is_other_program(self, source: bytes) -> bool:
        """Whether the changed source is Python, and means something else than the source."""
        try:
            return ast.dump(ast.parse(self.apply(source))) != ast.dump(ast.parse(source))
        except SyntaxError:
            return False


def mutants(source: bytes) -> list[Mutant]:
    """All mutants of a file, from top to bottom."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda mutant: (mutant.start, mutant.end, mutant.operator))


def _name(node: ast.expr) -> str:
    """The last part of a dotted name; of a call, that of what is called."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


class _Finder(ast.NodeVisitor):
    def __init__(self, source: bytes) -> None:
        self.source = source
        self.found: list[Mutant] = []
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._statement = 0
        self._in_function = False

    def visit(self, node: ast.AST) -> None:
        before = self._statement
        if self._in_function and isinstance(node, ast.stmt):
            self._statement = node.lineno
        super().visit(node)
        self._statement = before

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def _put(self, start: int, end: int, new: str, operator: str) -> None:
        line = self.source.count(b"\n", 0, start) + 1
        self.found.append(Mutant(start, end, new, operator, line, self._statement))

    def _between(self, left: ast.expr, right: ast.expr, change: tuple[str, str], operator: str) -> None:
        """Replace the operator that stands between two expressions."""
        start, end = self._span(left)[1], self._span(right)[0]
        if match := re.search(change[0].encode(), self.source[start:end]):
            self._put(start + match.start(), start + match.end(), change[1], operator)

    def _negate(self, test: ast.expr) -> None:
        """Not where a changed comparison says the same."""
        ordered = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
        opposite = isinstance(test, ast.Compare) and len(test.ops) == 1 and not isinstance(test.ops[0], ordered)
        if not opposite and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            start, end = self._span(test)
            self._put(start, end, f"(not ({self.source[start:end].decode()}))", "condition negated")

    def _all(self, nodes: Iterator[ast.AST] | list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if {_name(decorator) for decorator in node.decorator_list} & NO_CODE:
            return
        before = self._in_function, self._statement
        first = node.body[1] if len(node.body) > 1 and ast.get_docstring(node) is not None else node.body[0]
        self._statement = first.lineno  # a default counts where the function runs
        self._all(default for default in [*node.args.defaults, *node.args.kw_defaults] if default)
        self._in_function = True
        self._all(node.body)
        self._in_function, self._statement = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if "Protocol" not in map(_name, node.bases):
            self._all(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if [_name(target) for target in node.targets] != ["__all__"]:
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if _name(node.test) == "TYPE_CHECKING" or any(_name(child) == "__name__" for child in ast.walk(node.test)):  # type: ignore[arg-type]
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While | ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    visit_IfExp = visit_While

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None: ...

    def visit_Raise(self, node: ast.Raise) -> None: ...

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...

    def visit_Return(self, node: ast.Return) -> None:
        if node.value and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._put(*self._span(node), "return None", "returned value dropped")
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and _name(call) not in LOGS:
            self._put(*self._span(node), "pass", "call dropped")
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        name = _name(node)
        if name in LOGS or name.endswith(("Error", "Warning")):
            return
        if name in EXTREMES:
            end = self._span(node.func)[1]
            self._put(end - len(name), end, EXTREMES[name], "minimum and maximum")
        self.visit(node.func)
        self._all([*node.args, *(word.value for word in node.keywords if word.arg != "strict")])  # type: ignore[list-item]

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            self._between(left, right, COMPARISONS[type(operator)], "comparison")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        change = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, (rf"\b{change[0]}\b", change[1]), "and, or")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (node.left, node.right))
        if type(node.op) in ARITHMETIC and not texts:
            self._between(node.left, node.right, ARITHMETIC[type(node.op)], "arithmetic")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in ARITHMETIC and not isinstance(node.value, ast.JoinedStr) and not _is_text(node.value):
            old, new = ARITHMETIC[type(node.op)]
            self._between(node.target, node.value, (f"{old}=", f"{new}="), "arithmetic")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start = self._span(node)[0]
            self._put(start, start + len("not"), "", "not dropped")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._put(*self._span(node), str(not node.value), "True, False")
        elif isinstance(node.value, int | float):
            new = 0 if node.value == 1 else node.value + 1
            self._put(*self._span(node), repr(type(node.value)(new)), "number")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
