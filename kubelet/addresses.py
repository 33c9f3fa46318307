"""By which addresses pods on the provider are reached, as flags and an IP fabric say."""

import logging

from apis import keys, remap
from apis.objects import Object
from apis.remap import Remap
from kube import errors
from kube.cluster import Selection
from kube.informer import Change, Informer
from kubelet.settings import Settings

logger = logging.getLogger(__name__)


class Addresses:
    """What holds now; a Configuration that changes holds at once, without a restart.

    Source: behaviour.md 1.14, 4.3, 5.5.5.
    """

    def __init__(self, settings: Settings) -> None:
        self._peer, self._flags = settings.foreign_cluster_id, settings.remap
        self._hides = settings.hides_ips
        self._configurations: Informer[Object] = Informer(
            Selection(
                keys.CONFIGURATION,
                Object,
                settings.tenant_namespace,
                labels=f"{keys.REMOTE_CLUSTER_ID}={settings.foreign_cluster_id}",
            ),
            may_lack=(errors.NotFoundError,),
        )
        self._has_fabric = settings.has_fabric and not settings.hides_ips
        self._agreed = Remap()
        self._configurations.subscribe(self._look)

    @property
    def informers(self) -> list[Informer[Object]]:
        """Return what has to be followed: nothing without a fabric."""
        return [self._configurations] if self._has_fabric else []

    def remap(self) -> Remap | None:
        """Return it; None while nobody is to be told any address.

        So it is with a fabric, while neither a Configuration nor flags say how pods are reached.
        """
        known = self._agreed if self._agreed.pairs else self._flags
        is_unknown = self._has_fabric and not known.pairs
        return None if self._hides or is_unknown else known

    def _look(self, _: Change[Object]) -> None:
        try:
            self._agreed = remap.of_peer(self._configurations.items().values(), self._peer)
        except ValueError as error:
            logger.warning(
                "kept the addresses that were agreed before", extra={"error": str(error)}
            )
