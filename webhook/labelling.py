"""Labels a namespace that is about to be offloaded, so that its next pod is judged.

API servers go by the label, and learn of it by watches. Who asks is answered when such a watch has
told of it: the NamespaceOffloading is stored, and its creator answered, only after that.
Source: docs/parity.md § 3.2; Kubernetes, "Dynamic Admission Control", "Side effects".
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from apis import keys
from apis.objects import Key, Object, labels
from kube.cluster import Cluster, Selection
from kube.errors import ConflictError, NotReachableError
from webhook.reader import CachedReader
from webhook.rules import namespaces

TRIES: Final = 3
"""Somebody else may write the namespace at the same time."""

logger = logging.getLogger(__name__)


def through(reader: CachedReader) -> Callable[[str, str, float], None]:
    """Return what labels the namespace that it is told, in the name of a UID, within seconds."""

    def label(namespace: str, by: str, seconds: float) -> None:
        async def asked(cluster: Cluster) -> None:
            try:
                async with asyncio.timeout(seconds):
                    await enable(cluster, namespace, by)
            except TimeoutError as error:
                message = f"the label of namespace {namespace} was not told in time"
                raise NotReachableError(message) from error

        reader.call(asked)

    return label


async def enable(cluster: Cluster, namespace: str, by: str) -> None:
    """Label ``namespace``, if that is due; return when watches tell of it.

    Raises:
        KubeError: the namespace cannot be read or written now.
    """
    key = Key("", namespace)
    for _ in range(TRIES):
        found = await cluster.get_live(keys.NAMESPACE, key)
        changes = namespaces.enabled(found, by) if found else None
        if found is None or changes is None:
            return
        try:
            await cluster.patch(keys.NAMESPACE, key, changes)
        except ConflictError:
            continue
        logger.info("Labelled a namespace that is to be offloaded", extra={"key": namespace})
        await _told(cluster, key, found["metadata"]["resourceVersion"])
        return


async def _told(cluster: Cluster, key: Key, since: str) -> None:
    of = Selection(keys.NAMESPACE, Object, fields=f"metadata.name={key.name}")
    async for event in cluster.watch(of, since):
        if event.type != "BOOKMARK" and keys.SCHEDULING_ENABLED in labels(event.object):
            return


class SecretPath:
    """The last segment of the path at which a namespace is labelled: who knows it may ask for that.

    liqo-certs makes it and tells it to API servers alone, beside whom they trust.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self) -> str:
        """Return it; empty while it is absent."""
        try:
            return self._file.read_text().strip()
        except OSError:
            return ""
