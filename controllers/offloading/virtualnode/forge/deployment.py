"""The Deployment of one virtual kubelet, and the arguments of its two containers.

Image and arguments come from the VkOptionsTemplate and from the VirtualNode's own fields only.
Source: docs/parity.md § 3.4.1, 5.1; SEC-C4.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from apis import keys, naming, objects, reflection
from apis.networks import MOST_PORT, ListenAddress, Network, listen_address
from apis.objects import Key, Object
from apis.offloading import VirtualNode, VkOptionsTemplate

KUBELET: Final = "kubelet"
REFLECTOR: Final = "reflector"

EXTRA_OF: Final[dict[str, frozenset[str]]] = {
    KUBELET: frozenset(
        {
            "disable-ip-reflection",
            "enable-apiserver-support",
            "home-api-server-host",
            "home-api-server-ip",
            "home-api-server-port",
            "ip-fabric",
            "node-lease-duration",
            "node-ping-failures",
            "node-ping-interval",
            "node-ping-successes",
            "node-ping-timeout",
            "pod-reflection-workers",
            "own-network",
            "pod-network",
            "remote-external-cidr",
            "remote-external-cidr-remap",
            "remote-pod-cidr",
            "remote-pod-cidr-remap",
            *(f"{row.name}-reflection-workers" for row in reflection.AWAITED),
            *(f"{row.name}-reflection-type" for row in reflection.AWAITED),
        }
    ),
    REFLECTOR: frozenset(
        {
            "disable-ip-reflection",
            "local-podcidr",
            "virtual-storage-class-name",
            *(f"{row.name}-reflection-workers" for row in reflection.KINDS),
            *(f"{row.name}-reflection-type" for row in reflection.KINDS if row.is_configurable),
        }
    ),
}
"""Which container takes which flag of ``extraArgs``; what neither takes is left out."""


@dataclass(frozen=True)
class Fabric:
    """What an IP fabric says of this cluster."""

    pod_networks: tuple[str, ...] = ()
    api_servers: tuple[str, ...] = ()
    """By which addresses peers reach its API server."""


@dataclass(frozen=True)
class LocalCluster:
    """The arguments that all virtual kubelets of this cluster get."""

    cluster_id: str
    liqo_namespace: str = keys.LIQO_NAMESPACE
    fabric: Fabric | None = None
    """None where no IP fabric joins the clusters."""
    own_networks: tuple[str, ...] = ()
    """Of this cluster's pods and Services, as flags name them."""
    pod_networks: Sequence[Network] = ()
    """Those that the Identity of the provider names, in which its pods are."""
    siblings: Sequence[VirtualNode] = ()
    """The virtual nodes of its provider, by name and itself among them: one reflector leads."""


def fabric(networks: Iterable[Object], ips: Iterable[Object]) -> Fabric:
    """Return what ``networks`` of pods and ``ips`` of API servers say.

    Shape: Network and IP of ``ipam.liqo.io``; those that say nothing yet are left out.
    """
    pods = {str(objects.spec(each).get("cidr") or "") for each in networks}
    servers = {str(objects.status(each).get("ip") or "") for each in ips}
    return Fabric(*(tuple(sorted(filter(None, found))) for found in (pods, servers)))


def unknown_arguments(extra: Iterable[str]) -> list[str]:
    taken = frozenset().union(*EXTRA_OF.values())
    return [argument for argument in extra if _flag(argument) not in taken]


def creates_node(virtual_node: VirtualNode, options: VkOptionsTemplate) -> bool:
    """Return whether there is to be a Node: the VirtualNode's word, else the template's."""
    wanted = virtual_node.create_node
    return options.create_node if wanted is None else wanted


def _shared(
    virtual_node: VirtualNode, options: VkOptionsTemplate, cluster: LocalCluster
) -> list[str]:
    patch = virtual_node.offloading_patch
    hidden = {
        "labels": dict.fromkeys([*patch.labels_not_reflected, *options.labels_not_reflected]),
        "annotations": dict.fromkeys(
            [*patch.annotations_not_reflected, *options.annotations_not_reflected]
        ),
    }
    return [
        f"--foreign-cluster-id={virtual_node.cluster_id}",
        f"--nodename={virtual_node.name}",
        f"--tenant-namespace={virtual_node.namespace}",
        f"--liqo-namespace={cluster.liqo_namespace}",
        f"--home-cluster-id={cluster.cluster_id}",
        f"--foreign-kubeconfig-secret-name={virtual_node.kubeconfig_secret}",
        *(f"--{what}-not-reflected={','.join(names)}" for what, names in hidden.items() if names),
    ]


