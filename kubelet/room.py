"""What the pods of the node ask for, so that nobody decodes all of them for one."""

from collections.abc import Iterable

from apis.objects import Key
from kube.informer import Change, Informer
from kube.slim import Packed
from kubelet.forge import admittance
from kubelet.forge.admittance import Claim


class Room:
    """Follows ``pods``."""

    def __init__(self, pods: Informer[Packed]) -> None:
        self._claims: dict[Key, Claim] = {}
        pods.subscribe(self._on_pod)

    def claims(self) -> Iterable[Claim]:
        """Return what the pods ask for that have not ended."""
        return self._claims.values()

    def _on_pod(self, change: Change[Packed]) -> None:
        claim = admittance.claim(change.new.whole()) if change.new else None
        if claim is None:
            self._claims.pop(change.key, None)
        else:
            self._claims[change.key] = claim
