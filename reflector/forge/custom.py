"""The twin of a custom resource that an administrator opted in: spec outwards, status back."""

from collections.abc import Iterable
from typing import Any, Final

from apis import objects
from apis.objects import Key, Object
from apis.reflection import OPTIONAL, ReflectedKind
from reflector.forge import twins
from reflector.forge.contract import Forge, Scene, Write

_OWN: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
_OBSERVED: Final = "observedGeneration"


def forge(row: ReflectedKind) -> Forge:
    def twin(local: Object, scene: Scene) -> Object:
        return twins.of(row.twin, local, scene, keep=[name for name in local if name not in _OWN])

    def back(
        key: Key, original: Object | None, twin_: Object | None, _scene: Scene
    ) -> Iterable[Write]:
        if original is None or not (twin_ or {}).get("status"):
            return
        changes = status_changes(original, twin_ or {})
        if changes:
            metadata = {"uid": objects.uid(original)}
            yield Write("status", row.kind, key, {"metadata": metadata, "status": changes})

    lacks = twins.lacks(row.twin)
    if row.kind in OPTIONAL:
        return Forge(row, twin, lacks=lacks)  # each cluster counts the pods that it has
    return Forge(row, twin, lacks=lacks, back=back)


def status_changes(original: Object, twin: Object) -> Object:
    """Return the merge patch that gives ``original`` the status of ``twin``.

    What was observed of the twin's latest generation counts for the original's.
    """
    generations = (_generation(twin), _generation(original))
    return objects.merge_patch(objects.status(original), _at_home(twin["status"], generations))


def _generation(obj: Object) -> int:
    return int(obj["metadata"].get("generation") or 0)


def _at_home(value: Any, generations: tuple[int, int]) -> Any:
    there, here = generations
    if isinstance(value, dict):
        return {
            name: here if name == _OBSERVED and part == there else _at_home(part, generations)
            for name, part in value.items()
        }
    return [_at_home(part, generations) for part in value] if isinstance(value, list) else value
