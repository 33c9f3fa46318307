"""When the API server asks a webhook: match conditions in CEL, as the manifests have them. Pure.

Source: Kubernetes, "Dynamic Admission Control", matchConditions.
"""

from dataclasses import dataclass
from typing import Final

from apis import allowlist
from apis.objects import Kind


@dataclass(frozen=True)
class Condition:
    """What a request fulfils, or the webhook is not asked."""

    name: str
    cel: str
    why: str = ""
    """A comment."""


IS_NOT_A_MIRROR_POD: Final = Condition(
    "is-not-a-mirror-pod",
    """\
request.userInfo.username != 'system:node:' + object.spec.?nodeName.orValue('') ||
!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}))""",
    why=(
        "A static pod runs already, and refusing its mirror would only hide it. The node itself "
        "makes that: anybody may write the annotation."
    ),
)
MAY_GO_TO_VIRTUAL_NODES: Final = Condition(
    "may-go-to-virtual-nodes",
    """\
has(object.spec.runtimeClassName) || object.spec.?tolerations.orValue([]).exists(one,
one.?key.orValue('') in ['', 'virtual-node.liqo.io/not-allowed'])""",
)
LOSES_WHAT_WAS_ADDED: Final = Condition(
    "loses-what-was-added",
    """\
(oldObject.metadata.?annotations[?'pyliqo.io/placement'].orValue('').contains('nodeAffinity') &&
object.spec.?affinity != oldObject.spec.?affinity) ||
oldObject.spec.?tolerations.orValue([]).exists(one, one.?key.orValue('') ==
'virtual-node.liqo.io/not-allowed') &&
!object.spec.?tolerations.orValue([]).exists(one, one.?key.orValue('') ==
'virtual-node.liqo.io/not-allowed')""",
)
IS_A_NEW_TEMPLATE: Final = Condition(
    "is-a-new-template",
    """\
request.operation == 'CREATE' || object.spec.template != oldObject.spec.template""",
    why="A change of anything else makes no new generation for us.",
)
TOLERATES_VIRTUAL_NODES: Final = Condition(
    "tolerates-virtual-nodes",
    """\
object.spec.template.?spec.?tolerations.orValue([]).exists(one,
one.?key.orValue('') in ['', 'virtual-node.liqo.io/not-allowed'])""",
)
DOES_NOT_OPT_IN: Final = Condition(
    "does-not-opt-in",
    """\
object.metadata.?labels[?'pyliqo.io/on-virtual-nodes'].orValue('') != 'true'""",
)
IS_NOT_COMPLETE: Final = Condition(
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
HAS_NO_LABEL: Final = Condition(
    "has-no-label",
    """\
!has(object.metadata.labels) || !('liqo.io/remote-cluster-id' in object.metadata.labels)""",
)
IS_OF_THIS_CLUSTER: Final = Condition(
    "is-of-this-cluster",
    """\
!('liqo.io' in request.userInfo.?groups.orValue([])) &&
!('liqo.io/replicated' in object.metadata.?labels.orValue({}))""",
)
SAYS_NOTHING_OF_A_VIRTUAL_NODE: Final = Condition(
    "says-nothing-of-a-virtual-node",
    """\
!('liqo.io/create-virtual-node' in object.metadata.?annotations.orValue({}))""",
)
LABEL_DIFFERS: Final = Condition(
    "label-differs",
    """\
!has(object.metadata.labels) || !('liqo.io/remote-cluster-id' in object.metadata.labels) ||
!has(object.spec) || !has(object.spec.clusterID) ||
object.metadata.labels['liqo.io/remote-cluster-id'] != object.spec.clusterID""",
)
IS_NOT_LOCAL: Final = Condition(
    "is-not-local",
    """\
object.?spec.?podOffloadingStrategy.orValue('') != 'Local'""",
    why="The first pods of the others need no webhook.",
)
CHANGES_ITS_SPEC: Final = Condition(
    "is-a-change",
    """\
request.operation == 'CREATE' || !has(object.spec) || !has(oldObject.spec) ||
object.spec != oldObject.spec""",
    why="Finalizers and labels come and go without us.",
)
CHANGES_SPEC_OR_ANNOTATIONS: Final = Condition(
    "is-a-change",
    """\
request.operation == 'CREATE' || object.?spec != oldObject.?spec ||
object.metadata.?annotations != oldObject.metadata.?annotations""",
    why="Finalizers and labels come and go without us: a namespace ends while nobody answers.",
)
CHANGES_WHAT_IS_JUDGED: Final = Condition(
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
IS_NEW_OR_A_CONSUMERS_CHANGE: Final = Condition(
    "is-new-or-a-consumers-change",
    """\
request.operation == 'CREATE' ||
(has(request.userInfo.groups) && 'liqo.io' in request.userInfo.groups)""",
)
CHANGES_SPEC_OR_LABELS: Final = Condition(
    "is-a-change",
    """\
request.operation == 'CREATE' || !has(object.spec) || !has(oldObject.spec) ||
object.spec != oldObject.spec ||
has(object.metadata.labels) != has(oldObject.metadata.labels) ||
(has(object.metadata.labels) && object.metadata.labels != oldObject.metadata.labels)""",
    why="Finalizers come and go without us.",
)
IS_NOT_AS_IT_WAS_JUDGED: Final = Condition(
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
MAY_GO_OR_IS_BOUND: Final = Condition(
    "may-go-to-virtual-nodes",
    """\
has(object.spec.runtimeClassName) || object.spec.?nodeName.orValue('') != '' ||
object.spec.?tolerations.orValue([]).exists(one,
one.?key.orValue('') in ['', 'virtual-node.liqo.io/not-allowed'])""",
)
IS_NOT_BY_THE_SCHEDULER: Final = Condition(
    "is-not-by-the-scheduler",
    """\
request.userInfo.username != 'system:kube-scheduler'""",
)
IS_NOT_OF_THIS_CLUSTER: Final = Condition(
    "is-not-of-this-cluster",
    """\
!request.userInfo.?groups.orValue([]).exists(one,
one.startsWith('system:') && one != 'system:authenticated')""",
    why=(
        "No certificate of a consumer has a group of Kubernetes' own, but the one of all who "
        "logged in."
    ),
)


def has_orders(kind: Kind) -> Condition:
    """Return whether an object of ``kind`` gets an annotation of those in ``orders.OF_KIND``."""
    return Condition(
        "has-annotations-that-programs-obey",
        f"""\
object.metadata.?annotations.orValue({{}}).exists(name,
!(request.operation == 'UPDATE' &&
oldObject.metadata.?annotations[?name] == optional.of(object.metadata.annotations[name])) &&
name.matches('{allowlist.OF_KIND[kind]}') &&
!name.matches('{allowlist.PLAIN}'))""",
    )
