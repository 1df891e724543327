"""Published question generators: their names, their inputs and texts beside those of their own code, and what is done
with models whose format is not known.
"""

import logging
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.layouts import split_pairs
from rl_qg.generation.end_to_end import generate_pairs
from rl_qg.generation.generator import CandidateGenerator, text_parts
from rl_qg.generation.loading import load_generator
from rl_qg.generation.prompts import Prompt
from rl_qg.generation.published import FORMATS, licence_of, named_format
from rl_qg.generation.sets import join_questions, question_parts, units_of
from rl_qg.generation.tasks import QUESTION, join_answers, join_pairs, pair_parts, pairs_row, sentence_rows
from rl_qg.runtime.errors import InputError
from tests.lmqg_outputs import all_outputs
from tests.published_models import published, t5_tokenizer

CONTEXT = "Ada met Ben in Rome. Ben died in Rome in 1900."
START = 33  # of the second Rome
BEFORE, AFTER = CONTEXT[:START], CONTEXT[START + 4 :]
SENTENCE = CONTEXT[21:]
ROW = QAExample("a", "", CONTEXT, "Where has Ben died?", (Answer("Rome", START),))


def loaded(path: str, **options: Any) -> CandidateGenerator:
    return CandidateGenerator(path, device=torch.device("cpu"), **options)


# What the code named in the table gives its tokenizer: `EncodePlus` of lmqg, `process_qg_text` of valhalla, the cards.
INPUTS = {
    "lmqg/t5-base-squad-qg": f"generate question: {BEFORE}<hl> Rome <hl>{AFTER}",
    "lmqg/t5-base-squad-qg-ae": f"generate question: {BEFORE}<hl> Rome <hl>{AFTER}",
    "research-backup/t5-base-squad-qg-no-answer": f"generate question: {CONTEXT[:21]}<hl> {SENTENCE} <hl>",
    "research-backup/t5-base-squad-qg-no-paragraph": f"generate question: {SENTENCE[:12]}<hl> Rome <hl>{AFTER}",
    "valhalla/t5-base-qg-hl": f"generate question: {BEFORE} <hl> Rome <hl> {AFTER}",
    "valhalla/t5-base-qa-qg-hl": f"generate question: {BEFORE} <hl> Rome <hl> {AFTER}",
    "valhalla/t5-small-qg-prepend": f"answer: Rome  context: {CONTEXT}",
    "mrm8488/t5-base-finetuned-question-generation-ap": f"answer: Rome  context: {CONTEXT}",
    "iarfmoose/t5-base-question-generator": f"<answer> Rome <context> {CONTEXT}",
    "doc2query/msmarco-t5-base-v1": CONTEXT,
    "doc2query/all-with_prefix-t5-base-v1": f"answer2question: {CONTEXT}",
}


@pytest.mark.parametrize("name", INPUTS)
def test_the_input_about_an_answer_is_that_of_the_published_code(name: str, tmp_path: Path) -> None:
    generator = loaded(published(tmp_path, name))
    (source,) = generator.encoder.encode([ROW])
    assert source.ids == generator.tokenizer(INPUTS[name])["input_ids"]
    assert generator.tokenizer.unk_token_id not in source.ids
    assert len(generator.tokenizer) == len(t5_tokenizer(name.partition("/")[0]))  # no token is added


OTHER_INPUTS = {
    "lmqg/t5-base-squad-qag": (pairs_row("a", CONTEXT), f"generate question and answer: {CONTEXT}"),
    "potsawee/t5-large-generation-squad-QuestionAnswer": (pairs_row("a", CONTEXT), CONTEXT),
    "lmqg/t5-base-squad-ae": (sentence_rows("a", CONTEXT)[1], f"extract answers: {CONTEXT[:21]}<hl> {SENTENCE} <hl>"),
    "lmqg/t5-base-squad-qg-ae": (
        sentence_rows("a", CONTEXT)[1],
        f"extract answers: {CONTEXT[:21]}<hl> {SENTENCE} <hl>",
    ),
    "valhalla/t5-base-qa-qg-hl": (  # sentences joined by spaces
        sentence_rows("a", CONTEXT)[1],
        " ".join(["extract answers:", CONTEXT[:20], f"<hl> {SENTENCE} <hl>"]),
    ),
}


