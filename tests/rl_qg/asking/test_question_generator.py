"""The Python interface: what is returned, for every kind of model, and that it does not depend on other texts."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BartForConditionalGeneration,
    GPT2LMHeadModel,
    MBartForConditionalGeneration,
    MBartTokenizer,
    MT5ForConditionalGeneration,
)

from rewards import load
from rewards.words import answer_f1 as f1
from rl_qg import AnswerSpan, QAPairs, QuestionGenerator
from rl_qg.asking.models import QUESTIONS, default_generator, generator_path, reader_path, ways_of
from rl_qg.asking.pairs import AskRequest
from rl_qg.asking.selection import support
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import Answer, QAExample
from rl_qg.generation.generator import Candidate, CandidateGenerator
from rl_qg.generation.prompts import Prompt
from rl_qg.generation.propose_answers import GeneratedAnswers
from rl_qg.generation.tasks import TaskRow
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.readers.reader import AnswerReader
from rl_qg.runtime.errors import InputError
from tests.tiny_models import byte_tokenizer, save, tiny, tiny_prefix, tiny_t5

ROLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
TEXT = "Ada Lovelace met Charles Babbage in London in 1833. Charles Babbage died in London in 1871."
TEXTS = [*dict.fromkeys(example.context for example in synthetic_examples(50, seed=4, prefix="ask"))][:8]
SPECIAL = {"decoder_start_token_id": 1, "pad_token_id": 1, "eos_token_id": 2}


@pytest.fixture(scope="module")
def bart() -> QuestionGenerator:
    return QuestionGenerator.from_pretrained("miniature:bart", device="cpu", batch_size=5)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tiny models with random weights."""
    tokenizer = byte_tokenizer(TEXTS, dict(list(ROLES.items())))
    size, ids = len(tokenizer), {name: tokenizer.convert_tokens_to_ids(word) for name, word in ROLES.items()}
    known = {"pad_token_id": ids["pad_token"], "eos_token_id": ids["eos_token"], "bos_token_id": ids["bos_token"]}
    start = {**known, "decoder_start_token_id": ids["eos_token"]}
    longer = {"positions": 200, "heads": 2}
    models: dict[str, Any] = {
        "bart": tiny(BartForConditionalGeneration, size, forced_eos_token_id=None, **longer, **start),
        "t5": tiny_t5(size, **start),
        "mt5": tiny(MT5ForConditionalGeneration, size, spread=3.0, **start),
        "gpt2": tiny(GPT2LMHeadModel, size, positions=200, **known),
        "prefix": tiny_prefix(size, positions=200),
        "multitask": tiny(BartForConditionalGeneration, size, forced_eos_token_id=None, **longer, **start),
        "pairs": tiny(BartForConditionalGeneration, size, forced_eos_token_id=None, **longer, **start),
        "answers": tiny(BartForConditionalGeneration, size, forced_eos_token_id=None, **longer, **start),
    }
    models["prefix"].generation_config.update(**start)
    found = {}
    for name, model in models.items():
        folder = tmp_path_factory.mktemp(name)
        found[name] = save(folder, tokenizer, model)
        task = name if name in ("multitask", "pairs", "answers") else "questions"
        Prompt(max_source_length=128, max_target_length=8, task=task).save(folder)
    return found


def state(pairs: QAPairs) -> tuple[Any, ...]:
    return [pair.to_dict() for pair in pairs], pairs.reason, pairs.dropped


def test_pairs_stand_where_they_say_and_come_best_first(bart: QuestionGenerator) -> None:
    for text, pairs in zip(TEXTS, bart.ask(TEXTS, number=3), strict=True):
        assert len(pairs) == 3 and pairs.reason == ""
        assert [pair.score for pair in pairs] == sorted((pair.score for pair in pairs), reverse=True)
        for pair in pairs:
            assert text[pair.answer_start : pair.answer_end] == pair.answer
            assert 0 <= pair.score <= 1 and pair.logprob is not None and pair.logprob < 0
            assert pair.score == pytest.approx(score_by_hand(pair.scores), abs=1e-6)
        assert len({pair.question for pair in pairs}) == 3


