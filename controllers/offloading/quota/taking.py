"""What a ShadowPod asks for and its Pod takes, by the part of them that caches keep."""

import contextlib
from collections.abc import Callable

from apis import keys, objects, quantity, quotas
from apis.objects import Key, Object
from apis.quotas import Demand
from controllers.offloading.quota.forge import Running, completed
from controllers.offloading.shadowpod import changes
from controllers.offloading.shadowpod.slim import SlimPod, SlimShadow
from kube.informer import Change, Informer


class Additions:
    """Knows the LimitRanges of each namespace and the RuntimeClasses, from caches."""

    def __init__(self, ranges: Informer[Object], classes: Informer[Object]) -> None:
        self._informers = (ranges, classes)
        self._classes = classes
        self._ranges: dict[str, dict[Key, Object]] = {}
        ranges.subscribe(self._on_range)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever pods may take something else than before."""
        for informer in self._informers:
            informer.subscribe(lambda _: changed())

    def demand(self, namespace: str, spec: Object) -> Demand:
        """Return what the Pod of a ShadowPod in ``namespace`` will take.

        Raises:
            ValueError: as ``Demand.of``.
        """
        runtime_class = self._classes.get(Key("", str(spec.get("runtimeClassName"))))
        return completed(spec, self._ranges.get(namespace, {}).values(), runtime_class)

    def _on_range(self, change: Change[Object]) -> None:
        found = self._ranges.setdefault(change.key.namespace, {})
        if change.new is not None:
            found[change.key] = change.new
        else:
            found.pop(change.key, None)
        if not found:
            del self._ranges[change.key.namespace]


def creator(obj: SlimShadow | SlimPod) -> str:
    """Return the user that ``obj`` is accounted to, "" for none."""
    return (obj.metadata.labels or {}).get(keys.CREATOR_USER, "")


def is_claim(shadow: SlimShadow) -> bool:
    """Whether it may still want a Pod."""
    return (
        not shadow.metadata.deletion_timestamp and shadow.status.phase not in objects.FINAL_PHASES
    )


def is_news(old: SlimShadow | SlimPod | None, new: SlimShadow | SlimPod | None) -> bool:
    """Whether what somebody takes, or asks for, may be another than before.

    The same once more is news too: a resync asks for a look at everything.
    """
    if old is None or new is None or old is new:
        return True
    return _what_counts(old) != _what_counts(new)


def _what_counts(obj: SlimShadow | SlimPod) -> tuple[object, ...]:
    is_over = obj.status.phase in objects.FINAL_PHASES
    is_leaving = isinstance(obj, SlimShadow) and obj.metadata.deletion_timestamp is not None
    return is_over, is_leaving, creator(obj), bytes(obj.spec)


def owner_of(pod: SlimPod) -> str:
    """Return the UID of the ShadowPod that controls ``pod``."""
    owners = pod.metadata.owner_references or []
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")


def growth(shadow: SlimShadow, pod: SlimPod) -> Demand | None:
    """Return what the Pod is to take if that is more; only a specification that changed asks so."""
    if shadow.metadata.generation <= 1:
        return None
    with contextlib.suppress(ValueError):  # who brings the Pod to it says so
        return changes.grown({"spec": {"pod": shadow.needs()}}, {"spec": pod.needs()})
    return None


def running(pod: SlimPod) -> Running:
    """Return what ``pod`` takes, and for which ShadowPod."""
    try:
        usage = Demand.of(pod.needs()).usage
    except ValueError:  # an amount that the API server let in and we cannot read
        usage = {quotas.PODS: quantity.parse(1)}
    return Running(owner_of(pod), usage, pod.status.phase in objects.FINAL_PHASES)
