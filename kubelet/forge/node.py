"""What the metadata and taints of a virtual node are, and the patches that make them so.

Metadata and taints are merged three ways against what was written last (recorded on the Node), so
that what administrators and Kubernetes add stays, and what the VirtualNode drops goes.

Source: docs/parity.md § 5.3; SEC-B3.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from apis import apply, keys, resources
from apis.objects import Key, Object, named
from apis.offloading import VirtualNode

FALLBACK_VERSION: Final = "v1.25.0"

_TAINT: Final = {
    "key": keys.VIRTUAL_NODE_TAINT,
    "value": keys.VIRTUAL_NODE_TAINT_VALUE,
    "effect": keys.VIRTUAL_NODE_TAINT_EFFECT,
}


@dataclass(frozen=True)
class Identity:
    """Which node it is; of this only the version of the cluster changes."""

    name: str
    cluster_id: str
    address: str
    port: int
    version: str = FALLBACK_VERSION
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime: str = "0"
    """Our own version."""


@dataclass(frozen=True)
class Wanted:
    """The part of a Node that is ours."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: Sequence[Object]

    def record(self) -> str:
        """Return what is remembered of it on the Node."""
        return apply.record(
            labels=self.labels, annotations=self.annotations, taints=map(_mark, self.taints)
        )


ROLE: Final = "kubernetes.io/role"
OS: Final = "kubernetes.io/os"
ARCH: Final = "kubernetes.io/arch"
_TOLD_OTHERWISE: Final = frozenset({ROLE, OS, ARCH})
"""What an administrator may know better, such as the architecture of a provider's nodes."""


def wanted(identity: Identity, virtual: VirtualNode) -> Wanted:
    """Return labels, annotations and taints; ours win over those of the VirtualNode."""
    own = {
        keys.HOSTNAME: identity.name,
        ROLE: "agent",
        OS: "linux",
        ARCH: "amd64",
        keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE,
        "type": keys.VIRTUAL_KUBELET,
        keys.REMOTE_CLUSTER_ID: identity.cluster_id,
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "alpha.service-controller.kubernetes.io/exclude-balancer": "true",
        keys.STORAGE_AVAILABLE: "true" if virtual.storage_classes else "false",
    }
    protected = {name: own[name] for name in own if name not in _TOLD_OTHERWISE}
    suggested = {name: virtual.labels[name] for name in virtual.labels if name in virtual.suggested}
    given = {name: virtual.labels[name] for name in virtual.labels if name not in suggested}
    others = [dict(taint) for taint in virtual.taints if _mark(taint) != _mark(_TAINT)]
    return Wanted(
        labels={**own, **suggested, **identity.labels, **given, **protected},
        annotations={**identity.annotations, **virtual.annotations, **_offers(virtual)},
        taints=[_TAINT, *others],
    )


def _offers(virtual: VirtualNode) -> dict[str, str]:
    """Return what one pod can have there, and the class of its claims.

    Capacity is a sum over nodes, and says nothing of the first.
    """
    largest, class_ = resources.line(virtual.largest_pod), virtual.storage_class
    told = {keys.LARGEST_POD: largest, keys.OFFERED_STORAGE_CLASS: class_}
    return {name: value for name, value in told.items() if value}


def fresh(identity: Identity, want: Wanted) -> Object:
    return named(
        keys.NODE,
        Key("", identity.name),
        metadata={
            "labels": dict(want.labels),
            "annotations": {**want.annotations, keys.APPLIED_META: want.record()},
        },
        spec={"taints": list(want.taints)},
    )


def changes(node: Object, want: Wanted) -> Object:
    """Return the merge patch for metadata and taints of ``node``, {} if it is as wanted."""
    before = apply.recorded(node) or {}
    patch: Object = {"metadata": {}}
    annotations = {**want.annotations, keys.APPLIED_META: want.record()}
    for name, new in (("labels", dict(want.labels)), ("annotations", annotations)):
        if part := apply.three_way(node["metadata"].get(name) or {}, before.get(name, []), new):
            patch["metadata"][name] = part
    have = node.get("spec", {}).get("taints") or []
    taints = _taints(have, before.get("taints", []), want.taints)
    if taints != have:
        patch["spec"] = {"taints": taints}
        patch["metadata"]["resourceVersion"] = node["metadata"].get("resourceVersion")
    return patch if patch["metadata"] or "spec" in patch else {}


def _taints(
    have: Sequence[Object], before: Collection[str], want: Sequence[Object]
) -> list[Object]:
    """Return ours in their place, and those of others as they are."""
    ours = {_mark(taint): dict(taint) for taint in want}
    kept = [
        ours.pop(_mark(taint), taint)
        for taint in have
        if _mark(taint) in ours or _mark(taint) not in before
    ]
    return [*kept, *ours.values()]


def _mark(taint: Mapping[str, str]) -> str:
    """Return what makes a taint that taint. Source: Kubernetes, Taint.MatchTaint."""
    return f"{taint.get('key', '')}:{taint.get('effect', '')}"
