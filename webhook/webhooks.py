"""Which webhooks there are: what the API server asks about, when, and what if nobody answers. Pure.

The configurations in ``manifests/31-webhook-configurations`` are made of it, by
``python3 -m tests.manifests.webhooks``, and ``webhook.app`` serves the handlers that it names.
Source: Kubernetes, "Dynamic Admission Control", matchConditions.
"""

from dataclasses import dataclass
from typing import Final

from apis import allowlist, keys, ownership
from apis.objects import Kind


@dataclass(frozen=True)
class Selector:
    """A condition on a label of the namespace."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class MatchCondition:
    """What a request fulfils, or the webhook is not asked."""

    name: str
    cel: str
    why: str = ""
    """A comment."""


@dataclass(frozen=True)
class Row:
    """A webhook."""

    name: str
    path: str
    kind: Kind
    operations: frozenset[str]
    handler: str
    """``module:function`` of what admits or refuses the Request that it is given.

    By the name of its parameters it is given besides: ``lookup`` (an ``admission.Lookup``), the
    ``kind`` of this row, ``label`` (what labels a namespace) and ``is_enforced`` (Quotas are).
    """
    waits: str = ""
    """``module:function`` of ``lookup`` and a namespace: whether the handler has to ask the server.

    Empty: always if it has a ``lookup``, else never.
    """
    about: str = ""
    why: str = "only our own kind is concerned, and it can be applied again."
    """Why it is needed, or not."""
    is_needed: bool = True
    """Whether a request is refused while nobody answers (``failurePolicy: Fail``)."""
    subresources: tuple[str, ...] = ("",)
    """Empty is the object itself."""
    spaces: tuple[Selector, ...] = ()
    """In which namespaces it is asked; empty for all."""
    conditions: tuple[MatchCondition, ...] = ()
    timeout_s: int = 3
    writes: bool = False
    """Whether it writes something itself, which a dry run leaves out."""

    @property
    def is_mutating(self) -> bool:
        return self.path.startswith("/mutate/")


# When the API server asks: match conditions in CEL ------------------------------------------------

IS_NOT_A_MIRROR_POD: Final = MatchCondition(
    "is-not-a-mirror-pod",
    """\
request.userInfo.username != 'system:node:' + object.spec.?nodeName.orValue('') ||
!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}))""",
    why=(
        "A static pod runs already, and refusing its mirror would only hide it. The node itself "
        "makes that: anybody may write the annotation."
    ),
)
MAY_GO_TO_VIRTUAL_NODES: Final = MatchCondition(
    "may-go-to-virtual-nodes",
    """\
has(object.spec.runtimeClassName) || object.spec.?tolerations.orValue([]).exists(one,
one.?key.orValue('') in ['', 'virtual-node.liqo.io/not-allowed'])""",
)
LOSES_WHAT_WAS_ADDED: Final = MatchCondition(
    "loses-what-was-added",
    """\
(oldObject.metadata.?annotations[?'pyliqo.io/placement'].orValue('').contains('nodeAffinity') &&
object.spec.?affinity != oldObject.spec.?affinity) ||
oldObject.spec.?tolerations.orValue([]).exists(one, one.?key.orValue('') ==
'virtual-node.liqo.io/not-allowed') &&
!object.spec.?tolerations.orValue([]).exists(one, one.?key.orValue('') ==
'virtual-node.liqo.io/not-allowed')""",
)
IS_A_NEW_TEMPLATE: Final = MatchCondition(
    "is-a-new-template",
    """\
request.operation == 'CREATE' || object.spec.template != oldObject.spec.template""",
    why="A change of anything else makes no new generation for us.",
)
TOLERATES_VIRTUAL_NODES: Final = MatchCondition(
    "tolerates-virtual-nodes",
    """\
object.spec.template.?spec.?tolerations.orValue([]).exists(one,
one.?key.orValue('') in ['', 'virtual-node.liqo.io/not-allowed'])""",
)
DOES_NOT_OPT_IN: Final = MatchCondition(
    "does-not-opt-in",
    """\
object.metadata.?labels[?'pyliqo.io/on-virtual-nodes'].orValue('') != 'true'""",
)
IS_NOT_COMPLETE: Final = MatchCondition(
    "is-not-complete",
    """\
