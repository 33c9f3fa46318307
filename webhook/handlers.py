"""One handler a webhook: look up what the rule needs, and ask the rule. No rule is in here.

A namespace that is about to be offloaded is labelled, so that its next pod is judged. API servers
go by the label, and learn of it by watches. Who asks is answered when such a watch has told of it:
the NamespaceOffloading is stored, and its creator answered, only after that.
Source: docs/parity.md § 3.2; Kubernetes, "Dynamic Admission Control", "Side effects".
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from apis import keys, ownership, podaffinity
from apis.authentication import Binding
from apis.objects import Key, Kind, Object, is_terminating, labels
from apis.offloading import NamespaceOffloading, PodOffloadingStrategy, is_scheduling_ours
from apis.placement import LIVING
from apis.validation import DeniedError
from kube.cluster import Cluster, Selection
from kube.errors import ConflictError, KubeError, NotReachableError
from kube.slim import Partial, PlacedPod
from webhook import admission
from webhook.admission import Admitted, MalformedError, Request
from webhook.reader import CachedReader
from webhook.rules import namespaceoffloadings, peering, pods, shadowpods, virtualnodes

T = TypeVar("T")

Labels: TypeAlias = Callable[[str, str, float], None]
"""Labels the namespace, for the NamespaceOffloading of the UID, within so many seconds."""

COUNT_S: Final = 2.0
"""What counting pods for a warning may take: a change never fails for want of the count."""

_CLUSTER_ID: Final = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)


class Lookup(Protocol):
    """All that admission may do with a cluster: look. Sync, because Flask's views are."""

    def cached(self, kind: Kind, key: Key) -> Object | None:
        """Return the object, None where only the server can tell."""
        ...

    def get(self, kind: Kind, key: Key) -> Object | None:
        """Return the object, asked of the server when the cache has none; raise KubeError."""
        ...

    def all(self, kind: Kind) -> Mapping[Key, Object]:
        """Return all cached objects of ``kind``; KubeError before the first list."""
        ...

    def get_live(self, kind: Kind, key: Key) -> Object | None:
        """Return the object as the server has it now; raise KubeError."""
        ...

    def list_live(self, kind: Kind) -> Mapping[Key, Object]:
        """Return all objects of ``kind`` as the server has them now; raise KubeError."""
        ...

    def select_live(self, of: Selection[T]) -> Mapping[Key, T]:
        """Return what is selected as the server has it now; raise KubeError."""
        ...

    def may_get(self, request: Request, kind: Kind, namespace: str) -> bool:
        """Whether who sent ``request`` may get ``kind`` there; not if nobody says so in time."""
        ...

    def within(self, seconds: float) -> "Lookup":
        """Return a Lookup that gives up ``seconds`` from now."""
        ...


def needs_the_server(lookup: Lookup, namespace: str) -> bool:
    """Whether no cache tells how the pods of ``namespace`` are judged."""
    found = lookup.cached(keys.NAMESPACE_OFFLOADING, Key(namespace, keys.OFFLOADING_NAME))
    return found is None or is_terminating(found)


def knows_no_twin(lookup: Lookup, namespace: str) -> bool:
    """Whether no cache has the twin ``namespace``; a Quota that refuses is asked of the server."""
    return lookup.cached(keys.NAMESPACE, Key("", namespace)) is None


def mutate_pod(lookup: Lookup, request: Request) -> Admitted:
    """Place the pods of an offloaded namespace; a labelled one has none until it is known how.

    Raises:
        DeniedError: no NamespaceOffloading yet, or none that can be read.
        KubeError: nobody knows; the webhook configuration's failure policy decides.
    """
    reader = lookup.within(request.budget_s)
    offloading = _offloading(reader, request.namespace)
    if offloading is not None:
        return _placed(reader, request, offloading)
    namespace = reader.get(keys.NAMESPACE, Key("", request.namespace))
    if namespace is None or labels(namespace).get(keys.SCHEDULING_ENABLED) != "true":
        return Admitted(verdict="unchanged: not offloaded")
    found = reader.get(keys.NAMESPACE_OFFLOADING, Key(request.namespace, keys.OFFLOADING_NAME))
    if found and is_terminating(found):
        message = "the NamespaceOffloading of its namespace is being deleted, and places no pod"
        raise DeniedError(f"{message}: try again when it is gone", code=500)
    if found:  # it came between the two looks
        return _placed(reader, request, _parsed(found))
    if is_scheduling_ours(namespace):  # it came ahead of one, or stayed after it
        return Admitted(verdict="unchanged: not offloaded yet")
    message = (
        f"namespace {request.namespace} has the label {keys.SCHEDULING_ENABLED} and no "
        f"NamespaceOffloading: create or correct {keys.OFFLOADING_NAME!r} there, or remove "
        "the label, also from the manifest that sets it, or try again"
    )
    raise DeniedError(message, code=500)


