"""A consumer that proved who it is comes in, and goes without leaving a right behind."""

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from apis import authentication, keys, naming, objects
from apis.authentication import AuthParams, Binding
from apis.objects import Key, Kind, Meta, Object, named
from apis.offloading import VirtualNode
from certs import identity, pki
from controllers import writes
from controllers.authentication.issuing.issuer import NoAddressError
from controllers.authentication.tenant import forge
from controllers.authentication.tenant.reconciler import REFUSED_S, TenantReconciler
from controllers.manager import AdvertisedEndpoint
from controllers.offloading.virtualnode.forge import rights
from kube.cluster import Listing, Selection
from kube.errors import BusyError, InvalidError
from tests import factories, signers
from tests.controllers.support import (
    Ledger,
    T,
    Told,
    bindings_known,
    end,
    ensure_namespace,
    make,
    manager_of,
    settle,
    there,
)
from tests.fakes import FakeCluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SLICE = keys.RESOURCE_SLICE
SPACE = "liqo-tenant-rome"
WHERE = Key(SPACE, "rome")
NONCE = Key(SPACE, "liqo-nonce")
ROOM = Key(SPACE, "liqo-binding-liqo-remote-controlplane")
METRICS = Key("", "liqo-binding-liqo-virtual-kubelet-remote-clusterwide-rome")
KEY = identity.new_key()
OTHER = identity.new_key()
CA = pki.new_ca("ca", now=NOW, lifetime=timedelta(days=10))
TEXT = authentication.nonce_text("rome", "milan", bytes(32), NOW)


class Milan:
    """The provider, with a tenant namespace for rome and a nonce in it."""

    def __init__(self, address: str = "milan:6443", cluster: type[Ledger] = Ledger) -> None:
        self.fake = FakeCluster(strict=True)
        self.cluster = cluster(self.fake)
        self.now = NOW
        self.told = Told(self.cluster)
        self.bindings: list[tuple[Kind, Binding]] = []
        manager = manager_of(
            self.cluster,
            known=bindings_known(lambda: self.bindings),
            endpoint=AdvertisedEndpoint(lambda: b"CA", address),
            events=self.told.recorder,
            clock=lambda: self.now,
        )
        self.reconciler = TenantReconciler(manager)

    async def prepare(self, nonce: str = TEXT) -> None:
        await self.fake.create(keys.NAMESPACE, factories.tenant_namespace(SPACE, "rome"))
        await self.put_nonce(nonce)

    async def put_nonce(self, nonce: str) -> None:
        data = {"nonce": base64.b64encode(nonce.encode()).decode()}
        labels = {keys.NONCE_LABEL: "true", keys.REMOTE_CLUSTER_ID: "rome"}
        secret = named(keys.SECRET, NONCE, metadata={"labels": labels}, data=data)
        await self.fake.create(keys.SECRET, secret)

    async def settle(self) -> None:
        await settle(self.reconciler, WHERE, self.cluster)

    async def bind(self, pair: tuple[Kind, Binding]) -> None:
        kind, binding = pair
        key = Key(binding.metadata.namespace, binding.metadata.name)
        await ensure_namespace(self.fake, key.namespace)
        made = named(kind, key, roleRef=binding.role_ref, subjects=binding.subjects)
        await self.fake.create(kind, made)
        self.bindings.append(pair)

    async def unbind(self, *, is_seen: bool = True) -> None:
        for kind, binding in self.bindings:
            key = Key(binding.metadata.namespace, binding.metadata.name)
            found = await there(self.fake, kind, key)
            await self.fake.delete(kind, key, uid=objects.uid(found))
        if is_seen:
            self.bindings.clear()

    async def ready(self) -> tuple[str, str]:
        found = await there(self.fake, keys.TENANT, WHERE)
        conditions = {one["type"]: one for one in found["status"]["conditions"]}
        return conditions["Ready"]["status"], conditions["Ready"]["reason"]

    async def params(self) -> AuthParams:
        found = await there(self.fake, keys.TENANT, WHERE)
        return AuthParams.parse(found["status"].get("authParams"))

    async def is_there(self, kind: Kind, key: Key) -> bool:
        return await self.fake.get_live(kind, key) is not None

    async def has_rights(self) -> tuple[bool, bool]:
        return (
            await self.is_there(keys.ROLE_BINDING, ROOM),
            await self.is_there(keys.CLUSTER_ROLE_BINDING, METRICS),
        )

    def signed(self) -> int:
        kinds = [kind for kind, _ in self.fake.everything()]
        return kinds.count(keys.CERTIFICATE_SIGNING_REQUEST)


