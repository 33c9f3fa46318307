"""Under the policy Referenced only what offloaded pods mention leaves."""

from typing import Any

import pytest

from apis import keys
from apis.objects import Key, Kind, Object
from apis.offloading import MappedNamespace
from apis.offloading import ReflectionPolicy as Policy
from reflector.kinds import configuration
from reflector.kinds.contract import Placed, ReflectionContext
from tests import factories
from tests.reflector.looks import Seen, node, placed

PAIR = MappedNamespace("rome", "milan", "foo", "foo-rome")
WAYS: dict[str, tuple[Kind, Object]] = {
    "volume of a config map": (keys.CONFIG_MAP, {"volumes": [{"configMap": {"name": "it"}}]}),
    "volume of a secret": (keys.SECRET, {"volumes": [{"secret": {"secretName": "it"}}]}),
    "projected config map": (
        keys.CONFIG_MAP,
        {"volumes": [{"projected": {"sources": [{"configMap": {"name": "it"}}]}}]},
    ),
    "projected secret": (
        keys.SECRET,
        {"volumes": [{"projected": {"sources": [{"secret": {"name": "it"}}]}}]},
    ),
    "variable from a config map": (
        keys.CONFIG_MAP,
        {"containers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "it"}}}]}]},
    ),
    "variable from a secret": (
        keys.SECRET,
        {"initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "it"}}}]}]},
    ),
    "all of a config map": (
        keys.CONFIG_MAP,
        {"containers": [{"envFrom": [{"configMapRef": {"name": "it"}}]}]},
    ),
    "all of a secret": (
        keys.SECRET,
        {"containers": [{"envFrom": [{"secretRef": {"name": "it"}}]}]},
    ),
    "to pull images": (keys.SECRET, {"imagePullSecrets": [{"name": "it"}]}),
}
FORGES = {
    keys.CONFIG_MAP: configuration.CONFIG_MAP_REFLECTION,
    keys.SECRET: configuration.SECRET_REFLECTION,
}


def pod(spec: Object, where: str = "milan") -> Placed:
    metadata = {"name": "web", "namespace": "foo", "uid": "1"}
    return placed({"metadata": metadata, "spec": {**spec, "nodeName": where}})


def context(*pods: Placed) -> ReflectionContext:
    nodes = [node("milan", "milan"), node("turin", "turin"), node("rome-1")]
    return ReflectionContext(PAIR, Policy.REFERENCED, lister=Seen(nodes=nodes, pods=pods))


def original(kind: Kind, **rest: Any) -> Object:
    make = factories.config_map if kind == keys.CONFIG_MAP else factories.secret
    return {**make("foo", "it"), **rest}


@pytest.mark.parametrize(("kind", "spec"), WAYS.values(), ids=WAYS)
def test_what_an_offloaded_pod_mentions_leaves(kind: Kind, spec: Object) -> None:
    forge = FORGES[kind]

    assert forge.reason_to_stay(original(kind), context(pod(spec))) is None
    for elsewhere in ("turin", "rome-1", "unknown", ""):
        assert forge.reason_to_stay(original(kind), context(pod(spec, elsewhere)))
    assert forge.reason_to_stay(original(kind), context())


def test_what_is_protected_stays_although_it_is_mentioned() -> None:
    token = original(keys.SECRET, type="kubernetes.io/service-account-token")
    mentions = pod({"volumes": [{"secret": {"secretName": "it"}}]})

    assert configuration.SECRET_REFLECTION.reason_to_stay(token, context(mentions))


def test_it_is_looked_at_when_a_pod_comes_or_goes() -> None:
    (by_pod, by_node) = (each.touched for each in configuration.SECRET_REFLECTION.inputs)
    mentions = pod({"volumes": [{"secret": {"secretName": "it"}}]})
    here = context(mentions)

    assert list(by_pod(None, mentions, here)) == [Key("foo", "it")]
    assert list(by_pod(mentions, None, here)) == [Key("foo", "it")]
    assert list(by_pod(mentions, mentions, here)) == []
    assert list(by_node(None, node("milan", "milan"), here)) == [Key("foo", "it")]


def test_pods_with_fields_nobody_knows_are_read() -> None:
    odd = pod({"volumes": [{"name": "a", "emptyDir": {}}], "containers": [{"name": "b"}]})

    assert odd.mentions == frozenset()
