"""Which fields of a PodSpec a consumer may send, one verdict for each. Pure.

What the virtual kubelet forges is allowed; a field that nobody judged here is refused.
Source: docs/parity.md § 3.8, 5.5.2, 5.5.3; SEC-A1 to SEC-A3.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from apis import podaffinity, podfields, podsecurity, podvolumes, validation
from apis.objects import Object
from apis.providerpolicy import MAX_GRACE_S, PodPolicy
from apis.validation import DeniedError

DEFAULT_ACCOUNT: Final = "default"
_ASK: Final = "or ask the provider for a ProviderPolicy that allows it"
_NEVER: Final = "must not be set"
_CURES: Final = {
    _NEVER: "leave it out, no ProviderPolicy allows it",
    podvolumes.NEVER: "leave it out, no ProviderPolicy allows it",
    "not known to this version": "leave it out, or ask the provider for a newer version",
    " must be ": f"set it so, {_ASK}",
    podaffinity.FOREIGN: "leave it out, or ask for a ProviderPolicy with affinityNamespaces",
    podvolumes.STATIC: "name a class, or ask for a ProviderPolicy with staticVolumes",
    podvolumes.UNOFFERED: f"name one of them, {_ASK}",
    podvolumes.UNLISTED: "use a claim, or ask for a ProviderPolicy with it in volumeTypes",
    "": f"leave it out, {_ASK}",
}
"""What to do, by words of the complaint; the first that is in it."""

Check: TypeAlias = Callable[[Any, Object, PodPolicy], Iterator[str]]
"""Yields what is wrong with a field's value, beginning with the field; sees the whole spec."""


class ProviderField(NamedTuple):
    """The verdict on a field, in words, and how it is reached."""

    verdict: str
    check: Check


def judge(spec: Object, policy: PodPolicy) -> None:
    """Refuse ``spec`` for the first field that is not allowed.

    Raises:
        DeniedError: the message names it.
    """
    for complaint in complaints(spec, policy):
        raise DeniedError(f"spec.pod.{complaint}: {cure(complaint)}")


def cure(complaint: str) -> str:
    return next(text for words, text in _CURES.items() if words in complaint)


def complaints(spec: Object, policy: PodPolicy) -> Iterator[str]:
    """Yield all that is not allowed in ``spec``."""
    for name, value in spec.items():
        field = FIELDS.get(name)
        if field is None:
            yield f"{name} is not known to this version of pyliqo"
        elif value is not None:
            yield from field.check(value, spec, policy)
    yield from podsecurity.violations(spec, policy.level)


# Checks -------------------------------------------------------------------------------------------


def _any(_value: Any, _spec: Object, _policy: PodPolicy) -> Iterator[str]:
    yield from ()


def _never(name: str) -> Check:
    def check(value: Any, _spec: Object, _policy: PodPolicy) -> Iterator[str]:
        if value not in ("", [], {}):
            yield f"{name} {_NEVER}"

    return check


def _boolean(name: str) -> Check:
    def check(value: Any, _spec: Object, _policy: PodPolicy) -> Iterator[str]:
        if not isinstance(value, bool):
            yield f"{name} must be a boolean"

    return check


def _scheduler(value: Any, _spec: Object, _policy: PodPolicy) -> Iterator[str]:
    if value not in ("", "default-scheduler"):
        yield f"schedulerName {_NEVER}"


def _grace(value: Any, _spec: Object, policy: PodPolicy) -> Iterator[str]:
    if not isinstance(value, int) or not 0 <= value <= policy.max_grace_s:
        yield f"terminationGracePeriodSeconds must be from 0 to {policy.max_grace_s}"


def _priority_class(value: Any, _spec: Object, policy: PodPolicy) -> Iterator[str]:
    name = validation.text(value, "spec.pod.priorityClassName")
    if name and name not in policy.priority_classes:
        yield f"priorityClassName {name!r} is not offered"


def _runtime_class(value: Any, _spec: Object, policy: PodPolicy) -> Iterator[str]:
    name = validation.text(value, "spec.pod.runtimeClassName")
    if name and policy.runtime_classes is not None and name not in policy.runtime_classes:
        yield f"runtimeClassName {name!r} is not offered"


def _account(value: Any, spec: Object, policy: PodPolicy) -> Iterator[str]:
    name = validation.text(value, "spec.pod.serviceAccountName")
    if name in ("", DEFAULT_ACCOUNT):
        return
    if spec.get("automountServiceAccountToken") is not True:
        yield f"serviceAccountName {name!r} goes with automountServiceAccountToken: true only"
    if policy.service_accounts is not None and name not in policy.service_accounts:
        yield f"serviceAccountName {name!r} is not offered"


def _token(value: Any, spec: Object, policy: PodPolicy) -> Iterator[str]:
    if value is False:
        return
    if value is not True:
        yield "automountServiceAccountToken must be a boolean"
    name = spec.get("serviceAccountName") or DEFAULT_ACCOUNT
    if policy.service_accounts is not None and name not in policy.service_accounts:
        yield f"automountServiceAccountToken must be false: account {name!r} is not offered"


def _tolerations(value: Any, spec: Object, policy: PodPolicy) -> Iterator[str]:
    is_taken = podfields.tolerable(spec, policy.tolerations, policy.kept_tolerations)
    for index, toleration in enumerate(validation.structs(value, "spec.pod.tolerations")):
        path = f"tolerations[{index}]"
        key = validation.text(toleration.get("key"), f"spec.pod.{path}.key")
        if not is_taken(toleration):
            every = "every taint, those of control planes and virtual nodes included"
            yield f"{path} tolerates {key or every}, which keeps nodes for others"