def tenant(
    *, nonce: str = TEXT, key: bytes = KEY, csr: bytes | None = None, cluster_id: str = "rome",
    **spec: object,
) -> Object:  # fmt: skip
    request = csr or pki.new_csr(key, common_name=cluster_id, organizations=["liqo.io"])
    proof = {
        "publicKey": pki.public_key(key),
        "csr": request,
        "signature": identity.sign(key, nonce.encode()),
    }
    encoded = {name: base64.b64encode(value).decode() for name, value in proof.items()}
    labels = {keys.REMOTE_CLUSTER_ID: cluster_id}
    body = {"clusterID": cluster_id, **encoded, **spec}
    return named(keys.TENANT, WHERE, metadata={"labels": labels}, spec=body)


@pytest.fixture
async def milan() -> AsyncIterator[Milan]:
    made = Milan()
    await made.prepare()
    async with signers.signing(made.fake, CA, lambda: made.now):
        yield made


async def test_where_nothing_says_the_address_the_tenant_says_so_and_it_is_tried_again() -> None:
    """What was let in before stays in: its certificate is renewed once an address is known."""
    milan = Milan(address="")
    await milan.prepare()
    await milan.fake.create(keys.TENANT, tenant())
    async with signers.signing(milan.fake, CA, lambda: milan.now):
        with pytest.raises(NoAddressError, match="liqoctl install --api-server-url"):
            await milan.settle()
        assert await milan.ready() == ("False", "NoAddress")

        labels = {"node-role.kubernetes.io/control-plane": ""}
        addresses = {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}
        node = named(keys.NODE, Key("", "a"), metadata={"labels": labels}, status=addresses)
        await make(milan.fake, keys.NODE, node, status=addresses)
        await milan.settle()
        assert (await milan.params()).api_server == "https://10.0.0.1:6443"

        await end(milan.fake, keys.NODE, Key("", "a"))
        with pytest.raises(NoAddressError):
            await milan.settle()
        assert await milan.ready() == ("True", "TenantReady")
        assert milan.told.reasons == ["NoAddress"]


async def test_while_no_signer_signs_the_tenant_says_so() -> None:
    milan = Milan()
    await milan.prepare()
    await milan.fake.create(keys.TENANT, tenant())
    async with signers.refusing(milan.fake):
        with pytest.raises(BusyError, match="got no certificate"):
            await milan.settle()

    assert await milan.ready() == ("Unknown", "CertificateNotSigned")


async def test_who_signed_the_nonce_gets_a_certificate_and_exactly_two_bindings(
    milan: Milan,
) -> None:
    await milan.fake.create(keys.TENANT, tenant())

    await milan.settle()

    found = await there(milan.fake, keys.TENANT, WHERE)
    params = await milan.params()
    assert await milan.ready() == ("True", "TenantReady")
    assert found["status"]["tenantNamespace"] == SPACE
    assert objects.finalizers(found) == ["tenant.liqo.io/finalizer"]
    assert pki.subject(params.certificate) == pki.Subject("rome", ("liqo.io",))
    assert (params.api_server, params.ca) == ("https://milan:6443", b"CA")
    room = await there(milan.fake, keys.ROLE_BINDING, ROOM)
    assert room["roleRef"]["name"] == "liqo-remote-controlplane"
    assert [(one["kind"], one["name"]) for one in room["subjects"]] == [("User", "rome")]
    metrics = await there(milan.fake, keys.CLUSTER_ROLE_BINDING, METRICS)
    assert [(one["kind"], one["name"]) for one in metrics["subjects"]] == [("Group", "rome")]
    assert not await milan.is_there(keys.SECRET, NONCE)


async def test_the_nonce_is_used_once_and_its_proof_lasts(milan: Milan) -> None:
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()
    milan.now += timedelta(hours=17)

    await milan.settle()
    await end(milan.fake, keys.TENANT, WHERE)
    await milan.settle()
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()

    assert await milan.ready() == ("False", "NonceNotFound")
    assert milan.signed() == 2


