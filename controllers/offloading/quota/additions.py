"""What admission here adds to what a pod asks for: it counts before the Pod exists. Pure.

Source: Kubernetes, "Limit Ranges" and "Pod Overhead"; docs/parity.md § 4.10.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from apis import objects, resources
from apis.objects import Object
from apis.quotas import Demand
from apis.resources import Resources


def completed(spec: Object, ranges: Iterable[Object], runtime_class: Object | None) -> Demand:
    """Return what a Pod of ``spec`` will take; enforcement judges what ``spec`` says itself.

    A container that neither requests nor limits a resource gets what a LimitRange says; of
    several any one may be first, so the most counts.

    Shape: ``ranges`` are LimitRanges as stored, where ``defaultRequest`` is filled in.

    Raises:
        ValueError: as ``Demand.of``.
    """
    said = Demand.of(spec)
    default, overhead = _defaults(ranges), _overhead(runtime_class)
    if not default and not overhead:
        return said
    filled = {
        **spec,
        **{
            field: [_filled(one, default) for one in spec.get(field) or []]
            for field in ("containers", "initContainers")
        },
        "overhead": resources.to_json(overhead),
    }
    return replace(said, usage=Demand.of(filled).usage)


def _filled(container: Object, default: Resources) -> Object:
    declared = container.get("resources") or {}
    said = {**(declared.get("limits") or {}), **(declared.get("requests") or {})}
    requests = {**resources.to_json(default), **said}
    return {**container, "resources": {**declared, "requests": requests}}


def _defaults(ranges: Iterable[Object]) -> Resources:
    found: dict[str, Any] = {}
    for one in ranges:
        for limit in objects.spec(one).get("limits") or []:
            if limit.get("type") == "Container":
                for name, amount in _readable(limit.get("defaultRequest")).items():
                    found[name] = max(found.get(name, amount), amount)
    return found


def _overhead(runtime_class: Object | None) -> Resources:
    return _readable(((runtime_class or {}).get("overhead") or {}).get("podFixed"))


def _readable(amounts: Object | None) -> Resources:
    """Return the amounts; nothing of what cannot be read, since no pod's owner could mend that."""
    with contextlib.suppress(ValueError):
        return resources.parse(amounts)
    return {}
