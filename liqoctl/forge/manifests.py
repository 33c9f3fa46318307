"""The manifests of an installation, and texts and names of what liqoctl makes. Pure."""

import copy
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from apis import keys, naming, objects, slices
from apis.objects import Key, Kind, Object, key_of


def made(kind: Kind, key: Key, spec: Object, metadata: Mapping[str, Mapping[str, str]]) -> Object:
    """Return the object ``key`` with the labels and annotations ``metadata``, in reading order."""
    named = {"name": key.name, "namespace": key.namespace}
    added = {part: dict(values) for part, values in metadata.items() if values}
    return objects.named(kind, key) | {"metadata": {**named, **added}, "spec": spec}


def tenant_namespace_selector(peer: str) -> str:
    """Return the labels by which the namespace of ``peer`` is found, whatever its name."""
    return f"{keys.TENANT_NAMESPACE}=true,{keys.REMOTE_CLUSTER_ID}={peer}"


def changes(existing: Object, named: Object, whole: Collection[str] = ()) -> Object:
    """Return the merge patch that gives ``existing`` what ``named`` names; {} when it has it.

    Whoever set something else meant it: no field is taken away, and maps (labels, amounts) are
    added to, but for those in ``whole``, by their path in the spec, which are replaced.
    """
    spec = _added(objects.spec(existing), named.get("spec") or {}, whole)
    patch: Object = {"spec": spec} if spec else {}
    for part in ("labels", "annotations"):
        have = existing["metadata"].get(part) or {}
        more = named["metadata"].get(part) or {}
        new = {name: value for name, value in more.items() if have.get(name) != value}
        if new:
            patch.setdefault("metadata", {})[part] = new
    return patch


def _added(old: Object, new: Object, whole: Collection[str], path: str = "") -> Object:
    patch: Object = {}
    for name, value in new.items():
        before, here = old.get(name), f"{path}{name}"
        if isinstance(before, dict) and isinstance(value, dict):
            if here in whole:
                inner = objects.merge_patch(before, value)
            else:
                inner = _added(before, value, whole, f"{here}.")
            if inner:
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = copy.deepcopy(value)
    return patch


# What ``kubectl kustomize`` makes of the manifests, and what flags add to it ----------------------

_PART_OF: Final = "app.kubernetes.io/part-of"
IMAGE: Final = "pyliqo"
"""The name of the image in the manifests, which stands for whatever an installation uses."""
OURS: Final = f"{_PART_OF}=liqo"
"""Selects everything of the manifests, and what a version before this one had in its own."""
_ENFORCED: Final = "--enable-resource-enforcement"
_NOT_ENFORCED: Final = "--no-enable-resource-enforcement"
ROLES: Final = frozenset({keys.ROLE.kind, keys.CLUSTER_ROLE.kind})
DEFAULT_POLICY: Final = Key("", "default")
LEAST: Final = (1, 31)
"""Major and minor version of Kubernetes.

Source: Kubernetes, "Common Expression Language": a policy may use isIP and isCIDR since 1.31.
"""
_SERVES_MUTATING_POLICIES: Final = (1, 36)
"""Source: Kubernetes, "Mutating Admission Policy": stable since 1.36."""
_MUTATING: Final = "mutating"
_KUSTOMIZATION: Final = "kustomization.yaml"
_KNOWN: Final = frozenset({"apiVersion", "kind", "resources"})
_ENDS_IN_ES: Final = ("s", "x", "ch", "sh")


@dataclass(frozen=True)
class InstallOptions:
    """What the flags say; what is empty is left as it is."""

    cluster_id: str = ""
    image: str = ""
    cluster_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that this cluster, as a provider, suggests for the nodes of its consumers."""
    sharing_percentage: int | None = None
    enable_resource_enforcement: bool | None = None
    """Whether consumers are kept to what their slices were granted."""
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels and annotations that all objects get."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the installation keeps, as docs/values.md has them."""