@pytest.mark.parametrize("name", OTHER_INPUTS)
def test_the_input_of_another_task_is_that_of_the_published_code(name: str, tmp_path: Path) -> None:
    generator, (row, text) = loaded(published(tmp_path, name)), OTHER_INPUTS[name]
    assert generator.encoder.encode([row])[0].ids == generator.tokenizer(text)["input_ids"]


PAIRS = [("Who met Ben?", "Ada"), ("When did Ben die?", "1900")]
TEXTS = {  # our text, the published one
    ("lmqg/t5-base-squad-qag", "pairs"): (
        join_pairs(PAIRS),
        "question: Who met Ben?, answer: Ada | question: When did Ben die?, answer: 1900",
    ),
    ("potsawee/t5-large-generation-squad-QuestionAnswer", "pairs"): (join_pairs(PAIRS[:1]), "Who met Ben? <sep> Ada"),
    ("lmqg/t5-base-squad-ae", "answers"): ("Ada", "Ada"),
    ("valhalla/t5-base-qa-qg-hl", "answers"): (join_answers(["Ada", "Ben"]), "Ada <sep> Ben <sep>"),
    ("valhalla/t5-base-e2e-qg", "sets"): (join_questions(["Who?", "When?"]), "Who? <sep> When? <sep>"),
    ("mrm8488/t5-base-finetuned-question-generation-ap", "questions"): ("Who met Ben?", "question: Who met Ben?"),
    ("iarfmoose/t5-base-question-generator", "questions"): ("Who met Ben?", "Who met Ben?"),
}


@pytest.mark.parametrize(("name", "task"), TEXTS)
def test_texts_are_learned_and_read_in_the_published_form(name: str, task: str, tmp_path: Path) -> None:
    ours, theirs = TEXTS[name, task]
    generator = loaded(published(tmp_path, name))
    rows = {"pairs": pairs_row("a", CONTEXT), "answers": sentence_rows("a", CONTEXT)[0], "questions": ROW}
    row = rows.get(task) or replace(pairs_row("a", CONTEXT), task="sets")
    row = replace(row, question=ours)
    (target,) = generator.encoder.targets([row])
    assert target == generator.tokenizer(text_target=theirs)["input_ids"]
    assert generator.encoder.decoded(torch.tensor([target]), [row]) == [ours]


@pytest.mark.parametrize(
    ("name", "licence"),
    [
        ("facebook/bart-large", "Apache-2.0"),
        ("lmqg/t5-base-squad-qg", "CC-BY-4.0"),  # of the published generators
        ("rajpurkar/squad_v2", "CC-BY-SA-4.0"),
        ("me/bart", ""),
    ],
)
def test_known_licences(name: str, licence: str) -> None:
    assert licence_of(name) == licence


def test_the_published_outputs_of_lmqg_are_read_and_written_back() -> None:
    form = FORMATS["lmqg-qag"]
    lines = [output for output in all_outputs() if output.pairs]
    assert len(lines) > 2000
    for output in lines:
        read = form.read("pairs", output.text)
        assert pair_parts(read) == output.pairs  # by the reader of lmqg's files, which is older
        assert split_pairs(form.write("pairs", read)).pairs == output.pairs


@pytest.mark.parametrize("text", ["question: Who?", "Who?, answer: Ada", "question: A, answer: B, answer: C", "|"])
def test_a_part_that_is_no_pair_is_incomplete(text: str) -> None:
    assert all(not question or not answer for question, answer in pair_parts(FORMATS["lmqg-qag"].read("pairs", text)))


