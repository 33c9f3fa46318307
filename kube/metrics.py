"""What the machinery counts, in one registry a process. Label values are ours, never a user's."""

from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

REGISTRY: Final = CollectorRegistry()
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
counter: Final = partial(Counter, registry=REGISTRY)
gauge: Final = partial(Gauge, registry=REGISTRY)
histogram: Final = partial(Histogram, registry=REGISTRY)

REQUESTS: Final = counter(
    "pyliqo_requests",
    "Requests to API servers by verb, resource and code (0: no answer)",
    ["verb", "resource", "code"],
)
REQUEST_SECONDS: Final = histogram(
    "pyliqo_request_seconds",
    "How long API servers took to answer",
    ["verb"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 1, 5, 30),
)
RELISTS: Final = counter(
    "pyliqo_informer_lists",
    "Lists of an informer by cause: start, expired, ahead, unreadable",
    ["resource", "cause"],
)
WATCHES: Final = gauge("pyliqo_informer_watches", "Watches now open", ["resource"])
WATCH_FAILURES: Final = counter(
    "pyliqo_informer_failures", "Lists and watches that failed", ["resource"]
)
WATCHES_SILENT: Final = counter(
    "pyliqo_informer_silent_watches",
    "Watches that were opened again because they told nothing",
    ["resource"],
)
DROPPED: Final = counter(
    "pyliqo_informer_dropped_objects",
    "Objects of answers that were left out: without a valid name, or of another namespace",
    ["resource"],
)
UNFIT: Final = counter(
    "pyliqo_peer_unfit_fields",
    "Fields of objects of another cluster that were left out: they do not fit their place",
)
CACHED: Final = gauge("pyliqo_informer_objects", "Objects in the caches", ["resource"])
WATCH_SEEN: Final = gauge(
    "pyliqo_informer_last_sign_of_life_timestamp_seconds",
    "When an informer of the resource last heard from its API server",
    ["resource"],
)
QUEUE_DEPTH: Final = gauge("pyliqo_queue_depth", "Keys that wait for a worker", ["controller"])
QUEUE_OLDEST: Final = gauge(
    "pyliqo_queue_oldest_seconds", "How long the oldest key has waited", ["controller"]
)
QUEUE_RETRIES: Final = counter(
    "pyliqo_queue_retries", "Keys put off after an error", ["controller"]
)
RECONCILES: Final = counter(
    "pyliqo_reconciles",
    "Reconciles by outcome: done, again, conflict, busy, terminal, error",
    ["controller", "outcome"],
)
RECONCILE_SECONDS: Final = histogram(
    "pyliqo_reconcile_seconds",
    "How long reconciles took",
    ["controller"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 1, 5, 30),
)
LEADER: Final = gauge("pyliqo_leader", "1 while this process leads", ["lease"])
EVENTS: Final = counter("pyliqo_events", "Events by outcome: written, merged, dropped", ["outcome"])


def page() -> bytes:
    return generate_latest(REGISTRY)
