"""Read 10,000 files that are damaged on purpose; nothing but data or `InputError` may come out of a reader.

    python experiments/fuzz-readers/run.py --seed 0 --inputs 10000 --output experiments/fuzz-readers/results.json

Input n of a seed is the same on every machine: `--first n --inputs 1` repeats it. Ends with 1 when something else was
raised, or when what was read breaks a promise of the reader; these inputs stay in `--folder`.
"""

import argparse
import faulthandler
import json
import random
import resource
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from files import make

from rl_qg.data.formats import FILE_NAME
from rl_qg.data.passages import TEXT, Passages, has_answers
from rl_qg.data.question_tables import QuestionTable
from rl_qg.data.reading import read_examples
from rl_qg.data.streaming import stream_examples
from rl_qg.runtime.errors import InputError

SECONDS = 60
"""How long a reader may take for one small file."""

MEMORY = 8 << 30
"""Bytes of address space of this process: a reader that wants more fails instead of the machine."""


def check_examples(path: Path, unlabelled: bool) -> None:
    """What `read_examples` promises; the stream of the same file must be equal."""
    found = read_examples(path, role="train", allow_unlabelled=unlabelled).examples
    assert len({example.id for example in found}) == len(found), "ids repeat"
    for example in found:
        assert example.context.strip() and example.answers, "an example without context or answer"
        for answer in example.answers:
            assert example.context[answer.start : answer.start + len(answer.text)] == answer.text, "a wrong offset"
        "".join((example.id, example.title, example.context, example.question)).encode()
    assert list(stream_examples(path, role="train", allow_unlabelled=unlabelled)) == found, "the stream differs"


def check_passages(path: Path, form: str) -> None:
    """Passages are valid Unicode, not blank, and counted."""
    passages = Passages([str(path)], form)
    found = list(passages)
    for passage in found:
        assert passage.context.strip(), "a blank passage"
        "".join((passage.id, passage.title, passage.context)).encode()
    counts = passages.counts
    assert counts.kept == len(found)
    left_out = counts.empty + counts.broken + counts.malformed + counts.repeated + counts.excluded
    assert counts.read == counts.kept + left_out
    has_answers(str(path))


def check_table(path: Path | dict[str, Path]) -> None:
    """Each column's value is a text that can be encoded, or None; for references a list of them."""
    table = QuestionTable(path)
    for one in table:
        for column in ("question", "context", "answer", "references"):
            value = table.value(one, column)
            for text in value if isinstance(value, list) else [value]:
                assert text is None or isinstance(text, str), f"{column} is no text"
                (text or "").encode()


def readers(name: str) -> dict[str, Callable[[Path], None]]:
    """The readers that take files of this name."""
    found: dict[str, Callable[[Path], None]] = {}
    if FILE_NAME.fullmatch(name):
        found["QA data"] = lambda path: check_examples(path, unlabelled=False)
        found["QA data, unlabelled"] = lambda path: check_examples(path, unlabelled=True)
    if FILE_NAME.fullmatch(name) or TEXT.fullmatch(name):
        found["passages"] = lambda path: check_passages(path, "line")
    if TEXT.fullmatch(name):
        found["passages, paragraphs"] = lambda path: check_passages(path, "paragraph")
        found["text columns"] = lambda path: check_table({"question": path, "context": path})
    if FILE_NAME.fullmatch(name):
        found["question table"] = check_table
    return found


def outcome(read: Callable[[Path], None], path: Path) -> tuple[str, str]:
    """`read`, `refused` or `failed`, and what was said."""
    signal.alarm(SECONDS)
    try:
        read(path)
    except InputError as error:
        message = str(error)
        bad = "\n" in message or not message.startswith(str(path)) or len(message) > 1000
        try:
            message.encode()
        except UnicodeEncodeError:
            bad = True
        return ("failed" if bad else "refused"), f"message: {message[:500]!r} ({len(message)} characters)"
    except Exception:
        return "failed", traceback.format_exc()
    finally:
        signal.alarm(0)
    return "read", ""


def too_slow(number: int, frame: object) -> None:
    raise TimeoutError(f"took more than {SECONDS} s")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/rl-qg-fuzz"), help="where failing inputs are kept")
    parser.add_argument("--output", type=Path, help="JSON with the counts")
    options = parser.parse_args()
    faulthandler.enable()
    signal.signal(signal.SIGALRM, too_slow)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    counts: dict[str, Counter[str]] = {}
    kinds: Counter[str] = Counter()
    failures: list[str] = []
    for number in range(options.first, options.first + options.inputs):
        name, content = make(random.Random(f"{options.seed} {number}"))
        folder = options.folder / f"{options.seed}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        path.write_bytes(content)  # before it is read, so that it is there after a crash of the interpreter
        kinds["".join(path.suffixes[-2:] if path.suffix == ".gz" else path.suffix).lower()] += 1
        failed = False
        for reader, read in readers(name).items():
            result, said = outcome(read, path)
            counts.setdefault(reader, Counter())[result] += 1
            if result == "failed":
                failed = True
                failures.append(f"{path}: {reader}: {said.strip().splitlines()[-1]}")
                (folder / f"{reader}.error").write_text(said, encoding="utf-8", errors="backslashreplace")
        if not failed:
            shutil.rmtree(folder)
    report(options, counts, kinds, failures)
    return 1 if failures else 0


def report(
    options: argparse.Namespace, counts: dict[str, Counter[str]], kinds: Counter[str], failures: list[str]
) -> None:
    """Print the counts and the failures, and write them."""
    for reader, found in counts.items():
        print(f"{reader}: " + ", ".join(f"{found[result]:,} {result}" for result in ("read", "refused", "failed")))
    print("files: " + ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items())))
    for line in failures:
        print(line, file=sys.stderr)
    if options.output:
        found = {"seed": options.seed, "first": options.first, "inputs": options.inputs, "files": dict(kinds)}
        results = {
            reader: {key: part[key] for key in ("read", "refused", "failed")} for reader, part in counts.items()
        }
        options.output.write_text(json.dumps({**found, "readers": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
