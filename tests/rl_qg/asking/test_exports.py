"""Every format, read back by a reader that is not ours."""

import csv
import io
import json
import os
import re
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_qg.asking.documents import FORMATS, export, format_of, row_of
from rl_qg.asking.pairs import QAPair
from rl_qg.runtime.errors import InputError

HOSTILE = st.text(max_size=30) | st.sampled_from(
    [
        "=1+1",
        '"',
        "a\tb\nc",
        "#deck:x",
        "//",
        "%50%x",
        "{~a =b}",
        "a -> b",
        "::x::",
        "[html]<b>",
        "\\",
        "\\n",
        "*",
        "\r\n",
        "$CATEGORY: x",
    ]
)
TEXTS = HOSTILE.filter(lambda text: not re.search(r"[\ud800-\udfff]", text))


def row(question: str, answer: str, title: str = "t", number: int = 1) -> dict[str, Any]:
    pair = QAPair(question, answer, 4, 0.5, -1.25, {"probability": 0.5}, "why")
    return row_of(pair, identity=f"{title}-{number}", title=title, context=f"Its {answer}.")


def line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_gift(text: str) -> list[tuple[str, str]]:
    """Questions and answers, in the way of Moodle's `qformat_gift`: escapes first, then the parts."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.split("\n") if not line.startswith("//") and not line.startswith("$CATEGORY:")]
        body = "\n".join(lines).strip("\n")
        if not body.strip():
            continue
        body = body.replace("\\\\", "\ue000")
        for place, sign in enumerate(":#={}~"):
            body = body.replace("\\" + sign, chr(0xE001 + place))
        body = body.replace("\\n", "\ue007")
        name, rest = re.fullmatch(r"::(.*?)::(.*)", body, re.DOTALL).groups()  # type: ignore[union-attr]
        stem, inner, after = re.fullmatch(r"([^{}]*)\{([^{}]*)\}(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
        assert not after.strip() and stem.startswith("[plain]") and name
        assert inner.startswith("=%100%") and "->" not in inner and not set(inner[6:]) & set("=~#:")
        texts = [stem.removeprefix("[plain]")[:-1], inner.removeprefix("=%100%")]
        back = {ord("\ue000"): "\\", **{0xE001 + place: sign for place, sign in enumerate(":#={}~")}, 0xE007: "\n"}
        question, answer = (text.translate(back) for text in texts)
        found.append((question, answer.replace("\\*", "*")))  # a star alone would be a wildcard
    return found


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
def test_hostile_texts_come_back_from_every_format(texts: list[tuple[str, str]]) -> None:
    rows = [row(question, answer, number=number) for number, (question, answer) in enumerate(texts)]
    assert [json.loads(line) for line in export(rows, "jsonl").split("\n")[:-1]] == rows
    assert json.loads(export(rows, "json")) == rows
    (article,) = json.loads(export(rows, "squad"))["data"]
    questions = [qa for paragraph in article["paragraphs"] for qa in paragraph["qas"]]
    assert [(qa["question"], qa["answers"][0]["text"]) for qa in questions] == texts
    contexts = [(p["context"], qa["answers"][0]) for p in article["paragraphs"] for qa in p["qas"]]
    assert all(c[a["answer_start"] : a["answer_start"] + len(a["text"])] == a["text"] for c, a in contexts)
    table = list(csv.DictReader(io.StringIO(export(rows, "csv"), newline="")))
    for line, (question, answer) in zip(table, texts, strict=True):
        assert line["question"].removeprefix("'") in (line_ends(question), line_ends(question).removeprefix("'"))
        assert line["answer"].removeprefix("'") in (line_ends(answer), line_ends(answer).removeprefix("'"))
        assert not line["question"].startswith(("=", "@", "\t"))
    cards = export(rows, "anki").split("\n", 3)
    assert cards[:2] == ["#separator:tab", "#html:false"]
    notes = list(csv.reader(io.StringIO(cards[3], newline=""), delimiter="\t"))
    expected = [[line_ends(question), line_ends(answer)] for question, answer in texts]
    assert [[field.removeprefix("'") for field in note] for note in notes] == [
        [text.removeprefix("'") for text in pair] for pair in expected
    ]
    assert not [field for note in notes for field in note if field.startswith(("=", "@", "\t"))]
    assert not [line for line in cards[3].split("\n") if line.startswith("#")] or "\n#" in "".join(map("".join, notes))


GIFT_TEXTS = TEXTS.filter(lambda text: not re.search("[\ue000-\ue007]", text))


@given(st.lists(st.tuples(GIFT_TEXTS, GIFT_TEXTS), min_size=1, max_size=4))
def test_hostile_texts_come_back_from_gift(texts: list[tuple[str, str]]) -> None:
    rows = [row(question, answer, number=number) for number, (question, answer) in enumerate(texts)]
    expected = [(line_ends(question), line_ends(answer).replace("->", "→")) for question, answer in texts]
    assert read_gift(export(rows, "gift")) == expected


def test_the_files_are_as_the_programs_document_them() -> None:
    rows = [row("Who: Ada?", "5*3 = 15", "Ada/notes", 1), row("Where?", "Rome", "Bob", 2)]
    assert export(rows, "gift") == (
        "$CATEGORY: Ada//notes\n\n::Ada/notes-1::[plain]Who\\: Ada? {=%100%5\\\\*3 \\= 15}\n\n"
        "$CATEGORY: Bob\n\n::Bob-2::[plain]Where? {=%100%Rome}\n"
    )
    assert export(rows, "anki") == (
        '#separator:tab\n#html:false\n#columns:Question\tAnswer\n"Who: Ada?"\t"5*3 = 15"\n"Where?"\t"Rome"\n'
    )
    assert export(rows, "csv").splitlines()[0] == "question,answer,answer_start,score,title,context,reason"


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
def test_hostile_texts_come_back_as_other_libraries_name_them(texts: list[tuple[str, str]]) -> None:
    rows = [row(question, answer, number=number) for number, (question, answer) in enumerate(texts)]
    expected = [(question, answer, f"Its {answer}.") for question, answer in texts]
    pairs, samples = (
        [json.loads(line) for line in export(rows, form).split("\n")[:-1]] for form in ("retrieval", "ragas")
    )
    assert [[*pair.items()] for pair in pairs] == [[("anchor", q), ("positive", c)] for q, _, c in expected]
    assert [(s["user_input"], s["reference"], *s["reference_contexts"]) for s in samples] == expected
    goldens = json.loads(export(rows, "deepeval"))
    assert [(g["input"], g["expected_output"], *g["context"]) for g in goldens] == expected


# Package (ragas 0.4 does not import with a newer langchain-community): format, and how it says that it is loaded.
LOADERS = {
    "datasets": ("retrieval", "datasets.load_dataset('json', data_files=F, split='train')['anchor'][0]"),
    "ragas langchain-community<0.4": ("ragas", "ragas.EvaluationDataset.from_jsonl(F).samples[0].user_input"),
    "deepeval": ("deepeval", "goldens(F)[0].input"),
}
IMPORTS = {
    "deepeval": """
