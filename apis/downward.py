"""What programs read of their own pod, by the downward API: which values are the consumer's. Pure.

The remote Pod has a namespace, a UID and a node of its own. A program that uses the consumer's API
server writes owner references and names of nodes there, which have to hold. Of the namespace it
makes names of Services, which resolve where it runs.

Source: Kubernetes, "Downward API"; docs/pod-fields.md.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from apis import keys, objects
from apis.objects import Object

NAMESPACE: Final = "metadata.namespace"
UID: Final = "metadata.uid"
NODE: Final = "spec.nodeName"
CONSUMER, PROVIDER = "consumer", "provider"
"""Values of the annotation ``pyliqo.io/downward-namespace``."""


def _annotation(name: str) -> str:
    return f"metadata.annotations['{name}']"


def _label(name: str) -> str:
    return f"metadata.labels['{name}']"


_NOTED: Final[Mapping[str, str]] = {
    NAMESPACE: _annotation(keys.LOCAL_NAMESPACE),
    UID: _annotation(keys.LOCAL_POD_UID),
}
"""Where the remote Pod says it to its files, which cannot have a node's name."""
_CONTAINERS: Final = ("containers", "initContainers")


def is_namespace_local(pod: Object, offloading: Object | None) -> bool:
    """Whether ``metadata.namespace`` is the consumer's for ``pod``.

    The annotation of the pod goes before that of its NamespaceOffloading, ``offloading``.
    """
    for one in (pod, offloading):
        said = objects.annotations(one).get(keys.DOWNWARD_NAMESPACE, "") if one else ""
        if said in (CONSUMER, PROVIDER):
            return said == CONSUMER
    return False


def is_noted(pod: Object) -> bool:
    """Whether the remote Pod of ``pod`` says the consumer's namespace, for a file to read."""
    return any(_field(item) == NAMESPACE for item in _items(pod["spec"]))


def reading(spec: Object, field: str) -> list[str]:
    """Return what in ``spec`` reads ``field``: variables, and files outside of volumes of tokens.

    Shape: ["env NAME", "file PATH"].
    """
    env = [f"env {one['name']}" for one in _variables(spec) if _field(_from(one)) == field]
    return [*env, *(f"file {one.get('path')}" for one in _items(spec) if _field(one) == field)]


def noted(name: str) -> frozenset[str]:
    """Return the fields that are the annotation and the label ``name``."""
    return frozenset({_annotation(name), _label(name)})


def localise(made: Object, local: Object, fields: frozenset[str]) -> None:
    """Let what ``made``, the PodSpec sent for the pod ``local``, reads of ``fields`` be local's."""
    values = {
        **{_annotation(name): text for name, text in objects.annotations(local).items()},
        **{_label(name): text for name, text in objects.labels(local).items()},
        NAMESPACE: objects.key_of(local).namespace,
        UID: objects.uid(local),
        NODE: str(local["spec"].get("nodeName") or ""),
    }
    for variable in _variables(made):
        field = _field(_from(variable))
        if field in fields & values.keys():
            del variable["valueFrom"]
            variable["value"] = values[field]
    with_tokens = {each["name"] for each in local["spec"].get("volumes") or [] if _has_token(each)}
    for volume in made.get("volumes") or []:
        kept = {NAMESPACE} if volume["name"] in with_tokens else set()  # it is the token's
        for item in _files(volume):
            field = _field(item)
            if field in fields - kept and field in _NOTED:
                item["fieldRef"]["fieldPath"] = _NOTED[field]


def _from(variable: Object) -> Object:
    return variable.get("valueFrom") or {}


def _field(source: Object) -> str:
    return str((source.get("fieldRef") or {}).get("fieldPath") or "")


def _variables(spec: Object) -> Iterator[Object]:
    for name in _CONTAINERS:
        for container in spec.get(name) or []:
            yield from container.get("env") or []


def _has_token(volume: Object) -> bool:
    return any("serviceAccountToken" in source for source in _sources(volume))


def _sources(volume: Object) -> list[Any]:
    return (volume.get("projected") or {}).get("sources") or []


def _items(spec: Object) -> Iterator[Object]:
    """Yield the files of the downward API, but those beside a token."""
    for volume in spec.get("volumes") or []:
        if not _has_token(volume):
            yield from _files(volume)


def _files(volume: Object) -> Iterator[Object]:
    for source in (volume, *_sources(volume)):
        yield from (source.get("downwardAPI") or {}).get("items") or []
