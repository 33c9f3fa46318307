"""Which samples of the kubelets a consumer may see, and under which names.

Source: docs/parity.md § 5.9; SEC-A21.
"""

import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from apis import keys, objects, ownership, prometheus
from apis.objects import Key, Meta, Object
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


# What kubelets say, as it arrives -----------------------------------------------------------------

_NAMESPACE: Final = re.compile(r'[{,]namespace="([a-z0-9-]{1,63})"')
"""In a value it would have a backslash, so it is the label, of each sample that we tell of."""
_TOGETHER: Final = 2**17
"""Characters of one kubelet that are deflated together, and later read in one go."""


class KubeletSamples:
    """The samples that one kubelet has of ``namespaces``: of each texts by itself, deflated.

    So the metrics of 50 pods, 5 MB, take a tenth of that at most, and those of others nothing.
    """

    def __init__(self, namespaces: Collection[str]) -> None:
        self._namespaces = namespaces
        self._kept: dict[str, list[bytes]] = {}
        self._lines: dict[str, list[str]] = {}
        self._size = 0
        self._family, self._about = "", dict[str, str]()
        self._told: set[str] = set()
        """Of which namespaces the lines begin with what is told about this family."""

    def read(self, lines: str) -> None:
        """Take whole lines of the text, in their order."""
        for line in lines.split("\n"):
            if family := prometheus.told_about(line):
                self._begin(family, line)
            elif (found := _NAMESPACE.search(line)) and found[1] in self._namespaces:
                self._keep(found[1], line)

    def end(self) -> dict[str, list[bytes]]:
        """Return the texts by namespace."""
        for namespace, lines in self._lines.items():
            self._kept.setdefault(namespace, []).append(deflated("\n".join(lines)))
        self._lines, self._size = {}, 0
        self._told.clear()
        return self._kept

    def _begin(self, family: str, line: str) -> None:
        if family != self._family:
            self._family, self._about = family, {}
            self._told.clear()
        self._about[line[:6]] = line  # "# HELP" or "# TYPE"

    def _keep(self, namespace: str, line: str) -> None:
        lines = self._lines.setdefault(namespace, [])
        if namespace not in self._told:
            lines += self._about.values()
            self._told.add(namespace)
        lines.append(line)
        self._size += len(line)
        if self._size > _TOGETHER:
            self.end()


def deflated(*texts: str) -> bytes:
    made = zlib.compressobj(1)
    return b"".join([*(made.compress(text.encode()) for text in texts), made.flush()])


def inflated(kept: bytes) -> str:
    return zlib.decompress(kept).decode()


# What one consumer is told ------------------------------------------------------------------------

_FRESH: Final = 2**21
"""Characters of a consumer that are deflated together: of hundreds of metrics each by itself."""


class ConsumerSamples:
    """The samples of offloaded ``pods`` in ``twins``, under their original namespaces.

    And of the volumes of claims there, which name no pod. What was read is deflated by and by.
    """

    def __init__(self, twins: Mapping[str, str], pods: Collection[Key]) -> None:
        self._twins, self._pods = twins, pods
        self._kept: dict[str, list[bytes]] = {}
        self._fresh: dict[str, list[str]] = {}
        self._fresh_size = self.size = 0
        """Characters: of those that are not deflated yet, and of all."""

    def read(self, text: str) -> None:
        """Take what a kubelet says of one of the namespaces."""
        for family in prometheus.families([text], self._is_theirs):
            samples = [self._renamed(sample) for sample in family.samples]
            told = prometheus.text([replace(family, about=[], samples=samples)])
            if told:
                if family.name not in self._kept:
                    self._kept[family.name] = []
                    self._fresh[family.name] = [f"{line}\n" for line in family.about]
                self._fresh.setdefault(family.name, []).append(told)
                self._fresh_size += len(told)
                self.size += len(told)
        if self._fresh_size > _FRESH:
            self._deflate()

    def end(self) -> list[bytes]:
        """Return texts, deflated: all of one metric after all of another."""
        self._deflate()
        return [text for texts in self._kept.values() for text in texts]

    def _deflate(self) -> None:
        for name, texts in self._fresh.items():
            self._kept[name].append(deflated(*texts))
        self._fresh, self._fresh_size = {}, 0

    def _is_theirs(self, sample: Sample) -> bool:
        namespace, pod = sample.labels.get("namespace", ""), sample.labels.get("pod", "")
        return namespace in self._twins and (
            Key(namespace, pod) in self._pods or prometheus.claim_of(sample) is not None
        )

    def _renamed(self, sample: Sample) -> Sample:
        original = self._twins[sample.labels["namespace"]]
        return sample._replace(labels={**sample.labels, "namespace": original})


# Where kubelets are -------------------------------------------------------------------------------


class _NodeMeta(Meta, gc=False, frozen=True):
    labels: dict[str, str] | None = None


class _NodeStatus(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    addresses: list[dict[str, Any]] | None = None
    daemon_endpoints: dict[str, dict[str, Any]] | None = None


class KubeletNode(msgspec.Struct, gc=False, frozen=True):
    """A Node of which only where its kubelet listens is kept."""

    metadata: _NodeMeta
    status: _NodeStatus = _NodeStatus()


def address(node: KubeletNode) -> tuple[str, int] | None:
    """Return where the kubelet of ``node`` listens; None of a virtual node, or one without."""
    if (node.metadata.labels or {}).get(keys.NODE_TYPE) == keys.VIRTUAL_NODE_TYPE:
        return None
    port = (node.status.daemon_endpoints or {}).get("kubeletEndpoint", {}).get("Port")
    addresses = {one.get("type"): one.get("address") for one in node.status.addresses or []}
    host = addresses.get("InternalIP")
    return (str(host), int(port)) if host and port else None


def injected(ca: str) -> Object:
    """Return what to apply so that the API server trusts us; ``ca`` is base64 of PEM."""
    return objects.named(keys.API_SERVICE, keys.METRICS_API, spec={"caBundle": ca})
