"""Tells the API servers whom to trust: the bundle, in each webhook of both configurations.

And the door: what ends the path of the one webhook that may write, and that only they may call.
"""

import base64
import binascii
import logging
from collections.abc import Iterable
from typing import Final

from apis import keys
from apis.objects import Key, Kind, Object, named
from certs import rotation
from kube.cluster import Cluster

MANAGER: Final = "liqo-injection"
logger = logging.getLogger(__name__)


class InjectionReconciler:
    """Keeps what ``clientConfig`` says of one configuration equal to what is stored."""

    def __init__(self, cluster: Cluster, kind: Kind, certs_key: Key) -> None:
        self._cluster = cluster
        self._kind = kind
        self._certs_key = certs_key

    async def reconcile(self, key: Key) -> float | None:
        """Bring the configuration at ``key`` up to date; wait for an event while it is absent."""
        configuration = await self._cluster.get(self._kind, key)
        secret = await self._cluster.get(keys.SECRET, self._certs_key)
        trusted = rotation.trusted_in(secret)
        if configuration is None or not trusted:
            return None
        wanted = injected(self._kind, configuration, trusted, rotation.door_in(secret))
        if wanted is not None:
            await self._cluster.apply(self._kind, wanted, manager=MANAGER)
            fields = {"kind": self._kind.kind, "configuration": key.name}
            logger.info("Injected certificate authorities", extra=fields)
        return None


async def trusted(cluster: Cluster, kinds: Iterable[Kind], key: Key) -> bytes:
    """Return whom the API servers trust at the webhooks of the configurations at ``key``."""
    found = [await cluster.get_live(kind, key) for kind in kinds]
    hooks = [hook for one in found if one for hook in one.get("webhooks") or []]
    bundles = dict.fromkeys((hook.get("clientConfig") or {}).get("caBundle") for hook in hooks)
    return b"".join(_decoded(bundle or "") for bundle in bundles)


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle)
    except binascii.Error:
        return b""


def injected(kind: Kind, configuration: Object, trusted: bytes, door: str = "") -> Object | None:
    """Return what to apply so that all webhooks are called right; None when they are. Pure."""
    bundle = base64.b64encode(trusted).decode()
    hooks = configuration.get("webhooks") or []
    wanted = {hook["name"]: {"caBundle": bundle, **_path(hook["name"], door)} for hook in hooks}
    if all(_has(hook.get("clientConfig") or {}, wanted[hook["name"]]) for hook in hooks):
        return None
    key = Key("", configuration["metadata"]["name"])
    applied = [{"name": name, "clientConfig": client} for name, client in wanted.items()]
    return named(kind, key, webhooks=applied)


def _path(hook: str, door: str) -> Object:
    """Return where the webhook that labels is called; of the others the manifests say it."""
    if hook != keys.LABELLING_WEBHOOK or not door:
        return {}
    return {"service": {"path": f"{keys.LABELLING_PATH}/{door}"}}


def _has(client: Object, wanted: Object) -> bool:
    path = (client.get("service") or {}).get("path")
    is_path = "service" not in wanted or path == wanted["service"]["path"]
    return bool(is_path and client.get("caBundle") == wanted["caBundle"])
