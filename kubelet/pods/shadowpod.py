"""What is sent to the provider for a local pod, and the anti-affinity that it has there.

The spec is forged once, at creation. For the pod's life follow labels, annotations and what
Kubernetes lets change in a pod that runs.
Source: docs/parity.md § 5.5.2, 5.5.3.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from apis import allowlist, apply, downward, keys, objects, podaffinity, podfields
from apis.objects import Object
from apis.offloading import MappedNamespace, OffloadingPatch
from kubelet.pods import apiserver, containers
from kubelet.pods.apiserver import NO_API_SERVER, ApiServer, Mode

_PROVIDERS: Final = "liqo.io"
"""Prefix of the labels and annotations that the provider adds to a ShadowPod."""
_LABELS_OF_HOME: Final = frozenset(
    {keys.SHADOW_POD_LABEL, keys.REMOTE_UNAVAILABLE, keys.CREATOR_USER}
)
"""Which mean something here, or are the provider's to say."""
_ANNOTATIONS_OF_HOME: Final = frozenset(
    {
        keys.LAST_APPLIED,
        keys.APPLIED_META,
        keys.LOCAL_POD_UID,
        keys.LOCAL_POD_GENERATION,
        keys.LOCAL_NAMESPACE,
        keys.DOWNWARD_NAMESPACE,
        keys.FINISHED,
        keys.DELETION_GRACE,
        keys.PLACEMENT,
        keys.REMOTE_POD,
    }
)
_USUAL_GRACE_S: Final = 30
"""That of a pod that says nothing."""
_LEAST_GRACE_S: Final = 1
"""What a kubelet gives a pod that is deleted by force. Source: Kubernetes, "Pod Lifecycle"."""


@dataclass(frozen=True)
class Options:
    """What a virtual node does to each of its pods."""

    node: str
    patch: OffloadingPatch
    api_server: ApiServer = NO_API_SERVER
    twins: Mapping[str, str] | None = None
    """The namespaces there of those that a pod's terms of affinity name."""
    opened: frozenset[str] | None = frozenset()
    """Domains of annotations and labels that the provider takes besides; None: it does not say."""
    granted: tuple[Object, ...] | None = ()
    """Tolerations that the provider takes besides; None: it does not say, and takes all of them."""
    is_namespace_local: bool = False
    """Whether the pod reads the consumer's namespace as its own."""
    claims: frozenset[str] = frozenset()
    """Names of the claims of its ephemeral volumes that are reflected."""

    def tolerable(self, spec: Object) -> Callable[[Object], bool]:
        """Return whether the provider takes a toleration in the pod of ``spec``."""
        if self.granted is None:
            return lambda _toleration: True
        return podfields.tolerable(spec, self.granted)


def refusal(local: Object, options: Options) -> str:
    """Return why the pod ``local`` does not run on a provider, "" if it does."""
    return (
        podfields.refusal(local["spec"])
        or apiserver.refusal(local, options.api_server)
        or affinity_refusal(local, options.twins or {})
    )


def shadow(local: Object, pair: MappedNamespace, options: Options, creator: str = "") -> Object:
    """Return the ShadowPod to create for the Pod ``local``; Shape: ``spec.pod`` is a PodSpec.

    ``creator`` is the label by which the provider knows the one who creates it, if that is known:
    then its mutating webhook has nothing to complete, and is not called.
    """
    key = pair.twin_of(objects.key_of(local))
    made = apply.noted(metadata(local, pair, options))
    if creator:
        made["labels"][keys.CREATOR_USER] = creator
    return objects.named(
        keys.SHADOW_POD,
        key,
        metadata=made,
        spec={"pod": spec(local, pair, options)},
    )


