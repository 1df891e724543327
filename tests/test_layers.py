"""The architecture, read from the source: which room imports which, and what a file may hold."""

import ast
import importlib
import importlib.machinery
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from token import tok_name as token_name

ROOT = Path(__file__).parent.parent
# From low to high: a room imports rooms before it, and itself. `docs/architecture.md` describes them.
ROOMS = (
    *("runtime", "text", "stats", "pages", "settings", "data", "readers", "generation", "miniatures", "scoring"),
    *("augmentation", "asking", "evaluation", "judging", "reports", "training", "studies", "bench"),
    *("web", "serving", "rating", "commands"),
)
# At the top of rl_qg, above all rooms: launchers, and documented names for what is in a room.
TOP = {"__init__", "__main__", "train", "generate", "score", "qa", "pipeline", "qa_data"}
# Stages are run by commands. They meet through files: no stage imports a stage of another room.
STAGE = re.compile(
    r"stages|trl_stages|best_of_n|generate|propose_answers|trim|train_\w+|kpqa|augment|ask_\w+|evaluate|"
    r"compare_generators|score_file|correlate|robustness|benchmark_data|analyse"
)
NOT_FOR_REWARDS = {"rl_qg", "hydra", "omegaconf", "accelerate", "trl", "deepspeed"}
COMPOSES_SETTINGS = "rl_qg.commands.compose"
READS_OMEGACONF = ("rl_qg.settings", "rl_qg.studies")
NO_ROOM = {"utils", "util", "helpers", "helper", "common", "misc", "tools", "base_utils"}
LONGEST = 700  # lines
PRIVATE = re.compile(r"\b_[a-z]\w*")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules(*packages: str) -> dict[str, Path]:
    files = {module_name(path): path for package in packages for path in sorted((ROOT / package).rglob("*.py"))}
    assert len(files) > 5
    return files


SOURCE = modules("rl_qg", "rewards")


def imports(path: Path) -> set[str]:
    """`module` and `module.name` of everything that a file imports, in functions and for type checking too."""
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def libraries(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


def dependencies(module: str) -> set[str]:
    """The files of rl_qg and rewards that a module imports; `from package import module` means the module."""
    names = imports(SOURCE[module])
    return {name if name in SOURCE else name.rpartition(".")[0] for name in names} & SOURCE.keys()


def room(module: str) -> str:
    """The room of a module of rl_qg; "" for what is above all rooms."""
    name = module.removeprefix("rl_qg").removeprefix(".").split(".")[0]
    return name if name in ROOMS else ""


def prose(path: Path) -> str:
    """The text of a document; of a Python file its strings and comments."""
    if path.suffix != ".py":
        return path.read_text(encoding="utf-8")
    with path.open("rb") as stream:
        kinds = {"STRING", "COMMENT", "FSTRING_MIDDLE"}
        return "\n".join(
            token.string for token in tokenize.tokenize(stream.readline) if token_name[token.type] in kinds
        )


def names_of(module: str) -> set[str]:
    """What `from module import …` can give: names of its top level, and its submodules."""
    path = SOURCE[module]
    names = {name.removeprefix(f"{module}.") for name in SOURCE if name.startswith(f"{module}.")}
    for node in ast.walk(ast.Module(body=[*_top_level(tree_of(path).body)], type_ignores=[])):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    if "__getattr__" in names:  # loads names when they are asked for
        names |= set(importlib.import_module(module).__all__)
    return names | {"__file__", "__name__", "__doc__"}


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module's top level; of functions and classes the name alone."""
    for node in body:
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _top_level([*node.body, *getattr(node, "orelse", [])])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield type(node)(**{**dict(ast.iter_fields(node)), "body": [], "decorator_list": []})
        else:
            yield node


def resolves(dotted: str) -> bool:
    """Whether `package.module.name…` names a module, or something at the top level of one.

    A metric may be named by its path in earlier versions, as for `rewards.load`.
    """
    parts = dotted.split(".")
    module = next((".".join(parts[:at]) for at in range(len(parts), 0, -1) if ".".join(parts[:at]) in SOURCE), "")
    left = parts[len(module.split(".")) :]
    earlier = parts[0] == "rewards" and parts[-1] in names_of("rewards")
    return earlier or (bool(module) and (not left or left[0] in names_of(module)))


def test_every_file_of_rl_qg_is_in_a_room() -> None:
    top = {name.removeprefix("rl_qg.").split(".")[0] for name in modules("rl_qg") if "." in name}
    assert top == {*ROOMS, *TOP} - {"__init__"}


def test_rooms_import_lower_rooms_only() -> None:
    wrong = [
        f"{module} imports {other}"
        for module in modules("rl_qg")
        if room(module)
        for other in dependencies(module)
        if not other.startswith("rewards")
        and (not room(other) or ROOMS.index(room(other)) > ROOMS.index(room(module)))
    ]
    assert not wrong


def test_no_files_import_each_other_in_a_circle() -> None:
    TopologicalSorter({module: dependencies(module) for module in SOURCE}).prepare()  # names the circle


def test_stages_of_two_rooms_meet_through_files() -> None:
    stages = {
        module
        for module in modules("rl_qg")
        if room(module) not in ("", "commands") and STAGE.fullmatch(module.rpartition(".")[2])
    }
    assert len(stages) > 10
    wrong = [
        f"{module} imports {other}"
        for module in stages
        for other in dependencies(module) & stages
        if room(other) != room(module)
    ]
    assert not wrong


def test_rewards_do_not_know_training_or_settings() -> None:
    assert not {
        module: wrong for module, path in modules("rewards").items() if (wrong := libraries(path) & NOT_FOR_REWARDS)
    }


def test_settings_are_composed_in_one_file() -> None:
    hydra = {module for module, path in SOURCE.items() if "hydra" in libraries(path)}
    assert hydra == {COMPOSES_SETTINGS}
    omegaconf = {module for module, path in SOURCE.items() if "omegaconf" in libraries(path)}
    assert not {module for module in omegaconf - hydra if not module.startswith(READS_OMEGACONF)}


def test_no_name_at_the_top_of_rl_qg_is_that_of_an_installed_library() -> None:
    """`accelerate launch rl_qg/train.py` puts `rl_qg/` first on the import path."""
    paths = {entry: Path(entry).resolve() for entry in sys.path if entry}
    ours = (ROOT, ROOT / "rl_qg")
    # Other tests import scripts of experiments/ from their folders.
    elsewhere = [
        entry for entry, path in paths.items() if path not in ours and ROOT / "experiments" not in path.parents
    ]
    names = {path.stem for path in (ROOT / "rl_qg").iterdir() if path.is_dir() or path.suffix == ".py"}
    for name in names - {"__init__", "__main__", "__pycache__"}:
        assert name not in sys.stdlib_module_names
        assert importlib.machinery.PathFinder.find_spec(name, elsewhere) is None, name


def test_files_are_short_and_named_for_what_they_do() -> None:
    lengths = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in SOURCE.items()}
    assert not {module: lines for module, lines in lengths.items() if lines > LONGEST}
    assert not {module for module in SOURCE if NO_ROOM & set(module.split("."))}


