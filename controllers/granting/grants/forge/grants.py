"""What each slice of a consumer may hold, whether it is cordoned, and what is written of it. Pure.

Source: docs/parity.md § 1.7, 1.8, 4.5, 4.6.
"""

import contextlib
import functools
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple

from apis import keys, naming, objects, ownership, providerpolicy, resources, slices
from apis.objects import Key, Object
from apis.offloading import OfferedClass
from apis.providerpolicy import GrantDefaults, Offered, ProviderPolicy
from apis.resources import Quantity, Resources
from apis.slices import ResourceSlice
from controllers.granting.grants.forge.division import Share, SliceDemand

DENIED: Final = "ResourceSliceResourcesDenied"
CLASS_DISABLED: Final = "DefaultResourceSliceClassDisabled"
CLASS_REFUSED: Final = "ResourceSliceClassNotAllowed"
UNREADABLE: Final = "ResourceSliceUnreadable"
WITHHELD: Final = "ProviderIncomplete"

ACTIVE, CORDONED, DRAINED = "Active", "Cordoned", "Drained"


class SliceRefusal(NamedTuple):
    """Why a slice gets nothing: the reason and the message of its condition."""

    reason: str
    message: str


@dataclass(frozen=True)
class SliceRequest:
    """A replica, whose it is, and what is to be done with it."""

    obj: Object
    policy: ProviderPolicy
    claim: SliceDemand
    refusal: SliceRefusal | None = None
    is_ours: bool = True
    """Otherwise the controller of its class says what it is granted."""


@dataclass(frozen=True)
class GrantInputs:
    """What there is at one moment; everything but the ledger as the server has it."""

    slices: Mapping[Key, Object]
    quotas: Mapping[Key, Object]
    tenants: Mapping[Key, Object]
    policies: Mapping[Key, Object]
    ledger: Mapping[Key, "LedgerEntry"]
    """Amounts only where somebody may still be writing them."""

    @functools.cached_property
    def quotas_of(self) -> Mapping[Key, Sequence[Object]]:
        """The Quotas by the slice that they were made for, whatever became of it."""
        found: dict[Key, list[Object]] = {}
        for key, quota in self.quotas.items():
            owner = objects.controller_of(quota)
            if owner and owner["kind"] == keys.RESOURCE_SLICE.kind:
                found.setdefault(Key(key.namespace, owner["name"]), []).append(quota)
        return found


class LedgerEntry(NamedTuple):
    """What a slice may hold, by the ledger."""

    class_: str
    amounts: Resources


def slice_requests(seen: GrantInputs, standard: GrantDefaults) -> list[SliceRequest]:
    """Return what is to be done with each replica whose consumer is authenticated."""
    found = []
    for obj in seen.slices.values():
        tenant = tenant_of(seen.tenants, objects.key_of(obj).namespace)
        is_let_in = tenant and slices.is_accepted(obj, slices.AUTHENTICATION)
        if tenant and is_let_in and ownership.is_foreign(obj):
            found.append(_slice_request(obj, tenant, seen, standard))
    return found


def withheld(said: str, *, is_kind: bool) -> SliceRefusal:
    """Return why nothing is granted where the kind Quota, or the right to read it, is missing.

    ``said`` are the API server's words.
    """
    why = f"the provider does not serve the kind {keys.QUOTA.resource}" if is_kind else said
    cure = "its administrator runs liqoctl install, then the slice is granted by itself"
    return SliceRefusal(WITHHELD, f"{why}: {cure}")


def leaving(seen: GrantInputs, applied: Container[Key]) -> Iterator[SliceDemand]:
    """Yield what is still held for slices that have not ``applied``: gone, denied, never ours."""
    for key, entry in _held_by_others(seen, applied).items():
        tenant = tenant_of(seen.tenants, key.namespace)
        cluster_id = str(tenant["spec"]["clusterID"]) if tenant else ""
        try:
            policy = providerpolicy.policy_of(seen.policies.values(), cluster_id)
        except ValueError:
            policy = ProviderPolicy()
        is_shared = entry.class_ == slices.SHARED_CLASS
        if entry.amounts:
            yield SliceDemand(
                key, cluster_id, policy, {}, entry.amounts, is_shared=is_shared, is_leaving=True
            )


