"""What of a namespace is reflected: policies, what pods refer to, and what Events tell of it. Pure.

Source: docs/parity.md § 6.1-6.5; SEC-B6; Kubernetes API reference, "PodSpec".
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from apis import keys, objects, ownership, reflection
from apis.objects import Key, Kind, Object
from apis.offloading import ReflectionPolicy as Policy
from apis.reflection import ReflectedKind


class ContradictionError(Exception):
    """An object asks to be reflected and to be skipped; the message is for its author."""


class NotYetError(Exception):
    """The twin cannot be made before something else is there; the message is for its author."""


class UnseenError(NotYetError):
    """Nothing can be said before something is seen that may never be: nothing is done or told."""


@dataclass(frozen=True)
class NotReflected:
    """Why an object has no twin."""

    reason: str
    is_told: bool = True
    """Whether its author is told so by an Event."""


SILENT: Final = NotReflected("")
"""It says nothing about itself."""


PROTECTED_SECRET_TYPES: Final = frozenset(
    {"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"}
)
HELM_TYPE_PREFIX: Final = "helm.sh/release"
BUILT_IN_SERVICE: Final = Key("default", "kubernetes")

NEVER_ANNOTATIONS: Final = frozenset({keys.LAST_APPLIED, *keys.ANNOTATIONS_OF_CONTROLLERS})
"""Written by controllers of this cluster for this cluster, or holding the whole object again."""


@dataclass(frozen=True)
class MetadataFilter:
    """Which labels and annotations stay at the consumer, besides ``NEVER_ANNOTATIONS``."""

    labels_not_reflected: frozenset[str] = frozenset()
    annotations_not_reflected: frozenset[str] = frozenset()

    def labels(self, obj: Mapping[str, object]) -> dict[str, str]:
        return _without(objects.labels(obj), self.labels_not_reflected)

    def annotations(self, obj: Mapping[str, object]) -> dict[str, str]:
        return _without(objects.annotations(obj), self.annotations_not_reflected, NEVER_ANNOTATIONS)


def is_protected(kind: Kind, obj: Object) -> bool:
    """Whether ``obj`` never leaves, whatever policies and annotations say."""
    if kind == keys.SECRET:
        return _is_protected_type(str(obj.get("type") or "")) or is_pod_token(obj)
    return kind == keys.SERVICE and objects.key_of(obj) == BUILT_IN_SERVICE


def is_pod_token(obj: Object) -> bool:
    """Whether it is a Secret with tokens requested for one offloaded pod.

    The kubelet keeps those; here they came from a consumer of this cluster.
    """
    return keys.SERVICE_ACCOUNT_NAME in objects.labels(
        obj
    ) and keys.FOR_POD_NAME in objects.annotations(obj)


def reason_to_stay(kind: Kind, obj: Object, policy: Policy) -> NotReflected | None:
    """Return why ``obj`` is not reflected, worded for its author; None when it is.

    Raises:
        ContradictionError: it carries both annotations and is of those that honour both.
    """
    if is_protected(kind, obj):
        return NotReflected(
            f"{kind} {objects.key_of(obj)} is protected and never reflected", is_told=False
        )
    if kind == keys.CONFIG_MAP and obj["metadata"]["name"] == keys.ROOT_CA_CONFIG_MAP:
        return _root_ca(obj)
    return _CHOICES[policy](obj) or _means_otherwise(kind, obj)


def _means_otherwise(kind: Kind, obj: Object) -> NotReflected | None:
    """Return why a policy that may leave would be another one at a provider."""
    if kind == keys.NETWORK_POLICY and _names_namespaces(objects.spec(obj)):
        return NotReflected(
            "its namespaceSelector means namespaces of this cluster, and would allow others there; "
            "write a NetworkPolicy for the provider in the remote namespace"
        )
    if kind == keys.POD_DISRUPTION_BUDGET and _counts_by_scale(objects.spec(obj)):
        return NotReflected(
            "maxUnavailable and percentages go by the scale of what owns the pods, which a "
            "provider does not have, so that it would evict none; use a number as minAvailable"
        )
    return None


def _names_namespaces(spec: Object) -> bool:
    rules = [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]
    peers = (peer for rule in rules for name in ("from", "to") for peer in rule.get(name) or ())
    return any(peer.get("namespaceSelector") is not None for peer in peers)


def _counts_by_scale(spec: Object) -> bool:
    """Source: Kubernetes, "Specifying a Disruption Budget", "Arbitrary workloads and selectors"."""
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


def hold_here(policies: Sequence[tuple[str, str]]) -> str:
    """Return that ``policies``, kinds and names, hold here only; no more than a few are named."""
    shown = ", ".join(f"{kind} {name}" for kind, name in policies[:_SHOWN])
    more = f" and {len(policies) - _SHOWN} more" if policies[_SHOWN:] else ""
    return f"not reflected, so that they hold in this cluster only: {shown}{more}"


_SHOWN: Final = 3
UNMENTIONED: Final = "no pod on the provider mentions it (policy Referenced)"


def service_of(endpoint_slice: Object) -> Key | None:
    name = objects.labels(endpoint_slice).get(keys.SERVICE_NAME)
    return Key(objects.key_of(endpoint_slice).namespace, name) if name else None


def slice_stays(
    endpoint_slice: Object, service: Object | None, policy: Policy, *, is_needed: bool
) -> NotReflected | None:
    """Return why an EndpointSlice has no twin: as its ``service``, unless it says itself.

    ``is_needed`` is whether any of its endpoints is not on the provider. Source: docs/parity.md §
    6.6.

    Raises:
        ContradictionError: it carries both annotations.
    """
    labels = objects.labels(endpoint_slice)
    if labels.get(keys.ENDPOINT_SLICE_MANAGED_BY) == keys.ENDPOINT_SLICE_MANAGER:
        return NotReflected("it was reflected here", is_told=False)
    if service_of(endpoint_slice) == BUILT_IN_SERVICE:
        return NotReflected("the API server of each cluster is its own", is_told=False)
    if (said := own_word(endpoint_slice)) is not SILENT:
        return said
    stay = reason_to_stay(keys.SERVICE, service or endpoint_slice, policy)
    if stay is not None:
        return NotReflected(stay.reason, is_told=False)  # the Service is told
    return (
        None if is_needed else NotReflected("all its endpoints are on the provider", is_told=False)
    )


def asked_policy(offloading: Mapping[str, object]) -> Policy | None:
    """Return the policy that a NamespaceOffloading asks for, None where it asks for none.

    Admission refuses unknown policies. If one came past it, as little leaves as possible.
    """
    said = objects.annotations(offloading).get(keys.REFLECTION_POLICY)
    if said is None:
        return None
    return next((one for one in reflection.ALL if one.value == said), Policy.ALLOW_LIST)


def in_namespace(row: ReflectedKind, policy: Policy, asked: Policy | None) -> Policy:
    """Return the policy for a kind, ``policy`` being that of the virtual node.

    What the namespace asks for goes before it, for the kinds that pods mention. Source:
    docs/parity.md § 0.4, "the narrower scope wins".
    """
    return asked if asked and Policy.REFERENCED in row.policies else policy


def own_word(obj: Object) -> NotReflected | None:
    """Return what the object itself says, for those that honour both annotations: else SILENT.

    Raises:
        ContradictionError: it carries both.
    """
    skips, allows = _is_set(obj, keys.SKIP_REFLECTION), _is_set(obj, keys.ALLOW_REFLECTION)
    if skips and allows:
        raise ContradictionError(
            f"annotations {keys.SKIP_REFLECTION} and {keys.ALLOW_REFLECTION} contradict: remove one"
        )
    if allows:
        return None
    return _unless_denied(obj) if skips else SILENT


def _root_ca(obj: Object) -> NotReflected | None:
    """Pods mount it without being asked, so only an explicit skip keeps it here."""
    said = own_word(obj)
    return None if said is SILENT else said


def _unless_denied(obj: Object) -> NotReflected | None:
    if _is_set(obj, keys.SKIP_REFLECTION):
        return NotReflected(f"reflection disabled by annotation {keys.SKIP_REFLECTION}")
    return None


def _if_allowed(obj: Object) -> NotReflected | None:
    if _is_set(obj, keys.ALLOW_REFLECTION):
        return None
    return NotReflected(f"reflection needs annotation {keys.ALLOW_REFLECTION} (policy AllowList)")


def _always(_obj: Object) -> NotReflected | None:
    return None


_Choice: TypeAlias = Callable[[Object], NotReflected | None]
_CHOICES: Final[dict[Policy, _Choice]] = {
    Policy.DENY_LIST: _unless_denied,
    Policy.ALLOW_LIST: _if_allowed,
    Policy.REFERENCED: _unless_denied,  # and who mentions it is for the two kinds to see
    Policy.RELEVANT: _unless_denied,  # and what is relevant is for Events to say
    Policy.CUSTOM: _always,  # these kinds have no rules of their own but the protected set
}


def _is_set(obj: Object, annotation: str) -> bool:
    value = objects.annotations(obj).get(annotation)
    return value is not None and value.lower() != "false"


def _is_protected_type(type_: str) -> bool:
    return type_ in PROTECTED_SECRET_TYPES or type_.startswith(HELM_TYPE_PREFIX)


def _without(entries: Mapping[str, str], *unwanted: Iterable[str]) -> dict[str, str]:
    dropped = frozenset().union(*unwanted)
    return {name: value for name, value in entries.items() if name not in dropped}


# Which ConfigMaps, Secrets and Services a pod reads -----------------------------------------------

Mention: TypeAlias = tuple[Kind, str]

CONTAINERS: Final = "containers", "initContainers", "ephemeralContainers"
PATHS: Final[dict[Kind, tuple[str, ...]]] = {
    keys.SECRET: (
        "imagePullSecrets[].name",
        *(f"{each}[].env[].valueFrom.secretKeyRef.name" for each in CONTAINERS),
        *(f"{each}[].envFrom[].secretRef.name" for each in CONTAINERS),
        "volumes[].secret.secretName",
        "volumes[].projected.sources[].secret.name",
        "volumes[].csi.nodePublishSecretRef.name",
        "volumes[].azureFile.secretName",
        *(
            f"volumes[].{driver}.secretRef.name"
            for driver in (
                "cephfs",
                "cinder",
                "flexVolume",
                "iscsi",
                "rbd",
                "scaleIO",
                "storageos",
            )
        ),
    ),
    keys.CONFIG_MAP: (
        *(f"{each}[].env[].valueFrom.configMapKeyRef.name" for each in CONTAINERS),
        *(f"{each}[].envFrom[].configMapRef.name" for each in CONTAINERS),
        "volumes[].configMap.name",
        "volumes[].projected.sources[].configMap.name",
    ),
}
"""Where a PodSpec names one of its namespace; ``[]`` stands for each of a list.

