"""What a consumer may have of a provider: ShadowPods, within its Quota, and its own pods. Pure.

Nothing is booked here. Refused is what could not run on an empty quota; what has to wait for its
turn is admitted, and the ShadowPod controller, which keeps the ledger, tells it why it waits.
Source: docs/parity.md § 3.7, 3.8; SEC-A1 to SEC-A3, SEC-A7, SEC-A13, SEC-A23; X11.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from apis import (
    allowlist,
    keys,
    objects,
    ownership,
    podaffinity,
    podfields,
    podsecurity,
    quotas,
    validation,
)
from apis.objects import Key, Kind, Object, annotations, labels
from apis.providerpolicy import ProviderPolicy
from apis.quotas import Demand, QuotaGrant
from apis.validation import DeniedError
from webhook import admission
from webhook.admission import Admitted, Lookup, Operation, Request

_CREATOR: Final = ("metadata", "labels", keys.CREATOR_USER)
_TOKEN: Final = ("spec", "pod", "automountServiceAccountToken")


def misses_namespace(lookup: Lookup, namespace: str) -> bool:
    """Whether no cache has the twin ``namespace``; a Quota that refuses is asked of the server."""
    return lookup.cached(keys.NAMESPACE, Key("", namespace)) is None


def complete(request: Request, *, is_enforced: bool) -> Admitted:
    """Say who created it, where that counts or was claimed; and mount no token unasked.

    Raises:
        DeniedError: no label can carry the user's name.
    """
    obj, spec = request.object, pod_spec(request.object)
    changes: list[Operation] = []
    if is_enforced or keys.CREATOR_USER in labels(obj):
        changes += admission.put(obj, _CREATOR, creator(request.user))
    if spec and spec.get(_TOKEN[-1]) is None:
        changes += admission.put(obj, _TOKEN, value=False)
    return Admitted(changes, verdict="completed" if changes else "unchanged")


def check(request: Request, lookup: Lookup, *, is_enforced: bool) -> Admitted:
    """Admit a consumer's ShadowPod by its namespace, the policies and, if enforced, its Quota.

    Raises:
        DeniedError: it is not to run here, or is changed as it may not be.
    """
    old, new = request.old_object, request.object
    policies = lookup.all(keys.PROVIDER_POLICY)
    admission.check_object(new, "ShadowPod")
    check_bearing(old, new, request.groups)
    if request.operation == "UPDATE":
        if is_enforced:
            check_creator(old, new, request.user)
        return check_update(old, new, policies, _named(new, lookup))
    namespace = lookup.get(keys.NAMESPACE, Key("", request.namespace))
    admitted = check_create(new, namespace, policies, _named(new, lookup))
    if is_enforced:
        _check_quota(new, lookup)
    return admitted


def _named(obj: Object, lookup: Lookup) -> list[Object | None]:
    """Return the namespaces that terms of its affinity name, None for what is not there."""
    names = podaffinity.looked_up(pod_spec(obj))
    return [lookup.get(keys.NAMESPACE, Key("", name)) for name in sorted(names)]


def check_bearing(old: Object, new: Object, groups: Sequence[str]) -> None:
    """Check that a consumer adds nothing to ``new`` that keeps a provider from deleting it.

    Who is of this cluster may, as its own controllers have to.

    Raises:
        DeniedError: it does.
    """
    if any(one.startswith("system:") and one != "system:authenticated" for one in groups):
        return
    for field in ("finalizers", "ownerReferences"):
        have = old.get("metadata", {}).get(field) or []
        if any(one not in have for one in new["metadata"].get(field) or []):
            raise DeniedError(f"metadata.{field} are for the provider to set: leave them out")


def check_create(
    obj: Object,
    namespace: Object | None,
    policies: Mapping[Key, Object],
    named: Iterable[Object | None] = (),
) -> Admitted:
    """Admit what the consumer of ``namespace`` may run here.

    ``named`` are the namespaces that its terms of affinity name, as far as they are there.

    Raises:
        DeniedError: not its namespace, or not a pod that is allowed here.
    """
    spec = pod_spec(obj)
    if not spec.get("containers"):
        raise DeniedError("spec.pod.containers is missing: give the spec of a pod", code=422)
    origin = ownership.shadow_origin(obj)
    if not origin:
        message = f"metadata.labels: {keys.ORIGIN} is missing"
        raise DeniedError(f"{message}: set it to the cluster ID of the consumer")
    if namespace is None:
        raise DeniedError("the namespace does not exist: create it first", code=400)
    if ownership.consumer_of(namespace) != origin:
        message = f"metadata.labels: {keys.ORIGIN} is {origin!r}, and the namespace"
        raise DeniedError(f"{message} is not one of that cluster: use a namespace mapped to it")
    policy = ProviderPolicy.for_pods(origin, policies).reaching(podaffinity.own(named, origin))
    _check_pod(obj, policy)
    if spec.get("ephemeralContainers"):
        message = "spec.pod.ephemeralContainers are for a pod that runs"
        raise DeniedError(f"{message}: add them once the ShadowPod exists")
    return Admitted()


def _check_pod(obj: Object, policy: ProviderPolicy) -> None:
    _check_annotations(obj, policy)
    podfields.judge(pod_spec(obj), policy)
    demand_of(pod_spec(obj))


def _check_annotations(obj: Object, policy: ProviderPolicy) -> None:
    if policy.pod_security_level != "privileged":
        for complaint in podsecurity.app_armor(annotations(obj)):
            raise DeniedError(f"{complaint}: {podfields.cure(complaint)}")
    _check_grace(annotations(obj), policy)


def _check_grace(noted: Mapping[str, str], policy: ProviderPolicy) -> None:
    """Check in what time its Pod is to end, as that of its spec is checked."""
    given = validation.text(noted.get(keys.DELETION_GRACE), "metadata.annotations")
    if not given:
        return
    most = policy.allowed.max_termination_grace_period_seconds
    is_number = given.isascii() and given.isdecimal() and len(given) <= len(str(most))
    if not is_number or not 1 <= int(given) <= most:
        message = f"metadata.annotations: {keys.DELETION_GRACE} is {given!r}"
        raise DeniedError(f"{message}: give it from 1 to {most} seconds")


def check_update(
    old: Object,
    new: Object,
    policies: Mapping[Key, Object],
    named: Iterable[Object | None] = (),
) -> Admitted:
    """Admit a change of metadata and of what may change in a Pod; check what is new of it.

    Its virtual kubelet has to tell of its end also where a policy was narrowed since it came.

    Raises:
        DeniedError: anything else changed, or to what is not allowed.
    """
    before, after = pod_spec(old), pod_spec(new)
    origin = ownership.shadow_origin(old)
    if origin != ownership.shadow_origin(new):
        raise DeniedError(f"metadata.labels: {keys.ORIGIN} cannot be changed: leave it as it was")
    if (before, annotations(old)) == (after, annotations(new)):
        return Admitted()
    changed = _changed(_fixed(before), _fixed(after))
    if changed:
        message = f"spec.pod.{changed} cannot be changed"
        raise DeniedError(
            f"{message}: create the pod again, or change images, resources, tolerations, deadline"
        )
    own = podaffinity.own(named, origin or "")
    had = validation.structs(before.get("tolerations"), "spec.pod.tolerations")
    policy = ProviderPolicy.for_pods(origin or "", policies).reaching(own).keeping(had)
    if before == after:
        _check_annotations(new, policy)
    else:
        _check_pod(new, policy)
    return Admitted()


def check_creator(old: Object, new: Object, user: str) -> None:
    """Check that a ShadowPod is changed by the one who created it.

    Finalizers and owners come and go by the API server's own controllers.

    Raises:
        DeniedError: it is not.
    """
    admission.check_object(old, "ShadowPod")
    admission.check_object(new, "ShadowPod")
    key = keys.CREATOR_USER
    made_by = labels(old).get(key)
    if made_by != labels(new).get(key):
        raise DeniedError(f"metadata.labels: {key} cannot be changed: leave it as it was")
    if _protected(old) == _protected(new):
        return
    if made_by is None or made_by != creator(user):
        message = f"metadata.labels: {key} is {made_by!r}, and user {user!r} is another"
        raise DeniedError(f"{message}: let its creator change it")


def creator_of(obj: Object) -> str:
    """Return the user to whose Quota it counts.

    Raises:
        DeniedError: the label is missing.
    """
    found = labels(obj).get(keys.CREATOR_USER)
    if not found:
        message = f"metadata.labels: {keys.CREATOR_USER} is missing"
        raise DeniedError(f"{message}: the mutating webhook sets it, look at its configuration")
    return found


def pod_spec(obj: Object) -> Object:
    """Return ``spec.pod``, {} if it is absent."""
    admission.check_object(obj, "ShadowPod")
    return validation.struct(objects.spec(obj).get("pod"), "spec.pod")


def _protected(obj: Object) -> tuple[object, ...]:
    metadata = obj["metadata"]
    return obj.get("spec"), metadata.get("labels"), metadata.get("annotations")


def _fixed(spec: Object) -> Object:
    kept = _without(podfields.FOLLOWED, spec)
    for field in ("containers", "initContainers"):
        if field in kept:
            listed = validation.structs(kept[field], f"spec.pod.{field}")
            kept[field] = [_without(podfields.FOLLOWED_OF_CONTAINERS, one) for one in listed]
    return kept


def _without(names: Container[str], obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in names}


def _changed(before: Object, after: Object) -> str:
    names = sorted(before.keys() | after.keys())
    return next((name for name in names if before.get(name) != after.get(name)), "")


# Quotas -------------------------------------------------------------------------------------------

UNREADABLE: Final = 500


def creator(user: str) -> str:
    """Return the value of the label that says who ``user`` is.

    Raises:
        DeniedError: no label can say so.
    """
    escaped = quotas.label(user)
    if not escaped or len(escaped) > quotas.MAX_LABEL:
        takes = f"metadata.labels: {keys.CREATOR_USER} takes 1 to {quotas.MAX_LABEL} characters"
        raise DeniedError(f"{takes}, not the user name {user!r}: use a shorter one")
    return escaped


def _check_quota(obj: Object, lookup: Lookup) -> None:
    """Check it by the cache; what that refuses is checked again by what is true now."""
    label, spec = creator_of(obj), pod_spec(obj)
    try:
        check_quota(spec, quota_of(lookup.all(keys.QUOTA).values(), label))
    except DeniedError:
        check_quota(spec, quota_of(lookup.list_live(keys.QUOTA).values(), label))


def quota_of(found: Iterable[Object], label: str) -> Object:
    """Return the Quota whose user is ``label``.

    Raises:
        DeniedError: the user has no Quota.
    """
    quota = quotas.first(found, label)
    if quota is None:
        raise DeniedError(quotas.missing(label).message)
    return quota


def demand_of(spec: Object) -> Demand:
    """Return what a pod of the PodSpec ``spec`` takes, whether anybody counts it or not.

    Raises:
        DeniedError: an amount cannot be read; the message names the field.
    Source: docs/parity.md SEC-A13.
    """
    try:
        return Demand.of(spec)
    except ValueError as error:
        raise DeniedError(str(error), code=validation.INVALID) from error


def check_quota(spec: Object, quota: Object) -> None:
    """Refuse the PodSpec ``spec`` where it would not fit ``quota`` if nothing else ran.

    Raises:
        DeniedError: the message names resource, what is asked for, and what there is.
    """
    wanted = demand_of(spec)
    try:
        grant = QuotaGrant.parse(quota)
    except ValueError as error:
        message = f"{error}: the provider has to correct it"
        raise DeniedError(message, code=UNREADABLE) from error
    refused = quotas.never(grant, wanted)
    if refused is not None:
        raise DeniedError(refused.message)


# What a consumer does in its twin namespaces: reach into pods, write annotations ------------------


def is_by_its_consumer(namespace: Object | None, user: str, groups: Iterable[str]) -> bool:
    """Whether the consumer that ``namespace`` is a twin of asks: by name, or by a kubelet's group.

    Source: docs/parity.md § 2.5, certificates.
    """
    consumer = ownership.consumer_of(namespace)
    return bool(consumer) and (user == consumer or consumer in groups)


def check_connect(request: Request, lookup: Lookup) -> Admitted:
    """Admit that somebody reaches into a pod; a consumer, in its twins, into its own alone."""
    namespace = lookup.get(keys.NAMESPACE, Key("", request.namespace))
    if not is_by_its_consumer(namespace, request.user, request.groups):
        return Admitted(verdict="allowed: not by a consumer")
    pod = lookup.get_live(keys.POD, Key(request.namespace, request.name))
    return check_connection(pod, request.subresource)


def check_connection(pod: Object | None, subresource: str) -> Admitted:
    """Admit that a consumer reaches into ``pod``.

    Raises:
        DeniedError: somebody of the provider put it there.
    """
    if pod is None:
        return Admitted(verdict="allowed: no such pod")
    owner = objects.controller_of(pod) or {}
    group = str(owner.get("apiVersion")).partition("/")[0]
    if (group, owner.get("kind")) == (keys.SHADOW_POD.group, keys.SHADOW_POD.kind):
        return Admitted(verdict="allowed: of a ShadowPod")
    message = f"{subresource}: the pod is not of a ShadowPod, so it is the provider's own"
    raise DeniedError(f"{message}: choose one that was offloaded, or ask the provider")


def strip_annotations(request: Request, lookup: Lookup, kind: Kind) -> Admitted:
    """Take annotations off what a consumer writes, for which it would be refused else."""
    namespace = lookup.get(keys.NAMESPACE, Key("", request.namespace))
    if not namespace or not is_by_its_consumer(namespace, request.user, request.groups):
        return Admitted(verdict="unchanged: not by a consumer")
    for obj in filter(None, (request.object, request.old_object)):
        admission.check_object(obj, kind.kind)
    return without_orders(kind, request.object, request.old_object, namespace)


def without_orders(kind: Kind, new: Object, old: Object, namespace: Object) -> Admitted:
    """Take the annotations off that programs of the provider obey, but those that were there.

    ``old`` is {} of an object that is created.
    """
    wanted, had = objects.annotations(new), objects.annotations(old) if old else {}
    listed = objects.annotations(namespace).get(keys.OFFERED_ANNOTATION_DOMAINS, "")
    gone = allowlist.refused(kind, wanted, had, filter(None, listed.split(",")))
    if not gone:
        return Admitted(verdict="unchanged: no order")
    kept = {name: value for name, value in wanted.items() if name not in gone}
    kept |= {name: had[name] for name in gone & had.keys()}
    warning = (
        f"metadata.annotations: {', '.join(sorted(gone))} left out: programs of the provider may "
        "obey that, ask it for annotationDomains of its ProviderPolicy"
    )
    changes = admission.put(new, ("metadata", "annotations"), kept)
    return Admitted(changes, [warning], "changed: left out what programs obey")