def kubelet_arguments(
    virtual_node: VirtualNode, options: VkOptionsTemplate, cluster: LocalCluster
) -> list[str]:
    """Return the arguments of the container that keeps Node and pods."""
    check = virtual_node.disable_network_check
    unchecked = options.disable_network_check if check is None else check
    arguments = [
        *_shared(virtual_node, options, cluster),
        "--node-ip=$(POD_IP)",
        f"--create-node={_bool(creates_node(virtual_node, options))}",
        f"--node-check-network={_bool(not unchecked)}",
    ]
    for flag, pairs in (
        ("node-extra-annotations", options.node_extra_annotations),
        ("node-extra-labels", options.node_extra_labels),
    ):
        if pairs:
            arguments.append(f"--{flag}={_pairs(pairs)}")
    if (found := cluster.fabric) is not None:
        arguments += ["--ip-fabric=true"]
        arguments += [f"--home-api-server-ip={address}" for address in found.api_servers]
    arguments += [f"--own-network={network}" for network in cluster.own_networks]
    arguments += [f"--pod-network={network}" for network in cluster.pod_networks]
    awaited = [row.name for row in reflection.AWAITED]
    arguments += _workers(options, ["pod", *awaited])
    arguments += _policies(options, awaited)
    return _with_extra(arguments, options, KUBELET)


def reflector_arguments(
    virtual_node: VirtualNode, options: VkOptionsTemplate, cluster: LocalCluster
) -> list[str]:
    """Return the arguments of the container that reflects what pods need."""
    arguments = _shared(virtual_node, options, cluster)
    nodes = cluster.siblings or (virtual_node,)
    for what, offered in (
        ("load-balancer", [each for node in nodes for each in node.load_balancer_classes]),
        ("ingress", [each for node in nodes for each in node.ingress_classes]),
        ("storage", virtual_node.storage_classes),
    ):
        if offered:
            preferred = next((each for each in offered if each.is_default), offered[0])
            arguments += [
                f"--enable-{what}=true",
                f"--remote-real-{what}-class-name={preferred.name}",
            ]
    if (found := cluster.fabric) is not None:
        arguments += [f"--local-podcidr={network}" for network in found.pod_networks]
    arguments += _workers(options, reflection.BY_NAME)
    arguments += _policies(options, reflection.BY_NAME)
    arguments += [
        f"--custom-resource={one.resource}.{one.group}/{one.version}/{one.kind}/{one.policy.value}"
        for one in options.custom_resources
    ]
    return _with_extra(arguments, options, REFLECTOR)


def _workers(options: VkOptionsTemplate, kinds: Iterable[str]) -> list[str]:
    return [
        f"--{kind}-reflection-workers={options.reflectors[kind].workers}"
        for kind in kinds
        if kind in options.reflectors
    ]


def _policies(options: VkOptionsTemplate, kinds: Iterable[str]) -> list[str]:
    return [
        f"--{kind}-reflection-type={policy.value}"
        for kind in kinds
        if reflection.BY_NAME[kind].is_configurable
        and kind in options.reflectors
        and (policy := options.reflectors[kind].policy)
    ]


def _with_extra(arguments: list[str], options: VkOptionsTemplate, container: str) -> list[str]:
    extra = [each for each in options.extra_args if _flag(each) in EXTRA_OF[container]]
    overridden = {_flag(each) for each in extra}
    return [*(each for each in arguments if _flag(each) not in overridden), *extra]


def _flag(argument: str) -> str:
    return argument.removeprefix("--").partition("=")[0]


def _bool(value: bool) -> str:  # noqa: FBT001  # the value to print
    return "true" if value else "false"


def _pairs(pairs: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(pairs.items()))


# The Deployment: two containers of the same image -------------------------------------------------

HEALTH_PORTS: Final = {KUBELET: 8090, REFLECTOR: 8091}
METRICS_PORTS: Final = {KUBELET: "metrics", REFLECTOR: "metrics-reflect"}
"""Their names; the reflector's comes after the kubelet's, which is the template's."""

_SCRATCH: Final = "scratch"
_USER: Final = 65532