object.metadata.?labels[?'liqo.io/creator-user'].orValue('') != request.userInfo.username ||
type(object.?spec.?pod.?automountServiceAccountToken.orValue(dyn(0))) != bool""",
    why=(
        "Virtual kubelets learn the label from the first answer and send it with the next "
        "ShadowPods. A label can equal a user name only where nothing in that would have to be "
        "escaped."
    ),
)
HAS_NO_LABEL: Final = MatchCondition(
    "has-no-label",
    """\
!has(object.metadata.labels) || !('liqo.io/remote-cluster-id' in object.metadata.labels)""",
)
IS_OF_THIS_CLUSTER: Final = MatchCondition(
    "is-of-this-cluster",
    """\
!('liqo.io' in request.userInfo.?groups.orValue([])) &&
!('liqo.io/replicated' in object.metadata.?labels.orValue({}))""",
)
SAYS_NOTHING_OF_A_VIRTUAL_NODE: Final = MatchCondition(
    "says-nothing-of-a-virtual-node",
    """\
!('liqo.io/create-virtual-node' in object.metadata.?annotations.orValue({}))""",
)
LABEL_DIFFERS: Final = MatchCondition(
    "label-differs",
    """\
!has(object.metadata.labels) || !('liqo.io/remote-cluster-id' in object.metadata.labels) ||
!has(object.spec) || !has(object.spec.clusterID) ||
object.metadata.labels['liqo.io/remote-cluster-id'] != object.spec.clusterID""",
)
IS_NOT_LOCAL: Final = MatchCondition(
    "is-not-local",
    """\
object.?spec.?podOffloadingStrategy.orValue('') != 'Local'""",
    why="The first pods of the others need no webhook.",
)
CHANGES_ITS_SPEC: Final = MatchCondition(
    "is-a-change",
    """\
request.operation == 'CREATE' || !has(object.spec) || !has(oldObject.spec) ||
object.spec != oldObject.spec""",
    why="Finalizers and labels come and go without us.",
)
CHANGES_SPEC_OR_ANNOTATIONS: Final = MatchCondition(
    "is-a-change",
    """\
request.operation == 'CREATE' || object.?spec != oldObject.?spec ||
object.metadata.?annotations != oldObject.metadata.?annotations""",
    why="Finalizers and labels come and go without us: a namespace ends while nobody answers.",
)
CHANGES_WHAT_IS_REVIEWED: Final = MatchCondition(
    "is-a-change",
    """\
request.operation == 'CREATE' || !has(object.spec) || !has(oldObject.spec) ||
object.spec != oldObject.spec ||
has(object.metadata.labels) != has(oldObject.metadata.labels) ||
(has(object.metadata.labels) && object.metadata.labels != oldObject.metadata.labels) ||
has(object.metadata.annotations) != has(oldObject.metadata.annotations) ||
(has(object.metadata.annotations) &&
object.metadata.annotations != oldObject.metadata.annotations) ||
((object.metadata.?finalizers != oldObject.metadata.?finalizers ||
object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences) &&
!request.userInfo.?groups.orValue([]).exists(one, one.startsWith('system:') &&
one != 'system:authenticated'))""",
    why="Finalizers and owners come and go without us, where a consumer does not add them.",
)
IS_NEW_OR_A_CONSUMERS_CHANGE: Final = MatchCondition(
    "is-new-or-a-consumers-change",
    """\
request.operation == 'CREATE' ||
(has(request.userInfo.groups) && 'liqo.io' in request.userInfo.groups)""",
)
CHANGES_SPEC_OR_LABELS: Final = MatchCondition(
    "is-a-change",
    """\
request.operation == 'CREATE' || !has(object.spec) || !has(oldObject.spec) ||
object.spec != oldObject.spec ||
has(object.metadata.labels) != has(oldObject.metadata.labels) ||
(has(object.metadata.labels) && object.metadata.labels != oldObject.metadata.labels)""",
    why="Finalizers come and go without us.",
)
IS_NOT_AS_IT_WAS_PLACED: Final = MatchCondition(
    "is-not-as-it-was-judged",
    """\
