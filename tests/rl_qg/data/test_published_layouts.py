"""The layouts of published data sets, in files written by hand: HotpotQA, MS MARCO, and parallel text files."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.data.formats import RawRecord
from rl_qg.data.passages import Passages, has_answers, passage_key, passage_keys
from rl_qg.data.question_tables import QuestionTable
from rl_qg.data.reading import raw_records, read_examples
from rl_qg.data.splits import load_splits, with_additional_spans
from rl_qg.data.streaming import stream_examples
from rl_qg.generation.sets import join_questions, set_rows
from rl_qg.runtime.errors import InputError
from rl_qg.settings import DataSettings

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
MILL = ["The mill stands on the Esk.", " It was built by Ida Koll.", " It burned in 1204."]
KOLL = ["Ida Koll was a mason.", " She came from Bergen."]
FAR = ["Nothing is known of the far shore."]


def hotpot(key: str, answer: str, facts: list[list[Any]], **more: Any) -> dict[str, Any]:
    context = [["Far shore", FAR], ["Ida Koll", KOLL], ["The mill", MILL]]
    row = {"_id": key, "question": f"Question {key}?", "answer": answer, "supporting_facts": facts, "context": context}
    return row | {"type": "bridge", "level": "hard"} | more


HOTPOT = [
    hotpot("span", "Bergen", [["The mill", 1], ["Ida Koll", 1], ["The mill", 1]]),
    hotpot("yes", "yes", [["The mill", 0], ["Ida Koll", 0]], type="comparison"),
    hotpot("no", "No", [["Far shore", 0]], type="comparison"),  # also the beginning of "Nothing"
    hotpot("lost", "1204", [["The mill", 2], ["The Esk", 0]]),
    hotpot("beyond", "1204", [["The mill", 3]]),
    hotpot("elsewhere", "Oslo", [["Ida Koll", 1]]),
]
FACTS_OF_SPAN = "It was built by Ida Koll. She came from Bergen."


def write(path: Path, value: object) -> str:
    text = json.dumps(value)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", ["hotpot.json", "hotpot.json.gz"])
def test_hotpotqa_passages_are_supporting_sentences_and_every_drop_is_counted(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, HOTPOT)
    data = read_examples(path, role="train")
    [example] = data.examples
    # Facts in the order of the file's list, each once: sentence 1 of "The mill", then sentence 1 of "Ida Koll".
    assert (example.id, example.title, example.context) == ("span", "The mill / Ida Koll", FACTS_OF_SPAN)
    assert [(answer.text, answer.start) for answer in example.answers] == [("Bergen", FACTS_OF_SPAN.index("Bergen"))]
    assert example.multi_hop and example.source == path
    dropped = {reason: part["ids"] for reason, part in data.report["dropped"].items()}
    assert dropped == {
        "yes/no answer": ["yes", "no"],
        "supporting fact not in the file": ["lost", "beyond"],
        "answer not in context": ["elsewhere"],
    }
    assert data.report["read"] == len(HOTPOT) == data.report["kept"] + sum(map(len, dropped.values()))
    stream = stream_examples(path, role="train")
    assert list(stream) == data.examples and [row.multi_hop for row in stream] == [True]


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ("facts", FACTS_OF_SPAN),
        ("paragraphs", "".join(MILL) + " " + "".join(KOLL)),
        ("all", "".join(FAR) + " " + "".join(KOLL) + " " + "".join(MILL)),
    ],
)
def test_the_readings_of_a_hotpotqa_passage(tmp_path: Path, context: str, expected: str) -> None:
    settings = DataSettings(train=write(tmp_path / "h.json", HOTPOT), hotpotqa_context=context)
    settings.validation = write(
        tmp_path / "dev.json", [hotpot("x", "sea", [["Sea", 0]], context=[["Sea", ["A sea."]]])]
    )
    [example, *_] = load_splits(settings).gold
    assert example.context == expected


def test_the_answer_is_found_as_a_whole_word_first() -> None:
    [record] = records([hotpot("x", "Ida", [["The mill", 1], ["Ida Koll", 0]])])
    assert record.answers == (("Ida", len("It was built by ")),)
    [record] = records([hotpot("x", "mas", [["Ida Koll", 0]])])
    assert record.answers == (("mas", len("Ida Koll was a ")),)  # within a word, since it is no word of its own


def test_white_space_around_an_answer_is_no_part_of_it() -> None:
    [record] = records([hotpot("x", "Bergen ", [["Ida Koll", 1]])])
    assert record.answers == (("Bergen", len("She came from ")),)
    [record] = records([marco([" 1204\n"])])
    assert record.answers == (("1204", len("The mill burned in 12040 or in ")),)


def records(rows: list[dict[str, Any]]) -> list[RawRecord]:
    from rl_qg.data import layouts

    return list(layouts.records(((f"row {n}", n, row) for n, row in enumerate(rows, 1)), "h"))


def test_rows_and_columns_of_hotpotqa_are_the_same_records(tmp_path: Path) -> None:
    """JSON lines, and the columns in which the Hub's data set has the pairs."""
    columns = [
        row
        | {
            "supporting_facts": as_columns_of("title", "sent_id", row["supporting_facts"]),
            "context": as_columns_of("title", "sentences", row["context"]),
        }
        for row in HOTPOT
    ]
    (tmp_path / "h.jsonl").write_text("".join(json.dumps(row) + "\n" for row in columns))
    found = [
        list(raw_records(path, "train")) for path in (str(tmp_path / "h.jsonl"), write(tmp_path / "h.json", HOTPOT))
    ]
    assert found[0] == found[1] and [row.unusable for row in found[0]] == [row.unusable for row in found[1]]


