"""What kinds look at, in a dict; and the nodes that they look at most."""

from collections.abc import Iterable
from typing import Any

import msgspec

from apis import keys, objects
from apis.objects import Key, Kind, Object
from reflector.kinds.contract import Labelled, Placed
from reflector.kinds.events import Lived


class Seen:
    """Fulfils Lister."""

    def __init__(self, **by_plural: Iterable[Any]) -> None:
        self._items = {plural: list(items) for plural, items in by_plural.items()}

    def get(self, kind: Kind, key: Key) -> Any:
        return next((each for each in self.each(kind) if _key(each) == key), None)

    def recent(self, key: Key) -> Any:
        return self.get(keys.POD, key)

    def each(self, kind: Kind) -> Iterable[Any]:
        return self._items.get(kind.plural, [])


def listed_node(name: str, cluster_id: str = "") -> Labelled:
    """Return a node; with ``cluster_id`` a virtual one."""
    labels = {keys.REMOTE_CLUSTER_ID: cluster_id} if cluster_id else {}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Labelled)


def placed_in_cache(pod: Object) -> Placed:
    """Return ``pod`` as caches keep it."""
    return msgspec.json.decode(msgspec.json.encode(pod), type=Placed)


def lived(pod: Object) -> Lived:
    """Return ``pod`` as Events see it."""
    return msgspec.convert(pod, Lived)


def _key(item: Any) -> Key:
    if isinstance(item, dict):
        return objects.key_of(item)
    return Key(item.metadata.namespace, item.metadata.name)
