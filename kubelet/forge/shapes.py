"""What a provider sends for a ShadowPod or a Pod, in the shape that all code here expects.

A field that does not have its shape counts as absent, whatever stands in its place. It is called
where such an object enters, so nobody behind it meets a list where a text belongs.

Source: security.md B2; hostile.md H25.
"""

from typing import Any, Final

from apis.objects import Object
from kubelet.forge.clean import mapping, mappings

_NAMES: Final = ("name", "namespace", "uid", "resourceVersion")
_TEXTS: Final = ("labels", "annotations")
_LISTED: Final[tuple[str, ...]] = ("containers", "initContainers")


def fitted(twin: Object | None) -> Object | None:
    """Return ``twin`` with the metadata, spec and status that fit; None for None."""
    if twin is None:
        return None
    return {
        **twin,
        "metadata": _metadata(mapping(twin.get("metadata"))),
        "spec": _spec(mapping(twin.get("spec"))),
        "status": _status(mapping(twin.get("status"))),
    }


def texts_of(value: object) -> dict[str, str]:
    """Return the entries of ``value`` that are texts: what labels and annotations have."""
    return {name: text for name, text in mapping(value).items() if isinstance(text, str)}


def _metadata(found: Object) -> Object:
    made = {name: value for name, value in found.items() if name not in _TEXTS}
    made |= {name: _text(found.get(name)) for name in _NAMES if name != "namespace"}
    made |= {"namespace": _text(found["namespace"])} if "namespace" in found else {}
    return made | {name: texts_of(found[name]) for name in _TEXTS if name in found}


def _spec(found: Object) -> Object:
    """Return the spec; of that of a ShadowPod the PodSpec too, whose containers have names."""
    if "pod" not in found:
        return found
    pod = mapping(found["pod"])
    listed = {name: _containers(pod[name]) for name in _LISTED if name in pod}
    more = ("tolerations", "ephemeralContainers")
    listed |= {name: list(mappings(pod[name])) for name in more if name in pod}
    return {**found, "pod": {**pod, **listed}}


def _containers(value: object) -> list[Object]:
    return [one for one in mappings(value) if isinstance(one.get("name"), str)]


def _status(found: Object) -> Object:
    made = {**found, "conditions": list(mappings(found.get("conditions")))}
    if not isinstance(found.get("phase", ""), str):
        del made["phase"]
    return made


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
