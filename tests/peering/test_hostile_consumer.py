"""A consumer without our controllers, who uses the kubeconfigs that milan gave it as it likes.

Source: docs/parity.md SEC-A3 to SEC-A7, SEC-A13, SEC-A15, SEC-A19; principle 1: what protects a
provider is enforced there.
"""

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import aiohttp
import pytest

from apis import allowlist, authentication, keys, naming, objects
from apis.objects import Key, Kind, Object, named
from apis.resources import Quantity, parse_quantity
from certs import identity, pki
from kube import client, errors, transport, wire
from kube.client import ClusterClient
from kube.cluster import Selection
from liqoctl.forge import peering
from tests import factories
from tests.conftest import CRD as DEFINITION
from tests.conftest import size_of
from tests.kube.running import dice, running
from tests.peering import world
from tests.peering.world import SPACE, TWIN, World
from tests.webhook.installed import installed
from tests.world import existing

pytestmark = pytest.mark.cluster

SLICE: Final = keys.RESOURCE_SLICE
MAP: Final = keys.NAMESPACE_MAP
MALFORMED: Final = size_of("PYLIQO_MALFORMED", 60, 20_000)
"""How many objects without sense are sent."""
FLOOD: Final = size_of("PYLIQO_FLOOD", 60, 100_000)
"""How many ConfigMaps and ShadowPods are sent at once."""
RACED: Final = size_of("PYLIQO_RACED_NAMESPACES", 20, 200)
"""How many namespaces two sides want at once."""


@dataclass(frozen=True)
class Hostile:
    """Rome's two identities, and milan, which they were given by."""

    both: World
    control: Path
    kubelet: Path

    @property
    def milan(self) -> Path:
        return self.both["milan"].plane.kubeconfig


