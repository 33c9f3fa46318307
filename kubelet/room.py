"""What caches keep of a pod of the node, and what it asks for beside others."""

from typing import Self

import msgspec

from apis.objects import Object
from kube.slim import Packed
from kubelet.forge import admittance
from kubelet.forge.admittance import Claim


class PodHere(Packed, gc=False, frozen=True):
    """A pod bound to the node; its claim is kept, so that nobody decodes all pods for one."""

    claim: Claim | None = None
    """What it takes of the node; None of one that has ended."""

    @classmethod
    def cached(cls, obj: Object) -> Self:
        """Return what a cache keeps of ``obj``."""
        return msgspec.structs.replace(super().cached(obj), claim=admittance.claim(obj))