REFUSED = [
    pytest.param(tenant(nonce=TEXT + "x"), "SignatureVerificationFailed", id="another text"),
    pytest.param(
        {
            **tenant(),
            "spec": {**tenant()["spec"], "publicKey": tenant(key=OTHER)["spec"]["publicKey"]},
        },
        "InvalidCSR",
        id="another key",
    ),
    pytest.param(
        tenant(csr=pki.new_csr(KEY, common_name="turin", organizations=["liqo.io"])),
        "InvalidCSR",
        id="another name",
    ),
    pytest.param(
        tenant(csr=pki.new_csr(KEY, common_name="rome", organizations=["liqo.io", "turin"])),
        "InvalidCSR",
        id="another tenant's group, too",
    ),
    pytest.param(
        tenant(csr=pki.new_csr(KEY, common_name="rome", organizations=["system:masters"])),
        "InvalidCSR",
        id="masters",
    ),
    pytest.param(
        tenant(csr=pki.new_csr(KEY, common_name="rome", organizations=["liqo.io"], dns=["a"])),
        "InvalidCSR",
        id="a name of a server",
    ),
    pytest.param(tenant(csr=b"x" * 9000), "InvalidCSR", id="too much"),
    pytest.param(
        {**tenant(), "spec": {**tenant()["spec"], "csr": "%"}}, "InvalidTenant", id="no base64"
    ),
    pytest.param(tenant(cluster_id="turin"), "NotItsNamespace", id="another namespace"),
]


@pytest.mark.parametrize(("refused", "reason"), REFUSED)
async def test_who_does_not_prove_it_gets_nothing(
    milan: Milan, refused: Object, reason: str
) -> None:
    await milan.fake.create(keys.TENANT, refused)

    await milan.settle()

    assert await milan.ready() == ("False", reason)
    assert await milan.has_rights() == (False, False)
    assert milan.signed() == 0
    assert reason in milan.told.reasons


@pytest.mark.parametrize(
    ("nonce", "later"),
    [
        (authentication.nonce_text("turin", "milan", bytes(32), NOW), 0),
        (authentication.nonce_text("rome", "turin", bytes(32), NOW), 0),
        (TEXT, 601),
        ("A" * 88, 0),
    ],
)
async def test_a_nonce_for_another_purpose_proves_nothing(nonce: str, later: float) -> None:
    milan = Milan()
    await milan.prepare(nonce)
    milan.now += timedelta(seconds=later)
    await milan.fake.create(keys.TENANT, tenant(nonce=nonce))

    await milan.settle()

    assert await milan.ready() == ("False", "NonceRefused")
    assert milan.signed() == 0


def binding(user: str, *, kind: str = "User", role: str = "admin") -> tuple[Kind, Binding]:
    found = Binding(
        Meta("theirs", "prod"),
        {"kind": "ClusterRole", "name": role},
        [{"kind": kind, "name": user}],
    )
    return keys.ROLE_BINDING, found


@pytest.mark.parametrize("kind", ["User", "Group"])
async def test_a_name_that_somebody_has_is_refused_and_named(milan: Milan, kind: str) -> None:
    await milan.bind(binding("rome", kind=kind))
    await milan.fake.create(keys.TENANT, tenant())

    await milan.settle()

    found = await there(milan.fake, keys.TENANT, WHERE)
    (ready,) = found["status"]["conditions"]
    assert ready["reason"] == "NameCollision"
    assert "rolebinding prod/theirs" in ready["message"]
    assert await milan.has_rights() == (False, False)
    assert milan.signed() == 0


async def test_a_name_that_somebody_gets_later_costs_every_right_until_it_is_gone(
    milan: Milan,
) -> None:
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()
    await milan.bind(binding("rome"))
    milan.now += timedelta(hours=20)

    await milan.settle()
    during = await milan.has_rights(), await milan.ready(), milan.signed()
    await milan.unbind()
    await milan.settle()

    assert during == ((False, False), ("False", "NameCollision"), 1)
    assert await milan.has_rights() == (True, True)
    assert await milan.ready() == ("True", "TenantReady")


