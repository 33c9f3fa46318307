"""The VirtualNode that flags, or a ResourceSlice, ask for. Pure.

Source: docs/parity.md § 1.3, 4.7, 7.6.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from apis import keys, naming, objects, offloading, slices
from apis.objects import Key, Object
from liqoctl.forge import manifests

_CLASSES: Final = ("storageClasses", "ingressClasses", "loadBalancerClasses")


@dataclass(frozen=True)
class VirtualNodeOptions:
    """What the flags say, each by its name."""

    name: str
    namespace: str
    remote_cluster_id: str
    create_node: bool = True
    disable_network_check: bool = False
    kubeconfig_secret_name: str | None = None
    resource_slice_name: str | None = None
    vk_options_template: Key | None = None
    hard: Mapping[str, str] = field(default_factory=dict)
    """``cpu``, ``memory``, ``pods`` and what ``resource`` says."""
    storage_classes: Sequence[str] = ()
    ingress_classes: Sequence[str] = ()
    load_balancer_classes: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    runtime_class_name: str = ""
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels and annotations that all objects get."""
    left_out: frozenset[str] = frozenset()
    """The fields of the spec, and the resources, that no flag names, but have their defaults."""

    @property
    def where(self) -> Key:
        return Key(self.namespace or naming.tenant_namespace(self.remote_cluster_id), self.name)

    @property
    def whole(self) -> Collection[str]:
        """The fields that are a slice's where one is named: nothing of before stays."""
        return ("resourceQuota.hard",) if self.resource_slice_name else ()


def from_flags(wanted: VirtualNodeOptions) -> Object:
    """Return the VirtualNode whose resources and classes the flags give."""
    spec = _spec(wanted, wanted.kubeconfig_secret_name or "", wanted.hard)
    classes = (wanted.storage_classes, wanted.ingress_classes, wanted.load_balancer_classes)
    for name, given in zip(_CLASSES, classes, strict=True):
        if given:
            key = f"{name.removesuffix('Classes')}ClassName"
            first, *others = given
            spec[name] = [{key: first, "default": True}, *({key: other} for other in others)]
    return _virtual_node(wanted, spec, wanted.node_selector)


def named(made: Object, wanted: VirtualNodeOptions) -> Object:
    """Return of the VirtualNode ``made`` what flags name: all that is changed of one."""
    spec = {name: value for name, value in made["spec"].items() if name not in wanted.left_out}
    del spec["labels"]
    if wanted.labels:
        spec["labels"] = dict(wanted.labels)
    if not wanted.resource_slice_name:
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
    secret = f"kubeconfig-resourceslice-{wanted.resource_slice_name}"
    spec = _spec(wanted, secret, slices.granted(resource_slice))
    spec |= {name: status.get(name) or [] for name in _CLASSES}
    selector = {**(status.get("nodeSelector") or {}), **wanted.node_selector}
    made = _virtual_node(wanted, spec, selector)
    suggested = slices.suggested(status.get("nodeLabels") or {}, allowed)
    offered = {name: value for name, value in suggested.items() if name not in wanted.labels}
    if offered:
        note = offloading.noted_labels(offered)
        made["metadata"]["annotations"] = {**made["metadata"].get("annotations", {}), **note}
    return made


def _spec(wanted: VirtualNodeOptions, secret: str, hard: Mapping[str, str]) -> Object:
    spec: Object = {
        "clusterID": wanted.remote_cluster_id,
        "createNode": wanted.create_node,
        "disableNetworkCheck": wanted.disable_network_check,
        "kubeconfigSecretRef": {"name": secret},
    }
    if wanted.vk_options_template:
        namespace, name = wanted.vk_options_template
        spec["vkOptionsTemplateRef"] = {"name": name, "namespace": namespace}
    return spec | {"resourceQuota": {"hard": dict(hard)}}


def _virtual_node(
    wanted: VirtualNodeOptions, spec: Object, node_selector: Mapping[str, str]
) -> Object:
    behind = {keys.REMOTE_CLUSTER_ID: wanted.remote_cluster_id}
    patch = {"nodeSelector": {**node_selector}, "runtimeClassName": wanted.runtime_class_name}
    spec["labels"] = {**wanted.labels, **behind}
    if patch := {name: said for name, said in patch.items() if said}:
        spec["offloadingPatch"] = patch
    metadata = {**wanted.metadata, "labels": {**wanted.metadata.get("labels", {}), **behind}}
    return manifests.made(keys.VIRTUAL_NODE, wanted.where, spec, metadata)


def is_ready(node: Object | None, cluster_id: str) -> bool:
    is_ready_ = objects.condition(node, "Ready").get("status") == "True"
    return is_for(node, cluster_id) and is_ready_


def is_for(node: Object | None, cluster_id: str) -> bool:
    labels = objects.labels(node) if node else {}
    wanted = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: cluster_id}
    return wanted.items() <= labels.items()
