"""Which pods run where their namespace places none, what is said of that, and who is to leave."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apis import keys, objects, placement, reflectionpolicy
from apis.objects import Key, Object
from apis.offloading import NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.placement import PlacementAnnotation

BIRTH: Final = timedelta(seconds=10)
"""Within which a namespace and its NamespaceOffloading count as one thing."""
ADMISSION: Final = timedelta(seconds=5)
"""That long an object may be in admission, which begins after the time it was made is taken: a pod
that nobody could judge may be that much younger than the NamespaceOffloading."""
YOUTH: Final = timedelta(minutes=5)
"""For which pods that came between those two are put right."""
_SHOWN: Final = 3


@dataclass(frozen=True)
class PolicySummary:
    """What there is in a namespace: anything at all, and by kind and name what is not reflected."""

    is_any: bool = False
    here: tuple[tuple[str, str], ...] = ()


NO_POLICIES: Final = PolicySummary()


def can_misplace(offloading: NamespaceOffloading) -> bool:
    """Whether any pod could be where it should not: not where every node will do."""
    return bool(offloading.cluster_selector) or offloading.strategy is not Strategy.LOCAL_AND_REMOTE


def misplaced(
    offloading: NamespaceOffloading, pods: Iterable[Object], virtual: Mapping[Key, Object]
) -> list[Object]:
    """Return those of ``pods`` that run where ``offloading`` places none; by their names."""
    found = [pod for pod in pods if placement.misplaced(offloading, pod, _node(pod, virtual))]
    return sorted(found, key=objects.key_of)


def _node(pod: Object, virtual: Mapping[Key, Object]) -> Object | None:
    return virtual.get(Key("", pod["spec"].get("nodeName") or ""))


def is_asked(obj: Object, offloading: NamespaceOffloading) -> bool:
    """Whether the user asks for eviction, for the sake of this very strategy."""
    return objects.annotations(obj).get(keys.EVICT_MISPLACED) == offloading.strategy.value


def premature(
    obj: Object, namespace: Object | None, pods: Iterable[Object], now: datetime
) -> list[Object]:
    """Return those of ``pods`` that came when ``obj``, a NamespaceOffloading, was not there yet.

    In one file with both and a Deployment ahead, pods may be created before anybody can know how
    they are to be placed. They are seconds old, and their owner makes them again.
    """
    if namespace is None or obj["metadata"].get("generation") != 1:
        return []
    born, made = _created(namespace), _created(obj)
    if made - born > BIRTH or now - made > YOUTH:
        return []
    return [pod for pod in pods if _created(pod) <= made + ADMISSION and _is_made_anew(pod)]


def _is_made_anew(pod: Object) -> bool:
    is_judged = keys.PLACEMENT in objects.annotations(pod)
    return not is_judged and objects.controller_of(pod) is not None


def is_unbound(pod: Object) -> bool:
    """Whether no scheduler has chosen a node for it yet."""
    return not pod["spec"].get("nodeName") and not objects.is_terminating(pod)


def stranded(pods: Iterable[Object]) -> list[Object]:
    """Return those of ``pods`` that wait for virtual nodes only, and that their owners make again.

    When their namespace is unoffloaded nothing but the runtime class sends others there.
    """
    return [pod for pod in pods if is_unbound(pod) and _is_sent_away(pod)]


def _is_sent_away(pod: Object) -> bool:
    judged = PlacementAnnotation.of(pod)
    is_remote = judged is not None and judged.strategy is Strategy.REMOTE
    return is_remote and not placement.is_forced(pod) and objects.controller_of(pod) is not None


def status(
    obj: Object,
    offloading: NamespaceOffloading,
    out: Sequence[Object],
    policies: PolicySummary,
    now: datetime,
) -> Object:
    """Return the conditions of ``obj``: of the pods ``out`` of place, and of its ``policies``."""
    before = objects.status(obj).get("conditions")
    verdict = _misplaced(obj, offloading, out) if out else _PLACED
    told = objects.set_condition(before, keys.PODS_PLACED, *verdict, now)
    if not policies.is_any:
        return {"conditions": objects.without_condition(told, keys.POLICIES_REFLECTED)}
    here = policies.here
    reflected = ("False", "HoldHereOnly", reflectionpolicy.hold_here(here)) if here else _REFLECTED
    return {"conditions": objects.set_condition(told, keys.POLICIES_REFLECTED, *reflected, now)}


_REFLECTED: Final = ("True", "AllReflected", "every policy of the namespace is reflected")
_PLACED: Final = ("True", "AllPlaced", "every pod runs where the namespace places it")


def _misplaced(
    obj: Object, offloading: NamespaceOffloading, out: Sequence[Object]
) -> tuple[str, str, str]:
    strategy = offloading.strategy.value
    what = f"{len(out)} pods run where podOffloadingStrategy {strategy} and the cluster selector"
    told = f"{what} place none: {names(out)}"
    if is_asked(obj, offloading):
        return "False", "Evicting", f"{told}; they are evicted as disruption budgets allow"
    how = f"to evict them, annotate {keys.EVICT_MISPLACED}={strategy}"
    return "False", "PodsMisplaced", f"{told}; {how}"


def names(pods: Sequence[Object]) -> str:
    """Return the names of ``pods``, no more than a few."""
    shown = ", ".join(objects.key_of(pod).name for pod in pods[:_SHOWN])
    return shown + (f" and {len(pods) - _SHOWN} more" if len(pods) > _SHOWN else "")


def is_same_question(old: Object | None, new: Object | None) -> bool:
    """Whether a change of a NamespaceOffloading leaves who is out of place, and who is to leave.

    One without our finalizer asks nothing yet: it gets that by compare-and-swap, which a status
    written meanwhile would make fail.
    """
    if new is not None and not _is_taken_up(new):
        return True
    if old is None or new is None:
        return False
    return (
        _is_taken_up(old)
        and old.get("spec") == new.get("spec")
        and objects.annotations(old) == objects.annotations(new)
        and objects.is_terminating(old) == objects.is_terminating(new)
    )


def _is_taken_up(offloading: Object) -> bool:
    return keys.NAMESPACE_OFFLOADING_FINALIZER in objects.finalizers(offloading)


def _created(obj: Object) -> datetime:
    return datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
