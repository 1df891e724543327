"""Questions of a language model behind an address, by the commands `generate` and `ask`, from a stand-in server."""

import json
import math

import pytest

from rewards.endpoint import Completion, Endpoint
from rl_qg.asking.question_generator import QuestionGenerator
from rl_qg.commands.cli import run_command
from rl_qg.commands.endpoints import asked_generator
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import write_squad
from rl_qg.generation.endpoint import EndpointGenerator, read_question
from rl_qg.runtime.errors import InputError
from rl_qg.settings import Settings
from tests.chat_server import PASSAGE, asks_about_the_answer, chat_server, completion

SECRET = "sk-not-to-be-seen"
EXAMPLES = list(synthetic_examples(3, seed=1, prefix="t"))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    write_squad("train.json", EXAMPLES)
    (tmp_path / "text.txt").write_text(PASSAGE)


def run(command, url, output, *more):
    data = ["data.train=train.json"] if command == "generate" else ["text.txt", "min_score=0"]
    files = [one for one in data if "=" not in one]
    keys = [one for one in data if "=" in one]
    options = [f"model.path={url}", "model.name=m", "endpoint.kept=kept", f"output={output}", "training.use_cpu=true"]
    run_command(command, [*files, *keys, *options, *more])


def rows(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def test_generate_writes_a_question_for_each_answer(tmp_path):
    with chat_server() as chat:
        run("generate", chat.url, "questions.jsonl")
        sent = chat.requests
    found = {row["id"]: row for row in rows("questions.jsonl")}
    assert found.keys() == {example.id for example in EXAMPLES}
    for example in EXAMPLES:
        answer, row = example.answers[0], found[example.id]
        assert row["question"] == f"Which word has {len(answer.text)} letters?"
        assert (row["candidate"], row["answer"], row["answer_start"]) == (0, answer.text, answer.start)
        assert row["logprob"] is None
    assert len(sent) == len({(example.context, example.answers[0].text) for example in EXAMPLES})
    assert all(body["response_format"]["type"] == "json_schema" and body["temperature"] == 0 for body in sent)
    contents = "\0".join(body["messages"][0]["content"] for body in sent)
    assert all(example.context in contents for example in EXAMPLES)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 3 and not any(SECRET.encode() in path.read_bytes() for path in written)
    note = json.loads((tmp_path / "questions.jsonl.settings.json").read_text())
    assert note["model"].startswith(f"{chat.url} m prompt:")


def test_the_budget_ends_the_command_and_a_later_one_goes_on_and_pays_nothing_twice():
    with chat_server() as chat:
        with pytest.raises(ValueError, match="budget of 150 tokens is spent"):
            run("generate", chat.url, "q.jsonl", "endpoint.budget=150", "endpoint.concurrency=1", "batch_size=1")
        assert len(rows("q.jsonl")) >= 1 and len(chat.requests) == 2
        run("generate", chat.url, "q.jsonl", "endpoint.concurrency=1", "batch_size=1")
        asked = len(chat.requests)
        run("generate", chat.url, "whole.jsonl")
        assert len(chat.requests) == asked == len({(one.context, one.answers[0].text) for one in EXAMPLES})
    assert rows("q.jsonl") == rows("whole.jsonl")


def test_samples_are_requests_with_seeds_of_their_own():
    with chat_server() as chat:
        run("generate", chat.url, "q.jsonl", "do_sample=true", "num_samples=3", "max_answers=1", "temperature=0.7")
        assert len({body["seed"] for body in chat.requests}) == len(chat.requests) == 3
        assert all((body["temperature"], body["top_p"]) == (0.7, 0.9) for body in chat.requests)
    assert [row["candidate"] for row in rows("q.jsonl")] == [0, 1, 2]


def test_the_command_ends_with_what_it_cost(caplog):
    prices = ["endpoint.input_price=2", "endpoint.output_price=50"]
    with chat_server() as chat, caplog.at_level("INFO"):
        run("generate", chat.url, "q.jsonl", "max_answers=2", *prices)
        assert "2 requests, 200 tokens, cost 0.00136; 0 answers were kept earlier" in caplog.text
        run("ask", chat.url, "pairs.jsonl", "number=2", *prices, "endpoint.kept=other")
        said = f"{len(chat.requests) - 2} requests, {100 * (len(chat.requests) - 2)} tokens, cost "
        assert said in caplog.text
        run("generate", chat.url, "again.jsonl", "max_answers=2", *prices)
    assert "0 requests, 0 tokens; 2 answers were kept earlier" in caplog.text


def test_a_prompt_of_ones_own(tmp_path):
    (tmp_path / "prompt.txt").write_text("Ask! {answer} | {passage} | {keep}")
    with chat_server() as chat:
        run("generate", chat.url, "q.jsonl", "max_answers=1")
        run("generate", chat.url, "p.jsonl", "max_answers=1", "model.prompt=prompt.txt")
        text = chat.requests[1]["messages"][0]["content"]
        with pytest.raises(InputError, match="other settings"):
            run("generate", chat.url, "q.jsonl", "max_answers=1", "model.prompt=prompt.txt")
    row = rows("p.jsonl")[0]
    assert text == f"Ask! {row['answer']} | {row['context']} | {{keep}}"
    (tmp_path / "wrong.txt").write_text("Ask about {passage}")
    with pytest.raises(ValueError, match=r"wrong.txt: has no \{answer\}"):
        run("generate", chat.url, "w.jsonl", "model.prompt=wrong.txt")


def test_answers_without_a_question_are_counted(caplog):
    with chat_server(lambda body: completion("I cannot help with that.")) as chat, caplog.at_level("INFO"):
        with pytest.raises(InputError, match="all questions are empty"):
            run("generate", chat.url, "q.jsonl", "max_answers=2")
        chat.reply = lambda body: completion("No." if len(chat.requests) % 2 else "Who wrote it?")
        run("generate", chat.url, "p.jsonl", "endpoint.concurrency=1", "endpoint.kept=other")
    empty = sum(not row["question"] for row in rows("p.jsonl"))
    assert 0 < empty < len(EXAMPLES) and f"{empty} answers without a question" in caplog.text


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ('{"question": "Who  wrote\\nit?"}', "Who wrote it?"),
        ('Sure!\n```json\n{"question": "Who {really} wrote \\"it\\"?"}\n```', 'Who {really} wrote "it"?'),
        ('{} {"a": 1} {"question": "Wer schrieb es"}', "Wer schrieb es"),
        ("Question: Who wrote it?", "Who wrote it?"),
        ('Here is one.\n\n1. **Question:** "Who wrote it?"\nAnswer: Ada', "Who wrote it?"),
        ('{"question": "Who wrote', ""),
        ("I cannot help with that.", ""),
        ("谁写的？", "谁写的？"),
        ("", ""),
    ],
)
def test_answers_in_other_forms_are_read(text, question):
    assert read_question(Completion(text)) == question


