"""What the server counts, for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServerMetrics:
    """The counts of one server, in a registry of their own: several servers can be in one process."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.requests = Counter("rl_qg_requests", "Requests answered", ["route", "status"], registry=own)
        self.seconds = Histogram("rl_qg_request_seconds", "To the last byte", ["route"], buckets=SECONDS, registry=own)
        self.under_way = Gauge("rl_qg_requests_under_way", "Requests that are not answered yet", registry=own)
        self.waited = Histogram("rl_qg_wait_seconds", "Time in the queue", buckets=SECONDS, registry=own)
        self.batch_rows = Histogram("rl_qg_batch_rows", "Pairs asked for in one batch", buckets=ROWS, registry=own)
        self.batch_seconds = Histogram(
            "rl_qg_batch_seconds", "Time of the model", ["kind"], buckets=SECONDS, registry=own
        )
        self.pairs = Counter("rl_qg_pairs", "Pairs that were made", registry=own)
        self.failures = Counter("rl_qg_failures", "Passages on which the model failed", registry=own)
        self.cancelled = Counter("rl_qg_cancelled", "Requests whose client left", registry=own)
        self._queue = Gauge("rl_qg_queue_length", "Passages that wait", registry=own)
        self._ready = Gauge("rl_qg_ready", "1 when requests are taken", registry=own)
        ProcessCollector(registry=own)

    def watch(self, queue_length: Callable[[], int], ready: Callable[[], bool]) -> None:
        """Read these values when the metrics are asked for."""
        self._queue.set_function(queue_length)
        self._ready.set_function(lambda: float(ready()))

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self.registry)
