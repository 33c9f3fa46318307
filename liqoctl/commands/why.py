"""``liqoctl why``."""

import click

from apis.objects import Key
from liqoctl import lazy, options
from liqoctl.lazy import Side


@options.verb("liqoctl why pod web-0 -n foo", "liqoctl why namespace foo")
def why() -> None:
    """Explain where a pod runs, or how a namespace is offloaded.

    Reads only. The verdict is one sentence; what it rests on and what to do follow.
    """


POD_EXAMPLES = options.examples(
    "liqoctl why pod web-5d9c7b6f4-x2x8z -n foo",
    "liqoctl why pod web -n foo                  # refused: name what should have created it",
    "liqoctl why pod web-0 -n foo -o json | jq -r .verdict",
)


@why.command("pod", epilog=POD_EXAMPLES)
@click.argument("name", shell_complete=options.names_of("pod"))
@options.TEXT_OUTPUT
@options.on_cluster()
async def why_pod(side: Side, name: str, output: str) -> None:
    """Explain why a pod runs where it does, waits, or was refused.

    Tells how its namespace is offloaded, which nodes match the pod now and what keeps it off the
    others, what the provider said, what of the objects that the pod mentions its provider has not,
    and what to do. A pod that was refused does not exist: its name,
    or that of its ReplicaSet, Job, StatefulSet or Deployment, finds the refusal by its events.

    Exit status: 0 when the pod or a refusal is found, else 1.
    """
    lazy.why.show(await lazy.why.pod(side.cluster, Key(side.namespace, name)), output)


NAMESPACE_EXAMPLES = options.examples(
    "liqoctl why namespace foo",
    "liqoctl why ns foo -o json | jq -r .outcome",
)


@why.command("namespace", epilog=NAMESPACE_EXAMPLES)
@click.argument("name", shell_complete=options.names_of("namespace"))
@options.TEXT_OUTPUT
@options.on_cluster()
async def why_namespace(side: Side, name: str, output: str) -> None:
    """Explain how a namespace is offloaded: to which clusters, and what is wrong.

    Tells strategy, selector and phase, the reason of each cluster, which nodes its pods may go to,
    which pods were refused here or by a provider, and what to do.

    Exit status: 0 when the namespace is found, else 1.
    """
    await lazy.clusters.check_installed(side)
    lazy.why.show(await lazy.why.namespace(side.cluster, name), output)