def _placed(reader: Lookup, request: Request, offloading: NamespaceOffloading) -> Admitted:
    """Judge a new pod, and say so if it has nowhere to go, where that is known."""
    pod = request.object
    admitted = pods.judge(pod, offloading)
    with contextlib.suppress(KubeError):
        nodes = reader.all(keys.NODE).values()
        return pods.warned(admitted, pod, offloading, nodes)
    return admitted


def mutate_pod_update(lookup: Lookup, request: Request) -> Admitted:
    """Keep what admission added to a pod, whatever its new lists are."""
    old, new = request.old_object, request.object
    admitted = pods.keep_tolerations(old, new)
    with contextlib.suppress(KubeError, DeniedError):
        offloading = _offloading(lookup.within(request.budget_s), request.namespace)
        if offloading and (more := pods.keep_affinity(old, new, offloading)):
            return replace(admitted, patch=[*admitted.patch, *more], verdict="kept: what was added")
    return admitted


def mutate_daemon_set(request: Request) -> Admitted:
    return pods.keep_daemons_off(request.object)


def validate_pod(lookup: Lookup, request: Request) -> Admitted:
    """Judge a pod as it will be stored; what cannot be judged was refused or deleted."""
    reader = lookup.within(request.budget_s)
    offloading = _offloading(reader, request.namespace)
    if offloading is None:
        return Admitted(verdict="allowed: not offloaded")
    nodes = reader.all(keys.NODE).values()
    return pods.check_placement(request.object, offloading, nodes)


def validate_binding(lookup: Lookup, request: Request) -> Admitted:
    """Judge to which virtual node somebody, not the scheduler of Kubernetes, binds a pod."""
    reader = lookup.within(request.budget_s)
    node = reader.all(keys.NODE).get(Key("", pods.target(request.object)))
    offloading = _offloading(reader, request.namespace) if node else None
    if node is None or offloading is None:
        return Admitted(verdict="allowed: no virtual node of an offloaded namespace")
    pod = reader.get(keys.POD, Key(request.namespace, request.name)) or {}
    return pods.check_node(pod, offloading, node)


def validate_pod_connection(lookup: Lookup, request: Request) -> Admitted:
    """Judge whether somebody may reach into a pod of a twin namespace."""
    reader = lookup.within(request.budget_s)
    namespace = reader.get(keys.NAMESPACE, Key("", request.namespace))
    if not shadowpods.is_by_its_consumer(namespace, request.user, request.groups):
        return Admitted(verdict="allowed: not by a consumer")
    pod = reader.get_live(keys.POD, Key(request.namespace, request.name))
    return shadowpods.check_connection(pod, request.subresource)


def mutate_annotations(lookup: Lookup, kind: Kind, request: Request) -> Admitted:
    """Take annotations off what a consumer writes, for which it would be refused else."""
    reader = lookup.within(request.budget_s)
    namespace = reader.get(keys.NAMESPACE, Key("", request.namespace))
    if not namespace or not shadowpods.is_by_its_consumer(namespace, request.user, request.groups):
        return Admitted(verdict="unchanged: not by a consumer")
    for obj in filter(None, (request.object, request.old_object)):
        admission.check_object(obj, kind.kind)
    return shadowpods.without_orders(kind, request.object, request.old_object, namespace)


