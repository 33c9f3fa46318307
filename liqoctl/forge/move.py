"""Moving a volume: which step is next, what it makes, and what stands in the way. Pure.

The data is always whole in one of two claims: the one that is moved, and its copy, a second claim
on the target. A claim cannot change its volume, so it is deleted once the copy is whole, made again
on the target and filled from the copy. What was done stands on the claims, and anybody who comes
later goes on from there. Source: docs/parity.md § 7.8.
"""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from apis import keys, nodeselector, objects, placement
from apis.objects import Key, Object, named
from apis.offloading import NamespaceOffloading

SUFFIX: Final = "-moving"
FROM, TO = "/from", "/to"
CONTAINER: Final = "main"
_OWNERS: Final = "ownerReferences"
_TEXTS: Final = ("labels", "annotations")
_KEPT: Final = (*_TEXTS, _OWNERS)
_LONGEST: Final = 253 - len(SUFFIX) - len("-target")

# What was on the disk before pyliqo came stays: a file system's own folder.
_ALL: Final = "find . -path ./lost+found -prune -o"
_EMPTY: Final = f"find {TO} -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf {{}} +"
PACK: Final = f"exec tar -C {FROM} --exclude=./lost+found -cf - ."
UNPACK: Final = f"{_EMPTY} && exec tar -C {TO} -xpf -"
COPY_HERE: Final = f"{_EMPTY} && tar -C {FROM} --exclude=./lost+found -cf - . | tar -C {TO} -xpf -"
_DIGEST: Final = (
    "cd {} && {{ " + _ALL + ' -exec stat -c "%n %A %u %g" {{}} + | LC_ALL=C sort; '
    + _ALL + " -type f -exec sha256sum {{}} + | LC_ALL=C sort; }} | sha256sum"
)  # fmt: skip


def digest_of(folder: str) -> str:
    """Return the script that prints the digest of names, modes, owners and contents there."""
    return _DIGEST.format(folder)


class Step(Enum):
    """What is to be done next."""

    START = "make the copy's claim"
    COPY = "copy the data to it"
    REMOVE = "delete the claim"
    RECREATE = "make the claim again"
    RESTORE = "fill it from the copy"
    FINISH = "delete the copy"
    FORGET = "take the mark off the claim"


@dataclass(frozen=True)
class MoveOptions:
    """What the command was asked for."""

    claim: Key
    node: str
    image: str = ""
    """Of the pods that copy; empty for pyliqo's own."""
    resources: Object = field(default_factory=dict)

    @property
    def copy(self) -> Key:
        return Key(self.claim.namespace, self.claim.name + SUFFIX)

    def mover(self, which: str) -> Key:
        return Key(self.claim.namespace, f"{self.claim.name}{SUFFIX}-{which}")


def next_step(wanted: MoveOptions, claim: Object | None, copied: Object | None) -> Step | str:
    """Return what to do next (``FORGET`` is the last); in words, why nothing can be done.

    Before the first step the caller asks ``obstacles``.
    """
    if copied is None:
        is_marked = claim is not None and keys.RESTORED_FROM in objects.annotations(claim)
        return Step.FORGET if is_marked else Step.START
    record = _record(copied)
    if record is None or not _fits(record, copied):
        return f"{_name(copied)} is in the way and no copy of a move: rename it or remove it"
    if record["node"] != wanted.node:
        return f"its move to node {record['node']} has begun: end that first, with --target-node"
    if keys.MOVED in objects.annotations(copied):
        return Step.FINISH
    return _with_copy(record, claim, copied)


def _with_copy(record: Object, claim: Object | None, copied: Object) -> Step | str:
    is_whole = keys.MOVED_DIGEST in objects.annotations(copied)
    if claim is None:
        gone = "it is gone, and the copy is not whole: restore it, or remove "
        return Step.RECREATE if is_whole else gone + _name(copied)
    if objects.uid(claim) == record["uid"]:
        return Step.REMOVE if is_whole else Step.COPY
    if objects.annotations(claim).get(keys.RESTORED_FROM) == objects.uid(copied):
        return Step.RESTORE
    return (
        f"somebody else made it again: its data of before is in {_name(copied)}; "
        "delete one of the two, and run the command again"
    )


