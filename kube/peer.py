"""The other cluster, by a kubeconfig in a Secret, and the NamespaceMap by which one offloads to it.

Source: docs/parity.md § 5.2 (1); SEC-B5, SEC-C2.
"""

import asyncio
import base64
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final

from apis import keys, ownership, texts
from apis.objects import Key, Object
from kube import credentials, kubeconfig, metrics
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from kube.credentials import Access
from kube.informer import Informer
from kube.untrusted.decode import PeerDecoder

logger = logging.getLogger(__name__)


class PeerCluster(ClusterClient):
    """The API server of another cluster: what it says is decoded by ``kube.untrusted``."""

    _most_answer, _most_event = 16 * 2**20, 4 * 2**20
    """An API server stores objects of up to 1.5 MiB. Source: etcd, "System limits"."""

    def __init__(self, access: Access, *, user_agent: str) -> None:
        super().__init__(access, user_agent=user_agent, decoder=PeerDecoder(self._tell))
        self._told: set[str] = set()

    def _tell(self, path: str) -> None:
        """Tell of a field that does not fit: each once, and all of them in a metric."""
        metrics.UNFIT.inc()
        if path not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(path)
            fields = {"field": texts.clamp(path, 300), "server": self.access.server}
            logger.warning("Left out what a peer says that does not fit its place", extra=fields)


MOST_TOLD: Final = 100
"""Fields that are told of, of one peer."""
AGAIN_S: Final = 5.0
"""After so long a kubeconfig is taken that could not be, for want of a file descriptor."""


@contextlib.asynccontextmanager
async def follow(home: Cluster, secret: Key, *, user_agent: str) -> AsyncIterator[PeerCluster]:
    """Connect by the kubeconfig in ``secret``, which is waited for, and go on by what it becomes.

    A Secret that vanishes or makes no sense leaves the identity in use that was there. Only this
    very Secret is read: get, list and watch on it by name are all the rights this needs.
    """
    named = f"metadata.name={secret.name}"
    selection = Selection(keys.SECRET, Object, secret.namespace, fields=named)
    informer: Informer[Object] = Informer(selection)
    changed = asyncio.Event()
    informer.subscribe(lambda _: changed.set())
    async with _running(informer.run(home)):
        await informer.synced.wait()
        changed.set()
        first = await _next(informer, secret, changed)
        async with (
            connect(first, user_agent=user_agent) as remote,
            _running(_swap(remote, informer, secret, changed)),
        ):
            yield remote


@contextlib.asynccontextmanager
async def connect(who: Access, *, user_agent: str) -> AsyncIterator[PeerCluster]:
    """Open a client for a peer, as ``who``."""
    remote = PeerCluster(who, user_agent=user_agent)
    try:
        yield remote
    finally:
        await remote.close()


def identity(secret: Object) -> Access:
    """Return who the kubeconfig in ``secret`` says we are.

    Raises:
        kubeconfig.KubeconfigError: the kubeconfig is missing, or says more than it may.
    """
    encoded = (secret.get("data") or {}).get(keys.KUBECONFIG_KEY, "")
    try:
        text = base64.b64decode(encoded, validate=True)
    except ValueError:  # binascii.Error, and what is not ASCII
        raise kubeconfig.KubeconfigError(f"{keys.KUBECONFIG_KEY} is not base64") from None
    if not text:
        raise kubeconfig.KubeconfigError(f"the Secret lacks the key {keys.KUBECONFIG_KEY}")
    return credentials.from_kubeconfig(text)


async def _swap(
    remote: ClusterClient, informer: Informer[Object], secret: Key, changed: asyncio.Event
) -> None:
    while True:
        renewed = await _next(informer, secret, changed)
        if _who(renewed) != _who(remote.access):
            remote.replace(renewed)
            logger.info("Replaced the identity towards the peer", extra={"secret": secret})


def _who(someone: Access) -> tuple[str, str]:
    return someone.digest, someone.authorization


async def _next(informer: Informer[Object], secret: Key, changed: asyncio.Event) -> Access:
    """Wait for a change of the Secret that gives an identity."""
    while True:
        await changed.wait()
        changed.clear()
        found = informer.get(secret)
        if found is None:
            logger.warning("Secret with the kubeconfig is not there", extra={"secret": secret})
            continue
        try:
            return identity(found)
        except OSError as error:  # no file descriptor is left
            fields = {"secret": secret, "reason": str(error)}
            logger.warning("Kubeconfig cannot be taken now", extra=fields)
            await asyncio.sleep(AGAIN_S)
            changed.set()
        except kubeconfig.KubeconfigError as error:
            reason = str(error)
            logger.warning(
                "Kubeconfig is not acceptable", extra={"secret": secret, "reason": reason}
            )


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do ``work`` meanwhile; what it raises ends what is inside, which would go on without it."""
    raised: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        try:
            yield
        except Exception as error:  # noqa: BLE001  # raised below, as it is and in no group
            raised = error
        finally:
            task.cancel()
    if raised is not None:
        raise raised


# The NamespaceMap by which this cluster offloads to one provider ----------------------------------


def map_to_provider(tenant_namespace: str, provider: str) -> Selection[Object]:
    """Return the selection of the one map that goes to ``provider``.

    Where that cluster offloads to this one, too, the replica of its map lies beside ours, with the
    same label for the peer.
    """
    labels = ownership.originals_for(provider)
    return Selection(keys.NAMESPACE_MAP, Object, tenant_namespace, labels=labels)