async def test_who_is_refused_is_looked_at_again_though_no_event_says_so(milan: Milan) -> None:
    """The watch of bindings is silent: the cache has one that is gone."""
    await milan.bind(binding("rome"))
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()
    assert milan.told.reasons == ["NameCollision"]
    before = len(milan.cluster.writes)

    assert await milan.reconciler.reconcile(WHERE) == REFUSED_S
    assert milan.cluster.writes[before:] == []
    assert milan.told.reasons == ["NameCollision"], "once, and not at each look"
    await milan.unbind(is_seen=False)
    await milan.settle()

    assert await milan.ready() == ("True", "TenantReady")


async def test_a_binding_that_the_cache_alone_has_takes_no_right_away(milan: Milan) -> None:
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()
    milan.bindings.append(binding("rome"))

    await milan.settle()

    assert await milan.has_rights() == (True, True)


def test_bindings_of_ours_and_of_others_are_no_collision() -> None:
    ours = [binding("rome", role="liqo-remote-controlplane"), binding("milan")]
    account = [binding("rome", kind="ServiceAccount")]

    assert forge.collision("rome", [*ours, *account]) == ""
    assert "system:" in forge.collision("system:masters", [])


def replica(kind: Kind, name: str, *finalizers: str) -> Object:
    labels = {
        keys.REPLICATED: "true",
        keys.REPLICATION: "false",
        keys.ORIGIN_ID: "rome",
        keys.REMOTE_CLUSTER_ID: "rome",
    }
    metadata = {"labels": labels, "finalizers": list(finalizers)}
    return named(kind, Key(SPACE, name), metadata=metadata, spec={})


async def test_what_a_consumer_poisoned_does_not_keep_it_here(milan: Milan) -> None:
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()
    for number in range(50):
        kind = (keys.RESOURCE_SLICE, keys.RENEW)[number % 2]
        poisoned = replica(kind, f"p{number}", "rome.example/never")
        await milan.fake.create(kind, poisoned)
    twin = named(
        keys.ROLE_BINDING,
        Key("kube-system", "twin"),
        metadata={"labels": {keys.APP_MANAGED_BY: "liqo", keys.REMOTE_CLUSTER_ID: "rome"}},
        subjects=[{"kind": "Group", "name": "rome", "apiGroup": keys.RBAC_GROUP}],
        roleRef={"kind": "ClusterRole", "name": "x", "apiGroup": keys.RBAC_GROUP},
    )
    await milan.fake.create(keys.ROLE_BINDING, twin)
    await end(milan.fake, keys.TENANT, WHERE)

    await milan.settle()

    assert not await milan.is_there(keys.TENANT, WHERE)
    left = [str(kind) for kind, key in milan.fake.everything() if key.namespace == SPACE]
    assert left == []
    assert not await milan.is_there(keys.ROLE_BINDING, Key("kube-system", "twin"))
    assert await milan.has_rights() == (False, False)


async def test_nothing_of_a_consumer_stays_whatever_it_says_of_itself(milan: Milan) -> None:
    """Our own slices and maps for that cluster do, as it may be a provider of ours, too."""
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()
    local = {keys.REPLICATION: "true", keys.REMOTE_ID: "rome"}
    theirs = (
        named(keys.NAMESPACE_MAP, Key(SPACE, "bare"), spec={}),
        _labelled(keys.NAMESPACE_MAP, "turns", {keys.REPLICATION: "true", keys.REMOTE_ID: "turin"}),
        _labelled(keys.RESOURCE_SLICE, "half", {keys.REPLICATED: "false"}),
        named(keys.RESOURCE_SLICE, Key(SPACE, "asks"), spec={"consumerClusterID": "rome"}),
    )
    ours = (
        _labelled(keys.NAMESPACE_MAP, "rome", local),
        _labelled(keys.RESOURCE_SLICE, "pool", local),
        named(keys.RESOURCE_SLICE, Key(SPACE, "new"), spec={}),
    )
    for one in (*theirs, *ours):
        await milan.fake.create(_kind(one), one)

    await end(milan.fake, keys.TENANT, WHERE)
    await milan.settle()

    assert not await milan.is_there(keys.TENANT, WHERE)
    for one in theirs:
        assert not await milan.is_there(_kind(one), objects.key_of(one))
    for one in ours:
        assert await milan.is_there(_kind(one), objects.key_of(one))


def _labelled(kind: Kind, name: str, labels: dict[str, str]) -> Object:
    return named(kind, Key(SPACE, name), metadata={"labels": labels}, spec={})


def _kind(obj: Object) -> Kind:
    return next(kind for kind in forge.REPLICAS if kind.kind == obj["kind"])


