"""A stand-in for a language model behind an OpenAI-compatible address, in a thread on 127.0.0.1."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from threading import Lock
from typing import Any

from tests.json_server import JsonHandler, serving

Reply = Callable[[dict[str, Any]], Any]
TOKENS = 100  # of every completion, as the server counts them
PASSAGE = "Ada wrote the first program in London in 1843."


def completion(text: str | None, *, finish: str = "stop", logprobs: Any = None, used: bool = True) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    choice["logprobs"] = {"content": logprobs} if logprobs else None
    usage = {"prompt_tokens": TOKENS - 10, "completion_tokens": 10, "total_tokens": TOKENS}
    form = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    return {**form, "usage": usage} if used else form


def asks_about_the_answer(body: dict[str, Any]) -> dict[str, Any]:
    """A question that names the answer's length, as the schema says; a judge gets a rating."""
    if "response_format" not in body:
        return completion("4")
    answer = re.search(r"^Answer: (.*)$", body["messages"][0]["content"], re.MULTILINE)
    return completion(json.dumps({"question": f"Which word has {len(answer[1]) if answer else 0} letters?"}))


class ChatServer:
    """`requests` has the bodies that were sent, `headers` what came with each. `reply` gives the answer to a body: a
    completion, or a status, headers and a JSON value.
    """

    def __init__(self, reply: Reply) -> None:
        self.reply, self.requests, self.headers, self.lock = reply, list[Any](), list[Any](), Lock()
        outer = self

        class Handler(JsonHandler):
            def do_POST(self) -> None:
                body = json.loads(self.body())
                with outer.lock:
                    outer.requests.append(body)
                    outer.headers.append(self.headers)
                    given = outer.reply(body)
                status, headers, value = given if isinstance(given, tuple) else (200, {}, given)
                self.reply(status, value, headers)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@contextmanager
def chat_server(reply: Reply = asks_about_the_answer) -> Iterator[ChatServer]:
    chat = ChatServer(reply)
    with serving(chat.server):
        yield chat