def metadata(local: Object, pair: MappedNamespace, options: Options) -> Object:
    labels = _without(
        allowlist.labels_of_shadow(objects.labels(local)),
        {*_LABELS_OF_HOME, *options.patch.labels_not_reflected},
    )
    annotations = _without(
        objects.annotations(local),
        {*_ANNOTATIONS_OF_HOME, *options.patch.annotations_not_reflected},
    )
    sent = allowlist.for_pods({"labels": labels, "annotations": annotations}, options.opened)
    ours = {keys.LOCAL_POD_UID: objects.uid(local)}
    if (phase := _phase(local)) in objects.FINAL_PHASES:
        ours[keys.FINISHED] = phase
    if (generation := generation_of(local)) > 1:
        ours[keys.LOCAL_POD_GENERATION] = str(generation)
    if downward.is_noted(local):
        ours[keys.LOCAL_NAMESPACE] = objects.key_of(local).namespace
    return {
        "labels": {**sent["labels"], keys.NODE_NAME: options.node, **pair.labels()},
        "annotations": {**sent["annotations"], **ours},
    }


def unsent(local: Object, options: Options) -> frozenset[str]:
    """Return the labels and annotations that the provider would leave out: not sent."""
    hidden = {*options.patch.labels_not_reflected, *options.patch.annotations_not_reflected}
    noted = objects.annotations(local).keys() - _ANNOTATIONS_OF_HOME
    return allowlist.of_pods(noted, objects.labels(local), options.opened) - hidden


def untaken(local: Object, options: Options) -> list[str]:
    """Return the keys of the tolerations that the provider does not take, "" for every taint."""
    is_taken = options.tolerable(local["spec"])
    wanted = _tolerated(local["spec"], options)
    return sorted({one.get("key") or "" for one in wanted if not is_taken(one)})


class Changes(NamedTuple):
    """A merge patch, {} if there is none, and the ephemeral container that it adds."""

    patch: Object
    debugger: Object | None


def changes(existing: Object, local: Object, pair: MappedNamespace, options: Options) -> Changes:
    """Return what brings the ShadowPod ``existing`` to ``local``, one ephemeral container at most.

    What others added to it stays. Where it is not recorded what was written, as on one of an older
    virtual kubelet, all but what has the provider's prefix counts as that.
    """
    written = {
        field: [*filter(_is_no_providers, existing["metadata"].get(field) or {})]
        for field in apply.FIELDS
    }
    patch = apply.patch(existing, metadata(local, pair, options), written)
    spec_ = _updates(existing["spec"].get("pod") or {}, local["spec"], options)
    changed: Object = {"metadata": patch} if patch else {}
    if spec_:
        changed["spec"] = {"pod": spec_}
    if container := _debugger(existing, local):
        changed = with_debugger(changed, existing, container)
    return Changes(changed, container)


def _debugger(existing: Object, local: Object) -> Object | None:
    """Return an ephemeral container of ``local`` that the provider is to get, None if it has all.

    One that the provider refused has ended, by the status of ``local``, and is not sent again:
    nobody can take it out of the pod, and it would keep others away.
    """
    sent = {one.get("name") for one in _debuggers(existing)}
    over = containers.ended(local, "ephemeralContainers")
    listed: list[Object] = local["spec"].get("ephemeralContainers") or []
    return next((one for one in listed if one["name"] not in sent | over), None)


def with_debugger(changes: Object, existing: Object, container: Object) -> Object:
    """Return the patch ``changes``, which adds an ephemeral container to ``existing`` besides."""
    spec_ = changes.get("spec", {}).get("pod", {})
    listed = [*_debuggers(existing), copy.deepcopy(container)]
    return {**changes, "spec": {"pod": {**spec_, "ephemeralContainers": listed}}}


def _debuggers(existing: Object) -> list[Object]:
    return (existing["spec"].get("pod") or {}).get("ephemeralContainers") or []


def generation_of(local: Object) -> int:
    """Return the generation of the local pod, 1 where its server does not count."""
    return int(local["metadata"].get("generation") or 1)


def hurry_s(local: Object) -> int | None:
    """Return in how many seconds the terminating pod is to end, None if in the time of its spec.

    One that has ended says none, whatever it was given: there is nothing to wait for.
    """
    asked = local["metadata"].get("deletionGracePeriodSeconds")
    usual = local["spec"].get("terminationGracePeriodSeconds", _USUAL_GRACE_S)
    if asked is None or asked == usual or _phase(local) in objects.FINAL_PHASES:
        return None
    return max(_LEAST_GRACE_S, int(asked))


