"""The ResourceSlice: what a consumer asks of a provider, and what it was granted.

Source: docs/parity.md § 1.8, 2.2, 4.4-4.7, 4.16, 4.17.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from apis import keys, naming, objects, resources
from apis.objects import Key, Object
from apis.resources import Quantity, Resources

DEFAULT_CLASS: Final = "default"
SHARED_CLASS: Final = "shared"
BUILT_IN: Final = (DEFAULT_CLASS, SHARED_CLASS)
"""Anybody who owns another class fills in what its slices are granted."""

AUTHENTICATION: Final = "Authentication"
RESOURCES: Final = "Resources"
ACCEPTED: Final = "Accepted"
DENIED: Final = "Denied"
AUTHENTICATION_DENIED: Final = "ResourceSliceAuthenticationDenied"
"""The reason by which a slice is not certified for what it says itself: request, consumer ID."""
DRAINED: Final = "ResourceSliceDrained"
"""The reason by which a consumer knows that its pods have to leave."""
MOST_RESOURCES: Final = 64
_MOST_OF_ONE: Final = resources.parse_quantity(2**53)
MOST_LABELS: Final = 64
_ALLOWED: Final = frozenset(
    {
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "liqo.io/provider",
    }
)
_OURS: Final = ("kubernetes.io", "k8s.io", "liqo.io")
"""Domains whose labels mean something to this cluster: a provider suggests none but those above."""
_FALSE: Final = frozenset({"false", "False", "0"})


def of_virtual_node(obj: Object) -> str:
    """Return the slice on which a VirtualNode lives; empty for none.

    It names the slice by a label, or only uses its kubeconfig, as the documents' one does.
    """
    if name := objects.labels(obj).get(keys.RESOURCE_SLICE_NAME):
        return str(name)
    secret = str((objects.spec(obj).get("kubeconfigSecretRef") or {}).get("name") or "")
    prefix = naming.kubeconfig_secret(naming.resourceslice_identity(""))
    return secret.removeprefix(prefix) if secret.startswith(prefix) else ""


@dataclass(frozen=True)
class ResourceSlice:
    """One slice, on either side; on the provider ``consumer`` is the label's, not the spec's."""

    key: Key
    consumer: str = ""
    provider: str = ""
    class_: str = ""
    wanted: Resources = field(default_factory=dict)
    granted: Resources = field(default_factory=dict)
    created: str = ""

    @classmethod
    def parse(cls, obj: Object) -> "ResourceSlice":
        """Return what ``obj`` says.

        Raises:
            ValueError: an amount cannot be read, or is below zero, or the slice is known in outline
            only; the message names field and resource.
        """
        if objects.is_outlined(obj):
            raise ValueError("it is larger than is read of a slice: make it smaller")
        spec, status = objects.spec(obj), objects.status(obj)
        return cls(
            key=objects.key_of(obj),
            consumer=spec.get("consumerClusterID") or "",
            provider=spec.get("providerClusterID") or "",
            class_=spec.get("class") or "",
            wanted=_amounts(spec, "spec"),
            granted=_amounts(status, "status"),
            created=obj["metadata"].get("creationTimestamp") or "",
        )

    @property
    def user(self) -> str:
        """Return whom its certificate names, and its Quota limits."""
        return naming.quota_name(self.key.name, self.consumer)


def is_accepted(obj: Object, type_: str) -> bool:
    """Whether the provider said yes to ``Authentication`` or ``Resources``."""
    return answer(obj, type_) == ACCEPTED


def answer(obj: Object, type_: str) -> str:
    """Return what the provider said: Accepted, Denied, or nothing yet."""
    return str(objects.condition(obj, type_).get("status", ""))


def makes_virtual_node(obj: Object) -> bool:
    value = objects.annotations(obj).get(keys.CREATE_VIRTUAL_NODE, "")
    return bool(value) and value.lower() != "false"


def is_cordoned(obj: Object) -> bool:
    """Whether the provider lets no more pods in, for this slice or for its whole tenant."""
    return any(says_yes(obj, name) for name in (keys.CORDON, keys.CORDON_TENANT))


def says_yes(obj: Object, name: str) -> bool:
    """Whether the annotation ``name`` is there and does not say no."""
    return objects.annotations(obj).get(name, "false") not in _FALSE


def is_spoiled(obj: Object) -> bool:
    """Whether what its consumer wrote into ``obj`` makes it none of that consumer, or too large."""
    if objects.is_outlined(obj):
        return True
    found = objects.condition(obj, AUTHENTICATION)
    return found.get("status") == DENIED and found.get("reason") == AUTHENTICATION_DENIED


def is_drained(obj: Object) -> bool:
    return says_yes(obj, keys.DRAIN)


def has_to_leave(obj: Object) -> bool:
    """Whether the provider said so, in the status of the slice."""
    found = objects.condition(obj, RESOURCES)
    return found.get("status") == DENIED and found.get("reason") == DRAINED


def _amounts(part: Object, where: str) -> Resources:
    try:
        amounts = resources.parse_resources(part.get("resources"))
    except ValueError as error:
        raise ValueError(f"{where}.resources cannot be read: {error}") from error
    for name, amount in amounts.items():
        if amount < Quantity():
            raise ValueError(f"{where}.resources.{name} is below zero: correct it")
    return amounts


def granted(obj: Object) -> dict[str, str]:
    """Return what the node shows: what was granted, and of nothing more than was asked for.

    Of what was not asked for the provider decides, as of a slice without amounts: a resource has a
    qualified name, at most 2^53 of it are believed, and at most 64 are named. Source:
    docs/parity.md SEC-B3; Kubernetes, "Extended resources" (amounts are int64).
    """
    asked = resources.readable(objects.spec(obj).get("resources") or {})
    given = resources.readable(objects.status(obj).get("resources") or {})
    bounded = {
        name: min(amount, asked.get(name, _MOST_OF_ONE))
        for name, amount in sorted(given.items())
        if naming.is_qualified_name(name)
    }
    first = sorted(bounded, key=lambda name: (name not in asked, name))[:MOST_RESOURCES]
    return {name: str(bounded[name]) for name in sorted(first)}


def suggested(labels: Mapping[str, str], allowed: Collection[str] | None = None) -> dict[str, str]:
    """Return of what a provider suggests what it may say about a node of ours.

    That is a label without a domain, or one of the three that the documents name; or, where
    ``allowed`` is given, what that lists: keys, and domains with all below them.
    Source: docs/parity.md SEC-B3; H2.
    """
    fine = {
        name: value for name, value in sorted(labels.items()) if _may_suggest(name, value, allowed)
    }
    return dict(list(fine.items())[:MOST_LABELS])


def _may_suggest(name: str, value: str, allowed: Collection[str] | None) -> bool:
    if not naming.is_qualified_name(name) or not naming.is_label_value(value):
        return False
    domain, slash, _ = name.rpartition("/")
    if name in _ALLOWED and allowed is None:
        return True
    if slash and _is_below(domain, _OURS):
        return name in _ALLOWED and name in (allowed or ())
    return not slash if allowed is None else name in allowed or _is_below(domain, allowed)


def _is_below(domain: str, listed: Collection[str]) -> bool:
    return any(domain == one or domain.endswith(f".{one}") for one in listed)
