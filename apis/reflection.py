"""The table of the reflected kinds: flags, templates, rights and the documentation are made of it.

How a kind's twin looks is a pure function of the reflector, found under the same name.
Source: docs/parity.md § 6.3, 8.1, 8.2.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from apis import keys
from apis.objects import Kind
from apis.offloading import CustomResource
from apis.offloading import ReflectionPolicy as Policy

WORKERS: Final = 3
MANY_WORKERS: Final = 10
"""Of kinds that come by the thousand: each write waits for a provider that may be far away."""
POD_WORKERS: Final = 32
"""As many as requests go to one API server at once, however far away it is: with ten, 1,000 pods
took six seconds at a round trip of 50 ms. An API server with too many requests answers 429, and the
client waits as long as that answer says.
"""
READ: Final = ("get", "list", "watch")
KEEP: Final = (*READ, "create", "update", "patch", "delete")
LISTS: Final = (Policy.DENY_LIST, Policy.ALLOW_LIST)
ALL: Final = (*LISTS, Policy.REFERENCED)

Rights = dict[tuple[str, str], tuple[str, ...]]
"""Verbs by group and resource, as in a rule of a role."""


@dataclass(frozen=True, eq=False)
class ReflectedKind:
    """One kind: what of it goes where, and what that takes."""

    name: str
    """In flags (``--<name>-reflection-workers``) and in ``reflectorsConfig`` of templates."""
    kind: Kind
    """Of the originals."""
    twin: Kind
    """Of what stands for them in the other cluster."""
    policies: tuple[Policy, ...] = LISTS
    """Those that can be chosen; the first is the default."""
    like: str = ""
    """The name of the kind by whose policy it goes, when it has none of its own."""
    is_outward: bool = True
    """Whether originals are in the consumer's cluster."""
    workers: int = WORKERS
    most: int = 0
    """So many originals of a namespace are known at a time, the newest; 0 for all."""
    also_here: Rights = field(default_factory=dict)
    """Rights in offloaded namespaces, besides reading originals."""
    also_cluster_wide: Rights = field(default_factory=dict)
    """Rights in the whole cluster of the consumer: only for kinds without namespaces."""
    copied: str = ""
    """What of an original the twin has; for the documentation, as the next one."""
    left_out: str = ""

    @property
    def default(self) -> Policy:
        """Return which objects are reflected when nobody says."""
        return self.policies[0]

    @property
    def is_configurable(self) -> bool:
        return len(self.policies) > 1

    def rights_here(self) -> Rights:
        """Return what the reflector needs in an offloaded namespace of the consumer."""
        own: Rights = {_resource(self.kind): READ} if self.is_outward else {}
        return union([own, self.also_here])

    def rights_there(self) -> Rights:
        if self.is_outward:
            return {_resource(self.twin): KEEP}
        return {_resource(self.kind): READ}


def _resource(kind: Kind) -> tuple[str, str]:
    return kind.group, kind.plural


CONFIG_MAP: Final = ReflectedKind(
    "configmap",
    keys.CONFIG_MAP,
    keys.CONFIG_MAP,
    policies=ALL,
    workers=MANY_WORKERS,
    copied="`data`, `binaryData`, `immutable`",
    left_out="the name `kube-root-ca.crt`, which the provider has itself: "
    "`kube-root-ca.crt.<start of the consumer's ID>`",
)
SECRET: Final = ReflectedKind(
    "secret",
    keys.SECRET,
    keys.SECRET,
    policies=ALL,
    workers=MANY_WORKERS,
    copied="`data`, `type`, `immutable`",
    left_out="service account tokens, bootstrap tokens and Helm releases never leave",
)
SERVICE: Final = ReflectedKind(
    "service",
    keys.SERVICE,
    keys.SERVICE,
    workers=MANY_WORKERS,
    copied="type, selector, ports, traffic policies, session affinity, `None` as cluster IP",
    left_out="cluster IPs, node ports, load-balancer and external IPs, status",
)