def validate_namespace_offloading(lookup: Lookup, request: Request) -> Admitted:
    """Judge a NamespaceOffloading as it would be stored, against the one before and the others."""
    if request.operation == "UPDATE":
        old, new = request.old_object, request.object
        admitted = namespaceoffloadings.check_update(old, new)
        if not namespaceoffloadings.is_another_rule(old, new):
            return admitted
        count = _count_misplaced(lookup, request)
        more = namespaceoffloadings.count_warnings(new, count)
        return replace(admitted, warnings=[*more, *admitted.warnings])
    reader = lookup.within(request.budget_s)
    config = reader.get(keys.CONFIG_MAP, _CLUSTER_ID) or {}
    cluster_id = str((config.get("data") or {}).get(keys.CLUSTER_ID_KEY) or "")
    offloadings = reader.list_live(
        keys.NAMESPACE_OFFLOADING
    )  # rare, and no two may miss each other

    def may_know(namespace: str) -> bool:
        return reader.may_get(request, keys.NAMESPACE_OFFLOADING, namespace)

    def namespaces() -> list[str]:
        return [key.name for key in reader.select_live(Selection(keys.NAMESPACE, Partial))]

    others = namespaceoffloadings.Others(offloadings, namespaces, may_know)
    return namespaceoffloadings.check_create(
        request.object, request.namespace, others=others, cluster_id=cluster_id
    )


def label_namespace(lookup: Lookup, label: Labels, request: Request) -> Admitted:
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


def _count_misplaced(lookup: Lookup, request: Request) -> int | None:
    """Return how many pods would be out of place by the new rules; None if that is not known."""
    reader = lookup.within(min(COUNT_S, request.budget_s))
    try:
        living = Selection(keys.POD, PlacedPod, request.namespace, fields=LIVING)
        pods = reader.select_live(living).values()
        nodes = reader.all(keys.NODE)
    except KubeError:
        return None
    found = [pod.to_object() for pod in pods]
    return namespaceoffloadings.misplaced(request.object, found, nodes)


def mutate_virtual_node(lookup: Lookup, request: Request) -> Admitted:
    key = virtualnodes.template_key(request.object)
    reader = lookup.within(request.budget_s)
    return virtualnodes.fill(request.object, reader.get(keys.VK_OPTIONS_TEMPLATE, key))


def validate_virtual_node(lookup: Lookup, request: Request) -> Admitted:
    """Judge a VirtualNode against the nodes, and its share of a ResourceSlice."""
    new = request.object
    if request.operation == "UPDATE":
        return virtualnodes.check_update(request.old_object, new)
    reader = lookup.within(request.budget_s)
    key = virtualnodes.slice_key(new)
    shared = reader.get(keys.RESOURCE_SLICE, key) if key else None
    namespace = reader.get_live(keys.NAMESPACE, Key("", request.namespace))
    others = reader.list_live(keys.VIRTUAL_NODE).values()
    name = request.name or new["metadata"].get("name")  # none yet where it is to be generated
    has_node = bool(name) and reader.get(keys.NODE, Key("", name)) is not None
    return virtualnodes.check_create(
        new, namespace, has_node=has_node, shared=shared, others=others
    )


def mutate_foreign_cluster(request: Request) -> Admitted:
    return peering.label_foreign_cluster(request.object)


def mutate_tenant(request: Request) -> Admitted:
    return peering.label_tenant(request.object)


def validate_tenant(lookup: Lookup, request: Request) -> Admitted:
    """Judge a Tenant against its namespace and the others, a new name against all bindings."""
    is_update = request.operation == "UPDATE"
    if is_update and not peering.is_tenant_judged(request.old_object, request.object):
        return Admitted(verdict="allowed: nothing that is judged has changed")
    reader = lookup.within(request.budget_s)
    is_new = not is_update or peering.is_renamed(request.old_object, request.object)
    bindings = [
        (kind, key, binding)
        for kind in (peering.BINDINGS if is_new else ())
        for key, binding in reader.select_live(Selection(kind, Binding)).items()
    ]
    return peering.check_tenant(
        request.object,
        Key(request.namespace, request.name),
        reader.get_live(keys.NAMESPACE, Key("", request.namespace)),
        others=reader.list_live(keys.TENANT),
        bindings=bindings,
    )


