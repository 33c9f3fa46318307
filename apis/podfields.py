"""What becomes of each field of a PodSpec: what a consumer sends of it, what a provider allows.

One row a field; a test compares the table with the OpenAPI document of an API server. What the
virtual kubelet makes is allowed there, and a field without a row is refused.
Source: docs/parity.md § 3.8, 5.5.2, 5.5.3; SEC-A1 to SEC-A3; Kubernetes API reference, PodSpec.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from apis import keys, objects, podaffinity, podsecurity, podvolumes, resources, validation
from apis.objects import Object
from apis.providerpolicy import MAX_GRACE_S, ProviderPolicy
from apis.validation import DeniedError

Check: TypeAlias = Callable[[str, Any, Object, ProviderPolicy], Iterator[str]]
"""Yields what is wrong with the value of the field of that name; sees the whole spec."""
DEFAULT_ACCOUNT: Final = "default"


class PodFieldFate(Enum):
    """What is done with a field; the value is how the docs say it."""

    SENT = "sent as it is"
    CHANGED = "sent, changed"
    MADE = "made for the provider"
    HERE = "not sent"
    REFUSED = "refused"


class ProviderField(NamedTuple):
    """The verdict of a provider on a field, in words, and how it is reached."""

    verdict: str
    check: Check


# What a provider checks ---------------------------------------------------------------------------

_MUST_NOT: Final = "must not be set"


def _any(_name: str, _value: Any, _spec: Object, _policy: ProviderPolicy) -> Iterator[str]:
    yield from ()


def _never(name: str, value: Any, _spec: Object, _policy: ProviderPolicy) -> Iterator[str]:
    if value not in ("", [], {}):
        yield f"{name} {_MUST_NOT}"


def _boolean(name: str, value: Any, _spec: Object, _policy: ProviderPolicy) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{name} must be a boolean"


def _scheduler(name: str, value: Any, _spec: Object, _policy: ProviderPolicy) -> Iterator[str]:
    if value not in ("", "default-scheduler"):
        yield f"{name} {_MUST_NOT}"


def _grace(name: str, value: Any, _spec: Object, policy: ProviderPolicy) -> Iterator[str]:
    if (
        not isinstance(value, int)
        or not 0 <= value <= policy.allowed.max_termination_grace_period_seconds
    ):
        yield f"{name} must be from 0 to {policy.allowed.max_termination_grace_period_seconds}"


def _priority_class(name: str, value: Any, _spec: Object, policy: ProviderPolicy) -> Iterator[str]:
    class_ = validation.text(value, f"spec.pod.{name}")
    if class_ and class_ not in policy.allowed.priority_class_names:
        yield f"{name} {class_!r} is not offered"


def _runtime_class(name: str, value: Any, _spec: Object, policy: ProviderPolicy) -> Iterator[str]:
    class_ = validation.text(value, f"spec.pod.{name}")
    offered = policy.allowed.runtime_class_names
    if class_ and offered is not None and class_ not in offered:
        yield f"{name} {class_!r} is not offered"


def _account(name: str, value: Any, spec: Object, policy: ProviderPolicy) -> Iterator[str]:
    account = validation.text(value, f"spec.pod.{name}")
    if account in ("", DEFAULT_ACCOUNT):
        return
    if spec.get("automountServiceAccountToken") is not True:
        yield f"{name} {account!r} goes with automountServiceAccountToken: true only"
    offered = policy.allowed.service_account_names
    if offered is not None and account not in offered:
        yield f"{name} {account!r} is not offered"


def _token(name: str, value: Any, spec: Object, policy: ProviderPolicy) -> Iterator[str]:
    if value is False:
        return
    if value is not True:
        yield f"{name} must be a boolean"
    account = spec.get("serviceAccountName") or DEFAULT_ACCOUNT
    offered = policy.allowed.service_account_names
    if offered is not None and account not in offered:
        yield f"{name} must be false: account {account!r} is not offered"


def _tolerations(name: str, value: Any, spec: Object, policy: ProviderPolicy) -> Iterator[str]:
    is_taken = tolerable(spec, policy.allowed.tolerations, policy.kept_tolerations)
    for index, toleration in enumerate(validation.structs(value, f"spec.pod.{name}")):
        path = f"{name}[{index}]"
        key = validation.text(toleration.get("key"), f"spec.pod.{path}.key")
        if not is_taken(toleration):
            every = "every taint, those of control planes and virtual nodes included"
            yield f"{path} tolerates {key or every}, which keeps nodes for others"


def _containers(name: str, value: Any, _spec: Object, _policy: ProviderPolicy) -> Iterator[str]:
    known = EPHEMERAL if name == "ephemeralContainers" else CONTAINER
    for index, container in enumerate(validation.structs(value, f"spec.pod.{name}")):
        path = f"{name}[{index}]"
        yield from _unknown(container, known, path)
        where = f"{path}.securityContext"
        context = validation.struct(container.get("securityContext"), f"spec.pod.{where}")
        yield from _unknown(context, CONTAINER_CONTEXT, where)


def _context(name: str, value: Any, _spec: Object, _policy: ProviderPolicy) -> Iterator[str]:
    yield from _unknown(validation.struct(value, f"spec.pod.{name}"), POD_CONTEXT, name)


def _unknown(part: Object, known: frozenset[str], path: str) -> Iterator[str]:
    for name in part.keys() - known:
        yield f"{path}.{name} is not known to this version of pyliqo"


_COMMON_CONTEXT: Final = frozenset([
    "appArmorProfile", "runAsGroup", "runAsNonRoot", "runAsUser", "seLinuxOptions",
    "seccompProfile", "windowsOptions",
])  # fmt: skip
CONTAINER_CONTEXT: Final = _COMMON_CONTEXT | frozenset([
    "allowPrivilegeEscalation", "capabilities", "privileged", "procMount", "readOnlyRootFilesystem",
])  # fmt: skip
POD_CONTEXT: Final = _COMMON_CONTEXT | frozenset([
    "fsGroup", "fsGroupChangePolicy", "seLinuxChangePolicy", "supplementalGroups",
    "supplementalGroupsPolicy", "sysctls",
])  # fmt: skip

# The table ----------------------------------------------------------------------------------------

_ALLOWED: Final = ProviderField("allowed", _any)
_REFUSED: Final = ProviderField("refused", _never)
_WITHIN_LEVEL: Final = ProviderField("allowed within the Pod Security level", _containers)


class PodField(NamedTuple):
    """One field: what is done, a word on it, what its provider says, and which values are refused.

    ``note`` says of a field that may be refused what to do instead. ``is_followed`` means that
    the field may change in a pod that runs. Source: Kubernetes, "Pod update and replacement".
    """

    fate: PodFieldFate
    note: str = ""
    provider: ProviderField = _ALLOWED
    is_refused: Callable[[Any], bool] = lambda _value: False
    is_followed: bool = False


_SENT: Final = PodField(PodFieldFate.SENT)
_NEVER: Final = PodField(
    PodFieldFate.MADE,
    "false: a pod never shares what a node of the provider has",
    ProviderField("true only with ProviderPolicy podSecurityLevel privileged", _boolean),
)
_SCHEDULER: Final = PodField(
    PodFieldFate.HERE, "it refers to the scheduler and the nodes of the consumer", _REFUSED
)

FIELDS: Final[Mapping[str, PodField]] = {
    "activeDeadlineSeconds": PodField(
        PodFieldFate.SENT, "followed while it runs", is_followed=True
    ),
    "affinity": PodField(
        PodFieldFate.MADE,
        "by `offloadingPatch` and `liqo.io/anti-affinity-preset`",
        ProviderField("over pods of its own twins, unless opened", podaffinity.complaints),
    ),
    "automountServiceAccountToken": PodField(
        PodFieldFate.MADE,
        "false, unless `liqo.io/api-server-support: remote`",
        ProviderField("true in mode Remote, unless narrowed", _token),
    ),
    "containers": PodField(
        PodFieldFate.CHANGED, "see below; images and resources are followed", _WITHIN_LEVEL
    ),
    "dnsConfig": PodField(
        PodFieldFate.CHANGED, "a search domain of the namespace becomes that of its twin"
    ),
    "dnsPolicy": _SENT,
    "enableServiceLinks": _SENT,
    "ephemeralContainers": PodField(
        PodFieldFate.SENT,
        "followed while it runs",
        ProviderField("only added to one that runs, within the Pod Security level", _containers),
        is_followed=True,
    ),
    "evictionResponders": PodField(
        PodFieldFate.HERE, "the consumer asks them before it evicts the pod", _REFUSED
    ),
    "hostAliases": _SENT,
    "hostIPC": _NEVER,
    "hostNetwork": _NEVER,
    "hostPID": _NEVER,
    "hostUsers": PodField(
        PodFieldFate.REFUSED,
        "no provider is asked for a user namespace: leave it out, or set it to true",
        _REFUSED,
        lambda value: value is False,
    ),
    "hostname": _SENT,
    "hostnameOverride": PodField(
        PodFieldFate.REFUSED, "set hostname and subdomain instead", _REFUSED, bool
    ),
    "imagePullSecrets": _SENT,
    "initContainers": PodField(
        PodFieldFate.CHANGED, "as containers; sidecars are sidecars there", _WITHIN_LEVEL
    ),
    "nodeName": _SCHEDULER,
    "nodeSelector": PodField(PodFieldFate.MADE, "that of `offloadingPatch`"),
    "os": PodField(PodFieldFate.HERE, "the nodes that `offloadingPatch` selects decide", _REFUSED),
    "overhead": PodField(
        PodFieldFate.HERE, "that of the provider's RuntimeClass counts there", _REFUSED
    ),
    "preemptionPolicy": _SCHEDULER,
    "priority": _SCHEDULER,
    "priorityClassName": _SCHEDULER._replace(
        provider=ProviderField("only those of the ProviderPolicy", _priority_class)
    ),
    "readinessGates": PodField(
        PodFieldFate.HERE, "evaluated by the consumer: Ready needs the remote Ready and each gate"
    ),
    "resourceClaims": PodField(
        PodFieldFate.REFUSED,
        "the devices that are claimed are the consumer's; ask for an extended resource"
        " in resources.limits of the containers instead",
        _REFUSED,
        bool,
    ),
    "resources": PodField(
        PodFieldFate.REFUSED, "set resources of each container instead", _REFUSED, bool
    ),
    "restartPolicy": _SENT,
    "runtimeClassName": PodField(
        PodFieldFate.MADE,
        "the annotation's, else the pod's, else that of `offloadingPatch`; never `liqo`",
        ProviderField("any, unless narrowed", _runtime_class),
    ),
    "schedulerName": _SCHEDULER._replace(provider=ProviderField("default-scheduler", _scheduler)),
    "schedulingGroup": _SCHEDULER,
    "schedulingGates": PodField(PodFieldFate.HERE, "none is left once it is bound", _REFUSED),
    "securityContext": _SENT._replace(
        provider=ProviderField("allowed within the Pod Security level", _context)
    ),
    "serviceAccount": PodField(PodFieldFate.MADE, "as serviceAccountName", _REFUSED),
    "serviceAccountName": PodField(
        PodFieldFate.MADE,
        "none, unless `liqo.io/api-server-support: remote`",
        ProviderField("any in mode Remote, unless narrowed; else default", _account),
    ),
    "setHostnameAsFQDN": _SENT,
    "shareProcessNamespace": _SENT,
    "subdomain": _SENT,
    "terminationGracePeriodSeconds": _SENT._replace(
        provider=ProviderField(f"up to that of the ProviderPolicy, {MAX_GRACE_S} without", _grace)
    ),
    "tolerations": PodField(
        PodFieldFate.MADE,
        "its own and those of `offloadingPatch`, as far as the provider takes them; followed",
        ProviderField(
            "of the state of a node, and of a taint called like a resource that is asked for, "
            "unless granted",
            _tolerations,
        ),
        is_followed=True,
    ),
    "topologySpreadConstraints": PodField(
        PodFieldFate.CHANGED,
        "a label that the consumer's API server wrote into the selector is no longer in "
        "`matchLabelKeys`",
    ),
    "volumes": PodField(
        PodFieldFate.CHANGED,
        "projected tokens and root certificates are replaced; files of the downward API: see below;"
        " an ephemeral volume whose claim is reflected mounts that claim",
        ProviderField("by type; own tokens only", podvolumes.complaints),
    ),
    "workloadRef": _SCHEDULER,
}
"""Every field of a PodSpec of Kubernetes 1.31 to 1.37; a provider refuses what is not here."""

_ENVIRONMENT: Final = (
    "with API-server support: the address of the consumer's API server is added;"
    " values of the downward API: see below"
)

CONTAINER_FIELDS: Final[Mapping[str, PodField]] = {
    **dict.fromkeys(
        (
            "args",
            "command",
            "envFrom",
            "image",
            "imagePullPolicy",
            "lifecycle",
            "livenessProbe",
            "name",
            "readinessProbe",
            "resizePolicy",
            "resources",
            "restartPolicy",
            "restartPolicyRules",
            "securityContext",
            "startupProbe",
            "stdin",
            "stdinOnce",
            "targetContainerName",
            "terminationMessagePath",
            "terminationMessagePolicy",
            "tty",
            "volumeDevices",
            "volumeMounts",
            "workingDir",
        ),
        _SENT,
    ),
    "env": PodField(PodFieldFate.CHANGED, _ENVIRONMENT),
    "ports": PodField(PodFieldFate.CHANGED, "of a pod with `hostNetwork` without `hostPort`"),
}
"""Every field of a Container and of an EphemeralContainer; the provider judges their values."""

_COPIED: Final = frozenset({PodFieldFate.SENT, PodFieldFate.CHANGED})
_LATER: Final = frozenset({"ephemeralContainers"})
"""What a pod cannot be created with."""
COPIED: Final = tuple(
    name for name, field in FIELDS.items() if field.fate in _COPIED and name not in _LATER
)
"""What a forged PodSpec begins with; everything else is made, or stays here."""
FOLLOWED: Final = frozenset(name for name, field in FIELDS.items() if field.is_followed)
FOLLOWED_OF_CONTAINERS: Final = ("image", "resources")
"""What may change in the containers of a pod that runs, beside ``FOLLOWED``."""
EPHEMERAL: Final = frozenset(CONTAINER_FIELDS)
CONTAINER: Final = EPHEMERAL - {"targetContainerName"}

# What a consumer does -----------------------------------------------------------------------------


def refusal(spec: Object) -> str:
    """Return why a pod of the PodSpec ``spec`` does not run on virtual nodes, "" if it does."""
    return "; ".join(
        f"spec.{name} does not work on virtual nodes: {field.note}"
        for name, value in spec.items()
        if (field := FIELDS.get(name)) is not None and field.is_refused(value)
    )


def unheeded(spec: Object) -> str:
    """Return what a pod of ``spec`` asks of its node and no pod gets at a provider, "" if nothing.

    Such a pod runs all the same, without it.
    """
    asked = [name for name, value in spec.items() if FIELDS.get(name) is _NEVER and value]
    if not asked:
        return ""
    said = " and ".join(f"spec.{name}" for name in asked)
    return (
        f"{said} does not work on virtual nodes: a pod never shares what a node of the provider"
        " has, and runs without it: leave it out"
    )


def tokens(spec: Object) -> list[str]:
    """Return the tokens that ``spec`` asks for itself, in words: admission writes one besides."""
    struct, structs = validation.struct, validation.structs
    return [
        f"{path} serviceAccountToken {token.get('path')}"
        for volume in structs(spec.get("volumes"), "spec.volumes")
        if (path := f"spec.volumes[{volume.get('name')}]")
        if not str(volume.get("name")).startswith(_BY_ADMISSION)
        for source in structs(struct(volume.get("projected"), path).get("sources"), path)
        if (token := struct(source.get("serviceAccountToken"), path))
    ]


def tokenless(pod: Object, nodes: Iterable[Object]) -> str:
    """Return which tokens ``pod`` does not have on which of the virtual ``nodes``, "" if none."""
    asked = tokens(objects.spec(pod))
    said = objects.annotations(pod).get(keys.API_SERVER_SUPPORT, "").lower()
    if not asked or said == "remote":
        return ""
    names = sorted(
        objects.key_of(node).name
        for node in nodes
        if said == "disabled" or objects.annotations(node).get(keys.API_SERVER_SUPPORTED) != "true"
    )
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    where = f"{', '.join(names[:_NAMED])}{more}"
    return f"{', '.join(asked[:_NAMED])}: a pod on {where} runs without that file: {TOKEN_CURE}"


_NAMED: Final = 3
"""Nodes and tokens that a message names."""
_BY_ADMISSION: Final = "kube-api-access-"
"""Begins the name of the volume that admission adds. Source: Kubernetes, "Service Accounts"."""
TOKEN_CURE: Final = (
    "a token reaches a virtual node with --enable-apiserver-support=true among spec.extraArgs of "
    f"its VkOptionsTemplate, and without the annotation {keys.API_SERVER_SUPPORT}: disabled"
)


def unknown(spec: Object) -> list[str]:
    """Return the fields of ``spec`` that admission does not know: those of a newer Kubernetes."""
    return sorted(name for name, value in spec.items() if name not in FIELDS and value)


TAINTS: Final = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        "disk-pressure",
        "memory-pressure",
        "network-unavailable",
        "not-ready",
        "pid-pressure",
        "unreachable",
        "unschedulable",
    )
)
"""Of the state of a node: Kubernetes adds such tolerations to pods, and to those of DaemonSets.

