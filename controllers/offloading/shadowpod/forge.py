"""The Pod of a ShadowPod: what it is, whether it may be, how it changes, which status it gives."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from apis import (
    allowlist,
    apply,
    keys,
    objects,
    ownership,
    podaffinity,
    podfields,
    podsecurity,
    podvolumes,
    quotas,
    resources,
)
from apis.networks import Remap
from apis.objects import Key, Object
from apis.providerpolicy import PRIVILEGED, ProviderPolicy
from apis.quotas import Demand, QuotaRefusal
from apis.validation import DeniedError

NOT_STARTED: Final = frozenset({"", "Pending", "Unknown"})
ADMITTED: Final = "Admitted"
LEFT_OUT: Final = "AnnotationsLeftOut"
FAILED_CREATE: Final = "FailedCreatePod"
NOT_ALLOWED: Final = "PolicyRefused"
"""Of a Pod that the ProviderPolicy does not allow (any more)."""
FAILED_UPDATE: Final = "FailedUpdatePod"
DEFAULT_POLICY: Final = ProviderPolicy()
_OF_SHADOW_POD: Final = frozenset({keys.LAST_APPLIED, keys.APPLIED_META})
"""Annotations that tell how it was written."""
_DIGITS: Final = 9
"""Of a grace period: admission bounds it further."""


def pod(
    shadow: Object, reached: Remap | None = None, policy: ProviderPolicy = DEFAULT_POLICY
) -> Object:
    """Return the Pod to create: ``spec.pod``, owned by the ShadowPod.

    It has the annotations that ``policy`` lets pass, and finds the consumer's API server where
    ``reached`` says that this is.
    Source: docs/parity.md § 4.10.
    """
    owner = objects.owner_reference(keys.SHADOW_POD, shadow)
    made = {**apply.noted(metadata(shadow, policy)), "ownerReferences": [owner]}
    spec = podvolumes.listed(created_spec(shadow["spec"]["pod"]), policy.annotation_domains)
    if reached is not None and spec.get("hostAliases"):
        aliases = [_alias(alias, reached) for alias in spec["hostAliases"]]
        spec = {**spec, "hostAliases": aliases}
    return objects.named(keys.POD, objects.key_of(shadow), metadata=made, spec=spec)


def _alias(alias: Object, reached: Remap) -> Object:
    is_of_api_server = keys.API_SERVER_HOST in (alias.get("hostnames") or [])
    return {**alias, "ip": reached.of(alias["ip"])} if is_of_api_server else alias


def metadata(shadow: Object, policy: ProviderPolicy = DEFAULT_POLICY) -> Object:
    """Return the labels and annotations of its Pod; what else the provider put there stays."""
    labels = {**objects.labels(shadow), keys.MANAGED_BY: keys.MANAGED_BY_SHADOW_POD}
    annotations = {
        name: value
        for name, value in objects.annotations(shadow).items()
        if name not in _OF_SHADOW_POD
    }
    given = {"labels": labels, "annotations": annotations}
    return allowlist.for_pods(given, policy.allowed.annotation_domains)


def left_out(shadow: Object, policy: ProviderPolicy = DEFAULT_POLICY) -> str:
    """Return which labels and annotations its Pod does not have, "" if it has all."""
    noted = objects.annotations(shadow).keys() - _OF_SHADOW_POD
    found = allowlist.of_pods(noted, objects.labels(shadow), policy.allowed.annotation_domains)
    spec = objects.spec(shadow).get("pod") or {}
    claims = podvolumes.left_out(spec, policy.annotation_domains)
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
    if objects.find_condition(before.get("conditions"), ADMITTED):
        wanted["conditions"] = _admitted(before, "True", "Created", "", now)
    return wanted


def updated(shadow: Object, seen: Object, refusal: QuotaRefusal | None, now: datetime) -> Object:
    """Return the status of ``seen`` once the Pod follows ``shadow``, its newest; or why not.

    What admission refused is not tried again; what lacks room is, by ``observedGeneration``.
    """
    before: Object = objects.status(seen)
    found = before.get("conditions") or []
    wanted = {**before, "phase": phase(seen) or "Unknown"}
    if refusal is None or refusal.reason == FAILED_UPDATE:
        wanted |= followed(shadow)
    if refusal or found:
        said = ("False", *refusal) if refusal else ("True", "Updated", "")
        wanted["conditions"] = list(
            objects.set_condition(found, keys.UPDATED_CONDITION, *said, now)
        )
    return wanted


def refused(shadow: Object, reason: str, message: str, now: datetime) -> Object:
    """Return the status of a ShadowPod for which there is no Pod, and why."""
    before: Object = objects.status(shadow)
    found = _admitted(before, "False", reason, message, now)
    return {**before, "phase": phase(shadow) or "Unknown", "conditions": found}


def is_told(shadow: Object, refused: QuotaRefusal, type_: str = ADMITTED) -> bool:
    """Whether the ShadowPod says that already, however much was free when it was written."""
    found = objects.condition(shadow, type_)
    said = QuotaRefusal(str(found.get("reason", "")), str(found.get("message", "")))
    return found.get("status") == "False" and said.without_amounts == refused.without_amounts


def is_not_allowed(found: Iterable[Object] | None) -> bool:
    said = objects.find_condition(list(found or ()), ADMITTED) or {}
    return said.get("status") == "False" and said.get("reason") == NOT_ALLOWED


def _admitted(
    before: Object, status_: str, reason: str, message: str, now: datetime
) -> list[Object]:
    found = before.get("conditions") or []
    return list(objects.set_condition(found, ADMITTED, status_, reason, message, now))


# How a Pod is brought to the specification of its ShadowPod, as far as Kubernetes lets it ---------
# Source: docs/parity.md § 5.5.2; Kubernetes, "Pod update and replacement", "Resize CPU and Memory
# Resources assigned to Containers", "Ephemeral Containers".

_CONTAINERS: Final = ("containers", "initContainers")
_BARE: Final[Object] = {"resources": {}}
"""What a container has that says nothing of it."""


class PodChange(NamedTuple):
    """One request; ``subresource`` is empty for the Pod itself."""

    subresource: str
    patch: Object


def is_behind(shadow: Object) -> bool:
    """Whether the specification changed since the Pod was last brought to it.

    The first one is what the Pod was created with.
    """
    generation = shadow["metadata"].get("generation") or 1
    return bool(generation > max(1, observed_generation(shadow)))


def observed_generation(shadow: Object) -> int:
    """Return the generation that the Pod was last brought to, 0 if it is the one it began with."""
    return int(objects.status(shadow).get("observedGeneration") or 0)


def followed(shadow: Object) -> Object:
    """Return what the status says besides once the Pod follows the specification."""
    generation = shadow["metadata"].get("generation") or 1
    return {"observedGeneration": generation} if generation > 1 else {}


def created_spec(spec: Object) -> Object:
    """Return the PodSpec to create: ephemeral containers come to a Pod that exists."""
    return {name: value for name, value in spec.items() if name != "ephemeralContainers"}


def pod_changes(shadow: Object, pod: Object) -> list[PodChange]:
    """Return the requests that are missing, each a merge patch with the version it starts from.

    Shape: ``shadow`` and ``pod`` are whole. Each starts from the version of ``pod``, so a caller
    sends one, and asks again with what it made.
    """
    wanted, found = shadow["spec"].get("pod") or {}, pod["spec"]
    made = [
        PodChange("", _plain(wanted, found)),
        PodChange("resize", _resized(wanted, found)),
        PodChange("ephemeralcontainers", _ephemeral(wanted, found)),
    ]
    return [PodChange(part, _guarded(pod, spec)) for part, spec in made if spec]


def _guarded(pod: Object, spec: Object) -> Object:
    metadata = {"uid": objects.uid(pod), "resourceVersion": pod["metadata"]["resourceVersion"]}
    return {"metadata": metadata, "spec": spec}


def _plain(wanted: Object, found: Object) -> Object:
    images = {name: _images(wanted, found, name) for name in _CONTAINERS}
    changed = {name: made for name, made in images.items() if made}
    return changed | podfields.changes(found, wanted)


def _resized(wanted: Object, found: Object) -> Object:
    sizes = {name: _sizes(wanted, found, name) for name in _CONTAINERS}
    return {name: made for name, made in sizes.items() if made}


def _images(wanted: Object, found: Object, name: str) -> list[Object]:
    asked = {one["name"]: one.get("image") for one in wanted.get(name) or []}
    return _with(found, name, lambda one: {"image": asked.get(one["name"]) or one["image"]})


def _sizes(wanted: Object, found: Object, name: str) -> list[Object]:
    asked = {one["name"]: one.get("resources") or {} for one in wanted.get(name) or []}
    return _with(found, name, lambda one: {"resources": _size(one, asked.get(one["name"], {}))})


def _size(have: Object, asked: Object) -> Object:
    """Return the resources of a container; what only admission gave it stays."""
    sizes = dict(have.get("resources") or {})
    for part in ("requests", "limits"):
        if amounts := {**(sizes.get(part) or {}), **(asked.get(part) or {})}:
            sizes[part] = amounts
    return sizes


def _with(found: Object, name: str, field: Callable[[Object], Object]) -> list[Object]:
    """Return the containers of ``found``, each with its new ``field``; [] if nothing differs."""
    have = found.get(name) or []
    made = [{**one, **field(one)} for one in have]
    return [] if all(field(one).items() <= {**_BARE, **one}.items() for one in have) else made


def _ephemeral(wanted: Object, found: Object) -> Object:
    have = found.get("ephemeralContainers") or []
    names = {one["name"] for one in have}
    more = [one for one in wanted.get("ephemeralContainers") or [] if one["name"] not in names]
    return {"ephemeralContainers": [*have, *more]} if more else {}


def unreadable(shadow: Object) -> QuotaRefusal | None:
    """Return which amount cannot be read; who sends that to an API server keeps it busy for long.

    Source: docs/parity.md SEC-A13.
    """
    try:
        quotas.check(shadow["spec"]["pod"])
    except ValueError as error:
        return QuotaRefusal(quotas.UNREADABLE, str(error))
    return None


def grown(shadow: Object, pod: Object) -> Demand | None:
    """Return what the Pod will take once it is of the size that was asked for; None if not more.

    Shape: of both the containers, with their names and resources, suffice.

    Raises:
        ValueError: as ``Demand.of``.
    """
    wanted, found = shadow["spec"].get("pod") or {}, pod["spec"]
    demand = Demand.of({**found, **_resized(wanted, found)})
    return demand if resources.more(demand.usage, Demand.of(found).usage) else None


# Whether a Pod may be made of a ShadowPod as the provider's policy says now -----------------------
# Admission checked it when it came; what was narrowed since counts for the next Pod, not for one
# that runs. Source: docs/parity.md § 3.8; SEC-A2.

_View: TypeAlias = Callable[[], Mapping[Key, Object]]


def _nothing() -> Mapping[Key, Object]:
    return {}


@dataclass(frozen=True)
class Permission:
    """The provider's policies and the namespaces of its consumers, as they are now."""

    policies: _View
    namespaces: _View = _nothing

    def refusal(self, shadow: Object) -> str:
        """Return why no Pod may be made of ``shadow``, "" if one may."""
        spec = created_spec(shadow["spec"]["pod"])
        try:
            policy = self._policy(shadow, spec)
            for complaint in podfields.complaints(spec, policy):
                return f"spec.pod.{complaint}: {podfields.cure(complaint)}"
            if policy.pod_security_level != PRIVILEGED:
                for complaint in podsecurity.app_armor(objects.annotations(shadow)):
                    return f"{complaint}: {podfields.cure(complaint)}"
        except DeniedError as error:
            return str(error)
        return ""

    def policy(self, shadow: Object) -> ProviderPolicy:
        return ProviderPolicy.for_pods(self._consumer(shadow), self.policies())

    def version(self) -> frozenset[tuple[str, int]]:
        """Return which rules these are: another one, and what was refused is judged again."""
        return frozenset(
            (key.name, int(policy["metadata"].get("generation") or 0))
            for key, policy in self.policies().items()
        )

    def _consumer(self, shadow: Object) -> str:
        where = objects.key_of(shadow).namespace
        return ownership.consumer_of(self.namespaces().get(Key("", where)))

    def _policy(self, shadow: Object, spec: Object) -> ProviderPolicy:
        namespaces, consumer = self.namespaces(), self._consumer(shadow)
        named = [namespaces.get(Key("", name)) for name in podaffinity.looked_up(spec)]
        policy = ProviderPolicy.for_pods(consumer, self.policies())
        return policy.reaching(podaffinity.own(named, consumer))