@pytest.fixture(scope="module")
def hostile(both: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    """Peer, make a twin, install milan's webhook, and end what rome runs of ours."""
    both.peer("rome", "milan")
    both.make_twin(TWIN)
    kubelet = both.identity("rome", "milan", naming.resourceslice_identity("milan"))
    control = both.identity("rome", "milan")
    milan = both["milan"]
    tried = ("create", "service", "externalname", "x", "--external-name=10.0.0.1", "-n", TWIN)
    world.wait(
        lambda: "spec.externalName" in world.refusal(kubelet, *tried, "--dry-run=server"),
        "the policies to be in force",
    )
    with installed(milan.plane, tmp_path_factory.mktemp("webhook")) as webhook:
        for name in (SPACE, TWIN):
            milan.kubectl.run("label", "namespace", name, f"judged={webhook.run}")
        judged = ("create", "--dry-run=server", "-f", "-")
        asked = json.dumps(shadow(serviceAccountName="admin"))
        world.wait(
            lambda: "serviceAccountName" in world.refusal(kubelet, *judged, stdin=asked),
            "the webhook to be asked there",
        )
        both["rome"].kill()
        yield Hostile(both, control.kubeconfig, kubelet.kubeconfig)
        for name in (SPACE, TWIN):
            milan.kubectl.run("label", "namespace", name, "judged-")
    both["rome"].start()
    both.unpeer("rome", "milan")


@pytest.fixture
async def control(hostile: Hostile) -> AsyncIterator[ClusterClient]:
    async with client.connect(hostile.control, user_agent="hostile") as found:
        yield found


@pytest.fixture
async def kubelet(hostile: Hostile) -> AsyncIterator[ClusterClient]:
    async with client.connect(hostile.kubelet, user_agent="hostile") as found:
        yield found


@pytest.fixture
async def milan(hostile: Hostile) -> AsyncIterator[ClusterClient]:
    async with client.connect(hostile.milan, user_agent="tests") as found:
        yield found


async def denial(who: ClusterClient, kind: Kind, obj: Object) -> str:
    """Return why ``obj`` was not created; empty where it was."""
    try:
        await who.create(kind, obj)
    except errors.KubeError as error:
        return str(error)
    return ""


async def until_one(milan: ClusterClient, kind: Kind, key: Key, holds: Any) -> Object:
    async with asyncio.timeout(world.PATIENCE_S):
        while True:
            found = await milan.get_live(kind, key)
            if found is not None and holds(found):
                return found
            await asyncio.sleep(0.1)


async def until_gone(milan: ClusterClient, kind: Kind, key: Key) -> None:
    """Wait until the object that is being deleted is there no longer."""
    async with asyncio.timeout(world.PATIENCE_S):
        while True:
            if await milan.get_live(kind, key) is None:
                return
            await asyncio.sleep(0.1)


# One request each ---------------------------------------------------------------------------------


def shadow(
    name: str = "x", space: str = TWIN, *, metadata: Object | None = None, **spec: Any
) -> Object:
    pod = {"containers": [{"name": "app", "image": "app"}], **spec}
    labels = {"labels": {keys.ORIGIN: "rome"}}
    body = {"spec": {"pod": pod}, "metadata": {**labels, **(metadata or {})}}
    return named(keys.SHADOW_POD, Key(space, name), **body)


def amounts(name: str, **requests: str) -> Object:
    container = {"name": "app", "image": "app", "resources": {"requests": requests}}
    return shadow(name, containers=[container])


def token_volumes(**source: Any) -> list[Object]:
    projected = {"sources": [{"serviceAccountToken": {"path": "token", **source}}]}
    return [{"name": "token", "projected": projected}]


REFUSED: Final[dict[str, tuple[Kind, Object, str]]] = {
    # A3: accounts of the provider
    "an account": (keys.SHADOW_POD, shadow(serviceAccountName="admin"), "serviceAccountName"),
    "its old name": (keys.SHADOW_POD, shadow(serviceAccount="admin"), "serviceAccount"),
    "a token": (keys.SHADOW_POD, shadow(volumes=token_volumes()), "a token goes with"),
    "another audience": (
        keys.SHADOW_POD,
        shadow(automountServiceAccountToken=True, volumes=token_volumes(audience="vault")),
        "another audience",
    ),
    "an account of no text": (keys.SHADOW_POD, shadow(serviceAccountName=7), "serviceAccountName"),
    "a mount that is none": (
        keys.SHADOW_POD,
        shadow(automountServiceAccountToken="yes"),
        "automountServiceAccountToken",
    ),
    # Its provider is a consumer, too: pods that would go on to a third cluster
    "a way to a virtual node": (
        keys.SHADOW_POD,
        shadow(tolerations=[{"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists"}]),
        "toleration",
    ),
    "a way to nodes of others": (
        keys.SHADOW_POD,
        shadow(tolerations=[{"key": "dedicated", "operator": "Exists"}]),
        "tolerates dedicated",
    ),
    # A7: whose it is
    "the origin of another": (
        keys.SHADOW_POD,
        shadow(metadata={"labels": {keys.ORIGIN: "turin"}}),
        keys.ORIGIN,
    ),
    "a pod of its own": (keys.POD, factories.pod(TWIN, "x"), "forbidden"),
    # A16, A17: what the policies of milan judge
    "a token that never ends": (
        keys.SECRET,
        named(
            keys.SECRET,
            Key(TWIN, "x"),
            metadata={"annotations": {"kubernetes.io/service-account.name": "default"}},
            type="kubernetes.io/service-account-token",
        ),
        "gives rights in this cluster",
    ),
    "an address of others": (
        keys.SERVICE,
        named(
            keys.SERVICE,
            Key(TWIN, "x"),
            spec={"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]},
        ),
        "spec.externalIPs",
    ),
    "all hosts": (keys.INGRESS, factories.ingress(TWIN, "x", "*.example"), "all hosts"),
    # A7: outside of its namespaces, whatever it says of itself
    "a pod next door": (keys.SHADOW_POD, shadow(space="default"), "forbidden"),
    "a setting next door": (keys.CONFIG_MAP, factories.config_map("liqo", "x"), "forbidden"),
}  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
async def test_what_a_consumer_may_not_ask_for(
    kubelet: ClusterClient, milan: ClusterClient, row: str
) -> None:
    kind, obj, says = REFUSED[row]

    said = await denial(kubelet, kind, obj)

    assert says in said
    assert await milan.get_live(kind, objects.key_of(obj)) is None


NO_AMOUNTS: Final = (
    "-1", "NaN", "1e999999999", "Infinity", "0x10", "1 ", "1,5", "9" * 40 + "k7", "-0.0000000001",
    "1e308", "9" * 10_240,
)  # fmt: skip


async def test_a_pod_of_no_amount_never_runs_and_holds_up_no_other(
    kubelet: ClusterClient, milan: ClusterClient
) -> None:
    """A13: refused as it is sent, or never made a Pod of."""
    odd = [
        amounts(f"odd-{name}-{number}", **{resource: amount})
        for number, amount in enumerate(NO_AMOUNTS)
        for name, resource in (("cpu", "cpu"), ("memory", "memory"), ("gpu", "nvidia.com/gpu"))
    ]
    for one in odd:
        await denial(kubelet, keys.SHADOW_POD, one)
    good = amounts("good", cpu="100m")
    assert not await denial(kubelet, keys.SHADOW_POD, good)

    await until_one(milan, keys.POD, objects.key_of(good), lambda _: True)

    pods = (await milan.list(Selection(keys.POD, Object, TWIN))).items
    assert [key.name for key in pods] == ["good"]
    for one in (*odd, good):
        await remove_if_there(kubelet, keys.SHADOW_POD, objects.key_of(one))


async def test_a_slice_of_no_amount_is_refused_or_denied(
    hostile: Hostile, control: ClusterClient, milan: ClusterClient
) -> None:
    """A13: by the schema, or by the controller, which tells so and goes on."""
    for number, amount in enumerate(NO_AMOUNTS):
        name = f"odd-{number}"
        asked = world.replica(SLICE, name, spec=wanted(hostile, name, cpu=amount))
        if await denial(control, SLICE, asked):
            continue
        key = objects.key_of(asked)
        await until_one(milan, SLICE, key, lambda found: "Denied" in answers(found).values())
        await remove_if_there(control, SLICE, key)
        quota = Key(SPACE, naming.quota_name(name, "rome"))
        assert await milan.get_live(keys.QUOTA, quota) is None


def answers(slice_: Object) -> dict[str, str]:
    told = (slice_.get("status") or {}).get("conditions") or []
    return {one["type"]: one["status"] for one in told}


async def remove_if_there(who: ClusterClient, kind: Kind, key: Key) -> None:
    found = await who.get_live(kind, key)
    if found is not None:
        await who.delete(kind, key, uid=objects.uid(found))


# Whose namespaces ---------------------------------------------------------------------------------

OTHERS: Final = (
    "kube-system",
    "kube-public",
    "default",
    "liqo",
    SPACE,
    "liqo-tenant-bari",
    "shop-bari",
)


async def map_and_wait(control: ClusterClient, milan: ClusterClient, **names: str | None) -> Object:
    """Map names, and return the answers once each has one; None takes one back."""
    key = Key(SPACE, "milan")
    await control.patch(MAP, key, {"spec": {"desiredMapping": names}})
    wanted = {name for name, value in names.items() if value}

    def is_answered(found: Object) -> bool:
        return wanted <= current(found).keys() and not current(found).keys() & (
            names.keys() - wanted
        )

    return current(await until_one(milan, MAP, key, is_answered))


def current(namespace_map: Object) -> Object:
    return dict((namespace_map.get("status") or {}).get("currentMapping") or {})


async def powers_of_rome(milan: ClusterClient) -> set[str]:
    """Return the namespaces in which rome may do anything, or milan's controllers make Pods.

    Those that are about to go do not count: other tests may have left them.
    """
    found = (await milan.list(Selection(keys.ROLE_BINDING, Object))).items
    namespaces = (await milan.list(Selection(keys.NAMESPACE, Object))).items.items()
    living = {key.name for key, namespace in namespaces if not objects.is_terminating(namespace)}
    with_rights = {
        key.namespace
        for key, binding in found.items()
        if any(one["name"] == "rome" for one in binding.get("subjects") or [])
        or binding["roleRef"]["name"] == keys.CONTROLLER_MANAGER_TWIN_ROLE
    }
    return with_rights & living


async def test_no_namespace_of_anybody_else_becomes_a_twin(
    control: ClusterClient, milan: ClusterClient
) -> None:
    """A4, A5: what is there is never adopted, and the other entries are served."""
    for name in ("liqo-tenant-bari", "shop-bari"):
        await milan.create(keys.NAMESPACE, factories.namespace(name))
    names = {f"n{number}": name for number, name in enumerate(OTHERS)}

    found = await map_and_wait(control, milan, **names, good="good-rome")

    assert {found[local]["phase"] for local in names} == {"CreationLoopBackOff"}
    assert all(found[local]["reason"] for local in names)
    assert found["good"]["phase"] == "Accepted"
    assert await powers_of_rome(milan) == {SPACE, TWIN, "good-rome"}
    await map_and_wait(control, milan, **dict.fromkeys(names), good=None)
    assert await milan.get_live(keys.NAMESPACE, Key("", "shop-bari"))


SQUATTED: Final = (
    "kube-evil", "openshift-evil", "liqo-tenant-evil", "UPPER", "a.b", "-a", "a-", "a/b",
)  # fmt: skip


async def test_names_that_nobody_gets_and_more_than_anybody_gets(
    control: ClusterClient, milan: ClusterClient
) -> None:
    """A5: refused one by one, with the reason."""
    spec = {"remoteNamespaces": {"pattern": "[a-z.-]+[0-9]*-rome|shop-rome", "max": 4}}
    policy = named(keys.PROVIDER_POLICY, Key("", "rome"), spec=spec)
    squatted = {f"n{number}": name for number, name in enumerate(SQUATTED)}
    many = {f"m{number}": f"m{number}-rome" for number in range(6)}
    asked = {**squatted, **many, "odd": "turin-7"}
    async with present(milan, keys.PROVIDER_POLICY, policy):
        found = await map_and_wait(control, milan, **asked)

        assert {found[local]["phase"] for local in squatted} == {"CreationLoopBackOff"}
        assert found["odd"]["reason"] == "NameNotAllowed"
        served = [local for local in many if found[local]["phase"] == "Accepted"]
        assert len(served) == 3, "with shop-rome they are four"
        refused = {found[local]["reason"] for local in many.keys() - set(served)}
        assert refused == {"TooManyNamespaces"}
        for hostile in ({"long": "x" * 64}, {"y" * 64: "x"}, {f"k{n}": "A" for n in range(2001)}):
            with pytest.raises(errors.InvalidError):
                await map_and_wait(control, milan, **hostile)
        await map_and_wait(control, milan, **dict.fromkeys(asked))
    assert await powers_of_rome(milan) == {SPACE, TWIN}


@contextlib.asynccontextmanager
async def present(milan: ClusterClient, kind: Kind, obj: Object) -> AsyncIterator[None]:
    """Have an object there for a while."""
    await milan.create(kind, obj)
    try:
        yield
    finally:
        await remove_if_there(milan, kind, objects.key_of(obj))


async def test_who_makes_a_namespace_first_has_it(
    control: ClusterClient, milan: ClusterClient
) -> None:
    """A6: rome asks for names while milan's administrator makes namespaces of them."""
    names = [f"raced{number}-rome" for number in range(RACED)]

    async def ours(name: str) -> bool:
        return not await denial(milan, keys.NAMESPACE, factories.namespace(name))

    asked = {f"r{number}": name for number, name in enumerate(names)}
    made, found = await asyncio.gather(
        asyncio.gather(*(ours(name) for name in names)), map_and_wait(control, milan, **asked)
    )

    is_ours = dict(zip(names, made, strict=True))
    for entry in found.values():
        name = entry["remoteNamespace"]
        if is_ours.get(name):
            assert entry["phase"] == "CreationLoopBackOff"
            assert entry["reason"] == "Conflict"
    twins = {name for name in names if not is_ours[name]}
    assert await powers_of_rome(milan) == {SPACE, TWIN, *twins}
    await map_and_wait(control, milan, **dict.fromkeys(asked))


# What is only claimed -----------------------------------------------------------------------------

FORGED: Final = {
    keys.ORIGIN: "turin",
    keys.ORIGIN_ID: "turin",
    keys.REMOTE_CLUSTER_ID: "turin",
    keys.CREATOR_USER: "system-admin",
    keys.APP_MANAGED_BY: "liqo",
    keys.MANAGED_BY: keys.MANAGED_BY_SHADOW_POD,
    keys.TENANT_NAMESPACE: "true",
    "liqo.io/webhook-skip": "true",
}
REFLECTED: Final[dict[str, tuple[Kind, Object]]] = {
    "configmap": (keys.CONFIG_MAP, {"data": {}}),
    "secret": (keys.SECRET, {"data": {}}),
    "service": (keys.SERVICE, {"spec": {"ports": [{"port": 80}]}}),
    "ingress": (keys.INGRESS, factories.ingress(TWIN)),
    "persistentvolumeclaim": (
        keys.PERSISTENT_VOLUME_CLAIM,
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "standard",
                "resources": {"requests": {"storage": "1Mi"}},
            }
        },
    ),
    "shadowendpointslice": (
        keys.SHADOW_ENDPOINT_SLICE,
        {"spec": {"template": {"addressType": "IPv4", "endpoints": []}}},
    ),
}


