"""What a virtual kubelet is told by the arguments of its two containers.

They come from the VkOptionsTemplate and from the VirtualNode's own fields only.
Source: docs/parity.md § 5.1; SEC-C4.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from apis import keys, objects, reflection
from apis.objects import Object
from apis.offloading import VirtualNode, VkOptionsTemplate
from apis.remap import Network

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
    """What every virtual kubelet of this cluster is told."""

    cluster_id: str
    liqo_namespace: str = keys.LIQO_NAMESPACE
    fabric: Callable[[], Fabric | None] = lambda: None
    """None where no IP fabric joins the clusters."""
    own_networks: tuple[str, ...] = ()
    """Of this cluster's pods and Services, as flags name them."""
    pod_networks: Callable[[VirtualNode], Sequence[Network]] = lambda _: ()
    """Those that the Identity of the provider names, in which its pods are."""
    siblings: Callable[[VirtualNode], Sequence[VirtualNode]] = lambda node: (node,)
    """The virtual nodes of its provider, by name and itself among them: one reflector leads."""


def fabric(networks: Iterable[Object], ips: Iterable[Object]) -> Fabric:
    """Return what ``networks`` of pods and ``ips`` of API servers say.

    Shape: Network and IP of ``ipam.liqo.io``; those that say nothing yet are left out.
    """
    pods = {str(objects.spec(each).get("cidr") or "") for each in networks}
    servers = {str(objects.status(each).get("ip") or "") for each in ips}
    return Fabric(*(tuple(sorted(filter(None, found))) for found in (pods, servers)))


def unknown(extra: Iterable[str]) -> list[str]:
    """Return the arguments of ``extra`` that neither container takes."""
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


def of_kubelet(
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
    if (found := cluster.fabric()) is not None:
        arguments += ["--ip-fabric=true"]
        arguments += [f"--home-api-server-ip={address}" for address in found.api_servers]
    arguments += [f"--own-network={network}" for network in cluster.own_networks]
    arguments += [f"--pod-network={network}" for network in cluster.pod_networks(virtual_node)]
    awaited = [row.name for row in reflection.AWAITED]
    arguments += _workers(options, ["pod", *awaited])
    arguments += _policies(options, awaited)
    return _with_extra(arguments, options, KUBELET)


def of_reflector(
    virtual_node: VirtualNode, options: VkOptionsTemplate, cluster: LocalCluster
) -> list[str]:
    """Return the arguments of the container that reflects what pods need."""
    arguments = _shared(virtual_node, options, cluster)
    nodes = cluster.siblings(virtual_node)
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
    if (found := cluster.fabric()) is not None:
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