Source: Kubernetes, ``VisitPodSecretNames`` and ``VisitPodConfigmapNames`` of ``pkg/api/v1/pod``.
"""


def mentioned(spec: Object) -> frozenset[Mention]:
    """Return the kind and name of each that a pod with ``spec`` mentions, needed or optional."""
    return frozenset(_found(spec, _TREE))


_SERVICE: Final = re.compile(r"\b([A-Z][A-Z0-9_]*)_SERVICE_(?:HOST|PORT)")
"""Source: Kubernetes, "Service", environment variables."""


def mentioned_services(spec: Object) -> frozenset[Mention]:
    """Return the Services whose environment variables ``spec`` names, in a command for example."""
    if spec.get("enableServiceLinks") is False:
        return frozenset()
    said = json.dumps([spec.get(part) for part in CONTAINERS])
    names = {found.lower().replace("_", "-") for found in _SERVICE.findall(said)}
    return frozenset((keys.SERVICE, name) for name in names - {"kubernetes"})


def _tree() -> Object:
    """Return ``PATHS`` as one tree: what many paths share is looked at once."""
    root: Object = {}
    for kind, paths in PATHS.items():
        for path in paths:
            *steps, last = path.split(".")
            branch = root
            for step in steps:
                branch = branch.setdefault(step, {})
            branch[last] = kind
    return root


_TREE: Final = _tree()


def _found(value: Object, tree: Object) -> Iterator[Mention]:
    for step, branch in tree.items():
        child: Any = value.get(step.removesuffix("[]"))
        if not child:
            continue
        if isinstance(branch, Kind):
            yield branch, str(child)
            continue
        for each in child if step.endswith("[]") else (child,):
            yield from _found(each, branch)


# What reflectors tell authors of their objects ----------------------------------------------------

SUCCESSFUL: Final = "SuccessfulReflection"


class ReflectionSubject(NamedTuple):
    """Of what a reflector tells: an object, or by its name in ``apis.reflection`` all of a kind."""

    cluster: str
    kind: str
    name: str = ""
    uid: str = ""


class ReflectionEvent(NamedTuple):
    """What was said, and when; of what was said in one second, success is the last."""

    at: str
    reason: str
    message: str


def reflector_component(name: str) -> str:
    """Return as who the reflector tells of the kind with that name in ``apis.reflection``."""
    return f"{_PREFIX}{name}{_SUFFIX}"


def last_events(events: Iterable[Object]) -> dict[ReflectionSubject, ReflectionEvent]:
    """Return what ``events`` of one namespace say last of each object.

    The reflector of each provider says what of its own twins, and nothing of the others'.
    """
    told: dict[ReflectionSubject, ReflectionEvent] = {}
    for event in events:
        if about := _about(event):
            texts = (str(event.get(name) or "") for name in ("lastTimestamp", "reason", "message"))
            said = ReflectionEvent(*texts)
            told[about] = max(told.get(about, said), said)
    return told


_PREFIX: Final = "liqo-"
_SUFFIX: Final = "-reflection"


def _about(event: Object) -> ReflectionSubject | None:
    """Return of what a reflector tells; None for the Events of others."""
    who = str(event.get("reportingComponent", ""))
    cluster = ownership.cluster_named_by(event)
    if not cluster or not who.endswith(_SUFFIX):
        return None
    about = event.get("involvedObject") or {}
    if about.get("kind") == keys.NAMESPACE_OFFLOADING.kind:
        return ReflectionSubject(cluster, who.removeprefix(_PREFIX).removesuffix(_SUFFIX))
    return ReflectionSubject(
        cluster, *(str(about.get(name) or "") for name in ("kind", "name", "uid"))
    )
