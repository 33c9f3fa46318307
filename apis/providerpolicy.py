"""What a provider grants to consumers and takes of them, as its ProviderPolicies say. Pure.

Of reflected objects it is what goes beyond what it takes of each consumer: its policies read it in
annotations of remote namespaces, reflectors in the status of NamespaceMaps. Of pods it is what is
allowed beyond the defaults. Source: docs/parity.md § 2.4, 3.8; SEC-A1 to SEC-A3.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from apis import keys, naming, objects, resources, slices
from apis.objects import Key, Object
from apis.offloading import MappingStrategy, OfferedClass
from apis.resources import Resources

DEFAULT: Final = "default"
"""The policy for all tenants that have none of their own."""
PERCENTAGE: Final = 90
AT_LEAST_ONE: Final = "AtLeastOne"
DOWN: Final = "Down"
PRIVILEGED: Final = "privileged"
BASELINE: Final = "baseline"
LEVELS: Final = (PRIVILEGED, BASELINE, "restricted")
"""From what allows everything to what allows least."""

REPEATED: Final = (
    "storageClasses", "ingressClasses", "loadBalancerClasses", "serviceTypes", "ingressHosts",
    "annotationDomains",
)  # fmt: skip
"""Fields that annotations of twins repeat, for the policies that judge consumers there."""
MAX_REPEATED: Final = 16 * 1024
MAX_REMOTE_NAMESPACES: Final = 1000
MAX_OBJECTS: Final[Mapping[str, int]] = {
    "resourceslices": 64,
    "namespacemaps": 16,
    "renews": 128,
    "shadowendpointslices": 1000,
    "shadowpods": 10000,
}
"""How many objects a consumer may have in its tenant namespace, the last two in each twin.

