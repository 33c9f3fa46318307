"""The VirtualNode that flags, or a ResourceSlice, ask for. Pure.

Source: docs/parity.md § 1.3, 4.7, 7.6.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from apis import keys, naming, objects, offloading, slices
from apis.objects import Key, Object
from liqoctl.forge import manifests

_CLASSES: Final = ("storageClasses", "ingressClasses", "loadBalancerClasses")


@dataclass(frozen=True)
class VirtualNodeOptions:
    """What the flags say."""

    name: str
    namespace: str
    cluster_id: str
    create_node: bool = True
    disable_network_check: bool = False
    kubeconfig_secret: str = ""
    slice_name: str = ""
    template: Key | None = None
    hard: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By field: ``storageClasses``, ``ingressClasses``, ``loadBalancerClasses``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    runtime_class: str = ""
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels and annotations that all objects get."""
    left_out: frozenset[str] = frozenset()
    """The fields of the spec, and the resources, that no flag names, but have their defaults."""

    @property
    def whole(self) -> Collection[str]:
        """Return the fields that are a slice's where one is named: nothing of before stays."""
        return ("resourceQuota.hard",) if self.slice_name else ()


def from_flags(wanted: VirtualNodeOptions) -> Object:
    """Return the VirtualNode whose resources and classes the flags give."""
    spec = _spec(wanted, {"name": wanted.kubeconfig_secret})
    spec["resourceQuota"] = {"hard": dict(wanted.hard)}
    for name in _CLASSES:
        if wanted.classes.get(name):
            spec[name] = _classes(name, wanted.classes[name])
    return _virtual_node(wanted, spec)


def named(made: Object, wanted: VirtualNodeOptions) -> Object:
    """Return of the VirtualNode ``made`` what flags name: all that is changed of one."""
    spec = {name: value for name, value in made["spec"].items() if name not in wanted.left_out}
    del spec["labels"]
    if wanted.labels:
        spec["labels"] = dict(wanted.labels)
    if not wanted.slice_name:
        hard = made["spec"]["resourceQuota"]["hard"].items()
        spec["resourceQuota"] = {
            "hard": {name: amount for name, amount in hard if name not in wanted.left_out}
        }
    return {**made, "spec": spec}


def printed(made: Object) -> Object:
    """Return the VirtualNode ``made`` as a file has it: who applies the file has read it.

    So what the provider suggests is as good as the administrator's own.
    """
    suggested = offloading.suggested_labels(made)
    metadata = dict(made["metadata"])
    notes = {**metadata.pop("annotations", {})}
    notes.pop(keys.SUGGESTED_LABELS, None)
    spec = {**made["spec"], "labels": {**suggested, **made["spec"]["labels"]}}
    spec = {name: value for name, value in spec.items() if value != []}
    return {
        **made,
        "metadata": {**metadata, **({"annotations": notes} if notes else {})},
        "spec": spec,
    }


def from_slice(
    wanted: VirtualNodeOptions, resource_slice: Object, allowed: Collection[str] | None = None
) -> Object:
    """Return the VirtualNode whose resources and classes the provider granted.

    Nothing is granted beyond what was asked for, and the labels that the provider suggests, of
    those ``allowed``, are noted apart: ``spec.labels`` are the administrator's own. Source:
    docs/parity.md SEC-B3, H1.

    Raises:
        ValueError: nothing is granted yet.
    """
    status = objects.status(resource_slice)
    if not status.get("resources"):
        where = objects.key_of(resource_slice)
        raise ValueError(f"resourceslice {where} has no resources granted yet: wait, then retry")
    spec = _spec(wanted, {"name": f"kubeconfig-resourceslice-{wanted.slice_name}"})
    spec["resourceQuota"] = {"hard": slices.granted(resource_slice)}
    spec |= {name: status.get(name) or [] for name in _CLASSES}
    selector = {**(status.get("nodeSelector") or {}), **wanted.node_selector}
    made = _virtual_node(replace(wanted, node_selector=selector), spec)
    suggested = slices.suggested(status.get("nodeLabels") or {}, allowed)
    offered = {name: value for name, value in suggested.items() if name not in wanted.labels}
    if offered:
        note = offloading.noted_labels(offered)
        made["metadata"]["annotations"] = {**made["metadata"].get("annotations", {}), **note}
    return made


def _spec(wanted: VirtualNodeOptions, secret: Object) -> Object:
    spec: Object = {
        "clusterID": wanted.cluster_id,
        "createNode": wanted.create_node,
        "disableNetworkCheck": wanted.disable_network_check,
        "kubeconfigSecretRef": secret,
    }
    if wanted.template:
        namespace, name = wanted.template
        spec["vkOptionsTemplateRef"] = {"name": name, "namespace": namespace}
    return spec


def _virtual_node(wanted: VirtualNodeOptions, spec: Object) -> Object:
    spec["labels"] = {**wanted.labels, keys.REMOTE_CLUSTER_ID: wanted.cluster_id}
    patch: Object = {"nodeSelector": dict(wanted.node_selector)} if wanted.node_selector else {}
    if wanted.runtime_class:
        patch["runtimeClassName"] = wanted.runtime_class
    if patch:
        spec["offloadingPatch"] = patch
    labels = {**wanted.metadata.get("labels", {}), keys.REMOTE_CLUSTER_ID: wanted.cluster_id}
    where = Key(wanted.namespace, wanted.name)
    return manifests.made(keys.VIRTUAL_NODE, where, spec, {**wanted.metadata, "labels": labels})


def _classes(name: str, given: Sequence[str]) -> list[Object]:
    """Return the entries of ``given``, the first of which is the default."""
    key = f"{name.removesuffix('Classes')}ClassName"
    return [
        {key: class_, "default": True} if index == 0 else {key: class_}
        for index, class_ in enumerate(given)
    ]


def in_tenant_namespace(wanted: VirtualNodeOptions) -> VirtualNodeOptions:
    """Return ``wanted`` in the namespace that the peering's objects are in by default."""
    return replace(wanted, namespace=naming.tenant_namespace(wanted.cluster_id))


def is_ready(node: Object | None, cluster_id: str) -> bool:
    """Whether ``node`` is the virtual one for ``cluster_id``, and says that it is ready."""
    is_ready_ = objects.is_condition_true(objects.status(node).get("conditions"), "Ready")
    return is_for(node, cluster_id) and is_ready_


def is_for(node: Object | None, cluster_id: str) -> bool:
    """Whether ``node`` is virtual, and ``cluster_id`` is behind it."""
    labels = objects.labels(node) if node else {}
    wanted = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: cluster_id}
    return wanted.items() <= labels.items()