def everything(files: Mapping[str, Sequence[Object]], folder: str = "") -> list[Object]:
    """Return the objects of the kustomization in ``folder``, in the order of its resources.

    Shape: ``files`` has the documents of each file by its path: "10-crds/kustomization.yaml".

    Raises:
        ValueError: the kustomization says something that this cannot do.
    """
    [found] = files[posixpath.join(folder, _KUSTOMIZATION)]
    if unknown := set(found) - _KNOWN:
        raise ValueError(f"kustomization of {folder or 'manifests'}: {sorted(unknown)} is not read")
    paths = [posixpath.normpath(posixpath.join(folder, name)) for name in found["resources"]]
    return [obj for path in paths for obj in files.get(path) or everything(files, path)]


def customised(manifests: Iterable[Object], wanted: InstallOptions) -> list[Object]:
    """Return ``manifests`` as ``wanted`` has them, and the objects that it adds.

    What is added stands before the first Deployment: controllers that start and find no cluster ID
    make one, and keep it.
    """
    made = [_with_image(obj, wanted.image) if wanted.image else obj for obj in manifests]
    if wanted.enable_resource_enforcement is False:
        made = [_without_enforcement(obj) for obj in made]
    added = [cluster_id(wanted.cluster_id)] if wanted.cluster_id else []
    if found := policy(wanted):
        added.append(found)
    starts = (at for at, obj in enumerate(made) if obj["kind"] == keys.DEPLOYMENT.kind)
    first = next(starts, len(made))
    return [_with_metadata(obj, wanted.metadata) for obj in (*made[:first], *added, *made[first:])]


def _with_image(obj: Object, image: str) -> Object:
    return _with_containers(
        obj, lambda one: {**one, "image": image if one["image"] == IMAGE else one["image"]}
    )


def _without_enforcement(obj: Object) -> Object:
    def changed(container: Object) -> Object:
        args = container.get("args") or []
        if _ENFORCED not in args:
            return container
        return {**container, "args": [_NOT_ENFORCED if arg == _ENFORCED else arg for arg in args]}

    return _with_containers(obj, changed)


def _with_containers(obj: Object, changed: Callable[[Object], Object]) -> Object:
    """Return ``obj`` with each container of its pods ``changed``; itself if it makes none."""
    if "template" not in objects.spec(obj):
        return obj
    spec = obj["spec"]["template"]["spec"]
    containers = [changed(container) for container in spec["containers"]]
    pod = {**obj["spec"]["template"], "spec": {**spec, "containers": containers}}
    return {**obj, "spec": {**obj["spec"], "template": pod}}


def _with_metadata(obj: Object, added: Mapping[str, Mapping[str, str]]) -> Object:
    metadata = dict(obj["metadata"])
    for name, values in added.items():
        metadata[name] = {**(metadata.get(name) or {}), **values}
    return {**obj, "metadata": metadata}


def cluster_id(name: str) -> Object:
    labels = {keys.APP_NAME: keys.CLUSTER_ID_CONFIG_MAP, _PART_OF: "liqo"}
    where = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)
    data = {keys.CLUSTER_ID_KEY: name}
    return objects.named(keys.CONFIG_MAP, where, metadata={"labels": labels}, data=data)


def policy(wanted: InstallOptions) -> Object | None:
    """Return what ``wanted`` says to all consumers, as the fields of a ProviderPolicy."""
    spec: Object = {}
    if wanted.sharing_percentage is not None:
        spec["sharing"] = {"percentage": wanted.sharing_percentage}
        spec["resourceSliceClasses"] = {"default": slices.SHARED_CLASS}
    if wanted.cluster_labels:
        spec["nodeLabels"] = dict(wanted.cluster_labels)
    return objects.named(keys.PROVIDER_POLICY, DEFAULT_POLICY, spec=spec) if spec else None


