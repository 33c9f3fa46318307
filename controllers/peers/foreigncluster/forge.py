"""A ForeignCluster, out of what there is about another cluster. Pure.

Source: docs/parity.md § 1.13, 4.14.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from apis import keys, naming, objects, offloading, ownership, texts
from apis.objects import Key, Object, named

API_SERVER: Final = offloading.API_SERVER_STATUS
TENANT: Final = "AuthTenantStatus"
IDENTITY: Final = "AuthIdentityControlPlaneStatus"
VIRTUAL_NODES: Final = "OffloadingVirtualNodeStatus"
NODES: Final = "OffloadingNodeStatus"
STEP_S: Final = 5
_MOST_NAMES: Final = 5
_ROLES: Final = {
    (True, True): "ConsumerAndProvider",
    (True, False): "Consumer",
    (False, True): "Provider",
    (False, False): "Unknown",
}
"""By whether it uses this cluster, and whether this cluster uses it."""

ENDED: Final = (
    "the certificate of this cluster has ended, or its authority is another one. liqoctl peer "
    "--remote-kubeconfig FILE gets a new one, and keeps virtual nodes, remote namespaces and pods"
)
"""What a provider that knows this cluster no longer is told with."""


@dataclass(frozen=True)
class APIServerHealth:
    """What the API server of a peer last said."""

    is_answering: bool
    message: str
    version: str = ""
    """Of its Kubernetes, such as ``v1.35.4``."""
    pyliqo: str = ""
    """Version of its pyliqo; empty as long as no slice tells it."""
    ahead_s: int | None = None
    """Seconds by which its clock is ahead of ours, as coarse as ``STEP_S``."""

    @classmethod
    def answering(
        cls, version: str, pyliqo: str, ahead: timedelta, before: "APIServerHealth | None"
    ) -> "APIServerHealth":
        """Return that it answers; a difference of clocks is another only by ``STEP_S``."""
        ahead_s = round(ahead / timedelta(seconds=1))
        known = before.ahead_s if before else None
        if known is None or abs(known - ahead_s) >= STEP_S:
            known = ahead_s if abs(ahead_s) >= STEP_S else 0
        message = "its API server answers"
        return cls(True, message, version, pyliqo, known)  # noqa: FBT003  # named there


def within(reach: APIServerHealth | None, excess: str) -> APIServerHealth | None:
    """Return what a peer said, as one that does not answer if it sends too much.

    ``excess`` says what it sends too much of; empty if nothing. Source: docs/parity.md H14.
    """
    if not excess:
        return reach
    message = f"{excess}, which is more than is kept of a peer: nothing is replicated until it is "
    silent = reach or APIServerHealth(is_answering=False, message="")
    return replace(silent, is_answering=False, message=f"{message}less")


@dataclass(frozen=True)
class PeerFacts:
    """What there is here about one other cluster."""

    cluster_id: str
    namespace: str = ""
    """The tenant namespace."""
    tenant: Object | None = None
    identity: Object | None = None
    """Of the control plane."""
    replicas: Sequence[Object] = ()
    """Of its slices."""
    virtual_nodes: Sequence[Object] = ()
    deployments: Mapping[Key, Object] = field(default_factory=dict)
    """Of virtual kubelets, also those of others."""
    nodes: Mapping[str, Object] = field(default_factory=dict)
    """Virtual ones by name, also those of others."""
    reach: APIServerHealth | None = None
    """None as long as nobody has asked."""

    def is_there(self) -> bool:
        return bool(self.tenant or self.identity or self.virtual_nodes)


class _Finding(NamedTuple):
    type: str
    status: str
    reason: str
    message: str


def foreign_cluster(cluster_id: str) -> Object:
    """Return the ForeignCluster to create; admission adds the label that it is found by."""
    labels = {"labels": {keys.REMOTE_CLUSTER_ID: cluster_id}}
    key = Key("", cluster_id)
    return named(keys.FOREIGN_CLUSTER, key, metadata=labels, spec={"clusterID": cluster_id})


def cluster_of(obj: Object) -> str:
    """Return the other cluster that ``obj`` is about: by its spec, else by its label."""
    said = objects.spec(obj).get("clusterID")
    return str(said or ownership.cluster_named_by(obj))


def is_of_control_plane(identity: Object) -> bool:
    """Whether it is the one with which this cluster replicates."""
    return objects.spec(identity).get("type") == keys.CONTROL_PLANE_IDENTITY


def status(  # what is known, of which object, by whom, when
    before: Object, facts: PeerFacts, generation: int, now: datetime, *, version: str = ""
) -> Object:
    """Return the status; ``before`` is the one there is, whose transition times are kept.

    ``version`` is that of the pyliqo here.
    """
    is_provider = bool(facts.identity or facts.virtual_nodes)
    made: Object = {
        "role": _ROLES[facts.tenant is not None, is_provider],
        "modules": {
            "networking": {"enabled": False},
            "authentication": _module(before, "authentication", _authentication(facts), now),
            "offloading": _module(before, "offloading", _offloading(facts), now),
        },
        **_addresses(facts),
        **_version(before, facts, version),
        "observedGeneration": generation,
    }
    if is_provider:
        made |= _answers(before, facts.reach, now)
    return made


def _module(before: Object, name: str, findings: Iterable[_Finding], now: datetime) -> Object:
    known = (before.get("modules") or {}).get(name) or {}
    found = _conditions(known.get("conditions"), findings, now)
    return {"enabled": True, "conditions": found} if found else {"enabled": False}


def _conditions(
    before: Iterable[Object] | None, findings: Iterable[_Finding], now: datetime
) -> list[Object]:
    made: list[Object] = []
    for finding in findings:
        known = objects.find_condition(before, finding.type)
        made += objects.set_condition([known] if known else [], *finding, now)
    return made


def _authentication(facts: PeerFacts) -> Iterable[_Finding]:
    if facts.tenant is not None:
        yield _tenant(facts.tenant)
    if facts.identity is not None:
        yield _identity(facts.identity)


def _tenant(tenant: Object) -> _Finding:
    said, name = objects.status(tenant), tenant["metadata"]["name"]
    needs_no_key = objects.spec(tenant).get("authzPolicy") == "TolerateNoHandshake"
    verdict = objects.find_condition(said.get("conditions"), "Ready") or {}
    has_key = said.get("tenantNamespace") and (said.get("authParams") or needs_no_key)
    if has_key and verdict.get("status") != "False":  # the key stays when somebody is put out
        return _Finding(TENANT, "Ready", "TenantReady", f"tenant {name} may sign in")
    why = verdict.get("message") or "it has no certificate yet"
    return _Finding(TENANT, "NotReady", "TenantNotReady", f"tenant {name} may not sign in: {why}")


def _identity(identity: Object) -> _Finding:
    name = identity["metadata"]["name"]
    if secret := _secret(identity):
        message = f"the kubeconfig is in secret {secret}"
        return _Finding(IDENTITY, "Ready", "IdentityReady", message)
    message = f"identity {name} has no kubeconfig yet"
    return _Finding(IDENTITY, "NotReady", "IdentityNotReady", message)


def _offloading(facts: PeerFacts) -> Iterable[_Finding]:
    by_name = {one["metadata"]["name"]: one for one in facts.virtual_nodes}
    if not by_name:
        return
    running = {name: _is_running(facts, one) for name, one in by_name.items()}
    yield _of_several(VIRTUAL_NODES, "VirtualNodes", "virtual kubelets", running)
    ready = {
        name: _is_ready(facts.nodes.get(name))
        for name, one in by_name.items()
        if objects.spec(one).get("createNode", True)
    }
    if ready:
        yield _of_several(NODES, "Nodes", "nodes", ready)


def _of_several(type_: str, word: str, what: str, by_name: Mapping[str, bool]) -> _Finding:
    """Return all, some or none, in the words of one condition."""
    bad = sorted(name for name, is_good in by_name.items() if not is_good)
    if not bad:
        return _Finding(type_, "Ready", f"{word}Ready", f"all {what} are ready")
    some = "" if len(bad) == len(by_name) else "Some"
    more = f" and {len(bad) - _MOST_NAMES} more" if len(bad) > _MOST_NAMES else ""
    names = ", ".join(bad[:_MOST_NAMES]) + more
    message = f"{len(bad)} of {len(by_name)} {what} are not ready: {names}"
    return _Finding(type_, f"{some}NotReady", f"{word}{some}NotReady", message)


def _is_running(facts: PeerFacts, virtual_node: Object) -> bool:
    """Whether its virtual kubelet runs; one without a pod does not."""
    key = objects.key_of(virtual_node)
    found = facts.deployments.get(Key(key.namespace, naming.vk_deployment(key.name)))
    if found is None:
        return False
    wanted, status = found["spec"].get("replicas", 1), objects.status(found)
    return bool(0 < wanted <= status.get("readyReplicas", 0))


def _is_ready(node: Object | None) -> bool:
    return node is not None and objects.is_condition_true(
        objects.status(node).get("conditions"), "Ready"
    )


def _addresses(facts: PeerFacts) -> Object:
    """Return where it is, and which namespaces the two have for each other."""
    spec = objects.spec(facts.identity)
    params = spec.get("authParams") or {}
    from_tenant = objects.spec(facts.tenant).get("proxyURL")
    local = objects.status(facts.tenant).get("tenantNamespace") or facts.namespace
    namespaces = {"local": local, "remote": spec.get("namespace")}
    found = {
        "apiServerUrl": params.get("apiServer"),
        "foreignProxyUrl": texts.without_userinfo(params.get("proxyURL") or from_tenant or ""),
        "tenantNamespace": {name: value for name, value in namespaces.items() if value},
    }
    return {name: value for name, value in found.items() if value}


def _version(before: Object, facts: PeerFacts, ours: str) -> Object:
    """Return which pyliqo it runs, and which part of the version differs from ours."""
    told = [objects.annotations(one).get(keys.CONSUMER_VERSION) for one in facts.replicas]
    known = before.get("version") if facts.is_there() else ""
    theirs = (facts.reach and facts.reach.pyliqo) or next(filter(None, told), None) or known
    return {"version": theirs, "versionSkew": skew(str(theirs), ours)} if theirs else {}


def skew(theirs: str, ours: str) -> str:
    """Return the first part of two versions in which they differ: ``Major``, ``Minor``, ``Patch``.

    ``None`` is that they are the same.
    """
    for part, left, right in zip(_PARTS, theirs.split("."), ours.split("."), strict=False):
        if left != right:
            return part
    return "None" if theirs == ours else _PARTS[-1]


_PARTS: Final = ("Major", "Minor", "Patch")


def _answers(before: Object, reach: APIServerHealth | None, now: datetime) -> Object:
    """Return what its API server says; what it said before, as long as nobody has asked again."""
    if reach is None:
        return {name: before[name] for name in _OF_REACH if before.get(name) is not None}
    finding = (
        _Finding(API_SERVER, offloading.API_SERVER_ESTABLISHED, "APIServerReady", reach.message)
        if reach.is_answering
        else _Finding(API_SERVER, "Error", "APIServerNotReady", reach.message)
    )
    found = {
        "conditions": _conditions(before.get("conditions"), [finding], now),
        "kubernetesVersion": reach.version or before.get("kubernetesVersion"),
        "clockSkewSeconds": before.get("clockSkewSeconds")
        if reach.ahead_s is None
        else reach.ahead_s,
    }
    return {name: value for name, value in found.items() if value is not None}


_OF_REACH: Final = ("conditions", "kubernetesVersion", "clockSkewSeconds")


def slice_of(cluster_id: str, found: Iterable[Object]) -> str:
    """Return the name of a slice that we have of that provider; empty without one."""
    ours = (one for one in found if not ownership.is_foreign(one) and cluster_of(one) == cluster_id)
    return next((str(one["metadata"]["name"]) for one in ours), "")


def secrets(identities: Iterable[Object], virtual_nodes: Iterable[Object]) -> dict[str, Key]:
    """Return where the kubeconfig for the control plane of each provider is, by cluster ID.

    An Identity says it; without one it is where peering by hand puts it.
    """
    by_hand = {
        cluster_id: Key(one["metadata"]["namespace"], _secret_by_hand(cluster_id))
        for one in virtual_nodes
        if (cluster_id := cluster_of(one))
    }
    told = {
        cluster_of(one): Key(one["metadata"]["namespace"], secret)
        for one in identities
        if is_of_control_plane(one) and (secret := _secret(one))
    }
    return {**by_hand, **told}


def _secret(identity: Object) -> str:
    said = objects.status(identity).get("kubeconfigSecretRef") or {}
    return str(said.get("name") or "")


def _secret_by_hand(cluster_id: str) -> str:
    return naming.kubeconfig_secret(naming.controlplane_identity(cluster_id))
