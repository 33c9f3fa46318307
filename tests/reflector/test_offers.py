"""What the provider does not offer is not sent, and the author is told so once."""

from typing import Any, Final

import pytest

from apis import keys, objects, reflection
from apis.objects import Key, Kind, Object
from apis.offloading import ReflectionPolicy as Policy
from apis.providerpolicy import OUTWARD, AllowedReflection
from reflector.kinds import configuration, networking
from reflector.kinds.contract import KindReflection, Placed, ReflectionContext, RemoteObjectOptions
from reflector.namespaces import KindController, ReflectedNamespaces, Rules
from reflector.reflection import Reflection
from tests import factories
from tests.kube.running import running, until_so
from tests.reflector.looks import Seen, listed_node, placed_in_cache
from tests.reflector.mapped import IDENTITY, MAP, both_fakes, tell
from tests.reflector.pairs import PAIR, World, original
from tests.world import offload

HERE: Final = Key("foo", "web")
BALANCED: Final = RemoteObjectOptions(enable_load_balancer=True, load_balancer_class="a.io/b")
ONE_CLASS: Final = AllowedReflection(OUTWARD, frozenset({"a.io/b"}))
OPENED: Final = AllowedReflection(annotation_domains=frozenset({"cert-manager.io"}))
PROMETHEUS: Final = frozenset({"prometheus.io"})
NETWORK_POLICY: Final = configuration.custom_resource(reflection.custom(keys.NETWORK_POLICY))
NO_CLASS: Final = AllowedReflection(OUTWARD, frozenset())


@pytest.mark.parametrize(
    ("type_", "offers", "settings", "expected"),
    [
        ("NodePort", None, RemoteObjectOptions(), ""),
        (
            "NodePort",
            AllowedReflection(),
            RemoteObjectOptions(),
            "type NodePort (spec.serviceTypes of its",
        ),
        ("NodePort", AllowedReflection(frozenset({"NodePort"})), RemoteObjectOptions(), ""),
        (
            "LoadBalancer",
            AllowedReflection(frozenset({"NodePort"})),
            RemoteObjectOptions(),
            "type LoadBalancer",
        ),
        ("LoadBalancer", AllowedReflection(OUTWARD), RemoteObjectOptions(), ""),
        ("LoadBalancer", ONE_CLASS, BALANCED, ""),
        ("LoadBalancer", ONE_CLASS, RemoteObjectOptions(), "without a class, only of class a.io/b"),
        ("LoadBalancer", NO_CLASS, BALANCED, "of class a.io/b, only of class none"),
        ("ClusterIP", AllowedReflection(), RemoteObjectOptions(), ""),
        ("ExternalName", AllowedReflection(), RemoteObjectOptions(), ""),
    ],
)
def test_a_type_that_is_not_offered_is_told_and_sent_as_another(
    type_: str, offers: AllowedReflection | None, settings: RemoteObjectOptions, expected: str
) -> None:
    original = factories.service("foo", type=type_, externalTrafficPolicy="Local")
    original["spec"]["ports"][0]["nodePort"] = 30443
    context = ReflectionContext(PAIR, settings=settings, offers=offers)

    twin, told = (
        networking.remote_service(original, context),
        networking.service_lacks(original, context),
    )

    if not expected:
        assert (twin["spec"]["type"], told) == (type_, "")
        return
    assert expected in told
    ports = [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 0}]
    assert twin["spec"] == {"type": "ClusterIP", "selector": {"app": "web"}, "ports": ports}


def network_policy(namespace: str, name: str) -> Object:
    return objects.named(keys.NETWORK_POLICY, Key(namespace, name), spec={"podSelector": {}})


NOTES: Final = {
    "prometheus.io/scrape": "true",
    "cert-manager.io/cluster-issuer": "a",
    "nginx.ingress.kubernetes.io/proxy-body-size": "8m",
    "nginx.ingress.kubernetes.io/server-snippet": "a",
    "kubernetes.io/ingress.class": "nginx",
}


@pytest.mark.parametrize(
    ("forge", "original", "offers", "left_out"),
    [
        (networking.SERVICE_REFLECTION, factories.service, AllowedReflection(), [0, 1, 2, 3]),
        (
            networking.SERVICE_REFLECTION,
            factories.service,
            AllowedReflection(annotation_domains=PROMETHEUS),
            [1, 2, 3],
        ),
        (
            configuration.CONFIG_MAP_REFLECTION,
            factories.config_map,
            AllowedReflection(),
            [0, 1, 2, 3],
        ),
        (
            configuration.SECRET_REFLECTION,
            factories.secret,
            AllowedReflection(annotation_domains=PROMETHEUS),
            [1, 2, 3],
        ),
        (NETWORK_POLICY, network_policy, AllowedReflection(), [0, 1, 2, 3]),
        (NETWORK_POLICY, network_policy, None, []),
        (networking.INGRESS_REFLECTION, factories.ingress, AllowedReflection(), [0, 1, 3]),
        (networking.INGRESS_REFLECTION, factories.ingress, OPENED, [0, 3]),
        (networking.INGRESS_REFLECTION, factories.ingress, None, []),
    ],
)
def test_annotations_that_are_orders_are_told_and_not_sent(
    forge: KindReflection, original: Any, offers: AllowedReflection | None, left_out: list[int]
) -> None:
    made = original("foo", "web")
    made["metadata"]["annotations"] = {**NOTES, "checksum/config": "1", "note": "x"}
    context, names = ReflectionContext(PAIR, offers=offers), [*NOTES]
    gone = {names[one] for one in left_out}

    twin, told = forge.twin(made, context), forge.lacks(made, context)

    kept = {
        *names[:4],
        *([names[4]] if offers is None and forge is not networking.INGRESS_REFLECTION else []),
    }
    assert objects.annotations(twin).keys() == (kept | {"checksum/config", "note"}) - gone
    assert all(name in told for name in gone)
    assert bool(told) is bool(gone)


