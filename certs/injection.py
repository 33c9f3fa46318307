"""Tells the API servers whom to trust: the bundle, in each webhook of both configurations."""

import base64
import logging
from typing import Final

from apis import keys
from apis.objects import Key, Kind, Object, named
from certs import rotation
from kube.cluster import Cluster

MANAGER: Final = "liqo-injection"
logger = logging.getLogger(__name__)


class InjectionReconciler:
    """Keeps ``clientConfig.caBundle`` of one configuration equal to the stored bundle."""

    def __init__(self, cluster: Cluster, kind: Kind, certs_key: Key) -> None:
        self._cluster = cluster
        self._kind = kind
        self._certs_key = certs_key

    async def reconcile(self, key: Key) -> float | None:
        """Bring the configuration at ``key`` up to date; wait for an event while there is none."""
        configuration = await self._cluster.get(self._kind, key)
        secret = await self._cluster.get(keys.SECRET, self._certs_key)
        trusted = rotation.trusted_in(secret)
        if configuration is None or not trusted:
            return None
        wanted = injected(self._kind, configuration, trusted)
        if wanted is not None:
            await self._cluster.apply(self._kind, wanted, manager=MANAGER)
            fields = {"kind": self._kind.kind, "configuration": key.name}
            logger.info("Injected certificate authorities", extra=fields)
        return None


def injected(kind: Kind, configuration: Object, trusted: bytes) -> Object | None:
    """Return what to apply so that all webhooks trust the bundle; None when they do. Pure."""
    bundle = base64.b64encode(trusted).decode()
    hooks = configuration.get("webhooks") or []
    if all((hook.get("clientConfig") or {}).get("caBundle") == bundle for hook in hooks):
        return None
    key = Key("", configuration["metadata"]["name"])
    applied = [{"name": hook["name"], "clientConfig": {"caBundle": bundle}} for hook in hooks]
    return named(kind, key, webhooks=applied)
