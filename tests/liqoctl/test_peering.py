"""What peers are told and shown, and the end of a peering without the peer."""

import asyncio
import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

from apis import keys, objects
from apis.authentication import AuthParams
from apis.objects import Key, Object, named
from certs import identity, pki
from kube import credentials
from kube.client import ClusterClient
from kube.errors import ForbiddenError
from liqoctl import authentication as auth
from liqoctl import clusters, options, output
from liqoctl import identity as identity_
from liqoctl import peer as peer_
from liqoctl.clusters import Side
from liqoctl.forge import peering as forge
from liqoctl.options import cli
from liqoctl.output import Progress
from tests.fakes import FakeCluster
from tests.kube.running import until

SPACE = "liqo-tenant-milan"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def tenant_status(status: str = "True", *, generation: int = 2, observed: int = 2) -> Object:
    condition = {
        "type": "Ready",
        "status": status,
        "reason": "NameCollision",
        "message": "rolebinding a/b",
        "observedGeneration": observed,
    }
    made = named(keys.TENANT, Key("liqo-tenant-rome", "rome"), spec={"clusterID": "rome"})
    made["metadata"]["generation"] = generation
    shown = {"apiServer": "https://milan:6443"}
    return {**made, "status": {"conditions": [condition], "authParams": shown}}


def test_a_tenant_is_believed_about_what_it_says_now_only() -> None:
    assert forge.is_let_in(tenant_status())
    assert not forge.is_let_in(tenant_status(observed=1))
    assert not forge.is_judged(tenant_status("False", observed=1))
    assert forge.is_judged(tenant_status("False"))
    assert forge.complaint(tenant_status("False")) == "NameCollision: rolebinding a/b"
    assert not forge.is_let_in_now(tenant_status(), NOW)


def test_a_kubeconfig_of_before_is_not_taken_for_the_one_of_a_new_certificate() -> None:
    def secret(certificate: bytes) -> Object:
        data = pki.kubeconfig(
            pki.KubeconfigIdentity(
                name="us", cluster_id="milan", server="https://milan", ca=b"ca",
                certificate=certificate, key=b"key",
            )
        )  # fmt: skip
        encoded = base64.b64encode(data).decode()
        return {"data": {keys.KUBECONFIG_KEY: encoded}}

    assert forge.is_by(secret(b"new"), b"new")
    assert not forge.is_by(secret(b"old"), b"new")
    assert not forge.is_by(None, b"new")


def test_a_tenant_of_liqo_is_believed_by_its_certificate() -> None:
    """Liqo writes no conditions: ``authParams`` for the key that the Tenant names is its yes."""
    key, other = identity.new_key(), identity.new_key()
    ca = pki.new_ca("ca", now=NOW, lifetime=timedelta(days=1))
    csr = pki.new_csr(key, common_name="rome", organizations=["liqo.io"])
    signed = pki.sign(ca, csr, client=True, now=NOW, lifetime=timedelta(hours=1))
    params = AuthParams("https://milan:6443", b"ca", signed).shown()

    def of_liqo(public: bytes, **status: object) -> Object:
        made = tenant_status()
        spec = {"clusterID": "rome", "publicKey": base64.b64encode(public).decode()}
        return {**made, "spec": spec, "status": {"tenantNamespace": "n", **status}}

    accepted = of_liqo(identity.public_key(key), authParams=params)
    assert forge.is_let_in(accepted)
    assert forge.is_let_in_now(accepted, NOW)
    assert not forge.is_let_in_now(accepted, NOW + timedelta(hours=2))
    assert not forge.is_judged(of_liqo(identity.public_key(key)))
    assert not forge.is_judged(of_liqo(identity.public_key(other), authParams=params))
    assert not forge.is_judged(of_liqo(identity.public_key(key), authParams={"signedCRT": "?"}))


def test_a_consumer_names_its_key_by_the_bytes_that_liqo_reads() -> None:
    key = identity.new_key()

    proof = auth.proof_of(key, "rome", b"signature")

    assert proof["publicKey"] == identity.public_key(key)
    assert identity.is_key_of(proof["csr"], proof["publicKey"])


