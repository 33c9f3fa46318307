"""What all twins share: name, ownership labels, filtered metadata, the fields that are copied."""

import functools
from collections.abc import Callable, Iterable
from typing import Final

from apis import allowlist, keys, objects
from apis.objects import Kind, Object
from reflector.forge import fields
from reflector.forge.contract import Scene


def of(
    kind: Kind, local: Object, scene: Scene, *, keep: Iterable[str] = (), **rest: object
) -> Object:
    """Return the twin of ``local``: its fields ``keep`` as they are, and ``rest``.

    Owners and finalizers mean something in their own cluster only and are left out.
    Source: docs/parity.md § 6.1.
    """
    hidden = scene.settings.hidden
    left_out = _left_out(kind, local, scene)
    labels = {
        name: text
        for name, text in allowlist.labels_of_shadow(hidden.labels(local)).items()
        if name not in _labels_left_out(kind, local, scene)
    }
    metadata: Object = {"labels": {**labels, **scene.pair.labels()}}
    annotations = {
        name: text for name, text in hidden.annotations(local).items() if name not in left_out
    }
    if annotations:
        metadata["annotations"] = annotations
    where = scene.pair.twin_of(objects.key_of(local))
    kept = {name: local[name] for name in keep if local.get(name) is not None}
    return objects.named(kind, where, metadata=metadata, **kept, **rest)


def unsent(kind: Kind, local: Object, scene: Scene) -> str:
    """Return which metadata of ``local`` the provider does not take, and which fields are not sent.

    Empty for nothing.
    """
    left_out = {
        "annotations": _left_out(kind, local, scene) - _NEVER_SENT,
        "labels": _labels_left_out(kind, local, scene),
    }
    told = [f"{field} {', '.join(sorted(names))}" for field, names in left_out.items() if names]
    where = scene.pair.destination
    cure = (
        f"programs of {where} may obey them (spec.annotationDomains of its ProviderPolicy opens "
        f"domains), or they are more than {allowlist.SENT}"
    )
    metadata = f"without {' and '.join(told)}: {cure}" if told else ""
    return "; ".join(filter(None, (metadata, fields.unsent(kind, local, where))))


def lacks(kind: Kind) -> Callable[[Object, Scene], str]:
    """Return what tells the author of an object of ``kind`` what of its metadata is not sent."""
    return functools.partial(unsent, kind)


_NEVER_SENT: Final = frozenset({keys.INGRESS_CLASS, *keys.ANNOTATIONS_OF_CLAIMS})
"""What a cluster writes for itself: left out of twins, and told to nobody."""


def _left_out(kind: Kind, local: Object, scene: Scene) -> frozenset[str]:
    """Return the annotations that are not sent; a provider that does not say judges itself."""
    if scene.offers is None:
        return frozenset()
    sent = scene.settings.hidden.annotations(local)
    return allowlist.unsent(kind, sent, scene.offers.annotation_domains)


def _labels_left_out(kind: Kind, local: Object, scene: Scene) -> frozenset[str]:
    if scene.offers is None:
        return frozenset()
    sent = scene.settings.hidden.labels(local)
    return allowlist.refused_labels(kind, sent, scene.offers.annotation_domains)


def is_immutable(found: Object, wanted: Object, fields: Iterable[str]) -> bool:
    """Whether ``found`` says that it is immutable, and ``fields`` differ."""
    is_other = any((found.get(name) or None) != (wanted.get(name) or None) for name in fields)
    return bool(found.get("immutable")) and is_other
