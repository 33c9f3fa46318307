"""What a reconciler wrote last, for as long as its cache is behind."""

from apis import objects
from apis.objects import Key, Object


class Written:
    """What we wrote and the cache has not shown yet, lest the same be written again."""

    def __init__(self) -> None:
        self._made: dict[Key, tuple[set[str], Object]] = {}

    def add(self, before: Object, made: Object) -> None:
        """Remember that ``made`` came of ``before``."""
        older, _ = self._made.get(objects.key_of(made), (set(), None))
        self._made[objects.key_of(made)] = ({*older, _version(before)}, made)

    def newest(self, key: Key, cached: Object | None) -> Object | None:
        """Return ``cached``, or what we made of that very version since."""
        older, made = self._made.get(key, (set(), None))
        if cached is not None and _version(cached) in older:
            return made
        self._made.pop(key, None)
        return cached

    def forget(self, key: Key) -> None:
        """Forget the object."""
        self._made.pop(key, None)


def _version(obj: Object) -> str:
    return str(obj["metadata"].get("resourceVersion", ""))
