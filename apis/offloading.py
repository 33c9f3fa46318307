"""Our kinds of ``offloading.liqo.io`` as frozen dataclasses, with the CRDs' defaults filled in.

Each is read once, at the edge, by ``parse``; what its CRD would refuse raises ValueError.
Source: docs/parity.md § 1.1-1.5.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from apis import keys, naming, objects, ownership
from apis.nodeselector import Term
from apis.objects import Key, Object

DEFAULT_METRICS_ADDRESS: Final = ":8082"
DRAIN_TIMEOUT: Final = timedelta(minutes=30)
"""So long a virtual node that is deleted waits for disruption budgets."""

E = TypeVar("E", bound=Enum)


class PodOffloadingStrategy(Enum):
    """Where the pods of a namespace may run."""

    LOCAL = "Local"
    REMOTE = "Remote"
    LOCAL_AND_REMOTE = "LocalAndRemote"


class MappingStrategy(Enum):
    """How the twin of a namespace is called."""

    ENFORCE_SAME_NAME = "EnforceSameName"
    DEFAULT_NAME = "DefaultName"
    SELECTED_NAME = "SelectedName"


class MappingPhase(Enum):
    """How far the twin of a namespace is."""

    ACCEPTED = "Accepted"
    CREATION_LOOP_BACK_OFF = "CreationLoopBackOff"
    TERMINATING = "Terminating"


class ReflectionPolicy(Enum):
    """Which objects of a kind are reflected."""

    DENY_LIST = "DenyList"
    ALLOW_LIST = "AllowList"
    CUSTOM = "CustomLiqo"
    REFERENCED = "Referenced"
    RELEVANT = "Relevant"


@dataclass(frozen=True)
class NamespaceOffloading:
    """Where the pods of its namespace may run, and how the twins are called."""

    strategy: PodOffloadingStrategy = PodOffloadingStrategy.LOCAL_AND_REMOTE
    cluster_selector: tuple[Term, ...] = ()
    """Terms of which a cluster's nodes must meet one; none mean every cluster."""
    mapping_strategy: MappingStrategy = MappingStrategy.DEFAULT_NAME
    remote_namespace_name: str = ""
    generation: int = 0
    """Which version of its spec this is."""

    @classmethod
    def parse(cls, obj: Object) -> "NamespaceOffloading":
        """Return what ``obj`` says; the selector is not checked (nodeselector.check does).

        Raises:
            ValueError: an unknown strategy.
        """
        spec = objects.spec(obj)
        selector = spec.get("clusterSelector") or {}
        return cls(
            strategy=_member(spec, "podOffloadingStrategy", PodOffloadingStrategy.LOCAL_AND_REMOTE),
            cluster_selector=tuple(selector.get("nodeSelectorTerms") or ()),
            mapping_strategy=_member(
                spec, "namespaceMappingStrategy", MappingStrategy.DEFAULT_NAME
            ),
            remote_namespace_name=spec.get("remoteNamespaceName") or "",
            generation=(obj.get("metadata") or {}).get("generation") or 0,
        )

    def remote_name(self, namespace: str, cluster_id: str) -> str:
        """Return the twin of ``namespace``, ``cluster_id`` being the cluster that offloads."""
        match self.mapping_strategy:
            case MappingStrategy.ENFORCE_SAME_NAME:
                return namespace
            case MappingStrategy.SELECTED_NAME:
                return self.remote_namespace_name
            case MappingStrategy.DEFAULT_NAME:
                return naming.default_remote_namespace(namespace, cluster_id)


@dataclass(frozen=True)
class CurrentMapping:
    """The twin of a namespace as the provider reports it; ``reason`` says what is wrong.

    ``phase`` is None where the entry has none, or an unknown one: no verdict, but a twin may be.
    """

    remote_namespace: str
    phase: MappingPhase | None = None
    reason: str = ""
    message: str = ""

    @classmethod
    def parse(cls, entry: Object | None) -> "CurrentMapping":
        """Return what ``entry`` of ``status.currentMapping`` says: what misses is empty."""
        said = entry or {}
        phases = {phase.value: phase for phase in MappingPhase}
        return cls(
            remote_namespace=said.get("remoteNamespace") or "",
            phase=phases.get(said.get("phase") or ""),
            reason=said.get("reason") or "",
            message=said.get("message") or "",
        )


