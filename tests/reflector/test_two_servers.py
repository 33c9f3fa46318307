"""What only a provider with an API server of its own shows: its ports, its volumes, its refusals.

Home is the API server of all tests. Source: docs/parity.md F-15; § 6.5, 6.9.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import pytest

from apis import keys, reflection
from apis.objects import Key, Object, named
from apis.reflection import ReflectedKind
from kube import client, credentials
from kube.client import ClusterClient
from kube.credentials import Access
from reflector.kinds.contract import RemoteObjectOptions
from reflector.kinds.table import KIND_REFLECTIONS
from reflector.namespaces import KindController, ReflectedNamespaces, Rules
from sandbox import audit, controlplane
from sandbox.controlplane import Plane
from tests import factories
from tests.journeys import world
from tests.kube.running import running, until
from tests.reflector.mapped import offloaded_pairs
from tests.world import existing

pytestmark = pytest.mark.cluster

WORKERS: Final = 10
MANY: Final = 40
SHED: Final = 30
"""So many refusals are waited for before the provider is well again."""
BUSY: Final = (
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=5",
    "--max-mutating-requests-inflight=3",
)
"""Administrators are never refused for that, others at once."""
STATIC: Final = 30042
"""Of the part of the range from which API servers give no port by themselves."""
WITHIN_S: Final = 240


@pytest.fixture(scope="module")
def provider_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with controlplane.start(tmp_path_factory.mktemp("milan"), flags=BUSY) as plane:
        yield plane


@dataclasses.dataclass(frozen=True)
class Pair:
    """Both clusters as administrators see them, a namespace at home and its twin."""

    home: ClusterClient
    milan: ClusterClient
    local: str

    @property
    def remote(self) -> str:
        return f"{self.local}-remote"

    @contextlib.asynccontextmanager
    async def reflecting(
        self,
        row: ReflectedKind,
        settings: RemoteObjectOptions | None = None,
        who: ClusterClient | None = None,
    ) -> AsyncIterator[list[str]]:
        """Reflect the kind of ``row`` meanwhile, as ``who`` on the provider; yield what is told."""
        told: list[str] = []
        identity = await offloaded_pairs(self.home, self.local, "loud", "quiet")
        rules = Rules(row.default, settings or RemoteObjectOptions())
        foreign = who or self.milan
        loops = [
            KindController(
                KIND_REFLECTIONS[row], rules, lambda *said: told.append(said[-1]), WORKERS
            )
        ]
        async with running(ReflectedNamespaces(identity, loops, self.home, foreign).run()):
            yield told


@pytest.fixture
async def pair(plane: Plane, crds: None, provider_plane: Plane) -> AsyncIterator[Pair]:
    async with (
        client.connect(plane.kubeconfig, user_agent="tests") as home,
        client.connect(provider_plane.kubeconfig, user_agent="tests") as milan,
    ):
        made = Pair(home, milan, f"test-{secrets.token_hex(4)}")
        await milan.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", made.remote)))
        yield made


def node_port(service: Object) -> int:
    return int(service["spec"]["ports"][0].get("nodePort") or 0)


async def test_a_node_port_is_of_their_choice_unless_it_is_forced(pair: Pair) -> None:
    here, there = Key(pair.local, "web"), Key(pair.remote, "web")
    async with pair.reflecting(reflection.SERVICE):
        made = await pair.home.create(keys.SERVICE, factories.service(*here, type="NodePort"))
        await world.until_one(pair.milan, keys.SERVICE, there, lambda found: node_port(found) > 0)

        forced = {keys.FORCE_REMOTE_NODE_PORT: "true"}
        await pair.home.patch(keys.SERVICE, here, {"metadata": {"annotations": forced}})
        ours = node_port(made)
        await world.until_one(
            pair.milan, keys.SERVICE, there, lambda found: node_port(found) == ours
        )


async def test_clients_stay_with_a_pod_for_as_long_as_its_service_says(pair: Pair) -> None:
    here, there = Key(pair.local, "web"), Key(pair.remote, "web")

    def stick(seconds: int | None) -> Object:
        by_client = {"clientIP": {"timeoutSeconds": seconds}} if seconds else None
        kind = "ClientIP" if seconds else "None"
        return {"sessionAffinity": kind, "sessionAffinityConfig": by_client}

    def has(wanted: Object) -> Callable[[Object], bool]:
        return lambda found: {name: found["spec"].get(name) for name in wanted} == wanted

    async with pair.reflecting(reflection.SERVICE) as told:
        await pair.home.create(keys.SERVICE, factories.service(*here, **stick(60)))
        for wanted in (stick(60), stick(90), stick(None)):
            await pair.home.patch(keys.SERVICE, here, {"spec": wanted})
            await world.until_one(pair.milan, keys.SERVICE, there, has(wanted))
    assert told == []


async def test_a_forced_node_port_that_is_taken_is_told_and_had_once_it_is_free(pair: Pair) -> None:
    here, there, taker = Key(pair.local, "web"), Key(pair.remote, "web"), Key("default", "taker")
    fixed = [{"port": 80, "nodePort": STATIC}]
    other = factories.service(*taker, type="NodePort", ports=fixed)
    await pair.milan.create(keys.SERVICE, other)
    async with pair.reflecting(reflection.SERVICE) as told:
        mine = factories.service(*here, type="NodePort", ports=fixed)
        mine["metadata"]["annotations"] = {keys.FORCE_REMOTE_NODE_PORT: "true"}
        await pair.home.create(keys.SERVICE, mine)
        await until(lambda: any("is already allocated" in text for text in told))

        await world.remove(pair.milan, keys.SERVICE, taker)
        async with asyncio.timeout(WITHIN_S):
            for attempt in itertools.count():  # what was refused is tried again when it changes
                labels = {"metadata": {"labels": {"try": f"n{attempt}"}}}
                await pair.home.patch(keys.SERVICE, here, labels)
                if twin := await pair.milan.get_live(keys.SERVICE, there):
                    assert node_port(twin) == STATIC
                    break
                await asyncio.sleep(0.2)


def size(storage: str) -> Object:
    return {"requests": {"storage": storage}}


async def storage_class(cluster: ClusterClient, name: str) -> None:
    grows = {"provisioner": "tests.example/none", "allowVolumeExpansion": True}
    await cluster.create(keys.STORAGE_CLASS, named(keys.STORAGE_CLASS, Key("", name), **grows))


def provisioned_volume(claim: Key, class_: str) -> Object:
    """Return the volume at home of a claim whose data is on the provider."""
    metadata = {
        "labels": {keys.REMOTE_CLUSTER_ID: "milan"},
        "annotations": {keys.PROVISIONED_BY: keys.STORAGE_PROVISIONER},
    }
    spec = {
        "storageClassName": class_,
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/nowhere"},
        "claimRef": {"namespace": claim.namespace, "name": claim.name},
    }
    where = Key("", f"pv-{claim.namespace}")
    return named(keys.PERSISTENT_VOLUME, where, metadata=metadata, spec=spec)


async def test_a_claim_that_asks_for_more_gets_it_there_and_is_told(pair: Pair) -> None:
    kind, here, there = keys.PERSISTENT_VOLUME_CLAIM, Key(pair.local, "a"), Key(pair.remote, "a")
    for cluster in (pair.home, pair.milan):
        await storage_class(cluster, pair.local)
    made = await pair.home.create(keys.PERSISTENT_VOLUME, provisioned_volume(here, pair.local))
    name = made["metadata"]["name"]
    settings = RemoteObjectOptions(
        enable_storage=True, storage_class=pair.local, virtual_storage_class=pair.local
    )
    async with pair.reflecting(reflection.CLAIM, settings):
        spec = {
            "storageClassName": pair.local,
            "accessModes": ["ReadWriteOnce"],
            "resources": size("1Gi"),
            "volumeName": name,
        }
        claim = await pair.home.create(kind, named(kind, here, spec=spec))
        bind = {"spec": {"claimRef": {"uid": claim["metadata"]["uid"]}}}  # no controller does it
        await pair.home.patch(keys.PERSISTENT_VOLUME, Key("", name), bind)
        await world.until_one(pair.milan, kind, there, bool)
        bound = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
        await pair.milan.patch(kind, there, {"spec": {"volumeName": "theirs"}})
        for cluster, key in ((pair.milan, there), (pair.home, here)):
            await cluster.patch_status(kind, key, bound)

        await pair.home.patch(kind, here, {"spec": {"resources": size("2Gi")}})
        await world.until_one(
            pair.milan, kind, there, lambda found: found["spec"]["resources"] == size("2Gi")
        )
        grown = {"storage": "2Gi"}
        await pair.milan.patch_status(kind, there, {"capacity": grown})
        await world.until_one(
            pair.home, kind, here, lambda found: found["status"]["capacity"] == grown
        )
        found = await existing(pair.home, keys.PERSISTENT_VOLUME, Key("", name))
        assert found["spec"]["capacity"] == grown


async def test_each_virtual_node_offers_its_own_class_whoever_leads(pair: Pair) -> None:
    kind, offered = keys.PERSISTENT_VOLUME_CLAIM, {"fast": "nvme", "slow": "tape", "none": ""}
    for name, class_ in offered.items():
        labels = {
            keys.REMOTE_CLUSTER_ID: "milan",
            keys.STORAGE_AVAILABLE: "true" if class_ else "false",
        }
        told = {keys.OFFERED_STORAGE_CLASS: class_} if class_ else {}
        metadata = {"labels": labels, "annotations": told}
        node = named(keys.NODE, Key("", f"{pair.local}-{name}"), metadata=metadata)
        await pair.home.create(keys.NODE, node)
    async with pair.reflecting(reflection.CLAIM):
        for name in offered:
            claim = factories.claim(pair.local, name, node=f"{pair.local}-{name}")
            await pair.home.create(kind, claim)
        for name in ("fast", "slow"):
            twin = await world.until_one(pair.milan, kind, Key(pair.remote, name), bool)
            assert twin["spec"]["storageClassName"] == offered[name]
        await world.until_one(
            pair.home,
            kind,
            Key(pair.local, "none"),
            lambda found: keys.SELECTED_NODE not in found["metadata"]["annotations"],
        )
    for name in offered:
        await world.remove(pair.home, keys.NODE, Key("", f"{pair.local}-{name}"))


async def someone(provider: Plane, milan: ClusterClient, namespace: str) -> Access:
    """Return the access of an account that may do all and is no administrator."""
    account = Key(namespace, "consumer")
    await milan.create(keys.SERVICE_ACCOUNT, named(keys.SERVICE_ACCOUNT, account))
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": namespace}
    binding = named(keys.CLUSTER_ROLE_BINDING, Key("", namespace), roleRef=role, subjects=[subject])
    await milan.create(keys.CLUSTER_ROLE_BINDING, binding)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await milan.post(keys.SERVICE_ACCOUNT, account, "token", body)
    who = await credentials.from_file(provider.kubeconfig)
    return dataclasses.replace(
        who,
        **credentials.contexts(who.ca),
        authorization=f"Bearer {answer['status']['token']}",
        digest="another",
        renew=None,
        current_stamp=None,
    )


async def test_a_provider_that_sheds_load_is_asked_slowly_and_gets_all(
    pair: Pair, provider_plane: Plane
) -> None:
    """Its etcd stands still: three writes wait for it, and all others are refused at once."""
    agent = "pyliqo-shed"
    log, refused = audit.Log(provider_plane.audit_log), 0

    def has_all(found: world.World) -> bool:
        return {f"n{number}" for number in range(MANY)} <= {key.name for key in found}

    who = await someone(provider_plane, pair.milan, pair.remote)
    async with (
        client.connect(who, user_agent=agent) as foreign,
        pair.reflecting(reflection.CONFIG_MAP, who=foreign),
    ):
        quiet = Key(pair.remote, "quiet")
        await world.until_one(pair.milan, keys.CONFIG_MAP, quiet, bool)
        with provider_plane.stalled():
            began = time.monotonic()
            for number in range(MANY):
                made = factories.config_map(pair.local, f"n{number}")
                await pair.home.create(keys.CONFIG_MAP, made)
            async with asyncio.timeout(WITHIN_S):
                while refused < SHED:
                    await asyncio.sleep(0.05)
                    calls = [call for call in log.read() if call.agent == agent]
                    refused += sum(call.code == 429 for call in calls)
            lasted_s = time.monotonic() - began
        await world.until(pair.milan, keys.CONFIG_MAP, pair.remote, has_all, patience_s=WITHIN_S)

    print(f"{refused} refusals in {lasted_s:.1f} s")  # noqa: T201
    assert refused <= 2 * WORKERS * (lasted_s + 1), "each waits a second, as it was asked to"
