"""A language model behind an OpenAI-compatible address (vLLM, llama.cpp, Ollama, or hosted), asked through the package
`openai`. Every answer is kept, so that a request is paid for once, whatever ends the program.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from logging import getLogger
from pathlib import Path
from threading import Event, Lock
from typing import Any
from urllib.parse import urlsplit

from rewards.errors import MetricInputError, library, number

Body = Mapping[str, Any]  # of a chat completion, without its model

KEPT = "~/.cache/rl-qg/endpoint"
KEY = "OPENAI_API_KEY"
RETRIES = 5  # with growing pauses, or those that the server asks for
TIMEOUT_S = 600.0
LONGEST = 300  # characters of a server's message that are shown
# What a request may do without, where a server refuses it: by the words with which servers do.
_OPTIONAL = {
    "response_format": re.compile("response_format|json_schema|grammar"),
    "logprobs": re.compile("logprobs"),
    "seed": re.compile("seed"),
    "temperature": re.compile("temperature"),
    "top_p": re.compile("top_p"),
    "max_tokens": re.compile("max_completion_tokens"),  # the newer name of it
}
_THOUGHTS = re.compile(r"<think>.*?(</think>|$)", re.DOTALL)
log = getLogger(__name__)


class EndpointError(MetricInputError):
    """A server that cannot be asked further: its address, its model, the key, or the budget. No row is to blame."""


@dataclass(frozen=True)
class LikelyToken:
    """A token of an answer with its log-probability, and those of the tokens that were likely in its place."""

    text: str
    logprob: float
    others: Mapping[str, float]


@dataclass(frozen=True)
class Completion:
    """The text of an answer, without what the model thought before it; its tokens, where the server gives
    log-probabilities; and whether it was cut at its longest length.
    """

    text: str
    tokens: Sequence[LikelyToken] = ()
    is_cut: bool = False


class Endpoint:
    """Asks a model for chat completions, several at a time.

    Args:
        url: the address, such as ``http://127.0.0.1:8000/v1``.
        model: its name there.
        key_variable: the environment variable that holds the API key; none is needed where the server needs none.
        concurrency: requests at a time.
        budget: tokens of prompts and answers from which on nothing more is asked; requests under way are finished.
            What was kept before costs nothing. None: no limit.
        kept: the folder of the answers, a file of JSON lines for each address and model.

    `asked` and `spent` count the requests and the tokens of this object, `reused` the answers that had been kept. Not
    for use by several threads at a time. Raises `MetricInputError` for a wrong option or without the package `openai`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key_variable: str = KEY,
        concurrency: int = 8,
        budget: int | None = None,
        kept: str | Path = KEPT,
    ) -> None:
        self.url, self.model = checked_url(url), model
        if not isinstance(model, str) or not model.strip():
            raise MetricInputError(f"{self.url}: the model has no name; give the one that the server knows it by")
        self.concurrency = int(number("endpoint", "concurrency", concurrency, low=1, whole=True))
        self.budget = None if budget is None else int(number("endpoint", "budget", budget, low=1, whole=True))
        self._openai = library("openai", "a model behind an address", '"rl-qg[endpoint]"')
        if not re.fullmatch(r"[A-Za-z_]\w*", str(key_variable)):
            raise MetricInputError(f"endpoint: key_variable is no name of an environment variable, such as {KEY}")
        self._key_name, self._key = str(key_variable), os.environ.get(str(key_variable), "")
        self._client: Any = None
        digest = hashlib.sha256(self.identity.encode()).hexdigest()[:12]
        folder = Path(kept or KEPT).expanduser()
        self.path = folder / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', model)[-40:]}-{digest}.jsonl"
        self._kept = dict(_kept_answers(self.path))
        self.asked = self.spent = self.reused = 0
        self._refused: frozenset[str] = frozenset()
        self._lock = Lock()

    @property
    def identity(self) -> str:
        return f"{self.url} {self.model}"

    @property
    def report(self) -> str:
        return f"{self.asked:,} requests, {self.spent:,} tokens; {self.reused:,} answers were kept before"

    def answers(self, bodies: Sequence[Body]) -> list[Completion]:
        """The answer to each request; equal ones are asked once.

        Raises `EndpointError` where the server cannot be asked further; all answers until then are kept.
        """
        asked = (json.dumps([self.identity, body], sort_keys=True) for body in bodies)
        keys = [hashlib.sha256(text.encode()).hexdigest() for text in asked]
        waiting = {key: body for key, body in zip(keys, bodies, strict=True) if key not in self._kept}
        self.reused += len(set(keys)) - len(waiting)
        if waiting:
            pool, ended = ThreadPoolExecutor(self.concurrency), Event()
            try:
                for done in as_completed([pool.submit(self._ask, key, body, ended) for key, body in waiting.items()]):
                    done.result()
            finally:
                ended.set()
                pool.shutdown(cancel_futures=True)  # those under way are finished and kept
        return [_answer(self._kept[key]) for key in keys]

    def _ask(self, key: str, body: Body, ended: Event) -> None:
        try:
            if not ended.is_set():
                self._ask_now(key, body)
        except BaseException:
            ended.set()
            raise

    def _ask_now(self, key: str, body: Body) -> None:
        with self._lock:
            if self.budget is not None and self.spent >= self.budget:
                raise EndpointError(
                    f"{self.url}: the budget of {self.budget:,} tokens is spent ({self.spent:,}); every answer is "
                    "kept: the same command goes on after them, with a budget of its own"
                )
            self.asked += 1
        found = self._completion(body)
        choice = found.choices[0]
        text = choice.message.content or ""
        logprobs = (choice.logprobs and choice.logprobs.content) or []
        used = found.usage.total_tokens if found.usage else (len(json.dumps(body)) + len(text)) // 4  # a guess
        record = {
            **{"request": key, "text": text, "finish": choice.finish_reason, "used": used},
            "tokens": [[t.token, t.logprob, {o.token: o.logprob for o in t.top_logprobs or ()}] for t in logprobs],
        }
        with self._lock:
            self.spent += used
            self._kept[key] = record
            self._keep(record)

    def _completion(self, body: Body) -> Any:
        """What the server answers; what it refuses of the request is left out, in later ones too."""
        left_out = self._refused
        while True:
            try:
                found = self._create(body, left_out)
                if not getattr(found, "choices", None):
                    raise EndpointError(f"{self.url}: gives no chat completion; most addresses end in /v1")
                break
            except (self._openai.BadRequestError, self._openai.UnprocessableEntityError) as error:
                given = (_OPTIONAL.keys() & body.keys()) - left_out
                more = {name for name in given if _OPTIONAL[name].search(str(error))} or given - {"max_tokens"}
                if not more:
                    raise self._fault(error) from None
                left_out |= more
            except (self._openai.OpenAIError, ValueError) as error:
                raise error if isinstance(error, EndpointError) else self._fault(error) from None
        with self._lock:
            if new := left_out - self._refused:
                log.warning("%s: takes no %s; asked without", self.url, ", ".join(sorted(new)))
                self._refused |= new
        return found

    def _create(self, body: Body, left_out: frozenset[str]) -> Any:
        with self._lock:
            if self._client is None:
                # Nothing is sent elsewhere: neither by a redirect nor, on this machine, by a proxy.
                http = self._openai.DefaultHttpxClient(follow_redirects=False, trust_env=not is_local(self.url))
                options = {"max_retries": RETRIES, "timeout": TIMEOUT_S, "http_client": http}
                self._client = self._openai.OpenAI(base_url=self.url, api_key=self._key or "none", **options)
        sent = {name: value for name, value in body.items() if name not in left_out}
        if "logprobs" in left_out:
            sent.pop("top_logprobs", None)
        if "max_tokens" in left_out:
            sent["max_completion_tokens"] = body["max_tokens"]
        return self._client.chat.completions.create(model=self.model, **sent)

    def _fault(self, error: Exception) -> EndpointError:
        """In one line, in which the key does not stand."""
        status = getattr(error, "status_code", None)
        text = " ".join(str(error).split())
        text = (text.replace(self._key, "…") if self._key else text)[:LONGEST]
        if status in (401, 403):  # servers repeat a part of the key
            text = f"refuses the key in {self._key_name} (status {status}); set that variable, or name another one"
        elif status == 404:
            text = f"knows no model {self.model!r}, or the address is another one, such as …/v1 ({text})"
        elif status is None or status == 429 or status >= 500:
            text = f"{text.rstrip('.')}, after {RETRIES} retries; every answer is kept: the same command goes on"
        return EndpointError(f"{self.url}: {text}")

    def _keep(self, record: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record) + "\n"
        with self.path.open("a+b") as file:
            if file.tell() and not _ends_line(file):  # a kill has cut the last one
                line = "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())


