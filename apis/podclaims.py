"""Which claims a pod may have made for it, by its ephemeral volumes. Pure.

A controller of the provider makes them, with its own rights: what a consumer may not write into a
claim it may not write into their templates either. Policy ``liqo-consumers`` judges both forms of
claims by the same fields.
Source: Kubernetes, "Generic ephemeral volumes"; docs/parity.md SEC-A17.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from apis import keys, orders, parts
from apis.objects import Object
from apis.podpolicies import Policy

FIELDS: Final = ("accessModes", "resources", "storageClassName", "volumeMode")
"""What the spec of a claim says, by itself or in a template; all else is the provider's to say."""
_OF_OTHERS: Final = frozenset(["dataSource", "dataSourceRef", "selector", "volumeName"])
"""They name volumes that are there, and claims of any namespace."""
_METADATA: Final = frozenset(["annotations", "labels"])
_OURS: Final = ("liqo.io", "pyliqo.io")
NEVER: Final = "names what is the provider's"
STATIC: Final = "would take any volume that has no class"
UNOFFERED: Final = "none of those offered"


def complaints(volume: Object, path: str, policy: Policy) -> Iterator[str]:
    """Yield what is not allowed in the template of ``volume``, if it is ephemeral."""
    ephemeral = parts.struct(volume.get("ephemeral"), f"spec.pod.{path}.ephemeral")
    where = f"{path}.ephemeral.volumeClaimTemplate"
    template = parts.struct(ephemeral.get("volumeClaimTemplate"), f"spec.pod.{where}")
    yield from _unknown(ephemeral, frozenset(["volumeClaimTemplate"]), f"{path}.ephemeral")
    yield from _unknown(template, frozenset(["metadata", "spec"]), where)
    metadata = parts.struct(template.get("metadata"), f"spec.pod.{where}.metadata")
    spec = parts.struct(template.get("spec"), f"spec.pod.{where}.spec")
    yield from _metadata(metadata, f"{where}.metadata", policy.claim_annotation_domains)
    for name in sorted(_set(spec) & _OF_OTHERS):
        yield f"{where}.spec.{name} {NEVER}"
    yield from _unknown(spec, frozenset(FIELDS) | _OF_OTHERS, f"{where}.spec")
    if template:
        yield from _class(spec, f"{where}.spec.storageClassName", policy)


def _class(spec: Object, path: str, policy: Policy) -> Iterator[str]:
    """Yield that the class is not offered; without one it is the default class of the cluster."""
    said, offered = spec.get("storageClassName"), policy.storage_classes
    if said is None and (offered is None or policy.has_default_storage_class):
        return
    named = parts.text(said, f"spec.pod.{path}")
    if said == "":
        if not policy.static_volumes:
            yield f"{path} '' {STATIC}"
    elif offered is not None and named not in offered:
        listed = ", ".join(sorted(offered)) or "there are none"
        yield f"{path} {named!r} is {UNOFFERED} ({listed})"


def _metadata(metadata: Object, where: str, opened: frozenset[str]) -> Iterator[str]:
    for name in sorted(_set(metadata) - _METADATA):
        yield f"{where}.{name} {NEVER}"
    for field, given in _given(metadata, f"spec.pod.{where}").items():
        ours = {name for name in given if is_of(name, _OURS)}
        for name in sorted(ours | _orders(field, given, opened)):
            yield f"{where}.{field} {name} {NEVER}"


def _given(metadata: Object, path: str) -> dict[str, dict[str, str]]:
    return {
        field: {
            name: parts.text(text, f"{path}.{field}.{name}")
            for name, text in parts.struct(metadata.get(field), f"{path}.{field}").items()
        }
        for field in ("annotations", "labels")
    }


def _orders(field: str, given: Mapping[str, str], opened: frozenset[str]) -> frozenset[str]:
    refused = orders.refused if field == "annotations" else orders.refused_labels
    return refused(keys.PERSISTENT_VOLUME_CLAIM, given, opened)


def is_of(name: str, domains: tuple[str, ...]) -> bool:
    """Whether the label or annotation ``name`` is of one of ``domains``, or of one below."""
    prefix, slash, _ = name.partition("/")
    return bool(slash) and any(prefix == one or prefix.endswith(f".{one}") for one in domains)


def _unknown(part: Object, known: frozenset[str], path: str) -> Iterator[str]:
    for name in sorted(_set(part) - known):
        yield f"{path}.{name} is not known to this version of pyliqo"


def _set(part: Object) -> set[str]:
    return {name for name, value in part.items() if value is not None}
