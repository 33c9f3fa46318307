"""What a reconciler wrote last, for as long as its cache is behind."""

from apis import objects
from apis.objects import Key, Object
from kube.slim import Packed


class Written:
    """What we wrote and the cache has not shown yet, lest the same be written again.

    In a burst that is hundreds of objects, of 16 KiB each as a dict: they are kept packed.
    """

    def __init__(self) -> None:
        self._made: dict[Key, tuple[set[str], Packed]] = {}

    def add(self, before: Object, made: Object) -> None:
        """Remember that ``made`` came of ``before``."""
        older, _ = self._made.get(objects.key_of(made), (set(), None))
        self._made[objects.key_of(made)] = ({*older, _version(before)}, Packed.of(made))

    def newest(self, key: Key, cached: Object | None) -> Object | None:
        """Return ``cached``, or what we made of that very version since."""
        older, made = self._made.get(key, (set(), None))
        if made is not None and cached is not None and _version(cached) in older:
            return made.whole()
        self._made.pop(key, None)
        return cached

    def forget(self, key: Key) -> None:
        """Forget the object."""
        self._made.pop(key, None)


def _version(obj: Object) -> str:
    return str(obj["metadata"].get("resourceVersion", ""))
