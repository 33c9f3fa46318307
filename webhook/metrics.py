"""What the webhook counts. Label values are ours, never a user's."""

import functools
from typing import Final

from prometheus_client import Counter

from kube.metrics import counter, gauge, histogram

REVIEWS: Final = counter(
    "pyliqo_webhook_reviews",
    "Reviews by path, verdict (allowed, changed, denied, malformed, unavailable, error) and why:"
    " the first words of the verdict in the audit log, or the reason of the refusal",
    ["path", "verdict", "reason"],
)
REVIEW_SECONDS: Final = histogram(
    "pyliqo_webhook_review_seconds",
    "How long an answer took, reading not counted",
    ["path"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1, 5),
)
SHED: Final = counter(
    "pyliqo_webhook_reviews_shed",
    "Reviews not judged, because their time was over before their turn came (queue) or an API"
    " server answered (lookup)",
    ["path", "waited_for"],
)


class Reviewed:
    """The counts of one path, looked up once: labels cost more than counting.

    The counts of what is shed start as 0: a rate misses the step to the first value of a series.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._ends: dict[tuple[str, str], Counter] = {}
        self._seconds = REVIEW_SECONDS.labels(path)
        self._shed = {what: SHED.labels(path, what) for what in ("queue", "lookup")}

    def of(self, verdict: str, reason: str) -> None:
        end = self._ends.get((verdict, reason))
        if end is None:
            end = self._ends[verdict, reason] = REVIEWS.labels(self._path, verdict, reason)
        end.inc()

    def shed(self, waited_for: str) -> None:
        """Count one whose time was over before it could be answered."""
        self.of("unavailable", waited_for)
        self._shed[waited_for].inc()

    def took(self, seconds: float) -> None:
        self._seconds.observe(seconds)


LOOKUPS: Final = counter(
    "pyliqo_webhook_lookups",
    "Objects looked up, by where the answer came from: cache, live, failed",
    ["resource", "source"],
)
lookups: Final = functools.cache(LOOKUPS.labels)
"""The count of one resource and source, looked up once."""
CERTIFICATE_EXPIRY: Final = gauge(
    "pyliqo_webhook_certificate_expiry_timestamp_seconds", "When the served certificate ends"
)
