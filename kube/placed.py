"""The part of a pod that says where it runs and whether it may: lists of a namespace stay small."""

from typing import Any, Final

import msgspec

from apis import keys
from apis.objects import Object
from kube.cluster import Selection

_ALIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"


class _Meta(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    creationTimestamp: str = ""  # noqa: N815  # as on the wire
    deletionTimestamp: str | None = None  # noqa: N815  # as on the wire
    annotations: dict[str, str] | None = None
    ownerReferences: list[dict[str, Any]] | None = None  # noqa: N815  # as on the wire


class _Spec(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    nodeName: str = ""  # noqa: N815  # as on the wire
    runtimeClassName: str = ""  # noqa: N815  # as on the wire


class PlacedPod(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A pod without its containers."""

    metadata: _Meta
    spec: _Spec = _Spec()

    def built(self) -> Object:
        """Return it as an object."""
        made: Object = msgspec.to_builtins(self)
        return {"spec": {}, **made}


def living(namespace: str) -> Selection[PlacedPod]:
    """Return the selection of the pods of ``namespace`` that have not ended."""
    return Selection(keys.POD, PlacedPod, namespace, fields=_ALIVE)