async def test_rights_go_before_what_is_slow_to_go(milan: Milan) -> None:
    """A twin that is still being deleted keeps its map, and nobody may add to it."""
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()
    slow = replica(keys.NAMESPACE_MAP, "milan", keys.NAMESPACE_MAP_FINALIZER)
    await milan.fake.create(keys.NAMESPACE_MAP, slow)
    await end(milan.fake, keys.TENANT, WHERE)

    again = await milan.reconciler.reconcile(WHERE)

    assert again == 2
    assert await milan.is_there(keys.TENANT, WHERE)
    assert await milan.has_rights() == (False, False)


def twin_right(twin: str) -> Object:
    return named(
        keys.ROLE_BINDING,
        Key(twin, SPACE),
        metadata={"labels": {keys.APP_MANAGED_BY: "liqo", keys.REMOTE_CLUSTER_ID: "rome"}},
        subjects=[{"kind": "Group", "name": "rome", "apiGroup": keys.RBAC_GROUP}],
        roleRef={"kind": "ClusterRole", "name": "x", "apiGroup": keys.RBAC_GROUP},
    )


@pytest.mark.parametrize("how", ["drained", "deleted"])
async def test_what_cannot_be_removed_keeps_nothing_else_here(milan: Milan, how: str) -> None:
    """One right and one slice in the middle fail for ever; rights go before any replica."""
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()
    for number in range(5):
        twin = factories.namespace(f"shop-{number}", **{keys.REMOTE_CLUSTER_ID: "rome"})
        await milan.fake.create(keys.NAMESPACE, twin)
        await milan.fake.create(keys.ROLE_BINDING, twin_right(f"shop-{number}"))
        await milan.fake.create(keys.RESOURCE_SLICE, replica(keys.RESOURCE_SLICE, f"p{number}"))
    right, slice_ = Key("shop-2", SPACE), Key(SPACE, "p2")
    for kind, key in ((keys.ROLE_BINDING, right), (keys.RESOURCE_SLICE, slice_)):
        milan.cluster.refuses["delete", str(kind), key] = BusyError(f"{key}: no space left")
    if how == "drained":
        await milan.fake.patch(keys.TENANT, WHERE, {"spec": {"tenantCondition": "Drained"}})
    else:
        await end(milan.fake, keys.TENANT, WHERE)

    with pytest.raises(ExceptionGroup):
        await milan.reconciler.reconcile(WHERE)

    standing = {
        (kind, key) for kind, key in milan.fake.everything() if kind in (keys.ROLE_BINDING, SLICE)
    }
    assert standing == {(keys.ROLE_BINDING, right), (SLICE, slice_)}
    gone = [kind for verb, kind, _ in milan.cluster.writes if verb == "delete"]
    last_right = max(i for i, kind in enumerate(gone) if kind.endswith("binding"))
    assert str(SLICE) not in gone[:last_right]
    assert await milan.ready() == ("False", "Draining" if how == "drained" else "Leaving")
    found = await there(milan.fake, keys.TENANT, WHERE)
    assert f"not removed yet: {right}: no space left; {slice_}: no space left" in str(found)
    assert "no space left and" not in str(found), "no more than these"
    assert "objects of the consumer are being removed; " in str(found)

    milan.cluster.refuses.clear()
    await milan.settle()
    assert await milan.has_rights() == (False, False)
    assert not await milan.is_there(SLICE, slice_)


async def test_a_certificate_that_cannot_be_removed_keeps_no_other_here(milan: Milan) -> None:
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()
    prefix = naming.remote_certificate()
    secrets = [Key(SPACE, f"{prefix}-{number}") for number in range(3)]
    for key in secrets:
        labels = {keys.REMOTE_CLUSTER_ID: "rome"}
        await milan.fake.create(keys.SECRET, named(keys.SECRET, key, metadata={"labels": labels}))
    milan.cluster.refuses["delete", str(keys.SECRET), secrets[1]] = BusyError("no space left")
    await end(milan.fake, keys.TENANT, WHERE)

    with pytest.raises(BusyError, match="no space left"):
        await milan.settle()

    assert [await milan.is_there(keys.SECRET, key) for key in secrets] == [False, True, False]
    assert await milan.is_there(keys.TENANT, WHERE)
    milan.cluster.refuses.clear()
    await milan.reconciler.reconcile(WHERE)
    assert not await milan.is_there(keys.TENANT, WHERE)


