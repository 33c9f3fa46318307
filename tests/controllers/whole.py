"""One controller as the controller manager runs it: its informers, its queue, its loops."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from apis import keys
from controllers.granting.grants.forge.grants import GrantDefaults
from controllers.manager import Controller, Informers, Limits, Manager
from kube import clock
from kube.cache import CachedCluster
from kube.cluster import Cluster
from kube.events import EventRecorder
from tests.kube.running import running


@contextlib.asynccontextmanager
async def controlling(
    cluster: Cluster, controller: Controller, limits: Limits | None = None
) -> AsyncIterator[None]:
    """Run ``controller`` on ``cluster``, which is called milan, as the one leader."""
    cached = CachedCluster(cluster)
    unused: Any = None
    manager = Manager(
        live=cluster,
        cached=cached,
        informers=Informers(cached),
        cluster_id="milan",
        namespace=keys.LIQO_NAMESPACE,
        events=EventRecorder(cluster, "tests", "tests"),
        clock=clock.now,
        user_agent="tests",
        limits=limits or Limits(),
        standard=GrantDefaults(),
        may_write=lambda: True,
        issuer=unused,
        private_key=b"",
    )
    term = controller(manager)
    async with running(*(informer.run(cluster) for informer in manager.informers.all())):
        await manager.informers.wait()
        async with running(*(one.run() for one in term())):
            yield
