"""Which slices take part, with what they may hold, and which are refused. Pure.

Source: docs/parity.md § 4.5.
"""

import functools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from apis import keys, objects, policies, quantity, resources, slices, whose
from apis.objects import Key, Object
from apis.policies import ProviderPolicy
from apis.quantity import Quantity
from apis.resources import Resources
from apis.slices import ResourceSlice
from controllers.granting.grants.forge.division import Claim

DENIED: Final = "ResourceSliceResourcesDenied"
CLASS_DISABLED: Final = "DefaultResourceSliceClassDisabled"
CLASS_REFUSED: Final = "ResourceSliceClassNotAllowed"
UNREADABLE: Final = "ResourceSliceUnreadable"
WITHHELD: Final = "ProviderIncomplete"

ACTIVE, CORDONED, DRAINED = "Active", "Cordoned", "Drained"

DEFAULTS: Final[Resources] = {
    "cpu": quantity.parse("4"),
    "memory": quantity.parse("8Gi"),
    "pods": quantity.parse("110"),
    "ephemeral-storage": quantity.parse("20Gi"),
}


@dataclass(frozen=True)
class Standard:
    """What the flags say for everything that no policy says otherwise."""

    resources: Resources = field(default_factory=lambda: DEFAULTS)
    is_default_class_enabled: bool = True
    limits_enforcement: str = "None"
    cluster_labels: Mapping[str, str] = field(default_factory=dict)
    ingress_classes: policies.Offered = ()
    load_balancer_classes: policies.Offered = ()


class Refusal(NamedTuple):
    """Why a slice gets nothing: the reason and the message of its condition."""

    reason: str
    message: str


@dataclass(frozen=True)
class Application:
    """A replica, whose it is, and what is to be done with it."""

    obj: Object
    policy: ProviderPolicy
    claim: Claim
    refusal: Refusal | None = None
    is_ours: bool = True
    """Otherwise the controller of its class says what it is granted."""


@dataclass(frozen=True)
class Seen:
    """What there is at one moment; everything but the ledger as the server has it."""

    slices: Mapping[Key, Object]
    quotas: Mapping[Key, Object]
    tenants: Mapping[Key, Object]
    policies: Mapping[Key, Object]
    ledger: Mapping[Key, "Entry"]
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


class Entry(NamedTuple):
    """What a slice may hold, by the ledger."""

    class_: str
    amounts: Resources


def applications(seen: Seen, standard: Standard) -> list[Application]:
    """Return what is to be done with each replica whose consumer is authenticated."""
    found = []
    for obj in seen.slices.values():
        tenant = tenant_of(seen.tenants, objects.key_of(obj).namespace)
        is_let_in = tenant and slices.is_accepted(obj, slices.AUTHENTICATION)
        if tenant and is_let_in and whose.is_foreign(obj):
            found.append(_application(obj, tenant, seen, standard))
    return found


def withheld(said: str, *, is_kind: bool) -> Refusal:
    """Return why nothing is granted where the kind Quota, or the right to read it, is missing.

    ``said`` are the API server's words.
    """
    why = f"the provider does not serve the kind {keys.QUOTA.resource}" if is_kind else said
    cure = "its administrator runs liqoctl install, then the slice is granted by itself"
    return Refusal(WITHHELD, f"{why}: {cure}")


def leaving(seen: Seen, applied: Container[Key]) -> Iterator[Claim]:
    """Yield what is still held for slices that have not ``applied``: gone, denied, never ours."""
    for key, entry in _held_by_others(seen, applied).items():
        tenant = tenant_of(seen.tenants, key.namespace)
        cluster_id = str(tenant["spec"]["clusterID"]) if tenant else ""
        try:
            policy = policies.of(seen.policies.values(), cluster_id)
        except ValueError:
            policy = ProviderPolicy()
        is_shared = entry.class_ == slices.SHARED_CLASS
        if entry.amounts:
            yield Claim(
                key, cluster_id, policy, {}, entry.amounts, is_shared=is_shared, is_leaving=True
            )


