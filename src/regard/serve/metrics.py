"""Metrics for the operator, in Prometheus' format; each server has its own registry."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_TIME_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters, gauges and histograms.

    No client can choose the value of a label, because each new value takes memory.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "regard_requests_total",
            "Requests answered.",
            ["path", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "regard_request_seconds",
            "Seconds from the start of a request to the end of its answer.",
            ["path"],
            buckets=_TIME_BUCKETS,
            registry=self.registry,
        )
        self.waiting = Gauge(
            "regard_waiting_sentences",
            "Sentences waiting in the queue.",
            ["pair"],
            registry=self.registry,
        )
        self.batches = Histogram(
            "regard_batch_sentences",
            "Sentences translated together.",
            ["pair"],
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=self.registry,
        )
        self.batch_seconds = Histogram(
            "regard_batch_seconds",
            "Seconds to translate a batch.",
            ["pair"],
            buckets=_TIME_BUCKETS,
            registry=self.registry,
        )
        self.flaws = Counter(
            "regard_flaws_total",
            "Sentences whose translation has a flaw, also after a second search if there was one.",
            ["pair", "flaw"],
            registry=self.registry,
        )

    def as_text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