@pytest.mark.parametrize("kind", REFLECTED)
async def test_what_an_object_says_of_itself_moves_nobody(
    kubelet: ClusterClient, milan: ClusterClient, kind: str
) -> None:
    """A7: by each verb that writes; it stays what the consumer sent, and nothing comes of it."""
    of, body = REFLECTED[kind]
    body = {part: body[part] for part in ("data", "spec") if part in body}
    rights, before = await powers_of_rome(milan), await names_of(milan)
    for number, (mark, value) in enumerate(FORGED.items()):
        labels = {"labels": {mark: value}}
        key = Key(TWIN, f"forged-{number}")
        forged = named(of, key, metadata=labels, **body)
        if said := await denial(kubelet, of, forged):
            assert mark in said
            await kubelet.create(of, named(of, key, **body))
        plain = Key(TWIN, f"forged-{number}-later")
        await kubelet.create(of, named(of, plain, **body))
        for where, change in ((key, _patch_metadata), (key, _apply), (plain, _update)):
            with contextlib.suppress(errors.ForbiddenError, errors.InvalidError):
                await change(kubelet, of, where, labels)
        for where in (key, plain):
            found = await until_one(milan, of, where, lambda _: True)
            managers = {one["manager"] for one in found["metadata"].get("managedFields", ())}
            assert managers <= {"hostile", "pyliqo-liqo-shadowendpointslice"}, (mark, managers)
    await remove_all(milan, of)
    assert await powers_of_rome(milan) <= rights  # what other tests left may go meanwhile
    assert await names_of(milan) <= before