Source: Kubernetes, "Taints and Tolerations", "DaemonSet".
"""


def tolerable(
    spec: Object, granted: Iterable[Object], kept: Iterable[Object] = ()
) -> Callable[[Object], bool]:
    """Return whether a provider takes a toleration in the pod of ``spec``.

    That is one of ``TAINTS``; of a taint that is called like an extended resource of which the pod
    asks for some: it goes to nodes with that alone; what one of ``granted`` covers; and what is
    among the ``kept``, but for its seconds. Source: Kubernetes, "Admission Controllers",
    ExtendedResourceToleration; docs/parity.md X13.
    """
    by_key: dict[str, list[Object]] = {}
    for one in granted:
        by_key.setdefault(one.get("key") or "", []).append(one)
    had = frozenset(map(_tolerated, kept))

    @functools.cache
    def asked() -> frozenset[str]:
        return frozenset(_extended(spec))

    def is_taken(toleration: Object) -> bool:
        key = toleration.get("key") or ""
        if key in TAINTS or (key and key in asked()):
            return True
        known = (*by_key.get(key, ()), *(by_key.get("", ()) if key else ()))
        is_granted = any(_is_within(toleration, one) for one in known)
        return is_granted or bool(had and _tolerated(toleration) in had)

    return is_taken


_OWN_DOMAINS: Final = ("kubernetes.io/", "liqo.io/")
"""Of which no resource is an extended one, and of which the taint of virtual nodes is."""


def _extended(spec: Object) -> Iterator[str]:
    """Yield the extended resources of which containers ask for more than none."""
    for name in ("containers", "initContainers"):
        for container in validation.structs(spec.get(name), f"spec.pod.{name}"):
            asked = validation.struct(container.get("resources"), f"spec.pod.{name}.resources")
            for part in ("limits", "requests"):
                amounts = validation.struct(asked.get(part), f"spec.pod.{name}.resources.{part}")
                for resource, amount in resources.readable(amounts).items():
                    is_own = any(domain in resource for domain in _OWN_DOMAINS)
                    if amount and "/" in resource and not is_own:
                        yield resource


def _is_within(toleration: Object, wider: Object) -> bool:
    """Whether ``wider``, of the same key or of none, tolerates all that ``toleration`` does."""

    def said(one: Object) -> tuple[Any, ...]:
        return one.get("key") or "", one.get("operator") or "Equal", one.get("value") or ""

    is_any = wider.get("operator") == "Exists" or said(wider) == said(toleration)
    return is_any and wider.get("effect") in (None, "", toleration.get("effect"))


def changes(have: Object, wanted: Object) -> Object:
    """Return what of a running pod's spec ``have`` follows ``wanted``, containers aside."""
    made: Object = {}
    deadline = wanted.get("activeDeadlineSeconds")
    if deadline is not None and deadline != have.get("activeDeadlineSeconds"):
        made["activeDeadlineSeconds"] = deadline
    listed = have.get("tolerations") or []
    asked = {_tolerated(one): one for one in wanted.get("tolerations") or []}
    # They may be added, and their tolerationSeconds change; none goes.
    known = {_tolerated(one) for one in listed}
    merged = [asked.get(_tolerated(one), one) for one in listed]
    merged += [one for name, one in asked.items() if name not in known]
    return made if merged == listed else {**made, "tolerations": merged}


def _tolerated(toleration: Object) -> str:
    named = {name: value for name, value in toleration.items() if name != "tolerationSeconds"}
    return objects.canonical(named)


# What a provider refuses --------------------------------------------------------------------------

_ASK: Final = "or ask the provider for a ProviderPolicy that allows it"
_CURES: Final = {
    _MUST_NOT: "leave it out, no ProviderPolicy allows it",
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


def judge(spec: Object, policy: ProviderPolicy) -> None:
    """Refuse ``spec`` for the first field that is not allowed.

    Raises:
        DeniedError: the message names it.
    """
    for complaint in complaints(spec, policy):
        raise DeniedError(f"spec.pod.{complaint}: {cure(complaint)}")


def cure(complaint: str) -> str:
    return next(text for words, text in _CURES.items() if words in complaint)


def complaints(spec: Object, policy: ProviderPolicy) -> Iterator[str]:
    """Yield all that is not allowed in ``spec``."""
    for name, value in spec.items():
        field = FIELDS.get(name)
        if field is None:
            yield f"{name} is not known to this version of pyliqo"
        elif value is not None:
            yield from field.provider.check(name, value, spec, policy)
    yield from podsecurity.violations(spec, policy.pod_security_level)