def tenant_of(tenants: Mapping[Key, Object], namespace: str) -> Object | None:
    found = (obj for key, obj in tenants.items() if key.namespace == namespace)
    return next((one for one in found if objects.spec(one).get("clusterID")), None)


def condition_of(tenant: Object) -> str:
    """Return how the provider means the tenant: Active, Cordoned or Drained."""
    return str(objects.spec(tenant).get("tenantCondition") or ACTIVE)


def is_closed(tenant: Object | None) -> bool:
    """Whether the provider cordoned or drains the tenant, and takes no more pods of it."""
    return tenant is not None and condition_of(tenant) != ACTIVE


def held(obj: Object, seen: GrantInputs) -> dict[str, Quantity]:
    """Return the most that the slice ``obj`` may hold now: by status, Quota and ledger."""
    key = objects.key_of(obj)
    entry = seen.ledger.get(key)
    quotas = [_amounts(quota.get("spec")) for quota in seen.quotas_of.get(key, [])]
    return _most([_amounts(obj.get("status")), *quotas, entry.amounts if entry else {}])


def is_closed_to(slice_: Object | None, tenant: Object) -> bool:
    """Whether no more pods are let in for ``slice_`` of ``tenant``, None for one that is not there.

    A consumer that spoils its slice, or hides it, keeps what runs and gets no more.
    Source: docs/parity.md § 4.6.
    """
    if is_closed(tenant) or slice_ is None:
        return True
    return slices.is_cordoned(slice_) or slices.is_spoiled(slice_)


def _slice_request(
    obj: Object, tenant: Object, seen: GrantInputs, standard: GrantDefaults
) -> SliceRequest:
    key, cluster_id = objects.key_of(obj), str(tenant["spec"]["clusterID"])
    policy, has = ProviderPolicy(), held(obj, seen)
    try:
        policy = providerpolicy.policy_of(seen.policies.values(), cluster_id)
        slice_ = ResourceSlice.parse(obj)
    except ValueError as error:
        claim = SliceDemand(key, cluster_id, policy, {}, has, is_leaving=True)
        return SliceRequest(obj, policy, claim, SliceRefusal(UNREADABLE, str(error)))
    class_ = policy.class_of(slice_.class_)
    refusal = _refusal(slice_, class_, tenant, obj, policy, standard)
    is_ours = class_ in slices.BUILT_IN
    is_shared = class_ == slices.SHARED_CLASS
    claim = SliceDemand(
        key,
        cluster_id,
        policy,
        slice_.wanted if is_shared else {**standard.resources, **slice_.wanted},
        has,
        slice_.created,
        is_shared=is_shared,
        is_frozen=condition_of(tenant) == CORDONED,
        is_leaving=bool(refusal) or not is_ours or objects.is_terminating(obj),
    )
    return SliceRequest(obj, policy, claim, refusal, is_ours)


def _refusal(  # noqa: PLR0913, PLR0917  # all that speaks against a slice
    slice_: ResourceSlice,
    class_: str,
    tenant: Object,
    obj: Object,
    policy: ProviderPolicy,
    standard: GrantDefaults,
) -> SliceRefusal | None:
    condition, consumer = condition_of(tenant), str(tenant["spec"]["clusterID"])
    if slice_.consumer != consumer:
        message = f"spec.consumerClusterID {slice_.consumer!r} is not {consumer}, whose namespace"
        return SliceRefusal(DENIED, f"{message} this is")
    is_new = slices.answer(obj, slices.RESOURCES) != slices.ACCEPTED
    if condition == DRAINED or (condition == CORDONED and is_new):
        message = f"tenant {tenant['metadata']['name']} is {condition.lower()}: ask the provider"
        return SliceRefusal(DENIED, message)
    if slices.is_drained(obj):
        message = "the provider drains this slice: its pods have to leave until it takes it back"
        return SliceRefusal(slices.DRAINED, message)
    if not policy.allows_class(slice_.class_):
        allowed = ", ".join(policy.resource_slice_classes.allowed or ()) or "none"
        message = (
            f"spec.class {slice_.class_ or class_} is not for this tenant, choose one of: {allowed}"
        )
        return SliceRefusal(CLASS_REFUSED, message)
    if class_ == slices.DEFAULT_CLASS and not standard.is_default_class_enabled:
        message = "the provider has switched the class default off: name another in spec.class"
        return SliceRefusal(CLASS_DISABLED, message)
    return None