@dataclass(frozen=True)
class MoveState:
    """What a move depends on; None for what is not there."""

    claim: Object | None
    volume: Object | None
    node: Object | None
    offloading: Object | None
    pods: tuple[Object, ...] = ()


def obstacles(wanted: MoveOptions, scene: MoveState) -> Iterator[str]:
    """Yield why the move cannot begin, each with what to do."""
    claim = scene.claim
    if claim is None:
        yield f"it does not exist: kubectl get pvc -n {wanted.claim.namespace} lists what does"
        return
    yield from _of_claim(wanted, claim)
    if scene.node is None:
        yield f"node {wanted.node} does not exist: kubectl get nodes lists what does"
    elif claim["spec"].get("volumeName"):
        yield from _of_target(scene, scene.node)
    yield from in_use(wanted.claim, scene.pods)


def _of_claim(wanted: MoveOptions, claim: Object) -> Iterator[str]:
    spec = claim["spec"]
    if objects.is_terminating(claim):
        yield "it is being deleted"
    if spec.get("storageClassName") != keys.VIRTUAL_STORAGE_CLASS:
        class_ = spec.get("storageClassName") or "none"
        yield f"its class is {class_}: only claims of class {keys.VIRTUAL_STORAGE_CLASS} are moved"
    elif not spec.get("volumeName"):
        yield "it has no volume yet: its first pod decides where that is"
    if spec.get("volumeMode") == "Block":
        yield "its volumeMode is Block: only file systems are moved"
    if len(wanted.claim.name) > _LONGEST:
        yield f"its name is longer than {_LONGEST}: there is no room for the name of the copy"


def _of_target(scene: MoveState, node: Object) -> Iterator[str]:
    name, labels = objects.key_of(node).name, objects.labels(node)
    if scene.volume is None:
        yield "its volume is gone"
    elif nodeselector.matches(_terms(scene.volume), labels, name):
        yield f"its volume is where node {name} is already: nothing to move"
    if placement.is_virtual(node) and labels.get(keys.STORAGE_AVAILABLE) != "true":
        yield f"the cluster behind node {name} offers no storage: see its StorageClasses"
    offloading = scene.offloading
    parsed = NamespaceOffloading.parse(offloading) if offloading else None
    for one in placement.barred(parsed, node):
        yield f"its pods may not go to node {name}: {one.text}"


def in_use(claim: Key, pods: Iterable[Object]) -> Iterator[str]:
    """Yield which pods have the ``claim`` mounted, or are about to."""
    names = sorted(objects.key_of(pod).name for pod in pods if _uses(pod, claim.name))
    if names:
        yield f"pods use it: {', '.join(names)}: end them (kubectl scale --replicas=0 their owner)"


def copied_claim(wanted: MoveOptions, claim: Object) -> Object:
    """Return the claim for the copy, of which the scheduler need not say where it is to be."""
    metadata = claim["metadata"]
    kept = {name: metadata[name] for name in _KEPT if metadata.get(name)}
    kept["annotations"] = _own(objects.annotations(claim))
    record = {
        "node": wanted.node,
        "uid": objects.uid(claim),
        "metadata": kept,
        "spec": _spec(claim),
    }
    annotations = {
        keys.SELECTED_NODE: wanted.node,
        keys.MOVED_CLAIM: json.dumps(record, sort_keys=True),
        **{name: kept["annotations"][name] for name in _OF_STORAGE if name in kept["annotations"]},
    }
    owners = {name: metadata[name] for name in (_OWNERS,) if metadata.get(name)}
    spec = _spec(claim)
    kind = keys.PERSISTENT_VOLUME_CLAIM
    return named(kind, wanted.copy, metadata={"annotations": annotations, **owners}, spec=spec)


_OF_STORAGE: Final = (keys.REMOTE_ACCESS_MODES, keys.REMOTE_STORAGE_CLASS)


