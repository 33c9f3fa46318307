"""Whose client certificates the kubelet API accepts: those that the home API server accepts."""

from collections.abc import Awaitable, Callable
from typing import Final

from apis.objects import Key, Object
from kube.informer import Informer

CLIENT_CA: Final = Key("kube-system", "extension-apiserver-authentication")
CLIENT_CA_FIELD: Final = "client-ca-file"


class TrustReconciler:
    """Lets the kubelet API trust whom the home API server trusts."""

    def __init__(
        self, config_maps: Informer[Object], trust: Callable[[str], Awaitable[None]]
    ) -> None:
        self._config_maps, self._trust = config_maps, trust

    async def reconcile(self, key: Key) -> float | None:
        found = self._config_maps.get(key) or {}
        await self._trust((found.get("data") or {}).get(CLIENT_CA_FIELD, ""))
        return None
