"""What ``liqoctl info`` tells, as data and as lines. Pure.

Source: docs/parity.md § 7.8.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apis import naming, networks, objects, ownership, placement, slices
from apis.objects import Key, Object, key_of
from liqoctl.forge.tables import one_line

HEALTHY, UNHEALTHY, DISABLED = "Healthy", "Unhealthy", "Disabled"
_GOOD: Final = frozenset({"Established", "Ready"})
_RUNNING: Final = frozenset({"Running", "None"})
_MODULES: Final = ("networking", "authentication", "offloading")
_SHORTCUTS: Final = {"clusterid": "local.clusterid"}


@dataclass(frozen=True)
class Installation:
    """What there is of pyliqo itself in a cluster."""

    cluster_id: str
    version: str
    server: str
    pods: Sequence[Object] = ()
    foreign_clusters: Sequence[Object] = ()
    policy: Object | None = None
    """The ProviderPolicy for all consumers."""
    daemon_sets: Sequence[Object] = ()


@dataclass(frozen=True)
class Around:
    """All slices, virtual nodes and quotas, of which those of a peer are told."""

    slices: Sequence[Object] = ()
    virtual_nodes: Sequence[Object] = ()
    quotas: Mapping[Key, Object] | None = None
    identities: Sequence[Object] = ()


def installation(found: Installation) -> Object:
    unhealthy = {key_of(pod).name: one for pod in found.pods if (one := _trouble(pod))}
    policy = objects.spec(found.policy)
    return {
        "health": {"healthy": bool(found.pods) and not unhealthy, "unhealthyPods": unhealthy},
        "local": {
            "clusterID": found.cluster_id,
            "version": found.version,
            "labels": dict(policy.get("nodeLabels") or {}),
            "APIServerAddr": found.server,
        },
        "network": {"podCIDRs": [], "serviceCIDR": "", "externalCIDR": "", "internalCIDR": ""},
        "peerings": {"peers": [_summary(one) for one in found.foreign_clusters if _is_active(one)]},
        "daemonSetsOnVirtualNodes": [
            {"name": str(key_of(one)), "patch": patch}
            for one in found.daemon_sets
            if (patch := daemons_patch(one))
        ],
    }


def daemons_patch(daemon_set: Object) -> str:
    """Return the command that keeps ``daemon_set`` off virtual nodes; empty if it keeps off."""
    terms = placement.daemons_on_virtual_nodes(daemon_set)
    if terms is None:
        return ""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = {"spec": {"affinity": {"nodeAffinity": required}}}
    patch = json.dumps({"spec": {"template": pod}}, separators=(",", ":"))
    key = key_of(daemon_set)
    target = f"kubectl patch daemonset {key.name} --namespace {key.namespace}"
    return f"{target} --patch {shlex.quote(patch)}"


def _trouble(pod: Object) -> Object | None:
    """Return what is wrong with a pod, None for one that works or is on its way out."""
    status = objects.status(pod)
    containers = status.get("containerStatuses") or []
    ready, total = sum(bool(one.get("ready")) for one in containers), len(pod["spec"]["containers"])
    if objects.is_terminating(pod) or status.get("phase") == "Succeeded" or ready == total:
        return None
    return {
        "status": _reason(containers) or status.get("phase") or "Unknown",
        "readyContainers": ready,
        "totalContainers": total,
        "restarts": sum(one.get("restartCount", 0) for one in containers),
    }


def _reason(containers: Iterable[Object]) -> str:
    states = (state for one in containers for state in (one.get("state") or {}).values())
    return next((str(state["reason"]) for state in states if (state or {}).get("reason")), "")


def _is_active(foreign_cluster: Object) -> bool:
    return str(objects.status(foreign_cluster).get("role", "Unknown")) != "Unknown"


def _summary(foreign_cluster: Object) -> Object:
    return {
        "clusterID": foreign_cluster["spec"]["clusterID"],
        "role": objects.status(foreign_cluster).get("role", "Unknown"),
        **{f"{name}Status": _module(foreign_cluster, name)["status"] for name in _MODULES},
    }


def _module(foreign_cluster: Object, name: str) -> Object:
    """Return status and alerts of a module; that of authentication needs the API server, too."""
    status = objects.status(foreign_cluster)
    found = (status.get("modules") or {}).get(name) or {}
    conditions = list(found.get("conditions") or [])
    if name == "authentication":
        conditions += status.get("conditions") or []
    alerts = [_alert(one) for one in conditions if one.get("status") not in _GOOD]
    healthy = UNHEALTHY if alerts else HEALTHY
    return {"status": healthy if found.get("enabled") else DISABLED, "alerts": alerts}


def _alert(condition: Object) -> str:
    return str(condition.get("message") or condition.get("reason") or condition.get("type"))


def peer(foreign_cluster: Object, around: Around) -> Object:
    cluster_id, status = foreign_cluster["spec"]["clusterID"], objects.status(foreign_cluster)
    authentication = _module(foreign_cluster, "authentication")
    slices = [one for one in around.slices if _provider_of(one, cluster_id)]
    nodes = [one for one in around.virtual_nodes if _is_on(one, cluster_id)]
    gateway = {"address": [], "port": 0, "role": ""}
    pods = _pod_networks(around.identities, cluster_id)
    network = {"CIDRs": {"remote": pods, "remapped": {}}, "gateway": gateway}
    return {
        "info": {
            "clusterID": cluster_id,
            "role": status.get("role", "Unknown"),
            "version": status.get("version", ""),
            "versionSkew": status.get("versionSkew", ""),
            "kubernetesVersion": status.get("kubernetesVersion", ""),
            "clockSkewSeconds": status.get("clockSkewSeconds", 0),
        },
        "network": {**_module(foreign_cluster, "networking"), **network},
        "authentication": {
            **authentication,
            "APIServerAddr": status.get("apiServerUrl", ""),
            "resourceSlices": [_slice(one, around.quotas or {}) for one in slices],
        },
        "offloading": {
            **_module(foreign_cluster, "offloading"),
            "virtualNodes": [_virtual_node(one) for one in nodes],
        },
    }


def _pod_networks(identities: Iterable[Object], cluster_id: str) -> Object:
    """Return in which networks the pods of a provider may be, as this cluster was told."""
    controlplane = naming.controlplane_identity(cluster_id)
    found = (each for each in identities if key_of(each).name == controlplane)
    named, _ = networks.pod_networks_of_identity(next(found, None))
    return {"pod": [str(each) for each in named]} if named else {}


def _provider_of(resource_slice: Object, cluster_id: str) -> bool:
    """Whether it is a slice of that peer, in either direction."""
    spec = objects.spec(resource_slice)
    other = "consumerClusterID" if ownership.is_foreign(resource_slice) else "providerClusterID"
    return spec.get(other) == cluster_id


def _is_on(virtual_node: Object, cluster_id: str) -> bool:
    return bool(objects.spec(virtual_node).get("clusterID") == cluster_id)


def _slice(resource_slice: Object, quotas: Mapping[Key, Object]) -> Object:
    status, key = objects.status(resource_slice), key_of(resource_slice)
    found = status.get("conditions") or []
    is_accepted = bool(found) and all(one.get("status") == "Accepted" for one in found)
    alerts = [_alert(one) for one in found if one.get("status") != "Accepted"]
    told: Object = {
        "name": key.name,
        "action": "Providing" if ownership.is_foreign(resource_slice) else "Consuming",
        "accepted": is_accepted,
        "alerts": alerts or ([] if found else ["the provider has not answered yet"]),
        "resources": dict(status.get("resources") or {}),
    }
    consumer = str(objects.spec(resource_slice).get("consumerClusterID") or "")
    quota = quotas.get(Key(key.namespace, naming.quota_name(key.name, consumer)))
    if quota is not None and ownership.is_foreign(resource_slice):
        told["used"] = dict(objects.status(quota).get("used") or {})
    return told


def _virtual_node(virtual_node: Object) -> Object:
    spec, found = virtual_node["spec"], objects.status(virtual_node).get("conditions") or []
    is_healthy = bool(found) and all(one.get("status", "None") in _RUNNING for one in found)
    return {
        "name": virtual_node["metadata"]["name"],
        "status": HEALTHY if is_healthy else UNHEALTHY,
        "secret": (spec.get("kubeconfigSecretRef") or {}).get("name", ""),
        "resourceSlice": slices.of_virtual_node(virtual_node),
        "resources": dict((spec.get("resourceQuota") or {}).get("hard") or {}),
        **_suggested(virtual_node),
    }


def _suggested(virtual_node: Object) -> Object:
    """Return which labels the provider suggests to no effect, and which could not come now."""
    told = objects.status(virtual_node).get("suggestedLabels") or {}
    names = {"refused": "labelsNotTaken", "kept": "labelsKept"}
    return {name: told[what] for what, name in names.items() if told.get(what)}


# One field out of it ------------------------------------------------------------------------------


Pick = Callable[[Object, str], Any]


def pick(told: Object, path: str) -> Any:
    """Return what is at ``path``, such as ``local.clusterid``; case does not matter.

    Raises:
        ValueError: there is no such field; the message says which there are.
    """
    found: Any = told
    for name in _SHORTCUTS.get(path.lower(), path).split("."):
        by_name = (
            {key.lower(): value for key, value in found.items()} if isinstance(found, dict) else {}
        )
        if name.lower() not in by_name:
            there = f"there are {', '.join(found)}" if by_name else "it has no fields"
            raise ValueError(f"--get {path}: no field {name!r}: {there}")
        found = by_name[name.lower()]
    return found


def pick_of_peers(told: Object, path: str) -> Any:
    """Return what is at ``path``; the peer need not be named where there is one only.

    Raises:
        ValueError: there is no such field.
    """
    first = path.partition(".")[0].lower()
    if len(told) == 1 and first not in {name.lower() for name in told}:
        return pick(next(iter(told.values())), path)
    return pick(told, path)


# Lines for people ---------------------------------------------------------------------------------

_TITLES: Final = {
    "health": "Installation health",
    "daemonSetsOnVirtualNodes": "DaemonSets that get a pod on each virtual node",
    "patch": "Kept off by",
    "healthy": "Healthy",
    "unhealthyPods": "Unhealthy pods",
    "readyContainers": "Ready containers",
    "totalContainers": "Containers",
    "restarts": "Restarts",
    "local": "Local installation info",
    "clusterID": "Cluster ID",
    "version": "Version",
    "versionSkew": "Differs from the version here by",
    "labels": "Cluster labels",
    "APIServerAddr": "API server",
    "network": "Network",
    "peerings": "Active peerings",
    "role": "Role",
    "networkingStatus": "Networking",
    "authenticationStatus": "Authentication",
    "offloadingStatus": "Offloading",
    "info": "Peer cluster info",
    "kubernetesVersion": "Kubernetes",
    "clockSkewSeconds": "Clock skew in seconds",
    "authentication": "Authentication",
    "offloading": "Offloading",
    "status": "Status",
    "alerts": "Alerts",
    "resourceSlices": "Resource slices",
    "action": "Action",
    "accepted": "Accepted",
    "resources": "Resources",
    "used": "Used",
    "virtualNodes": "Virtual nodes",
    "secret": "Secret",
    "resourceSlice": "Resource slice",
    "labelsNotTaken": "Suggested labels that are not taken",
    "labelsKept": "Suggested labels that would not be taken now",
}
"""How fields are called for people; whatever else there is has a name of the user's."""


