"""Which webhooks there are: what the API server asks about, when, and what if nobody answers. Pure.

The configurations in ``manifests/31-webhook-configurations`` are made of it, by
``python3 -m tests.manifests.webhooks``; ``webhook.app`` has the handler of each path.
Source: Kubernetes, "Dynamic Admission Control".
"""

from dataclasses import dataclass
from typing import Final

from apis import keys, ownership
from apis.objects import Kind
from webhook import when
from webhook.when import Condition


@dataclass(frozen=True)
class Selector:
    """A condition on a label of the namespace."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A webhook."""

    name: str
    path: str
    kind: Kind
    operations: frozenset[str]
    about: str = ""
    why: str = "only our own kind is concerned, and it can be applied again."
    """Why it is needed, or not."""
    is_needed: bool = True
    """Whether a request is refused while nobody answers (``failurePolicy: Fail``)."""
    subresources: tuple[str, ...] = ("",)
    """Empty is the object itself."""
    spaces: tuple[Selector, ...] = ()
    """In which namespaces it is asked; empty for all."""
    conditions: tuple[Condition, ...] = ()
    timeout_s: int = 3
    writes: bool = False
    """Whether it writes something itself, which a dry run leaves out."""

    @property
    def is_mutating(self) -> bool:
        """Return whether its answer may have a patch."""
        return self.path.startswith("/mutate/")


_CREATE: Final = frozenset({"CREATE"})
_UPDATE: Final = frozenset({"UPDATE"})
_BOTH: Final = _CREATE | _UPDATE
_CONNECT: Final = frozenset({"CONNECT"})


def _where(*values: str) -> tuple[Selector, ...]:
    """Return what selects namespaces by their label, but never what a cluster needs to start."""
    never = ("kube-system", "kube-node-lease", keys.LIQO_NAMESPACE)
    return (
        Selector(keys.SCHEDULING_ENABLED, "In", values),
        Selector("kubernetes.io/metadata.name", "NotIn", never),
    )


_OFFLOADED: Final = _where("true")
_LOCAL: Final = _where("false")
_JUDGED: Final = _where("true", "false")
_TWINS: Final = (Selector(ownership.PEERS, "Exists"),)
ORDERED: Final = {
    f"/mutate/{kind.plural}": kind
    for kind in (keys.CONFIG_MAP, keys.SECRET, keys.PERSISTENT_VOLUME_CLAIM)
}
"""The kinds of which annotations that programs of a provider obey are taken off, by path."""

