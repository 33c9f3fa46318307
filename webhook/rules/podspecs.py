"""Which fields of a PodSpec a consumer may send, one verdict for each. Pure.

What the virtual kubelet forges is allowed; a field that nobody judged here is refused.
Source: behaviour.md 3.8, 5.5.2, 5.5.3; security.md A1-A3.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from apis import podfields
from apis.objects import Object
from webhook.admission import DeniedError
from webhook.rules import podsecurity, shape

DEFAULT_ACCOUNT: Final = "default"
_CONTROL_PLANE: Final = "node-role.kubernetes.io/"
MAX_GRACE_S: Final = 3600
"""Longer no pod may take to end, unless a ProviderPolicy allows it: its node may have to go."""
_ASK: Final = "or ask the provider for a ProviderPolicy that allows it"
_NEVER: Final = "must not be set"
_CURES: Final = {
    _NEVER: "leave it out, no ProviderPolicy allows it",
    "not known to this version": "leave it out, or ask the provider for a newer version",
    " must be ": f"set it so, {_ASK}",
    "": f"leave it out, {_ASK}",
}
"""What to do, by words of the complaint; the first that is in it."""


@dataclass(frozen=True)
class Policy:
    """What a provider allows beyond the defaults, or narrows; None: whatever is asked for."""

    level: str = "baseline"
    priority_classes: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] | None = None
    service_accounts: frozenset[str] | None = None
    tolerations: tuple[Object, ...] = ()
    max_grace_s: int = MAX_GRACE_S

    @classmethod
    def parse(cls, obj: Object | None) -> "Policy":
        """Return what the ProviderPolicy ``obj`` says; without any, the defaults."""
        spec = (obj or {}).get("spec") or {}
        allowed = spec.get("allowedPodFields") or {}
        return cls(
            level=spec.get("podSecurityLevel") or "baseline",
            priority_classes=frozenset(allowed.get("priorityClassNames") or ()),
            runtime_classes=_names(allowed.get("runtimeClassNames")),
            service_accounts=_names(allowed.get("serviceAccountNames")),
            tolerations=tuple(allowed.get("tolerations") or ()),
            max_grace_s=allowed.get("maxTerminationGracePeriodSeconds", MAX_GRACE_S),
        )


Check: TypeAlias = Callable[[Any, Object, Policy], Iterator[str]]
"""Yields what is wrong with a field's value, beginning with the field; sees the whole spec."""


class Field(NamedTuple):
    """The verdict on a field, in words, and how it is reached."""

    verdict: str
    check: Check


def judge(spec: Object, policy: Policy) -> None:
    """Refuse ``spec`` for the first field that is not allowed.

    Raises:
        DeniedError: the message names it.
    """
    for complaint in complaints(spec, policy):
        raise DeniedError(f"spec.pod.{complaint}: {cure(complaint)}")


def cure(complaint: str) -> str:
    """Return what to do about ``complaint``."""
    return next(text for words, text in _CURES.items() if words in complaint)


def complaints(spec: Object, policy: Policy) -> Iterator[str]:
    """Yield all that is not allowed in ``spec``."""
    for name, value in spec.items():
        field = FIELDS.get(name)
        if field is None:
            yield f"{name} is not known to this version of the webhook"
        elif value is not None:
            yield from field.check(value, spec, policy)
    yield from podsecurity.violations(spec, policy.level)


def _names(listed: list[str] | None) -> frozenset[str] | None:
    return None if listed is None else frozenset(listed)


# Checks -------------------------------------------------------------------------------------------


def _any(_value: Any, _spec: Object, _policy: Policy) -> Iterator[str]:
    yield from ()


def _never(name: str) -> Check:
    def check(value: Any, _spec: Object, _policy: Policy) -> Iterator[str]:
        if value not in ("", [], {}):
            yield f"{name} {_NEVER}"

    return check


def _boolean(name: str) -> Check:
    def check(value: Any, _spec: Object, _policy: Policy) -> Iterator[str]:
        if not isinstance(value, bool):
            yield f"{name} must be a boolean"

    return check


def _scheduler(value: Any, _spec: Object, _policy: Policy) -> Iterator[str]:
    if value not in ("", "default-scheduler"):
        yield f"schedulerName {_NEVER}"