def kind_of(obj: Object) -> Kind:
    """Return the kind of an object of a manifest, whose plural follows from its name.

    Source: Kubernetes, apimachinery, ``meta.UnsafeGuessKindToResource``.
    """
    group, _, version = obj["apiVersion"].rpartition("/")
    return Kind(
        group,
        version,
        obj["kind"],
        _plural(obj["kind"].lower()),
        bool(obj["metadata"].get("namespace")),
    )


def rehearsed(obj: Object, outcome: str) -> str:
    """Return ``outcome`` of ``obj`` in kubectl's words: ``deployment.apps/liqo-certs created``."""
    group = obj["apiVersion"].rpartition("/")[0]
    kind = f"{obj['kind'].lower()}{'.' + group if group else ''}"
    return f"{kind}/{obj['metadata']['name']} {outcome}"


def outcome(found: Object | None, made: Object) -> str:
    if found is None:
        return "created"
    return "unchanged" if _without_marks(found) == _without_marks(made) else "configured"


def _without_marks(obj: Object) -> Object:
    """Return ``obj`` without what each write changes, and without what a server counts."""
    marks = {"managedFields", "resourceVersion", "generation"}
    metadata = {name: value for name, value in obj["metadata"].items() if name not in marks}
    return {**obj, "metadata": metadata, "status": None}


def _plural(name: str) -> str:
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith(_ENDS_IN_ES) else f"{name}s"


def check_cluster_id(name: str) -> None:
    """Refuse what cannot be the name of a cluster.

    Raises:
        ValueError: it has to be a part of names of namespaces, and a label.
    """
    if not naming.is_dns_label(name):
        raise ValueError(
            f"{name!r} cannot be a cluster ID: use 1 to 63 lower-case letters, digits and dashes, "
            "a letter or digit at both ends"
        )


def without_old_hooks(found: Object | None, wanted: Object) -> Object | None:
    """Return the merge patch that takes from ``found`` the webhooks that ``wanted`` lacks, if any.

    Applying ``wanted`` alone would leave of such a webhook what another manager set: the
    certificate authorities. Kubernetes refuses that as an incomplete webhook.
    """
    names = {hook["name"] for hook in wanted.get("webhooks") or []}
    hooks = (found or {}).get("webhooks") or []
    kept = [hook for hook in hooks if hook["name"] in names]
    if found is None or len(kept) == len(hooks):
        return None
    return {
        "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
        "webhooks": kept,
    }


def with_old_rules(wanted: Object, found: Object | None) -> Object:
    """Return the role ``wanted`` with what ``found`` allows besides, itself if that is nothing."""
    old = [rule for rule in (found or {}).get("rules") or [] if rule not in wanted["rules"]]
    return {**wanted, "rules": [*wanted["rules"], *old]} if old else wanted


def is_opened(namespace: Object) -> bool:
    """Whether the controller manager needs its binding in ``namespace``: a tenant's, or a twin.

    In a twin that is being deleted it makes nothing; in a tenant's it still reads Secrets.
    """
    if objects.labels(namespace).get(keys.TENANT_NAMESPACE) == "true":
        return True
    is_twin = keys.MANAGED_BY_NAMESPACE_MAP in objects.annotations(namespace)
    return is_twin and not objects.is_terminating(namespace)


def is_prerequisite(obj: Object) -> bool:
    """Whether other objects of the manifests need it to be there before them."""
    return obj["kind"] in {"Namespace", keys.CUSTOM_RESOURCE_DEFINITION.kind}


def is_applied_by(obj: Object, manager: str) -> bool:
    """Whether ``manager`` applied ``obj``, which has to be as the server sends it."""
    fields = obj["metadata"].get("managedFields") or ()
    return any(one.get("manager") == manager and one.get("operation") == "Apply" for one in fields)


def is_established(crd: Object | None) -> bool:
    return objects.condition(crd, "Established").get("status") == "True"


def is_rolled_out(deployment: Object | None) -> bool:
    """Whether all pods are of its newest template, and available; as ``kubectl rollout status``."""
    if deployment is None:
        return False
    status, replicas = objects.status(deployment), deployment["spec"].get("replicas", 1)
    is_seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return is_seen and counts == [replicas] * 3