def _held_by_others(seen: GrantInputs, applied: Container[Key]) -> dict[Key, LedgerEntry]:
    """Return what is held in the name of slices that have not applied, by ledger and Quotas."""
    found = {key: entry for key, entry in seen.ledger.items() if key not in applied}
    for slice_, quotas in seen.quotas_of.items():
        if slice_ not in applied:
            class_, amounts = found.get(slice_, LedgerEntry("", {}))
            amounts = _most([amounts, *(_amounts(quota.get("spec")) for quota in quotas)])
            found[slice_] = LedgerEntry(class_ or slices.DEFAULT_CLASS, amounts)
    return found


def _amounts(part: Object | None) -> Resources:
    try:
        return resources.parse_resources((part or {}).get("resources"))
    except ValueError:  # it grants nothing: nobody can book on it
        return {}


def _most(parts: Iterable[Resources]) -> dict[str, Quantity]:
    most: dict[str, Quantity] = {}
    for part in parts:
        for name, amount in part.items():
            most[name] = max(most.get(name, amount), amount)
    return most


# Cordon and drain of slices, kept where their consumers cannot take them away ---------------------
# They are annotations of the replica, as Liqo has them, and go with it when its consumer deletes
# it. So the ledger of the tenant notes them with its UID: one of another UID was made
# again and gets them back, one of the same UID without them was taken back by the provider.

_FIELDS: Final = {"cordoned": keys.CORDON, "drained": keys.DRAIN}


class SliceCordon(NamedTuple):
    """What the provider said of a slice, and which object it said it of."""

    uid: str
    names: frozenset[str]
    """The annotations that are there and say yes."""


def parsed_cordons(listed: Iterable[Object], namespace: str = "") -> dict[Key, SliceCordon]:
    """Return what ``cordoned`` of the ledger of the tenant in ``namespace`` says.

    Without that, of the ledger of all tenants, as was kept before: its marks name theirs.
    """
    return {
        Key(namespace or one["namespace"], one["name"]): SliceCordon(
            one["uid"], frozenset(name for field, name in _FIELDS.items() if one.get(field))
        )
        for one in listed
    }


def shown_cordons(cordons: Mapping[Key, SliceCordon]) -> list[Object]:
    """Return the ``cordons`` of one tenant there; ``parsed_cordons`` is the inverse."""
    return [
        {
            "name": key.name,
            "uid": mark.uid,
            **{field: True for field, name in _FIELDS.items() if name in mark.names},
        }
        for key, mark in sorted(cordons.items())
    ]


def lost_cordons(obj: Object, known: Mapping[Key, SliceCordon]) -> dict[str, str]:
    """Return the annotations that the slice ``obj`` lacks since its consumer made it again."""
    mark = known.get(objects.key_of(obj))
    if mark is None or mark.uid == objects.uid(obj) or objects.is_terminating(obj):
        return {}
    return dict.fromkeys(mark.names - _names(obj), "true")


def current_cordons(
    known: Mapping[Key, SliceCordon], found: Mapping[Key, Object], tenants: Mapping[Key, Object]
) -> dict[Key, SliceCordon]:
    """Return the marks to be kept, once all that were lost are back.

    Those of slices that are away are kept as long as their tenant is there. Of a drained tenant
    the provider takes the slices away itself: who activates it again has them as if never marked.
    """
    away = {
        key: mark
        for key, mark in known.items()
        if key not in found and _may_return(tenant_of(tenants, key.namespace))
    }
    marked = {key: SliceCordon(objects.uid(obj), _names(obj)) for key, obj in found.items()}
    return away | {key: mark for key, mark in marked.items() if mark.names}


def _may_return(tenant: Object | None) -> bool:
    """Whether a consumer may bring its slices back by itself."""
    return tenant is not None and condition_of(tenant) != DRAINED


def _names(obj: Object) -> frozenset[str]:
    return frozenset(name for name in _FIELDS.values() if slices.says_yes(obj, name))


# What is written of a grant: the slice's status, its Quota, the ledger ----------------------------
# Source: docs/parity.md § 1.7, 1.8, 4.5, 4.6.