def _grace(value: Any, _spec: Object, policy: Policy) -> Iterator[str]:
    if not isinstance(value, int) or not 0 <= value <= policy.max_grace_s:
        yield f"terminationGracePeriodSeconds must be from 0 to {policy.max_grace_s}"


def _priority_class(value: Any, _spec: Object, policy: Policy) -> Iterator[str]:
    name = shape.text(value, "spec.pod.priorityClassName")
    if name and name not in policy.priority_classes:
        yield f"priorityClassName {name!r} is not offered"


def _runtime_class(value: Any, _spec: Object, policy: Policy) -> Iterator[str]:
    name = shape.text(value, "spec.pod.runtimeClassName")
    if name and policy.runtime_classes is not None and name not in policy.runtime_classes:
        yield f"runtimeClassName {name!r} is not offered"


def _account(value: Any, spec: Object, policy: Policy) -> Iterator[str]:
    name = shape.text(value, "spec.pod.serviceAccountName")
    if name in ("", DEFAULT_ACCOUNT):
        return
    if spec.get("automountServiceAccountToken") is not True:
        yield f"serviceAccountName {name!r} goes with automountServiceAccountToken: true only"
    if policy.service_accounts is not None and name not in policy.service_accounts:
        yield f"serviceAccountName {name!r} is not offered"


def _token(value: Any, spec: Object, policy: Policy) -> Iterator[str]:
    if value is False:
        return
    if value is not True:
        yield "automountServiceAccountToken must be a boolean"
    name = spec.get("serviceAccountName") or DEFAULT_ACCOUNT
    if policy.service_accounts is not None and name not in policy.service_accounts:
        yield f"automountServiceAccountToken must be false: account {name!r} is not offered"


def _tolerations(value: Any, _spec: Object, policy: Policy) -> Iterator[str]:
    for index, toleration in enumerate(shape.structs(value, "spec.pod.tolerations")):
        path = f"tolerations[{index}]"
        key = shape.text(toleration.get("key"), f"spec.pod.{path}.key")
        if key and not key.startswith(_CONTROL_PLANE):
            continue
        if not any(_grants(granted, toleration) for granted in policy.tolerations):
            yield f"{path} tolerates {key or 'every taint'}, those of control planes included"


def _grants(granted: Object, toleration: Object) -> bool:
    def parts(one: Object) -> tuple[Any, ...]:
        operator = one.get("operator") or "Equal"
        return one.get("key") or "", operator, one.get("value") or ""

    effect = granted.get("effect")
    return parts(granted) == parts(toleration) and effect in (None, "", toleration.get("effect"))


VOLUMES: Final = frozenset([
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "csi",
    "downwardAPI", "emptyDir", "ephemeral", "fc", "flexVolume", "flocker", "gcePersistentDisk",
    "glusterfs", "hostPath", "image", "iscsi", "nfs", "persistentVolumeClaim",
    "photonPersistentDisk", "portworxVolume", "projected", "quobyte", "rbd", "scaleIO",
    "secret", "storageos", "vsphereVolume",
])  # fmt: skip
"""hostPath is up to the level of the Pod Security Standards; gitRepo runs commands on nodes."""
SOURCES: Final = frozenset(
    [
        "clusterTrustBundle",
        "configMap",
        "downwardAPI",
        "secret",
        "serviceAccountToken",
    ]
)


def _volumes(value: Any, spec: Object, _policy: Policy) -> Iterator[str]:
    for index, volume in enumerate(shape.structs(value, "spec.pod.volumes")):
        path = f"volumes[{index}]"
        for unknown in volume.keys() - VOLUMES - {"name"}:
            yield f"{path}.{unknown} is not a volume that is allowed"
        projected = shape.struct(volume.get("projected"), f"spec.pod.{path}.projected")
        where = f"{path}.projected.sources"
        for source in shape.structs(projected.get("sources"), f"spec.pod.{where}"):
            yield from _source(source, spec, where)


