"""Handlers that need more of ``kube`` than a ``Lookup``: of pods and of NamespaceOffloadings.

A namespace that is about to be offloaded is labelled, so that its next pod is placed. API servers
go by the label, and learn of it by watches. Who asks is answered when such a watch has told of it:
the NamespaceOffloading is stored, and its creator answered, only after that.
Source: docs/parity.md § 3.2; Kubernetes, "Dynamic Admission Control", "Side effects".
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from apis import keys
from apis.objects import Key, Object, is_terminating, labels
from apis.offloading import NamespaceOffloading, PodOffloadingStrategy, is_scheduling_ours
from apis.placement import LIVING
from apis.validation import DeniedError
from kube.cluster import Cluster, Selection
from kube.errors import ConflictError, KubeError, NotReachableError
from kube.slim import Partial, PlacedPod
from webhook.admission import Admitted, Lookup, MalformedError, Request
from webhook.reader import CachedReader
from webhook.rules import namespaceoffloadings, pods

Labels: TypeAlias = Callable[[str, str, float], None]
"""Labels the namespace, for the NamespaceOffloading of the UID, within so many seconds."""

COUNT_S: Final = 2.0
"""What counting pods for a warning may take: a change never fails for want of the count."""

_CLUSTER_ID: Final = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)


def misses_offloading(lookup: Lookup, namespace: str) -> bool:
    """Whether no cache shows how the pods of ``namespace`` are offloaded."""
    found = lookup.cached(keys.NAMESPACE_OFFLOADING, Key(namespace, keys.OFFLOADING_NAME))
    return found is None or is_terminating(found)


def mutate_pod(request: Request, lookup: Lookup) -> Admitted:
    """Place the pods of an offloaded namespace; a labelled one has none until it is known how.

    Raises:
        DeniedError: no NamespaceOffloading yet, or none that can be read.
        KubeError: nobody knows; the webhook configuration's failure policy decides.
    """
    offloading = _offloading(lookup, request.namespace)
    if offloading is not None:
        return _placed(lookup, request, offloading)
    namespace = lookup.get(keys.NAMESPACE, Key("", request.namespace))
    if namespace is None or labels(namespace).get(keys.SCHEDULING_ENABLED) != "true":
        return Admitted(verdict="unchanged: not offloaded")
    found = lookup.get(keys.NAMESPACE_OFFLOADING, Key(request.namespace, keys.OFFLOADING_NAME))
    if found and is_terminating(found):
        message = "the NamespaceOffloading of its namespace is being deleted, and places no pod"
        raise DeniedError(f"{message}: try again when it is gone", code=500)
    if found:  # it came between the two looks
        return _placed(lookup, request, _parsed(found))
    if is_scheduling_ours(namespace):  # it came ahead of one, or stayed after it
        return Admitted(verdict="unchanged: not offloaded yet")
    message = (
        f"namespace {request.namespace} has the label {keys.SCHEDULING_ENABLED} and no "
        f"NamespaceOffloading: create or correct {keys.OFFLOADING_NAME!r} there, or remove "
        "the label, also from the manifest that sets it, or try again"
    )
    raise DeniedError(message, code=500)


def _placed(lookup: Lookup, request: Request, offloading: NamespaceOffloading) -> Admitted:
    """Admit a new pod, and say so if it has nowhere to go, where that is known."""
    pod = request.object
    admitted = pods.place(pod, offloading)
    with contextlib.suppress(KubeError):
        nodes = lookup.all(keys.NODE).values()
        return pods.warned(admitted, pod, offloading, nodes)
    return admitted


def mutate_pod_update(request: Request, lookup: Lookup) -> Admitted:
    """Keep what admission added to a pod, whatever its new lists are."""
    old, new = request.old_object, request.object
    admitted = pods.keep_tolerations(old, new)
    with contextlib.suppress(KubeError, DeniedError):
        offloading = _offloading(lookup, request.namespace)
        if offloading and (more := pods.keep_affinity(old, new, offloading)):
            return replace(admitted, patch=[*admitted.patch, *more], verdict="kept: what was added")
    return admitted


def validate_pod(request: Request, lookup: Lookup) -> Admitted:
    """Admit a pod as it will be stored; what cannot be placed was refused or deleted."""
    offloading = _offloading(lookup, request.namespace)
    if offloading is None:
        return Admitted(verdict="allowed: not offloaded")
    nodes = lookup.all(keys.NODE).values()
    return pods.check_placement(request.object, offloading, nodes)


def validate_binding(request: Request, lookup: Lookup) -> Admitted:
    """Admit a binding to a virtual node by another client than the scheduler of Kubernetes."""
    node = lookup.all(keys.NODE).get(Key("", pods.target(request.object)))
    offloading = _offloading(lookup, request.namespace) if node else None
    if node is None or offloading is None:
        return Admitted(verdict="allowed: no virtual node of an offloaded namespace")
    pod = lookup.get(keys.POD, Key(request.namespace, request.name)) or {}
    return pods.check_node(pod, offloading, node)


def validate_namespace_offloading(request: Request, lookup: Lookup) -> Admitted:
    """Admit a NamespaceOffloading as it would be stored, against the one before and the others."""
    if request.operation == "UPDATE":
        old, new = request.old_object, request.object
        admitted = namespaceoffloadings.check_update(old, new)
        if not namespaceoffloadings.is_another_rule(old, new):
            return admitted
        count = _count_misplaced(request, lookup)
        more = namespaceoffloadings.count_warnings(new, count)
        return replace(admitted, warnings=[*more, *admitted.warnings])
    config = lookup.get(keys.CONFIG_MAP, _CLUSTER_ID) or {}
    cluster_id = str((config.get("data") or {}).get(keys.CLUSTER_ID_KEY) or "")
    # What no cache has yet counts, too: no two may miss each other.
    offloadings = lookup.select_live(keys.NAMESPACE_OFFLOADING, namespaceoffloadings.TwinName)

    def may_know(namespace: str) -> bool:
        return lookup.may_get(request, keys.NAMESPACE_OFFLOADING, namespace)

    def namespaces() -> list[str]:
        return [key.name for key in lookup.select_live(keys.NAMESPACE, Partial)]

    others = namespaceoffloadings.Others(offloadings, namespaces, may_know)
    return namespaceoffloadings.check_create(
        request.object, request.namespace, others=others, cluster_id=cluster_id
    )


def label_namespace(request: Request, lookup: Lookup, label: Labels) -> Admitted:
    """Label the namespace of a NamespaceOffloading that is about to be stored; refuse nothing.

    ``validate_namespace_offloading`` is asked at the same time. If that, or anybody, refuses it,
    the controller that keeps the label takes it back.
    """
    if request.is_dry_run:
        return Admitted(verdict="unchanged: a dry run")
    try:
        offloading = namespaceoffloadings.check_alone(request.object, request.namespace)
    except (DeniedError, MalformedError):
        return Admitted(verdict="unchanged: refused elsewhere")
    if offloading.strategy is PodOffloadingStrategy.LOCAL:
        return Admitted(verdict="unchanged: Local")
    key = Key(request.namespace, keys.OFFLOADING_NAME)
    if lookup.cached(keys.NAMESPACE_OFFLOADING, key) is not None:
        return Admitted(verdict="unchanged: there is one already")
    label(request.namespace, str(request.object["metadata"].get("uid") or ""), request.budget_s)
    return Admitted(verdict="labelled")


def _count_misplaced(request: Request, lookup: Lookup) -> int | None:
    """Return how many pods would be out of place by the new rules; None if that is not known."""
    lookup = lookup.within(COUNT_S)
    try:
        pods = lookup.select_live(keys.POD, PlacedPod, request.namespace, LIVING).values()
        nodes = lookup.all(keys.NODE)
    except KubeError:
        return None
    found = [pod.to_object() for pod in pods]
    return namespaceoffloadings.misplaced(request.object, found, nodes)


def _offloading(lookup: Lookup, namespace: str) -> NamespaceOffloading | None:
    """Return how ``namespace`` is offloaded; one that is being deleted places no pods."""
    found = lookup.get(keys.NAMESPACE_OFFLOADING, Key(namespace, keys.OFFLOADING_NAME))
    return None if found is None or is_terminating(found) else _parsed(found)


def _parsed(found: Object) -> NamespaceOffloading:
    try:
        return NamespaceOffloading.parse(found)
    except ValueError as error:
        where = found["metadata"].get("namespace", "")
        message = f"namespaceoffloading {where}/{keys.OFFLOADING_NAME} cannot be read: {error}"
        raise DeniedError(f"{message}: correct it", code=500) from error


# The label of a namespace that is about to be offloaded -------------------------------------------

TRIES: Final = 3
"""Somebody else may write the namespace at the same time."""

logger = logging.getLogger(__name__)


def labels_through(reader: CachedReader) -> Callable[[str, str, float], None]:
    """Return what labels the namespace that it is told, in the name of a UID, within seconds."""

    def label(namespace: str, by: str, seconds: float) -> None:
        async def enable(cluster: Cluster) -> None:
            try:
                async with asyncio.timeout(seconds):
                    await enable_namespace(cluster, namespace, by)
            except TimeoutError as error:
                message = f"the label of namespace {namespace} was not told in time"
                raise NotReachableError(message) from error

        reader.call(enable)

    return label


async def enable_namespace(cluster: Cluster, namespace: str, by: str) -> None:
    """Label ``namespace``, if that is due; return when watches tell of it.

    Raises:
        KubeError: the namespace cannot be read or written now.
    """
    key = Key("", namespace)
    for _ in range(TRIES):
        found = await cluster.get_live(keys.NAMESPACE, key)
        changes = pods.enabled_namespace(found, by) if found else None
        if found is None or changes is None:
            return
        try:
            await cluster.patch(keys.NAMESPACE, key, changes)
        except ConflictError:
            continue
        logger.info("Labelled a namespace that is to be offloaded", extra={"key": namespace})
        await _await_label(cluster, key, found["metadata"]["resourceVersion"])
        return


async def _await_label(cluster: Cluster, key: Key, since: str) -> None:
    of = Selection(keys.NAMESPACE, Object, fields=f"metadata.name={key.name}")
    async for event in cluster.watch(of, since):
        if event.type != "BOOKMARK" and keys.SCHEDULING_ENABLED in labels(event.object):
            return


def secret_path(file: Path) -> str:
    """Return the last segment of the path at which a namespace is labelled; empty if absent.

    Who knows it may ask for that: liqo-certs makes it, and tells it to API servers alone.
    """
    try:
        return file.read_text().strip()
    except OSError:
        return ""
