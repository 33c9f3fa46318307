"""Which ConfigMaps and Secrets a pod reads. Source: Kubernetes API reference, "PodSpec"."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from apis import keys
from apis.objects import Kind, Object

Mention: TypeAlias = tuple[Kind, str]


def of(spec: Object) -> frozenset[Mention]:
    """Return the kind and name of each that a pod with ``spec`` mentions, needed or optional."""
    found = [*_pulled(spec), *_mounted(spec), *_read(spec)]
    return frozenset((kind, name) for kind, name in found if name)


def _pulled(spec: Object) -> Iterator[Mention]:
    for secret in spec.get("imagePullSecrets") or []:
        yield keys.SECRET, _name(secret)


def _mounted(spec: Object) -> Iterator[Mention]:
    for volume in spec.get("volumes") or []:
        yield keys.CONFIG_MAP, _name(volume.get("configMap"))
        yield keys.SECRET, str((volume.get("secret") or {}).get("secretName") or "")
        for source in (volume.get("projected") or {}).get("sources") or []:
            yield keys.CONFIG_MAP, _name(source.get("configMap"))
            yield keys.SECRET, _name(source.get("secret"))


def _read(spec: Object) -> Iterator[Mention]:
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or []:
            for variable in container.get("env") or []:
                source = variable.get("valueFrom") or {}
                yield keys.CONFIG_MAP, _name(source.get("configMapKeyRef"))
                yield keys.SECRET, _name(source.get("secretKeyRef"))
            for whole in container.get("envFrom") or []:
                yield keys.CONFIG_MAP, _name(whole.get("configMapRef"))
                yield keys.SECRET, _name(whole.get("secretRef"))


def _name(reference: Any) -> str:
    return str((reference or {}).get("name") or "")