def checked_url(url: object) -> str:
    """An address without a slash at its end; `MetricInputError` where it is none, or holds what no log should."""
    text = str(url)
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if any(sign in text for sign in "@?#"):
        raise MetricInputError(
            "the address of a model holds a name, a password or a query: give the rest alone; the key is read from "
            f"an environment variable, such as {KEY}"
        )
    if not known:
        raise MetricInputError(f"{url!r:.80} is no address; give one such as http://127.0.0.1:8000/v1")
    return text.rstrip("/")


def is_url(path: object) -> bool:
    return str(path).startswith(("http://", "https://"))


def is_local(url: str) -> bool:
    """Whether an address is of this machine by what it says; names are not looked up."""
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def read_template(path: Path, places: Sequence[str]) -> str:
    """A prompt of a file, in which each of `places` stands in braces, such as ``{passage}``."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise MetricInputError(f"prompt {path}: cannot be read ({reason})") from None
    if missing := [place for place in places if f"{{{place}}}" not in text]:
        raise MetricInputError(f"prompt {path}: has no {{{missing[0]}}}; write it where that belongs")
    return text


def filled(template: str, values: Mapping[str, str]) -> str:
    """A prompt with its places filled in; braces of the values, and others of the prompt, stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda place: values.get(place[1], place[0]), template)


def _kept_answers(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of the lines that are whole."""
    if path.exists():
        for line in path.read_bytes().splitlines():
            with suppress(ValueError, KeyError, TypeError):
                record = json.loads(line)
                yield record["request"], record


def _answer(record: Mapping[str, Any]) -> Completion:
    text = _THOUGHTS.sub("", record["text"]).strip()
    return Completion(text, [LikelyToken(*token) for token in record["tokens"]], record["finish"] == "length")


def _ends_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")