A consumer of ours has one NamespaceMap and one Renew, one that runs Liqo a Renew for each slice.
"""

_DEFAULT: Final = frozenset({"", slices.DEFAULT_CLASS})

Offered: TypeAlias = tuple[OfferedClass, ...] | None


@dataclass(frozen=True)
class Sharing:
    """How much of what is free the slices of class ``shared`` get."""

    percentage: int = PERCENTAGE
    by_resource: Mapping[str, int] = field(default_factory=dict)
    rounding: str = AT_LEAST_ONE

    def percent_of(self, resource: str) -> int:
        return self.by_resource.get(resource, self.percentage)

    def told(self) -> str:
        """Return it in words: ``90% of what is free (nvidia.com/gpu 100%)``."""
        others = [f"{name} {percent}%" for name, percent in sorted(self.by_resource.items())]
        return f"{self.percentage}% of what is free" + (f" ({', '.join(others)})" if others else "")


@dataclass(frozen=True)
class ProviderPolicy:
    """What one ProviderPolicy says; without any, what is written here holds."""

    name: str = DEFAULT
    sharing: Sharing = Sharing()
    limits: Resources = field(default_factory=dict)
    """The most that is granted to all its tenants together; what is not named has no limit."""
    remote_namespaces: str = ""
    """A regular expression for whole names of twins; empty for any."""
    max_remote_namespaces: int = MAX_REMOTE_NAMESPACES
    """How many twins each tenant may have. Source: docs/parity.md SEC-A5."""
    max_objects: Mapping[str, int] = field(default_factory=lambda: MAX_OBJECTS)
    """By plural: see ``MAX_OBJECTS``."""
    pod_security_level: str = BASELINE
    limits_enforcement: str | None = None
    """None: as the flags of the controllers say. So are the classes and labels below."""
    slice_classes: tuple[str, ...] | None = None
    """Which a tenant may name; None: any."""
    default_slice_class: str = slices.DEFAULT_CLASS
    """What a slice of class ``default``, or without a class, belongs to."""
    mapping_strategies: frozenset[MappingStrategy] | None = None
    storage_classes: Offered = None
    ingress_classes: Offered = None
    load_balancer_classes: Offered = None
    service_types: frozenset[str] | None = None
    """Which types a Service may have besides those that stay in the cluster; see below for None."""
    ingress_hosts: str = ""
    """A regular expression for whole hosts of Ingresses; empty for any."""
    static_volumes: bool = False
    """Whether a claim may take a volume that has no class."""
    annotation_domains: frozenset[str] = frozenset()
    """Of annotations that reflected objects keep; see ``apis.allowlist``."""
    pod_annotation_domains: frozenset[str] = frozenset()
    """Of annotations and labels that pods keep; see ``apis.allowlist``."""
    pod_tolerations: tuple[Object, ...] = ()
    """Tolerations that pods keep besides those that all may have; see ``apis.podfields``."""
    node_labels: Mapping[str, str] | None = None

    @classmethod
    def parse(cls, obj: Object) -> "ProviderPolicy":
        """Return what ``obj`` says.

        Raises:
            ValueError: the message names policy, field and value.
        """
        try:
            return cls(**_fields(objects.spec(obj)), name=obj["metadata"]["name"])
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            name = obj["metadata"]["name"]
            raise ValueError(
                f"providerpolicy {name} cannot be read: {error}: correct it"
            ) from error

    def class_of(self, named: str) -> str:
        """Return the class of a slice whose spec says ``named``."""
        return self.default_slice_class if named in _DEFAULT else named

    def allows_class(self, named: str) -> bool:
        """Whether a slice may say ``named`` in its spec: by that name, or by what it means."""
        if self.slice_classes is None:
            return True
        means = self.class_of(named)
        return not {means, named or slices.DEFAULT_CLASS}.isdisjoint(self.slice_classes)

    @property
    def offered_service_types(self) -> frozenset[str]:
        """Who offers classes of load balancers offers load balancers, unless the policy says."""
        if self.service_types is not None:
            return self.service_types
        return frozenset(["LoadBalancer"] if self.load_balancer_classes else [])

    def allows_name(self, twin: str) -> bool:
        return not self.remote_namespaces or bool(re.fullmatch(self.remote_namespaces, twin))

    def allows_strategy(self, local: str, twin: str, consumer: str) -> bool:
        """Whether the mapping of ``local`` to ``twin`` comes of a strategy that is accepted."""
        if self.mapping_strategies is None:
            return True
        return strategy_of(local, twin, consumer) in self.mapping_strategies


def strategy_of(local: str, twin: str, consumer: str) -> MappingStrategy:
    """Return by which strategy the namespace ``local`` of ``consumer`` is called ``twin``."""
    if twin == local:
        return MappingStrategy.ENFORCE_SAME_NAME
    if twin == naming.default_remote_namespace(local, consumer):
        return MappingStrategy.DEFAULT_NAME
    return MappingStrategy.SELECTED_NAME


def policy_of(policies: Iterable[Object], cluster_id: str) -> ProviderPolicy:
    """Return the policy for the tenant ``cluster_id``: its own, else ``default``, else none.

    Raises:
        ValueError: that one cannot be read.
    """
    named = {obj["metadata"]["name"]: obj for obj in policies}
    found = named.get(cluster_id) or named.get(DEFAULT)
    return ProviderPolicy.parse(found) if found else ProviderPolicy()


def is_stricter(level: str, than: str) -> bool:
    """Whether one Pod Security level allows less than the other; any allows less than none."""
    known = {name: rank for rank, name in enumerate(LEVELS)}
    return known.get(level, -1) > known.get(than, -1)


def shown_classes(offered: Offered, name: str) -> list[Object]:
    """Return classes as in a status, ``name`` being ``storageClassName`` or its like."""
    return [
        {name: one.name, "default": True} if one.is_default else {name: one.name}
        for one in offered or ()
    ]


def _fields(spec: Object) -> dict[str, Any]:
    sharing, classes = spec.get("sharing") or {}, spec.get("resourceSliceClasses") or {}
    strategies = spec.get("namespaceMappingStrategies")
    twins, of_pods = spec.get("remoteNamespaces") or {}, spec.get("allowedPodFields") or {}
    pattern, most = twins.get("pattern") or "", twins.get("max")
    _check_pattern(pattern)
    _check_size(spec)
    return {
        "sharing": _sharing(sharing),
        "limits": resources.parse_resources(spec.get("limits")),
        "remote_namespaces": pattern,
        "max_remote_namespaces": MAX_REMOTE_NAMESPACES if most is None else int(most),
        "max_objects": {**MAX_OBJECTS, **_most(spec.get("maxObjects") or {})},
        "pod_security_level": spec.get("podSecurityLevel") or BASELINE,
        "limits_enforcement": spec.get("limitsEnforcement"),
        "slice_classes": _tuple(classes.get("allowed")),
        "default_slice_class": classes.get("default") or slices.DEFAULT_CLASS,
        "mapping_strategies": (
            None if strategies is None else frozenset(map(MappingStrategy, strategies))
        ),
        "storage_classes": _classes(spec.get("storageClasses"), "storageClassName"),
        "ingress_classes": _classes(spec.get("ingressClasses"), "ingressClassName"),
        "load_balancer_classes": _classes(spec.get("loadBalancerClasses"), "loadBalancerClassName"),
        "service_types": _set(spec.get("serviceTypes")),
        "ingress_hosts": (spec.get("ingressHosts") or {}).get("pattern") or "",
        "static_volumes": bool(spec.get("staticVolumes")),
        "annotation_domains": frozenset(spec.get("annotationDomains") or ()),
        "pod_annotation_domains": frozenset(of_pods.get("annotationDomains") or ()),
        "pod_tolerations": tuple(of_pods.get("tolerations") or ()),
        "node_labels": spec.get("nodeLabels"),
    }


def _most(part: Object) -> dict[str, int]:
    """Return by plural what ``part`` says by plural in camel case: ``resourceSlices``."""
    return {name.lower(): int(most) for name, most in part.items()}


def _sharing(part: Object) -> Sharing:
    percentage = part.get("percentage")
    return Sharing(
        PERCENTAGE if percentage is None else int(percentage),
        {name: int(percent) for name, percent in (part.get("resources") or {}).items()},
        part.get("rounding") or AT_LEAST_ONE,
    )


def _check_size(spec: Object) -> None:
    """What annotations of twins repeat has a bound: Kubernetes allows 256 KiB of them in all."""
    size = sum(len(json.dumps(spec.get(name) or "")) for name in REPEATED)
    if size > MAX_REPEATED:
        fields = ", ".join(REPEATED)
        raise ValueError(f"spec.{{{fields}}} have {size} characters, {MAX_REPEATED} at most")


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"spec.remoteNamespaces.pattern {pattern!r}: {error}") from error


def _tuple(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _set(names: list[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


def _classes(offered: list[Object] | None, name: str) -> Offered:
    if offered is None:
        return None
    return tuple(OfferedClass(one[name], bool(one.get("default"))) for one in offered)


# What a provider takes in twins beyond what it takes of everybody ---------------------------------

NODE_PORT: Final = "NodePort"
LOAD_BALANCER: Final = "LoadBalancer"
OUTWARD: Final = frozenset({NODE_PORT, LOAD_BALANCER})
"""Types of Services that take something of the provider's nodes, or of its cloud."""