def test_each_pair_has_the_probability_of_its_own_tokens(tmp_path: Path) -> None:
    generator = loaded(published(tmp_path, "lmqg/t5-base-squad-qag"))
    ids = torch.tensor(generator.tokenizer("question: Who?, answer: Ada | question: When?, answer: 1900")["input_ids"])
    first, second = text_parts(generator, pairs_row("a", CONTEXT), ids, -torch.ones(len(ids)), QUESTION)
    assert (pair_parts(first.text), pair_parts(second.text)) == ([("Who?", "Ada")], [("When?", "1900")])
    bar = ids.tolist().index(generator.tokenizer.convert_tokens_to_ids("▁|"))
    assert (first.tokens, second.tokens) == (bar + 1, len(ids) - bar - 1)
    assert (first.logprob, second.logprob) == (-bar - 1, bar + 1 - len(ids))


@pytest.mark.parametrize(("ended", "cut"), [(True, []), (False, [True])])
def test_nothing_is_missing_after_the_last_separator(ended: bool, cut: list[bool], tmp_path: Path) -> None:
    generator = loaded(published(tmp_path, "valhalla/t5-base-e2e-qg"))
    row = replace(pairs_row("a", CONTEXT), task="sets")
    ids = torch.tensor(generator.tokenizer("Who? <sep> When? <sep>")["input_ids"])
    parts = text_parts(generator, row, ids if ended else ids[:-1], torch.zeros(len(ids)), QUESTION)
    assert [question_parts(part.text) for part in parts[:2]] == [["Who?"], ["When?"]]
    assert [part.is_cut for part in parts[2:]] == cut


def test_pairs_are_generated_with_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = loaded(published(tmp_path, "potsawee/t5-large-generation-squad-QuestionAnswer"))
    ids = torch.tensor([generator.tokenizer("Where has Ben died? <sep> Rome")["input_ids"]] * 4)
    monkeypatch.setattr(generator.decoder, "search", lambda *_: (ids, None))
    ((pair,),) = generate_pairs(generator, [CONTEXT])
    assert (pair.question, pair.answer, pair.answer_start) == ("Where has Ben died?", "Rome", START)


@pytest.mark.parametrize("start", [0, 400, 799])
def test_a_long_passage_is_cut_around_an_answer_that_stands_before_it(start: int, tmp_path: Path) -> None:
    generator = loaded(published(tmp_path, "mrm8488/t5-base-finetuned-question-generation-ap"))
    context = "".join(f" {number % 10}" for number in range(400))[1:] + "0"
    context = context[:start] + "B" + context[start + 1 :]
    encoder = generator.encoder
    encoder.prompt = replace(encoder.prompt, max_source_length=60)
    (source,) = encoder.encode([QAExample("a", "", context, "", (Answer("B", start),))])
    text = generator.tokenizer.decode(source.ids)
    assert len(source.ids) == 60 and not source.answer_cut
    assert text.startswith("answer: B context:") and text.endswith("</s>") and text.count("B") == 2


def test_an_answer_that_leaves_no_room_is_cut(tmp_path: Path) -> None:
    generator = loaded(published(tmp_path, "mrm8488/t5-base-finetuned-question-generation-ap"))
    generator.encoder.prompt = replace(generator.encoder.prompt, max_source_length=20)
    answer = "x" * 30
    (source,) = generator.encoder.encode([QAExample("a", "", answer, "", (Answer(answer, 0),))])
    assert len(source.ids) == 20 and source.answer_cut


