"""What the provider does not offer is not sent, and the author is told so once."""

from typing import Any, Final

import pytest

from apis import keys, objects, reflection
from apis.objects import Key, Object
from apis.offloading import MappedNamespace
from apis.providerpolicy import OUTWARD, AllowedReflection
from kube.cache import CachedCluster
from reflector.kinds import configuration, networking
from reflector.kinds.contract import KindReflection, ReflectionContext, RemoteObjectOptions
from reflector.namespaces import KindController, ReflectedNamespaces, Rules
from reflector.reflection import Reflection, ReflectionClients
from tests import factories
from tests.fakes import FakeCluster
from tests.kube.running import running
from tests.reflector.mapped import IDENTITY, MAP, eventually, offload, tell, world

PAIR: Final = MappedNamespace("rome", "milan", "foo", "foo-rome")
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
    home, foreign = FakeCluster(), FakeCluster()
    told: list[tuple[str, str]] = []

    def tell(_: object, type_: str, reason: str, __: str) -> None:
        told.append((type_, reason))

    def reflection(offers: AllowedReflection, before: Reflection | None = None) -> Reflection:
        ends = ReflectionClients(CachedCluster(home), CachedCluster(foreign), tell)
        made = Reflection(
            networking.SERVICE_REFLECTION, ReflectionContext(PAIR, offers=offers), ends
        )
        made.told = before.told if before else made.told
        return made

    await home.create(keys.SERVICE, factories.service("foo", type="NodePort"))
    closed = reflection(AllowedReflection())
    for _ in range(3):
        await closed.reconcile(HERE)
    assert told == [("Normal", keys.REFLECTED_IN_PART)]

    await reflection(AllowedReflection(OUTWARD), closed).reconcile(HERE)

    assert told[1:] == [("Normal", "SuccessfulReflection")]


async def test_what_a_provider_offers_is_followed_as_its_policy_changes() -> None:
    home, foreign = await world()
    await home.create(keys.SERVICE, factories.service("foo", type="NodePort"))
    await offload(home, {"foo": "foo-rome"})

    async def is_of(type_: str) -> bool:
        twin: Any = await foreign.get(keys.SERVICE, Key("foo-rome", "web"))
        return bool(twin) and twin["spec"]["type"] == type_

    async def offer(*types: str) -> None:
        status: Object = {"offered": {"serviceTypes": list(types)}}
        await home.patch_status(keys.NAMESPACE_MAP, MAP, status)

    loops = [KindController(networking.SERVICE_REFLECTION, Rules(), tell, 2)]
    async with running(ReflectedNamespaces(IDENTITY, loops, home, foreign).run()):
        await eventually(lambda: is_of("NodePort"))
        await offer()
        await eventually(lambda: is_of("ClusterIP"))
        await offer("NodePort")
        await eventually(lambda: is_of("NodePort"))
