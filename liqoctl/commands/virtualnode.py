"""``liqoctl create virtualnode`` and ``liqoctl delete virtualnode``."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click

from apis.objects import Key
from liqoctl import lazy, options
from liqoctl.forge import virtualnode as forge
from liqoctl.lazy import Side
from liqoctl.options import Session, create, delete


def _classes(kind: str) -> Callable[..., Any]:
    def items(_: object, __: object, given: Iterable[str]) -> list[str]:
        return [part.strip() for text in given for part in text.split(",") if part.strip()]

    help_ = f"{kind} classes that the provider offers; the first is the default."
    return click.option(f"--{kind}-classes", multiple=True, callback=items, help=help_)


def _template(_: object, __: object, text: str | None) -> Key | None:
    if text is None:
        return None
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise click.BadParameter(f"{text!r} is not NAMESPACE/NAME", param_hint="template")
    return Key(namespace, name)


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
    callback=_template,
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
@options.pairs("--resource", "Other resources.", options.AMOUNTS)
@_classes("storage")
@_classes("ingress")
@_classes("load-balancer")
@options.pairs("--labels", "Labels of the node.")
@options.pairs("--node-selector", "Nodes of the provider to use.")
@click.option("--runtime-class-name", default="", help="Runtime class of pods on the provider.")
@options.timeout("2m")
@options.OUTPUT
@options.global_flags
def create_virtualnode(session: Session, timeout: float, output: str | None, **given: Any) -> None:
    """Create a virtual node: a Node here that stands for another cluster.

    It belongs into the tenant namespace of the peering (-n, or found by its labels), next to the
    Secret with the kubeconfig.
    """
    if bool(given["kubeconfig_secret_name"]) == bool(given["resource_slice_name"]):
        raise click.UsageError("give either --kubeconfig-secret-name or --resource-slice-name")
    hard = {name: given.pop(name) for name in ("cpu", "memory", "pods")} | given.pop("resource")
    left_out = options.left_out(
        create_node="createNode", disable_network_check="disableNetworkCheck",
        cpu="cpu", memory="memory", pods="pods",
    )  # fmt: skip
    given |= {"namespace": session.namespace, "metadata": session.metadata}
    wanted = forge.VirtualNodeOptions(hard=hard, left_out=left_out, **given)
    if not output:
        work = functools.partial(lazy.virtualnode.create, wanted=wanted, timeout_s=timeout)
        lazy.clusters.run(session, work)
    elif wanted.resource_slice_name:  # only its resources need a cluster
        work = functools.partial(lazy.virtualnode.show, wanted=wanted, form=output)
        lazy.clusters.run(session, work)
    else:
        lazy.output.dump([forge.printed(forge.from_flags(wanted))], output)


DELETE_EXAMPLES = options.examples(
    "liqoctl delete virtualnode milan",
    "liqoctl delete vn milan -n liqo-tenant-milan --skip-confirm",
)


@delete.command("virtualnode", epilog=DELETE_EXAMPLES)
@click.argument("name", shell_complete=options.names_of("virtual node"))
@options.STANDSTILL
@options.on_cluster()
async def delete_virtualnode(side: Side, name: str, timeout: float) -> None:
    """Delete a virtual node: its pods are evicted, then the Node goes.

    It is looked for in all namespaces, unless -n says in which.
    """
    await lazy.virtualnode.delete(side, Key(side.session.namespace, name), timeout)