class Unlisted(Ledger):
    """A cluster that lists no NamespaceMaps."""

    async def list(self, of: Selection[T]) -> Listing[T]:
        if of.kind == keys.NAMESPACE_MAP:
            raise BusyError("no NamespaceMaps today")
        return await super().list(of)


async def test_a_kind_that_cannot_be_listed_keeps_no_other_here() -> None:
    milan = Milan(cluster=Unlisted)
    await milan.prepare()
    for kind in (keys.RESOURCE_SLICE, keys.RENEW):
        await milan.fake.create(kind, replica(kind, "theirs"))
    await milan.fake.create(keys.TENANT, tenant(tenantCondition="Drained"))

    with pytest.raises(BusyError, match="no NamespaceMaps today"):
        await milan.reconciler.reconcile(WHERE)

    for kind in (keys.RESOURCE_SLICE, keys.RENEW):
        assert not await milan.is_there(kind, Key(SPACE, "theirs"))
    assert await milan.ready() == ("False", "Draining")


class Full(Ledger):
    """A cluster in whose etcd nothing more fits into an object whose spec is large."""

    async def delete(self, kind: Kind, key: Key, *, uid: str, grace_s: int | None = None) -> None:
        found = await there(self, kind, key)
        if len(str(found.get("spec"))) > 10_000:
            raise BusyError("etcdserver: request is too large (500)")
        await super().delete(kind, key, uid=uid, grace_s=grace_s)


async def test_what_has_no_room_for_its_deletion_is_emptied_first() -> None:
    milan = Milan(cluster=Full)
    await milan.prepare()
    full = replica(keys.NAMESPACE_MAP, "fat", keys.NAMESPACE_MAP_FINALIZER)
    full["metadata"]["annotations"] = {"a.b/x": "x", keys.CORDON: "true"}
    full["spec"] = {"desiredMapping": {"y": "Z" * 20_000}, "small": "stays"}
    where = Key(SPACE, "fat")
    await milan.fake.create(keys.NAMESPACE_MAP, full)

    is_gone = await writes.remove(milan.cluster, keys.NAMESPACE_MAP, where, is_ours=lambda _: True)

    assert not is_gone
    found = await there(milan.fake, keys.NAMESPACE_MAP, where)
    assert objects.is_terminating(found)
    assert objects.finalizers(found) == [keys.NAMESPACE_MAP_FINALIZER]
    assert objects.labels(found) == objects.labels(full)
    assert objects.annotations(found) == {keys.CORDON: "true"}
    assert found["spec"] == {"small": "stays"}


async def test_what_keeps_a_twin_is_named_by_the_tenant(milan: Milan) -> None:
    """As far as Kubernetes tells; a text of any length stays short."""
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()
    slow = replica(keys.NAMESPACE_MAP, "milan", keys.NAMESPACE_MAP_FINALIZER)
    await milan.fake.create(keys.NAMESPACE_MAP, slow)
    said = "Some content has finalizers remaining: service.kubernetes.io/load-balancer-cleanup"
    remaining = {"type": "NamespaceFinalizersRemaining", "status": "True", "message": said}
    for number in range(9):
        twin = factories.namespace(f"shop-{number}", **{keys.REMOTE_CLUSTER_ID: "rome"})
        told = {"conditions": [{**remaining, "message": said + "\x1b" + "x" * 9000}]}
        await milan.fake.create(keys.NAMESPACE, twin)
        await milan.fake.patch_status(keys.NAMESPACE, objects.key_of(twin), told)
    other = factories.namespace("shop-turin", **{keys.REMOTE_CLUSTER_ID: "turin"})
    await milan.fake.create(keys.NAMESPACE, other)
    told = {"conditions": [remaining]}
    await milan.fake.patch_status(keys.NAMESPACE, objects.key_of(other), told)
    await end(milan.fake, keys.TENANT, WHERE)

    await milan.reconciler.reconcile(WHERE)

    found = await milan.fake.get_live(keys.TENANT, WHERE)
    assert found
    (ready,) = [one for one in found["status"]["conditions"] if one["type"] == "Ready"]
    assert ready["reason"] == "Leaving"
    assert f"1 are going; namespace shop-0: {said}" in ready["message"]
    assert "and 4 more" in ready["message"]
    assert "turin" not in ready["message"]
    assert "\x1b" not in ready["message"]
    assert len(ready["message"]) < 4096


