"""The server (`rl-qg serve`)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_qg.settings.asking import AskModelSettings
from rl_qg.settings.keys import COUNT, NOT_NEGATIVE, POSITIVE, Limits, Section, key


@dataclass
class ServeSettings(Section):
    """Questions over HTTP: where the server listens, what it accepts, and how requests share batches."""

    host: str = key("127.0.0.1", "address to listen on; 0.0.0.0: all of this machine (then set api_keys)")
    port: int = key(8000, "0: any free one, which the first line names", limits=Limits(0, 65535))
    model: AskModelSettings = key(AskModelSettings(), "the generator that asks")
    reader: str = key("", "an extractive reader that has to find each answer; empty: not checked")
    extractor: str = key("", "the output folder of train-answers, which proposes answers; empty: rules")
    rerank: Any = key(None, "the metric, as an entry of metrics=[…], that orders the pairs; null: their score")
    explain: bool = key(
        True, "answer /v1/explain: by the metric of rerank if it can explain, else the words that a question shares"
    )
    api_keys: str = key("", "a file with one key a line; the variable RL_QG_API_KEYS adds more; neither: no key asked")
    origins: list[str] | None = key(None, "web pages of these origins may call the server, as [https://example.org]")
    trusted_proxies: str = key("", "addresses whose X-Forwarded-For is believed, separated by commas; *: all")
    rate: float | None = key(
        None, "requests a second of one key, or of one address without keys; null: any", limits=POSITIVE
    )
    burst: int = key(20, "requests that may come at once, with rate", limits=COUNT)
    max_body_bytes: int = key(1_000_000, "longest request", limits=COUNT)
    max_characters: int = key(50_000, "longest text", limits=COUNT)
    max_questions: int = key(50, "most pairs, or answers, of one request", limits=COUNT)
    passage_characters: int = key(
        1500,
        "longer texts are cut into passages of at most so many, at ends of paragraphs and sentences",
        limits=COUNT,
    )
    threads: int = key(
        1,
        "of the model on a CPU; with 1, requests share batches; with more, one alone is answered sooner",
        limits=COUNT,
    )
    batch_size: int = key(32, "pairs that are made together", limits=COUNT)
    max_wait_ms: float = key(10.0, "a request waits so long for others to share its batch", limits=NOT_NEGATIVE)
    max_queue: int = key(256, "passages that may wait; more get 503", limits=COUNT)
    timeout_seconds: float = key(
        120.0, "longest time to an answer (of a stream: to each passage's); then 503", limits=POSITIVE
    )
    body_seconds: float = key(20.0, "longest time in which a client may send its request", limits=POSITIVE)
    drain_seconds: float = key(
        1.0, "after SIGTERM new requests get 503 for at least this time, before the port closes", limits=NOT_NEGATIVE
    )
    shutdown_seconds: float = key(60.0, "after SIGTERM requests under way get this long, in all", limits=NOT_NEGATIVE)
    log_texts: bool = key(False, "write the bodies of requests and the messages of errors to the log too")

    def faults(self) -> Iterator[str]:
        """Choices and limits, and addresses that can be."""
        yield from super().faults()
        if not self.host.strip():
            yield "host has no value; give an address, such as host=127.0.0.1"
        for origin in self.origins or ():
            if origin != "*" and not origin.startswith(("http://", "https://")):
                yield f"origins: {origin} is no origin; write it as https://example.org"
