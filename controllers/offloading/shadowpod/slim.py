"""The parts of ShadowPods and Pods that are needed at every look: caches keep nothing else.

Of a spec that is what the pod takes. The rest is read from the server once, when its Pod is
created; 10,000 whole pods take 460 MiB.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from apis import keys, objects
from apis.objects import Key, Kind, Object
from kube.informer import Change, Informer

Find: TypeAlias = Callable[[Kind, Key], Awaitable[Object | None]]
"""As ``Cluster.get``, but what is found may lack its spec, and a cache may not have it yet."""


FRESH_S: Final = 90.0
"""A cache that heard of its server so lately is good enough to create from."""
_MOST: Final = 4096
"""More Pods than end and go before somebody looks."""
_EMPTY: Final = msgspec.Raw(b"{}")
_OF_PODS: Final = ("resources", "overhead", "runtimeClassName")
_NO_LIST: Final = "not a list"
"""Stands for what cannot be read: anybody who asks what it takes is told so."""
_OF_CONTAINERS: Final = ("name", "resources", "restartPolicy")


class ShadowPodMeta(objects.Meta, gc=False, frozen=True, omit_defaults=True):
    """The metadata that decides."""

    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "namespace", sys.intern(self.namespace))
        for name in ("labels", "annotations"):  # the same of many pods
            msgspec.structs.force_setattr(self, name, objects.shared(getattr(self, name)))


class PodStatus(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """How far a Pod is."""

    phase: str = ""


class ShadowStatus(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """What a ShadowPod shows."""

    phase: str = ""
    observed_generation: int = 0
    conditions: list[dict[str, Any]] | None = None


class SlimPod(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A Pod without its spec, but for what it takes and where it is."""

    metadata: ShadowPodMeta
    status: PodStatus = PodStatus()
    spec: msgspec.Raw = _EMPTY
    node: str = msgspec.field(default="", name="-node")

    def __post_init__(self) -> None:
        spec = _read(self.spec)
        node = spec.get("nodeName") if isinstance(spec, dict) else ""
        msgspec.structs.force_setattr(self, "node", sys.intern(str(node or "")))
        _shrink(self, spec)

    def needs(self) -> Object:
        """Return what is left of the spec: Shape: a PodSpec."""
        return _decoded(self.spec)


class SlimShadow(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A ShadowPod without its spec, but for what it takes."""

    metadata: ShadowPodMeta
    status: ShadowStatus = ShadowStatus()
    spec: msgspec.Raw = _EMPTY
    waiting: bytes | None = msgspec.field(default=None, name="-waiting")
    """The whole spec of one that shows no phase yet: its Pod is created from it."""

    def __post_init__(self) -> None:
        if not self.status.phase:
            msgspec.structs.force_setattr(self, "waiting", bytes(self.spec))
        spec = _read(self.spec)
        _shrink(self, spec.get("pod") if isinstance(spec, dict) else spec)

    def needs(self) -> Object:
        """Return what is left of ``spec.pod``: Shape: a PodSpec, unless no webhook checked it."""
        return _decoded(self.spec)


def _shrink(obj: SlimPod | SlimShadow, spec: Any) -> None:
    """Keep of ``spec`` what decides what the pod takes; no schema has vouched for it."""
    kept = msgspec.Raw(msgspec.json.encode(_needs(spec)))
    msgspec.structs.force_setattr(obj, "spec", objects.shared(kept))


def _read(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _needs(spec: Any) -> Object:
    if not isinstance(spec, dict):
        return {"containers": _NO_LIST}
    kept: Object = {name: spec[name] for name in _OF_PODS if spec.get(name)}
    for field in ("containers", "initContainers"):
        listed = spec.get(field)
        if isinstance(listed, list):
            kept[field] = [_needed(container) for container in listed]
        elif listed:
            kept[field] = _NO_LIST
    return kept


def _needed(container: Any) -> Any:
    if not isinstance(container, dict):
        return 0
    return {name: container[name] for name in _OF_CONTAINERS if container.get(name)}


def _decoded(raw: msgspec.Raw) -> Object:
    return msgspec.json.decode(raw, type=dict[str, Any])


class FinalPhases:
    """How Pods ended, as they were seen to: one may be gone before a worker looks at it.

    How the containers of a Pod end that is being deleted is no end of its work.
    """

    def __init__(self, pods: Informer[SlimPod] | None = None) -> None:
        self._phases: dict[str, str] = {}
        if pods:
            pods.subscribe(self._on_pod)

    def of(self, shadow: Mapping[str, Any]) -> str:
        """Return the final phase of the Pod of ``shadow``; empty while none was seen."""
        return self._phases.get(shadow["metadata"].get("uid", ""), "")

    def forget(self, shadow: Mapping[str, Any]) -> None:
        self._phases.pop(shadow["metadata"].get("uid", ""), None)

    def _on_pod(self, change: Change[SlimPod]) -> None:
        pod = change.new
        if (
            pod is None
            or pod.status.phase not in objects.FINAL_PHASES
            or pod.metadata.deletion_timestamp
        ):
            return
        for owner in pod.metadata.owner_references or ():
            if owner.get("controller"):
                self._phases[str(owner.get("uid"))] = pod.status.phase
        while len(self._phases) > _MOST:
            self._phases.pop(next(iter(self._phases)))


def seen(shadows: Informer[SlimShadow], pods: Informer[SlimPod]) -> Find:
    async def found(kind: Kind, key: Key) -> Object | None:
        cached = pods.get(key) if kind == keys.POD else shadows.get(key)
        if cached is None:
            return None
        return {
            "metadata": msgspec.to_builtins(cached.metadata),
            "status": msgspec.to_builtins(cached.status),
            **(_whole(cached) if shadows.age_s() < FRESH_S else {}),
        }

    return found


def _whole(cached: SlimPod | SlimShadow) -> Object:
    spec = (
        _read(msgspec.Raw(cached.waiting))
        if isinstance(cached, SlimShadow) and cached.waiting
        else None
    )
    return {"spec": spec} if isinstance(spec, dict) and isinstance(spec.get("pod"), dict) else {}
