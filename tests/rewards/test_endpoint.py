"""The client of language models behind addresses: what is asked, kept, refused and said."""

import json

import pytest

from rewards import MetricInputError
from rewards.endpoint import USED, Endpoint, EndpointError, checked_url, is_local, message
from tests.chat_server import TOKENS, chat_server, completion
from tests.json_server import JsonHandler

BODIES = [{"messages": [{"role": "user", "content": str(number)}], "max_tokens": 5, "seed": 1} for number in range(6)]
SOON = {"retry-after-ms": "1"}


def echo(body):
    return completion(body["messages"][0]["content"])


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "kept"


def texts(endpoint, bodies=BODIES):
    return [answer.text for answer in endpoint.answers(bodies)]


def test_answers_come_in_the_order_of_their_requests_and_equal_ones_are_asked_once(kept):
    with chat_server(echo) as chat:
        endpoint = Endpoint(chat.url, "m", kept=kept, concurrency=3)
        assert texts(endpoint, [*BODIES, BODIES[0]]) == ["0", "1", "2", "3", "4", "5", "0"]
        assert len(chat.requests) == endpoint.asked == 6
        assert endpoint.spent == 6 * TOKENS
        assert {request["model"] for request in chat.requests} == {"m"}


def test_what_was_kept_is_not_asked_again_also_after_a_line_that_a_kill_has_cut(kept):
    with chat_server(echo) as chat:
        first = Endpoint(chat.url, "m", kept=kept)
        texts(first, BODIES[:3])
        first.path.write_bytes(first.path.read_bytes()[:-20])
        second = Endpoint(chat.url, "m", kept=kept)
        assert texts(second) == ["0", "1", "2", "3", "4", "5"]
        assert second.asked == 4
        third = Endpoint(chat.url, "m", kept=kept)
        assert texts(third) == texts(second)
        assert (third.asked, len(chat.requests)) == (0, 7)


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": [{"index": 0, "text": "of another interface"}]},
        {"choices": [{"message": {"content": [{"type": "text", "text": "in parts"}]}}]},
        completion(None) | {"choices": []},
        {"choices": []},
        "a page",
    ],
)
def test_what_is_no_completion_is_one_line_and_is_not_kept_but_counted(kept, answer):
    with chat_server(lambda body: answer) as chat:
        endpoint = Endpoint(chat.url, "m", kept=kept, concurrency=1)
        with pytest.raises(EndpointError, match="gives no chat completion; most addresses end in /v1"):
            texts(endpoint)
        given = isinstance(answer, dict) and "usage" in answer
        least = TOKENS if given else len(json.dumps(BODIES[0])) // 4
        assert least <= endpoint.spent <= (TOKENS if given else least + 20)
        chat.reply = echo
        assert texts(Endpoint(chat.url, "m", kept=kept)) == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("damage", [{"text": 3}, {"tokens": None}, {"tokens": [3]}])
def test_a_kept_line_that_was_changed_is_asked_anew(kept, damage):
    with chat_server(echo) as chat:
        first = Endpoint(chat.url, "m", kept=kept)
        texts(first, BODIES[:1])
        first.path.write_text(json.dumps(json.loads(first.path.read_text()) | damage) + "\n")
        assert texts(Endpoint(chat.url, "m", kept=kept), BODIES[:1]) == ["0"]
        assert len(chat.requests) == 2


def test_a_fault_that_is_not_tried_again_is_not_said_to_be(kept, monkeypatch):
    def cut(self, *_):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1")
        self.end_headers()
        self.wfile.write(b"{")

    monkeypatch.setattr(JsonHandler, "reply", cut)
    with chat_server(echo) as chat:
        endpoint = Endpoint(chat.url, "m", kept=kept, budget=1, **PRICES)
        with pytest.raises(EndpointError) as fault:
            texts(endpoint, BODIES[:1])
        with pytest.raises(EndpointError, match="budget of 1 tokens is spent"):  # the server may count such answers
            texts(endpoint, BODIES[1:2])
    assert "Expecting" in str(fault.value) and "retries" not in str(fault.value)
    assert endpoint.spent > 1 and endpoint.cost > 0 and len(chat.requests) == 1


@pytest.mark.parametrize("change", [{"model": "n"}, {"seed": 2}, {"content": "other"}])
def test_another_model_option_or_text_is_another_request(kept, change):
    with chat_server(echo) as chat:
        texts(Endpoint(chat.url, "m", kept=kept), BODIES[:1])
        body = {**BODIES[0], "seed": change.get("seed", 1)}
        body["messages"] = [{"role": "user", "content": change.get("content", "0")}]
        texts(Endpoint(chat.url, change.get("model", "m"), kept=kept), [body])
        assert len(chat.requests) == 2


def test_busy_servers_are_asked_again(kept):
    waiting = [(429, SOON, {"error": {"message": "slow down"}}), (500, SOON, {"error": {"message": "oh"}})]
    with chat_server(lambda body: waiting.pop() if waiting else echo(body)) as chat:
        assert texts(Endpoint(chat.url, "m", kept=kept, concurrency=1)) == ["0", "1", "2", "3", "4", "5"]
        assert len(chat.requests) == 8