def lines_of_installation(told: Object) -> list[str]:
    health = {**told["health"], "healthy": _health(told["health"])}
    return lines({**told, "health": health, "peerings": told["peerings"]["peers"] or "none"})


def _health(told: Object) -> bool | str:
    if told["healthy"]:
        return True
    pods = told["unhealthyPods"]
    why = ", ".join(f"{name} is {pod['status']}" for name, pod in sorted(pods.items()))
    return f"no, {why or 'it has no pod in this namespace'}"


def is_well(told: Object) -> bool:
    """Whether nothing is amiss in ``told``: of ``installation``, or peers by cluster ID."""
    if "health" in told:
        return bool(told["health"]["healthy"])
    modules = ("authentication", "offloading")
    return all(peer[name]["status"] != UNHEALTHY for peer in told.values() for name in modules)


def lines(told: Object) -> list[str]:
    """Return ``told`` as indented lines; what is empty is left out.

    Others write what is shown, providers among them: only printable characters reach a terminal.
    """
    return [one_line(line) for line in _indented(told)]


def _indented(told: Object, indent: str = "") -> Iterator[str]:
    for name, value in told.items():
        title = indent + _TITLES.get(name, name)
        if _is_empty(value):
            continue
        if isinstance(value, dict):
            yield title
            yield from _indented(value, indent + "  ")
        elif isinstance(value, list):
            yield title
            yield from _items(value, indent + "  ")
        else:
            yield f"{title}: {_text(value)}"


def _items(values: Iterable[Any], indent: str) -> Iterator[str]:
    """Yield objects by their first field, which is their name, and the rest below it."""
    for value in values:
        if isinstance(value, dict):
            [(_, name), *rest] = value.items()
            yield f"{indent}{name}"
            yield from _indented(dict(rest), indent + "  ")
        else:
            yield f"{indent}{value}"


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_empty(one) for one in value.values())
    return value is not False and not value


def _text(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
