"""A language model behind an OpenAI-compatible address, asked through the package `openai`. Every answer is kept."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from logging import getLogger
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from rewards.errors import MetricInputError, library, number

RETRIES = 5  # with growing pauses, or those that the server asks for
LONGEST = 300  # characters of a server's message that are shown
LETTERS = 4  # of a token, about, where its tokenizer is elsewhere
# What a request may do without where a server refuses it, and the word by which the server names it.
OPTIONAL = {name: name for name in ("response_format", "logprobs", "seed", "temperature", "top_p")}
OPTIONAL["max_tokens"] = "max_completion_tokens"  # its newer name, which is then sent
USED = defaultdict[str, float](float)  # by all endpoints here: requests, tokens, cost (with prices), answers kept
_THOUGHTS = re.compile(r"^((?!<think>).)*</think>|<think>.*?(</think>|$)", re.DOTALL)  # the prompt may open them


class EndpointError(MetricInputError):
    """A server that cannot be asked further: its address, its model, the key, or the budget. No row is to blame."""


class Completion(NamedTuple):
    """The text of an answer, without what the model thought before it; and its tokens, where the server gives
    log-probabilities, each with those of the tokens that were likely in its place.
    """

    text: str
    tokens: Sequence[tuple[str, Mapping[str, float]]] = ()


@dataclass
class Endpoint:
    """Asks a model for chat completions; not for use by several threads at a time. Raises `MetricInputError` for a
    wrong value, or without the package `openai`. `asked`, `spent` and `cost` count its requests, their tokens and, by
    the prices, what these cost.
    """

    url: str  # such as http://127.0.0.1:8000/v1
    model: str  # its name there
    key_variable: str = "OPENAI_API_KEY"  # the environment variable that holds the key, where the server needs one
    concurrency: int = 8  # requests at a time
    budget: int | None = None  # tokens after which nothing more is asked; what is under way ends, what is kept is free
    input_price: float | None = None  # of a million tokens of prompts, in any currency
    output_price: float | None = None  # of a million tokens of answers, with what the model thinks before them
    max_cost: float | None = None  # at which nothing more is asked, as at the budget; it needs both prices
    kept: str | Path = "~/.cache/rl-qg/endpoint"  # folder of the answers, a file for each address and model

    def __post_init__(self) -> None:
        self.url = checked_url(self.url)
        if not isinstance(self.model, str) or not self.model.strip():
            raise MetricInputError(f"{self.url}: the model has no name; give its name there, as model.name=NAME")
        if not re.fullmatch(r"[A-Za-z_]\w*", str(self.key_variable)):  # such as the key itself, which is not shown
            raise MetricInputError("endpoint: key_variable is no name of an environment variable")
        for name in ("concurrency", *(["budget"] if self.budget is not None else [])):
            number("endpoint", name, getattr(self, name), low=1, whole=True)
        costs = {name: getattr(self, name) for name in ("input_price", "output_price", "max_cost")}
        given = {name: number("endpoint", name, cost, low=0) for name, cost in costs.items() if cost is not None}
        if self.max_cost == 0:
            raise MetricInputError("endpoint: max_cost=0 would ask nothing; give more than 0")
        if given and not {"input_price", "output_price"} <= given.keys():
            fault = "costs need both prices; give input_price and output_price, each of a million tokens"
            raise MetricInputError(f"endpoint: {fault}")
        self._openai = openai = library("openai", "a model behind an address", '"rl-qg[endpoint]"')
        self._key = os.environ.get(self.key_variable, "")
        # Nothing is sent elsewhere: neither by a redirect nor, on this machine, by a proxy.
        http = openai.DefaultHttpxClient(follow_redirects=False, trust_env=not is_local(self.url))
        options = {"max_retries": RETRIES, "http_client": http}
        self._create = openai.OpenAI(base_url=self.url, api_key=self._key or "none", **options).chat.completions.create
        self.identity = f"{self.url} {self.model}"
        name = f"{re.sub('[^A-Za-z0-9.-]+', '-', self.model)[-40:]}-{sha256(self.identity.encode()).hexdigest()[:12]}"
        self.path = Path(self.kept).expanduser() / f"{name}.jsonl"
        self._kept: dict[str, Completion] = {}
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            with suppress(ValueError, KeyError, TypeError):  # a kill has cut the line; it is asked anew
                record = json.loads(line)
                self._kept[record["request"]] = _completion(record["text"], record["tokens"])
        self.asked, self.spent, self.cost = 0, 0, 0.0
        self._refused, self._lock, self._ended = frozenset[str](), Lock(), False

    def answers(self, bodies: Sequence[Mapping[str, Any]]) -> list[Completion]:
        """The answers to requests, each kept as it comes; `EndpointError` where the server cannot be asked further."""
        texts = [json.dumps([self.identity, body], sort_keys=True) for body in bodies]
        keys = [sha256(text.encode()).hexdigest() for text in texts]
        waiting = {key: body for key, body in zip(keys, bodies, strict=True) if key not in self._kept}
        USED["kept"] += sum(key in self._kept for key in keys)
        pool, self._ended = ThreadPoolExecutor(self.concurrency), False
        try:
            for done in as_completed([pool.submit(self._ask, key, body) for key, body in waiting.items()]):
                done.result()
        finally:
            self._ended = True
            pool.shutdown(cancel_futures=True)  # those under way are finished and kept
        return [self._kept[key] for key in keys]

    def _ask(self, key: str, body: Mapping[str, Any]) -> None:
        with self._lock:
            if self._ended:
                return
            spent = ""
            if self.budget is not None and self.spent >= self.budget:
                spent = f"the budget of {self.budget:,} tokens is spent ({self.spent:,})"
            if self.max_cost is not None and self.cost >= self.max_cost:
                spent = f"the cost has reached max_cost={self.max_cost:g} ({self.cost:.4g})"
            if spent:
                goes_on = "every answer is kept: the same command goes on, and may spend as much again"
                raise EndpointError(f"{self.url}: {spent}; {goes_on}")
            self.asked += 1
        found, text, answer = self._found(body), "", None
        with suppress(AttributeError, LookupError, TypeError):
            choice = found.choices[0]
            text, logprobs = choice.message.content or "", (choice.logprobs and choice.logprobs.content) or ()
            tokens = [[t.token, {o.token: o.logprob for o in (t, *(t.top_logprobs or ()))}] for t in logprobs]
            answer = _completion(text, tokens)
        used = self._count(body, getattr(found, "usage", None), str(text))
        if answer is None:
            raise self._fault(ValueError("gives no chat completion; most addresses end in /v1"))
        with self._lock:
            self._kept[key] = answer
            record = {"request": key, "text": text, "used": used, "tokens": tokens}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:  # the line before may have been cut
                file.write(f"\n{json.dumps(record)}\n".encode())

    def _count(self, body: Mapping[str, Any], usage: Any = None, text: str = "") -> int:
        """Count an answer, also one that is no completion; return its tokens: by the server, else by letters."""
        given = [getattr(usage, name, None) for name in ("total_tokens", "prompt_tokens")]
        total, prompt = (count if isinstance(count, int) else 0 for count in given)
        length = len(json.dumps(body))
        used = total or (length + len(text)) // LETTERS
        sent = min(used, prompt or length // LETTERS)  # the rest is answer, and thoughts
        with self._lock:
            self.spent += used
            USED["requests"] += 1
            USED["tokens"] += used
            if self.input_price is not None and self.output_price is not None:
                cost = (sent * self.input_price + (used - sent) * self.output_price) / 1e6
                self.cost += cost
                USED["cost"] += cost
        return used

    def _found(self, body: Mapping[str, Any]) -> Any:
        """What the server answers; what it refuses of the request is left out, in later ones too."""
        left_out = self._refused
        while True:
            sent = {name: value for name, value in body.items() if name not in left_out}
            if "logprobs" in left_out:
                sent.pop("top_logprobs", None)
            if "max_tokens" in left_out:
                sent[OPTIONAL["max_tokens"]] = body["max_tokens"]
            try:
                found = self._create(model=self.model, **sent)
                break
            except (self._openai.OpenAIError, ValueError) as error:
                if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):  # an answer, which may be paid for
                    self._count(body)
                given = OPTIONAL.keys() & sent.keys() if getattr(error, "status_code", 0) in (400, 422) else set()
                more = {name for name in given if OPTIONAL[name] in str(error)} or given - {"max_tokens"}
                if not more:
                    raise self._fault(error) from None
                left_out |= more
        with self._lock:
            if left_out > self._refused:
                getLogger(__name__).warning("%s: takes no %s; asked without", self.url, ", ".join(sorted(left_out)))
                self._refused = left_out
        return found

    def _fault(self, error: Exception) -> EndpointError:
        """In one line, in which the key does not stand."""
        self._ended, status, text = True, getattr(error, "status_code", None), " ".join(str(error).split())
        text = (text.replace(self._key, "…") if self._key else text)[:LONGEST].rstrip(".")
        if status in (401, 403):  # servers repeat a part of the key
            text = f"refuses the key in {self.key_variable} (status {status}); set that variable, or name another one"
        elif not isinstance(error, ValueError) and (status is None or status == 429 or status >= 500):
            text += f", after {RETRIES} retries; every answer is kept: the same command goes on"
        return EndpointError(f"{self.url}: {text}")


def _completion(text: str, tokens: Sequence[Any]) -> Completion:
    return Completion(_THOUGHTS.sub("", text).strip(), [*map(tuple, tokens)])


def checked_url(url: object) -> str:
    """An address without a slash at its end; `MetricInputError`, which does not show it, for another text."""
    if not re.fullmatch(r"https?://([\w.-]+|\[[\da-fA-F:.]+\])(:\d+)?(/[^\s?#@]*)?", str(url)):
        such = "http://127.0.0.1:8000/v1, and a key in an environment variable"
        raise MetricInputError(
            f"the address of a model is none, or has a password or a query; give one such as {such}"
        )
    return str(url).rstrip("/")


def is_local(url: str) -> bool:
    """Whether an address is of this machine by what it says; names are not looked up."""
    return re.match(r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:|/|$)", url) is not None


def read_template(path: str | Path, places: Sequence[str]) -> str:
    """A prompt of a file, in which each of `places` stands in braces, such as ``{passage}``."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MetricInputError(f"prompt {path}: cannot be read as UTF-8 text ({error})") from None
    if missing := [place for place in places if f"{{{place}}}" not in text]:
        raise MetricInputError(f"prompt {path}: has no {{{missing[0]}}}; write it where that belongs")
    return text


def message(template: str, values: Mapping[str, str]) -> dict[str, str]:
    """A prompt with its places filled in, as a message; other braces, also of the values, stay as they are."""
    text = re.sub(r"\{(\w+)\}", lambda place: values.get(place[1], place[0]), template)
    return {"role": "user", "content": text}