def test_the_first_format_that_has_a_name_is_its_own() -> None:
    for name, known in FORMATS.items():
        assert all(named_format(one.replace("*", "x")) == name for one in known.names.split())
    names = {
        "lmqg/mt5-small-dequad-qg-ae-trimmed-50000": "lmqg-qg-ae",
        "lmqg/t5-small-squad-multitask": "lmqg-qg-ae",
        "/cache/models--lmqg--bart-base-squad-qag/snapshots/0f": "lmqg-qag",
        "/data/valhalla/t5-small-qa-qg-hl": "valhalla-qa-qg-hl",
        "BeIR/query-gen-msmarco-t5-base-v1": "doc2query",
        **dict.fromkeys(("lmqg/t5-small-squad-qa", "facebook/bart-base", "runs/my-qg", "t5-small"), ""),
    }
    assert {name: named_format(name) for name in names} == names


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("lmqg/t5-base-squad-qag", "lmqg-qag"),
        ("lmqg/best_model", "lmqg-qg"),
        ("valhalla/t5-base-qa-qg-hl", "valhalla-qa-qg-hl"),
        ("valhalla/mine", "valhalla-qg-hl"),
        ("potsawee/mine", "potsawee-qa"),
        ("iarfmoose/mine", "iarfmoose"),
    ],
)
def test_a_folder_is_recognised_by_its_files(
    name: str, form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(published(tmp_path, name))
    other = folder.rename(tmp_path / folder.name)
    with caplog.at_level(logging.INFO):
        assert loaded(str(other)).encoder.prompt.format == form
    assert f"format {form}, by {FORMATS[form].known_by or caplog.messages[-1].rpartition('by ')[2]}" in caplog.text


def test_the_key_comes_before_the_file_and_the_file_before_the_name(tmp_path: Path) -> None:
    path = published(tmp_path, "lmqg/t5-base-squad-qag")
    assert loaded(path).encoder.prompt.format == "lmqg-qag"
    Prompt(prefix="ask: ", format="mrm8488-ap").save(Path(path))
    assert loaded(path).encoder.prompt == Prompt(prefix="ask: ", format="mrm8488-ap")
    assert loaded(path, format="lmqg-qg").encoder.prompt.prefix == "generate question: "
    assert loaded(path, format="rl-qg").encoder.prompt == Prompt(prefix="generate question: ")
    with pytest.raises(InputError, match=r"model.format=lmqg is not one of rl-qg, lmqg-no-paragraph"):
        loaded(path, format="lmqg")


@pytest.mark.parametrize(("add_prefix", "prefix"), [(True, "generate question: "), (False, "")])
def test_lmqg_notes_whether_a_model_has_a_prefix(add_prefix: bool, prefix: str, tmp_path: Path) -> None:
    path = published(tmp_path, "lmqg/t5-base-squad-qg")
    model, _ = load_generator(path)
    model.config.add_prefix = add_prefix
    model.save_pretrained(path)
    assert loaded(path).encoder.prompt.prefix == prefix


def test_a_model_that_is_not_known_says_what_is_assumed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = published(tmp_path, "someone/mine")
    with caplog.at_level(logging.INFO):
        loaded(path)
    assert caplog.messages == [
        f"model.path={path}: its format is not known; assumed: 'generate question: … <hl> ANSWER <hl> …' "
        "(model.format sets one of rl-qg models)"
    ]


def test_units_of_a_model_of_whole_passages(tmp_path: Path) -> None:
    prompt = loaded(published(tmp_path, "valhalla/t5-base-e2e-qg")).encoder.prompt
    assert (prompt.task, prompt.granularity, prompt.mode) == ("sets", "paragraph", "one2many")
    assert len(units_of(CONTEXT, prompt.granularity)) == 1


@pytest.mark.skipif(find_spec("sentencepiece") is not None, reason="sentencepiece is installed")
def test_a_tokenizer_of_sentencepiece_names_what_reads_it(tmp_path: Path) -> None:
    path = Path(published(tmp_path, "valhalla/t5-base-qg-hl"))
    (path / "tokenizer.json").unlink()
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    (path / "spiece.model").write_bytes(b"\x0a\x0e\x0a\x05<pad>\x15\x00\x00\x00\x00\x18\x03")
    with pytest.raises(InputError, match="pip install sentencepiece protobuf"):
        loaded(str(path))
