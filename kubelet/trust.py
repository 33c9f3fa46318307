"""Whose client certificates the kubelet API accepts: those that the home API server accepts."""

from typing import Final

from apis.objects import Key, Object
from kube.informer import Informer
from kubelet.serving import Server

CLIENT_CA: Final = Key("kube-system", "extension-apiserver-authentication")
CLIENT_CA_FIELD: Final = "client-ca-file"


class TrustReconciler:
    """Lets the kubelet API trust whom the home API server trusts."""

    def __init__(self, config_maps: Informer[Object], server: Server) -> None:
        self._config_maps, self._server = config_maps, server

    async def reconcile(self, key: Key) -> float | None:
        found = self._config_maps.get(key) or {}
        await self._server.trust((found.get("data") or {}).get(CLIENT_CA_FIELD, ""))
        return None
