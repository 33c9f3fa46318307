"""What is written of a grant: the slice's status, its Quota, the ledger. Pure.

Source: docs/parity.md § 1.7, 1.8, 4.5, 4.6.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

from apis import conditions, keys, naming, objects, policies, resources, slices
from apis.objects import Key, Object
from apis.offloading import OfferedClass
from apis.policies import Offered, ProviderPolicy
from apis.quantity import Quantity
from apis.resources import Resources
from controllers.granting.grants.forge.applications import Application, Entry, Refusal, Standard
from controllers.granting.grants.forge.division import Claim, Share

ACCEPTED: Final = "ResourceSliceResourcesAccepted"
NOTHING: Final = "NothingToGrant"
_NEEDED: Final = ("cpu", "memory")


# The status of a slice ----------------------------------------------------------------------------


def status(
    application: Application,
    share: Share | None,
    standard: Standard,
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
        return denied(application.obj, Refusal(NOTHING, message), now)
    message = "; ".join([_class(application), *share.notes])
    before = objects.status(application.obj)
    return {
        **before,
        "resources": resources.to_json(share.now),
        **_offered(application.policy, standard, storage),
        "conditions": conditions.set_(
            before.get("conditions"), slices.RESOURCES, slices.ACCEPTED, ACCEPTED, message, now
        ),
    }


def _class(application: Application) -> str:
    """Return by which class a slice was granted what it has; without a colon, unlike notes."""
    if application.claim.is_shared:
        return f"class {slices.SHARED_CLASS}, {application.policy.sharing.told()}"
    return f"class {slices.DEFAULT_CLASS}, as asked and fixed amounts for the rest"


def denied(obj: Object, refusal: Refusal, now: datetime) -> Object:
    """Return the whole status of the slice ``obj`` that gets nothing, and why."""
    before = objects.status(obj)
    said = conditions.set_(
        before.get("conditions"), slices.RESOURCES, slices.DENIED, refusal.reason,
        refusal.message, now,
    )  # fmt: skip
    return {**before, "conditions": said}


def _is_empty(amounts: Resources) -> bool:
    """Whether no pod could run in it."""
    return not all(amounts.get(name) for name in _NEEDED)


def _offered(policy: ProviderPolicy, standard: Standard, storage: Sequence[OfferedClass]) -> Object:
    """Return the classes and labels that the provider offers beside resources."""
    labels = standard.cluster_labels if policy.node_labels is None else policy.node_labels
    return {
        "storageClasses": policies.shown(_or(policy.storage_classes, storage), "storageClassName"),
        "ingressClasses": policies.shown(
            _or(policy.ingress_classes, standard.ingress_classes), "ingressClassName"
        ),
        "loadBalancerClasses": policies.shown(
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
        conditions.find(objects.status(part).get("conditions"), slices.RESOURCES)
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


def parsed(grants: Iterable[Object], namespace: str = "") -> dict[Key, Entry]:
    """Return what ``grants`` of the ledger of the tenant in ``namespace`` says.

    Without that, of the ledger of all tenants, as was kept before: its entries name theirs. What
    cannot be read was not written by us; statuses and Quotas still count.
    """
    found = {}
    for one in grants:
        with contextlib.suppress(ValueError):
            amounts = resources.parse(one.get("resources"))
            key = Key(namespace or one["namespace"], one["name"])
            found[key] = Entry(one.get("class") or "", amounts)
    return found


def shown(entries: Mapping[Key, Entry]) -> list[Object]:
    """Return the entries of one tenant as they stand in its ledger; ``parsed`` is the inverse."""
    return [
        {"name": key.name, "class": entry.class_, "resources": resources.to_json(entry.amounts)}
        for key, entry in sorted(entries.items())
    ]


def entries(
    claims: Mapping[Key, Claim], shares: Mapping[Key, Share], pooled: Collection[str]
) -> dict[Key, Entry]:
    """Return what is booked: what each claim may hold until it has been seen to be less.

    Of that only what is bounded: by a limit, or in class ``shared`` by what is free, ``pooled``.
    Whatever else consumers ask for has no room in one object. Source: docs/parity.md X8.
    """
    booked = {}
    for key, claim in claims.items():
        bounded = {*claim.policy.limits, *(pooled if claim.is_shared else ())}
        if amounts := _held(claim, shares.get(key), bounded):
            class_ = slices.SHARED_CLASS if claim.is_shared else slices.DEFAULT_CLASS
            booked[key] = Entry(class_, amounts)
    return booked


def _held(claim: Claim, share: Share | None, bounded: Collection[str]) -> dict[str, Quantity]:
    now: Resources = share.now if share else {}
    names = sorted({*now, *claim.held} & {*bounded})
    most = {
        name: max(now.get(name, Quantity()), claim.held.get(name, Quantity())) for name in names
    }
    return {name: amount for name, amount in most.items() if amount}