def signed_in(**params: str) -> Object:
    key = Key(SPACE, "controlplane-milan")
    found = AuthParams.parse({"apiServer": "https://milan:6443", "ca": "bWlsYW4=", **params})
    return forge.identity(key, "milan", found, "liqo-tenant-rome", {})


def test_an_identity_names_the_networks_of_the_providers_pods_if_there_are_any() -> None:
    assert "annotations" not in forge.with_networks(signed_in(), "")["metadata"]
    named = forge.with_networks(signed_in(), "10.1.0.0/16")
    assert named["metadata"]["annotations"] == {keys.POD_NETWORKS: "10.1.0.0/16"}


@pytest.mark.parametrize(
    ("params", "is_kept"),
    [
        ({}, False),
        ({"signedCRT": "bmV3"}, False),
        ({"proxyURL": "http://proxy:3128"}, False),
        ({"ca": "bWlsYW4K"}, False),
        ({"apiServer": "https://evil:6443"}, True),
        ({"ca": "ZXZpbA=="}, True),
    ],
    ids=["the same", "a new certificate", "a proxy", "a newline", "another server", "another CA"],
)
def test_a_cluster_that_takes_the_name_of_a_peer_does_not_take_its_place(
    *, params: dict[str, str], is_kept: bool
) -> None:
    """Source: docs/parity.md SEC-B4."""
    why = forge.other_server(signed_in(), signed_in(**params))

    assert bool(why) is is_kept
    assert ("milan is a peer already, at https://milan:6443" in why) is is_kept
    assert ("--replace" in why) is is_kept
    assert forge.other_server(None, signed_in(**params)) == ""


def test_a_tenant_of_another_key_is_another_cluster() -> None:
    key, other = identity.new_key(), identity.new_key()

    def of(public: bytes) -> Object:
        spec = {"clusterID": "rome", "publicKey": base64.b64encode(public).decode()}
        return {**tenant_status(), "spec": spec}

    assert forge.other_key(None, key) == ""
    assert forge.other_key(tenant_status(), key) == ""
    assert forge.other_key(of(identity.public_key(key)), key) == ""
    assert forge.other_key(of(pki.public_key(key)), key) == ""
    assert "--replace" in forge.other_key(of(identity.public_key(other)), key)
    assert "--replace" in forge.other_key(of(b"nonsense"), key)


def test_tables_show_a_line_each_and_nothing_that_moves_the_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = tenant_status("False")
    evil["status"]["conditions"][0]["reason"] = "x\x1b[2Jy"

    output.show(keys.TENANT, [evil], options.Shown(None), is_list=True)

    assert capsys.readouterr().out.splitlines() == [
        "NAME   NAMESPACE          CONDITION   READY   REASON",
        "rome   liqo-tenant-rome   Active      False   x [2Jy",
    ]
    for how, shown in (
        (options.Shown(None, has_head=False), "rome   liqo-tenant-rome   Active   False   x [2Jy"),
        (options.Shown("name"), "tenant.authentication.liqo.io/rome"),
    ):
        output.show(keys.TENANT, [evil], how, is_list=True)
        assert capsys.readouterr().out.splitlines() == [shown]


def test_a_peering_user_is_bound_in_two_namespaces_by_its_own_name() -> None:
    name = forge.user("rome", bytes(16))
    grants = forge.grants("rome", name, "liqo-tenant-rome", "liqo")

    assert name == f"liqo-peer-user-rome-{'0' * 32}"
    assert [objects.key_of(wanted).namespace for _, wanted in grants] == [
        "liqo-tenant-rome",
        "liqo",
    ]
    for _, wanted in grants:
        assert [one["name"] for one in wanted["subjects"]] == [name]
        assert objects.labels(wanted)[keys.REMOTE_CLUSTER_ID] == "rome"


