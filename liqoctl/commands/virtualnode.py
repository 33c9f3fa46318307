"""``liqoctl create virtualnode`` and ``liqoctl delete virtualnode``."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from apis.objects import Key
from liqoctl import lazy, options
from liqoctl.forge import virtualnode as forge
from liqoctl.lazy import Client, Progress
from liqoctl.options import Session, create, delete

Function = TypeVar("Function", bound=Callable[..., Any])


def _classes(kind: str) -> Callable[[Function], Function]:
    help_ = f"{kind} classes that the provider offers; the first is the default."
    return click.option(f"--{kind}-classes", multiple=True, help=help_)


CREATE_EXAMPLES = options.examples(
    "liqoctl create virtualnode milan --remote-cluster-id milan --kubeconfig-secret-name milan",
    "liqoctl create vn milan --remote-cluster-id milan --kubeconfig-secret-name milan \\",
    "    --cpu 8 --memory 16Gi --pods 200 --resource nvidia.com/gpu=2 --labels region=europe",
    "liqoctl create vn pool --remote-cluster-id milan --resource-slice-name pool",
    "liqoctl create vn milan --remote-cluster-id milan --kubeconfig-secret-name milan -o yaml",
)


@create.command("virtualnode", epilog=CREATE_EXAMPLES)
@click.argument("name", type=options.NAME)
@click.option("--remote-cluster-id", required=True, help="Cluster ID of the provider.")
@click.option("--kubeconfig-secret-name", help="Secret with the kubeconfig for the provider.")
@click.option("--resource-slice-name", help="ResourceSlice to take resources and classes from.")
@options.switch("--create-node", default=True, show_default=True, help="Make a Node for it.")
@click.option(
    "--disable-network-check/--enable-network-check",
    default=False,
    show_default=True,
    help="Do not check the network between the clusters.",
)
@click.option(
    "--vk-options-template",
    metavar="NAMESPACE/NAME",
    help="VkOptionsTemplate to use.  [default: liqo/virtual-kubelet-default]",
)
@click.option(
    "--cpu", type=options.AMOUNT, default="2", show_default=True, help="CPUs of the node."
)
@click.option(
    "--memory", type=options.AMOUNT, default="4Gi", show_default=True, help="Memory of the node."
)
@click.option(
    "--pods", type=options.AMOUNT, default="110", show_default=True, help="Pods of the node."
)
@click.option("--resource", type=options.Amounts(), multiple=True, help="Other resources.")
@_classes("storage")
@_classes("ingress")
@_classes("load-balancer")
@click.option("--labels", type=options.KeyValues(), multiple=True, help="Labels of the node.")
@click.option(
    "--node-selector", type=options.KeyValues(), multiple=True, help="Nodes of the provider to use."
)
@click.option("--runtime-class-name", default="", help="Runtime class of pods on the provider.")
@click.option(
    "--timeout", type=options.Duration(), default="2m", show_default=True, help="How long to wait."
)
@options.OUTPUT
@options.global_flags
def create_virtualnode(
    name: str, session: Session, timeout: float, output: str | None, **given: Any
) -> None:
    """Create a virtual node: a Node here that stands for another cluster.

    It belongs into the tenant namespace of the peering (-n, or found by its labels), next to the
    Secret with the kubeconfig.
    """
    wanted = _wanted(name, session, _VirtualNodeFlags(**given))
    if output and not wanted.namespace:  # printing reads no cluster
        wanted = forge.in_tenant_namespace(wanted)

    async def work(cluster: Client, progress: Progress) -> None:
        if output:
            made = await lazy.virtualnode.manifest(cluster, wanted)
            lazy.output.dump([forge.printed(made)], output)
        else:
            await lazy.virtualnode.create(cluster, progress, wanted, timeout_s=timeout)

    if output and not wanted.slice_name:  # only the resources of a slice need a cluster
        lazy.output.dump([forge.printed(forge.from_flags(wanted))], output)
    else:
        lazy.clusters.run(session, work)


@dataclass(frozen=True)
class _VirtualNodeFlags:
    """The flags of ``create virtualnode`` as click names them."""

    remote_cluster_id: str
    kubeconfig_secret_name: str | None
    resource_slice_name: str | None
    create_node: bool
    disable_network_check: bool
    vk_options_template: str | None
    cpu: str
    memory: str
    pods: str
    resource: tuple[dict[str, str], ...]
    storage_classes: tuple[str, ...]
    ingress_classes: tuple[str, ...]
    load_balancer_classes: tuple[str, ...]
    labels: tuple[dict[str, str], ...]
    node_selector: tuple[dict[str, str], ...]
    runtime_class_name: str


def _wanted(name: str, session: Session, given: _VirtualNodeFlags) -> forge.VirtualNodeOptions:
    if bool(given.kubeconfig_secret_name) == bool(given.resource_slice_name):
        raise click.UsageError("give either --kubeconfig-secret-name or --resource-slice-name")
    hard = {"cpu": given.cpu, "memory": given.memory, "pods": given.pods}
    classes = {
        "storageClasses": options.comma_items(given.storage_classes),
        "ingressClasses": options.comma_items(given.ingress_classes),
        "loadBalancerClasses": options.comma_items(given.load_balancer_classes),
    }
    return forge.VirtualNodeOptions(
        name=name,
        namespace=session.namespace,
        cluster_id=given.remote_cluster_id,
        create_node=given.create_node,
        disable_network_check=given.disable_network_check,
        kubeconfig_secret=given.kubeconfig_secret_name or "",
        slice_name=given.resource_slice_name or "",
        template=_template(given.vk_options_template),
        hard={**hard, **options.merged_pairs(given.resource)},
        classes=classes,
        labels=options.merged_pairs(given.labels),
        node_selector=options.merged_pairs(given.node_selector),
        runtime_class=given.runtime_class_name,
        metadata=session.metadata,
        left_out=options.left_out(
            create_node="createNode", disable_network_check="disableNetworkCheck",
            cpu="cpu", memory="memory", pods="pods",
        ),
    )  # fmt: skip


def _template(text: str | None) -> Key | None:
    if text is None:
        return None
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise click.BadParameter(f"{text!r} is not NAMESPACE/NAME", param_hint="template")
    return Key(namespace, name)


DELETE_EXAMPLES = options.examples(
    "liqoctl delete virtualnode milan",
    "liqoctl delete vn milan -n liqo-tenant-milan --skip-confirm",
)


@delete.command("virtualnode", epilog=DELETE_EXAMPLES)
@click.argument("name", shell_complete=options.names_of("virtual node"))
@options.STANDSTILL
@options.global_flags
def delete_virtualnode(name: str, timeout: float, session: Session) -> None:
    """Delete a virtual node: its pods are evicted, then the Node goes.

    It is looked for in all namespaces, unless -n says in which.
    """
    deletion = lazy.virtualnode.NodeDeletion(functools.partial(options.confirm, session), timeout)

    async def work(cluster: Client, progress: Progress) -> None:
        await lazy.virtualnode.delete(cluster, progress, Key(session.namespace, name), deletion)

    lazy.clusters.run(session, work)