WEBHOOKS: Final = (
    Row(
        "pod.mutate.liqo.io",
        "/mutate/pod",
        keys.POD,
        _CREATE,
        about="Pods of namespaces that are offloaded, or that their owner labelled in advance.",
        why=(
            "a pod that nobody looked at could run in a cluster where its owner does not want it."
        ),
        spaces=_OFFLOADED,
        conditions=(when.IS_NOT_A_MIRROR_POD,),
    ),
    Row(
        "pod-local.mutate.liqo.io",
        "/mutate/pod",
        keys.POD,
        _CREATE,
        about=(
            "Pods of namespaces with strategy Local, if virtual nodes would let them in: they get "
            "what keeps them here."
        ),
        is_needed=False,
        why="no virtual kubelet runs pods of such a namespace.",
        spaces=_LOCAL,
        conditions=(when.MAY_GO_TO_VIRTUAL_NODES,),
        timeout_s=1,
    ),
    Row(
        "pod-update.mutate.liqo.io",
        "/mutate/pod/update",
        keys.POD,
        _UPDATE,
        about=(
            "A change of a pod that leaves out the toleration or the node affinity which its "
            "author never wrote gets them back: the API server refuses changes that take them "
            "away. No other change of a pod is asked about."
        ),
        is_needed=False,
        why="without it the API server refuses the change by itself.",
        spaces=_JUDGED,
        conditions=(when.LOSES_WHAT_WAS_ADDED,),
    ),
    Row(
        "daemonset.mutate.liqo.io",
        "/mutate/daemonsets",
        keys.DAEMON_SET,
        _BOTH,
        about=(
            "DaemonSets that tolerate everything (CNI, CSI, log agents) are kept off virtual "
            "nodes, in every namespace, unless a label opts in."
        ),
        is_needed=False,
        why=("a cluster's own DaemonSets never wait for us; `liqoctl info` names what was missed."),
        conditions=(
            when.IS_A_NEW_TEMPLATE,
            when.DOES_NOT_OPT_IN,
            when.TOLERATES_VIRTUAL_NODES,
        ),
        timeout_s=2,
    ),
    Row(
        "virtualnode.mutate.liqo.io",
        "/mutate/virtualnodes",
        keys.VIRTUAL_NODE,
        _CREATE,
        about="New virtual nodes take from their VkOptionsTemplate what they leave open.",
    ),
    Row(
        "shadowpod.mutate.liqo.io",
        "/mutate/shadowpods",
        keys.SHADOW_POD,
        _CREATE,
        about=(
            "Who created a ShadowPod is what the API server says, and no token is mounted unasked."
        ),
        why="on the provider a quota is accounted by that name.",
        conditions=(when.IS_NOT_COMPLETE,),
    ),
    Row(
        "tenant.mutate.liqo.io",
        "/mutate/tenants",
        keys.TENANT,
        _BOTH,
        about="Tenants are found by the label of their consumer.",
        conditions=(when.CHANGES_SPEC_OR_LABELS, when.HAS_NO_LABEL),
    ),
    Row(
        "resourceslice.mutate.liqo.io",
        "/mutate/resourceslices",
        keys.RESOURCE_SLICE,
        _CREATE,
        about=(
            "A slice that somebody here asks for becomes a virtual node, unless it says that it "
            "does not."
        ),
        conditions=(
            when.IS_OF_THIS_CLUSTER,
            when.SAYS_NOTHING_OF_A_VIRTUAL_NODE,
        ),
    ),
    Row(
        "fc.mutate.liqo.io",
        "/mutate/foreign-cluster",
        keys.FOREIGN_CLUSTER,
        _BOTH,
        about="ForeignClusters are found by a label, which always says what the spec says.",
        conditions=(when.CHANGES_SPEC_OR_LABELS, when.LABEL_DIFFERS),
    ),
    *(
        Row(
            f"{kind.kind.lower()}.mutate.liqo.io",
            path,
            kind,
            _BOTH,
            about=(
                f"Of {kind.plural} that a consumer writes, also one that runs Liqo, annotations "
                "are taken off that programs of this cluster obey."
            ),
            is_needed=False,
            why="policy liqo-consumers refuses then what would have been taken off.",
            spaces=_TWINS,
            conditions=(when.IS_NOT_OF_THIS_CLUSTER, when.has_orders(kind)),
        )
        for path, kind in ORDERED.items()
    ),
    Row(
        "nsoff.validate.liqo.io",
        "/validate/namespace-offloading",
        keys.NAMESPACE_OFFLOADING,
        _BOTH,
        conditions=(when.CHANGES_SPEC_OR_ANNOTATIONS,),
        timeout_s=5,
    ),
    Row(
        "nsoff.label.liqo.io",
        keys.LABELLING_PATH,
        keys.NAMESPACE_OFFLOADING,
        _CREATE,
        about=(
            "The namespace of a NamespaceOffloading that is about to be stored gets its label "
            "here, so that API servers know of it when the NamespaceOffloading is stored: the next "
            "pod is judged. Only API servers may have that done: liqo-certs "
            "applies the path, beside the caBundle, with a last segment that nobody else is told."
        ),
        is_needed=False,
        why=(
            "the controllers label the namespace a moment later; and no user is told the path "
            "that failed."
        ),
        conditions=(when.IS_NOT_LOCAL,),
        writes=True,
    ),
    Row(
        "virtualnode.validate.liqo.io",
        "/validate/virtualnodes",
        keys.VIRTUAL_NODE,
        _BOTH,
        about=(
            "What runs for a virtual node is an administrator's choice, and its name is a node's."
        ),
        conditions=(when.CHANGES_ITS_SPEC,),
        timeout_s=5,
    ),
    Row(
        "shadowpod.validate.liqo.io",
        "/validate/shadowpods",
        keys.SHADOW_POD,
        _BOTH,
        about="What consumers may run here. Deletions are never judged.",
        why="this is where the provider says no to what a consumer must not run.",
        conditions=(when.CHANGES_WHAT_IS_JUDGED,),
        timeout_s=5,
    ),
    Row(
        "resourceslice.validate.liqo.io",
        "/validate/resourceslices",
        keys.RESOURCE_SLICE,
        _BOTH,
        about="Slices become nodes of their name; consumers do not uncordon themselves.",
        conditions=(when.IS_NEW_OR_A_CONSUMERS_CHANGE,),
        timeout_s=5,
    ),
    Row(
        "tenant.validate.liqo.io",
        "/validate/tenants",
        keys.TENANT,
        _BOTH,
        about="A consumer's name becomes a user and a group here.",
        conditions=(when.CHANGES_SPEC_OR_LABELS,),
        timeout_s=5,
    ),
    Row(
        "pod.validate.liqo.io",
        "/validate/pod",
        keys.POD,
        _CREATE,
        about="Pods of offloaded namespaces as they will be stored, after all other webhooks.",
        is_needed=False,
        why="pod.mutate.liqo.io has judged the pod, and it never passes unasked.",
        spaces=_OFFLOADED,
        conditions=(
            when.IS_NOT_AS_IT_WAS_JUDGED,
            when.IS_NOT_A_MIRROR_POD,
        ),
    ),
    Row(
        "pod-local.validate.liqo.io",
        "/validate/pod",
        keys.POD,
        _CREATE,
        about=(
            "The same of namespaces with strategy Local, of pods that virtual nodes let in or "
            "that name their node."
        ),
        is_needed=False,
        why="no virtual kubelet runs pods of such a namespace.",
        spaces=_LOCAL,
        conditions=(
            when.MAY_GO_OR_IS_BOUND,
            when.IS_NOT_A_MIRROR_POD,
        ),
        timeout_s=1,
    ),
    Row(
        "binding.validate.liqo.io",
        "/validate/pod/binding",
        keys.POD,
        _CREATE,
        about=(
            "Where others than the scheduler, which obeys the pod's affinity, bind pods of "
            "offloaded namespaces."
        ),
        is_needed=False,
        why="a virtual kubelet runs only what the NamespaceOffloading of the namespace allows.",
        subresources=("binding",),
        spaces=_JUDGED,
        conditions=(when.IS_NOT_BY_THE_SCHEDULER,),
    ),
    Row(
        "pod-connection.validate.liqo.io",
        "/validate/pod/connection",
        keys.POD,
        _CONNECT,
        about=(
            "Into which pods of its twin namespaces a consumer reaches: somebody of the provider "
            "may have put others there."
        ),
        why=(
            "only consumers, in their twins, are judged here, and what nobody judges is not let in."
        ),
        subresources=("attach", "exec", "portforward"),
        spaces=_TWINS,
        conditions=(when.IS_NOT_OF_THIS_CLUSTER,),
    ),
)


def of_path(path: str) -> Row:
    """Return a row of ``path``: those of one path have the same kind, operations, subresources."""
    return next(row for row in WEBHOOKS if row.path == path)
