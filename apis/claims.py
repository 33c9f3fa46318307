"""Which claims go to a provider: of the virtual class, with their first pod, then with their data.

Source: docs/parity.md § 4.15, 6.9.
"""

from collections.abc import Callable
from dataclasses import dataclass

from apis import keys, objects, ownership, resources
from apis.objects import Object
from apis.reflectionpolicy import NotReflected, UnseenError
from apis.resources import Quantity


@dataclass(frozen=True)
class Storage:
    """What of a provider its claims depend on."""

    cluster_id: str
    is_offered: Callable[[str], bool]
    """Whether its virtual node of that name offers storage."""
    is_node: Callable[[str], bool]
    """Whether the node of that name is one of its virtual nodes."""
    volume: Callable[[str], Object | None]
    """The PersistentVolume of that name at the consumer."""
    virtual_class: str = keys.VIRTUAL_STORAGE_CLASS

    def is_selected(self, claim: Object) -> bool:
        name = selected_node(claim)
        return bool(name) and self.is_node(name)

    def is_refused(self, claim: Object) -> bool:
        """Whether the first pod of ``claim`` goes there, to a virtual node without storage."""
        return self.is_selected(claim) and not self.is_offered(selected_node(claim))

    def has(self, volume: Object) -> bool:
        made_by = objects.annotations(volume).get(keys.PROVISIONED_BY)
        where = ownership.cluster_named_by(volume)
        return made_by == keys.STORAGE_PROVISIONER and where == self.cluster_id

    def holds(self, volume: Object, claim: Object) -> bool:
        """Whether the data of ``claim`` is there, in ``volume``: anybody may name a volume."""
        bound = volume["spec"].get("claimRef") or {}
        return self.has(volume) and bound.get("uid") == objects.uid(claim)


def selected_node(claim: Object) -> str:
    return objects.annotations(claim).get(keys.SELECTED_NODE, "")


def reason_to_stay(claim: Object, storage: Storage) -> NotReflected | None:
    """Return why ``claim`` is no matter of the provider, None when it is.

    Raises:
        UnseenError: it names a volume that is not seen, or not bound to it (yet), which proves
            nothing.
    """
    name = claim["spec"].get("volumeName")
    if claim["spec"].get("storageClassName") != storage.virtual_class:
        return _of_another_class(claim, storage)
    if name:
        return _bound(claim, storage, name)
    if not is_provisioned(claim):
        return NotReflected("nobody has asked for its volume yet", is_told=False)
    if not storage.is_selected(claim):
        return NotReflected("its first pod does not go to the provider", is_told=False)
    if storage.is_refused(claim):
        return NotReflected(f"virtual node {selected_node(claim)} offers no storage", is_told=True)
    return None


def is_provisioned(claim: Object) -> bool:
    annotations = objects.annotations(claim)
    return any(
        annotations.get(one) == keys.STORAGE_PROVISIONER for one in keys.STORAGE_PROVISIONERS
    )


def _of_another_class(claim: Object, storage: Storage) -> NotReflected | None:
    """Check a claim of a class that is not offered (any more): data that is there stays."""
    name, class_ = claim["spec"].get("volumeName"), claim["spec"].get("storageClassName")
    volume = storage.volume(name) if name else None
    if volume is not None and storage.holds(volume, claim):
        return None
    is_of = f"its class is {class_}" if class_ else "it has no class"
    there = storage.cluster_id
    return NotReflected(
        f"{is_of}, not {storage.virtual_class}, so it stays here: pods on {there} use the claim of "
        f"this name there, which only the administrator of {there} makes"
    )


def _bound(claim: Object, storage: Storage, name: str) -> NotReflected | None:
    volume = storage.volume(name)
    if volume is None:
        raise UnseenError(f"persistentvolume {name} of the claim is not there")
    if not storage.has(volume):
        return NotReflected("its volume is not on the provider", is_told=False)
    if not storage.holds(volume, claim):
        raise UnseenError(f"persistentvolume {name} is not bound to this claim (spec.claimRef)")
    return None


# Volumes that stand for others elsewhere ----------------------------------------------------------


def has_grown(capacity: Object | None, *told: Object) -> bool:
    """Whether one of those ``told`` of a volume says less storage than its ``capacity``.

    A capacity that is no amount tells nothing: another cluster may say anything.

    Shape: ``capacity`` is {"storage": quantity}; ``told`` are specs of volumes and statuses of
    claims, each with such a field ``capacity``.
    """
    now = storage_of(capacity)
    return any(storage_of(each.get("capacity")) < now for each in told)


def storage_amount(capacity: Object | None) -> Object:
    """Return what may be told of another volume: the storage of ``capacity``, as we write it."""
    return {"storage": str(storage_of(capacity))}


def storage_of(amounts: Object | None) -> Quantity:
    """Return how much storage a ResourceList says; 0 for a value that is not an amount."""
    return resources.readable(amounts or {}).get("storage", Quantity())