def test_a_failing_text_costs_the_others_nothing(bart: QuestionGenerator) -> None:
    broken = ["", " \n", "\ud800 Ada", "and of the", TEXT]
    found = bart.ask([TEXT, *broken], number=2)
    assert [pairs.reason for pairs in found[1:5]] == [
        "the text is empty",
        "the text is empty",
        "the text is no valid Unicode",
        "no answer to ask about was found in the text",
    ]
    assert not any(found[1:5])
    assert state(found[0]) == state(found[5]) == state(bart.ask(TEXT, number=2))
    assert bart.ask([]) == []


def test_given_answers_are_asked_about_where_they_stand(bart: QuestionGenerator) -> None:
    second = TEXT.rindex("London")
    given = ["London", AnswerSpan("London", second), "Paris", AnswerSpan("London", 3), "  "]
    found = bart.ask(TEXT, given, number=1)
    assert [pair.answer_start for pair in found] == [TEXT.index("London"), second]
    assert found.dropped["answer not in the text"] == 3
    assert found.reason.startswith("2 of 5 pairs: answer not in the text (3)")
    assert found[0].question != found[1].question or found[0].logprob != found[1].logprob
    # As the generator alone would ask.
    row = QAExample("x", "", TEXT, "", (Answer("London", second),))
    generator = CandidateGenerator(SHIPPED / "bart", device=torch.device("cpu"))
    beams = generator.candidates([row], 4, max_new_tokens=64, top_p=None, temperature=1.0)[0]
    assert found[1].question in [beam.question for beam in beams]
    word = bart.ask("The partys art.", ["art"])
    assert [pair.answer_start for pair in word] in ([11], [])  # not within a word


def test_common_words_and_headings_are_no_answers_where_there_are_others(bart: QuestionGenerator) -> None:
    text = "Part 2\n\nThe lamp was lit by Ada Lovelace in 1833.\n\nPart 3"
    assert {answer.text for answer in bart.answers(text, number=None)} == {"Ada Lovelace", "1833"}
    assert [answer.text for answer in bart.answers("The lamp was lit.")] == ["lamp", "lit"]


def test_lines_of_a_text_are_read_as_those_of_a_file(bart: QuestionGenerator) -> None:
    lines = ["Working Studio", "Demonstrations start at 11 a.m. and 3 p.m., says Maria", "Ortega, who bakes bricks."]
    text, place = "\n".join(lines), len(lines[0]) + 1 + lines[1].index("Maria")
    found = {(one.text, one.start) for one in bart.answers(text)}
    assert ("Maria\nOrtega", place) in found
    assert not any(part.startswith("Working Studio\n") for part, _ in found)
    for answer in ("Maria\nOrtega", "Maria Ortega", AnswerSpan("Maria\nOrtega", place + 1)):
        (pair,) = bart.ask(f"{lines[0]}\n\n{lines[1]}\n{lines[2]}", [answer])
        (of_file,) = bart.ask(f"{lines[0]}\n\n{lines[1]} {lines[2]}", ["Maria Ortega"])
        assert pair == replace(of_file, answer="Maria\nOrtega")


