"""What a provider grants to consumers, as its administrator says in ProviderPolicies.

Source: docs/parity.md § 0.4, 3.6, 4.2, 4.5, 4.17.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from apis import naming, objects, resources, slices
from apis.objects import Object
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
        """Return the percentage of ``resource``."""
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
        """Whether a twin namespace may be called so."""
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


def of(policies: Iterable[Object], cluster_id: str) -> ProviderPolicy:
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


def shown(offered: Offered, name: str) -> list[Object]:
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
        "limits": resources.parse(spec.get("limits")),
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
