"""``/metrics`` of a daemon: by TLS, for those whom the API server lets get it.

The web framework is imported by those alone who serve them: it is 1 MiB.
Source: docs/parity.md SEC-I7, SEC-E3.
"""

import contextlib
import socket
from collections.abc import AsyncIterator

from apis.networks import ListenAddress
from certs import childprocess
from kube.authz import Authorizer
from kube.cluster import Cluster


@contextlib.asynccontextmanager
async def served(address: ListenAddress | None, cluster: Cluster) -> AsyncIterator[int]:
    """Serve the metrics of this process while inside; give the port, 0 for no ``address``.

    ``cluster`` is asked who may read them. The certificate is made at the start and kept in memory
    only: nobody can know its authority, as with kubelets that are given none.
    """
    if address is None:
        yield 0
        return
    # The web framework, see above.
    from certs.listener import Most, Server, metrics_application  # noqa: PLC0415

    page = metrics_application(Authorizer(cluster))
    server = Server(page, address.port, address.host or None, most=Most(in_all=128, of_source=32))
    await server.trust("")
    await server.certify(await childprocess.own(socket.gethostname()))
    try:
        yield server.port
    finally:
        await server.close()
