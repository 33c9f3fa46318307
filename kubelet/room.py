"""What caches keep of a pod of the node, and what it asks for beside others."""

from typing import Self

import msgspec

from apis.objects import Object
from kube.slim import Packed
from kubelet.forge.usage import Measured
from kubelet.pods import decide
from kubelet.pods.decide import NodeClaim


class PodHere(Packed, gc=False, frozen=True):
    """A pod bound to the node; its claim is kept, so that nobody decodes all pods for one."""

    claim: NodeClaim | None = None
    """What it takes of the node; None of one that has ended."""
    measured: Measured | None = None
    """What its metrics need, of one that is kept in outline."""

    @classmethod
    def cached(cls, obj: Object) -> Self:
        """Return what a cache keeps of ``obj``."""
        made = msgspec.structs.replace(super().cached(obj), claim=decide.claim(obj))
        if not made.is_outline:
            return made
        return msgspec.structs.replace(made, measured=Measured.bounded(obj))