def is_for(remote: Object, local: Object) -> bool:
    """Whether ``remote`` stands for that very pod, and not for an older one of its name."""
    recorded = objects.annotations(remote).get(keys.LOCAL_POD_UID)
    return recorded is None or recorded == objects.uid(local)


def spec(local: Object, pair: MappedNamespace, options: Options) -> Object:
    copied = {name: local["spec"][name] for name in podfields.COPIED if name in local["spec"]}
    made = copy.deepcopy(copied)
    made |= {"hostNetwork": False, "hostPID": False, "hostIPC": False}
    for mutate in _MUTATORS:
        mutate(made, local, pair, options)
    return made


# What changes in a pod that runs -----------------------------------------------------------------


def _updates(have: Object, local: Object, options: Options) -> Object:
    """Return what of ``spec.pod`` follows the local pod's spec. Source: docs/parity.md § 5.5.2."""
    made: Object = {}
    for field in ("containers", "initContainers"):
        asked = {one["name"]: one for one in local.get(field) or []}
        listed = have.get(field) or []
        followed = [_followed(one, asked.get(str(one.get("name")), one)) for one in listed]
        if followed != listed:
            made[field] = followed
    wanted = [*filter(options.tolerable(local), _own_tolerations(local))]
    return made | copy.deepcopy(podfields.changes(have, {**local, "tolerations": wanted}))


def _followed(container: Object, asked: Object) -> Object:
    changed = {name: asked[name] for name in podfields.FOLLOWED_OF_CONTAINERS if asked.get(name)}
    return {**container, **copy.deepcopy(changed)}


def _own_tolerations(local: Object) -> list[Object]:
    listed: list[Object] = local.get("tolerations") or []
    return [one for one in listed if one.get("key") != keys.VIRTUAL_NODE_TAINT]


def _tolerated(local: Object, options: Options) -> list[Object]:
    return [*_own_tolerations(local), *options.patch.tolerations]


# What differs from home --------------------------------------------------------------------------


def _api_server(made: Object, local: Object, pair: MappedNamespace, options: Options) -> None:
    apiserver.mutate(made, local, pair, options.api_server)


def _downward(made: Object, local: Object, _pair: MappedNamespace, options: Options) -> None:
    """Let the pod read of itself what holds at the API server that it uses."""
    is_home = apiserver.mode(local, options.api_server) is Mode.TOKEN_API
    fields = {downward.UID, downward.NODE} if is_home else set[str]()
    if options.is_namespace_local:
        fields |= {downward.NAMESPACE}
    for name in unsent(local, options):
        fields |= downward.noted(name)
    downward.localise(made, local, frozenset(fields))


def _ephemeral(made: Object, local: Object, _pair: MappedNamespace, options: Options) -> None:
    """Mount the claim of an ephemeral volume that is reflected: the provider is to make none.

    Source: Kubernetes, "Generic ephemeral volumes": a claim of that name that the Pod does not own
    is a conflict.
    """
    for volume in made.get("volumes") or []:
        name = ephemeral_claim(local, volume)
        if "ephemeral" in volume and name in options.claims:
            del volume["ephemeral"]
            volume["persistentVolumeClaim"] = {"claimName": name}


def ephemeral_claim(local: Object, volume: Object) -> str:
    """Return the name of the claim that Kubernetes makes for an ephemeral volume of ``local``."""
    return f"{objects.key_of(local).name}-{volume['name']}"


def _dns(made: Object, _local: Object, pair: MappedNamespace, _options: Options) -> None:
    """Let what the pod looks up in its own namespace be found in the twin."""
    searches = (made.get("dnsConfig") or {}).get("searches")
    if searches:
        own, twin = (f"{name}.svc." for name in (pair.local_namespace, pair.remote_namespace))
        made["dnsConfig"]["searches"] = [
            twin + one.removeprefix(own) if one.startswith(own) else one for one in searches
        ]