def recreated(wanted: MoveOptions, copied: Object) -> Object:
    """Return the claim as it was, but for where it is.

    ``copied`` is one that ``next_step`` took for a copy. A user of the namespace may have written
    its record: nothing of it binds the claim to a volume, and owners are those of the copy, where
    the API server has validated them.
    """
    record = _record(copied) or {"metadata": {}, "spec": {}}
    kept = copy.deepcopy(record["metadata"])
    here = {keys.SELECTED_NODE: wanted.node, keys.RESTORED_FROM: objects.uid(copied)}
    metadata: Object = {"annotations": {**_own(kept.get("annotations") or {}), **here}}
    if kept.get("labels"):
        metadata["labels"] = kept["labels"]
    if owners := copied["metadata"].get(_OWNERS):
        metadata[_OWNERS] = copy.deepcopy(owners)
    kind = keys.PERSISTENT_VOLUME_CLAIM
    return named(kind, wanted.claim, metadata=metadata, spec=record["spec"])


def mover(wanted: MoveOptions, which: str, mounts: Mapping[str, str]) -> Object:
    """Return the pod that has claims (by name) mounted at paths; its volumes say where it runs."""
    names = {claim: f"volume-{index}" for index, claim in enumerate(mounts)}
    container = {
        "name": CONTAINER,
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"],
        "resources": wanted.resources,
        "volumeMounts": [
            {"name": names[claim], "mountPath": path, "readOnly": path == FROM}
            for claim, path in mounts.items()
        ],
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {
                "drop": ["ALL"],
                "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID"],
            },
        },
    }
    spec = {
        "containers": [container],
        "volumes": [
            {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            for claim, name in names.items()
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
    }
    metadata = {"labels": {keys.MOVER: "true"}}
    return named(keys.POD, wanted.mover(which), metadata=metadata, spec=spec)


def why_not_running(pod: Object | None) -> str:
    """Return what a scheduler or a kubelet says of a pod that does not run."""
    status = objects.status(pod)
    for one in status.get("containerStatuses") or []:
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("message") or waiting.get("reason"):
            return str(waiting.get("message") or waiting["reason"])
    told = [one["message"] for one in status.get("conditions") or [] if one.get("message")]
    return str(told[0]) if told else f"phase {status.get('phase', 'unknown')}"


def _uses(pod: Object, claim: str) -> bool:
    volumes = objects.spec(pod).get("volumes") or []
    return (
        not objects.is_finished(pod)
        and keys.MOVER not in objects.labels(pod)
        and any((v.get("persistentVolumeClaim") or {}).get("claimName") == claim for v in volumes)
    )


def _record(copied: Object) -> Object | None:
    try:
        found = json.loads(objects.annotations(copied).get(keys.MOVED_CLAIM, ""))
        return found if {"node", "uid", "metadata", "spec"} <= found.keys() else None
    except (ValueError, AttributeError):
        return None


def _fits(record: Object, copied: Object) -> bool:
    """Whether ``record`` is what a move writes: users of the namespace can write one, too.

    It has of the claim only what the copy has: no volume, no finalizers.
    """
    metadata = record["metadata"]
    is_plain = isinstance(metadata, dict) and metadata.keys() <= {*_KEPT}
    is_whole = is_plain and all(_is_texts(metadata.get(name) or {}) for name in _TEXTS)
    return is_whole and record["spec"] == _spec(copied)


def _is_texts(found: object) -> bool:
    """Whether it is a mapping of texts, as labels and annotations are."""
    return isinstance(found, dict) and all(isinstance(value, str) for value in found.values())


def _own(annotations: dict[str, str]) -> dict[str, str]:
    others = (*keys.ANNOTATIONS_OF_CLAIMS, keys.RESTORED_FROM)
    return {name: value for name, value in annotations.items() if name not in others}


def _spec(claim: Object) -> Object:
    return {name: value for name, value in claim["spec"].items() if name != "volumeName"}


def _terms(volume: Object) -> list[Object]:
    affinity = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    return affinity.get("nodeSelectorTerms") or []


def _name(claim: Object) -> str:
    return f"persistentvolumeclaim {objects.key_of(claim)}"
