"""What becomes of each field of the reflected kinds: one row a field.

A row is wanted for whatever the API version has: a test compares the table with the types of
Kubernetes 1.31 and 1.37, and with what a real API server publishes.
Source: docs/parity.md § 6.3; Kubernetes API reference.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from apis import keys
from apis.objects import Kind, Object


class Fate(Enum):
    """What is done with a field."""

    SENT = "sent"
    MADE = "made for the other cluster"
    HERE = "not sent"
    TOLD = "not sent, and told by `ReflectedInPart` where it is set"


class Field(NamedTuple):
    """One field: what is done, and why it is not sent as it is."""

    fate: Fate
    why: str = ""


_SENT: Final = Field(Fate.SENT)
OF_ALL: Final[Mapping[str, Field]] = {
    "apiVersion": Field(Fate.MADE, "that of the reflected kind"),
    "kind": Field(Fate.MADE, "the reflected kind"),
    "metadata": Field(Fate.MADE, "labels and annotations, without those of this cluster"),
}
_STATUS: Final = Field(Fate.HERE, "the other cluster has a status of its own")
_ALLOCATED: Final = Field(Fate.HERE, "each cluster allocates its own")


def _sent(*names: str) -> dict[str, Field]:
    return dict.fromkeys(names, _SENT)


def _told(why: str) -> Field:
    return Field(Fate.TOLD, why)


FIELDS: Final[Mapping[Kind, Mapping[str, Field]]] = {
    keys.CONFIG_MAP: {**OF_ALL, **_sent("binaryData", "data", "immutable")},
    keys.SECRET: {
        **OF_ALL,
        **_sent("data", "immutable", "type"),
        "stringData": Field(Fate.HERE, "an API server moves it into data"),
    },
    keys.SERVICE: {
        **OF_ALL,
        "spec": Field(Fate.MADE, "by the rows below"),
        "status": _STATUS,
        **_sent(
            "spec.allocateLoadBalancerNodePorts",
            "spec.externalName",
            "spec.externalTrafficPolicy",
            "spec.internalTrafficPolicy",
            "spec.ipFamilyPolicy",
            "spec.loadBalancerSourceRanges",
            "spec.publishNotReadyAddresses",
            "spec.selector",
            "spec.sessionAffinity",
            "spec.sessionAffinityConfig",
            "spec.type",
        ),
        "spec.clusterIP": Field(Fate.MADE, "`None` stays; else each cluster allocates its own"),
        "spec.clusterIPs": _ALLOCATED,
        "spec.externalIPs": _told("addresses outside lead to this cluster only"),
        "spec.healthCheckNodePort": _ALLOCATED,
        "spec.ipFamilies": Field(Fate.HERE, "those of the other cluster's networks"),
        "spec.loadBalancerClass": Field(Fate.MADE, "the one that the VirtualNode offers"),
        "spec.loadBalancerIP": _told("addresses outside lead to this cluster only"),
        "spec.ports": Field(Fate.MADE, "by the rows below"),
        "spec.trafficDistribution": _told("zones and nodes of this cluster are not those there"),
        **_sent(
            "spec.ports[].appProtocol",
            "spec.ports[].name",
            "spec.ports[].port",
            "spec.ports[].protocol",
            "spec.ports[].targetPort",
        ),
        "spec.ports[].nodePort": Field(Fate.MADE, "by `liqo.io/force-remote-node-port`"),
    },
    keys.ENDPOINT_SLICE: {
        **OF_ALL,
        **_sent("addressType", "ports"),
        "endpoints": Field(Fate.MADE, "those that are not at the provider, by the rows below"),
        **_sent("endpoints[].hints", "endpoints[].hostname", "endpoints[].zone"),
        "endpoints[].addresses": Field(Fate.MADE, "as the provider reaches them"),
        "endpoints[].conditions": Field(Fate.MADE, "by the rows below"),
        "endpoints[].deprecatedTopology": Field(Fate.HERE, "replaced by zone and nodeName"),
        "endpoints[].nodeName": Field(Fate.MADE, "the consumer's cluster ID"),
        "endpoints[].targetRef": Field(Fate.MADE, "of a kind with `Remote` before it"),
        "endpoints[].conditions.ready": _SENT,
        "endpoints[].conditions.serving": Field(Fate.HERE, "pods that end get no new requests"),
        "endpoints[].conditions.terminating": Field(Fate.HERE, "likewise"),
    },
    keys.INGRESS: {
        **OF_ALL,
        "spec": Field(Fate.MADE, "by the rows below"),
        "status": _STATUS,
        **_sent("spec.defaultBackend", "spec.rules", "spec.tls"),
        "spec.ingressClassName": Field(Fate.MADE, "the one that the VirtualNode offers"),
    },
    keys.PERSISTENT_VOLUME_CLAIM: {
        **OF_ALL,
        "spec": Field(Fate.MADE, "by the rows below"),
        "status": _STATUS,
        "spec.accessModes": Field(Fate.MADE, "an annotation may name others"),
        **_sent("spec.resources", "spec.volumeMode"),
        "spec.dataSource": _told("what it copies is in this cluster"),
        "spec.dataSourceRef": _told("what it copies is in this cluster"),
        "spec.selector": _told("volumes of the provider have labels of their own"),
        "spec.storageClassName": Field(Fate.MADE, "the one that VirtualNode or annotation names"),
        "spec.volumeAttributesClassName": _told("classes of this cluster are not those there"),
        "spec.volumeName": Field(Fate.HERE, "the volume at the consumer is a placeholder"),
    },
    keys.EVENT: {
        **OF_ALL,
        **_sent("action", "count", "message", "reason", "type"),
        "eventTime": Field(Fate.MADE, "as firstTimestamp"),
        "firstTimestamp": Field(Fate.MADE, "to the second"),
        "involvedObject": Field(Fate.MADE, "the object here"),
        "lastTimestamp": Field(Fate.MADE, "to the second"),
        "related": Field(Fate.HERE, "it is an object of the provider"),
        "reportingComponent": Field(Fate.MADE, "as source"),
        "reportingInstance": Field(Fate.HERE, "it is a program of the provider"),
        "series": Field(Fate.MADE, "as count and lastTimestamp"),
        "source": Field(Fate.MADE, "its component, and the provider as host"),
    },
}
"""Every field of these kinds in Kubernetes 1.31 to 1.37, by its path; ``[]`` stands for each."""


def sent(kind: Kind, within: str = "") -> tuple[str, ...]:
    """Return the names of the fields of ``kind`` right ``within`` a path that go as they are."""
    return tuple(
        name
        for path, field in FIELDS[kind].items()
        if field.fate is Fate.SENT and path.startswith(within)
        if "." not in (name := path.removeprefix(within))
    )


def unsent(kind: Kind, original: Object, destination: str) -> str:
    """Return which fields that ``original`` sets are not sent, and why; "" for none."""
    return "; ".join(
        f"{path} does not go to {destination}: {field.why}"
        for path, field in FIELDS.get(kind, {}).items()
        if field.fate is Fate.TOLD and _at(original, path)
    )


def _at(found: Any, path: str) -> Any:
    for name in path.split("."):
        found = (found or {}).get(name)
    return found
