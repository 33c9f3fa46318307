"""What becomes of each field of a PodSpec on a virtual node: one row a field.

A row is wanted for whatever the API version has: a test compares the table with the OpenAPI
document of an API server. Source: docs/parity.md § 5.5.2, 5.5.3; Kubernetes API reference, PodSpec.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from apis import keys, objects, resources, validation
from apis.objects import Object


class PodFieldFate(Enum):
    """What is done with a field; the value is how the docs say it."""

    SENT = "sent as it is"
    CHANGED = "sent, changed"
    MADE = "made for the provider"
    HERE = "not sent"
    REFUSED = "refused"


class PodField(NamedTuple):
    """One field: what is done, a word on it, and which values are refused."""

    fate: PodFieldFate
    note: str = ""
    """For a field that may be refused: what to do instead."""
    is_refused: Callable[[Any], bool] = lambda _value: False


def _is_set(value: Any) -> bool:
    return bool(value)


_SENT: Final = PodField(PodFieldFate.SENT)
_NEVER: Final = PodField(
    PodFieldFate.MADE, "false: a pod never shares what a node of the provider has"
)
_SCHEDULER: Final = PodField(
    PodFieldFate.HERE, "it refers to the scheduler and the nodes of the consumer"
)

FIELDS: Final[Mapping[str, PodField]] = {
    "activeDeadlineSeconds": PodField(PodFieldFate.SENT, "followed while it runs"),
    "affinity": PodField(
        PodFieldFate.MADE, "by `offloadingPatch` and `liqo.io/anti-affinity-preset`"
    ),
    "automountServiceAccountToken": PodField(
        PodFieldFate.MADE, "false, unless `liqo.io/api-server-support: remote`"
    ),
    "containers": PodField(PodFieldFate.CHANGED, "see below; images and resources are followed"),
    "dnsConfig": PodField(
        PodFieldFate.CHANGED, "a search domain of the namespace becomes that of its twin"
    ),
    "dnsPolicy": _SENT,
    "enableServiceLinks": _SENT,
    "ephemeralContainers": PodField(PodFieldFate.SENT, "followed while it runs"),
    "evictionResponders": PodField(
        PodFieldFate.HERE, "the consumer asks them before it evicts the pod"
    ),
    "hostAliases": _SENT,
    "hostIPC": _NEVER,
    "hostNetwork": _NEVER,
    "hostPID": _NEVER,
    "hostUsers": PodField(
        PodFieldFate.REFUSED,
        "no provider is asked for a user namespace: leave it out, or set it to true",
        lambda value: value is False,
    ),
    "hostname": _SENT,
    "hostnameOverride": PodField(
        PodFieldFate.REFUSED, "set hostname and subdomain instead", _is_set
    ),
    "imagePullSecrets": _SENT,
    "initContainers": PodField(PodFieldFate.CHANGED, "as containers; sidecars are sidecars there"),
    "nodeName": _SCHEDULER,
    "nodeSelector": PodField(PodFieldFate.MADE, "that of `offloadingPatch`"),
    "os": PodField(PodFieldFate.HERE, "the nodes that `offloadingPatch` selects decide"),
    "overhead": PodField(PodFieldFate.HERE, "that of the provider's RuntimeClass counts there"),
    "preemptionPolicy": _SCHEDULER,
    "priority": _SCHEDULER,
    "priorityClassName": _SCHEDULER,
    "readinessGates": PodField(
        PodFieldFate.HERE, "evaluated by the consumer: Ready needs the remote Ready and each gate"
    ),
    "resourceClaims": PodField(
        PodFieldFate.REFUSED,
        "the devices that are claimed are the consumer's; ask for an extended resource"
        " in resources.limits of the containers instead",
        _is_set,
    ),
    "resources": PodField(PodFieldFate.REFUSED, "set resources of each container instead", _is_set),
    "restartPolicy": _SENT,
    "runtimeClassName": PodField(
        PodFieldFate.MADE,
        "the annotation's, else the pod's, else that of `offloadingPatch`; never `liqo`",
    ),
    "schedulerName": _SCHEDULER,
    "schedulingGroup": _SCHEDULER,
    "schedulingGates": PodField(PodFieldFate.HERE, "none is left once it is bound"),
    "securityContext": _SENT,
    "serviceAccount": PodField(PodFieldFate.MADE, "as serviceAccountName"),
    "serviceAccountName": PodField(
        PodFieldFate.MADE, "none, unless `liqo.io/api-server-support: remote`"
    ),
    "setHostnameAsFQDN": _SENT,
    "shareProcessNamespace": _SENT,
    "subdomain": _SENT,
    "terminationGracePeriodSeconds": _SENT,
    "tolerations": PodField(
        PodFieldFate.MADE,
        "its own and those of `offloadingPatch`, as far as the provider takes them; followed",
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
    ),
    "workloadRef": _SCHEDULER,
}
"""Every field of a PodSpec of Kubernetes 1.31 to 1.37."""

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
    """Return the fields of ``spec`` that nobody has judged: those of a newer Kubernetes."""
    return sorted(name for name, value in spec.items() if name not in FIELDS and _is_set(value))


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


def tolerations(have: list[Object], wanted: list[Object]) -> list[Object]:
    """Return the tolerations of a running pod that has ``have``, brought to ``wanted``.

    Kubernetes lets them be added, and of those that are there ``tolerationSeconds`` be changed or
    taken off. Source: Kubernetes, "Pod update and replacement".
    """
    asked = {_tolerated(one): one for one in wanted}
    known = {_tolerated(one) for one in have}
    kept = [asked.get(_tolerated(one), one) for one in have]
    return [*kept, *(one for name, one in asked.items() if name not in known)]


def _tolerated(toleration: Object) -> str:
    named = {name: value for name, value in toleration.items() if name != "tolerationSeconds"}
    return objects.canonical(named)
