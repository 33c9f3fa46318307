"""Pods as an offloaded namespace places them."""

import re
from typing import Final

from apis.objects import Object
from tests.webhook.installed import Installed

EU: Final[Object] = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}
    ]
}
EVERYTHING: Final = {"operator": "Exists"}


def required(made: Object) -> list[Object]:
    affinity = made["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return list(terms)


def answered_reviews(live: Installed) -> dict[str, int]:
    """Return how many reviews the webhook has answered at each path."""
    page = live.hooked.get("/metrics", live.scraper)
    counts = re.findall(
        r'^pyliqo_webhook_review_seconds_count\{path="(.*)"\} (\S+)$', page, re.MULTILINE
    )
    return {path: int(float(count)) for path, count in counts}


def values(count: int) -> list[Object]:
    listed = [f"v{n}" for n in range(count)]
    return [{"matchExpressions": [{"key": "key", "operator": "In", "values": listed}]}]
