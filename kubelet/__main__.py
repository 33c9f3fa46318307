"""The process ``kubelet``: one virtual node, led by one of the pods ``vk-<virtualnode>``."""

import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from apis import keys
from apis.objects import Key
from certs import metricsserver
from kube import client, peer, process
from kube.lease import Election
from kube.process import Process
from kubelet import options
from kubelet.options import KubeletOptions
from kubelet.setup import VirtualKubelet


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal ends it; return the exit code."""
    chosen = options.parse(argv)
    instance = os.environ.get("POD_NAME") or chosen.node_name
    return process.run(
        lambda running: _run(chosen, instance, running),
        name="kubelet",
        health_port=chosen.health_port,
        settings={name: str(value) for name, value in asdict(chosen).items()},
    )


async def _run(chosen: KubeletOptions, instance: str, running: Process) -> None:
    connected: list[bool] = []
    running.health.ready_when("kubeconfig", lambda: bool(connected))
    secret = Key(chosen.tenant_namespace, chosen.kubeconfig_secret)
    agent = f"pyliqo-kubelet/{process.own_version()}"
    async with (
        client.connect(chosen.kubeconfig, user_agent=agent) as home,
        metricsserver.served(chosen.metrics_address, home),
        peer.follow(home, secret, user_agent=agent) as provider,
    ):
        connected.append(True)
        virtual = Key(chosen.tenant_namespace, chosen.node_name)
        owner = functools.partial(home.get_live, keys.VIRTUAL_NODE, virtual)
        election = Election(home, virtual, instance, owner=owner)

        def loops() -> VirtualKubelet:
            return VirtualKubelet(chosen, instance, home, provider, lambda: election.is_leader)

        await election.lead(lambda: loops().run(running))


if __name__ == "__main__":
    sys.exit(main())
