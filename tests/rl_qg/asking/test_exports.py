"""Every format, read back by a reader that is not ours."""

import csv
import io
import json
import os
import re
import runpy
import subprocess
import sys
import venv
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, strategies as st
from transformers import GPT2LMHeadModel

from rl_qg.asking.exports import FORMATS, export, export_file, format_of, row_of
from rl_qg.asking.pairs import QAPair
from rl_qg.data.question_tables import QuestionTable
from rl_qg.runtime.errors import InputError
from rl_qg.settings import ExportSettings
from tests.processes import ROOT
from tests.tiny_models import save, tiny, word_tokenizer

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
    "beir": ("beir", "GenericDataLoader(F).load('test')[1]['q0']"),
}
IMPORTS = {
    "deepeval": """
from deepeval.dataset import EvaluationDataset
def goldens(path):
    found = EvaluationDataset()
    found.add_goldens_from_json_file(path)
    return found.goldens
""",
    "beir": "from beir.datasets.data_loader import GenericDataLoader",
}


def exported(folder: Path, form: str, rows: list[dict[str, Any]], output: Path, **options: Any) -> str:
    """Write rows in a format by way of their file; returns the line of the log."""
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return export_file(QuestionTable(source), output, ExportSettings(format=form, **options))


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


ASKED = TEXTS.filter(str.strip)


@given(st.lists(st.tuples(ASKED, st.sampled_from(["Rome", "Bonn"])), min_size=1, max_size=6))
def test_a_collection_of_beir_has_every_passage_once(texts: list[tuple[str, str]]) -> None:
    rows = [row(question, answer) for question, answer in texts]
    with TemporaryDirectory() as folder:
        output = Path(folder, "collection")
        exported(Path(folder), "beir", rows, output)
        passages = {line["_id"]: line["text"] for line in read_lines(output / "corpus.jsonl")}
        queries = {line["_id"]: line["text"] for line in read_lines(output / "queries.jsonl")}
        head, *judged = (output / "qrels" / "test.tsv").read_text().splitlines()
    assert head == "query-id\tcorpus-id\tscore"
    assert [(queries[q], passages[p], one) for q, p, one in (line.split("\t") for line in judged)] == [
        (question, f"Its {answer}.", "1") for question, answer in texts
    ]
    assert len({*passages.values()}) == len(passages) == len({answer for _, answer in texts})


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.sampled_from("xyz")), min_size=1, max_size=8))
def test_preferences_are_the_best_and_the_worst(texts: list[tuple[str, int, str]]) -> None:
    rows = [{**row(question, answer), "score": score} for answer, score, question in texts]
    with TemporaryDirectory() as folder:
        output = Path(folder, "preferences.jsonl")
        pairs: list[Any] = []
        try:
            exported(Path(folder), "preferences", rows, output, prompt="{context}|{answer}|{title}|{other}")
            pairs = read_lines(output)
        except InputError as error:
            assert ": no preference in its " in str(error) and not output.exists()
    for pair in pairs:
        answer = pair["prompt"].split("|")[1]
        assert pair["prompt"] == f"Its {answer}.|{answer}|t|{{other}}"
        scores = [score for of, score, _ in texts if of == answer]
        assert pair["margin"] == max(scores) - min(scores) > 0
        assert (answer, max(scores), pair["chosen"][1:]) in texts and (
            answer,
            min(scores),
            pair["rejected"][1:],
        ) in texts
    told = {pair["prompt"].split("|")[1] for pair in pairs}
    for answer in {
        answer for answer, _, _ in texts
    } - told:  # all alike, or the first best and worst the same question
        own = [(score, question) for of, score, question in texts if of == answer]
        best, worst = max(own, key=itemgetter(0)), min(own, key=itemgetter(0))
        assert best[0] == worst[0] or best[1] == worst[1]