async def test_it_is_told_once_and_that_it_is_over() -> None:
    world = World()

    def reflection(offers: AllowedReflection, before: Reflection | None = None) -> Reflection:
        context = ReflectionContext(PAIR, offers=offers)
        made = world.reflected(networking.SERVICE_REFLECTION, context)
        made.reporter = before.reporter if before else made.reporter
        return made

    await world.home.create(keys.SERVICE, factories.service("foo", type="NodePort"))
    closed = reflection(AllowedReflection())
    for _ in range(3):
        await closed.reconcile(HERE)
    assert world.reasons() == [("Normal", keys.REFLECTED_IN_PART)]

    await reflection(AllowedReflection(OUTWARD), closed).reconcile(HERE)

    assert world.reasons()[1:] == [("Normal", "SuccessfulReflection")]


async def test_what_a_provider_offers_is_followed_as_its_policy_changes() -> None:
    home, foreign = await both_fakes()
    await home.create(keys.SERVICE, factories.service("foo", type="NodePort"))
    await offload(home, MAP, {"foo": "foo-rome"})

    async def is_of(type_: str) -> bool:
        twin: Any = await foreign.get(keys.SERVICE, Key("foo-rome", "web"))
        return bool(twin) and twin["spec"]["type"] == type_

    async def offer(*types: str) -> None:
        status: Object = {"offered": {"serviceTypes": list(types)}}
        await home.patch_status(keys.NAMESPACE_MAP, MAP, status)

    loops = [KindController(networking.SERVICE_REFLECTION, Rules(), tell, 2)]
    async with running(ReflectedNamespaces(IDENTITY, loops, home, foreign).run()):
        await until_so(lambda: is_of("NodePort"))
        await offer()
        await until_so(lambda: is_of("ClusterIP"))
        await offer("NodePort")
        await until_so(lambda: is_of("NodePort"))


# Under the policy Referenced only what offloaded pods mention leaves.


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
    return placed_in_cache({"metadata": metadata, "spec": {**spec, "nodeName": where}})


def context(*pods: Placed) -> ReflectionContext:
    nodes = [listed_node("milan", "milan"), listed_node("turin", "turin"), listed_node("rome-1")]
    return ReflectionContext(PAIR, Policy.REFERENCED, lister=Seen(nodes=nodes, pods=pods))


@pytest.mark.parametrize(("kind", "spec"), WAYS.values(), ids=WAYS)
def test_what_an_offloaded_pod_mentions_leaves(kind: Kind, spec: Object) -> None:
    forge = FORGES[kind]

    assert forge.reason_to_stay(original(kind, Key("foo", "it")), context(pod(spec))) is None
    for elsewhere in ("turin", "rome-1", "unknown", ""):
        assert forge.reason_to_stay(original(kind, Key("foo", "it")), context(pod(spec, elsewhere)))
    assert forge.reason_to_stay(original(kind, Key("foo", "it")), context())


def test_what_is_protected_stays_although_it_is_mentioned() -> None:
    token = original(keys.SECRET, Key("foo", "it"), type="kubernetes.io/service-account-token")
    mentions = pod({"volumes": [{"secret": {"secretName": "it"}}]})

    assert configuration.SECRET_REFLECTION.reason_to_stay(token, context(mentions))


def test_it_is_looked_at_when_a_pod_comes_or_goes() -> None:
    (by_pod, by_node) = (each.touched for each in configuration.SECRET_REFLECTION.inputs)
    mentions = pod({"volumes": [{"secret": {"secretName": "it"}}]})
    here = context(mentions)

    assert list(by_pod(None, mentions, here)) == [Key("foo", "it")]
    assert list(by_pod(mentions, None, here)) == [Key("foo", "it")]
    assert list(by_pod(mentions, mentions, here)) == []
    assert list(by_node(None, listed_node("milan", "milan"), here)) == [Key("foo", "it")]


def test_pods_with_fields_nobody_knows_are_read() -> None:
    odd = pod({"volumes": [{"name": "a", "emptyDir": {}}], "containers": [{"name": "b"}]})

    assert odd.mentions == frozenset()