def _source(source: Object, spec: Object, where: str) -> Iterator[str]:
    for unknown in source.keys() - SOURCES:
        yield f"{where}: {unknown} is not a source that is allowed"
    token = source.get("serviceAccountToken")
    if token is None:
        return
    if spec.get("automountServiceAccountToken") is not True:
        yield f"{where}: a token goes with automountServiceAccountToken: true only"
    if shape.struct(token, f"spec.pod.{where}").get("audience"):
        yield f"{where}: a token for another audience is not allowed"


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
    def check(value: Any, _spec: Object, _policy: Policy) -> Iterator[str]:
        for index, container in enumerate(shape.structs(value, f"spec.pod.{name}")):
            path = f"{name}[{index}]"
            yield from _unknown(container, known, path)
            where = f"{path}.securityContext"
            context = shape.struct(container.get("securityContext"), f"spec.pod.{where}")
            yield from _unknown(context, CONTAINER_CONTEXT, where)

    return check


def _context(value: Any, _spec: Object, _policy: Policy) -> Iterator[str]:
    context = shape.struct(value, "spec.pod.securityContext")
    yield from _unknown(context, POD_CONTEXT, "securityContext")


def _unknown(part: Object, known: frozenset[str], path: str) -> Iterator[str]:
    for name in part.keys() - known:
        yield f"{path}.{name} is not known to this version of the webhook"


# The verdicts -------------------------------------------------------------------------------------

_COPIED: Final = Field("allowed", _any)
_HOST: Final = "true only with ProviderPolicy podSecurityLevel privileged"


def _refused(name: str) -> Field:
    return Field("refused", _never(name))


FIELDS: Final[dict[str, Field]] = {
    "activeDeadlineSeconds": _COPIED,
    "affinity": _COPIED,
    "automountServiceAccountToken": Field("true in mode Remote, unless narrowed", _token),
    "containers": Field("allowed within the Pod Security level", _containers("containers")),
    "dnsConfig": _COPIED,
    "dnsPolicy": _COPIED,
    "enableServiceLinks": _COPIED,
    "ephemeralContainers": Field(
        "only added to one that runs, within the Pod Security level",
        _containers("ephemeralContainers", EPHEMERAL),
    ),
    "hostAliases": _COPIED,
    "hostIPC": Field(_HOST, _boolean("hostIPC")),
    "hostNetwork": Field(_HOST, _boolean("hostNetwork")),
    "hostPID": Field(_HOST, _boolean("hostPID")),
    "hostUsers": _refused("hostUsers"),
    "hostname": _COPIED,
    "hostnameOverride": _refused("hostnameOverride"),
    "imagePullSecrets": _COPIED,
    "initContainers": Field("allowed within the Pod Security level", _containers("initContainers")),
    "nodeName": _refused("nodeName"),
    "nodeSelector": _COPIED,
    "os": _refused("os"),
    "overhead": _refused("overhead"),
    "preemptionPolicy": _refused("preemptionPolicy"),
    "priority": _refused("priority"),
    "priorityClassName": Field("only those of the ProviderPolicy", _priority_class),
    "readinessGates": _COPIED,
    "resourceClaims": _refused("resourceClaims"),
    "resources": _refused("resources"),
    "restartPolicy": _COPIED,
    "runtimeClassName": Field("any, unless narrowed", _runtime_class),
    "schedulerName": Field("default-scheduler", _scheduler),
    "schedulingGates": _refused("schedulingGates"),
    "securityContext": Field("allowed within the Pod Security level", _context),
    "serviceAccount": _refused("serviceAccount"),
    "serviceAccountName": Field("any in mode Remote, unless narrowed; else default", _account),
    "setHostnameAsFQDN": _COPIED,
    "shareProcessNamespace": _COPIED,
    "subdomain": _COPIED,
    "terminationGracePeriodSeconds": Field(
        f"up to that of the ProviderPolicy, {MAX_GRACE_S} without", _grace
    ),
    "tolerations": Field(
        "any but of control planes and of every taint, unless granted", _tolerations
    ),
    "topologySpreadConstraints": _COPIED,
    "volumes": Field("allowed within the Pod Security level; own tokens only", _volumes),
    "workloadRef": _refused("workloadRef"),
}
"""Every field of a PodSpec that Kubernetes has; whatever is not here is refused."""