_TOLERATION: Final = ("key", "operator", "value", "effect")


@dataclass(frozen=True)
class AllowedReflection:
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
    def parse(cls, said: Object | None) -> "AllowedReflection | None":
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


def shown_offers(policy: ProviderPolicy) -> Object:
    """Return what the status of a NamespaceMap says of ``policy``, as ``Offers.parse`` reads it."""
    told: dict[str, Iterable[str] | None] = {
        "serviceTypes": policy.offered_service_types,
        "loadBalancerClasses": _sorted_names(policy.load_balancer_classes),
        "annotationDomains": policy.annotation_domains or None,
        "podAnnotationDomains": policy.pod_annotation_domains or None,
    }
    listed = {name: sorted(values) for name, values in told.items() if values is not None}
    tolerations = [
        {name: one[name] for name in _TOLERATION if one.get(name)} for one in policy.pod_tolerations
    ]
    return {**listed, "podTolerations": tolerations} if tolerations else listed


def offer_annotations(policy: ProviderPolicy) -> Mapping[str, str | None]:
    """Return the annotations of a twin; None where the policy says nothing of it."""
    listed = {
        keys.OFFERED_STORAGE_CLASSES: _sorted_names(policy.storage_classes),
        keys.OFFERED_INGRESS_CLASSES: _sorted_names(policy.ingress_classes),
        keys.OFFERED_LOAD_BALANCER_CLASSES: _sorted_names(policy.load_balancer_classes),
        keys.OFFERED_SERVICE_TYPES: sorted(policy.offered_service_types) or None,
        keys.OFFERED_ANNOTATION_DOMAINS: sorted(policy.annotation_domains) or None,
    }
    return {
        **{name: None if values is None else ",".join(values) for name, values in listed.items()},
        keys.OFFERED_INGRESS_HOSTS: policy.ingress_hosts or None,
        keys.OFFERED_STATIC_VOLUMES: "true" if policy.static_volumes else None,
    }