(has(object.spec.nodeName) && object.spec.nodeName != '') ||
has(object.spec.runtimeClassName) ||
!object.spec.?tolerations.orValue([]).exists(one,
one.?key.orValue('') == 'virtual-node.liqo.io/not-allowed' &&
one.?operator.orValue('') == 'Exists' &&
one.?effect.orValue('') == 'NoExecute' && !has(one.tolerationSeconds)) ||
object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution
.?nodeSelectorTerms
.orValue([]).size() > 16 ||
object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution
.?nodeSelectorTerms
.orValue([]).exists(term, has(term.matchFields) || !has(term.matchExpressions) ||
term.matchExpressions.size() > 16) ||
!object.metadata.?annotations[?'pyliqo.io/placement'].orValue('').endsWith(
' nodes="' +
object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution
.?nodeSelectorTerms
.orValue([]).map(term, term.matchExpressions.map(one, one.key + ' ' + one.operator +
(has(one.values) ? ' ' + one.values.join(',') : '')).join(' and ')).join(' or ') + '"')""",
    why=(
        "What pod.mutate.liqo.io has placed says which node affinity it had then, in words. If it "
        "has it still, and the toleration, nobody has undone anything. More than 16 terms, or "
        "requirements in one, are too much for an expression, and one that fails would let the "
        "pod pass unasked."
    ),
)
MAY_GO_OR_IS_BOUND: Final = MatchCondition(
    "may-go-to-virtual-nodes",
    """\
has(object.spec.runtimeClassName) || object.spec.?nodeName.orValue('') != '' ||
object.spec.?tolerations.orValue([]).exists(one,
one.?key.orValue('') in ['', 'virtual-node.liqo.io/not-allowed'])""",
)
IS_NOT_BY_THE_SCHEDULER: Final = MatchCondition(
    "is-not-by-the-scheduler",
    """\
request.userInfo.username != 'system:kube-scheduler'""",
)
IS_NOT_OF_THIS_CLUSTER: Final = MatchCondition(
    "is-not-of-this-cluster",
    """\
!request.userInfo.?groups.orValue([]).exists(one,
one.startsWith('system:') && one != 'system:authenticated')""",
    why=(
        "No certificate of a consumer has a group of Kubernetes' own, but the one of all who "
        "logged in."
    ),
)


def has_orders(kind: Kind) -> MatchCondition:
    """Return whether an object of ``kind`` gets an annotation of those in ``allowlist.OF_KIND``."""
    return MatchCondition(
        "has-annotations-that-programs-obey",
        f"""\