@pytest.fixture
async def rome() -> FakeCluster:
    fake = FakeCluster(strict=True)
    await fake.create(keys.NAMESPACE, forge.tenant_namespace("milan"))
    peer = {keys.REPLICATION: "true", keys.REMOTE_ID: "milan"}
    theirs = {keys.REPLICATED: "true", keys.REMOTE_ID: "rome", keys.ORIGIN_ID: "milan"}
    for name, labels in (("milan", peer), ("rome", theirs)):
        made = named(keys.NAMESPACE_MAP, Key(SPACE, name), metadata={"labels": labels})
        await fake.create(keys.NAMESPACE_MAP, made)
    current = {"shop": {"remoteNamespace": "shop-rome", "phase": "Accepted"}}
    await fake.patch_status(keys.NAMESPACE_MAP, Key(SPACE, "milan"), {"currentMapping": current})
    made = named(keys.RESOURCE_SLICE, Key(SPACE, "milan"), metadata={"labels": peer})
    await fake.create(keys.RESOURCE_SLICE, made)
    node = named(keys.VIRTUAL_NODE, Key(SPACE, "milan"), spec={"clusterID": "milan"})
    await fake.create(keys.VIRTUAL_NODE, node)
    return fake


def side(fake: FakeCluster) -> Side:
    return Side(cast("ClusterClient", fake), Progress())