def _sorted_names(offered: Offered) -> list[str] | None:
    return None if offered is None else [one.name for one in offered]


# What a provider allows in pods of its consumers --------------------------------------------------

MAX_GRACE_S: Final = 3600
"""Longer no pod may take to end, unless a ProviderPolicy allows it: its node may have to go."""


@dataclass(frozen=True)
class PodPolicy:
    """What a provider allows beyond the defaults, or narrows; None allows all."""

    level: str = "baseline"
    priority_classes: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] | None = None
    service_accounts: frozenset[str] | None = None
    tolerations: tuple[Object, ...] = ()
    kept_tolerations: tuple[Object, ...] = ()
    """Those that the pod has had since it came, which are not judged again."""
    max_grace_s: int = MAX_GRACE_S
    volume_types: frozenset[str] = frozenset()
    """Those beyond the default ones."""
    affinity_namespaces: frozenset[str] = frozenset()
    """Whose pods terms of affinity may name besides; * for those of any."""
    annotation_domains: frozenset[str] = frozenset()
    """Whose annotations and labels are on pods besides. See ``apis.allowlist``."""
    claim_annotation_domains: frozenset[str] = frozenset()
    """Likewise of claims that are made for pods. See ``apis.allowlist``."""
    own_namespaces: frozenset[str] = frozenset()
    """The consumer's own twins, as far as its pod names them."""
    storage_classes: frozenset[str] | None = None
    has_default_storage_class: bool = False
    """Whether one of them is taken where none is named."""
    static_volumes: bool = False
    """Whether a claim may take a volume that has no class."""

    def where(self, own_namespaces: frozenset[str]) -> "PodPolicy":
        return replace(self, own_namespaces=own_namespaces)

    def keeping(self, tolerations: Iterable[Object]) -> "PodPolicy":
        return replace(self, kept_tolerations=tuple(tolerations))

    @classmethod
    def parse(cls, obj: Object | None) -> "PodPolicy":
        """Return what the ProviderPolicy ``obj`` says; without any, the defaults."""
        spec = objects.spec(obj)
        allowed = spec.get("allowedPodFields") or {}
        classes = spec.get("storageClasses")
        return cls(
            level=spec.get("podSecurityLevel") or "baseline",
            priority_classes=frozenset(allowed.get("priorityClassNames") or ()),
            runtime_classes=_names(allowed.get("runtimeClassNames")),
            service_accounts=_names(allowed.get("serviceAccountNames")),
            tolerations=tuple(allowed.get("tolerations") or ()),
            max_grace_s=allowed.get("maxTerminationGracePeriodSeconds", MAX_GRACE_S),
            volume_types=frozenset(allowed.get("volumeTypes") or ()),
            affinity_namespaces=frozenset(allowed.get("affinityNamespaces") or ()),
            annotation_domains=frozenset(allowed.get("annotationDomains") or ()),
            claim_annotation_domains=frozenset(spec.get("annotationDomains") or ()),
            storage_classes=_names(None if classes is None else [*map(_class, classes)]),
            static_volumes=bool(spec.get("staticVolumes")),
            has_default_storage_class=any(one.get("default") for one in classes or ()),
        )


def pod_policy_of(consumer: str, policies: Mapping[Key, Object]) -> PodPolicy:
    """Return what holds for the consumer: its own policy, else that for all, else the defaults."""
    own = policies.get(Key("", consumer))
    return PodPolicy.parse(own or policies.get(Key("", DEFAULT)))


def _class(offered: Object) -> str:
    return str(offered.get("storageClassName"))


def _names(listed: list[str] | None) -> frozenset[str] | None:
    return None if listed is None else frozenset(listed)
