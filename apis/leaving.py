"""What may leave home: policies, the protected set, and the metadata that stays. Pure.

Source: docs/parity.md § 6.1-6.5; SEC-B6.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from apis import keys, objects, reflection
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
class Stay:
    """Why an object has no twin."""

    reason: str
    is_told: bool = True
    """Whether its author is told so by an Event."""


SILENT: Final = Stay("")
"""It says nothing about itself."""


PROTECTED_SECRET_TYPES: Final = frozenset(
    {"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"}
)
HELM_TYPE_PREFIX: Final = "helm.sh/release"
BUILT_IN_SERVICE: Final = Key("default", "kubernetes")

NEVER_ANNOTATIONS: Final = frozenset({keys.LAST_APPLIED, *keys.ANNOTATIONS_OF_CONTROLLERS})
"""Written by controllers of this cluster for this cluster, or holding the whole object again."""


@dataclass(frozen=True)
class Filter:
    """Which labels and annotations stay at the consumer, besides ``NEVER_ANNOTATIONS``."""

    labels_not_reflected: frozenset[str] = frozenset()
    annotations_not_reflected: frozenset[str] = frozenset()

    def labels(self, obj: Mapping[str, object]) -> dict[str, str]:
        """Return the labels that may leave."""
        return _without(objects.labels(obj), self.labels_not_reflected)

    def annotations(self, obj: Mapping[str, object]) -> dict[str, str]:
        """Return the annotations that may leave."""
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


def reason_to_stay(kind: Kind, obj: Object, policy: Policy) -> Stay | None:
    """Return why ``obj`` is not reflected, worded for its author; None when it is.

    Raises:
        ContradictionError: it carries both annotations and is of those that honour both.
    """
    if is_protected(kind, obj):
        return Stay(f"{kind} {objects.key_of(obj)} is protected and never reflected", is_told=False)
    if kind == keys.CONFIG_MAP and obj["metadata"]["name"] == keys.ROOT_CA_CONFIG_MAP:
        return _root_ca(obj)
    return _CHOICES[policy](obj) or _means_otherwise(kind, obj)


def _means_otherwise(kind: Kind, obj: Object) -> Stay | None:
    """Return why a policy that may leave would be another one at a provider."""
    if kind == keys.NETWORK_POLICY and _names_namespaces(objects.spec(obj)):
        return Stay(
            "its namespaceSelector means namespaces of this cluster, and would allow others there; "
            "write a NetworkPolicy for the provider in the remote namespace"
        )
    if kind == keys.POD_DISRUPTION_BUDGET and _counts_by_scale(objects.spec(obj)):
        return Stay(
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
    """Return the Service of ``endpoint_slice``, None for one without."""
    name = objects.labels(endpoint_slice).get(keys.SERVICE_NAME)
    return Key(objects.key_of(endpoint_slice).namespace, name) if name else None


def slice_stays(
    endpoint_slice: Object, service: Object | None, policy: Policy, *, is_needed: bool
) -> Stay | None:
    """Return why an EndpointSlice has no twin: as its ``service``, unless it says itself.

    ``is_needed`` is whether any of its endpoints is not on the provider. Source: docs/parity.md §
    6.6.

    Raises:
        ContradictionError: it carries both annotations.
    """
    labels = objects.labels(endpoint_slice)
    if labels.get(keys.ENDPOINT_SLICE_MANAGED_BY) == keys.ENDPOINT_SLICE_MANAGER:
        return Stay("it was reflected here", is_told=False)
    if service_of(endpoint_slice) == BUILT_IN_SERVICE:
        return Stay("the API server of each cluster is its own", is_told=False)
    if (said := own_word(endpoint_slice)) is not SILENT:
        return said
    stay = reason_to_stay(keys.SERVICE, service or endpoint_slice, policy)
    if stay is not None:
        return Stay(stay.reason, is_told=False)  # the Service is told
    return None if is_needed else Stay("all its endpoints are on the provider", is_told=False)


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


def own_word(obj: Object) -> Stay | None:
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


def _root_ca(obj: Object) -> Stay | None:
    """Pods mount it without being asked, so only an explicit skip keeps it here."""
    said = own_word(obj)
    return None if said is SILENT else said


def _unless_denied(obj: Object) -> Stay | None:
    if _is_set(obj, keys.SKIP_REFLECTION):
        return Stay(f"reflection disabled by annotation {keys.SKIP_REFLECTION}")
    return None


def _if_allowed(obj: Object) -> Stay | None:
    if _is_set(obj, keys.ALLOW_REFLECTION):
        return None
    return Stay(f"reflection needs annotation {keys.ALLOW_REFLECTION} (policy AllowList)")


def _always(_obj: Object) -> Stay | None:
    return None


_Choice: TypeAlias = Callable[[Object], Stay | None]
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