def test_cells_of_csv_are_offsets_and_scores(tmp_path: Path) -> None:
    rows = ["question,answer,context,answer_start,score"]
    rows += [
        f'{question},5,"In 1995 she was 5.",16,{score}' for question, score in (("Age?", 0.9), ("How old?", "1e-1"))
    ]
    (tmp_path / "in.csv").write_text("\n".join(rows))
    source = QuestionTable(tmp_path / "in.csv")
    export_file(source, tmp_path / "out.json", ExportSettings(format="squad2"))
    (article,) = json.loads((tmp_path / "out.json").read_text())["data"]
    answers = [question["answers"] for question in article["paragraphs"][0]["qas"]]
    assert answers == [[{"text": "5", "answer_start": 16}]] * 2
    export_file(source, tmp_path / "out.jsonl", ExportSettings(format="preferences"))
    (pair,) = read_lines(tmp_path / "out.jsonl")
    assert (pair["chosen"], pair["rejected"], pair["margin"]) == (" Age?", " How old?", 0.8)


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    rows = [row("Who?", "Ada"), {**row("Where?", "Rome"), "context": "Nothing."}]
    told = exported(tmp_path, "squad", rows, tmp_path / "squad.json")
    assert told.endswith("2 rows, 1 question written; answer elsewhere, left out: 1")
    assert exported(tmp_path, "squad", rows, tmp_path / "squad.json") == told  # the same bytes are no other file
    with pytest.raises(InputError, match=r"squad\.json: exists, with other contents"):
        exported(tmp_path, "squad", rows[:1] * 2, tmp_path / "squad.json")
    with pytest.raises(InputError, match="in its 1 row; answer elsewhere, left out: 1; nothing is written"):
        exported(tmp_path, "squad", rows[1:], tmp_path / "none.json")
    with pytest.raises(InputError, match="line 1: field 'other' is '', no number"):
        exported(tmp_path, "preferences", rows, tmp_path / "p.jsonl", score="other")
    scored = [{**row(question, "Ada"), "score": len(question)} for question in ("Who?", "Who wrote?")]
    told = exported(tmp_path, "preferences", [*scored, {**row("Where?", "Rome"), "score": 1}], tmp_path / "two.jsonl")
    assert told.endswith("3 rows, 1 preference of 2 answers written")
    for score in (10**400, float("inf"), float("nan"), True, "half", "nan"):
        with pytest.raises(InputError, match=r"line 1: field 'score' is .*, no number"):
            exported(tmp_path, "preferences", [{**row("Who?", "Ada"), "score": score}], tmp_path / "p.jsonl")
    with pytest.raises(InputError, match=r"rows\.jsonl: no row has the field 'other', which score= names"):
        exported(tmp_path, "csv", scored, tmp_path / "p.jsonl", score="other")
    half = [{**row("Who?", "Ada"), "title": "\ud800"}]
    for _ in range(2):
        assert exported(tmp_path, "beir", half, tmp_path / "half").endswith("1 question written")
    with pytest.raises(InputError, match=r"has no \{context\}"):
        exported(tmp_path, "prompts", rows, tmp_path / "p.jsonl", prompt="{answer}")
    with pytest.raises(InputError, match="line 1: field 'answer' is missing"):
        exported(tmp_path, "prompts", [{"question": "q", "context": "c"}], tmp_path / "p.jsonl")
    assert not [*tmp_path.glob("p.jsonl*"), *tmp_path.glob("none*")]