def as_columns_of(first: str, second: str, pairs: list[list[Any]]) -> dict[str, list[Any]]:
    return {first: [pair[0] for pair in pairs], second: [pair[1] for pair in pairs]}


def test_a_table_of_questions_keeps_yes_and_no(tmp_path: Path) -> None:
    table = QuestionTable(write(tmp_path / "h.json", HOTPOT), hotpotqa_context="paragraphs")
    rows = list(table)
    assert [table.value(row, "answer") for row in rows] == ["Bergen", "yes", "No", "1204", "1204", "Oslo"]
    assert rows[0].fields["type"] == "bridge" and rows[1].fields["context"] == "".join(MILL) + " " + "".join(KOLL)


def test_hotpotqa_gives_passages_without_questions(tmp_path: Path) -> None:
    path = write(tmp_path / "h.json", HOTPOT)
    assert has_answers(path)
    assert FACTS_OF_SPAN in [passage.context for passage in Passages([path])]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": [["Far shore", "one text"]]}, r"\[0\]: context\[0\]: expected a title and a list of sentences"),
        ({"supporting_facts": [["Far shore", "0"]]}, r"supporting_facts\[0\]: expected a title and the number"),
        ({"supporting_facts": ["Far shore"]}, "'supporting_facts' must be a list of pairs that begin with a title"),
        ({"answer": 3}, "field 'answer' must be text"),
    ],
)
def test_malformed_hotpotqa_is_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "h.json", [HOTPOT[0] | change])
    with pytest.raises(InputError, match=message) as error:
        read_examples(path, role="train")
    assert "\n" not in str(error.value)


def test_another_list_is_not_hotpotqa(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got list; a list is read if its items have HotpotQA's"):
        read_examples(write(tmp_path / "x.json", [{"a": 1}]), role="train")


@pytest.mark.skipif(not (SHARED / "hotpotqa").exists(), reason="needs the shared data sets")
def test_the_published_hotpotqa_sample() -> None:
    """100 questions of the distractor setting; all facts exist (its SOURCE.md), so each drop is about the answer."""
    path = SHARED / "hotpotqa" / "distractor_sample_100.json.gz"
    rows = json.loads(gzip.decompress(path.read_bytes()))
    report = read_examples(path, role="validation").report
    yes_no = sum(row["answer"] in ("yes", "no") for row in rows)
    assert report["read"] == 100 and report["dropped"]["yes/no answer"]["count"] == yes_no > 0
    assert "supporting fact not in the file" not in report["dropped"]
    assert report["kept"] + sum(part["count"] for part in report["dropped"].values()) == 100
    whole = read_examples(path, role="validation", hotpotqa_context="all").report
    assert whole["kept"] >= report["kept"] >= 80


# --- MS MARCO


def marco(answers: list[str], selected: int = 1, kind: str = "NUMERIC", formed: object = "[]") -> dict[str, Any]:
    passages = [
        {"is_selected": 0, "passage_text": "Mills burn in 1204 ways.", "url": "a"},
        {"is_selected": selected, "passage_text": "The mill burned in 12040 or in 1204.", "url": "b"},
    ]
    return {"query": "when did the mill burn", "query_type": kind, "answers": answers, "passages": passages} | {
        "wellFormedAnswers": formed
    }


MARCO = [
    marco(["1204"], formed=["The mill burned in 1204."]),
    marco(["No Answer Present."], selected=0),
    marco(["Yes"], kind="DESCRIPTION"),
    marco(["in the year 1204"]),
]


def as_columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    numbered = [row | {"query_id": 100 + number} for number, row in enumerate(rows)]
    return {name: {str(7 * n): row[name] for n, row in enumerate(numbered)} for name in numbered[0]}


def test_ms_marco_columns_and_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "train_v2.1.json", as_columns(MARCO))
    data = read_examples(path, role="train")
    [example] = data.examples
    assert (example.id, example.question) == ("100", "when did the mill burn")
    assert example.context == "The mill burned in 12040 or in 1204."  # the selected passage alone
    assert example.answers[0].start == len("The mill burned in 12040 or in ")  # not within 12040
    assert not example.multi_hop
    assert {reason: part["ids"] for reason, part in data.report["dropped"].items()} == {
        "no answer": ["101"],
        "yes/no answer": ["102"],
        "answer not in context": ["103"],
    }
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(row | {"query_id": 100 + number}) + "\n" for number, row in enumerate(MARCO))
    )
    assert list(raw_records(str(tmp_path / "rows.jsonl"), "train")) == list(raw_records(path, "train"))
    row = next(iter(QuestionTable(path)))
    assert (row.fields["query_type"], row.fields["well_formed_answers"]) == ("NUMERIC", ["The mill burned in 1204."])