from deepeval.dataset import EvaluationDataset
def goldens(path):
    found = EvaluationDataset()
    found.add_goldens_from_json_file(path)
    return found.goldens
""",
}


@pytest.mark.slow
@pytest.mark.skipif("RL_QG_LIBRARIES" not in os.environ, reason="installs other libraries: make test-all")
@pytest.mark.parametrize("package", LOADERS)
def test_the_library_loads_its_file(package: str, tmp_path: Path) -> None:
    """In an environment of its own, which takes minutes and a network."""
    form, load = LOADERS[package]
    path = tmp_path / ("file.jsonl" if form in ("retrieval", "ragas") else "file.json")
    path.write_text(export([row("Who is “Ada”?", "Ada")], form), encoding="utf-8")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    if subprocess.run([python, "-m", "pip", "install", "-q", *package.split()], capture_output=True).returncode:
        pytest.skip(f"{package} cannot be installed here")
    script = f"{IMPORTS.get(package, f'import {package.split()[0]}')}\nF = {str(path)!r}\nprint({load})"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["Who is “Ada”?"], done.stderr[-2000:]


def test_the_ending_names_the_format() -> None:
    names = {"a.jsonl": "jsonl", "a.json": "json", "a.SQUAD.json": "squad", "a.csv": "csv", "a.anki.txt": "anki"}
    assert {name: format_of(name) for name in names} == names
    assert format_of("a.gift") == "gift" and format_of("a.txt", "anki") == "anki"
    assert set(FORMATS) == {*names.values(), "gift", "retrieval", "ragas", "deepeval"}
    with pytest.raises(InputError, match=r"output=a\.txt: name a file that ends in \.jsonl"):
        format_of("a.txt")