def deployment(obj: Object, options: VkOptionsTemplate, cluster: LocalCluster) -> Object:
    """Return the whole Deployment of the VirtualNode ``obj``, and owned by it."""
    virtual_node = VirtualNode.parse(obj)
    selector = selector_labels(virtual_node)
    labels = {**options.extra_labels, **selector}
    template: Object = {
        "metadata": {
            "labels": labels,
            "annotations": {
                **options.extra_annotations,
                keys.OFFLOADING_PATCH_HASH: patch_hash(obj["spec"].get("offloadingPatch") or {}),
            },
        },
        "spec": _pod_spec(virtual_node, options, cluster),
    }
    metadata: Object = {
        "labels": {**labels, keys.LIQO_MANAGED: "true"},
        "annotations": dict(options.extra_annotations),
        "ownerReferences": [objects.owner_reference(keys.VIRTUAL_NODE, obj)],
    }
    key = Key(virtual_node.namespace, naming.vk_deployment(virtual_node.name))
    spec = {
        "replicas": options.replicas,
        "selector": {"matchLabels": selector},
        "template": template,
    }
    return objects.named(keys.DEPLOYMENT, key, metadata=metadata, spec=spec)


def selector_labels(virtual_node: VirtualNode) -> dict[str, str]:
    return {
        keys.COMPONENT: keys.VIRTUAL_KUBELET,
        keys.REMOTE_CLUSTER_ID: virtual_node.cluster_id,
        keys.VIRTUAL_NODE_LABEL: virtual_node.name,
    }


def patch_hash(offloading_patch: Object) -> str:
    """Return the annotation value that rolls the pods out when ``offloading_patch`` changes."""
    text = objects.canonical(offloading_patch)
    return hashlib.sha256(text.encode()).hexdigest()


def metrics_addresses(options: VkOptionsTemplate) -> dict[str, ListenAddress]:
    """Return where each container serves its metrics; nowhere unless the template enables it.

    Raises:
        ValueError: the template's address cannot be read, or names a port that is used.
    """
    given = listen_address(options.metrics_address) if options.metrics_enabled else None
    if given is None:
        return {}
    found = {KUBELET: given, REFLECTOR: given._replace(port=given.port + 1)}
    used = sorted([*HEALTH_PORTS.values(), keys.KUBELET_PORT])
    if not (0 < given.port < MOST_PORT) or {each.port for each in found.values()} & {*used}:
        raise ValueError(
            f"{options.metrics_address!r:.80}: the metrics need this port and the next, which "
            f"have to be from 1 to {MOST_PORT} and none of {', '.join(map(str, used))}"
        )
    return found


def _pod_spec(
    virtual_node: VirtualNode, options: VkOptionsTemplate, cluster: LocalCluster
) -> Object:
    flags = {
        KUBELET: kubelet_arguments(virtual_node, options, cluster),
        REFLECTOR: reflector_arguments(virtual_node, options, cluster),
    }
    metrics = metrics_addresses(options)
    spec: Object = {
        "serviceAccountName": virtual_node.name,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(name, options, flags[name], metrics.get(name)) for name in flags],
        "volumes": [{"name": _SCRATCH, "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }
    placement = {
        "imagePullSecrets": list(options.image_pull_secrets),
        "tolerations": list(options.tolerations),
        "nodeSelector": options.node_selector,
        "affinity": options.affinity,
        "priorityClassName": options.priority_class_name,
    }
    return spec | {name: value for name, value in placement.items() if value}


def _container(
    name: str, options: VkOptionsTemplate, flags: list[str], metrics: ListenAddress | None
) -> Object:
    port = HEALTH_PORTS[name]
    ports = [_port(f"{name}-health"[:15], port)]
    if name == KUBELET:
        ports.insert(0, _port("kubelet-api", keys.KUBELET_PORT))
    serving = [f"--health-port={port}"]
    if metrics is not None:
        ports.append(_port(METRICS_PORTS[name], metrics.port))
        serving.append(f"--metrics-address={metrics}")
    container: Object = {
        "name": name,
        "image": options.container_image,
        "imagePullPolicy": options.pull_policy,
        "command": ["python3", "-m", name],
        "args": [*flags, *serving],
        "env": _environment(),
        "ports": ports,
        "livenessProbe": _probe("/livez", port, failures=6),
        "readinessProbe": _probe("/readyz", port, failures=3),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": _SCRATCH, "mountPath": "/tmp"}],  # noqa: S108  # its own memory
    }
    if options.resources:
        container["resources"] = options.resources
    return container


def _port(name: str, number: int) -> Object:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _environment() -> list[Object]:
    paths = {
        "POD_IP": "status.podIP",
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "VIRTUALNODE_NAME": f"metadata.labels['{keys.VIRTUAL_NODE_LABEL}']",
    }
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in paths.items()
    ]


def _probe(path: str, port: int, *, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "periodSeconds": 5,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }
