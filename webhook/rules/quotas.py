"""Whether a ShadowPod plainly does not fit its user's Quota. Pure, and nothing is booked.

The exact ledger is the ShadowPod controller's. Source: behaviour.md 3.8, 3.8.1; security.md A13.
"""

import re
from collections.abc import Iterable
from typing import Final

from apis import keys, quantity, resources
from apis.objects import Object, key_of
from apis.quantity import Quantity
from webhook.admission import DeniedError
from webhook.rules import podsecurity, shape

MAX_LABEL: Final = 63
_ESCAPED: Final = re.compile(r"[^\w\-.]", re.ASCII)
_NEEDED: Final = ("cpu", "memory")
_PODS: Final = "pods"


def creator(user: str) -> str:
    """Return the value of the label that says who ``user`` is.

    Raises:
        DeniedError: no label can say so.
    """
    escaped = _ESCAPED.sub("-", user)
    if not escaped or len(escaped) > MAX_LABEL:
        message = f"metadata.labels: {keys.CREATOR_USER} takes 1 to {MAX_LABEL} characters, not "
        raise DeniedError(f"{message}the user name {user!r}: use a shorter one")
    return escaped


def of(quotas: Iterable[Object], label: str) -> Object:
    """Return the Quota whose user is ``label``.

    Raises:
        DeniedError: there is none.
    """
    for quota in quotas:
        user = str((quota.get("spec") or {}).get("user") or "")
        if _ESCAPED.sub("-", user) == label:
            return quota
    message = f"user {label!r} has no Quota here"
    raise DeniedError(f"{message}: ask the provider to grant one with a ResourceSlice")


def judge(spec: Object, quota: Object) -> None:
    """Refuse the PodSpec ``spec`` where it cannot fit ``quota`` as that one stands.

    Raises:
        DeniedError: the message names resource, what is free, and what is asked for.
    """
    granted = quota["spec"]
    if granted.get("cordoned"):
        raise DeniedError(
            f"quota {key_of(quota)} is cordoned and takes no new pods: ask the provider"
        )
    wanted = usage(spec)
    check_enforced(spec, str(granted.get("limitsEnforcement") or "None"))
    try:
        total, free = resources.parse(granted.get("resources")), _free(quota)
    except ValueError as error:
        message = f"quota {key_of(quota)} cannot be read: {error}"
        raise DeniedError(f"{message}: the provider has to correct it", code=500) from error
    if _PODS not in total:
        wanted.pop(_PODS)
    for name in resources.lacking(wanted, free):
        asked = f"the pod asks for {wanted[name]} of {name}"
        if name not in total:
            raise DeniedError(f"{asked}, of which quota {key_of(quota)} has none: ask for less")
        message = f"{asked}, quota {key_of(quota)} has {free[name]} free of {total[name]}"
        raise DeniedError(f"{message}: delete other pods, or ask for less")


def usage(spec: Object) -> dict[str, Quantity]:
    """Return what a pod of ``spec`` takes, the pod itself included.

    Raises:
        DeniedError: an amount is none, or below zero.
    """
    for path, container in podsecurity.containers(spec):
        declared = _declared(container, path)
        for part, amounts in declared.items():
            _check_amounts(amounts, f"spec.pod.{path}.resources.{part}")
    return {**resources.usage(spec), _PODS: quantity.parse(1)}


def _check_amounts(amounts: Object, path: str) -> None:
    for name, amount in amounts.items():
        try:
            found = quantity.parse(amount)
        except (TypeError, ValueError) as error:
            raise DeniedError(
                f"{path}.{name} is no amount ({error}): correct it", code=422
            ) from error
        if found < Quantity():
            raise DeniedError(f"{path}.{name} is below zero: correct it", code=422)


def check_enforced(spec: Object, enforcement: str) -> None:
    """Check that containers say what the ``enforcement`` (None, Soft, Hard) of a Quota needs.

    Raises:
        DeniedError: one does not.
    """
    if enforcement == "None":
        return
    for path, container in podsecurity.containers(spec):
        declared = _declared(container, path)
        requests, limits = declared["requests"], declared["limits"]
        for name in _NEEDED:
            if name not in requests:
                message = f"spec.pod.{path}.resources.requests.{name} is missing, and enforcement"
                raise DeniedError(f"{message} {enforcement} needs it: set it in the pod")
        if enforcement == "Hard":
            _check_limits(requests, limits, path)


def _check_limits(requests: Object, limits: Object, path: str) -> None:
    for name, amount in requests.items():
        if name not in limits or quantity.parse(limits[name]) != quantity.parse(amount):
            message = f"spec.pod.{path}.resources.limits.{name} differs from its request"
            raise DeniedError(f"{message}, which enforcement Hard forbids: set both equal")


def _declared(container: Object, path: str) -> dict[str, Object]:
    where = f"spec.pod.{path}.resources"
    found = shape.struct(container.get("resources"), where)
    return {
        part: shape.struct(found.get(part), f"{where}.{part}") for part in ("requests", "limits")
    }


def _free(quota: Object) -> dict[str, Quantity]:
    status = quota.get("status") or {}
    total = resources.parse(quota["spec"].get("resources"))
    taken = [resources.parse(status.get(part)) for part in ("used", "booked")]
    most = {
        name: max(part.get(name, Quantity()) for part in taken)
        for name in {name for part in taken for name in part}
    }
    return resources.less(total, most)
