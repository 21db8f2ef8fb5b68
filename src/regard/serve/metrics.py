"""What an operator watches, in Prometheus' form; a registry for each server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counts and times; none has a label that a client can invent."""

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
            "From a request's first byte to its answer's last.",
            ["path"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.waiting = Gauge(
            "regard_waiting_sentences", "Sentences in the queue.", ["pair"], registry=self.registry
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
            "Time of a batch.",
            ["pair"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.flaws = Counter(
            "regard_flaws_total",
            "Sentences whose translation is flagged, after a second search.",
            ["pair", "flaw"],
            registry=self.registry,
        )

    def shown(self) -> bytes:
        """In the text format that Prometheus reads."""
        return generate_latest(self.registry)
