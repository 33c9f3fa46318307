"""Which ConfigMaps, Secrets and Services a pod reads.

Source: Kubernetes API reference, "PodSpec".
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from apis import keys
from apis.objects import Kind, Object

Mention: TypeAlias = tuple[Kind, str]

CONTAINERS: Final = "containers", "initContainers", "ephemeralContainers"
PATHS: Final[dict[Kind, tuple[str, ...]]] = {
    keys.SECRET: (
        "imagePullSecrets[].name",
        *(f"{each}[].env[].valueFrom.secretKeyRef.name" for each in CONTAINERS),
        *(f"{each}[].envFrom[].secretRef.name" for each in CONTAINERS),
        "volumes[].secret.secretName",
        "volumes[].projected.sources[].secret.name",
        "volumes[].csi.nodePublishSecretRef.name",
        "volumes[].azureFile.secretName",
        *(
            f"volumes[].{driver}.secretRef.name"
            for driver in (
                "cephfs",
                "cinder",
                "flexVolume",
                "iscsi",
                "rbd",
                "scaleIO",
                "storageos",
            )
        ),
    ),
    keys.CONFIG_MAP: (
        *(f"{each}[].env[].valueFrom.configMapKeyRef.name" for each in CONTAINERS),
        *(f"{each}[].envFrom[].configMapRef.name" for each in CONTAINERS),
        "volumes[].configMap.name",
        "volumes[].projected.sources[].configMap.name",
    ),
}
"""Where a PodSpec names one of its namespace; ``[]`` stands for each of a list.

Source: Kubernetes, ``VisitPodSecretNames`` and ``VisitPodConfigmapNames`` of ``pkg/api/v1/pod``.
"""


def of(spec: Object) -> frozenset[Mention]:
    """Return the kind and name of each that a pod with ``spec`` mentions, needed or optional."""
    return frozenset(_found(spec, _TREE))


_SERVICE: Final = re.compile(r"\b([A-Z][A-Z0-9_]*)_SERVICE_(?:HOST|PORT)")
"""Source: Kubernetes, "Service", environment variables."""


def services(spec: Object) -> frozenset[Mention]:
    """Return the Services whose environment variables ``spec`` names, in a command for example."""
    if spec.get("enableServiceLinks") is False:
        return frozenset()
    said = json.dumps([spec.get(part) for part in CONTAINERS])
    names = {found.lower().replace("_", "-") for found in _SERVICE.findall(said)}
    return frozenset((keys.SERVICE, name) for name in names - {"kubernetes"})


def _tree() -> Object:
    """Return ``PATHS`` as one tree: what many paths share is looked at once."""
    root: Object = {}
    for kind, paths in PATHS.items():
        for path in paths:
            *steps, last = path.split(".")
            branch = root
            for step in steps:
                branch = branch.setdefault(step, {})
            branch[last] = kind
    return root


_TREE: Final = _tree()


def _found(value: Object, tree: Object) -> Iterator[Mention]:
    for step, branch in tree.items():
        child: Any = value.get(step.removesuffix("[]"))
        if not child:
            continue
        if isinstance(branch, Kind):
            yield branch, str(child)
            continue
        for each in child if step.endswith("[]") else (child,):
            yield from _found(each, branch)