def test_an_answer_is_marked_at_its_place_or_left_out(tmp_path: Path) -> None:
    context = "The plant opened in 1986 in Leeds. It runs at 6 bar. Leeds has 86 pumps."
    given: list[tuple[str, int | None]] = [("6", None), ("86", 3), ("Leeds", context.rindex("Leeds")), ("Leeds", None)]
    given += [("bar", None), ("bar", 0)]
    rows = [
        {"id": number, "context": context, "question": f"What is {number}?", "answer": text}
        | ({} if start is None else {"answer_start": start})
        for number, (text, start) in enumerate(given)
    ]
    rows += [{**rows[-1], "id": 90, "question": " "}, {**rows[-1], "id": 91, "is_impossible": True}]
    rows += [{"id": 92, "context": context, "question": "Why?", "answers": {"text": [], "answer_start": []}}]
    rows += [{**rows[4], "id": 93, "is_impossible": "True"}, {**rows[4], "id": 94, "answers": []}]
    told = exported(tmp_path, "squad", rows, tmp_path / "squad.json")
    assert told.endswith(
        "11 rows, 6 questions written; impossible, left out: 3; without a question, left out: 1; "
        "answer elsewhere, left out: 1"
    )
    (article,) = json.loads((tmp_path / "squad.json").read_text())["data"]
    written = {asked["id"]: asked["answers"] for asked in article["paragraphs"][0]["qas"]}
    bar = [{"text": "bar", "answer_start": context.index("bar")}]
    assert written == {
        "0": [{"text": "6", "answer_start": context.index("6 bar")}],
        "1": [{"text": "86", "answer_start": context.rindex("86")}],
        "2": [{"text": "Leeds", "answer_start": context.rindex("Leeds")}],
        "4": bar,
        "5": bar,
        "94": bar,
    }


@given(st.lists(st.sampled_from(["a", "a-1", "1", "", None, 0]), min_size=1, max_size=6))
def test_no_id_is_written_twice(ids: list[Any]) -> None:
    rows = [row(f"Who {number}?", "Ada") | {"id": given} for number, given in enumerate(ids)]
    with TemporaryDirectory() as folder:
        exported(Path(folder), "squad", rows, Path(folder, "out.json"))
        (article,) = json.loads(Path(folder, "out.json").read_text())["data"]
    written = [asked["id"] for paragraph in article["paragraphs"] for asked in paragraph["qas"]]
    assert len({*written}) == len(ids) and all(written) and "None" not in "".join(written)


@pytest.mark.slow
@pytest.mark.parametrize("example", ["online.py --algorithm grpo", "online.py --algorithm rloo", "offline.py"])
def test_the_examples_train_by_trl(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl")
    words = word_tokenizer("Who wrote? Ada who? Its Ada. Passage: Answer: Question:")
    start = save(tmp_path / "gpt2", words, tiny(GPT2LMHeadModel, len(words), bos_token_id=0, eos_token_id=2))
    pairs = [
        (question, answer) for answer in ("Ada", "who?", "Who", "wrote?") for question in ("Who wrote?", "Ada who?")
    ]
    rows = [{**row(question, answer), "score": float(len(question))} for question, answer in pairs]
    script, *options = example.split()
    exported(tmp_path, "prompts" if options else "preferences", rows, tmp_path / "data.jsonl")
    options += ["--reward", "form"] if options else []
    path, output = ROOT / "examples" / script, tmp_path / "run"
    options += ["--model", start, "--steps", "1", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path / "data.jsonl"), *options])
    monkeypatch.chdir(tmp_path)
    seen = runpy.run_path(str(path), run_name="__main__")
    assert seen["subject"].state.global_step == 1 and (output / "model.safetensors").exists()
    if script == "online.py":
        assert {*seen["data"].column_names} == {"prompt", "context", "answer", "title"}


@pytest.mark.slow
@pytest.mark.skipif("RL_QG_LIBRARIES" not in os.environ, reason="installs other libraries: make test-all")
@pytest.mark.parametrize("package", LOADERS)
def test_the_library_loads_its_file(package: str, tmp_path: Path) -> None:
    """In an environment of its own, which takes minutes and a network."""
    form, load = LOADERS[package]
    path = tmp_path / {"beir": "collection", "deepeval": "file.json"}.get(form, "file.jsonl")
    exported(tmp_path, form, [row("Who is “Ada”?", "Ada")], path)
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
    assert set(FORMATS) == {*names.values(), "squad2", "gift", "retrieval", "ragas", "deepeval"}
    with pytest.raises(InputError, match=r"output=a\.txt: name a file that ends in \.jsonl"):
        format_of("a.txt")
