"""Which samples of the kubelets a consumer may see, and under which names.

Source: docs/parity.md § 5.9; SEC-A21.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from apis import keys, objects, ownership, prometheus
from apis.objects import Key, Object
from apis.prometheus import Sample

GROUP: Final = keys.METRICS_GROUP
VERSION: Final = keys.METRICS_VERSION


def group() -> Object:
    """Return what the API server asks of an aggregated group."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    }


def resources() -> Object:
    """Return what the API server asks of an aggregated version."""
    scrape = {
        "name": "scrape",
        "singularName": "",
        "namespaced": False,
        "kind": "Scrape",
        "verbs": ["get"],
    }
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [scrape, {**scrape, "name": "scrape/metrics"}],
    }


def twins(namespaces: Iterable[Object], consumer: str) -> dict[str, str]:
    """Return the original name of each twin of ``consumer``, by what our own record says."""
    return {
        objects.key_of(namespace).name: original
        for namespace in namespaces
        if ownership.consumer_of(namespace) == consumer
        if (original := objects.annotations(namespace).get(keys.ORIGINAL_NAME, ""))
    }


def narrowed(texts: Iterable[str], twins: Mapping[str, str], pods: Collection[Key]) -> str:
    """Return the samples of offloaded ``pods`` in ``twins``, under their original namespaces.

    And of the volumes of claims there, which name no pod.
    """

    def is_theirs(sample: Sample) -> bool:
        namespace, pod = sample.labels.get("namespace", ""), sample.labels.get("pod", "")
        return namespace in twins and (
            Key(namespace, pod) in pods or prometheus.claim_of(sample) is not None
        )

    families = prometheus.families(texts, is_theirs)
    for family in families:
        family.samples = [
            sample._replace(
                labels={**sample.labels, "namespace": twins[sample.labels["namespace"]]}
            )
            for sample in family.samples
        ]
    return prometheus.text(families)


def address(node: Object) -> tuple[str, int] | None:
    """Return where the kubelet of ``node`` listens; None of a virtual node, or one without."""
    if objects.labels(node).get(keys.NODE_TYPE) == keys.VIRTUAL_NODE_TYPE:
        return None
    status: Object = objects.status(node)
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    addresses = {one.get("type"): one.get("address") for one in status.get("addresses") or []}
    host = addresses.get("InternalIP")
    return (str(host), int(port)) if host and port else None


def injected(ca: str) -> Object:
    """Return what to apply so that the API server trusts us; ``ca`` is base64 of PEM."""
    return objects.named(keys.API_SERVICE, keys.METRICS_API, spec={"caBundle": ca})