ENDPOINT_SLICE: Final = ReflectedKind(
    "endpointslice",
    keys.ENDPOINT_SLICE,
    keys.SHADOW_ENDPOINT_SLICE,
    policies=(Policy.CUSTOM,),
    like=SERVICE.name,
    workers=MANY_WORKERS,
    also_here={(keys.IP.group, keys.IP.plural): READ},
    copied="addresses, ports, hostnames, zones and readiness of endpoints that are not on the "
    "provider itself; the provider makes an EndpointSlice of it",
    left_out="endpoints on the provider, `serving`, `terminating`; the node is the consumer's ID",
)
INGRESS: Final = ReflectedKind(
    "ingress",
    keys.INGRESS,
    keys.INGRESS,
    copied="`rules`, `tls`, `defaultBackend`; the class is the provider's",
    left_out="the local class, status",
)
CLAIM: Final = ReflectedKind(
    "persistentvolumeclaim",
    keys.PERSISTENT_VOLUME_CLAIM,
    keys.PERSISTENT_VOLUME_CLAIM,
    policies=(Policy.CUSTOM,),
    also_here={
        ("", "persistentvolumeclaims"): ("patch",),
        ("", "persistentvolumeclaims/status"): ("patch",),
    },
    also_cluster_wide={
        ("", "persistentvolumes"): (*READ, "create", "patch", "delete"),
        ("storage.k8s.io", "storageclasses"): READ,
    },
    copied="of claims of the class `liqo` whose first pod goes there: access modes, volume "
    "mode, requests, which may grow; a PersistentVolume at the consumer binds the claim "
    "to the provider",
    left_out="the local class, data sources, selectors, bindings",
)
EVENT: Final = ReflectedKind(
    "event",
    keys.EVENT,
    keys.EVENT,
    policies=(Policy.RELEVANT, *LISTS),
    is_outward=False,
    most=500,
    also_here={
        ("", "events"): ("get", "list", "create", "patch"),
    },
    copied="on the object of the same name: type, reason, message, count, times",
    left_out="Normal ones of the first ten seconds of a pod that is Ready then (`DenyList`: none); "
    "labels, annotations; more than one a second for an object, after the first 25",
)

KINDS: Final[tuple[ReflectedKind, ...]] = (
    CONFIG_MAP,
    SECRET,
    SERVICE,
    ENDPOINT_SLICE,
    INGRESS,
    CLAIM,
    EVENT,
)
OPTIONAL: Final = (keys.NETWORK_POLICY, keys.POD_DISRUPTION_BUDGET)
"""Kinds that protect pods: reflected where administrators of both clusters opted in."""
NEVER: Final = (keys.LIMIT_RANGE, keys.RESOURCE_QUOTA)
"""Kinds that limit pods: at a provider they would change or refuse the remote pods."""
POLICIES: Final[tuple[Kind, ...]] = (*OPTIONAL, *NEVER)
"""Kinds that hold for the pods of this cluster only, unless they are reflected."""
AWAITED: Final[tuple[ReflectedKind, ...]] = (CONFIG_MAP, SECRET, SERVICE)
"""Kinds that a container reads as it starts: a pod is sent when the provider has what it reads."""
BY_NAME: Final = {row.name: row for row in KINDS}


def custom(kind: Kind, policy: Policy = Policy.DENY_LIST) -> ReflectedKind:
    """Return the row of a kind that an administrator opted in: spec outwards, status back.

    Who opts in grants the rights, too: reading and ``status`` here, all but that there. The status
    of a policy is each cluster's own.
    """
    others = tuple(one for one in LISTS if one is not policy)
    status: Rights = {(kind.group, f"{kind.plural}/status"): ("patch",)}
    return ReflectedKind(
        kind.resource,
        kind,
        kind,
        policies=(policy, *others),
        also_here={} if kind in OPTIONAL else status,
    )


def opted_in(one: CustomResource) -> ReflectedKind:
    return custom(Kind(one.group, one.version, one.kind, one.resource), one.policy)


def rights_here() -> Rights:
    return union(row.rights_here() for row in KINDS)


def rights_there() -> Rights:
    return union(row.rights_there() for row in KINDS)


def rights_cluster_wide() -> Rights:
    """Return what all kinds need of those without namespaces, at the consumer."""
    return union(row.also_cluster_wide for row in KINDS)


def union(several: Iterable[Rights]) -> Rights:
    united: Rights = {}
    for rights in several:
        for resource, verbs in rights.items():
            known = united.get(resource, ())
            united[resource] = (*known, *(verb for verb in verbs if verb not in known))
    return united
