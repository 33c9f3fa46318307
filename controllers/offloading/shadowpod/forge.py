"""The Pod that a ShadowPod asks for, and the status that the Pod gives back."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from apis import apply, conditions, keys, objects, orders, podclaims
from apis.objects import Object
from apis.podpolicies import Policy
from apis.quotas import Refusal
from apis.remap import Remap
from controllers.offloading.shadowpod import changes

NOT_STARTED: Final = frozenset({"", "Pending", "Unknown"})
ADMITTED: Final = "Admitted"
LEFT_OUT: Final = "AnnotationsLeftOut"
FAILED_CREATE: Final = "FailedCreatePod"
NOT_ALLOWED: Final = "PolicyRefused"
"""Of a Pod that the ProviderPolicy does not allow (any more)."""
FAILED_UPDATE: Final = "FailedUpdatePod"
DEFAULT_POLICY: Final = Policy()
_OF_SHADOW_POD: Final = frozenset({keys.LAST_APPLIED, keys.APPLIED_META})
"""Annotations that tell how it was written."""
_DIGITS: Final = 9
"""Of a grace period: admission bounds it further."""


def pod(shadow: Object, reached: Remap | None = None, policy: Policy = DEFAULT_POLICY) -> Object:
    """Return the Pod to create: ``spec.pod``, owned by the ShadowPod.

    It has the annotations that ``policy`` lets pass, and finds the consumer's API server where
    ``reached`` says that this is.
    Source: docs/parity.md § 4.10.
    """
    owner = objects.owner_reference(keys.SHADOW_POD, shadow)
    made = {**apply.noted(metadata(shadow, policy)), "ownerReferences": [owner]}
    spec = podclaims.listed(changes.created(shadow["spec"]["pod"]), policy.claim_annotation_domains)
    if reached is not None and spec.get("hostAliases"):
        aliases = [_alias(alias, reached) for alias in spec["hostAliases"]]
        spec = {**spec, "hostAliases": aliases}
    return objects.named(keys.POD, objects.key_of(shadow), metadata=made, spec=spec)


def _alias(alias: Object, reached: Remap) -> Object:
    is_of_api_server = keys.API_SERVER_HOST in (alias.get("hostnames") or [])
    return {**alias, "ip": reached.of(alias["ip"])} if is_of_api_server else alias


def metadata(shadow: Object, policy: Policy = DEFAULT_POLICY) -> Object:
    """Return the labels and annotations of its Pod; what else the provider put there stays."""
    labels = {**objects.labels(shadow), keys.MANAGED_BY: keys.MANAGED_BY_SHADOW_POD}
    annotations = {
        name: value
        for name, value in objects.annotations(shadow).items()
        if name not in _OF_SHADOW_POD
    }
    given = {"labels": labels, "annotations": annotations}
    return orders.for_pods(given, policy.annotation_domains)


def left_out(shadow: Object, policy: Policy = DEFAULT_POLICY) -> str:
    """Return which labels and annotations its Pod does not have, "" if it has all."""
    noted = objects.annotations(shadow).keys() - _OF_SHADOW_POD
    found = orders.of_pods(noted, objects.labels(shadow), policy.annotation_domains)
    spec = objects.spec(shadow).get("pod") or {}
    claims = podclaims.left_out(spec, policy.claim_annotation_domains)
    told = (
        ("the pod", "spec.allowedPodFields.annotationDomains", found),
        ("claims of its ephemeral volumes", "spec.annotationDomains", claims),
    )
    return "; ".join(
        f"not on {where}, as programs of this cluster may obey it ({field} of the ProviderPolicy "
        f"opens domains): {', '.join(sorted(names))}"
        for where, field, names in told
        if names
    )


def is_of_predecessor(existing: Object, shadow: Object) -> bool:
    """Whether ``existing`` belonged to an earlier ShadowPod of that name: it is about to go."""
    owner = objects.controller_of(existing)
    if owner is None or owner["kind"] != keys.SHADOW_POD.kind:
        return False
    is_namesake = owner["name"] == shadow["metadata"]["name"]
    return bool(is_namesake and owner["uid"] != objects.uid(shadow))


def phase(shadow: Object) -> str:
    """Return the phase that the ShadowPod shows; empty before the first."""
    return str(objects.status(shadow).get("phase", ""))


def is_finished(shadow: Object) -> bool:
    """Whether its work is over: finished work is never started again.

    The consumer says so too, since its pod's end may have come while nobody looked here.
    """
    return objects.is_finished(shadow) or final(shadow) in objects.FINAL_PHASES


def final(shadow: Object) -> str:
    """Return the final phase of the consumer's pod; empty while it has none."""
    return objects.annotations(shadow).get(keys.FINISHED, "")


