"""ResourceSlices as flags ask for them, and as tables show them. Pure.

Source: docs/parity.md § 1.8, 7.6.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from apis import keys, naming, objects, ownership, resources, slices
from apis.objects import Key, Object

HEADER = (
    "NAME", "PEER", "ACTION", "CLASS", "AUTHENTICATION", "RESOURCES", "CPU", "MEMORY", "PODS",
)  # fmt: skip
NODE_HEADER = ("NAME", "CLUSTERID", "SLICE", "NODE", "VIRTUALKUBELET", "CPU", "MEMORY", "PODS")
_SHOWN = ("cpu", "memory", "pods")
_NONE = "-"


@dataclass(frozen=True)
class SliceOptions:
    """What the flags say."""

    name: str
    namespace: str
    remote_cluster_id: str
    class_: str = slices.DEFAULT_CLASS
    """Empty: as it is, else the default one."""
    resources: Mapping[str, str] = field(default_factory=dict)
    makes_node: bool = True
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    """The fields above that no flag names, but have their defaults."""

    @property
    def where(self) -> Key:
        return Key(self.namespace or naming.tenant_namespace(self.remote_cluster_id), self.name)


def named(wanted: SliceOptions) -> Object:
    """Return of the ResourceSlice ``wanted`` what flags name: all that is changed of one."""
    made = manifest(wanted)
    if "class_" in wanted.left_out or not wanted.class_:
        del made["spec"]["class"]
    if "makes_node" in wanted.left_out:
        del made["metadata"]["annotations"][keys.CREATE_VIRTUAL_NODE]
    return made


def manifest(wanted: SliceOptions) -> Object:
    """Return the ResourceSlice; without the annotation a virtual node would be made of it."""
    given, provider = wanted.metadata, wanted.remote_cluster_id
    spec: Object = {"class": wanted.class_ or slices.DEFAULT_CLASS}
    if wanted.resources:
        spec["resources"] = dict(wanted.resources)
    behind = {keys.REMOTE_CLUSTER_ID: provider, **ownership.original(provider)}
    named: Object = {"labels": {}, **given}
    named["labels"] = {**named["labels"], **behind}
    spec["providerClusterID"] = provider
    made = objects.named(keys.RESOURCE_SLICE, wanted.where, metadata=named, spec=spec)
    notes = made["metadata"].get("annotations", {})
    answer = "true" if wanted.makes_node else "false"
    made["metadata"]["annotations"] = {**notes, keys.CREATE_VIRTUAL_NODE: answer}
    return made


_QUESTIONS = (slices.AUTHENTICATION, slices.RESOURCES)


def answers(resource_slice_: Object | None) -> dict[str, str]:
    """Return what the provider said to a slice: {Authentication: Accepted, ...}."""
    found = objects.status(resource_slice_).get("conditions") or []
    return {str(each["type"]): str(each["status"]) for each in found}


def told_answers(resource_slice_: Object | None) -> str:
    said = answers(resource_slice_).items()
    return ", ".join(f"{type_} {status}" for type_, status in said) or "nothing is said yet"


def is_answered(resource_slice_: Object | None) -> bool:
    """Whether the provider said yes or no to both questions, or no to the first."""
    said = answers(resource_slice_)
    return said.get("Authentication") == "Denied" or {"Authentication", "Resources"} <= said.keys()


def answer(obj: Object | None, type_: str) -> tuple[str, str]:
    found = objects.condition(obj, type_)
    return str(found.get("status", "")), str(found.get("message", ""))


def grant(obj: Object | None) -> str:
    """Return what was granted, and in the provider's words by which class."""
    amounts = objects.status(obj).get("resources") or {}
    listed = ", ".join(f"{name} {amount}" for name, amount in sorted(amounts.items())) or "nothing"
    _, why = answer(obj, slices.RESOURCES)
    return f"granted {listed} ({why})" if why else f"granted {listed}"


def is_stale(obj: Object | None, before: Object | None) -> bool:
    """Whether the answer in ``obj`` is the one of ``before``, which asked for something else.

    The answer names no generation: one that differs, or has the very amounts, is new.
    """
    if before is None or obj is None:
        return False
    old, new = objects.spec(before), objects.spec(obj)
    if all(old.get(name) == new.get(name) for name in ("class", "resources")):
        return False
    if _answered(obj) != _answered(before):
        return False
    asked = resources.readable(new.get("resources") or {})
    given = resources.readable(objects.status(obj).get("resources") or {})
    has_all = all(given.get(name) == amount for name, amount in asked.items())
    return not has_all or old.get("class") != new.get("class")


def _answered(obj: Object) -> tuple[object, object]:
    return objects.status(obj).get("resources"), objects.condition(obj, slices.RESOURCES)


def row(obj: Object) -> tuple[str, ...]:
    spec, is_replica = objects.spec(obj), ownership.is_foreign(obj)
    return (
        obj["metadata"]["name"],
        ownership.named_by(obj) or spec.get("providerClusterID") or _NONE,
        "Providing" if is_replica else "Consuming",
        spec.get("class") or _NONE,
        *(slices.answer(obj, type_) or _NONE for type_ in _QUESTIONS),
        *_amounts(objects.status(obj).get("resources")),
    )


def node_row(obj: Object) -> tuple[str, ...]:
    spec = objects.spec(obj)
    listed = objects.status(obj).get("conditions") or []
    states = {one.get("type"): one.get("status") for one in listed}
    return (
        obj["metadata"]["name"],
        spec.get("clusterID") or _NONE,
        slices.of_virtual_node(obj) or _NONE,
        *(str(states.get(type_) or _NONE) for type_ in ("Node", "VirtualKubelet")),
        *_amounts((spec.get("resourceQuota") or {}).get("hard")),
    )


def _amounts(given: Mapping[str, object] | None) -> tuple[str, ...]:
    return tuple(str((given or {}).get(name, _NONE)) for name in _SHOWN)


def is_remade(obj: Object) -> bool:
    """Whether a VirtualNode is one that its slice makes again when it is deleted."""
    owner = objects.controller_of(obj)
    return owner is not None and owner["kind"] == keys.RESOURCE_SLICE.kind
