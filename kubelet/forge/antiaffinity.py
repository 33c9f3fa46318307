"""The anti-affinity that a pod has on the provider, by its preset.

Source: docs/parity.md § 5.5.2.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from apis import keys, objects, podaffinity
from apis.objects import Object

_UNSTABLE_LABELS: Final = frozenset(
    {"controller-revision-hash", "pod-template-hash", "statefulset.kubernetes.io/pod-name"}
)
PROPAGATE: Final = "propagate"
_KIND: Final = "podAntiAffinity"


class Unsent(NamedTuple):
    """A term that the provider could not understand."""

    path: str
    why: str
    is_required: bool


def preset(local: Object, twins: Mapping[str, str]) -> Object | None:
    """Return what the preset of ``local`` asks for, None if it has none.

    ``twins`` are the namespaces there of those that its own terms name.
    """
    forge = PRESETS.get(objects.annotations(local).get(keys.ANTI_AFFINITY_PRESET, ""))
    return forge(local, twins) if forge else None


def named(local: Object) -> frozenset[str]:
    """Return the namespaces that the terms name which go to the provider."""
    return frozenset(name for _, term, _ in _terms(local) for name in term.get("namespaces") or [])


def unsent(local: Object, twins: Mapping[str, str]) -> Iterator[Unsent]:
    """Yield the terms that do not go to the provider, since they mean namespaces of here."""
    for path, term, is_required in _terms(local):
        if why := _untranslatable(term, twins):
            yield Unsent(f"spec.{path}", why, is_required)


def refusal(local: Object, twins: Mapping[str, str]) -> str:
    """Return why ``local`` cannot go: it would run where its author forbade it. "" if it can."""
    cure = "leave it out, or offload those namespaces to the same cluster by their names"
    return "; ".join(
        f"{one.path} {one.why}: {cure}" for one in unsent(local, twins) if one.is_required
    )


def _terms(local: Object) -> Iterator[tuple[str, Object, bool]]:
    if objects.annotations(local).get(keys.ANTI_AFFINITY_PRESET) != PROPAGATE:
        return
    affinity = (local["spec"].get("affinity") or {}).get(_KIND)
    for path, term in podaffinity.terms({_KIND: affinity}):
        yield path, term, podaffinity.REQUIRED in path


def _untranslatable(term: Object, twins: Mapping[str, str]) -> str:
    if term.get("namespaceSelector") is not None:
        return "selects namespaces by labels that they have here"
    missing = sorted(name for name in term.get("namespaces") or [] if name not in twins)
    return f"names {', '.join(missing)}, not offloaded to that cluster" if missing else ""


def _propagate(local: Object, twins: Mapping[str, str]) -> Object | None:
    own = (local["spec"].get("affinity") or {}).get(_KIND)
    found = selected_once(own)
    if not isinstance(found, dict):
        return None
    made = {
        when: [_translated(one, twins) for one in found[when] if _is_sent(one, twins)]
        for when in (podaffinity.REQUIRED, podaffinity.PREFERRED)
        if found.get(when)
    }
    return {**found, **made}


def _is_sent(item: Object, twins: Mapping[str, str]) -> bool:
    return not _untranslatable(item.get("podAffinityTerm") or item, twins)


def _translated(item: Object, twins: Mapping[str, str]) -> Object:
    """Return the term, or the weighted one, over the twins of its namespaces."""
    if inner := item.get("podAffinityTerm"):
        return {**item, "podAffinityTerm": _translated(inner, twins)}
    names = item.get("namespaces")
    return {**item, "namespaces": [twins[name] for name in names]} if names else item


def _soft(local: Object, _twins: Mapping[str, str]) -> Object:
    weighted = {"weight": 1, "podAffinityTerm": _spread(local)}
    return {podaffinity.PREFERRED: [weighted]}


def _hard(local: Object, _twins: Mapping[str, str]) -> Object:
    return {podaffinity.REQUIRED: [_spread(local)]}


def _spread(local: Object) -> Object:
    listed = objects.annotations(local).get(keys.ANTI_AFFINITY_LABELS, "")
    wanted = {name.strip() for name in listed.split(",") if name.strip()}
    labels = {
        name: value
        for name, value in objects.labels(local).items()
        if (name in wanted if wanted else name not in _UNSTABLE_LABELS | {keys.SHADOW_POD_LABEL})
    }
    return {"topologyKey": keys.HOSTNAME, "labelSelector": {"matchLabels": labels}}


PRESETS: Final[dict[str, Callable[[Object, Mapping[str, str]], Object | None]]] = {
    PROPAGATE: _propagate,
    "soft": _soft,
    "hard": _hard,
}


def selected_once(term: Any) -> Any:
    """Return ``term`` without those ``matchLabelKeys`` that its selector names already.

    The API server at the consumer has written their values into the selector, and that of the
    provider takes no label in both. Source: Kubernetes, "Pod Topology Spread Constraints",
    matchLabelKeys.
    """
    if isinstance(term, list):
        return [selected_once(one) for one in term]
    if not isinstance(term, dict):
        return term
    made = {name: selected_once(value) for name, value in term.items()}
    if keys_ := made.pop("matchLabelKeys", None):
        named_ = _selected(made.get("labelSelector") or {})
        kept = [key for key in keys_ if key not in named_]
        made |= {"matchLabelKeys": kept} if kept else {}
    return made


def _selected(selector: Object) -> set[str]:
    listed = selector.get("matchExpressions") or []
    return {*(selector.get("matchLabels") or {}), *(one["key"] for one in listed)}