def mutate_resource_slice(request: Request) -> Admitted:
    """Say of a new ResourceSlice that a virtual node is to be made of it, if nobody has."""
    return peering.mark_slice(request.object, request.groups)


def validate_resource_slice(lookup: Lookup, request: Request) -> Admitted:
    """Judge a ResourceSlice by its name, and a consumer's changes of one."""
    if request.operation == "UPDATE":
        old, new = request.old_object, request.object
        return peering.check_changed_slice(old, new, request.groups)
    if peering.is_replicated_slice(request.object):
        return Admitted(verdict="allowed: a replica")
    reader = lookup.within(request.budget_s)
    found = reader.list_live(keys.RESOURCE_SLICE)
    local = [key for key, one in found.items() if not ownership.is_foreign(one)]
    node = reader.get(keys.NODE, Key("", request.name)) if request.name else None
    return peering.check_new_slice(Key(request.namespace, request.name), local, node)


def mutate_shadow_pod(request: Request, *, is_enforced: bool) -> Admitted:
    return shadowpods.complete(request.object, request.user, is_enforced=is_enforced)


def validate_shadow_pod(lookup: Lookup, request: Request, *, is_enforced: bool) -> Admitted:
    """Judge a consumer's ShadowPod by its namespace, the policies and, if enforced, its Quota."""
    old, new = request.old_object, request.object
    reader = lookup.within(request.budget_s)
    policies = reader.all(keys.PROVIDER_POLICY)
    admission.check_object(new, "ShadowPod")
    shadowpods.check_bearing(old, new, request.groups)
    if request.operation == "UPDATE":
        if is_enforced:
            shadowpods.check_creator(old, new, request.user)
        return shadowpods.check_update(old, new, policies, _affine(reader, new))
    namespace = reader.get(keys.NAMESPACE, Key("", request.namespace))
    admitted = shadowpods.check_create(new, namespace, policies, _affine(reader, new))
    if is_enforced:
        _check_quota(reader, new)
    return admitted


def _affine(reader: Lookup, shadow: Object) -> list[Object | None]:
    """Return the namespaces that terms of its affinity name, None for what is not there."""
    names = podaffinity.looked_up(shadowpods.pod_spec(shadow))
    return [reader.get(keys.NAMESPACE, Key("", name)) for name in sorted(names)]


def _check_quota(reader: Lookup, shadow: Object) -> None:
    """Judge by the cache; anybody who is refused by that is judged again by what is true now."""
    creator, spec = shadowpods.judged_creator(shadow), shadowpods.pod_spec(shadow)
    try:
        shadowpods.check_quota(spec, shadowpods.quota_of(reader.all(keys.QUOTA).values(), creator))
    except DeniedError:
        shadowpods.check_quota(
            spec, shadowpods.quota_of(reader.list_live(keys.QUOTA).values(), creator)
        )


def _offloading(reader: Lookup, namespace: str) -> NamespaceOffloading | None:
    """Return how ``namespace`` is offloaded; one that is being deleted places no pods."""
    found = reader.get(keys.NAMESPACE_OFFLOADING, Key(namespace, keys.OFFLOADING_NAME))
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
        async def asked(cluster: Cluster) -> None:
            try:
                async with asyncio.timeout(seconds):
                    await enable_namespace(cluster, namespace, by)
            except TimeoutError as error:
                message = f"the label of namespace {namespace} was not told in time"
                raise NotReachableError(message) from error

        reader.call(asked)

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
        await _told(cluster, key, found["metadata"]["resourceVersion"])
        return


async def _told(cluster: Cluster, key: Key, since: str) -> None:
    of = Selection(keys.NAMESPACE, Object, fields=f"metadata.name={key.name}")
    async for event in cluster.watch(of, since):
        if event.type != "BOOKMARK" and keys.SCHEDULING_ENABLED in labels(event.object):
            return


class SecretPath:
    """The last segment of the path at which a namespace is labelled: who knows it may ask for that.

    liqo-certs makes it and tells it to API servers alone, beside whom they trust.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self) -> str:
        """Return it; empty while it is absent."""
        try:
            return self._file.read_text().strip()
        except OSError:
            return ""