ACCEPTED: Final = "ResourceSliceResourcesAccepted"
NOTHING: Final = "NothingToGrant"
_NEEDED: Final = ("cpu", "memory")


# The status of a slice ----------------------------------------------------------------------------


def status(
    application: SliceRequest,
    share: Share | None,
    standard: GrantDefaults,
    storage: Sequence[OfferedClass],
    now: datetime,
) -> Object | None:
    """Return the whole status of a slice; None where nothing is to be said now."""
    if application.refusal:
        return denied(application.obj, application.refusal, now)
    if share is None:
        return None
    was_accepted = slices.is_accepted(application.obj, slices.RESOURCES)
    if not was_accepted and _is_empty(share.now):
        if not _is_empty(share.target):
            return None  # its turn comes as soon as others have given back
        message = "; ".join(share.notes) or "nothing is left to grant"
        return denied(application.obj, SliceRefusal(NOTHING, message), now)
    message = "; ".join([_class(application), *share.notes])
    before = objects.status(application.obj)
    return {
        **before,
        "resources": resources.to_json(share.now),
        **_offered(application.policy, standard, storage),
        "conditions": objects.set_condition(
            before.get("conditions"), slices.RESOURCES, slices.ACCEPTED, ACCEPTED, message, now
        ),
    }


def _class(application: SliceRequest) -> str:
    """Return by which class a slice was granted what it has; without a colon, unlike notes."""
    if application.claim.is_shared:
        return f"class {slices.SHARED_CLASS}, {application.policy.sharing.told()}"
    return f"class {slices.DEFAULT_CLASS}, as asked and fixed amounts for the rest"


def denied(obj: Object, refusal: SliceRefusal, now: datetime) -> Object:
    before = objects.status(obj)
    said = objects.set_condition(
        before.get("conditions"), slices.RESOURCES, slices.DENIED, refusal.reason,
        refusal.message, now,
    )  # fmt: skip
    return {**before, "conditions": said}


def _is_empty(amounts: Resources) -> bool:
    return not all(amounts.get(name) for name in _NEEDED)


def _offered(
    policy: ProviderPolicy, standard: GrantDefaults, storage: Sequence[OfferedClass]
) -> Object:
    """Return the classes and labels that the provider offers beside resources."""
    labels = standard.cluster_labels if policy.node_labels is None else policy.node_labels
    return {
        "storageClasses": providerpolicy.shown_classes(
            _or(policy.storage_classes, storage), "storageClassName"
        ),
        "ingressClasses": providerpolicy.shown_classes(
            _or(policy.ingress_classes, standard.ingress_classes), "ingressClassName"
        ),
        "loadBalancerClasses": providerpolicy.shown_classes(
            _or(policy.load_balancer_classes, standard.load_balancer_classes),
            "loadBalancerClassName",
        ),
        "nodeLabels": dict(labels),
    }


def _or(said: Offered, otherwise: Sequence[OfferedClass] | None) -> Offered:
    return tuple(otherwise or ()) if said is None else said


def storage_classes(found: Iterable[Object]) -> list[OfferedClass]:
    """Return the StorageClasses of this cluster by name, its default marked.

    Not the virtual one: a consumer has one of its own, whose claims become claims of these.
    """
    return sorted(
        (
            OfferedClass(
                one["metadata"]["name"],
                objects.annotations(one).get(keys.DEFAULT_STORAGE_CLASS) == "true",
            )
            for one in found
            if one.get("provisioner") != keys.STORAGE_PROVISIONER
        ),
        key=lambda one: one.name,
    )


def news(before: Object, after: Object) -> tuple[Literal["Normal", "Warning"], str, str] | None:
    """Return type, reason and message of the Event for a new answer; None when it is the old."""
    old, new = (
        objects.find_condition(objects.status(part).get("conditions"), slices.RESOURCES)
        for part in (before, after)
    )
    if new is None or (old and _said(old) == _said(new)):
        return None
    is_plain = new["reason"] == ACCEPTED and ":" not in new["message"]
    return ("Normal" if is_plain else "Warning"), str(new["reason"]), str(new["message"])


def _said(condition: Object) -> tuple[object, ...]:
    return condition.get("status"), condition.get("reason"), condition.get("message")