def ends_within_s(shadow: Object) -> int | None:
    """Return in how many seconds its Pod is to end; None while its consumer does not delete it."""
    said = objects.annotations(shadow).get(keys.DELETION_GRACE, "")
    is_number = said.isascii() and said.isdecimal() and len(said) <= _DIGITS
    return max(1, int(said)) if is_number else None


def is_over(pod: Object) -> bool:
    """Whether the Pod has ended, or is about to."""
    return objects.is_finished(pod) or objects.is_terminating(pod)


def ended(shadow: Object) -> Object:
    """Return the status of a ShadowPod whose work is over."""
    shown = phase(shadow) if objects.is_finished(shadow) else final(shadow)
    return {**objects.status(shadow), "phase": shown}


def status(shadow: Object, existing: Object, now: datetime) -> Object:
    """Return the status to show for ``existing``, its own Pod.

    Source: the write budget of a pod: nothing is written for what has not started.
    """
    before: Object = objects.status(shadow)
    seen = str(objects.status(existing).get("phase", ""))
    shown = phase(shadow)
    idle = seen in NOT_STARTED and shown in NOT_STARTED
    wanted = {**before, "phase": seen} if seen and not idle else dict(before)
    if conditions.find(before.get("conditions"), ADMITTED):
        wanted["conditions"] = _admitted(before, "True", "Created", "", now)
    return wanted


def updated(shadow: Object, seen: Object, refusal: Refusal | None, now: datetime) -> Object:
    """Return the status of ``seen`` once the Pod follows ``shadow``, its newest; or why not.

    What admission refused is not tried again; what lacks room is, by ``observedGeneration``.
    """
    before: Object = objects.status(seen)
    found = before.get("conditions") or []
    wanted = {**before, "phase": phase(seen) or "Unknown"}
    if refusal is None or refusal.reason == FAILED_UPDATE:
        wanted |= changes.followed(shadow)
    if refusal or found:
        said = ("False", *refusal) if refusal else ("True", "Updated", "")
        wanted["conditions"] = list(conditions.set_(found, keys.UPDATED_CONDITION, *said, now))
    return wanted


def refused(shadow: Object, reason: str, message: str, now: datetime) -> Object:
    """Return the status of a ShadowPod for which there is no Pod, and why."""
    before: Object = objects.status(shadow)
    found = _admitted(before, "False", reason, message, now)
    return {**before, "phase": phase(shadow) or "Unknown", "conditions": found}


def is_told(shadow: Object, refused: Refusal, type_: str = ADMITTED) -> bool:
    """Whether the ShadowPod says that already, however much was free when it was written."""
    found = conditions.find(objects.status(shadow).get("conditions"), type_) or {}
    said = Refusal(str(found.get("reason", "")), str(found.get("message", "")))
    return found.get("status") == "False" and said.without_amounts == refused.without_amounts


def is_not_allowed(found: Iterable[Object] | None) -> bool:
    """Whether conditions say that the policy allows no Pod."""
    said = conditions.find(list(found or ()), ADMITTED) or {}
    return said.get("status") == "False" and said.get("reason") == NOT_ALLOWED


def _admitted(
    before: Object, status_: str, reason: str, message: str, now: datetime
) -> list[Object]:
    found = before.get("conditions") or []
    return list(conditions.set_(found, ADMITTED, status_, reason, message, now))
