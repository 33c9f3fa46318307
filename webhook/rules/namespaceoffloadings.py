"""When a namespace may be offloaded, and what may change later. Pure.

Source: docs/parity.md § 3.2; A-24 to A-25; SEC-D6.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from apis import keys, naming, nodeselector, placement, reflection
from apis.objects import Key, Meta, Object, annotations, canonical
from apis.offloading import MappingStrategy, NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.validation import DeniedError
from webhook import admission
from webhook.admission import Admitted, NodeSelector

MAX_TERMS: Final = 99
"""Of a cluster selector: one more may be added, and pods take 100 in all."""
MAX_BYTES: Final = 48 * 1024
"""Of a cluster selector, as JSON: a pod's node affinity takes it whole, in 64 KiB."""
INVALID: Final = 422


class _NameSpec(msgspec.Struct, gc=False, frozen=True, rename="camel", omit_defaults=True):
    namespace_mapping_strategy: str | None = None
    remote_namespace_name: str | None = None


class _NameStatus(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    remote_namespace_name: str | None = None


class TwinName(msgspec.Struct, gc=False, frozen=True):
    """What of a NamespaceOffloading says how the remote namespace is called."""

    metadata: Meta
    spec: _NameSpec = _NameSpec()
    status: _NameStatus = _NameStatus()

    def of(self, namespace: str, cluster_id: str) -> str:
        """Return the name, the recorded one first."""
        offloading = _parse({"spec": msgspec.to_builtins(self.spec)})
        return self.status.remote_namespace_name or _remote_name(offloading, namespace, cluster_id)


class Others(NamedTuple):
    """What a new NamespaceOffloading is compared with."""

    offloadings: Mapping[Key, TwinName]
    """All that exist."""
    namespaces: Callable[[], Iterable[str]]
    """Returns the names of all that exist; it is called only where they matter."""
    may_know: Callable[[str], bool]
    """Whether the one who asks may be told that a namespace is offloaded."""


def check_create(obj: Object, namespace: str, *, others: Others, cluster_id: str) -> Admitted:
    """Admit a new NamespaceOffloading of ``namespace``, with warnings for what is odd.

    ``cluster_id`` is our own, empty while nobody has chosen it.

    Raises:
        DeniedError: with the field, the rule and the way out.
        MalformedError: not a NamespaceOffloading.
    """
    offloading = check_alone(obj, namespace)
    _check_remote_name(offloading, namespace, cluster_id)
    wanted = _remote_name(offloading, namespace, cluster_id)
    owners = _owners(wanted, namespace, others.offloadings, cluster_id)
    _check_collision(wanted, owners, others.may_know)
    if offloading.mapping_strategy is MappingStrategy.SELECTED_NAME:
        _check_default(wanted, namespace, cluster_id, others)
    return Admitted(warnings=[*_oddities(obj, offloading)])


def check_alone(obj: Object, namespace: str) -> NamespaceOffloading:
    """Return a new NamespaceOffloading of ``namespace`` that is right, whatever else there is.

    Raises:
        DeniedError: with the field, the rule and the way out.
        MalformedError: not a NamespaceOffloading.
    """
    check_shape(obj)
    _check_name(obj)
    if naming.is_system(namespace):
        message = f"namespace {namespace} belongs to the system and is not offloaded"
        raise DeniedError(f"{message}: offload another namespace")
    offloading = _parse(obj)
    _check_selector(obj)
    _check_policy(obj)
    return offloading


def check_update(old: Object, new: Object) -> Admitted:
    """Admit the change from ``old`` to ``new``, with warnings for what is odd.

    An object that is being deleted is checked like any other; what did not change is not.

    Raises:
        DeniedError: a field that never changes was changed, or the selector is wrong.
        MalformedError: not a NamespaceOffloading.
    """
    check_shape(old)
    check_shape(new)
    _check_name(new)
    before, after = _parse(old), _parse(new)
    _check_immutable(before, after)
    if (old["spec"], annotations(old)) == (new["spec"], annotations(new)):
        return Admitted()
    if _terms(old) != _terms(new):
        _check_selector(new)
    if _policy(old) != _policy(new):
        _check_policy(new)
    return Admitted(warnings=[*_oddities(new, after)])


def is_another_rule(old: Object, new: Object) -> bool:
    """Whether running pods may be out of place after the change from ``old`` to ``new``."""
    before, after = _parse(old), _parse(new)
    is_open = after.strategy is Strategy.LOCAL_AND_REMOTE and not after.cluster_selector
    was, becomes = ((one.strategy, one.cluster_selector) for one in (before, after))
    return was != becomes and not is_open


def misplaced(obj: Object, pods: Iterable[Object], virtual: Mapping[Key, Object]) -> int:
    """Return how many of ``pods`` run where ``obj`` places none; ``virtual`` are such nodes."""
    offloading = _parse(obj)
    return sum(bool(placement.misplaced(offloading, pod, _node(pod, virtual))) for pod in pods)


def _node(pod: Object, virtual: Mapping[Key, Object]) -> Object | None:
    return virtual.get(Key("", pod["spec"].get("nodeName") or ""))


def count_warnings(obj: Object, count: int | None) -> list[str]:
    """Return what to report of the ``count`` pods that are out of place; None is unknown."""
    if count == 0:
        return []
    strategy, note = _parse(obj).strategy.value, keys.EVICT_MISPLACED
    who = "pods that run may" if count is None else f"{count} running pod(s)"
    what = f"{who} violate podOffloadingStrategy {strategy} and its cluster selector now"
    if annotations(obj).get(note) == strategy:
        return [f"{what}: they are evicted, as the annotation {note} asks"]
    return [f"{what}: they are not evicted, unless you annotate {note}={strategy}"]


def _check_name(obj: Object) -> None:
    name = obj["metadata"].get("name") or ""
    if name != keys.OFFLOADING_NAME:
        message = f"metadata.name must be {keys.OFFLOADING_NAME!r}, not {name!r}"
        raise DeniedError(f"{message}: rename it, as a namespace has one NamespaceOffloading")


def _check_immutable(before: NamespaceOffloading, after: NamespaceOffloading) -> None:
    chosen = after.mapping_strategy is MappingStrategy.SELECTED_NAME
    if before.mapping_strategy is not after.mapping_strategy:
        field, was = "namespaceMappingStrategy", before.mapping_strategy.value
    elif chosen and before.remote_namespace_name != after.remote_namespace_name:
        field, was = "remoteNamespaceName", before.remote_namespace_name or "unset"
    else:
        return
    message = f"spec.{field} cannot be modified after creation (it is {was})"
    raise DeniedError(f"{message}: delete the NamespaceOffloading and create it again")


def _check_selector(obj: Object) -> None:
    terms = _terms(obj)
    if problem := _excess(terms):
        raise DeniedError(f"{problem}: say the same with fewer", code=INVALID)
    try:
        nodeselector.check(terms)
    except ValueError as error:
        raise DeniedError(f"spec.clusterSelector.{error}: correct it", code=INVALID) from error


def _excess(terms: list[Object]) -> str:
    """Return which size of a cluster selector is over its bound, before anything reads it."""
    if len(terms) > MAX_TERMS:
        return f"spec.clusterSelector has {len(terms)} terms, {MAX_TERMS} are possible"
    if problem := nodeselector.excess(terms):
        return f"spec.clusterSelector.{problem}"
    size = len(canonical(terms))
    too_long = f"spec.clusterSelector has {size} bytes of JSON, {MAX_BYTES} are possible"
    return too_long if size > MAX_BYTES else ""


def _check_policy(obj: Object) -> None:
    policy, known = _policy(obj), [policy.value for policy in reflection.ALL]
    if policy is not None and policy not in known:
        message = f"annotation {keys.REFLECTION_POLICY} is {policy!r}, and no policy"
        raise DeniedError(f"{message}: use {', '.join(known)}, or remove it", code=INVALID)


def _policy(obj: Object) -> str | None:
    return annotations(obj).get(keys.REFLECTION_POLICY)


def _check_remote_name(offloading: NamespaceOffloading, namespace: str, cluster_id: str) -> None:
    chosen = offloading.mapping_strategy is MappingStrategy.SELECTED_NAME
    if chosen and not offloading.remote_namespace_name:
        raise DeniedError("spec.remoteNamespaceName is mandatory with SelectedName: set it")
    name = _remote_name(offloading, namespace, cluster_id)
    way = f"choose another with {'' if chosen else 'SelectedName and '}spec.remoteNamespaceName"
    if name and not naming.is_dns_label(name):
        rule = "must be at most 63 characters of a-z, 0-9 and '-'"
        raise DeniedError(f"the remote namespace {name!r} {rule}: {way}")
    if naming.is_reserved(name):
        raise DeniedError(f"the remote namespace {name!r} is reserved on every provider: {way}")


def _check_collision(wanted: str, owners: Iterable[str], may_know: Callable[[str], bool]) -> None:
    for owner in owners:
        whose = owner if may_know(owner) else "another namespace"
        message = f"the remote namespace {wanted!r} is already that of {whose}"
        way = "choose another with SelectedName and spec.remoteNamespaceName"
        raise DeniedError(f"{message}: {way}", code=409)


def _check_default(wanted: str, namespace: str, cluster_id: str, others: Others) -> None:
    """Check that ``wanted`` is not kept for another namespace that is there, offloaded or not.

    Source: docs/parity.md H21.
    """
    if not naming.may_be_default(wanted, cluster_id):
        return
    for other in others.namespaces():
        if other != namespace and naming.default_remote_namespace(other, cluster_id) == wanted:
            whose = f"namespace {other}" if others.may_know(other) else "another namespace"
            message = f"the remote namespace {wanted!r} is kept for {whose} as its default name"
            raise DeniedError(f"{message}: choose another spec.remoteNamespaceName", code=409)


def _owners(
    wanted: str, namespace: str, others: Mapping[Key, TwinName], cluster_id: str
) -> Iterator[str]:
    """Yield whose remote namespace is called ``wanted``, besides that of ``namespace``."""
    for key, other in others.items() if wanted else ():
        if key.namespace != namespace and other.of(key.namespace, cluster_id) == wanted:
            yield key.namespace


def _remote_name(offloading: NamespaceOffloading, namespace: str, cluster_id: str) -> str:
    """Return the twin's name, empty where it needs a cluster ID that nobody has chosen yet."""
    if offloading.mapping_strategy is MappingStrategy.DEFAULT_NAME and not cluster_id:
        return ""
    return offloading.remote_name(namespace, cluster_id)


def _oddities(obj: Object, offloading: NamespaceOffloading) -> Iterator[str]:
    named = annotations(obj).get(keys.EVICT_MISPLACED, offloading.strategy.value)
    if named != offloading.strategy.value:
        yield f"annotation {keys.EVICT_MISPLACED}={named} has no effect: it names another strategy"
    chosen = offloading.mapping_strategy is MappingStrategy.SELECTED_NAME
    if offloading.remote_namespace_name and not chosen:
        yield "spec.remoteNamespaceName has no effect without SelectedName"
    for index, term in enumerate(_terms(obj)):
        if not term.get("matchExpressions") and not term.get("matchFields"):
            yield f"spec.clusterSelector.nodeSelectorTerms[{index}] is empty and matches no cluster"


def _terms(obj: Object) -> list[Object]:
    return (obj["spec"].get("clusterSelector") or {}).get("nodeSelectorTerms") or []


def _parse(obj: Object) -> NamespaceOffloading:
    try:
        return NamespaceOffloading.parse(obj)
    except ValueError as error:
        raise DeniedError(
            f"the NamespaceOffloading cannot be read: {error}: correct it", code=INVALID
        ) from error


# What the rules read of a NamespaceOffloading -----------------------------------------------------


class _Spec(msgspec.Struct, rename="camel"):
    namespace_mapping_strategy: str | None = None
    remote_namespace_name: str | None = None
    pod_offloading_strategy: str | None = None
    cluster_selector: NodeSelector | None = None


class _Metadata(msgspec.Struct):
    name: str | None = None
    annotations: dict[str, str] | None = None


class _NamespaceOffloading(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


def check_shape(obj: Object) -> None:
    """Check what the rules read of ``obj``; what fits the CRD's schema always passes.

    Raises:
        MalformedError: something else is there than in a NamespaceOffloading.
    """
    admission.check_struct(obj, _NamespaceOffloading, "NamespaceOffloading")