def _ports(made: Object, local: Object, _pair: MappedNamespace, _options: Options) -> None:
    """Ask for no port of a node that a pod only has since it shares the network of one here."""
    if not local["spec"].get("hostNetwork"):
        return
    for field in ("containers", "initContainers"):
        for container in made.get(field) or []:
            for port in container.get("ports") or []:
                port.pop("hostPort", None)


# Placement on the provider -----------------------------------------------------------------------


def _spread_constraints(
    made: Object, _local: Object, _pair: MappedNamespace, _options: Options
) -> None:
    if constraints := made.get("topologySpreadConstraints"):
        made["topologySpreadConstraints"] = selected_once(constraints)


def _node_selector(made: Object, _local: Object, _pair: MappedNamespace, options: Options) -> None:
    if options.patch.node_selector:
        made["nodeSelector"] = dict(options.patch.node_selector)


def _tolerations(made: Object, local: Object, _pair: MappedNamespace, options: Options) -> None:
    tolerated = _tolerated(local["spec"], options)
    if wanted := [*filter(options.tolerable(local["spec"]), tolerated)]:
        made["tolerations"] = copy.deepcopy(wanted)


def _affinity(made: Object, local: Object, _pair: MappedNamespace, options: Options) -> None:
    if options.patch.node_affinity:
        made["affinity"] = {"nodeAffinity": copy.deepcopy(options.patch.node_affinity)}
    if anti_affinity := preset(local, options.twins or {}):
        made["affinity"] = {**made.get("affinity", {}), "podAntiAffinity": anti_affinity}


def _runtime_class(made: Object, local: Object, _pair: MappedNamespace, options: Options) -> None:
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


_MUTATORS: Final = (
    _api_server,
    _downward,
    _ephemeral,
    _dns,
    _ports,
    _node_selector,
    _tolerations,
    _affinity,
    _spread_constraints,
    _runtime_class,
)


def _phase(pod: Object) -> str:
    return str(objects.status(pod).get("phase") or "")


def _without(have: dict[str, str], dropped: Iterable[str]) -> dict[str, str]:
    hidden = frozenset(dropped)
    return {name: value for name, value in have.items() if name not in hidden}


def _is_no_providers(name: str) -> bool:
    prefix = name.partition("/")[0] if "/" in name else ""
    return not (prefix == _PROVIDERS or prefix.endswith("." + _PROVIDERS))


# The anti-affinity that a pod has on the provider, by its preset ----------------------------------
# Source: docs/parity.md § 5.5.2.

_UNSTABLE_LABELS: Final = frozenset(
    {"controller-revision-hash", "pod-template-hash", "statefulset.kubernetes.io/pod-name"}
)
PROPAGATE: Final = "propagate"
_KIND: Final = "podAntiAffinity"


class UnsentAffinity(NamedTuple):
    """A term that the provider could not understand."""

    path: str
    why: str
    is_required: bool


def preset(local: Object, twins: Mapping[str, str]) -> Object | None:
    """Return what the preset of ``local`` asks for, None if it has none.

    ``twins`` are the namespaces there of those that its own terms name.
    """
    forge = PRESETS.get(objects.annotations(local).get(keys.ANTI_AFFINITY_PRESET, ""))
    return forge(local, twins) if forge else None


def affinity_namespaces(local: Object) -> frozenset[str]:
    """Return the namespaces that the terms name which go to the provider."""
    return frozenset(name for _, term, _ in _terms(local) for name in term.get("namespaces") or [])


def unsent_affinity(local: Object, twins: Mapping[str, str]) -> Iterator[UnsentAffinity]:
    """Yield the terms that do not go to the provider, since they mean namespaces of here."""
    for path, term, is_required in _terms(local):
        if why := _untranslatable(term, twins):
            yield UnsentAffinity(f"spec.{path}", why, is_required)


