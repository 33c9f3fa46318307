"""What a provider takes in twins beyond what it takes of everybody, as its ProviderPolicy says.

Policies of the provider read it in annotations of twins, reflectors in the status of NamespaceMaps.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from apis import keys
from apis.objects import Object
from apis.policies import Offered, ProviderPolicy

NODE_PORT: Final = "NodePort"
LOAD_BALANCER: Final = "LoadBalancer"
OUTWARD: Final = frozenset({NODE_PORT, LOAD_BALANCER})
"""Types of Services that take something of the provider's nodes, or of its cloud."""


_TOLERATION: Final = ("key", "operator", "value", "effect")


@dataclass(frozen=True)
class Offers:
    """What a consumer's reflectors have to know of it. What is not offered is refused."""

    service_types: frozenset[str] = frozenset()
    """Of ``OUTWARD``."""
    load_balancer_classes: frozenset[str] | None = None
    """None: any, and the cluster's own choice."""
    annotation_domains: frozenset[str] = frozenset()
    """Of annotations of Services and Ingresses, besides what passes anyway."""
    pod_annotation_domains: frozenset[str] = frozenset()
    """Of annotations and labels of pods that programs of the provider obey."""
    pod_tolerations: tuple[Object, ...] = ()
    """Of pods, besides those that all may have."""

    @classmethod
    def parse(cls, said: Object | None) -> "Offers | None":
        """Return what ``status.offered`` of a NamespaceMap says; None if it is absent.

        Then the provider is Liqo, or older than this, and what it refuses is its own matter.
        """
        if said is None:
            return None
        classes = said.get("loadBalancerClasses")
        return cls(
            frozenset(said.get("serviceTypes") or ()),
            None if classes is None else frozenset(classes),
            frozenset(said.get("annotationDomains") or ()),
            frozenset(said.get("podAnnotationDomains") or ()),
            tuple(said.get("podTolerations") or ()),
        )


def shown(policy: ProviderPolicy) -> Object:
    """Return what the status of a NamespaceMap says of ``policy``, as ``Offers.parse`` reads it."""
    told: dict[str, Iterable[str] | None] = {
        "serviceTypes": policy.offered_service_types,
        "loadBalancerClasses": _names(policy.load_balancer_classes),
        "annotationDomains": policy.annotation_domains or None,
        "podAnnotationDomains": policy.pod_annotation_domains or None,
    }
    listed = {name: sorted(values) for name, values in told.items() if values is not None}
    tolerations = [
        {name: one[name] for name in _TOLERATION if one.get(name)} for one in policy.pod_tolerations
    ]
    return {**listed, "podTolerations": tolerations} if tolerations else listed


def annotations(policy: ProviderPolicy) -> Mapping[str, str | None]:
    """Return the annotations of a twin; None where the policy says nothing of it."""
    listed = {
        keys.OFFERED_STORAGE_CLASSES: _names(policy.storage_classes),
        keys.OFFERED_INGRESS_CLASSES: _names(policy.ingress_classes),
        keys.OFFERED_LOAD_BALANCER_CLASSES: _names(policy.load_balancer_classes),
        keys.OFFERED_SERVICE_TYPES: sorted(policy.offered_service_types) or None,
        keys.OFFERED_ANNOTATION_DOMAINS: sorted(policy.annotation_domains) or None,
    }
    return {
        **{name: None if values is None else ",".join(values) for name, values in listed.items()},
        keys.OFFERED_INGRESS_HOSTS: policy.ingress_hosts or None,
        keys.OFFERED_STATIC_VOLUMES: "true" if policy.static_volumes else None,
    }


def _names(offered: Offered) -> list[str] | None:
    return None if offered is None else [one.name for one in offered]
