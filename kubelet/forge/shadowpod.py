"""What is sent to the provider for a local pod.

The spec is forged once, at creation; labels and annotations follow the local pod for its life.

Source: behaviour.md 5.5.2, 5.5.3.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from apis import keys, naming, objects
from apis.objects import Object
from apis.offloading import OffloadingPatch
from apis.pairs import Pair

_COPIED: Final = (
    "activeDeadlineSeconds",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostAliases",
    "hostname",
    "imagePullSecrets",
    "readinessGates",
    "restartPolicy",
    "securityContext",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "subdomain",
    "terminationGracePeriodSeconds",
    "topologySpreadConstraints",
    "containers",
    "initContainers",
    "volumes",
)
"""Everything else is dropped, or made below: it refers to the consumer's cluster."""
_REMOTE: Final = "remote"
_UNSTABLE_LABELS: Final = frozenset(
    {"controller-revision-hash", "pod-template-hash", "statefulset.kubernetes.io/pod-name"}
)
_PROVIDERS: Final = "liqo.io"
"""Prefix of the labels and annotations that the provider adds to a ShadowPod."""


@dataclass(frozen=True)
class Options:
    """What a virtual node does to each of its pods."""

    node: str
    patch: OffloadingPatch


def shadow(local: Object, pair: Pair, options: Options) -> Object:
    """Return the ShadowPod to create for the Pod ``local``; Shape: ``spec.pod`` is a PodSpec."""
    key = pair.twin_of(objects.key_of(local))
    return objects.named(
        keys.SHADOW_POD,
        key,
        metadata=metadata(local, pair, options),
        spec={"pod": spec(local, pair, options)},
    )


def metadata(local: Object, pair: Pair, options: Options) -> Object:
    """Return the labels and annotations of the ShadowPod of ``local``."""
    labels = _without(
        objects.labels(local),
        {keys.SHADOW_POD_LABEL, keys.REMOTE_UNAVAILABLE, *options.patch.labels_not_reflected},
    )
    annotations = _without(
        objects.annotations(local),
        {
            keys.LAST_APPLIED,
            keys.LOCAL_POD_UID,
            keys.PLACEMENT,
            *options.patch.annotations_not_reflected,
        },
    )
    return {
        "labels": {**labels, keys.NODE_NAME: options.node, **pair.labels()},
        "annotations": {**annotations, keys.LOCAL_POD_UID: objects.uid(local)},
    }


def changes(existing: Object, wanted: Object) -> Object:
    """Return the merge patch that brings the metadata of ``existing`` to ``wanted``, {} if none.

    What the provider added under its own prefix stays.
    """
    patch: Object = {}
    for field in ("labels", "annotations"):
        have: dict[str, str] = existing["metadata"].get(field) or {}
        want: dict[str, str] = wanted[field]
        gone = {name: None for name in have if name not in want and not _is_providers(name)}
        new = {name: value for name, value in want.items() if have.get(name) != value}
        if gone or new:
            patch[field] = {**gone, **new}
    return {"metadata": patch} if patch else {}


def is_for(remote: Object, local: Object) -> bool:
    """Whether ``remote`` stands for that very pod, and not for an older one of its name."""
    recorded = objects.annotations(remote).get(keys.LOCAL_POD_UID)
    return recorded is None or recorded == objects.uid(local)


def spec(local: Object, pair: Pair, options: Options) -> Object:
    """Return the PodSpec that runs on the provider."""
    copied = {name: local["spec"][name] for name in _COPIED if name in local["spec"]}
    made = copy.deepcopy(copied)
    made |= {"hostNetwork": False, "hostPID": False, "hostIPC": False}
    for mutate in _MUTATORS:
        mutate(made, local, pair, options)
    return made


# Service account ---------------------------------------------------------------------------------