async def _patch_metadata(who: ClusterClient, kind: Kind, key: Key, metadata: Object) -> None:
    await who.patch(kind, key, {"metadata": metadata})


async def _apply(who: ClusterClient, kind: Kind, key: Key, metadata: Object) -> None:
    await who.apply(kind, named(kind, key, metadata=metadata), manager="hostile")


async def _update(who: ClusterClient, kind: Kind, key: Key, metadata: Object) -> None:
    """Replace the whole object, which no program of ours does; again when somebody was faster."""
    connector = aiohttp.TCPConnector(ssl=who.access.tls or False)
    async with aiohttp.ClientSession(
        headers={"User-Agent": "hostile"}, connector=connector
    ) as http:
        while True:
            found = await existing(who, kind, key)
            body = wire.typed(kind, {**found, "metadata": {**found["metadata"], **metadata}})
            address = wire.url(who.access.server, wire.path(kind, key), None)
            async with http.put(address, json=body) as answer:
                if answer.ok:
                    return
                refused = await transport.refusal(answer)
                if not isinstance(refused, errors.ConflictError):
                    raise refused


async def names_of(milan: ClusterClient) -> set[Key]:
    """Return what may come of something: Pods, namespaces, Quotas, Tenants."""
    kinds = (keys.POD, keys.NAMESPACE, keys.QUOTA, keys.TENANT)
    return {key for kind in kinds for key in (await milan.list(Selection(kind, Object))).items}