# Its Quota ----------------------------------------------------------------------------------------


def quota(obj: Object, consumer: str, enforcement: str, *, is_cordoned: bool) -> Object:
    """Return the Quota of the slice ``obj`` of ``consumer``, for what its status grants."""
    key = objects.key_of(obj)
    name = naming.quota_name(key.name, consumer)
    body: Object = {
        "user": name,
        "limitsEnforcement": enforcement,
        "resources": dict(objects.status(obj).get("resources") or {}),
    }
    if is_cordoned:
        body["cordoned"] = True
    labels = {keys.LIQO_MANAGED: "true", keys.REMOTE_CLUSTER_ID: consumer}
    metadata = {
        "labels": labels,
        "ownerReferences": [objects.owner_reference(keys.RESOURCE_SLICE, obj)],
    }
    return objects.named(keys.QUOTA, Key(key.namespace, name), metadata=metadata, spec=body)


def quota_changes(found: Object, wanted: Object, obj: Object) -> Object:
    """Return the merge patch for the Quota ``found``; {} when it is as wanted.

    While the slice ``obj`` is not accepted, what was accepted last stays in force.
    """
    spec = dict(wanted["spec"])
    if not slices.is_accepted(obj, slices.RESOURCES):
        spec["resources"] = found["spec"].get("resources") or {}
    changes = objects.merge_patch(found["spec"], spec)
    return {"spec": changes} if changes else {}


def closed(found: Object, *, is_cordoned: bool) -> Object:
    """Return the merge patch that has the Quota ``found`` let pods in, or not; {} if it does."""
    wanted = {**found["spec"], "cordoned": True} if is_cordoned else dict(found["spec"])
    if not is_cordoned:
        wanted.pop("cordoned", None)
    changes = objects.merge_patch(found["spec"], wanted)
    return {"spec": changes} if changes else {}


# The ledger ---------------------------------------------------------------------------------------


def ledger(tenant: Object) -> Object:
    """Return the ledger of a Tenant, {} where it has none."""
    found: Object = objects.status(tenant).get("ledger") or {}
    return found


def parsed_entries(grants: Iterable[Object], namespace: str = "") -> dict[Key, LedgerEntry]:
    """Return what ``grants`` of the ledger of the tenant in ``namespace`` says.

    Without that, of the ledger of all tenants, as was kept before: its entries name theirs. What
    cannot be read was not written by us; statuses and Quotas still count.
    """
    found = {}
    for one in grants:
        with contextlib.suppress(ValueError):
            amounts = resources.parse_resources(one.get("resources"))
            key = Key(namespace or one["namespace"], one["name"])
            found[key] = LedgerEntry(one.get("class") or "", amounts)
    return found


def shown_entries(entries: Mapping[Key, LedgerEntry]) -> list[Object]:
    """Return the entries of one tenant in its ledger; ``parsed_entries`` is the inverse."""
    return [
        {"name": key.name, "class": entry.class_, "resources": resources.to_json(entry.amounts)}
        for key, entry in sorted(entries.items())
    ]


def entries(
    claims: Mapping[Key, SliceDemand], shares: Mapping[Key, Share], pooled: Collection[str]
) -> dict[Key, LedgerEntry]:
    """Return what is booked: what each claim may hold until it has been seen to be less.

    Of that only what is bounded: by a limit, or in class ``shared`` by what is free, ``pooled``.
    Whatever else consumers ask for has no room in one object. Source: docs/parity.md X8.
    """
    booked = {}
    for key, claim in claims.items():
        bounded = {*claim.policy.limits, *(pooled if claim.is_shared else ())}
        if amounts := _held(claim, shares.get(key), bounded):
            class_ = slices.SHARED_CLASS if claim.is_shared else slices.DEFAULT_CLASS
            booked[key] = LedgerEntry(class_, amounts)
    return booked


def _held(claim: SliceDemand, share: Share | None, bounded: Collection[str]) -> dict[str, Quantity]:
    now: Resources = share.now if share else {}
    names = sorted({*now, *claim.held} & {*bounded})
    most = {
        name: max(now.get(name, Quantity()), claim.held.get(name, Quantity())) for name in names
    }
    return {name: amount for name, amount in most.items() if amount}
