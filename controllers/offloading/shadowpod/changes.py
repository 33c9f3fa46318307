"""How a Pod is brought to the specification of its ShadowPod, as far as Kubernetes lets it. Pure.

Source: docs/parity.md § 5.5.2; Kubernetes, "Pod update and replacement", "Resize CPU and Memory
Resources assigned to Containers", "Ephemeral Containers".
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from apis import objects, podfields, quotas, resources
from apis.objects import Object
from apis.quotas import Demand, Refusal

_CONTAINERS: Final = ("containers", "initContainers")
_BARE: Final[Object] = {"resources": {}}
"""What a container has that says nothing of it."""


class Change(NamedTuple):
    """One request; ``subresource`` is empty for the Pod itself."""

    subresource: str
    patch: Object


def is_behind(shadow: Object) -> bool:
    """Whether the specification changed since the Pod was last brought to it.

    The first one is what the Pod was created with.
    """
    generation = shadow["metadata"].get("generation") or 1
    return bool(generation > max(1, observed(shadow)))


def observed(shadow: Object) -> int:
    """Return the generation that the Pod was last brought to, 0 if it is the one it began with."""
    return int(objects.status(shadow).get("observedGeneration") or 0)


def followed(shadow: Object) -> Object:
    """Return what the status says besides once the Pod follows the specification."""
    generation = shadow["metadata"].get("generation") or 1
    return {"observedGeneration": generation} if generation > 1 else {}


def created(spec: Object) -> Object:
    """Return the PodSpec to create: ephemeral containers come to a Pod that exists."""
    return {name: value for name, value in spec.items() if name != "ephemeralContainers"}


def of(shadow: Object, pod: Object) -> list[Change]:
    """Return the requests that are missing, each a merge patch with the version it starts from.

    Shape: ``shadow`` and ``pod`` are whole. Each starts from the version of ``pod``, so a caller
    sends one, and asks again with what it made.
    """
    wanted, found = shadow["spec"].get("pod") or {}, pod["spec"]
    made = [
        Change("", _plain(wanted, found)),
        Change("resize", _resized(wanted, found)),
        Change("ephemeralcontainers", _ephemeral(wanted, found)),
    ]
    return [Change(part, _guarded(pod, spec)) for part, spec in made if spec]


def _guarded(pod: Object, spec: Object) -> Object:
    metadata = {"uid": objects.uid(pod), "resourceVersion": pod["metadata"]["resourceVersion"]}
    return {"metadata": metadata, "spec": spec}


def _plain(wanted: Object, found: Object) -> Object:
    images = {name: _images(wanted, found, name) for name in _CONTAINERS}
    changed = {name: made for name, made in images.items() if made}
    deadline = wanted.get("activeDeadlineSeconds")
    if deadline is not None and deadline != found.get("activeDeadlineSeconds"):
        changed["activeDeadlineSeconds"] = deadline
    have = found.get("tolerations") or []
    tolerations = podfields.tolerations(have, wanted.get("tolerations") or [])
    return changed if tolerations == have else {**changed, "tolerations": tolerations}


def _resized(wanted: Object, found: Object) -> Object:
    sizes = {name: _sizes(wanted, found, name) for name in _CONTAINERS}
    return {name: made for name, made in sizes.items() if made}


def _images(wanted: Object, found: Object, name: str) -> list[Object]:
    asked = {one["name"]: one.get("image") for one in wanted.get(name) or []}
    return _with(found, name, lambda one: {"image": asked.get(one["name"]) or one["image"]})


def _sizes(wanted: Object, found: Object, name: str) -> list[Object]:
    asked = {one["name"]: one.get("resources") or {} for one in wanted.get(name) or []}
    return _with(found, name, lambda one: {"resources": _size(one, asked.get(one["name"], {}))})


def _size(have: Object, asked: Object) -> Object:
    """Return the resources of a container; what only admission gave it stays."""
    sizes = dict(have.get("resources") or {})
    for part in ("requests", "limits"):
        if amounts := {**(sizes.get(part) or {}), **(asked.get(part) or {})}:
            sizes[part] = amounts
    return sizes


def _with(found: Object, name: str, field: Callable[[Object], Object]) -> list[Object]:
    """Return the containers of ``found``, each with its new ``field``; [] if nothing differs."""
    have = found.get(name) or []
    made = [{**one, **field(one)} for one in have]
    return [] if all(field(one).items() <= {**_BARE, **one}.items() for one in have) else made


def _ephemeral(wanted: Object, found: Object) -> Object:
    have = found.get("ephemeralContainers") or []
    names = {one["name"] for one in have}
    more = [one for one in wanted.get("ephemeralContainers") or [] if one["name"] not in names]
    return {"ephemeralContainers": [*have, *more]} if more else {}


def unreadable(shadow: Object) -> Refusal | None:
    """Return which amount cannot be read; who sends that to an API server keeps it busy for long.

    Source: docs/parity.md SEC-A13.
    """
    try:
        quotas.check(shadow["spec"]["pod"])
    except ValueError as error:
        return Refusal(quotas.UNREADABLE, str(error))
    return None


def grown(shadow: Object, pod: Object) -> Demand | None:
    """Return what the Pod will take once it is of the size that was asked for; None if not more.

    Shape: of both the containers, with their names and resources, suffice.

    Raises:
        ValueError: as ``Demand.of``.
    """
    wanted, found = shadow["spec"].get("pod") or {}, pod["spec"]
    demand = Demand.of({**found, **_resized(wanted, found)})
    return demand if resources.more(demand.usage, Demand.of(found).usage) else None