def test_a_server_that_stays_busy_is_one_line_and_what_it_answered_is_kept(kept):
    def reply(body):
        return echo(body) if body["messages"][0]["content"] < "2" else (503, SOON, {"error": {"message": "busy"}})

    with chat_server(reply) as chat:
        with pytest.raises(EndpointError, match=r"busy.*after 5 retries; every answer is kept"):
            texts(Endpoint(chat.url, "m", kept=kept, concurrency=1))
        assert len(chat.requests) == 2 + 6
        chat.reply = echo
        assert texts(Endpoint(chat.url, "m", kept=kept)) == ["0", "1", "2", "3", "4", "5"]
        assert len(chat.requests) == 8 + 4


def test_the_budget_stops_in_order_and_the_next_run_goes_on(kept):
    with chat_server(echo) as chat:
        with pytest.raises(EndpointError, match="budget of 150 tokens is spent"):
            texts(Endpoint(chat.url, "m", kept=kept, concurrency=1, budget=150))
        assert len(chat.requests) == 2  # of 100 tokens each
        assert texts(Endpoint(chat.url, "m", kept=kept, budget=400)) == ["0", "1", "2", "3", "4", "5"]
        assert len(chat.requests) == 6


PRICES = {"input_price": 2.0, "output_price": 50.0}
COST = (90 * 2 + 10 * 50) / 1e6  # of one answer of the stand-in


def test_the_largest_cost_stops_in_order_and_what_is_kept_costs_nothing_again(kept):
    USED.clear()
    with chat_server(echo) as chat:
        first = Endpoint(chat.url, "m", kept=kept, concurrency=1, max_cost=2.5 * COST, **PRICES)
        with pytest.raises(EndpointError, match=r"cost has reached max_cost=0.0017 \(0.00204\); every answer is kept"):
            texts(first)
        assert len(chat.requests) == 3 and first.cost == pytest.approx(3 * COST)
        second = Endpoint(chat.url, "m", kept=kept, max_cost=3.5 * COST, **PRICES)
        assert texts(second) == ["0", "1", "2", "3", "4", "5"]
        assert second.cost == pytest.approx(3 * COST)
    assert {"requests": 6, "tokens": 6 * TOKENS, "cost": pytest.approx(6 * COST), "kept": 3} == USED


def test_thoughts_that_the_server_counts_in_the_total_alone_are_priced_as_answer(kept):
    def reply(body):
        found = completion("4")
        return found | {"usage": found["usage"] | {"total_tokens": TOKENS + 1000}}

    with chat_server(reply) as chat:
        endpoint = Endpoint(chat.url, "m", kept=kept, **PRICES)
        endpoint.answers(BODIES[:1])
    assert endpoint.cost == pytest.approx((90 * 2 + 1010 * 50) / 1e6)


@pytest.mark.parametrize("costs", [{"max_cost": 1}, {"input_price": 1, "max_cost": 1}, {"output_price": 0.5}])
def test_costs_need_both_prices(costs):
    with pytest.raises(MetricInputError, match="give input_price and output_price, each of a million tokens"):
        Endpoint("http://127.0.0.1/v1", "m", **costs)


def test_a_limit_that_lets_nothing_be_asked_is_refused():
    with pytest.raises(MetricInputError, match="max_cost=0 would ask nothing; give more than 0"):
        Endpoint("http://127.0.0.1/v1", "m", max_cost=0, **PRICES)