def test_malformed_ms_marco_is_one_line(tmp_path: Path) -> None:
    columns = as_columns(MARCO)
    del columns["answers"]["7"]
    with pytest.raises(InputError, match=r"row 7: column 'answers' has no such row"):
        read_examples(write(tmp_path / "m.json", columns), role="train")
    columns = as_columns(MARCO)
    del columns["query"]["7"]
    with pytest.raises(InputError, match=r"row 7: column 'query' has no such row"):
        read_examples(write(tmp_path / "m.json", columns), role="train")
    with pytest.raises(InputError, match="'query' must map row numbers to values, got list"):
        read_examples(write(tmp_path / "m.json", {"query": [], "passages": {}}), role="train")
    wrong = as_columns([marco(["1204"], formed="The mill")])
    with pytest.raises(InputError, match="'wellFormedAnswers' must be a list of texts"):
        read_examples(write(tmp_path / "m.json", wrong), role="train")


def test_rows_of_other_layouts_give_passages_without_questions(tmp_path: Path) -> None:
    rows = {
        "She came from Bergen.": hotpot("x", "Bergen", [["Ida Koll", 1]]),
        "The mill burned in 12040 or in 1204.": marco(["1204"]),
        "Ada met Max.": {"paragraph": "Ada met Max.", "questions_answers": "question: Who?, answer: Ada"},
    }
    for context, row in rows.items():
        path = write(tmp_path / "rows.jsonl", row)
        assert has_answers(path) and [passage.context for passage in Passages([path])] == [context]
        assert passage_keys([path]) == {passage_key(context)}  # such as those of validation data
    with pytest.raises(InputError, match="no passage; expected one of the fields context, paragraph, text"):
        passage_keys([write(tmp_path / "other.jsonl", {"passage": "Ada met Max."})])


@pytest.mark.parametrize("mark", ["1", "true", None, [1], 2, float("nan")])
def test_a_mark_of_selection_is_a_number(tmp_path: Path, mark: Any) -> None:
    columns = as_columns([MARCO[0], marco(["1204"], selected=mark)])
    (fault,) = read_examples(write(tmp_path / "m.json", columns), role="train").report["malformed"]
    assert re.search(r"m\.json: row \w+: passages\[1\]: field 'is_selected' is .*; give 0 or 1$", fault)


# --- Parallel text files


def lines(folder: Path, **files: list[str]) -> None:
    for name, content in files.items():
        (folder / name.replace("__", ".").replace("_", "-")).write_text("\n".join(content) + "\n")


def test_the_files_of_zhou_et_al(tmp_path: Path) -> None:
    lines(
        tmp_path,
        train__txt__source__txt=["the mill burned in 1204 .", "ida koll built it .", "nobody knows ."],
        train__txt__target__txt=["when did it burn ?", "who built it ?", "who knows ?"],
        train__txt__bio=["O O O O B O", "B I O O O", "O O O"],
    )
    data = read_examples(tmp_path / "train.txt.source.txt", role="train")
    assert [(row.id, row.question, row.answers[0].text, row.answers[0].start) for row in data.examples] == [
        ("train.txt-1", "when did it burn ?", "1204", len("the mill burned in ")),
        ("train.txt-2", "who built it ?", "ida koll", 0),
    ]
    assert data.report["dropped"]["no answer"]["ids"] == ["train.txt-3"]
    (tmp_path / "train.txt.bio").write_text("O O O O B\nB I O O O\nO O O\n")
    report = read_examples(tmp_path / "train.txt.source.txt", role="train").report
    assert [fault.partition("train.txt.bio: ")[2] for fault in report["malformed"]] == [
        "line 1: 5 tags for 6 tokens; give one of B, I, O for each"
    ]
    (tmp_path / "train.txt.bio").write_text("O O O O B O\n")
    with pytest.raises(InputError, match=r"source\.txt has 3 lines.*bio has 1 lines"):
        read_examples(tmp_path / "train.txt.source.txt", role="train")
    (tmp_path / "train.txt.bio").unlink()
    with pytest.raises(InputError, match=r"train\.txt\.bio must lie beside it"):
        read_examples(tmp_path / "train.txt.source.txt", role="train")