def _service_account(made: Object, local: Object, pair: Pair, _options: Options) -> None:
    """Modes Remote and Disabled; tokens of the consumer are not sent."""
    annotations = objects.annotations(local)
    if annotations.get(keys.API_SERVER_SUPPORT, "").lower() == _REMOTE:
        name = annotations.get(keys.REMOTE_SERVICE_ACCOUNT_NAME)
        made["serviceAccountName"] = name or local["spec"].get("serviceAccountName", "")
        made["automountServiceAccountToken"] = True
        return
    made["automountServiceAccountToken"] = False
    for volume in made.get("volumes") or []:
        if "projected" in volume:
            sources = volume["projected"].get("sources") or []
            volume["projected"]["sources"] = [
                _source(source, pair) for source in sources if "serviceAccountToken" not in source
            ]


def _source(source: Object, pair: Pair) -> Object:
    reference = source.get("configMap")
    if not reference or reference.get("name") != keys.ROOT_CA_CONFIG_MAP:
        return source
    return {**source, "configMap": {**reference, "name": naming.root_ca_config_map(pair.origin)}}


# Placement on the provider -----------------------------------------------------------------------


def _node_selector(made: Object, _local: Object, _pair: Pair, options: Options) -> None:
    if options.patch.node_selector:
        made["nodeSelector"] = dict(options.patch.node_selector)


def _tolerations(made: Object, local: Object, _pair: Pair, options: Options) -> None:
    own = [
        toleration
        for toleration in local["spec"].get("tolerations") or []
        if toleration.get("key") != keys.VIRTUAL_NODE_TAINT
    ]
    wanted = [*own, *options.patch.tolerations]
    if wanted:
        made["tolerations"] = copy.deepcopy(wanted)


def _affinity(made: Object, local: Object, _pair: Pair, options: Options) -> None:
    if options.patch.node_affinity:
        made["affinity"] = {"nodeAffinity": copy.deepcopy(options.patch.node_affinity)}
    preset = PRESETS.get(objects.annotations(local).get(keys.ANTI_AFFINITY_PRESET, ""))
    anti_affinity = preset(local) if preset else None
    if anti_affinity:
        made["affinity"] = {**made.get("affinity", {}), "podAntiAffinity": anti_affinity}


def _propagate(local: Object) -> Object | None:
    affinity: Object = local["spec"].get("affinity") or {}
    return copy.deepcopy(affinity.get("podAntiAffinity"))


def _soft(local: Object) -> Object:
    weighted = {"weight": 1, "podAffinityTerm": _spread(local)}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}


def _hard(local: Object) -> Object:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [_spread(local)]}


def _spread(local: Object) -> Object:
    listed = objects.annotations(local).get(keys.ANTI_AFFINITY_LABELS, "")
    wanted = {name.strip() for name in listed.split(",") if name.strip()}
    labels = {
        name: value
        for name, value in objects.labels(local).items()
        if (name in wanted if wanted else name not in _UNSTABLE_LABELS | {keys.SHADOW_POD_LABEL})
    }
    return {"topologyKey": keys.HOSTNAME, "labelSelector": {"matchLabels": labels}}


PRESETS: Final[dict[str, Callable[[Object], Object | None]]] = {
    "propagate": _propagate,
    "soft": _soft,
    "hard": _hard,
}


def _runtime_class(made: Object, local: Object, _pair: Pair, options: Options) -> None:
    own = local["spec"].get("runtimeClassName") or ""
    offered = options.patch.runtime_class or ""
    candidates = (
        objects.annotations(local).get(keys.REMOTE_RUNTIME_CLASS_NAME) or "",
        "" if own == keys.RUNTIME_CLASS else own,
        "" if offered == keys.RUNTIME_CLASS else offered,
    )
    chosen = next(filter(None, candidates), "")
    if chosen:
        made["runtimeClassName"] = chosen


_MUTATORS: Final = (_service_account, _node_selector, _tolerations, _affinity, _runtime_class)


def _without(have: dict[str, str], dropped: Iterable[str]) -> dict[str, str]:
    return {name: value for name, value in have.items() if name not in set(dropped)}


def _is_providers(name: str) -> bool:
    prefix = name.partition("/")[0] if "/" in name else ""
    return prefix == _PROVIDERS or prefix.endswith("." + _PROVIDERS)