async def remove_all(milan: ClusterClient, kind: Kind) -> None:
    for key in (await milan.list(Selection(kind, Object, TWIN))).items:
        if key.name.startswith("forged-"):
            await remove_if_there(milan, kind, key)
            if kind == keys.PERSISTENT_VOLUME_CLAIM:  # which nobody here says is not in use
                await milan.patch(kind, key, {"metadata": {"finalizers": None}})


async def test_a_map_and_a_slice_that_claim_another_origin_are_not_served(
    hostile: Hostile, control: ClusterClient, milan: ClusterClient
) -> None:
    """A7, for what controllers act on: the namespace says whose it is.

    The policy refuses what is forged; what stands from before it is an administrator's here.
    """
    own = await existing(milan, keys.TENANT, Key(SPACE, "rome"))
    before = await powers_of_rome(milan)
    spec = wanted(hostile, "forged", user="turin-x")
    for number, (mark, value) in enumerate(FORGED.items()):
        name = f"forged-{number}"
        map_ = world.replica(MAP, name, spec={"desiredMapping": {"a": "kube-system"}})
        renew = world.replica(
            keys.RENEW, name, spec={"consumerClusterID": "turin", "identityType": "ControlPlane"}
        )
        slice_ = world.replica(SLICE, name, spec=spec)
        for obj, kind in ((map_, MAP), (renew, keys.RENEW), (slice_, SLICE)):
            obj["metadata"]["labels"][mark] = value
            if said := await denial(control, kind, obj):
                assert mark in said
                await milan.create(kind, obj)
            assert bool(said) == allowlist.is_ours(mark)
    # what is served after them shows that they were looked at
    await map_and_wait(control, milan, after="after-rome")
    await map_and_wait(control, milan, after=None)

    assert await powers_of_rome(milan) == before
    for number in range(len(FORGED)):
        key = Key(SPACE, f"forged-{number}")
        found = await existing(milan, SLICE, key)
        assert answers(found).get("Authentication") != "Accepted"
        renewed = await existing(milan, keys.RENEW, key)
        told = (renewed.get("status") or {}).get("authParams")
        assert told in (None, own["status"]["authParams"])
        for kind in (MAP, keys.RENEW, SLICE):
            await remove_if_there(milan, kind, key)