async def test_a_peer_is_given_up_without_asking_it_and_what_it_keeps_is_listed(
    rome: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await peer_.force(side(rome), "milan")

    given_up = await rome.get_live(keys.FOREIGN_CLUSTER, Key("", "milan"))
    assert objects.annotations(given_up or {"metadata": {}}) == {
        "liqo.io/foreign-cluster-permanently-unreachable": "true"
    }
    left = [str(kind) for kind, key in rome.everything() if key.namespace == SPACE]
    assert left == []
    assert "namespaces shop-rome" in " ".join(capsys.readouterr().err.split())


async def test_where_the_peer_uses_this_cluster_too_its_namespace_stays(rome: FakeCluster) -> None:
    theirs = named(keys.TENANT, Key(SPACE, "milan"), spec={"clusterID": "milan"})
    await rome.create(keys.TENANT, theirs)

    await peer_.force(side(rome), "milan")

    left = {(str(kind), key.name) for kind, key in rome.everything() if key.namespace == SPACE}
    assert left == {("namespacemap", "rome"), ("tenant", "milan")}


async def test_peering_again_takes_it_back_that_a_peer_was_given_up(rome: FakeCluster) -> None:
    await peer_.force(side(rome), "milan")

    await peer_.revive(side(rome), "milan")

    found = await rome.get_live(keys.FOREIGN_CLUSTER, Key("", "milan"))
    assert objects.annotations(found or {"metadata": {}}) == {}


async def test_a_cluster_does_not_peer_with_itself() -> None:
    fake = FakeCluster()
    data = {keys.CLUSTER_ID_KEY: "rome"}
    key = Key("liqo", keys.CLUSTER_ID_CONFIG_MAP)
    await fake.create(keys.CONFIG_MAP, named(keys.CONFIG_MAP, key, data=data))

    with pytest.raises(click.ClickException, match="cannot peer with itself"):
        await auth.meet(side(fake), side(fake))


@pytest.mark.parametrize("named_in", ["for-rome", "", "of-somebody-else"])
async def test_a_peering_user_knows_its_namespace_by_its_kubeconfig(named_in: str) -> None:
    """It may not list namespaces, nor get those of others."""
    fake = cast("Any", FakeCluster())
    fake.access = replace(credentials.plain("http://127.0.0.1:1"), namespace=named_in)
    name = named_in if named_in == "for-rome" else "liqo-tenant-rome"
    made = named(
        keys.NAMESPACE, Key("", name), metadata={"labels": {keys.REMOTE_CLUSTER_ID: "rome"}}
    )
    await fake.create(keys.NAMESPACE, made)
    fake.fail("list", ForbiddenError("no"), kind=keys.NAMESPACE)
    if named_in == "of-somebody-else":
        fake.fail("get", ForbiddenError("no"), kind=keys.NAMESPACE)

    assert await auth.tenant_namespace(fake, "rome") == name


async def test_the_identity_of_a_tenant_just_applied_waits_for_the_verdict() -> None:
    fake = FakeCluster()
    name = named(
        keys.CONFIG_MAP, Key("liqo", keys.CLUSTER_ID_CONFIG_MAP), data={"CLUSTER_ID": "milan"}
    )
    await fake.create(keys.CONFIG_MAP, name)
    await fake.create(keys.NAMESPACE, forge.tenant_namespace("rome"))
    where = Key("liqo-tenant-rome", "rome")
    applied = await fake.create(keys.TENANT, named(keys.TENANT, where, spec={"clusterID": "rome"}))
    refused = tenant_status("False", observed=applied["metadata"].get("generation"))["status"]
    refused["authParams"] = {}

    asked = asyncio.create_task(identity_.identity(side(fake), "rome", ""))
    async with asyncio.timeout(300):
        while not fake.requests["watch", "tenants"]:
            assert not asked.done()
            await asyncio.sleep(0)
        await fake.patch_status(keys.TENANT, where, refused)

        with pytest.raises(click.ClickException, match="NameCollision: rolebinding a/b"):
            await asked


@pytest.mark.parametrize("is_refused_again", [False, True])
async def test_what_was_refused_before_is_judged_anew(
    monkeypatch: pytest.MonkeyPatch, *, is_refused_again: bool
) -> None:
    """After an installation the controllers before it may have refused the Tenant."""
    rome, milan = FakeCluster(), FakeCluster()
    await rome.create(keys.NAMESPACE, forge.tenant_namespace("milan"))
    await milan.create(keys.NAMESPACE, forge.tenant_namespace("rome"))
    where, text = Key("liqo-tenant-rome", "rome"), "rome.milan"
    data = {"nonce": base64.b64encode(text.encode()).decode()}
    await milan.create(keys.SECRET, {**forge.nonce(where.namespace, "rome"), "data": data})
    signed = {**data, "signedNonce": base64.b64encode(b"signed").decode()}
    held = {**forge.signed_nonce(SPACE, "milan", text), "data": signed}
    await rome.create(keys.SECRET, held)
    private = {"privateKey": base64.b64encode(identity.new_key()).decode()}
    own = Key("liqo", keys.AUTHENTICATION_KEYS)
    await rome.create(keys.SECRET, named(keys.SECRET, own, data=private))
    peers = auth.PeerClusters(side(rome), side(milan), "rome", "milan")

    first = asyncio.create_task(auth.let_in(peers, auth.AS_USUAL))
    await until(lambda: milan.requests["watch", "tenants"] == 1)
    made = (await milan.get_live(keys.TENANT, where) or {})["metadata"]["generation"]
    status = tenant_status("False", observed=made)["status"]
    await milan.patch_status(keys.TENANT, where, {**status, "authParams": None})
    with pytest.raises(click.ClickException, match="NameCollision"):
        await first
    if is_refused_again:
        monkeypatch.setattr(auth, "AGAIN_S", 0.05)
        with pytest.raises(click.ClickException, match="NameCollision"):
            await auth.let_in(peers, auth.AS_USUAL)
        return

    again = asyncio.create_task(auth.let_in(peers, auth.AS_USUAL))
    await until(lambda: milan.requests["watch", "tenants"] == 2)
    await milan.patch_status(keys.TENANT, where, tenant_status(observed=made)["status"])
    assert forge.is_let_in(await again)


async def test_a_command_that_takes_too_long_says_for_what_it_waited(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = FakeCluster(strict=True)
    here, where = side(fake), Key(SPACE, "milan")

    with pytest.raises(click.ClickException, match="the same command goes on from here"):
        async with clusters.within(timedelta(milliseconds=50).total_seconds(), "peering"):
            await clusters.until(
                here, keys.TENANT, where, lambda found: found is not None, what="a tenant"
            )

    assert "still waiting for a tenant" in capsys.readouterr().err


async def test_a_removal_is_waited_for_as_long_as_something_of_it_changes() -> None:
    fake, where, pace_s = FakeCluster(), Key(SPACE, "milan"), 0.2
    kept = named(keys.VIRTUAL_NODE, where, metadata={"finalizers": ["x.io/y"]}, spec={})
    await fake.create(keys.VIRTUAL_NODE, kept)

    async def drain() -> None:
        for left in range(10, 0, -1):
            await asyncio.sleep(pace_s)
            await fake.patch_status(keys.VIRTUAL_NODE, where, {"left": left})
        await fake.patch(keys.VIRTUAL_NODE, where, {"metadata": {"finalizers": None}})

    draining = asyncio.create_task(drain())
    async with clusters.within(8 * pace_s, "unpeering"):
        await clusters.remove(side(fake), keys.VIRTUAL_NODE, where)

    await draining


@pytest.mark.parametrize(
    "args",
    [
        ("peer",),
        ("unpeer",),
        ("authenticate",),
        ("unpeer", "--force"),
        ("create", "nonce"),
        ("generate", "tenant"),
        ("generate", "peering-user"),
        ("delete", "tenant"),
        ("force", "unpeer"),
    ],
)
def test_what_is_missing_is_said(args: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, list(args))

    assert done.exit_code == 2
    assert "Usage:" in done.output


def test_the_end_of_a_peering_is_asked_for_twice() -> None:
    done = CliRunner().invoke(cli, ["unpeer", "--remote-kubeconfig", "milan"], input="n\n")

    assert done.exit_code == 1
    assert "End the peering? Pods on the provider end" in done.output


GATEWAYS = {
    "--gw-client-address": "192.0.2.1",
    "--gw-client-port": "51840",
    "--gw-server-service-loadbalancerip": "192.0.2.1",
    "--gw-server-service-location": "Provider",
    "--gw-server-service-nodeport": "0",
    "--gw-server-service-port": "51840",
    "--gw-server-service-type": "LoadBalancer",
    "--mtu": "1340",
}
"""Values that it has by default are refused as well: nothing would follow from them."""
BY_PROXY, BY_FABRIC = "say --proxy-url instead", "run the controllers of both with --ip-fabric"


@pytest.mark.parametrize(
    ("command", "flags", "cure"),
    [
        ("authenticate", ("--in-band",), BY_PROXY),
        ("peer", ("--in-band",), BY_PROXY),
        *(("peer", given, BY_FABRIC) for given in GATEWAYS.items()),
    ],
)
def test_what_is_of_the_network_of_liqo_is_refused_with_the_cure(
    command: str, flags: tuple[str, ...], cure: str
) -> None:
    done = CliRunner().invoke(cli, [command, "--remote-kubeconfig", "milan", *flags])

    assert done.exit_code == 2
    told = " ".join(done.output.split())
    assert f"'{flags[0]}': is of Liqo's network between the clusters" in told
    assert cure in told


ESCAPES = "\x1b]0;all is well\x07\x1b[2J\x9b2J\u202egnp\r"


async def test_what_another_cluster_wrote_moves_no_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In steps, warnings and tables."""
    said = ESCAPES + "\nINFO  tenant rome: let in"
    progress = Progress()
    progress.info(said)
    progress.warning(said)
    with progress.waiting(said):
        pass
    output.table([("TENANT", "POLICY"), ("rome", said)])
    output.echo(said)

    printed = capsys.readouterr()
    told = printed.out + printed.err
    assert all(char.isprintable() or char == "\n" for char in told)
    assert "tenant rome: let in" in told
    assert [line[:4] for line in printed.err.splitlines()] == ["INFO", "WARN"]
    assert len(printed.out.splitlines()) == 4


def test_an_error_in_the_words_of_another_cluster_moves_no_cursor() -> None:
    @click.command(cls=options.Command)
    def fail() -> None:
        raise click.ClickException(f"tenant rome: {ESCAPES}")

    group = options.Group(commands={"fail": fail})

    result = CliRunner().invoke(group, ["fail"])

    assert result.exit_code == 1
    assert "tenant rome" in result.output
    assert all(char.isprintable() or char == "\n" for char in result.output)
