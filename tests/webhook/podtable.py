"""Pods by what is judged of them."""

from typing import Any

import pytest
from hypothesis import strategies as st

from apis.nodeselector import Term
from apis.objects import Object
from apis.offloading import PodOffloadingStrategy as Strategy

LOCAL, REMOTE, BOTH = Strategy.LOCAL, Strategy.REMOTE, Strategy.LOCAL_AND_REMOTE


def term(*expressions: tuple[str, str, list[str]]) -> Term:
    return {
        "matchExpressions": [
            {"key": key, "operator": operator, "values": values}
            for key, operator, values in expressions
        ]
    }


VN_EXPRESSION = ("liqo.io/type", "In", ["virtual-node"])
NOT_VN_EXPRESSION = ("liqo.io/type", "NotIn", ["virtual-node"])
A_EXPRESSION = ("disk", "In", ["ssd"])
B_EXPRESSION = ("zone", "In", ["a", "b"])
S1_EXPRESSION = ("region", "In", ["eu"])
S2_EXPRESSION = ("region", "In", ["us"])


VN, NOT_VN, A, B, S1, S2 = (
    term(VN_EXPRESSION),
    term(NOT_VN_EXPRESSION),
    term(A_EXPRESSION),
    term(B_EXPRESSION),
    term(S1_EXPRESSION),
    term(S2_EXPRESSION),
)


EMPTY: Term = {}
PINNED: Term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}


def join(*terms: Term) -> Term:
    return {"matchExpressions": [item for one in terms for item in one["matchExpressions"]]}


def pod(*terms: Term, tolerations: list[Object] | None = None, **spec: Any) -> Object:
    made: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "web-", "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "main", "image": "nginx", "fromTheFuture": {"b": 1, "a": [2]}}],
            **spec,
        },
        "fromTheFuture": {"z": None},
    }
    if tolerations is not None:
        made["spec"]["tolerations"] = tolerations
    if terms:
        affinity = made["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": list(terms)
        }
    return made


TABLE = [
    pytest.param(BOTH, (), (), (), id="LocalAndRemote"),
    pytest.param(BOTH, (), (A,), (A,), id="LocalAndRemote, own term"),
    pytest.param(BOTH, (S1, S2), (), (S1, S2, NOT_VN), id="LocalAndRemote, selector"),
    pytest.param(
        BOTH,
        (S1,),
        (A, B),
        (join(A, S1), join(A, NOT_VN), join(B, S1), join(B, NOT_VN)),
        id="LocalAndRemote, selector, own terms",
    ),
    pytest.param(REMOTE, (), (), (VN,), id="Remote"),
    pytest.param(
        REMOTE, (S1, S2), (A,), (join(A, S1, VN), join(A, S2, VN)), id="Remote, selector, own term"
    ),
    pytest.param(REMOTE, (), (A, EMPTY), (join(A, VN), EMPTY), id="Remote, own empty term"),
    pytest.param(REMOTE, (EMPTY,), (), (EMPTY,), id="Remote, empty selector term"),
    pytest.param(REMOTE, (EMPTY,), (A,), (EMPTY,), id="Remote, empty selector term, own term"),
    pytest.param(
        REMOTE, (), (PINNED,), ({**PINNED, **VN},), id="Remote, own term with matchFields"
    ),
    pytest.param(
        REMOTE, (S1,), (A, B), (join(A, S1, VN), join(B, S1, VN)), id="Remote, worked example"
    ),
]


OURS = {"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists", "effect": "NoExecute"}


EXPRESSIONS = st.sampled_from(
    [VN_EXPRESSION, NOT_VN_EXPRESSION, A_EXPRESSION, B_EXPRESSION, S1_EXPRESSION, S2_EXPRESSION]
)


TERMS = st.lists(EXPRESSIONS, max_size=3).map(lambda items: term(*items)) | st.just(PINNED)
TOLERATIONS = st.none() | st.lists(
    st.sampled_from([OURS, {"operator": "Exists"}, {**OURS, "tolerationSeconds": 5}]), max_size=3
)


PODS = st.builds(
    lambda terms, tolerations, spec: pod(*terms, tolerations=tolerations, **spec),
    st.lists(TERMS, max_size=3),
    TOLERATIONS,
    st.sampled_from([{}, {"runtimeClassName": "liqo"}, {"nodeName": "n"}, {"fromTheFuture": [1]}]),
)