def test_no_two_classes_have_one_name() -> None:
    classes = [node.name for path in SOURCE.values() for node in tree_of(path).body if isinstance(node, ast.ClassDef)]
    assert not [name for name, count in Counter(classes).items() if count > 1]


def test_nothing_unsafe_is_called() -> None:
    for module, path in SOURCE.items():
        calls = [node.func for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
        assert not {call.id for call in calls if isinstance(call, ast.Name)} & {"eval", "exec"}, module
        assert not libraries(path) & {"pickle", "dill", "shelve"}, module
        assert "trust_remote_code=True" not in path.read_text(encoding="utf-8"), module


def test_names_of_loggers_are_written_out() -> None:
    """So that the next test sees them: the command line sets levels by the names of modules."""
    for module, path in SOURCE.items():
        for call in ast.walk(tree_of(path)):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("getLogger"):
                assert not any(isinstance(argument, ast.JoinedStr) for argument in call.args), module


def test_modules_named_in_tests_and_documents_exist() -> None:
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml", ROOT / "Makefile"]
    for folder, pattern in (("docs", "*.md"), ("configs", "*.yaml"), ("tests", "*.py"), ("experiments", "*.py")):
        paths += (ROOT / folder).rglob(pattern)
    paths += (ROOT / "experiments").rglob("*.sh")
    named = re.compile(r"(?<![\w./-])(?:rl_qg|rewards)(?:\.\w+)+(?![\w/-])")
    wrong = [
        f"{path.relative_to(ROOT)}: {dotted}"
        for path in [*paths, *SOURCE.values()]
        for dotted in named.findall(prose(path))
        if not resolves(dotted)
    ]
    assert not wrong


def own_names(path: Path) -> set[str]:
    """Names of functions and attributes that a file defines."""
    nodes = [*ast.walk(tree_of(path))]
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    return functions | {
        node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }


def test_what_experiments_import_exists() -> None:
    """Scripts of experiments run rarely, so what they take from modules and private names they use are checked."""
    private = {name for path in SOURCE.values() for name in PRIVATE.findall(path.read_text(encoding="utf-8"))}
    wrong = []
    for path in sorted((ROOT / "experiments").rglob("*.py")):
        aliases: dict[str, str] = {}
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("rl_qg", "rewards")):
                for alias in node.names:
                    dotted = f"{node.module}.{alias.name}"
                    aliases |= {alias.asname or alias.name: dotted} if dotted in SOURCE else {}
                    wrong += [] if resolves(dotted) else [f"{path.relative_to(ROOT)}: {dotted}"]
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.startswith(("rl_qg.", "rewards.")):
                        aliases |= {alias.asname: alias.name} if alias.asname else {}
                        wrong += [] if alias.name in SOURCE else [f"{path.relative_to(ROOT)}: {alias.name}"]
        known = private | own_names(path)
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr) and node.attr not in known:
                wrong.append(f"{path.relative_to(ROOT)}: {node.attr}")
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                dotted = f"{aliases[node.value.id]}.{node.attr}"
                wrong += [] if resolves(dotted) else [f"{path.relative_to(ROOT)}: {dotted}"]
    assert not wrong