@pytest.mark.parametrize("usage", [{}, {"usage": None}, {"usage": {"total_tokens": "many"}}])
def test_tokens_are_estimated_where_the_server_does_not_count_them(kept, usage):
    with chat_server(lambda body: completion("x" * 400, used=False) | usage) as chat:
        endpoint = Endpoint(chat.url, "m", kept=kept, **PRICES)
        endpoint.answers(BODIES[:1])
        sent = len(json.dumps(BODIES[0]))
        assert endpoint.spent == (400 + sent) // 4
        assert endpoint.cost == pytest.approx(((sent // 4) * 2 + (endpoint.spent - sent // 4) * 50) / 1e6)


@pytest.mark.parametrize(
    ("refusal", "left"),
    [
        ("Unsupported parameter: 'seed'", {"messages", "max_tokens", "response_format", "logprobs", "top_logprobs"}),
        ("response_format is not known", {"messages", "max_tokens", "seed", "logprobs", "top_logprobs"}),
        ("no logprobs here", {"messages", "max_tokens", "seed", "response_format"}),
        ("Use 'max_completion_tokens' instead", None),
        ("no", {"messages", "max_tokens"}),
    ],
)
def test_what_a_server_refuses_is_left_out_for_good(kept, refusal, left):
    more = {"response_format": {"type": "json_object"}, "logprobs": True, "top_logprobs": 5}

    def reply(body):
        given = body.keys() - {"model"}
        ok = given == left if left else "max_completion_tokens" in given and "max_tokens" not in given
        return echo(body) if ok else (400, {}, {"error": {"message": refusal}})

    with chat_server(reply) as chat:
        found = texts(Endpoint(chat.url, "m", kept=kept, concurrency=1), [{**body, **more} for body in BODIES])
        assert found == ["0", "1", "2", "3", "4", "5"]
        assert len(chat.requests) == 7


def test_a_request_that_is_wrong_anyway_changes_nothing_for_the_others(kept):
    def reply(body):
        is_long = body["messages"][0]["content"] == "3"
        return (400, {}, {"error": {"message": "the context is too long"}}) if is_long else echo(body)

    with chat_server(reply) as chat:
        endpoint = Endpoint(chat.url, "m", kept=kept, concurrency=1)
        with pytest.raises(EndpointError, match="the context is too long"):
            texts(endpoint)
        assert texts(endpoint, BODIES[4:]) == ["4", "5"]
        assert all("seed" in request for request in chat.requests[-2:])


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, r"refuses the key in MY_KEY \(status 401\)"), (404, "teapot"), (418, "teapot")],
)
def test_the_key_is_sent_and_stands_in_no_message_nor_file(kept, monkeypatch, status, message):
    monkeypatch.setenv("MY_KEY", "sk-secret-1234")
    fault = {"error": {"message": "teapot; you gave sk-secret-1234"}}
    with chat_server(lambda body: (status, {}, fault)) as chat:
        endpoint = Endpoint(chat.url, "m", kept=kept, key_variable="MY_KEY")
        with pytest.raises(EndpointError, match=message) as caught:
            texts(endpoint, BODIES[:1])
        assert "secret" not in str(caught.value)
        assert chat.headers[0]["Authorization"] == "Bearer sk-secret-1234"
        chat.reply = echo
        texts(endpoint, BODIES[:1])
        assert b"secret" not in endpoint.path.read_bytes()


def test_redirects_are_not_followed_and_no_proxy_is_used_on_this_machine(kept, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with chat_server(echo) as other, chat_server(echo) as chat:
        assert texts(Endpoint(chat.url, "m", kept=kept), BODIES[:1]) == ["0"]
        chat.reply = lambda body: (307, {"Location": f"{other.url}/chat/completions"}, {})
        with pytest.raises(EndpointError):
            texts(Endpoint(chat.url, "m", kept=kept), BODIES[1:2])
        assert not other.requests


def test_what_is_no_completion_is_one_line(kept):
    with chat_server(lambda body: {"hello": "there"}) as chat, pytest.raises(EndpointError, match="end in /v1"):
        texts(Endpoint(chat.url, "m", kept=kept))


def test_nobody_there_is_one_line(kept, monkeypatch):
    monkeypatch.setattr("rewards.endpoint.RETRIES", 0)
    with chat_server(echo) as chat:
        url = chat.url
    with pytest.raises(EndpointError, match=r"Connection error, after 0 retries"):
        texts(Endpoint(url, "m", kept=kept), BODIES[:1])


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("<think>\nwhat?\n</think>\n4", "4"),
        ("Is it 3?\n</think>\n4", "4"),  # the template of the prompt has opened them
        ("4 <think>or 3?</think>", "4"),
        ("<think>a</think>4<think>", "4"),
    ],
)
def test_thoughts_are_cut(kept, written, text):
    with chat_server(lambda body: completion(written)) as chat:
        assert texts(Endpoint(chat.url, "m", kept=kept), BODIES[:1]) == [text]


@pytest.mark.parametrize(
    "url",
    ["https://me:secret@host/v1", "https://host/v1?key=secret", "https://host/v1#secret", "ftp://host", "host", ""],
)
def test_wrong_addresses_are_refused_without_what_they_hide(url):
    with pytest.raises(MetricInputError) as caught:
        checked_url(url)
    assert "secret" not in str(caught.value)


def test_a_key_in_the_place_of_its_variable_is_refused_unseen(kept):
    with pytest.raises(MetricInputError, match="key_variable is no name") as caught:
        Endpoint("http://127.0.0.1/v1", "m", key_variable="sk-secret", kept=kept)
    assert "secret" not in str(caught.value)


def test_addresses_of_this_machine():
    local = ["http://127.0.0.1:8000/v1", "http://127.9.9.9", "http://localhost:1", "http://[::1]:8000/v1"]
    others = ["http://10.0.0.2/v1", "https://api.openai.com/v1", "http://127.0.0.1.evil.org", "http://0.0.0.0/v1"]
    assert [is_local(url) for url in local + others] == [True] * 4 + [False] * 4


def test_places_are_filled_once():
    template = 'A {passage} B {answer} {"question": "…"} {other}'
    values = {"passage": "{answer} {x}", "answer": "{passage}"}
    assert message(template, values)["content"] == 'A {answer} {x} B {passage} {"question": "…"} {other}'


def test_without_the_package_one_line_says_how_to_get_it(kept, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(MetricInputError, match=r'pip install "rl-qg\[endpoint\]"'):
        Endpoint("http://127.0.0.1/v1", "m", kept=kept)
