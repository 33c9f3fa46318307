"""What a provider grants to consumers and takes of them, as its ProviderPolicies say. Pure.

Of reflected objects it is what goes beyond what it takes of each consumer: its policies read it in
annotations of remote namespaces, reflectors in the status of NamespaceMaps. Of pods it is what is
allowed beyond the defaults. Source: docs/parity.md § 2.4, 3.8; SEC-A1 to SEC-A3.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from apis import keys, naming, objects, resources, slices
from apis.objects import Key, Object
from apis.offloading import MappingStrategy, OfferedClass, offered_classes
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
MAX_OBJECTS: Final[dict[str, int]] = {
    "resourceslices": 64,
    "namespacemaps": 16,
    "renews": 128,
    "shadowendpointslices": 1000,
    "shadowpods": 10000,
}
"""How many objects a consumer may have in its tenant namespace, the last two in each twin.

A consumer of ours has one NamespaceMap and one Renew, one that runs Liqo a Renew for each slice.
"""

MAX_GRACE_S: Final = 3600
"""Longer no pod may take to end, unless a ProviderPolicy allows it: its node may have to go."""

_DEFAULT: Final = frozenset({"", slices.DEFAULT_CLASS})

GRANTED: Final[Resources] = {
    "cpu": resources.parse_quantity("4"),
    "memory": resources.parse_quantity("8Gi"),
    "pods": resources.parse_quantity("110"),
    "ephemeral-storage": resources.parse_quantity("20Gi"),
}
"""What a slice of class default gets that names nothing."""
Offered: TypeAlias = tuple[OfferedClass, ...] | None


class Sharing(msgspec.Struct, frozen=True, rename="camel"):
    """How much of what is free the slices of class ``shared`` get."""

    percentage: int = PERCENTAGE
    by_resource: dict[str, int] = msgspec.field(default={}, name="resources")
    rounding: str = AT_LEAST_ONE

    def percent_of(self, resource: str) -> int:
        return self.by_resource.get(resource, self.percentage)

    def told(self) -> str:
        """Return it in words: ``90% of what is free (nvidia.com/gpu 100%)``."""
        others = [f"{name} {percent}%" for name, percent in sorted(self.by_resource.items())]
        return f"{self.percentage}% of what is free" + (f" ({', '.join(others)})" if others else "")


class TwinNamespaces(msgspec.Struct, frozen=True, rename="camel"):
    """Which twins are made."""

    pattern: str = ""
    """A regular expression for whole names of twins; empty for any."""
    max: int = MAX_REMOTE_NAMESPACES
    """How many twins each tenant may have. Source: docs/parity.md SEC-A5."""


class ResourceSliceClasses(msgspec.Struct, frozen=True, rename="camel"):
    """Which classes slices have."""

    allowed: tuple[str, ...] | None = None
    """Which a tenant may name; None: any."""
    default: str = slices.DEFAULT_CLASS
    """What a slice of class ``default``, or without a class, belongs to."""


class IngressHosts(msgspec.Struct, frozen=True, rename="camel"):
    """Which hosts Ingresses may name."""

    pattern: str = ""
    """A regular expression for whole hosts; empty for any."""


class AllowedPodFields(msgspec.Struct, frozen=True, rename="camel"):
    """What pods may have beyond the defaults, or less than them; None allows all."""

    priority_class_names: frozenset[str] = frozenset()
    runtime_class_names: frozenset[str] | None = None
    service_account_names: frozenset[str] | None = None
    tolerations: tuple[Object, ...] = ()
    """Those that pods keep besides those that all may have; see ``apis.podfields``."""
    max_termination_grace_period_seconds: int = MAX_GRACE_S
    volume_types: frozenset[str] = frozenset()
    """Those beyond the default ones."""
    affinity_namespaces: frozenset[str] = frozenset()
    """Whose pods terms of affinity may name besides; * for those of any."""
    annotation_domains: frozenset[str] = frozenset()
    """Of annotations and labels that pods keep; see ``apis.allowlist``."""


class ProviderPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """What one ProviderPolicy says; without any, what is written here holds."""

    name: str = DEFAULT
    sharing: Sharing = Sharing()
    limits: Resources = {}
    """The most that is granted to all its tenants together; what is not named has no limit."""
    remote_namespaces: TwinNamespaces = TwinNamespaces()
    max_objects: dict[str, int] = msgspec.field(default_factory=MAX_OBJECTS.copy)
    """By plural: see ``MAX_OBJECTS``."""
    pod_security_level: str = BASELINE
    limits_enforcement: str | None = None
    """None: as the flags of the controllers say. So are the classes and labels below."""
    resource_slice_classes: ResourceSliceClasses = ResourceSliceClasses()
    namespace_mapping_strategies: frozenset[MappingStrategy] | None = None
    storage_classes: Offered = None
    ingress_classes: Offered = None
    load_balancer_classes: Offered = None
    service_types: frozenset[str] | None = None
    """Which types a Service may have besides those that stay in the cluster; see below for None."""
    ingress_hosts: IngressHosts = IngressHosts()
    static_volumes: bool = False
    """Whether a claim may take a volume that has no class."""
    annotation_domains: frozenset[str] = frozenset()
    """Of annotations that reflected objects and claims keep; see ``apis.allowlist``."""
    allowed: AllowedPodFields = msgspec.field(default=AllowedPodFields(), name="allowedPodFields")
    node_labels: dict[str, str] | None = None
    kept_tolerations: tuple[Object, ...] = ()
    """Those that one pod has had since it came, which are not judged again: no JSON has it."""

    @classmethod
    def parse(cls, obj: Object) -> "ProviderPolicy":
        """Return what ``obj`` says.

        Raises:
            ValueError: the message names policy, field and value.
        """
        name = obj["metadata"]["name"]
        try:
            read = cls._read(name, objects.spec(obj))
            _check_pattern(read.remote_namespaces.pattern)
            _check_size(objects.spec(obj))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise ValueError(
                f"providerpolicy {name} cannot be read: {error}: correct it"
            ) from error
        return read

    @classmethod
    def _read(cls, name: str, spec: Object) -> "ProviderPolicy":
        read = {
            "name": name,
            "limits": resources.parse_resources(spec.get("limits")),
            "maxObjects": {**MAX_OBJECTS, **_most(spec.get("maxObjects") or {})},
            "keptTolerations": (),
        }
        return objects.read({**spec, **read, **offered_classes(spec)}, cls)

    @classmethod
    def for_pods(cls, consumer: str, policies: Mapping[Key, Object]) -> "ProviderPolicy":
        """Return what holds for pods of the consumer, whose namespaces may be refused by it."""
        obj = policies.get(Key("", consumer)) or policies.get(Key("", DEFAULT))
        return cls._read(DEFAULT, objects.spec(obj))

    def reaching(self, namespaces: frozenset[str]) -> "ProviderPolicy":
        """Return it with ``namespaces``, the consumer's own, open to terms of affinity."""
        opened = self.allowed.affinity_namespaces | namespaces
        return replace(self, allowed=replace(self.allowed, affinity_namespaces=opened))

    def keeping(self, tolerations: Iterable[Object]) -> "ProviderPolicy":
        return replace(self, kept_tolerations=tuple(tolerations))

    def class_of(self, named: str) -> str:
        """Return the class of a slice whose spec says ``named``."""
        return self.resource_slice_classes.default if named in _DEFAULT else named

    def allows_class(self, named: str) -> bool:
        """Whether a slice may say ``named`` in its spec: by that name, or by what it means."""
        if self.resource_slice_classes.allowed is None:
            return True
        means = self.class_of(named)
        return not {means, named or slices.DEFAULT_CLASS}.isdisjoint(
            self.resource_slice_classes.allowed
        )

    @property
    def offered_service_types(self) -> frozenset[str]:
        """Who offers classes of load balancers offers load balancers, unless the policy says."""
        if self.service_types is not None:
            return self.service_types
        return frozenset(["LoadBalancer"] if self.load_balancer_classes else [])

    def allows_name(self, twin: str) -> bool:
        pattern = self.remote_namespaces.pattern
        return not pattern or bool(re.fullmatch(pattern, twin))

    def allows_strategy(self, local: str, twin: str, consumer: str) -> bool:
        """Whether the mapping of ``local`` to ``twin`` comes of a strategy that is accepted."""
        if self.namespace_mapping_strategies is None:
            return True
        return strategy_of(local, twin, consumer) in self.namespace_mapping_strategies


