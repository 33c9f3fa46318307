"""What a review costs has a bound that its sender does not choose. Source: docs/parity.md H8.

No clock is asked: objects count how often they are compared.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import jsonpatch
import pytest

from apis import keys, nodeselector
from apis.nodeselector import Term
from apis.objects import Object
from apis.offloading import NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.validation import DeniedError
from tests import factories
from tests.factories import node
from tests.webhook.reviews import offloading
from webhook.admission import Admitted
from webhook.rules import namespaceoffloadings, pods

AFFINITY: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class Counted(dict[str, Any]):
    """A requirement or a toleration that counts how often it is compared with another."""

    compared: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    __hash__ = None


@pytest.fixture(autouse=True)
def _from_zero() -> None:
    Counted.compared = 0


def term(count: int, name: str = "own", **rest: Any) -> Term:
    return {
        "matchExpressions": [
            Counted(key=f"{name}-{number}", operator="Exists", **rest) for number in range(count)
        ]
    }


def selector(terms: int, each: int) -> list[Term]:
    return [term(each, f"t{number}") for number in range(terms)]


def pod(*terms: Term, **spec: Any) -> Object:
    required = {"nodeAffinity": {AFFINITY: {"nodeSelectorTerms": list(terms)}}}
    return factories.pod(spec=factories.pod_spec(affinity=required, **spec))


def judged(sent: Object, terms: Sequence[Term], strategy: Strategy = Strategy.REMOTE) -> Admitted:
    space = NamespaceOffloading(strategy, tuple(terms))
    return pods.place(sent, space)


def created(terms: Sequence[Term]) -> Admitted:
    obj = offloading("shop", clusterSelector={"nodeSelectorTerms": list(terms)})
    others = namespaceoffloadings.Others({}, tuple, lambda _: True)
    return namespaceoffloadings.check_create(obj, "shop", others=others, cluster_id="rome")


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (selector(98, 250), r"nodeSelectorTerms\[0\] has 250 requirements, 100 are possible"),
        (selector(1, 101), "101 requirements"),
        (selector(99, 11), "1089 requirements and values, 1000 are possible"),
        ([{"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"] * 1000}]}], "1001"),
        ([{"matchExpressions": [{"key": "a" * 50_000, "operator": "Exists"}]}], "bytes of JSON"),
    ],
)
def test_a_selector_is_refused_by_its_size_before_it_is_read(terms: list[Term], said: str) -> None:
    with pytest.raises(DeniedError, match=said):
        created(terms)
    assert Counted.compared == 0


@pytest.mark.parametrize("terms", [selector(10, 100), selector(99, 10)])
def test_the_largest_selectors_are_admitted_and_place_pods(terms: list[Term]) -> None:
    created(terms)

    plain = {"metadata": {"name": "p"}, "spec": {"containers": []}}
    changes = judged(plain, terms).patch

    assert len(json.dumps(changes)) < pods.MAX_BYTES
    made = jsonpatch.apply_patch(plain, changes)
    assert judged(made, terms).patch == []


@pytest.mark.parametrize(
    ("own", "terms", "said"),
    [
        (term(7_000), selector(98, 10), "7000 requirements, 100 are possible"),
        (term(7_000), selector(98, 250), "spec.clusterSelector"),
        (term(20_000), selector(98, 1), "20000 requirements, 100 are possible"),
        (term(100, value="v" * 500), selector(98, 1), "more than 64 KiB"),
    ],
)
def test_a_pod_is_refused_by_its_size_before_it_is_compared(
    own: Term, terms: list[Term], said: str
) -> None:
    """The two inputs of H8, one with a selector that was stored before sizes were judged."""
    with pytest.raises(DeniedError, match=said):
        judged(pod(own), terms)
    assert Counted.compared == 0


def test_own_terms_may_be_as_large_beside_those_of_the_namespace() -> None:
    """Also when the API server asks again about what both made."""
    sent, terms = pod(*selector(5, 40)), [term(90, "region"), term(90, "zone")]

    made = jsonpatch.apply_patch(sent, json.loads(json.dumps(judged(sent, terms).patch)))

    found = made["spec"]["affinity"]["nodeAffinity"][AFFINITY]["nodeSelectorTerms"]
    assert len(found) == 10
    assert nodeselector.excess(found)
    assert pods.offload(made, NamespaceOffloading(Strategy.REMOTE, tuple(terms))) == []  # fmt: skip


def test_a_pod_of_which_nothing_is_asked_is_as_large_as_it_likes() -> None:
    found = judged(pod(term(7_000)), [], Strategy.LOCAL_AND_REMOTE)

    assert [one["path"] for one in found.patch] == ["/spec/tolerations", "/metadata/annotations"]
    assert len(json.dumps(found.patch)) < 1024
    assert Counted.compared == 0


def test_tolerations_are_kept_without_comparing_each_with_each() -> None:
    def listed(name: str) -> list[Object]:
        return [Counted(key=keys.VIRTUAL_NODE_TAINT, value=f"{name}{i}") for i in range(20_000)]

    old, new = pod(tolerations=listed("a")), pod(tolerations=listed("b"))

    found = pods.keep_tolerations(old, new)

    assert len(found.patch[0]["value"]) == 40_000
    assert Counted.compared < 100_000


@pytest.mark.parametrize("is_served", [False, True])
def test_a_pod_is_told_that_it_runs_without_a_token_where_no_node_serves_it(
    *, is_served: bool
) -> None:
    notes = {keys.API_SERVER_SUPPORTED: "true"} if is_served else {}
    virtual = [node("n1"), {"metadata": {"name": "n2", "annotations": notes}}]
    virtual[0]["metadata"]["annotations"] = notes
    sources = [{"serviceAccountToken": {"path": "id-token", "audience": "vault"}}]
    sent = pod(volumes=[{"name": "vault", "projected": {"sources": sources}}])
    space = NamespaceOffloading(Strategy.LOCAL_AND_REMOTE)

    found = pods.warned(judged(sent, []), sent, space, virtual)

    told = ["a pod on n1, n2 runs without that file" in one for one in found.warnings]
    assert told == ([] if is_served else [True])


@pytest.mark.parametrize(("tolerations", "told"), [(10, 1), (20_000, 0)])
def test_a_pod_is_told_that_it_has_nowhere_to_go_only_if_that_is_soon_known(
    tolerations: int, told: int
) -> None:
    virtual = [node(f"n{number}") for number in range(50)]
    sent = pod(tolerations=[{"key": f"k{i}", "operator": "Exists"} for i in range(tolerations)])
    space = NamespaceOffloading(Strategy.REMOTE)
    admitted = judged(sent, [])

    found = pods.warned(admitted, sent, space, virtual)

    assert sum("nowhere to go" in one for one in found.warnings) == told