def affinity_refusal(local: Object, twins: Mapping[str, str]) -> str:
    """Return why ``local`` cannot go: it would run where its author forbade it. "" if it can."""
    cure = "leave it out, or offload those namespaces to the same cluster by their names"
    return "; ".join(
        f"{one.path} {one.why}: {cure}" for one in unsent_affinity(local, twins) if one.is_required
    )


def _terms(local: Object) -> Iterator[tuple[str, Object, bool]]:
    if objects.annotations(local).get(keys.ANTI_AFFINITY_PRESET) != PROPAGATE:
        return
    affinity = (local["spec"].get("affinity") or {}).get(_KIND)
    for path, term in podaffinity.terms({_KIND: affinity}):
        yield path, term, podaffinity.REQUIRED in path


def _untranslatable(term: Object, twins: Mapping[str, str]) -> str:
    if term.get("namespaceSelector") is not None:
        return "selects namespaces by labels that they have here"
    missing = sorted(name for name in term.get("namespaces") or [] if name not in twins)
    return f"names {', '.join(missing)}, not offloaded to that cluster" if missing else ""


def _propagate(local: Object, twins: Mapping[str, str]) -> Object | None:
    own = (local["spec"].get("affinity") or {}).get(_KIND)
    found = selected_once(own)
    if not isinstance(found, dict):
        return None
    made = {
        when: [_translated(one, twins) for one in found[when] if _is_sent(one, twins)]
        for when in (podaffinity.REQUIRED, podaffinity.PREFERRED)
        if found.get(when)
    }
    return {**found, **made}


def _is_sent(item: Object, twins: Mapping[str, str]) -> bool:
    return not _untranslatable(item.get("podAffinityTerm") or item, twins)


def _translated(item: Object, twins: Mapping[str, str]) -> Object:
    """Return the term, or the weighted one, over the twins of its namespaces."""
    if inner := item.get("podAffinityTerm"):
        return {**item, "podAffinityTerm": _translated(inner, twins)}
    names = item.get("namespaces")
    return {**item, "namespaces": [twins[name] for name in names]} if names else item


def _soft(local: Object, _twins: Mapping[str, str]) -> Object:
    weighted = {"weight": 1, "podAffinityTerm": _spread(local)}
    return {podaffinity.PREFERRED: [weighted]}


def _hard(local: Object, _twins: Mapping[str, str]) -> Object:
    return {podaffinity.REQUIRED: [_spread(local)]}


def _spread(local: Object) -> Object:
    listed = objects.annotations(local).get(keys.ANTI_AFFINITY_LABELS, "")
    wanted = {name.strip() for name in listed.split(",") if name.strip()}
    labels = {
        name: value
        for name, value in objects.labels(local).items()
        if (name in wanted if wanted else name not in _UNSTABLE_LABELS | {keys.SHADOW_POD_LABEL})
    }
    return {"topologyKey": keys.HOSTNAME, "labelSelector": {"matchLabels": labels}}


PRESETS: Final[dict[str, Callable[[Object, Mapping[str, str]], Object | None]]] = {
    PROPAGATE: _propagate,
    "soft": _soft,
    "hard": _hard,
}


def selected_once(term: Any) -> Any:
    """Return ``term`` without those ``matchLabelKeys`` that its selector names already.

    The API server at the consumer has written their values into the selector, and that of the
    provider takes no label in both. Source: Kubernetes, "Pod Topology Spread Constraints",
    matchLabelKeys.
    """
    if isinstance(term, list):
        return [selected_once(one) for one in term]
    if not isinstance(term, dict):
        return term
    made = {name: selected_once(value) for name, value in term.items()}
    if keys_ := made.pop("matchLabelKeys", None):
        named_ = _selected(made.get("labelSelector") or {})
        kept = [key for key in keys_ if key not in named_]
        made |= {"matchLabelKeys": kept} if kept else {}
    return made


def _selected(selector: Object) -> set[str]:
    listed = selector.get("matchExpressions") or []
    return {*(selector.get("matchLabels") or {}), *(one["key"] for one in listed)}