object.metadata.?annotations.orValue({{}}).exists(name,
!(request.operation == 'UPDATE' &&
oldObject.metadata.?annotations[?name] == optional.of(object.metadata.annotations[name])) &&
name.matches('{allowlist.OF_KIND[kind]}') &&
!name.matches('{allowlist.PLAIN}'))""",
    )


# The webhooks -------------------------------------------------------------------------------------

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
_LABELLED: Final = _where("true", "false")
_REMOTE: Final = (Selector(ownership.PEERS, "Exists"),)
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
        "webhook.handlers:mutate_pod",
        waits="webhook.handlers:misses_offloading",
        about="Pods of namespaces that are offloaded, or that their owner labelled in advance.",
        why=(
            "a pod that nobody looked at could run in a cluster where its owner does not want it."
        ),
        spaces=_OFFLOADED,
        conditions=(IS_NOT_A_MIRROR_POD,),
    ),
    Row(
        "pod-local.mutate.liqo.io",
        "/mutate/pod",
        keys.POD,
        _CREATE,
        "webhook.handlers:mutate_pod",
        waits="webhook.handlers:misses_offloading",
        about=(
            "Pods of namespaces with strategy Local, if virtual nodes would let them in: they get "
            "what keeps them here."
        ),
        is_needed=False,
        why="no virtual kubelet runs pods of such a namespace.",
        spaces=_LOCAL,
        conditions=(MAY_GO_TO_VIRTUAL_NODES,),
        timeout_s=1,
    ),
    Row(
        "pod-update.mutate.liqo.io",
        "/mutate/pod/update",
        keys.POD,
        _UPDATE,
        "webhook.handlers:mutate_pod_update",
        waits="webhook.handlers:misses_offloading",
        about=(
            "A change of a pod that leaves out the toleration or the node affinity which its "
            "author never wrote gets them back: the API server refuses changes that take them "
            "away. No other change of a pod is asked about."
        ),
        is_needed=False,
        why="without it the API server refuses the change by itself.",
        spaces=_LABELLED,
        conditions=(LOSES_WHAT_WAS_ADDED,),
    ),
    Row(
        "daemonset.mutate.liqo.io",
        "/mutate/daemonsets",
        keys.DAEMON_SET,
        _BOTH,
        "webhook.rules.pods:keep_daemons_off",
        about=(
            "DaemonSets that tolerate everything (CNI, CSI, log agents) are kept off virtual "
            "nodes, in every namespace, unless a label opts in."
        ),
        is_needed=False,
        why="a cluster's own DaemonSets never wait for us; `liqoctl info` names what was missed.",
        conditions=(IS_A_NEW_TEMPLATE, DOES_NOT_OPT_IN, TOLERATES_VIRTUAL_NODES),
        timeout_s=2,
    ),
    Row(
        "virtualnode.mutate.liqo.io",
        "/mutate/virtualnodes",
        keys.VIRTUAL_NODE,
        _CREATE,
        "webhook.rules.virtualnodes:fill",
        about="New virtual nodes take from their VkOptionsTemplate what they leave open.",
    ),
    Row(
        "shadowpod.mutate.liqo.io",
        "/mutate/shadowpods",
        keys.SHADOW_POD,
        _CREATE,
        "webhook.rules.shadowpods:complete",
        about=(
            "Who created a ShadowPod is what the API server says, and no token is mounted unasked."
        ),
        why="on the provider a quota is accounted by that name.",
        conditions=(IS_NOT_COMPLETE,),
    ),
    Row(
        "tenant.mutate.liqo.io",
        "/mutate/tenants",
        keys.TENANT,
        _BOTH,
        "webhook.rules.peering:label_tenant",
        about="Tenants are found by the label of their consumer.",
        conditions=(CHANGES_SPEC_OR_LABELS, HAS_NO_LABEL),
    ),
    Row(
        "resourceslice.mutate.liqo.io",
        "/mutate/resourceslices",
        keys.RESOURCE_SLICE,
        _CREATE,
        "webhook.rules.peering:mark_slice",
        about=(
            "A slice that somebody here asks for becomes a virtual node, unless it says that it "
            "does not."
        ),
        conditions=(IS_OF_THIS_CLUSTER, SAYS_NOTHING_OF_A_VIRTUAL_NODE),
    ),
    Row(
        "fc.mutate.liqo.io",
        "/mutate/foreign-cluster",
        keys.FOREIGN_CLUSTER,
        _BOTH,
        "webhook.rules.peering:label_foreign_cluster",
        about="ForeignClusters are found by a label, which always says what the spec says.",
        conditions=(CHANGES_SPEC_OR_LABELS, LABEL_DIFFERS),
    ),
    *(
        Row(
            f"{kind.kind.lower()}.mutate.liqo.io",
            path,
            kind,
            _BOTH,
            "webhook.rules.shadowpods:strip_annotations",
            waits="webhook.rules.shadowpods:misses_namespace",
            about=(
                f"Of {kind.plural} that a consumer writes, also one that runs Liqo, annotations "
                "are taken off that programs of this cluster obey."
            ),
            is_needed=False,
            why="policy liqo-consumers refuses then what would have been taken off.",
            spaces=_REMOTE,
            conditions=(IS_NOT_OF_THIS_CLUSTER, has_orders(kind)),
        )
        for path, kind in ORDERED.items()
    ),
    Row(
        "nsoff.validate.liqo.io",
        "/validate/namespace-offloading",
        keys.NAMESPACE_OFFLOADING,
        _BOTH,
        "webhook.handlers:validate_namespace_offloading",
        conditions=(CHANGES_SPEC_OR_ANNOTATIONS,),
        timeout_s=5,
    ),
    Row(
        "nsoff.label.liqo.io",
        keys.LABELLING_PATH,
        keys.NAMESPACE_OFFLOADING,
        _CREATE,
        "webhook.handlers:label_namespace",
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
        conditions=(IS_NOT_LOCAL,),
        writes=True,
    ),
    Row(
        "virtualnode.validate.liqo.io",
        "/validate/virtualnodes",
        keys.VIRTUAL_NODE,
        _BOTH,
        "webhook.rules.virtualnodes:check",
        about=(
            "What runs for a virtual node is an administrator's choice, and its name is a node's."
        ),
        conditions=(CHANGES_ITS_SPEC,),
        timeout_s=5,
    ),
    Row(
        "shadowpod.validate.liqo.io",
        "/validate/shadowpods",
        keys.SHADOW_POD,
        _BOTH,
        "webhook.rules.shadowpods:check",
        waits="webhook.rules.shadowpods:misses_namespace",
        about="What consumers may run here. Deletions are never judged.",
        why="this is where the provider says no to what a consumer must not run.",
        conditions=(CHANGES_WHAT_IS_REVIEWED,),
        timeout_s=5,
    ),
    Row(
        "resourceslice.validate.liqo.io",
        "/validate/resourceslices",
        keys.RESOURCE_SLICE,
        _BOTH,
        "webhook.rules.peering:check_slice",
        about="Slices become nodes of their name; consumers do not uncordon themselves.",
        conditions=(IS_NEW_OR_A_CONSUMERS_CHANGE,),
        timeout_s=5,
    ),
    Row(
        "tenant.validate.liqo.io",
        "/validate/tenants",
        keys.TENANT,
        _BOTH,
        "webhook.rules.peering:check_tenant",
        about="A consumer's name becomes a user and a group here.",
        conditions=(CHANGES_SPEC_OR_LABELS,),
        timeout_s=5,
    ),
    Row(
        "pod.validate.liqo.io",
        "/validate/pod",
        keys.POD,
        _CREATE,
        "webhook.handlers:validate_pod",
        waits="webhook.handlers:misses_offloading",
        about="Pods of offloaded namespaces as they will be stored, after all other webhooks.",
        is_needed=False,
        why="pod.mutate.liqo.io has judged the pod, and it never passes unasked.",
        spaces=_OFFLOADED,
        conditions=(IS_NOT_AS_IT_WAS_PLACED, IS_NOT_A_MIRROR_POD),
    ),
    Row(
        "pod-local.validate.liqo.io",
        "/validate/pod",
        keys.POD,
        _CREATE,
        "webhook.handlers:validate_pod",
        waits="webhook.handlers:misses_offloading",
        about=(
            "The same of namespaces with strategy Local, of pods that virtual nodes let in or "
            "that name their node."
        ),
        is_needed=False,
        why="no virtual kubelet runs pods of such a namespace.",
        spaces=_LOCAL,
        conditions=(MAY_GO_OR_IS_BOUND, IS_NOT_A_MIRROR_POD),
        timeout_s=1,
    ),
    Row(
        "binding.validate.liqo.io",
        "/validate/pod/binding",
        keys.POD,
        _CREATE,
        "webhook.handlers:validate_binding",
        about=(
            "Where others than the scheduler, which obeys the pod's affinity, bind pods of "
            "offloaded namespaces."
        ),
        is_needed=False,
        why="a virtual kubelet runs only what the NamespaceOffloading of the namespace allows.",
        subresources=("binding",),
        spaces=_LABELLED,
        conditions=(IS_NOT_BY_THE_SCHEDULER,),
    ),
    Row(
        "pod-connection.validate.liqo.io",
        "/validate/pod/connection",
        keys.POD,
        _CONNECT,
        "webhook.rules.shadowpods:check_connect",
        about=(
            "Into which pods of its twin namespaces a consumer reaches: somebody of the provider "
            "may have put others there."
        ),
        why=(
            "only consumers, in their twins, are judged here, and what nobody judges is not let in."
        ),
        subresources=("attach", "exec", "portforward"),
        spaces=_REMOTE,
        conditions=(IS_NOT_OF_THIS_CLUSTER,),
    ),
)