@dataclass(frozen=True)
class NamespaceMap:
    """Which namespaces of the consumer have which twins on the provider."""

    remote_cluster_id: str
    desired: dict[str, str] = field(default_factory=dict)
    current: dict[str, CurrentMapping] = field(default_factory=dict)
    offered: Object | None = None
    """What the provider takes in twins, as its policy says; None where it does not say."""

    @classmethod
    def parse(cls, obj: Object) -> "NamespaceMap":
        """Return what ``obj`` says; one entry that makes no sense leaves the others as they are."""
        spec, status = objects.spec(obj), objects.status(obj)
        current = status.get("currentMapping") or {}
        return cls(
            remote_cluster_id=ownership.cluster_named_by(obj),
            desired=dict(spec.get("desiredMapping") or {}),
            current={local: CurrentMapping.parse(entry) for local, entry in current.items()},
            offered=status.get("offered"),
        )


class OffloadingPatch(msgspec.Struct, frozen=True, rename="camel"):
    """What is changed in each pod that goes to one virtual node."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Object, ...] = ()
    node_affinity: Object = {}
    """As ``affinity.nodeAffinity`` of a pod; empty for none."""
    runtime_class: str = msgspec.field(default="", name="runtimeClassName")
    labels_not_reflected: tuple[str, ...] = ()
    annotations_not_reflected: tuple[str, ...] = ()

    @classmethod
    def parse(cls, patch: Object) -> "OffloadingPatch":
        return objects.read(
            {**patch, "nodeAffinity": (patch.get("affinity") or {}).get("nodeAffinity")}, cls
        )


@dataclass(frozen=True)
class OfferedClass:
    """A storage, ingress or load-balancer class of the provider."""

    name: str
    is_default: bool = False


def offered_classes(spec: Object) -> dict[str, tuple[OfferedClass, ...]]:
    """Return the classes that ``spec`` lists, by the field that does."""
    found = {
        f"{one}Classes": [
            OfferedClass(each[f"{one}ClassName"], bool(each.get("default")))
            for each in spec[f"{one}Classes"]
        ]
        for one in ("storage", "ingress", "loadBalancer")
        if spec.get(f"{one}Classes") is not None
    }
    return {name: tuple(each for each in classes if each.name) for name, classes in found.items()}


def is_scheduling_ours(namespace: Object) -> bool:
    """Whether the label by which webhooks choose namespaces was set by pyliqo."""
    return keys.SCHEDULING_ENABLED_BY in objects.annotations(namespace)


def noted_labels(suggested: Mapping[str, str]) -> dict[str, str]:
    """Return the annotation that holds the labels that a provider suggested and that were taken.

    They are kept apart from ``spec.labels``, which are the administrator's.
    """
    return {keys.SUGGESTED_LABELS: json.dumps(dict(suggested), sort_keys=True)}


def suggested_labels(virtual_node: Object) -> dict[str, str]:
    """Return the labels that its provider suggested and the controller took."""
    try:
        noted = json.loads(objects.annotations(virtual_node).get(keys.SUGGESTED_LABELS, "{}"))
    except ValueError:
        return {}
    said = noted.items() if isinstance(noted, dict) else ()
    return {name: value for name, value in said if isinstance(value, str)}


class VirtualNode(msgspec.Struct, frozen=True, rename="camel"):
    """A share of a provider, shown as a Node."""

    name: str
    namespace: str
    cluster_id: str = msgspec.field(default="", name="clusterID")
    kubeconfig_secret: str = ""
    """Name of a Secret in the same namespace; empty for none yet."""
    create_node: bool | None = None
    """None: as the VkOptionsTemplate says. So is ``disable_network_check``."""
    disable_network_check: bool | None = None
    hard: dict[str, str] = {}
    labels: dict[str, str] = {}
    """Those of its administrator, and of what the provider suggests the rest."""
    suggested: frozenset[str] = frozenset()
    """Those of them that the provider suggested."""
    annotations: dict[str, str] = {}
    taints: tuple[Object, ...] = ()
    images: tuple[Object, ...] = ()
    storage_classes: tuple[OfferedClass, ...] = ()
    ingress_classes: tuple[OfferedClass, ...] = ()
    load_balancer_classes: tuple[OfferedClass, ...] = ()
    offloading_patch: OffloadingPatch = OffloadingPatch()
    largest_pod: dict[str, str] = {}
    """The most of each resource that one node of the provider has free; empty: it does not say."""
    vk_options_template_ref: Key | None = None
    """None: the default template. Without a namespace it is in ours, where administrators write."""

    @property
    def storage_class(self) -> str:
        """Return the class that claims get there; empty where no storage is offered."""
        preferred = next((each for each in self.storage_classes if each.is_default), None)
        return next((each.name for each in (preferred, *self.storage_classes) if each), "")

    def template_in(self, system: str) -> Key:
        """Return its VkOptionsTemplate: by default that of the namespace ``system``."""
        return self.vk_options_template_ref or Key(system, keys.DEFAULT_VK_OPTIONS_TEMPLATE)

    @classmethod
    def parse(cls, obj: Object) -> "VirtualNode":
        key, spec = objects.key_of(obj), objects.spec(obj)
        given, suggested = dict(spec.get("labels") or {}), suggested_labels(obj)
        read = {
            "name": key.name,
            "namespace": key.namespace,
            "kubeconfigSecret": (spec.get("kubeconfigSecretRef") or {}).get("name"),
            "hard": _amounts((spec.get("resourceQuota") or {}).get("hard")),
            "labels": {**suggested, **given},
            "suggested": frozenset(suggested.keys() - given.keys()),
            "offloadingPatch": OffloadingPatch.parse(spec.get("offloadingPatch") or {}),
            "largestPod": _amounts(objects.status(obj).get("largestPod")),
            "vkOptionsTemplateRef": _reference(spec.get("vkOptionsTemplateRef")),
        }
        return objects.read({**spec, **read, **offered_classes(spec)}, cls)


@dataclass(frozen=True)
class ReflectorConfig:
    """How one kind is reflected; 0 workers turn it off, no policy leaves the default."""

    workers: int
    policy: ReflectionPolicy | None = None


@dataclass(frozen=True)
class CustomResource:
    """A kind that is reflected because an administrator asked for it."""

    group: str
    version: str
    kind: str
    resource: str
    """Its plural."""
    policy: ReflectionPolicy = ReflectionPolicy.DENY_LIST

    def __post_init__(self) -> None:
        if not self.group:
            raise ValueError(
                f"{self.resource} cannot be reflected as a custom resource: kinds of the core "
                "group are not, and LimitRange and ResourceQuota would change or refuse remote pods"
            )

    @classmethod
    def parse(cls, part: Object) -> "CustomResource":
        """Return what an item of ``spec.customResources`` says.

        Raises:
            ValueError: it is of the core group, or of an unknown type.
        """
        policy = _member(part, "type", ReflectionPolicy.DENY_LIST)
        group = part.get("group") or ""
        return cls(group, part["version"], part["kind"], part["resource"], policy)


class VkOptionsTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """What all virtual kubelets made from it have in common: an administrator's object."""

    container_image: str = ""
    create_node: bool = True
    disable_network_check: bool = False
    metrics_enabled: bool = False
    metrics_address: str = DEFAULT_METRICS_ADDRESS
    replicas: int = 1
    labels_not_reflected: tuple[str, ...] = ()
    annotations_not_reflected: tuple[str, ...] = ()
    reflectors: dict[str, ReflectorConfig] = {}
    """By the kind's name of the flags: ``pod``, ``configmap``, ``service``, ..."""
    custom_resources: tuple[CustomResource, ...] = ()
    resources: Object = {}
    extra_args: tuple[str, ...] = ()
    extra_labels: dict[str, str] = {}
    extra_annotations: dict[str, str] = {}
    node_extra_labels: dict[str, str] = {}
    suggestible: tuple[str, ...] | None = None
    """Labels that a provider may suggest, keys and domains; None: as ``suggested`` has it."""
    node_extra_annotations: dict[str, str] = {}
    image_pull_secrets: tuple[Object, ...] = ()
    pull_policy: str = "IfNotPresent"
    tolerations: tuple[Object, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: Object = {}
    priority_class_name: str = keys.VIRTUAL_KUBELET_PRIORITY

    @classmethod
    def parse(cls, obj: Object) -> "VkOptionsTemplate":
        """Return what ``obj`` says.

        Raises:
            ValueError: an unknown reflection type, or a custom resource of the core group.
        """
        spec = objects.spec(obj)
        read = {
            "reflectors": _reflectors(spec.get("reflectorsConfig") or {}),
            "customResources": tuple(map(CustomResource.parse, spec.get("customResources") or ())),
            "suggestible": (spec.get("nodeLabels") or {}).get("allowed"),
        }
        return objects.read({**spec, **read}, cls)


def drain_timeout(template: Object | None) -> timedelta:
    """Return how long disruption budgets are waited for, by a VkOptionsTemplate that may be gone.

    Its ``spec.drainTimeout`` is such as ``1h30m``; what its CRD would refuse is the default.
    """
    said = objects.spec(template).get("drainTimeout")
    if not isinstance(said, str) or not re.fullmatch(r"([0-9]{1,5}[hms]){1,3}", said):
        return DRAIN_TIMEOUT
    return timedelta(seconds=objects.parse_duration(said))


def _member(part: Object, name: str, default: E) -> E:
    value, members = part.get(name) or default.value, type(default)
    try:
        return members(value)
    except ValueError as error:
        possible = ", ".join(str(one.value) for one in members)
        raise ValueError(f"{name} {value!r} is not one of {possible}") from error


def _amounts(hard: Any) -> dict[str, str]:
    return {name: str(amount) for name, amount in (hard or {}).items()}


def _reference(reference: Object | None) -> Key | None:
    if not reference or not reference.get("name"):
        return None
    return Key(reference.get("namespace") or keys.LIQO_NAMESPACE, reference["name"])


def _reflectors(config: Object) -> dict[str, ReflectorConfig]:
    return {
        kind: ReflectorConfig(
            one.get("workers") or 0,
            ReflectionPolicy(one["type"]) if one.get("type") else None,
        )
        for kind, one in config.items()
    }


# A namespace and its remote namespace -------------------------------------------------------------


@dataclass(frozen=True)
class MappedNamespace:
    """``origin`` is the consumer's cluster ID, ``destination`` the provider's."""

    origin: str
    destination: str
    local_namespace: str
    remote_namespace: str

    def twin_of(self, key: Key) -> Key:
        """Return where the twin of the local object ``key`` is."""
        return Key(self.remote_namespace, key.name)

    def original_of(self, key: Key) -> Key:
        """Return where the original of the remote object ``key`` is."""
        return Key(self.local_namespace, key.name)

    def labels(self) -> dict[str, str]:
        """Return the labels that every reflected object carries."""
        return {keys.ORIGIN: self.origin, keys.DESTINATION: self.destination}

    def reflects(self, obj: Object) -> bool:
        return self.labels().items() <= objects.labels(obj).items()

    def selector(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.labels().items())


# When a peer does not come back -------------------------------------------------------------------

API_SERVER_STATUS: Final = "APIServerStatus"
API_SERVER_ESTABLISHED: Final = "Established"


def is_gone_for_good(foreign_cluster: Object | None) -> bool:
    """Whether the peer is gone for good: an administrator says so, and it does not answer.

    A ForeignCluster that is missing says nothing: deleting needs more proof than that.
    """
    if foreign_cluster is None:
        return False
    given_up = objects.annotations(foreign_cluster).get(keys.PERMANENTLY_UNREACHABLE, "")
    status = objects.status(foreign_cluster)
    answers = objects.find_condition(status.get("conditions"), API_SERVER_STATUS)
    return given_up.lower() == "true" and (answers or {}).get("status") != API_SERVER_ESTABLISHED