async def test_who_is_drained_here_is_used_as_before(milan: Milan) -> None:
    """Both clusters offload to each other: our virtual node on the consumer keeps its rights."""
    peer = VirtualNode(name="rome", namespace=SPACE, cluster_id="rome")
    binding = rights.offloaded_namespace(peer, SPACE)
    await milan.fake.create(keys.ROLE_BINDING, binding)
    await milan.fake.create(keys.TENANT, tenant(tenantCondition="Drained"))

    await milan.settle()

    assert await milan.has_rights() == (False, False)
    assert await milan.is_there(keys.ROLE_BINDING, objects.key_of(binding))


async def test_drained_loses_all_and_active_gets_its_rights_back(milan: Milan) -> None:
    await milan.fake.create(keys.TENANT, tenant())
    await milan.settle()
    ledger = {"keeper": "a", "grants": [{"name": "pool", "resources": {"cpu": "1"}}]}
    await milan.fake.patch_status(keys.TENANT, WHERE, {"ledger": ledger})
    await milan.fake.create(keys.RENEW, replica(keys.RENEW, "controlplane-milan"))
    await milan.fake.patch(keys.TENANT, WHERE, {"spec": {"tenantCondition": "Drained"}})
    await milan.settle()
    drained = await milan.has_rights(), await milan.ready()

    await milan.fake.patch(keys.TENANT, WHERE, {"spec": {"tenantCondition": "Active"}})
    await milan.settle()

    assert drained == ((False, False), ("False", "Drained"))
    assert not await milan.is_there(keys.RENEW, Key(SPACE, "controlplane-milan"))
    assert await milan.has_rights() == (True, True)
    found = await there(milan.fake, keys.TENANT, WHERE)
    assert found["status"]["ledger"] == ledger, "who divides what is granted keeps it there"


async def test_cordoned_marks_the_slices_and_active_unmarks_them(milan: Milan) -> None:
    await milan.fake.create(keys.TENANT, tenant(tenantCondition="Cordoned"))
    await milan.fake.create(keys.RESOURCE_SLICE, replica(keys.RESOURCE_SLICE, "pool"))
    where = Key(SPACE, "pool")
    await milan.settle()
    cordoned = objects.annotations(await there(milan.fake, keys.RESOURCE_SLICE, where))
    await milan.fake.patch(keys.TENANT, WHERE, {"spec": {"tenantCondition": "Active"}})

    await milan.settle()

    assert cordoned == {"liqo.io/cordon-tenant": "true"}
    assert objects.annotations(await there(milan.fake, keys.RESOURCE_SLICE, where)) == {}


async def test_a_slice_that_takes_no_mark_keeps_no_other_and_no_certificate(milan: Milan) -> None:
    await milan.fake.create(keys.TENANT, tenant(tenantCondition="Cordoned"))
    for number in range(3):
        await milan.fake.create(SLICE, replica(SLICE, f"p{number}"))
    full = InvalidError("metadata.annotations: Too long: may not be more than 262144 bytes")
    milan.cluster.refuses["patch", str(SLICE), Key(SPACE, "p1")] = full

    with pytest.raises(InvalidError):
        await milan.reconciler.reconcile(WHERE)

    marked = [
        objects.annotations(await there(milan.fake, SLICE, Key(SPACE, f"p{number}")))
        for number in range(3)
    ]
    assert marked == [{keys.CORDON_TENANT: "true"}, {}, {keys.CORDON_TENANT: "true"}]
    assert await milan.ready() == ("True", "TenantReady")
    assert milan.signed() == 1


async def test_without_a_handshake_there_is_a_binding_for_metrics_only(milan: Milan) -> None:
    spec = {"clusterID": "rome", "authzPolicy": "TolerateNoHandshake"}
    labels = {keys.REMOTE_CLUSTER_ID: "rome"}
    await milan.fake.create(
        keys.TENANT, named(keys.TENANT, WHERE, metadata={"labels": labels}, spec=spec)
    )

    await milan.settle()

    assert await milan.ready() == ("True", "TenantReady")
    assert await milan.has_rights() == (False, True)
    assert milan.signed() == 0
