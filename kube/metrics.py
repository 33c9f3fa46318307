"""What the machinery counts, in one registry a process. Label values are ours, never a user's."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

REGISTRY: Final = CollectorRegistry()
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

REQUESTS: Final = Counter(
    "pyliqo_requests",
    "Requests to API servers by verb, resource and code (0: no answer)",
    ["verb", "resource", "code"],
    registry=REGISTRY,
)
REQUEST_SECONDS: Final = Histogram(
    "pyliqo_request_seconds",
    "How long API servers took to answer",
    ["verb"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 1, 5, 30),
    registry=REGISTRY,
)
RELISTS: Final = Counter(
    "pyliqo_informer_lists",
    "Lists of an informer by cause: start, expired, ahead, unreadable",
    ["resource", "cause"],
    registry=REGISTRY,
)
WATCHES: Final = Gauge(
    "pyliqo_informer_watches", "Watches now open", ["resource"], registry=REGISTRY
)
WATCH_FAILURES: Final = Counter(
    "pyliqo_informer_failures", "Lists and watches that failed", ["resource"], registry=REGISTRY
)
WATCHES_SILENT: Final = Counter(
    "pyliqo_informer_silent_watches",
    "Watches that were opened again because they told nothing",
    ["resource"],
    registry=REGISTRY,
)
DROPPED: Final = Counter(
    "pyliqo_informer_dropped_objects",
    "Objects of answers that were left out: without a valid name, or of another namespace",
    ["resource"],
    registry=REGISTRY,
)
UNFIT: Final = Counter(
    "pyliqo_peer_unfit_fields",
    "Fields of objects of another cluster that were left out: they do not fit their place",
    registry=REGISTRY,
)
CACHED: Final = Gauge(
    "pyliqo_informer_objects", "Objects in the caches", ["resource"], registry=REGISTRY
)
WATCH_SEEN: Final = Gauge(
    "pyliqo_informer_last_sign_of_life_timestamp_seconds",
    "When an informer of the resource last heard from its API server",
    ["resource"],
    registry=REGISTRY,
)
QUEUE_DEPTH: Final = Gauge(
    "pyliqo_queue_depth", "Keys that wait for a worker", ["controller"], registry=REGISTRY
)
QUEUE_OLDEST: Final = Gauge(
    "pyliqo_queue_oldest_seconds",
    "How long the oldest key has waited",
    ["controller"],
    registry=REGISTRY,
)
QUEUE_RETRIES: Final = Counter(
    "pyliqo_queue_retries", "Keys put off after an error", ["controller"], registry=REGISTRY
)
RECONCILES: Final = Counter(
    "pyliqo_reconciles",
    "Reconciles by outcome: done, again, conflict, busy, terminal, error",
    ["controller", "outcome"],
    registry=REGISTRY,
)
RECONCILE_SECONDS: Final = Histogram(
    "pyliqo_reconcile_seconds",
    "How long reconciles took",
    ["controller"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 1, 5, 30),
    registry=REGISTRY,
)
LEADER: Final = Gauge("pyliqo_leader", "1 while this process leads", ["lease"], registry=REGISTRY)
EVENTS: Final = Counter(
    "pyliqo_events",
    "Events by outcome: written, merged, dropped",
    ["outcome"],
    registry=REGISTRY,
)


def page() -> bytes:
    return generate_latest(REGISTRY)
