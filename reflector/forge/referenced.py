"""Of ConfigMaps and Secrets, only those that offloaded pods mention: the policy ``Referenced``.

Source: docs/parity.md § 6.2; SEC-B6.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from apis import keys, objects, reflectionpolicy
from apis.objects import Key, Kind, Object
from apis.offloading import ReflectionPolicy as Policy
from apis.reflectionpolicy import NotReflected
from reflector.forge.contract import Input, Scene
from reflector.forge.shapes import Labelled, Placed

_UNDER: Final = frozenset({Policy.REFERENCED})


def stays(kind: Kind) -> Callable[[Object, Scene], NotReflected | None]:
    """Return the judgement of objects of ``kind``: by all policies, this one included."""

    def judged(original: Object, scene: Scene) -> NotReflected | None:
        stay = reflectionpolicy.reason_to_stay(kind, original, scene.policy)
        if stay is not None or scene.policy is not Policy.REFERENCED:
            return stay
        wanted = (kind, objects.key_of(original).name)
        pods: Iterable[Placed] = scene.look.each(keys.POD)
        if any(wanted in pod.mentions and _is_offloaded(pod, scene) for pod in pods):
            return None
        return NotReflected(reflectionpolicy.UNMENTIONED, is_told=False)

    return judged


def inputs(kind: Kind) -> tuple[Input, ...]:
    """Return what is looked at for objects of ``kind``, under this policy only."""

    def of_pod(old: Placed | None, new: Placed | None, scene: Scene) -> Iterable[Key]:
        if new is not None and new.says_the_same(old):
            return []
        names = {
            name
            for pod in (old, new)
            if pod
            for mentioned, name in pod.mentions
            if mentioned == kind
        }
        return [Key(scene.pair.local_namespace, name) for name in names]

    def of_node(old: Labelled | None, new: Labelled | None, scene: Scene) -> Iterable[Key]:
        changed = new or old
        if changed is None or (new is not None and new.says_the_same(old)):
            return []
        pods = (pod for pod in scene.look.each(keys.POD) if pod.node == changed.metadata.name)
        return [key for pod in pods for key in of_pod(None, pod, scene)]

    return (
        Input(keys.POD, of_pod, shape=Placed, policies=_UNDER),
        Input(keys.NODE, of_node, shape=Labelled, policies=_UNDER),
    )


def _is_offloaded(pod: Placed, scene: Scene) -> bool:
    node: Any = scene.look.get(keys.NODE, Key("", pod.node)) if pod.node else None
    return node is not None and bool(node.is_node_of(scene.pair.destination))