def wanted(hostile: Hostile, name: str, *, user: str = "", **resources: str) -> Object:
    """Return the spec of a slice with a request that is right, unless ``user`` says otherwise."""
    key = hostile.both["rome"].secret("liqo", "authentication-keys", "privateKey")
    user = user or naming.quota_name(name, "rome")
    request = pki.new_csr(key, common_name=user, organizations=["rome"])
    return {
        "consumerClusterID": "rome",
        "providerClusterID": "milan",
        "class": "default",
        "csr": authentication.encoded(request),
        "resources": resources,
    }


# Too much, and without sense ----------------------------------------------------------------------


async def test_all_slices_together_get_no_more_than_the_policy_allows(
    hostile: Hostile, control: ClusterClient, milan: ClusterClient
) -> None:
    """A15: 30 at once, each for 10^9 CPUs; looked at with every revision."""
    policy = named(keys.PROVIDER_POLICY, Key("", "rome"), spec={"limits": {"cpu": "10"}})
    sums: list[Quantity] = []
    slices = [
        world.replica(
            SLICE, f"greedy-{number}", spec=wanted(hostile, f"greedy-{number}", cpu="1e9")
        )
        for number in range(30)
    ]
    async with present(milan, keys.PROVIDER_POLICY, policy), running(_watch(milan, sums)):
        assert set(await asyncio.gather(*(denial(control, SLICE, one) for one in slices))) == {""}
        for one in slices:
            await until_one(
                milan, SLICE, objects.key_of(one), lambda it: "Resources" in answers(it)
            )
        for one in slices:
            await remove_if_there(control, SLICE, objects.key_of(one))

    assert sums
    assert max(sums) <= parse_quantity("10")


async def test_a_slice_that_is_spoiled_or_made_anew_gets_its_consumer_nothing_more(
    hostile: Hostile, control: ClusterClient, milan: ClusterClient
) -> None:
    """A15: what is granted counts and can be closed as long as it is there."""
    policy = named(keys.PROVIDER_POLICY, Key("", "rome"), spec={"limits": {"cpu": "10"}})
    first, second = (Key(SPACE, name) for name in ("first", "second"))
    quota = Key(SPACE, naming.quota_name("first", "rome"))

    async def ask(key: Key) -> Object:
        made = world.replica(SLICE, key.name, spec=wanted(hostile, key.name, cpu="10"))
        await control.create(SLICE, made)
        return await until_one(milan, SLICE, key, lambda it: "Resources" in answers(it))

    async def there(key: Key) -> Object:
        return await until_one(milan, SLICE, key, lambda _: True)

    def is_cordoned(found: Object) -> bool:
        return found["spec"].get("cordoned") is True

    async with present(milan, keys.PROVIDER_POLICY, policy):
        await ask(first)
        await until_one(milan, keys.QUOTA, quota, lambda it: not is_cordoned(it))
        await milan.patch(SLICE, first, {"metadata": {"annotations": {keys.CORDON: "true"}}})
        await until_one(milan, keys.QUOTA, quota, is_cordoned)
        await remove_if_there(control, SLICE, first)
        await ask(first)
        uid = objects.uid(await there(first))
        again = await until_one(
            milan, keys.QUOTA, quota, lambda it: it["metadata"]["ownerReferences"][0]["uid"] == uid
        )
        assert is_cordoned(again)
        await milan.patch(SLICE, first, {"metadata": {"annotations": {keys.CORDON: None}}})
        await until_one(milan, keys.QUOTA, quota, lambda it: not is_cordoned(it))

        await control.patch(SLICE, first, {"spec": {"csr": "AAAA"}})
        await until_one(milan, keys.QUOTA, quota, is_cordoned)
        denied = await ask(second)
        assert answers(denied)["Resources"] == "Denied"
        assert "resources" not in denied["status"]
        for key in (first, second):
            await remove_if_there(control, SLICE, key)


async def _watch(milan: ClusterClient, sums: list[Quantity]) -> None:
    """Note what all slices of that test were granted, at each change of one of them."""
    of = Selection(SLICE, Object, SPACE)
    granted: dict[str, Quantity] = {}
    listing = await milan.list(of)
    async for event in milan.watch(of, listing.version):
        name = event.object["metadata"]["name"]
        cpu = ((event.object.get("status") or {}).get("resources") or {}).get("cpu", "0")
        if name.startswith("greedy"):
            # What a slice had that is gone may be another's by the next event.
            granted[name] = parse_quantity("0" if event.type == "DELETED" else cpu)
            sums.append(sum(granted.values(), Quantity()))


