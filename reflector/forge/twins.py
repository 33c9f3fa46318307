"""What all twins share: name, ownership labels, filtered metadata, the fields that are copied."""

from collections.abc import Iterable

from apis import keys, marks, objects, orders
from apis.objects import Kind, Object
from reflector.forge.contract import Scene


def of(
    kind: Kind, local: Object, scene: Scene, *, keep: Iterable[str] = (), **rest: object
) -> Object:
    """Return the twin of ``local``: its fields ``keep`` as they are, and ``rest``.

    Owners and finalizers mean something in their own cluster only and are left out.
    Source: behaviour.md 6.1.
    """
    hidden = scene.settings.hidden
    labels = marks.labels_of_shadow(hidden.labels(local))
    metadata: Object = {"labels": {**labels, **scene.pair.labels()}}
    refused = _refused(kind, local, scene)
    annotations = {
        name: text for name, text in hidden.annotations(local).items() if name not in refused
    }
    if annotations:
        metadata["annotations"] = annotations
    where = scene.pair.twin_of(objects.key_of(local))
    kept = {name: local[name] for name in keep if local.get(name) is not None}
    return objects.named(kind, where, metadata=metadata, **kept, **rest)


def unsent(kind: Kind, local: Object, scene: Scene) -> str:
    """Return which annotations of ``local`` the provider does not take; empty for none."""
    names = ", ".join(sorted(_refused(kind, local, scene)))
    where = scene.pair.destination
    cure = "spec.annotationDomains of its ProviderPolicy"
    return (
        f"without annotations {names}: controllers of {where} would obey them ({cure})"
        if names
        else ""
    )


def _refused(kind: Kind, local: Object, scene: Scene) -> frozenset[str]:
    """Return the annotations that would be refused; a provider that does not say judges itself."""
    if scene.offers is None:
        return frozenset()
    sent = scene.settings.hidden.annotations(local)
    return orders.refused(kind, sent, scene.offers.annotation_domains) - {keys.INGRESS_CLASS}


def is_immutable(found: Object, wanted: Object, fields: Iterable[str]) -> bool:
    """Whether ``found`` says that it is immutable, and ``fields`` differ."""
    is_other = any((found.get(name) or None) != (wanted.get(name) or None) for name in fields)
    return bool(found.get("immutable")) and is_other