def tenant_of(tenants: Mapping[Key, Object], namespace: str) -> Object | None:
    """Return the Tenant whose namespace this is."""
    found = (obj for key, obj in tenants.items() if key.namespace == namespace)
    return next((one for one in found if objects.spec(one).get("clusterID")), None)


def condition_of(tenant: Object) -> str:
    """Return how the provider means the tenant: Active, Cordoned or Drained."""
    return str(objects.spec(tenant).get("tenantCondition") or ACTIVE)


def is_closed(tenant: Object | None) -> bool:
    """Whether the provider lets no more pods of the tenant in."""
    return tenant is not None and condition_of(tenant) != ACTIVE


def held(obj: Object, seen: Seen) -> dict[str, Quantity]:
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


def _application(obj: Object, tenant: Object, seen: Seen, standard: Standard) -> Application:
    key, cluster_id = objects.key_of(obj), str(tenant["spec"]["clusterID"])
    policy, has = ProviderPolicy(), held(obj, seen)
    try:
        policy = policies.of(seen.policies.values(), cluster_id)
        slice_ = ResourceSlice.parse(obj)
    except ValueError as error:
        claim = Claim(key, cluster_id, policy, {}, has, is_leaving=True)
        return Application(obj, policy, claim, Refusal(UNREADABLE, str(error)))
    class_ = policy.class_of(slice_.class_)
    refusal = _refusal(slice_, class_, tenant, obj, policy, standard)
    is_ours = class_ in slices.BUILT_IN
    is_shared = class_ == slices.SHARED_CLASS
    claim = Claim(
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
    return Application(obj, policy, claim, refusal, is_ours)


def _refusal(  # noqa: PLR0913, PLR0917  # all that speaks against a slice
    slice_: ResourceSlice,
    class_: str,
    tenant: Object,
    obj: Object,
    policy: ProviderPolicy,
    standard: Standard,
) -> Refusal | None:
    condition, consumer = condition_of(tenant), str(tenant["spec"]["clusterID"])
    if slice_.consumer != consumer:
        message = f"spec.consumerClusterID {slice_.consumer!r} is not {consumer}, whose namespace"
        return Refusal(DENIED, f"{message} this is")
    is_new = slices.answer(obj, slices.RESOURCES) != slices.ACCEPTED
    if condition == DRAINED or (condition == CORDONED and is_new):
        message = f"tenant {tenant['metadata']['name']} is {condition.lower()}: ask the provider"
        return Refusal(DENIED, message)
    if slices.is_drained(obj):
        message = "the provider drains this slice: its pods have to leave until it takes it back"
        return Refusal(slices.DRAINED, message)
    if not policy.allows_class(slice_.class_):
        allowed = ", ".join(policy.slice_classes or ()) or "none"
        message = (
            f"spec.class {slice_.class_ or class_} is not for this tenant, choose one of: {allowed}"
        )
        return Refusal(CLASS_REFUSED, message)
    if class_ == slices.DEFAULT_CLASS and not standard.is_default_class_enabled:
        message = "the provider has switched the class default off: name another in spec.class"
        return Refusal(CLASS_DISABLED, message)
    return None


def _held_by_others(seen: Seen, applied: Container[Key]) -> dict[Key, Entry]:
    """Return what is held in the name of slices that have not applied, by ledger and Quotas."""
    found = {key: entry for key, entry in seen.ledger.items() if key not in applied}
    for slice_, quotas in seen.quotas_of.items():
        if slice_ not in applied:
            class_, amounts = found.get(slice_, Entry("", {}))
            amounts = _most([amounts, *(_amounts(quota.get("spec")) for quota in quotas)])
            found[slice_] = Entry(class_ or slices.DEFAULT_CLASS, amounts)
    return found


def _amounts(part: Object | None) -> Resources:
    try:
        return resources.parse((part or {}).get("resources"))
    except ValueError:  # it grants nothing: nobody can book on it
        return {}


def _most(parts: Iterable[Resources]) -> dict[str, Quantity]:
    most: dict[str, Quantity] = {}
    for part in parts:
        for name, amount in part.items():
            most[name] = max(most.get(name, amount), amount)
    return most
