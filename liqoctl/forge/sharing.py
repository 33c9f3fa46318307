"""What a provider shares: the ProviderPolicy that flags ask for, and what it comes to. Pure.

Source: docs/parity.md § 0.4, 4.17.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apis import keys, naming, objects, providerpolicy, resources, sharing, slices
from apis.objects import Key, Object
from apis.resources import Quantity, Resources

HEADER = ("TENANT", "POLICY", "RESOURCE", "FREE", "PERCENT", "SHARED", "GRANTED")


@dataclass(frozen=True)
class SharingOptions:
    """What the flags say; None: as it is."""

    tenant: str = ""
    percentage: int | None = None
    by_resource: Mapping[str, int] = field(default_factory=dict)
    rounding: str | None = None
    limits: Mapping[str, str] = field(default_factory=dict)


def policy(wanted: SharingOptions, existing: Object | None, default: Object | None) -> Object:
    """Return the ProviderPolicy that says what is ``wanted``, all else as it was.

    A tenant's first policy of its own starts as a copy of ``default``, which it replaces whole, but
    for its limits: those are of all its tenants together, and a copy would grant them twice.

    Raises:
        ValueError: ``default`` limits a resource, and nobody says how far the tenant may go.
    """
    name = wanted.tenant or providerpolicy.DEFAULT
    if name != providerpolicy.DEFAULT and existing is None and default:
        shared = objects.spec(default).get("limits") or {}
        if missing := sorted(set(shared) - set(wanted.limits)):
            limited = ", ".join(f"{each} to {shared[each]}" for each in missing)
            flags = ",".join(f"{each}=AMOUNT" for each in missing)
            raise ValueError(
                f"providerpolicy {providerpolicy.DEFAULT} limits {limited} for all its tenants "
                f"together; {name} with a policy of its own is none of them: add --limits {flags} "
                f"for {name} alone, and lower those of {providerpolicy.DEFAULT} by as much if the "
                "sum is to stay"
            )
        default = {**default, "spec": {**objects.spec(default), "limits": {}}}
    spec = copy.deepcopy(objects.spec(existing or default))
    part = spec.setdefault("sharing", {})
    if wanted.percentage is not None:
        part["percentage"] = wanted.percentage
    if wanted.by_resource:
        part["resources"] = {**(part.get("resources") or {}), **wanted.by_resource}
    if wanted.rounding:
        part["rounding"] = wanted.rounding
    if limits := {**(spec.pop("limits", None) or {}), **wanted.limits}:
        spec["limits"] = limits
    return objects.named(keys.PROVIDER_POLICY, Key("", name), spec=spec)


@dataclass(frozen=True)
class ProviderState:
    """What there is in the cluster that shares."""

    nodes: Iterable[Object]
    pods: Sequence[Object]
    slices: Sequence[Object]
    tenants: Iterable[Object]
    policies: Sequence[Object]


def shown(seen: ProviderState) -> list[Object]:
    """Return what is shared with each tenant.

    Shape: {tenant, policy, rounding, resources: {name: {free, percentage, shared, granted}}}.
    """
    available = _free(seen)
    tenants = sorted(one["spec"]["clusterID"] for one in seen.tenants)
    return [_of(tenant, seen, available) for tenant in tenants or [""]]


def rows(found: Iterable[Object]) -> list[tuple[str, ...]]:
    return [
        (one["tenant"] or "(any)", one["policy"], name, *(str(part[key]) for key in _COLUMNS))
        for one in found
        for name, part in one["resources"].items()
    ]


_COLUMNS = ("free", "percentage", "shared", "granted")


def _of(tenant: str, seen: ProviderState, available: Resources) -> Object:
    found = providerpolicy.policy_of(seen.policies, tenant)
    pool = sharing.pool(available, found.sharing)
    granted = resources.total(_granted(one) for one in seen.slices if _consumer(one) == tenant)
    parts: dict[str, Any] = {
        name: {
            "free": str(amount),
            "percentage": found.sharing.percent_of(name),
            "shared": str(pool.amounts[name]),
            "granted": str(granted.get(name, Quantity())),
        }
        for name, amount in sorted(available.items())
    }
    return {
        "tenant": tenant,
        "policy": found.name if seen.policies else "(none)",
        "rounding": found.sharing.rounding,
        "resources": parts,
    }


def _free(seen: ProviderState) -> dict[str, Quantity]:
    usable = {one["metadata"]["name"]: one for one in seen.nodes if sharing.is_usable(one)}
    users = {
        naming.quota_name(one["metadata"]["name"], _consumer(one))
        for one in seen.slices
        if _is_shared(one, seen.policies)
    }
    used = resources.total(
        resources.total([resources.usage_of_stored(pod["spec"]), {"pods": Quantity(10**9)}])
        for pod in seen.pods
        if pod["spec"].get("nodeName") in usable
        and objects.labels(pod).get(keys.CREATOR_USER) not in users
    )
    allocatable = [
        resources.parse_resources(one["status"].get("allocatable")) for one in usable.values()
    ]
    return sharing.free(allocatable, used)


def _is_shared(obj: Object, found: Sequence[Object]) -> bool:
    named = objects.spec(obj).get("class") or ""
    return providerpolicy.policy_of(found, _consumer(obj)).class_of(named) == slices.SHARED_CLASS


def _granted(obj: Object) -> Resources:
    return resources.parse_resources(objects.status(obj).get("resources"))


def _consumer(obj: Object) -> str:
    return str(objects.spec(obj).get("consumerClusterID") or "")