ODD: Final = (
    "", "\u202ex", "a" * 300, "-----BEGIN CERTIFICATE REQUEST-----", "eA==", "{{.}}", "../..", "0",
)  # fmt: skip


def odd(chance: random.Random, schema: Object) -> Any:
    """Return a value that the schema takes, and that makes no sense."""
    type_ = schema.get("type")
    if type_ == "object" and "properties" in schema:
        parts = schema["properties"].items()
        needed = schema.get("required", ())
        return {
            name: odd(chance, part)
            for name, part in parts
            if name in needed or chance.random() < 0.6
        }
    if type_ == "object":
        inner = schema.get("additionalProperties") or {"type": "string"}
        return {f"k{number}": odd(chance, inner) for number in range(chance.randrange(3))}
    if type_ == "array":
        return [odd(chance, schema["items"]) for _ in range(chance.randrange(3))]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    plain = {"integer": -1, "number": 0.5, "boolean": True}
    return plain.get(str(type_), chance.choice(ODD))


async def test_objects_without_sense_end_no_controller_and_hold_up_nobody(
    hostile: Hostile, control: ClusterClient, kubelet: ClusterClient, milan: ClusterClient,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    """A19: generated from the schemas; meanwhile and after, slices with sense are answered."""
    flooded = asyncio.Event()
    meanwhile: list[Took] = []
    async with naples(milan) as ask_for_naples:
        alone = [await ask_for_naples() for _ in range(10)]

        async def others() -> None:
            while not flooded.is_set() or not meanwhile:
                meanwhile.append(await ask_for_naples())

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(others())
            stored = await flood(control, kubelet, milan)
            flooded.set()
    _record(record_property, alone, meanwhile)

    good = world.replica(SLICE, "good", spec=wanted(hostile, "good", cpu="1"))
    assert not await denial(control, SLICE, good)
    found = await until_one(milan, SLICE, objects.key_of(good), lambda it: len(answers(it)) > 1)

    assert set(answers(found).values()) == {"Accepted"}
    assert len(stored) > MALFORMED / 10, "otherwise nothing was tried"
    process = hostile.both["milan"].process
    assert process
    assert process.poll() is None
    for kind, key, who in [*stored, (SLICE, objects.key_of(good), control)]:
        await remove_if_there(who, kind, key)


async def test_a_flood_holds_up_no_other_consumer_and_costs_the_controllers_no_memory(
    hostile: Hostile, control: ClusterClient, kubelet: ClusterClient, milan: ClusterClient,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    """A18: objects of all sizes up to the largest, from many connections at once."""
    sizes = (100, 10_000, 900_000)
    process = hostile.both["milan"].process
    assert process
    before_kib = _resident_kib(process.pid)
    flooded = asyncio.Event()
    meanwhile: list[Took] = []
    requests = [wanted(hostile, f"flood-{number}", cpu="1m") for number in range(60)]

    async def send(number: int) -> str:
        made = factories.config_map(TWIN, f"flood-{number}", a="x" * sizes[number % len(sizes)])
        made["metadata"]["labels"] = {keys.ORIGIN: "rome"}
        pod = amounts(f"flood-{number}", cpu="1m")
        slice_ = world.replica(SLICE, f"flood-{number}", spec=requests[number % len(requests)])
        await denial(control, SLICE, slice_)
        said = await denial(kubelet, keys.CONFIG_MAP, made)
        return said or await denial(kubelet, keys.SHADOW_POD, pod)

    async def others(ask_for_naples: Callable[[], Awaitable[Took]]) -> None:
        while not flooded.is_set() or not meanwhile:
            meanwhile.append(await ask_for_naples())

    async with naples(milan) as ask_for_naples:
        alone = [await ask_for_naples() for _ in range(5)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(others(ask_for_naples))
            sent = await asyncio.gather(*(send(number) for number in range(FLOOD)))
            flooded.set()
    _record(record_property, alone, meanwhile)

    assert meanwhile, "each was granted, or it would have failed"
    assert sum(not said for said in sent) > FLOOD / 2, "otherwise nothing was tried"
    assert process.poll() is None
    grown_kib = _resident_kib(process.pid) - before_kib
    assert grown_kib < before_kib / 2 + 64 * 1024 + FLOOD * 16
    for number in range(FLOOD):
        for kind in (keys.CONFIG_MAP, keys.SHADOW_POD):
            await remove_if_there(kubelet, kind, Key(TWIN, f"flood-{number}"))
        await remove_if_there(control, SLICE, Key(SPACE, f"flood-{number}"))


def _resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0])


async def flood(
    control: ClusterClient, kubelet: ClusterClient, milan: ClusterClient
) -> list[tuple[Kind, Key, ClusterClient]]:
    """Send ``MALFORMED`` objects; return those that were stored, and by whom."""
    chance, stored = dice(12), []
    for number, (kind, who, where) in zip(
        range(MALFORMED),
        itertools.cycle(
            [
                (SLICE, control, SPACE),
                (MAP, control, SPACE),
                (keys.RENEW, control, SPACE),
                (keys.SHADOW_POD, kubelet, TWIN),
                (keys.SHADOW_ENDPOINT_SLICE, kubelet, TWIN),
            ]
        ),
        strict=False,
    ):
        name = f"senseless-{number}"
        obj = world.replica(kind, name, spec=odd(chance, await schema_of(milan, kind)))
        obj["metadata"]["namespace"] = where
        if where == TWIN:
            obj["metadata"]["labels"][keys.ORIGIN] = "rome"
        if not await denial(who, kind, obj):
            stored.append((kind, objects.key_of(obj), who))
    return stored


class Took(NamedTuple):
    """Seconds until a slice is created, which the API server alone answers, and until granted."""

    created: float
    granted: float


@contextlib.asynccontextmanager
async def naples(milan: ClusterClient) -> AsyncIterator[Callable[[], Awaitable[Took]]]:
    """Let another consumer in; yield what asks for a slice of its, and says how long it took.

    The slice is gone after that.
    """
    space = naming.tenant_namespace("naples")
    spec = {"clusterID": "naples", "authzPolicy": "TolerateNoHandshake"}
    tenant = named(keys.TENANT, Key(space, "naples"), spec=spec)
    key, numbers = identity.new_key(), itertools.count()

    async def ask_for_one() -> Took:
        name = f"pool-{next(numbers)}"
        user = naming.quota_name(name, "naples")
        request = pki.new_csr(key, common_name=user, organizations=["naples"])
        asked = world.replica(SLICE, name, spec={
            "consumerClusterID": "naples", "providerClusterID": "milan",
            "csr": authentication.encoded(request), "resources": {"cpu": "1"},
        })  # fmt: skip
        asked["metadata"] |= {"namespace": space}
        asked["metadata"]["labels"] |= {keys.ORIGIN_ID: "naples", keys.REMOTE_CLUSTER_ID: "naples"}
        began = time.monotonic()
        made = await milan.create(SLICE, asked)
        created = time.monotonic() - began
        of = Selection(SLICE, Object, space, fields=f"metadata.name={name}")
        async with asyncio.timeout(world.PATIENCE_S):
            await _until_granted(milan, of, made)
        took = Took(created, time.monotonic() - began)
        await remove_if_there(milan, SLICE, Key(space, name))
        return took

    async with (
        present(milan, keys.NAMESPACE, peering.tenant_namespace("naples")),
        present(milan, keys.TENANT, tenant),
    ):
        yield ask_for_one
    await until_gone(milan, keys.NAMESPACE, Key("", space))


async def _until_granted(milan: ClusterClient, of: Selection[Object], made: Object) -> None:
    version = made["metadata"]["resourceVersion"]
    async with contextlib.aclosing(milan.watch(of, version)) as events:
        async for event in events:
            said = answers(event.object) if event.type == "MODIFIED" else {}
            if said == {"Authentication": "Accepted", "Resources": "Accepted"}:
                return
    raise AssertionError(f"the watch of {of.fields} ended")


def _record(
    record_property: Callable[[str, object], None], alone: list[Took], meanwhile: list[Took]
) -> None:
    """Record the medians before and meanwhile."""
    for what, index in (("one create of it", 0), ("a slice of another consumer", 1)):
        before, now = (median([took[index] for took in each]) for each in (alone, meanwhile))
        record_property(f"{what}, s:", f"{before:.2f} -> {now:.2f}")


async def schema_of(milan: ClusterClient, kind: Kind) -> Object:
    name = Key("", f"{kind.plural}.{kind.group}")
    found = await existing(milan, DEFINITION, name)
    (version,) = [one for one in found["spec"]["versions"] if one["name"] == kind.version]
    schema: Object = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema
