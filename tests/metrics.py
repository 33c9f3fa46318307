"""``python3 -m tests.metrics FILE``: write the table of all metrics into the docs."""

import sys
from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric

import certs.rotation
import kubelet.api.streams
import kubelet.pods.report
import webhook.metrics
from kube.metrics import REGISTRY
from tests import made

MARK: Final = made.mark("tests.metrics", "docs/metrics.md")
REGISTERING: Final = (certs.rotation, kubelet.api.streams, kubelet.pods.report, webhook.metrics)
"""Modules that register metrics when they are imported."""


def families() -> dict[str, Metric]:
    """Return all metrics by the name of their family."""
    return {found.name: found for found in REGISTRY.collect()}


def series() -> set[str]:
    """Return the names of all series that the metrics make."""
    endings = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    return {name + end for name, found in families().items() for end in endings[found.type]}


def _metric_rows() -> Iterator[str]:
    for name, found in sorted(families().items()):
        shown = f"{name}_total" if found.type == "counter" else name
        yield f"| `{shown}` | {found.type} | {found.documentation} |"


def written_metrics(text: str) -> str:
    """Return ``text`` with the table behind its mark."""
    rows = "\n".join(["| metric | type | meaning |", "| --- | --- | --- |", *_metric_rows()])
    return made.between(text, MARK, rows)


if __name__ == "__main__":
    sys.exit(made.main(written_metrics))