def image_of(deployment: Object) -> str:
    """Return the image that the controller manager runs, of which ``deployment`` is."""
    return objects.image(deployment["spec"]["template"]["spec"], keys.CONTROLLERS_CONTAINER)


def is_enforced(deployment: Object) -> bool:
    """Whether its processes keep consumers to what their slices were granted."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return not any(_NOT_ENFORCED in (container.get("args") or ()) for container in containers)


def obstacles(pods: Iterable[Object], deployments: Iterable[Object] = ()) -> list[str]:
    """Return why ``deployments`` get no pods, and containers of ``pods`` do not run; each once."""
    unmade = (text for deployment in deployments for text in _unmade(deployment))
    return list(dict.fromkeys([*unmade, *(text for pod in pods for text in _obstacles(pod))]))


def _unmade(deployment: Object) -> Iterator[str]:
    failed = objects.condition(deployment, "ReplicaFailure")
    if failed.get("status") == "True":
        name = objects.key_of(deployment).name
        yield f"deployment {name} gets no pods: {failed.get('message', 'no reason given')}"


def _obstacles(pod: Object) -> Iterator[str]:
    unscheduled = objects.condition(pod, "PodScheduled")
    if unscheduled.get("status") == "False":
        yield f"not scheduled: {unscheduled.get('message', 'no reason given')}"
    for container in objects.status(pod).get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            yield f"{waiting['reason']}: {waiting.get('message', container['name'])}"


def chart_of_liqo(deployment: Object | None) -> str:
    """Return the chart by which Liqo made ``deployment``, such as ``liqo-v1.0.1``; empty if not.

    Source: Liqo's Helm chart, whose Deployments are called as ours; Helm, "Labels and Annotations".
    """
    said = objects.labels(deployment) if deployment else {}
    chart = str(said.get("helm.sh/chart", ""))
    return chart if chart.startswith("liqo-") else ""


def is_supported(version: Object) -> bool:
    """Whether an API server of this version has all that the manifests use."""
    found = _numbers(version)
    return not found or found >= LEAST


def folders(version: Object | None = None) -> tuple[str, ...]:
    """Return the kustomizations that an API server of this version serves; all if None."""
    is_served = version is None or _numbers(version) >= _SERVES_MUTATING_POLICIES
    return ("", _MUTATING) if is_served else ("",)


def _numbers(version: Object) -> tuple[int, ...]:
    numbers = [re.match(r"\d+", str(version.get(part, ""))) for part in ("major", "minor")]
    return tuple(int(number.group()) for number in numbers if number)


# What uninstalling would tear apart ---------------------------------------------------------------


def offloaded(offloadings: Iterable[Key]) -> list[str]:
    return sorted({key.namespace for key in offloadings})


def peers(
    found: Mapping[Kind, Sequence[Object]], tenant_namespaces: Iterable[Object] = ()
) -> dict[str, list[str]]:
    """Return what is there for each peer, such as {"milan": ["1 virtualnode"]}."""
    tenants = {key_of(one).name: one for one in tenant_namespaces}
    counts: dict[str, dict[str, int]] = {}
    for kind, objs in found.items():
        for obj in objs:
            by_kind = counts.setdefault(_peer(obj, tenants), {})
            by_kind[str(kind)] = by_kind.get(str(kind), 0) + 1
    return {
        peer: [f"{number} {kind}" for kind, number in sorted(counts[peer].items())]
        for peer in sorted(counts)
    }


def _peer(obj: Object, tenants: Mapping[str, Object]) -> str:
    spec, key = objects.spec(obj), objects.key_of(obj)
    labels = {**objects.labels(tenants.get(key.namespace, obj)), **objects.labels(obj)}
    known = spec.get("clusterID") or labels.get(keys.REMOTE_CLUSTER_ID) or labels.get(keys.ORIGIN)
    return str(known or f"the one whom {key} is for")