@dataclass(frozen=True)
class GrantDefaults:
    """What the flags say for everything that no policy says otherwise."""

    resources: Resources = field(default_factory=lambda: GRANTED)
    is_default_class_enabled: bool = True
    limits_enforcement: str = "None"
    cluster_labels: Mapping[str, str] = field(default_factory=dict)
    ingress_classes: Offered = ()
    load_balancer_classes: Offered = ()


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


def _most(part: Object) -> dict[str, int]:
    """Return by plural what ``part`` says by plural in camel case: ``resourceSlices``."""
    return {name.lower(): int(most) for name, most in part.items()}


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


# What a provider takes in twins beyond what it takes of everybody ---------------------------------

NODE_PORT: Final = "NodePort"
LOAD_BALANCER: Final = "LoadBalancer"
OUTWARD: Final = frozenset({NODE_PORT, LOAD_BALANCER})
"""Types of Services that take something of the provider's nodes, or of its cloud."""


_TOLERATION: Final = ("key", "operator", "value", "effect")


class AllowedReflection(msgspec.Struct, frozen=True, rename="camel"):
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
        return None if said is None else objects.read(said, cls)


def shown_offers(policy: ProviderPolicy) -> Object:
    """Return ``status.offered`` of a NamespaceMap, which ``AllowedReflection.parse`` reads."""
    told: dict[str, Iterable[str] | None] = {
        "serviceTypes": policy.offered_service_types,
        "loadBalancerClasses": _sorted_names(policy.load_balancer_classes),
        "annotationDomains": policy.annotation_domains or None,
        "podAnnotationDomains": policy.allowed.annotation_domains or None,
    }
    listed = {name: sorted(values) for name, values in told.items() if values is not None}
    tolerations = [
        {name: one[name] for name in _TOLERATION if one.get(name)}
        for one in policy.allowed.tolerations
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
        keys.OFFERED_INGRESS_HOSTS: policy.ingress_hosts.pattern or None,
        keys.OFFERED_STATIC_VOLUMES: "true" if policy.static_volumes else None,
    }


def _sorted_names(offered: Offered) -> list[str] | None:
    return None if offered is None else [one.name for one in offered]