def test_the_files_of_du_et_al_have_no_answers(tmp_path: Path) -> None:
    lines(
        tmp_path,
        src_dev__txt=["the mill burned ."],
        para_dev__txt=["long ago the mill burned ."],
        tgt_dev__txt=["what burned ?"],
    )
    for name, context in (("src", "the mill burned ."), ("para", "long ago the mill burned .")):
        [row] = QuestionTable(tmp_path / f"{name}-dev.txt")
        assert (row.fields["question"], row.fields["context"]) == ("what burned ?", context)
    with pytest.raises(InputError, match=r"1 read; 1 dropped \(no answer\)"):
        read_examples(tmp_path / "src-dev.txt", role="train")
    (tmp_path / "src-dev.txt").unlink()
    with pytest.raises(InputError, match=r"1 read; 1 dropped \(no answer\)"):
        read_examples(tmp_path / "para-dev.txt", role="train")


def test_in_the_paragraphs_of_du_et_al_the_sentence_stands_for_the_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One2many rows of sentences, as the multi-question paper makes them of these files."""
    paragraph = "it stood on the esk . the mill burned in 1204 . koll fled ."
    burned = "the mill burned in 1204 ."
    lines(
        tmp_path,
        para_dev__txt=[paragraph] * 4,
        src_dev__txt=[burned, "it stood on the esk .", burned, "nobody knows ."],
        tgt_dev__txt=["what burned ?", "where did it stand ?", "when did it burn ?", "who knows ?"],
    )
    data = read_examples(tmp_path / "para-dev.txt", role="train")
    assert data.report["dropped"]["answer not in context"]["ids"] == ["dev-4"]
    assert "the sentences of src-dev.txt stand for them" in caplog.text
    rows = set_rows("sentence", "one2many", data.examples)
    assert [(row.unit and paragraph[row.unit.start : row.unit.end], row.question) for row in rows] == [
        ("it stood on the esk .", join_questions(["where did it stand ?"])),
        (burned, join_questions(["what burned ?", "when did it burn ?"])),
    ]


def test_files_with_answers_as_text(tmp_path: Path) -> None:
    lines(tmp_path, sentence_test__txt=["It burned in 1204."], question_test__txt=["When?"], answer_test__txt=["1204"])
    (tmp_path / "answer-test.txt.gz").write_bytes(gzip.compress((tmp_path / "answer-test.txt").read_bytes()))
    (tmp_path / "answer-test.txt").unlink()
    [example] = read_examples(tmp_path / "sentence-test.txt", role="train").examples
    assert (example.question, example.answers[0].start) == ("When?", len("It burned in "))


@pytest.mark.skipif(not (SHARED / "nqg").exists(), reason="needs the shared data sets")
def test_the_published_files() -> None:
    rows = [row.fields for row in QuestionTable(SHARED / "nqg" / "src-test.txt.gz")]
    assert len(rows) == 11877 and rows[1]["question"] == "what is in front of the notre dame main building ?"
    report = read_examples(SHARED / "lmqg_nqg_baseline" / "sentence-test.txt.gz", role="validation").report
    counts = Counter({reason: part["count"] for reason, part in report["dropped"].items()})
    assert report["read"] == 11877 == report["kept"] + counts.total()
    assert counts["no context"] == 26  # blank lines, as its SOURCE.md says


@pytest.mark.slow
def test_a_hotpotqa_file_is_scored(tmp_path: Path) -> None:
    path, output = write(tmp_path / "h.json", HOTPOT), tmp_path / "scored.jsonl"
    arguments = [f"input={path}", f"output={output}", "reward=form", "training.use_cpu=true"]
    run_command("score", [*arguments, "data.hotpotqa_context=all"])
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(rows) == len(HOTPOT) and rows[1]["answer"] == "yes" and rows[0]["context"].startswith(FAR[0])


@pytest.mark.parametrize("context", ["facts", "paragraphs", "all"])
def test_passages_of_validation_are_found_among_unlabelled_ones_in_each_reading(tmp_path: Path, context: str) -> None:
    other = hotpot("x", "sea", [["Sea", 0]], context=[["Sea", ["A sea."]]])
    train, dev = write(tmp_path / "train.json", [other]), write(tmp_path / "dev.json", HOTPOT[:1])
    splits = load_splits(DataSettings(train=train, validation=dev, hotpotqa_context=context))
    with pytest.raises(InputError, match=r"all passages are also in data\.validation"):
        with_additional_spans([], [dev], splits.held_out, context)