def test_a_seed_draws_other_questions_and_always_the_same(bart: QuestionGenerator) -> None:
    drawn = [state(bart.ask(TEXTS[0], number=4, seed=seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_long_texts_are_read_in_passages_and_offsets_are_in_the_whole_text(bart: QuestionGenerator) -> None:
    text = "\n\n".join(3 * TEXTS)
    passages = bart.passages(text)
    assert len(passages) > 2
    longest = bart._generator.encoder.prompt.max_source_length
    for passage in passages:
        row = QAExample("x", "", passage.text, "", (Answer(passage.text[:1], 0),))
        assert bart._generator.encoder.encode([row])[0].tokens_cut == 0 and longest
    pairs = bart.ask(text, number=20)
    assert len(pairs) == 20
    assert all(text[pair.answer_start : pair.answer_end] == pair.answer for pair in pairs)
    touched = {n for pair in pairs for n, part in enumerate(passages) if part.start <= pair.answer_start < part.end}
    assert len(touched) == len(passages)
    across = text[passages[0].end - 9 : passages[1].start + 9]  # an answer that two passages share
    assert bart.ask(text, [across]).dropped.get("answer not in the text", 0) == 0


def score_by_hand(scores: Mapping[str, float]) -> float:
    """Probability, times the reader's F1, times the fourth root of the support, which counts as 0.1 at least, times
    the square root of the usability.
    """
    parts = scores["probability"] * scores.get("round_trip", 1.0) * max(0.1, scores["support"]) ** 0.25
    return float(parts * scores.get("usability", 1.0) ** 0.5)


@pytest.mark.parametrize(
    ("question", "answer", "share"),
    [
        ("When did the boiler break?", "May", 1.0),  # boiler, break: both in the sentence
        ("When did the boilers break down in Leeds?", "May", 2 / 3),  # boil…, brea…, but Leeds is in the next one
        ("Who repaired the roof?", "May", 0.0),
        ("How many people were there?", "May", 0.0),  # about nothing
        ("In what year did the mill open?", "1901", 1.0),
        ("In what year did it open?", "1901", 1 / 4),  # a pronoun is its subject
        ("How long does it take to open the mill?", "1901", 2 / 3),  # take, open, mill
        ("How long did it take to open the mill?", "1901", 2 / 3 / 4),
        ("Who opened a mill for them?", "1901", 1 / 4),
        ("When was my mill opened?", "1901", 1 / 4),
        ("When did the boiler break the boiler?", "May", 1 / 4),  # the same word twice
    ],
)
def test_support_is_the_share_of_topic_words_in_the_sentence(question: str, answer: str, share: float) -> None:
    text = "The boiler broke in May, when breaks are long. Leeds has a mill that opened in 1901."
    assert support(question, text, text.index(answer)) == pytest.approx(share)


@pytest.mark.slow
def test_the_packaged_reader_tells_what_is_usable() -> None:
    """It is in the scores and part of the score, as the metric has it, and a question about nothing has less."""
    generator = QuestionGenerator.from_pretrained("packaged:english")
    text = "The stone bridge over the Arle was built by Maria Holt in 1833. It was rebuilt in 1902 after a flood."
    asked = {
        "In what year was the stone bridge built?": "1833",
        "In what year was the flood built over the Arle?": "1902",
    }
    good, bad = generator.score([*asked], [text] * 2, [*asked.values()])
    metric = load("usability", model=reader_path("packaged:english/reader"))
    scores = metric.score([*asked], contexts=[text] * 2, answers=[*asked.values()]).scores
    assert [good["usability"], bad["usability"]] == pytest.approx(scores, abs=1e-5)
    assert good["usability"] > 2 * bad["usability"]
    assert good["score"] == pytest.approx(score_by_hand(good), abs=1e-5)


def test_only_english_questions_have_support(bart: QuestionGenerator) -> None:
    [english], [american], [german] = (bart.ask(TEXT, ["London"], language=code) for code in ("en", "en-US", "de"))
    assert american == english
    assert 0 <= english.scores["support"] <= 1 and "support" not in german.scores
    assert german.score == german.scores["probability"]


def test_more_answers_are_tried_in_a_text_of_many_passages(bart: QuestionGenerator) -> None:
    text = "\n\n".join([TEXT] * 200)
    assert len(bart.passages(text)) == 20
    # Eight answers for each pair, but no more than passages; at least four, and two more.
    tried = {number: len(bart.proposed(AskRequest(text, number=number)).spans) for number in (1, 2, 3, 5)}
    assert tried == {1: 8, 2: 16, 3: 20, 5: 22}


def test_answers_and_scores(bart: QuestionGenerator) -> None:
    spans = bart.answers(TEXT, number=4)
    assert len(spans) == 4 and {"1833", "1871"} <= {span.text for span in spans}
    assert all(TEXT[span.start : span.end] == span.text for span in spans)
    assert bart.answers([TEXT, ""], number=4) == [spans, []]
    questions, places = ["Where did they meet?", "Where did he die?"], [TEXT.index("London"), TEXT.rindex("London")]
    scores = bart.score(questions, [TEXT] * 2, [AnswerSpan("London", place) for place in places])
    generator = CandidateGenerator(SHIPPED / "bart", device=torch.device("cpu"))
    for question, place, one in zip(questions, places, scores, strict=True):
        row = QAExample("x", "", TEXT, question, (Answer("London", place),))
        labels = torch.tensor(generator.encoder.targets([row]))
        loss = generator.model(**generator.batch([row]), labels=labels).loss.item()
        assert one["logprob"] == pytest.approx(-loss * labels.numel(), rel=1e-5)
        assert one["probability"] == pytest.approx(math.exp(-loss), abs=1e-5)
        assert one["score"] == pytest.approx(score_by_hand(one), abs=1e-6)
    questions = ["Who?", "", "Who?", "\ud800?"]
    assert bart.score(questions, [TEXT, TEXT, "", TEXT], ["Paris", "Ada", "Ada", "Ada"]) == [{}, {}, {}, {}]
    with pytest.raises(InputError, match="1 questions, 2 contexts and 1 answers"):
        bart.score(["Who?"], [TEXT, TEXT], ["Ada"])
    with pytest.raises(InputError, match="answers='A' is no list"):
        bart.score(["Who?"], [TEXT], "A")
    with pytest.raises(InputError, match="questions: None is not a text"):
        bart.score([None], [TEXT], ["Ada"])  # type: ignore[list-item]


def test_a_question_that_tells_its_answer_is_scored_too(bart: QuestionGenerator) -> None:
    """`ask` leaves such questions out; of a given one the score is wanted."""
    [told] = bart.score(["Was it in London?"], [TEXT], ["London"])
    assert told["logprob"] < 0 < told["score"] < 1


def test_a_reader_decides_which_pairs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = QuestionGenerator.from_pretrained("miniature:bart", reader="miniature:reader", device="cpu")
    texts = [TEXTS[0], TEXTS[3]]
    found = generator.ask(texts, number=2)
    assert sum(pairs.dropped.get("answer not given back by the reader", 0) for pairs in found) > 0
    reader = AnswerReader(reader_path("miniature:reader"), device=torch.device("cpu"))
    kept = [(text, pair) for text, pairs in zip(texts, found, strict=True) for pair in pairs]
    answers = [reader([pair.question], [text])[0] for text, pair in kept]
    values = [f1(answer, pair.answer) for answer, (_, pair) in zip(answers, kept, strict=True)]
    assert min(values) >= 0.5 and set(values) > {1.0}  # some pairs stay, and of one the answer is given back in part
    for value, (_, pair) in zip(values, kept, strict=True):
        assert pair.scores["round_trip"] == pytest.approx(value, abs=1e-6)
        assert pair.score == pytest.approx(score_by_hand(pair.scores), abs=1e-5)
    asked = []
    monkeypatch.setattr(generator, "_reader", lambda questions, _: asked.extend(questions) or [""] * len(questions))
    [nothing] = generator.ask(texts[:1], number=2)
    assert not nothing and nothing.dropped["answer not given back by the reader"] == len(asked) > 0


class Shortness:
    """A reward that prefers short questions, and fails on those with a given word."""

    signature, needs, higher_is_better = "length|unit:characters", frozenset({"contexts"}), False

    def __init__(self, fails_on: str = "\0") -> None:
        self.fails_on = fails_on
        self.calls = 0

    def score(self, questions: Sequence[str], *_: Any, **__: Any) -> list[float | None]:
        self.calls += 1
        return [None if self.fails_on in question else float(len(question)) for question in questions]


def test_a_reward_chooses_the_questions_and_orders_the_pairs(bart: QuestionGenerator) -> None:
    reward = Shortness()
    subject = QuestionGenerator(bart._generator, name="x", reward=reward)
    answer = bart.answers(TEXTS[0])[0]
    rows = bart.ask(TEXTS[0], [answer] * 4)
    [chosen] = subject.ask(TEXTS[0], [answer])
    assert len(rows) > 1 and len(chosen.question) <= min(len(pair.question) for pair in rows)
    plain, pairs = bart.ask(TEXTS[0], number=4), subject.ask(TEXTS[0], number=4)
    lengths = [pair.scores["length"] for pair in pairs]
    assert lengths == sorted(lengths) == [len(pair.question) for pair in pairs] and len(lengths) == 4
    assert sum(lengths) < sum(len(pair.question) for pair in plain)
    assert all(pair.score == pytest.approx(score_by_hand(pair.scores), abs=1e-5) for pair in pairs)
    [scores] = subject.score(["Who met him?"], [TEXT], ["Ada Lovelace"])
    assert scores["length"] == 12 and scores["score"] == pytest.approx(score_by_hand(scores), abs=1e-5)
    first = pairs[0].question
    failing = QuestionGenerator(bart._generator, reward=Shortness(first)).ask(TEXTS[0], number=None)
    assert failing.dropped["ranked last without a reward"] >= 1
    known = ["length" in pair.scores for pair in failing]
    assert known == sorted(known, reverse=True)
    Shortness.needs = frozenset({"references"})
    try:
        with pytest.raises(InputError, match="compares with human questions, and there are none"):
            QuestionGenerator(bart._generator, reward=Shortness())
    finally:
        Shortness.needs = frozenset({"contexts"})


@pytest.mark.parametrize("kind", ["bart", "t5", "mt5", "gpt2"])
def test_every_kind_of_model_asks(kind: str, folders: dict[str, str]) -> None:
    generator = QuestionGenerator.from_pretrained(folders[kind], device="cpu")
    assert generator.ways == ("pipeline",) and generator.name == folders[kind]
    found = generator.ask([TEXT, TEXTS[0]], number=2)
    assert all(pairs or pairs.dropped for pairs in found) and any(found)
    assert generator.score(["Who?"], [TEXT], ["Ada Lovelace"])[0]["logprob"] < 0


def test_ways_follow_the_task_of_the_model(folders: dict[str, str]) -> None:
    several = QuestionGenerator.from_pretrained(folders["multitask"], device="cpu")
    assert several.ways == ("multitask", "pipeline")
    assert several.ask(TEXT, way="multitask").reason  # random weights find no answer
    assert several.ask(TEXT, way="pipeline", number=1).dropped
    whole = QuestionGenerator.from_pretrained(folders["pairs"], device="cpu")
    assert whole.ways == ("end2end",)
    assert whole.ask(TEXT).reason
    with pytest.raises(InputError, match=r"way=pipeline: .* can do end2end"):
        whole.ask(TEXT, way="pipeline")
    with pytest.raises(InputError, match=r"answers: .* writes questions and answers at once, and none about a given"):
        whole.check(AskRequest(TEXT, ("Ada",)))
    with pytest.raises(InputError, match=r"writes questions and answers at once"):
        whole.score(["Who?"], [TEXT], ["Ada"])
    with pytest.raises(InputError, match="extracts answers and asks no questions"):
        QuestionGenerator.from_pretrained(folders["answers"], device="cpu")


def test_answers_that_the_text_lacks_are_counted(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A multitask model may write any words: here the second of three, for one sentence."""
    subject = QuestionGenerator.from_pretrained(folders["multitask"], device="cpu")
    plain = subject._generator.candidates

    def candidates(rows: Any, *args: Any, **options: Any) -> Any:
        if isinstance(rows[0], TaskRow):
            return [[Candidate("London <answer> Paris <answer> 1833", -1.0)] for _ in rows]
        return plain(rows, *args, **options)

    monkeypatch.setattr(subject._generator, "candidates", candidates)
    sentence = TEXT.partition(". ")[0] + "."
    assert [subject.ask(sentence).dropped["answer not in the text"] for _ in range(2)] == [1, 1]
    assert subject.ask("Nobody knows.").reason == "0 of 5 pairs: answer not in the text (3)"


@pytest.mark.usefixtures("one_thread")
@pytest.mark.slow
def test_the_packaged_model_in_both_its_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """In `multitask` the model proposes the answers, in `pipeline` the rules. Where it proposes none, the usual way
    takes those of the rules, and `way=multitask` gives none.
    """
    subject = QuestionGenerator.from_pretrained(QUESTIONS, device="cpu")
    text = TEXTS[0]
    proposed = {way: {pair.answer for pair in subject.ask(text, number=None, way=way)} for way in subject.ways}
    written = {text[one.start : one.end] for one in GeneratedAnswers(subject._generator, 20)([text])[0]}
    assert proposed["multitask"] and proposed["multitask"] <= written
    assert proposed["pipeline"] - written
    assert {pair.answer for pair in subject.ask(text, number=None)} == proposed["multitask"]
    monkeypatch.setattr(GeneratedAnswers, "__call__", lambda self, contexts: [[] for _ in contexts])
    assert {pair.answer for pair in subject.ask(text, number=None)} == proposed["pipeline"]
    assert {span.text for span in subject.answers(text, number=None)} >= proposed["pipeline"]
    assert subject.ask(text, way="multitask").reason == "no answer to ask about was found in the text"


@pytest.mark.parametrize("kind", ["miniature", "bart", "t5", "gpt2", "prefix", "pairs", "multitask"])
def test_a_result_does_not_depend_on_the_other_texts(
    kind: str, folders: dict[str, str], bart: QuestionGenerator
) -> None:
    """Alone, in a batch of 32, in any order: the same bytes."""
    generator = bart if kind == "miniature" else QuestionGenerator.from_pretrained(folders[kind], device="cpu")
    assert generator._generator.is_independent == (kind != "gpt2")
    rng = random.Random(7)
    number = {"miniature": 32, "multitask": 4}.get(kind, 8)
    requests = []
    for _ in range(number):
        text = rng.choice(TEXTS)
        text = text[: rng.randint(60, len(text))]
        requests.append(AskRequest(text, number=rng.choice([1, 2]), seed=rng.choice([None, None, 1, 2])))
    alone = [state(generator.ask_many([request])[0]) for request in requests]
    assert [state(pairs) for pairs in generator.ask_many(requests)] == alone
    order = rng.sample(range(number), number)
    assert [state(pairs) for pairs in generator.ask_many([requests[k] for k in order])] == [alone[k] for k in order]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", ["miniature", "prefix"])
def test_several_cores_give_the_same_bytes(kind: str, folders: dict[str, str]) -> None:
    """Batches of answers side by side, and texts that are read back and judged side by side."""
    path = QUESTIONS if kind == "miniature" else folders[kind]
    given: dict[str, Any] = {"device": "cpu", "reader": "packaged:english/reader", "batch_size": 2}
    one, three = (QuestionGenerator.from_pretrained(path, cores=cores, **given) for cores in (1, 3))
    requests = [AskRequest(text, number=2) for text in TEXTS[:2]]
    found = [state(pairs) for pairs in three.ask_many(requests)]
    assert found == [state(pairs) for pairs in one.ask_many(requests)]
    assert kind == "prefix" or any(pairs for pairs, *_ in found)


@pytest.mark.usefixtures("one_thread")
def test_mbart_reads_the_language_of_the_text(tmp_path: Path) -> None:
    words = [f"▁{word}" for word in TEXT.replace(".", "").split()]
    letters = sorted({*TEXT, "▁", "?", "."} - {" "})
    vocabulary = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    vocabulary += [(token, -2.0) for token in dict.fromkeys([*words, *letters])]
    tokenizer = MBartTokenizer(vocab=vocabulary)
    model = tiny(
        MBartForConditionalGeneration,
        len(tokenizer),
        positions=160,
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    generator = QuestionGenerator.from_pretrained(save(tmp_path, tokenizer, model), device="cpu")  # type: ignore[arg-type]
    seen: list[list[int]] = []
    plain = generator._generator.model.get_encoder().forward

    def watch(*args: Any, **options: Any) -> Any:
        seen.append(options["input_ids"][0].tolist())
        return plain(*args, **options)

    generator._generator.model.get_encoder().forward = watch
    for language, code in (("de", "de_DE"), ("en", "en_XX")):
        generator.ask(TEXT, ["London"], language=language)
        assert generator._generator.tokenizer.convert_tokens_to_ids(code) in seen[-1]
    tokens = generator._generator.encoder.targets([QAExample("x", "", TEXT, "Where?", ())])[0]
    assert generator._generator.tokenizer.convert_ids_to_tokens(tokens[-1]) == "</s>"  # the code is not written
    [scores] = generator.score(["Where?"], [TEXT], ["London"])
    assert scores["probability"] == pytest.approx(math.exp(scores["logprob"] / len(tokens)), abs=1e-5)
    with pytest.raises(InputError, match="language=xx: the model knows ar, cs"):
        generator.ask(TEXT, language="xx")
    # Its tokenizer has one language at a time: several threads would take it from each other.
    several = QuestionGenerator.from_pretrained(str(tmp_path), device="cpu", batch_size=1, cores=8)
    answers, threads = ["Ada Lovelace", "London", "Charles Babbage", "1833"], set()
    encode = several._generator.encoder.batch
    several._generator.encoder.batch = lambda rows: (threads.add(get_ident()), encode(rows))[1]  # type: ignore[method-assign]
    assert len(several.ask(TEXT, answers, language="de")) == len(generator.ask(TEXT, answers, language="de"))
    assert threads == {get_ident()}


def test_a_language_that_neither_model_nor_rule_knows_is_said_once(
    bart: QuestionGenerator, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        bart.ask(TEXT, number=1, language="zz")
    bart.ask(TEXT, number=1, language="de")
    [line] = [record.message for record in caplog.records if "language" in record.message]
    assert line.startswith("language=zz: its rules are not known (those of ar, cs, de, el, en")


@pytest.mark.parametrize("form", ["paragraph_sentence", "paragraph"])
def test_a_model_that_is_not_told_the_answer_makes_no_pairs(form: str) -> None:
    with pytest.raises(InputError, match=rf"model\.path=RUN: was trained with model\.input={form} and asks about no"):
        ways_of(Prompt(input=form), "RUN")
    assert ways_of(Prompt(input="sentence_answer"), "RUN") == ways_of(Prompt(), "RUN") == ("pipeline",)


def test_a_run_is_named_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in ("ce", "scst"):
        (tmp_path / "runs/first" / stage).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert default_generator() == "packaged:english"
    Path("runs/first/ce/config.json").touch()
    assert (generator_path("runs/first"), default_generator()) == ("runs/first/ce", "runs/first")
    Path("runs/first/scst/config.json").touch()
    assert generator_path("runs/first") == "runs/first/scst"
    assert generator_path("runs/first/ce") == "runs/first/ce" and generator_path("lmqg/t5") == "lmqg/t5"
    assert generator_path("miniature:bart") == str(SHIPPED / "bart")
    with pytest.raises(InputError, match=r"model\.path=miniature:bert: the package has miniature:bart, "):
        generator_path("miniature:bert")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"number": 0}, "number=0 must be at least 1, or None for all"),
        ({"seed": -1}, r"seed=-1 is not in \[0, 4294967295\]"),
        ({"way": "magic"}, "way=magic is not one of pipeline, multitask, end2end"),
        ({"min_score": 2.0}, r"min_score=2.0 is not in \[0, 1\]"),
        ({"language": ""}, "language='' is no code such as en"),
        ({"language": None}, "language=None is not a code such as en"),
        ({"number": "5"}, "number='5' is not a whole number, or None for all"),
        ({"number": True}, "number=True is not a whole number"),
        ({"seed": 1.5, "min_score": "high"}, "seed=1.5 is not a whole number or None; min_score='high' is not a num"),
        ({"way": 1}, "way=1 is not one of pipeline, multitask, end2end, or None"),
        ({"answers": "Ada Lovelace"}, "answers='Ada Lovelace' is no list; give a list"),
        ({"answers": AnswerSpan("Ada", 0)}, r"answers=AnswerSpan\(.* is no list"),
        ({"answers": 3}, "answers=3 is no list"),
        ({"answers": ["Ada", 1833]}, r"answers: 1833 is neither a text nor an AnswerSpan\(text, start\)"),
        ({"answers": [AnswerSpan("Ada", "0")]}, "is neither a text nor an AnswerSpan"),  # type: ignore[arg-type]
        ({"texts": 5}, "texts=5 is neither a text nor a list of texts"),
        ({"texts": [5]}, "text=5 is not a text"),
        ({"texts": ["Ada", "Bob"], "answers": "ab"}, "answers='ab' is no list; give a list of answers, or None, for"),
        ({"texts": ["Ada"], "answers": ["Ada"]}, "answers='Ada' is no list; give a list"),
    ],
)
def test_wrong_arguments_are_one_line(bart: QuestionGenerator, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bart.ask(**{"texts": TEXT, **wrong})


def test_what_is_no_text_is_one_line_of_a_packaged_generator_too(
    bart: QuestionGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bart, "name", "packaged:english")
    for wrong in (None, 5):
        with pytest.raises(InputError, match=f"text={wrong} is not a text"):
            bart.ask([wrong])  # type: ignore[list-item]


def test_answers_may_be_an_array(bart: QuestionGenerator) -> None:
    given = [["Ada"], None]
    expected = bart.ask([TEXT, TEXT], given)
    assert bart.ask([TEXT, TEXT], np.array(given, dtype=object)) == expected
    assert bart.ask(TEXT, np.array(["Ada"])) == expected[0]
    assert bart.ask([], []) == bart.ask([], np.array([])) == bart.ask([]) == []
    with pytest.raises(InputError, match="answers has 0 lists for 1 texts"):
        bart.ask([TEXT], [])


def test_memory_that_runs_out_halves_the_batch(bart: QuestionGenerator, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bart._generator.candidates
    sizes: list[int] = []

    def small(rows: Any, *args: Any, **options: Any) -> Any:
        sizes.append(len(rows))
        if len(rows) > 2:
            raise MemoryError
        return plain(rows, *args, **options)

    expected = bart.ask(TEXTS[1], number=3)
    monkeypatch.setattr(bart._generator, "candidates", small)
    monkeypatch.setattr(bart._rows._retry, "limit", None)
    assert [pair.question for pair in bart.ask(TEXTS[1], number=3)] == [pair.question for pair in expected]
    assert max(sizes) > 2 >= sizes[-1]
    monkeypatch.setattr(bart._rows._retry, "limit", None)


def test_pairs_become_a_table_or_a_dataset(bart: QuestionGenerator) -> None:
    pairs = bart.ask(TEXT, number=2)
    assert len(pairs) == 2
    for table in (pairs.to_pandas(), pairs.to_dataset().to_pandas()):
        assert table["question"].tolist() == [pair.question for pair in pairs]
        assert table["answer_start"].tolist() == [pair.answer_start for pair in pairs]
        assert table["scores"][0]["probability"] == pairs[0].scores["probability"]
