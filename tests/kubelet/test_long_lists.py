"""What is done for a pod grows with its lists, and never with their product (docs/parity.md H22).

Work is counted, not timed: calls of functions, lines, and comparisons of what the lists have.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import pytest

from apis import keys, objects, podfields
from apis.objects import Object
from apis.offloading import OffloadingPatch
from apis.providerpolicy import ProviderPolicy
from kube.untrusted import decode
from kubelet.api import usage
from kubelet.pods import apiserver, decide, shadowpod, significance, status
from kubelet.pods.apiserver import ApiServer
from kubelet.pods.decide import PodSnapshot
from kubelet.pods.sanitize import LocalContext
from kubelet.pods.shadowpod import Options
from tests import factories
from tests.conftest import size_of
from tests.kubelet import worlds
from tests.kubelet.worlds import NODE, NOW, PAIR

SIZE: Final = size_of("PYLIQO_TEST_LISTS", 400, 20_000)
"""Entries of each list of the large pod."""
TIMES: Final = 8
"""How much smaller the lists of the small pod are."""
SLACK: Final = 1.1
HOME: Final = LocalContext("10.0.0.9", NOW)
OPTIONS: Final = Options(
    NODE,
    OffloadingPatch(),
    ApiServer(is_supported=True, host="api"),
    twins={"shop": "twin"},
    granted=({"operator": "Exists"},),
)


class Count:
    """How much was done."""

    done = 0


class Text(str):
    """A text that counts how often it is compared or hashed."""

    __slots__ = ()

    def __hash__(self) -> int:
        Count.done += 1
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        Count.done += 1
        return str.__eq__(self, other)


class Thing(dict[str, Any]):
    """An object that counts how often it is compared."""

    def __eq__(self, other: object) -> bool:
        Count.done += 1
        return dict.__eq__(self, other)

    __hash__ = None  # as a dict

    def __deepcopy__(self, memo: object) -> "Thing":
        made: Thing = counting_value(self)
        return made


def counting_value(value: Any) -> Any:
    """Return ``value`` of what counts."""
    if isinstance(value, dict):
        return Thing({name: counting_value(one) for name, one in value.items()})
    if isinstance(value, list):
        return [counting_value(one) for one in value]
    return Text(value) if isinstance(value, str) else value


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def text_of(value: Any) -> Text:
    return Text(value)


def each(count: int, one: Callable[[int], Object]) -> list[Object]:
    return [one(number) for number in range(count)]


def a_container(number: int) -> Object:
    return {"name": f"c{number}", "image": "nginx", "resources": {"requests": {"cpu": "1m"}}}


def a_volume(number: int) -> Object:
    token = {"serviceAccountToken": {"path": f"t{number}"}}
    return {"name": f"v{number}", "projected": {"sources": [token]}}


def a_term(number: int) -> Object:
    selector = {"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]}
    return {"topologyKey": "zone", "labelSelector": selector, "namespaces": [f"n{number}"]}


def long_spec(count: int) -> Object:
    """Return a PodSpec of which every list has ``count`` entries."""
    lists: Object = {
        "env": each(count, lambda n: {"name": f"E{n}", "value": "x"}),
        "envFrom": each(count, lambda n: {"configMapRef": {"name": f"m{n}"}}),
        "ports": each(count, lambda n: {"containerPort": n, "hostPort": n, "name": f"p{n}"}),
        "volumeMounts": each(count, lambda n: {"name": f"v{n}", "mountPath": f"/{n}"}),
        "args": [f"a{n}" for n in range(count)],
        "restartPolicyRules": each(
            count, lambda n: {"exitCodes": {"operator": "In", "values": [n]}}
        ),
    }
    sources = each(count, lambda n: {"serviceAccountToken": {"path": f"s{n}"}})
    required = each(count, a_term)
    preferred = each(count, lambda n: {"weight": 1, "podAffinityTerm": a_term(n)})
    anti = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    return {
        "containers": [{**a_container(0), **lists}, *each(count, lambda n: a_container(n + 1))],
        "initContainers": each(count, lambda n: {**a_container(n), "name": f"i{n}"}),
        "ephemeralContainers": each(count, lambda n: {**a_container(n), "name": f"e{n}"}),
        "volumes": [*each(count, a_volume), {"name": "all", "projected": {"sources": sources}}],
        "tolerations": each(count, lambda n: {"key": f"k{n}", "operator": "Exists"}),
        "readinessGates": each(count, lambda n: {"conditionType": f"example.org/g{n}"}),
        "imagePullSecrets": each(count, lambda n: {"name": f"s{n}"}),
        "hostAliases": each(count, lambda n: {"ip": "10.0.0.1", "hostnames": [f"h{n}"]}),
        "topologySpreadConstraints": each(
            count, lambda n: {**a_term(n), "matchLabelKeys": [f"k{n}"], "maxSkew": 1}
        ),
        "dnsConfig": {"searches": [f"shop.svc.{n}" for n in range(count)]},
        "affinity": {"podAntiAffinity": anti},
        "nodeName": NODE,
        "hostNetwork": True,
    }


def reported_bytes(count: int) -> Object:
    """Return a status of which every list has ``count`` entries."""
    state = {"running": {"startedAt": "2026-01-31T11:59:02Z"}}

    def of(prefix: str) -> list[Object]:
        mounts = each(count, lambda n: {"name": f"v{n}", "mountPath": f"/{n}"})
        listed = each(
            count, lambda n: {**worlds.container(state), "name": f"{prefix}{n}", "restartCount": 1}
        )
        return [{**listed[0], "volumeMounts": mounts}, *listed[1:]]

    others = each(count, lambda n: worlds.pod_condition(f"example.org/g{n}"))
    return {
        **worlds.running(),
        "conditions": [worlds.pod_condition("Ready"), *others],
        "containerStatuses": of("c"),
        "initContainerStatuses": of("i"),
        "ephemeralContainerStatuses": of("e"),
    }


class Sides:
    """A pod of ``count`` entries in each of its lists, on both sides."""

    def __init__(self, count: int) -> None:
        marks = {f"example.org/m{n}": "x" for n in range(count)}
        metadata: Object = {
            "labels": {**marks, keys.SHADOW_POD_LABEL: "true"},
            "annotations": {**marks, keys.ANTI_AFFINITY_PRESET: "propagate"},
            "generation": 2,
        }
        local = factories.pod("shop", "web", spec=long_spec(count), metadata=metadata)
        shadow = shadowpod.shadow(local, PAIR, OPTIONS)
        shadow["spec"]["pod"]["tolerations"] = shadow["spec"]["pod"]["tolerations"][::-1]
        remote = {"metadata": {**shadow["metadata"]}, "status": reported_bytes(count)}
        self.local = counting_value({**local, "status": reported_bytes(count)})
        self.shadow, self.remote = counting_value(shadow), counting_value(remote)
        self.hidden = OffloadingPatch(
            labels_not_reflected=tuple(map(text_of, marks)),
            annotations_not_reflected=tuple(map(text_of, marks)),
        )


def looks_at(sides: Sides) -> None:
    observed = PodSnapshot(sides.local, sides.shadow, sides.remote, PAIR, NODE)
    decide.decide(observed)
    decide.remote_refusal(sides.shadow)
    status.note(sides.local, sides.remote)
    decide.forbids(sides.local, None, None)


def mutates(sides: Sides) -> None:
    made = counting_value({"volumes": sides.local["spec"]["volumes"], "containers": []})
    apiserver.mutate(made, sides.local, PAIR, OPTIONS.api_server)


def compares(sides: Sides) -> None:
    wanted = status.mirrored(sides.local, sides.remote, HOME)
    significance.is_significant(sides.local["status"], wanted)
    significance.troubles(wanted)
    significance.patch(sides.local["status"], wanted)


def hides(sides: Sides) -> None:
    shadowpod.metadata(sides.local, PAIR, Options(NODE, sides.hidden))


WORK: Final[dict[str, Callable[[Sides], object]]] = {
    "changes": lambda one: shadowpod.changes(one.shadow, one.local, PAIR, OPTIONS),
    "spec": lambda one: shadowpod.spec(one.local, PAIR, OPTIONS),
    "refusal": lambda one: shadowpod.refusal(one.local, OPTIONS),
    "fields": lambda one: podfields.refusal(one.local["spec"]),
    "unknown fields": lambda one: podfields.unknown(one.local["spec"]),
    "metadata": hides,
    "unsent": lambda one: shadowpod.unsent(one.local, OPTIONS),
    "untaken": lambda one: shadowpod.untaken(one.local, OPTIONS),
    "judge": lambda one: [
        *podfields.complaints(
            {"tolerations": one.local["spec"]["tolerations"]},
            ProviderPolicy().keeping(one.local["spec"]["tolerations"]),
        )
    ],
    "anti-affinity": lambda one: shadowpod.preset(one.local, OPTIONS.twins or {}),
    "terms that stay": lambda one: [*shadowpod.unsent_affinity(one.local, OPTIONS.twins or {})],
    "tokens": lambda one: apiserver.tokens(one.local, OPTIONS.api_server),
    "token volumes": mutates,
    "decide": looks_at,
    "shape": lambda one: decode.fitted(keys.POD, plain(one.remote)),
    "shape of a lie": lambda one: decode.fitted(keys.POD, plain({**one.remote, "metadata": 5})),
    "status": compares,
    "refused": lambda one: status.refused(one.local, "no", HOME),
    "aborted": lambda one: status.aborted(one.local, NOW),
    "out of reach": lambda one: status.out_of_reach(one.local, NOW),
    "usage": lambda one: usage.Measured.of(one.local),
}


@contextmanager
def counting() -> Iterator[None]:
    """Count calls and lines too, while inside."""

    def line(_frame: FrameType, _event: str, _arg: object) -> Any:
        Count.done += 1
        return line

    def call(_frame: FrameType, _event: str, _arg: object) -> None:
        Count.done += 1

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(line)
    sys.setprofile(call)
    try:
        yield
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])


def work(of: Callable[[Sides], object], sides: Sides) -> int:
    of(sides)  # what it caches is there
    Count.done = 0
    with counting():
        of(sides)
    return Count.done


@pytest.fixture(scope="module")
def sizes() -> tuple[Sides, Sides]:
    return Sides(SIZE // TIMES), Sides(SIZE)


@pytest.mark.parametrize("what", WORK)
def test_work_grows_with_the_lists_of_a_pod(what: str, sizes: tuple[Sides, Sides]) -> None:
    small, large = (work(WORK[what], sides) for sides in sizes)
    assert large <= TIMES * SLACK * small


def test_the_count_sees_a_comparison_of_all_with_all(sizes: tuple[Sides, Sides]) -> None:
    def compares_all(sides: Sides) -> None:
        listed = sides.local["spec"]["tolerations"]
        for one in listed:
            assert objects.canonical(one)
            assert one in listed

    small, large = (work(compares_all, sides) for sides in sizes)
    assert large > TIMES * SLACK * small
