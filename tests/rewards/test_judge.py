"""The judge: ratings of a stand-in model, with and without log-probabilities."""

import math

import pytest

from rewards import MetricInputError, load
from rewards.endpoint import Completion, EndpointError
from rewards.judge import CRITERIA, Judge, rating_of
from tests.chat_server import PASSAGE, chat_server, completion

ROW = {"questions": ["Who wrote it?"], "contexts": [PASSAGE], "answers": ["Ada"]}


def token(text, **others):
    places = {"one": "1", "two": "2", "three": "3", "four": "4", "five": " 5", "no": "bad"}
    top = [{"token": places[name], "logprob": math.log(p), "bytes": None} for name, p in others.items()]
    return {"token": text, "logprob": math.log(0.5), "bytes": None, "top_logprobs": top}


def judge(url, tmp_path, **options):
    return Judge("m", url, kept=tmp_path, **options)


def test_a_rating_is_the_expectation_over_the_likely_tokens(tmp_path):
    tokens = [token("4", four=0.5, five=0.2, three=0.1, no=0.15)]
    with chat_server(lambda body: completion("4", logprobs=tokens)) as chat:
        result = judge(chat.url, tmp_path).score(**ROW)
    expected = (4 * 0.5 + 5 * 0.2 + 3 * 0.1) / 0.8  # "bad" is no rating
    assert result.scores == pytest.approx([expected])
    assert [*result.parts] == [*CRITERIA]
    assert all(values == pytest.approx([expected]) for values in result.parts.values())
    assert len(chat.requests) == len(CRITERIA)
    assert all(body["logprobs"] is True and body["top_logprobs"] == 20 for body in chat.requests)


def test_without_log_probabilities_the_written_rating_counts_and_the_score_is_the_mean(tmp_path):
    given = {"Fluency": "5", "Clarity": "Rating: 3", "Relevance": "4/5"}

    def reply(body):
        text = body["messages"][0]["content"]
        if "logprobs" in body:
            return 400, {}, {"error": {"message": "logprobs are not supported"}}
        return completion(next(value for name, value in given.items() if f"{name}:" in text))

    with chat_server(reply) as chat:
        criteria = ["relevance", "fluency", "clarity"]
        result = judge(chat.url, tmp_path, criteria=criteria, concurrency=1).score(**ROW)
    assert result.parts == {"relevance": [4.0], "fluency": [5.0], "clarity": [3.0]}
    assert result.scores == [4.0]
    text = chat.requests[0]["messages"][0]["content"]
    assert all(part in text for part in (PASSAGE, "Who wrote it?", "Ada")) and "{" not in text


def test_the_order_of_the_scale_is_a_choice_that_the_signature_names(tmp_path):
    with chat_server(lambda body: completion("3")) as chat:
        for order in ("ascending", "descending"):
            metric = judge(chat.url, tmp_path, criteria="fluency", order=order)
            metric.score(**ROW)
            assert f"order:{order}" in metric.signature
    first, second = (body["messages"][0]["content"].splitlines() for body in chat.requests)
    begin = first.index("Scale:") + 1
    assert [line[0] for line in first[begin : begin + 5]] == list("12345")
    assert first[begin : begin + 5] == second[begin : begin + 5][::-1]
    assert first[:begin] + first[begin + 5 :] == second[:begin] + second[begin + 5 :]


@pytest.mark.parametrize(
    ("text", "rating"),
    [("4", 4), (" 4.", 4), ("**4**", 4), ("On a scale of 1 to 5, I give 2.", 2), ("3 out of 5", 3), ("5", 5)]
    + [(text, None) for text in ("", "good", "4.5", "0", "6", "45", "4 or 5", "A4")],
)
def test_ratings_are_read_or_not_known(text, rating):
    found = rating_of(Completion(text))
    assert math.isnan(found) if rating is None else found == rating


def test_the_token_of_the_rating_is_found_in_the_answer():
    others = {"4": math.log(0.3), "2": math.log(0.1)}
    tokens = [("4", {"4": 0.0}), ("Rating", {}), (" 4", others)]
    assert rating_of(Completion("Rating: 4", tokens)) == pytest.approx((4 * 0.3 + 2 * 0.1) / 0.4)
    assert rating_of(Completion("4", [("4", {"4": -1.0, "x": -2.0})])) == 4
    unknown = {text: -9999.0 for text in "12345"}  # of which each is 0 as a probability
    assert rating_of(Completion("4", [("4", unknown)])) == 4


def test_a_question_without_a_readable_rating_has_no_score(tmp_path):
    def reply(body):
        return completion("no idea" if "Clarity" in body["messages"][0]["content"] else "4")

    with chat_server(reply) as chat:
        result = judge(chat.url, tmp_path).score(**ROW)
    assert math.isnan(result.scores[0]) and math.isnan(result.parts["clarity"][0])
    assert result.parts["fluency"] == [4.0]


def test_the_budget_ends_a_judge_too(tmp_path):
    with chat_server(lambda body: completion("4")) as chat:
        with pytest.raises(EndpointError, match="budget of 200 tokens"):
            judge(chat.url, tmp_path, budget=200, concurrency=1).score(**ROW)
        assert judge(chat.url, tmp_path).score(**ROW).scores == [4.0]
        assert len(chat.requests) == len(CRITERIA)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criteria": ["beauty"]}, "criterion 'beauty' does not exist; use fluency, clarity"),
        ({"criteria": []}, "is empty"),
        ({"criteria": ["fluency", "fluency"]}, "names one twice"),
        ({"order": "random"}, "use ascending or descending"),
        ({"url": "x"}, "the address of a model is none"),
        ({"model": ""}, "the model has no name"),
        ({"prompt": "/none"}, "prompt /none: cannot be read"),
        ({"max_new_tokens": 0}, "max_new_tokens 0 is out of range"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(MetricInputError, match=message):
        load("judge", **{"url": "http://127.0.0.1:1/v1", "model": "m", **options})


def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path):
    (tmp_path / "marked.txt").write_text("\ufeff{passage} {question} {criterion} {scale}", encoding="utf-8")
    metric = load("judge", url="http://127.0.0.1:9/v1", model="m", prompt=tmp_path / "marked.txt")
    assert metric.template.startswith("{passage}")


def test_the_length_of_answers_is_in_the_signature():
    short, long = (load("judge", url="http://127.0.0.1:9/v1", model="m", max_new_tokens=size) for size in (16, 500))
    assert "max_new_tokens:16" in short.signature and "max_new_tokens:500" in long.signature