def test_ask_writes_pairs_of_the_text():
    with chat_server() as chat:
        run("ask", chat.url, "pairs.jsonl", "number=2")
        asked = len(chat.requests)
        run("ask", chat.url, "again.jsonl", "number=2")
        assert len(chat.requests) == asked > 0
    found = rows("pairs.jsonl")
    assert found and found == rows("again.jsonl")
    for row in found:
        start = row["answer_start"]
        assert row["context"][start : start + len(row["answer"])] == row["answer"]
        assert row["question"] == f"Which word has {len(row['answer'])} letters?"
        assert row["logprob"] is None and "probability" not in row["scores"]
        assert row["model"].startswith(f"{chat.url} m prompt:")


def test_the_generator_of_python(tmp_path):
    with chat_server() as chat:
        asked = EndpointGenerator(Endpoint(chat.url, "m", kept=tmp_path))
        generator = QuestionGenerator.from_pretrained(asked)
        (pair,) = generator.ask(PASSAGE, answers=["London"])
        assert (pair.question, pair.answer, pair.logprob) == ("Which word has 6 letters?", "London", None)
        drawn = generator.ask(PASSAGE, answers=["London"], seed=3)
        assert drawn[0].question == pair.question and len(chat.requests) == 1 + 4
        assert math.isnan(
            asked.candidates(EXAMPLES[:1], 1, max_new_tokens=1, top_p=None, temperature=1.0)[0][0].logprob
        )
        with pytest.raises(InputError, match="has not written"):
            generator.score(["Who?"], [PASSAGE], ["Ada"])


ELSEWHERE = "https://models.example.org/v1"


@pytest.mark.parametrize("command", ["generate", "ask"])
def test_documents_stay_here_unless_somebody_agrees(command, monkeypatch, caplog, capsys):
    def sent(*_):
        raise AssertionError("sent")

    monkeypatch.setattr("rewards.endpoint.Endpoint.answers", sent)
    with pytest.raises(InputError, match="nobody can be asked here; add yes=true"):
        run(command, ELSEWHERE, "q.jsonl")
    assert "are sent to https://models.example.org" in caplog.text
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    for word in ("\n", "n\n", ""):
        monkeypatch.setattr("sys.stdin.readline", lambda word=word: word, raising=False)
        with pytest.raises(InputError, match="nothing was sent"):
            run(command, ELSEWHERE, "q.jsonl")
    monkeypatch.setattr("sys.stdin.readline", lambda: "y\n", raising=False)
    with pytest.raises(AssertionError, match="sent"):
        run(command, ELSEWHERE, "q.jsonl")
    with pytest.raises(AssertionError, match="sent"):
        run(command, ELSEWHERE, "q.jsonl", "yes=true")


@pytest.mark.parametrize("command", ["train", "pipeline", "serve", "trim"])
def test_other_commands_refuse_an_address(command):
    with pytest.raises(InputError, match=r"model.path=http://127.0.0.1:1/v1: is the address of a language model"):
        run_command(command, ["model.path=http://127.0.0.1:1/v1"])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["num_beams=3"], "generate.num_beams=3: a model behind an address has no such choice"),
        (["engine=library"], "generate.engine=library: a model"),
        (["model.language=de"], "model.language=de: a model"),
        (["keep=2"], "keep=2 must be from 1 to num_beams=1"),
        (["model.name="], "as model.name=NAME"),
        (["endpoint.max_cost=1"], "give input_price and output_price"),
    ],
)
def test_what_a_server_cannot_do_is_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        run("generate", "http://127.0.0.1:1/v1", "q.jsonl", *keys)


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="one process asks; run the command alone"):
        asked_generator("http://127.0.0.1:1/v1", Settings())


def test_the_server_says_what_the_schema_asks_for():
    body = {"messages": [{"content": "Answer: Ada"}], "response_format": {}}
    text = asks_about_the_answer(body)["choices"][0]["message"]["content"]
    assert read_question(Completion(text)) == "Which word has 3 letters?"