EPHEMERAL: Final = frozenset(podfields.CONTAINER_FIELDS)
CONTAINER: Final = EPHEMERAL - {"targetContainerName"}
_COMMON_CONTEXT: Final = frozenset([
    "appArmorProfile", "runAsGroup", "runAsNonRoot", "runAsUser", "seLinuxOptions",
    "seccompProfile", "windowsOptions",
])  # fmt: skip
CONTAINER_CONTEXT: Final = _COMMON_CONTEXT | frozenset(
    [
        "allowPrivilegeEscalation",
        "capabilities",
        "privileged",
        "procMount",
        "readOnlyRootFilesystem",
    ]
)
POD_CONTEXT: Final = _COMMON_CONTEXT | frozenset(
    [
        "fsGroup",
        "fsGroupChangePolicy",
        "seLinuxChangePolicy",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "sysctls",
    ]
)


def _containers(name: str, known: frozenset[str] = CONTAINER) -> Check:
    def check(value: Any, _spec: Object, _policy: PodPolicy) -> Iterator[str]:
        for index, container in enumerate(validation.structs(value, f"spec.pod.{name}")):
            path = f"{name}[{index}]"
            yield from _unknown(container, known, path)
            where = f"{path}.securityContext"
            context = validation.struct(container.get("securityContext"), f"spec.pod.{where}")
            yield from _unknown(context, CONTAINER_CONTEXT, where)

    return check


def _context(value: Any, _spec: Object, _policy: PodPolicy) -> Iterator[str]:
    context = validation.struct(value, "spec.pod.securityContext")
    yield from _unknown(context, POD_CONTEXT, "securityContext")


def _unknown(part: Object, known: frozenset[str], path: str) -> Iterator[str]:
    for name in part.keys() - known:
        yield f"{path}.{name} is not known to this version of pyliqo"


# The verdicts -------------------------------------------------------------------------------------

_COPIED: Final = ProviderField("allowed", _any)
_HOST: Final = "true only with ProviderPolicy podSecurityLevel privileged"


def _refused(name: str) -> ProviderField:
    return ProviderField("refused", _never(name))


FIELDS: Final[dict[str, ProviderField]] = {
    "activeDeadlineSeconds": _COPIED,
    "affinity": ProviderField("over pods of its own twins, unless opened", podaffinity.complaints),
    "automountServiceAccountToken": ProviderField("true in mode Remote, unless narrowed", _token),
    "containers": ProviderField("allowed within the Pod Security level", _containers("containers")),
    "dnsConfig": _COPIED,
    "dnsPolicy": _COPIED,
    "enableServiceLinks": _COPIED,
    "ephemeralContainers": ProviderField(
        "only added to one that runs, within the Pod Security level",
        _containers("ephemeralContainers", EPHEMERAL),
    ),
    "evictionResponders": _refused("evictionResponders"),
    "hostAliases": _COPIED,
    "hostIPC": ProviderField(_HOST, _boolean("hostIPC")),
    "hostNetwork": ProviderField(_HOST, _boolean("hostNetwork")),
    "hostPID": ProviderField(_HOST, _boolean("hostPID")),
    "hostUsers": _refused("hostUsers"),
    "hostname": _COPIED,
    "hostnameOverride": _refused("hostnameOverride"),
    "imagePullSecrets": _COPIED,
    "initContainers": ProviderField(
        "allowed within the Pod Security level", _containers("initContainers")
    ),
    "nodeName": _refused("nodeName"),
    "nodeSelector": _COPIED,
    "os": _refused("os"),
    "overhead": _refused("overhead"),
    "preemptionPolicy": _refused("preemptionPolicy"),
    "priority": _refused("priority"),
    "priorityClassName": ProviderField("only those of the ProviderPolicy", _priority_class),
    "readinessGates": _COPIED,
    "resourceClaims": _refused("resourceClaims"),
    "resources": _refused("resources"),
    "restartPolicy": _COPIED,
    "runtimeClassName": ProviderField("any, unless narrowed", _runtime_class),
    "schedulerName": ProviderField("default-scheduler", _scheduler),
    "schedulingGates": _refused("schedulingGates"),
    "schedulingGroup": _refused("schedulingGroup"),
    "securityContext": ProviderField("allowed within the Pod Security level", _context),
    "serviceAccount": _refused("serviceAccount"),
    "serviceAccountName": ProviderField(
        "any in mode Remote, unless narrowed; else default", _account
    ),
    "setHostnameAsFQDN": _COPIED,
    "shareProcessNamespace": _COPIED,
    "subdomain": _COPIED,
    "terminationGracePeriodSeconds": ProviderField(
        f"up to that of the ProviderPolicy, {MAX_GRACE_S} without", _grace
    ),
    "tolerations": ProviderField(
        "of the state of a node, and of a taint called like a resource that is asked for, "
        "unless granted",
        _tolerations,
    ),
    "topologySpreadConstraints": _COPIED,
    "volumes": ProviderField("by type; own tokens only", podvolumes.complaints),
    "workloadRef": _refused("workloadRef"),
}
"""Every field of a PodSpec of Kubernetes 1.31 to 1.37; whatever is not here is refused."""
