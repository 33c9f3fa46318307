"""Which server and proxy a provider may announce at peering. Source: docs/parity.md H19, SEC-B4."""

import sys
from types import SimpleNamespace
from typing import cast

import click
import pytest

from apis import keys
from apis.objects import Key, Object, named
from kube.client import ClusterClient
from liqoctl import authentication as auth
from liqoctl.authentication import Authentication, PeerClusters
from liqoctl.clusters import Side
from liqoctl.forge import peering
from liqoctl.forge.peering import Consumer, Entrance, Verdict
from liqoctl.output import Progress
from tests import factories
from tests.fakes import FakeCluster

ANNOUNCED = factories.table("announced_servers")
KNOWN = "https://milan.example:6443"
SPACE = "liqo-tenant-milan"
OWN = Consumer(
    Entrance(KNOWN, "http://proxy.example:3128"),
    Entrance(""),
    own=frozenset({"203.0.113.7", "2001:db8::7", "10.96.0.1"}),
    networks=("10.244.0.0/24", "10.96.0.0/12", "fd00::/64", "no network"),
    resolved={
        "rebinds.example": ["203.0.113.9", "127.0.0.1"],
        "inside.example": ["10.244.0.9"],
        "fine.example": ["203.0.113.9"],
    },
)


@pytest.mark.parametrize(
    ("server", "proxy", "verdict"),
    [(*row, Verdict[verdict]) for verdict, rows in ANNOUNCED.items() for row in rows],
)
def test_what_is_announced_is_judged(server: str, proxy: str, verdict: Verdict) -> None:
    assert peering.judge(Entrance(server, proxy), OWN).verdict is verdict


def test_what_the_kubeconfig_names_passes_whatever_it_is() -> None:
    """All test planes are on loopback; tunnels of administrators are, too."""
    here = Entrance("https://127.0.0.1:6443", "http://10.96.0.10:3128")

    assert peering.judge(here, Consumer(here, Entrance(""), own=frozenset({"127.0.0.1"}))) == (
        Verdict.OK, "", "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("server", "verdict"),
    [
        ("https://203.0.113.9:6443", Verdict.OK),
        ("https://10.96.0.10:443", Verdict.OK),
        ("https://10.244.0.9:443", Verdict.OK),
        ("https://10.96.0.1:443", Verdict.REFUSE),
        ("https://127.0.0.1:6443", Verdict.REFUSE),
        ("https://169.254.169.254", Verdict.REFUSE),
    ],
)
def test_a_flag_names_services_of_the_consumer_and_never_its_machines(
    server: str, verdict: Verdict
) -> None:
    named_ = Consumer(OWN.kubeconfig, Entrance(server, "http://10.96.0.10:3128"), OWN.own,
                      OWN.networks)  # fmt: skip

    found = peering.judge(Entrance(server, "http://10.96.0.10:3128"), named_)

    assert found.verdict is verdict


class StoringRome(FakeCluster):
    """A cluster, and where its kubeconfig leads."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self.access = SimpleNamespace(server=server, proxy="")


async def peers() -> PeerClusters:
    rome, milan = StoringRome("https://rome.example:6443"), StoringRome(KNOWN)
    node = named(keys.NODE, Key("", "n"), spec={"podCIDRs": ["10.244.0.0/24"]})
    await rome.create(keys.NODE, node)
    addresses = [{"type": "InternalIP", "address": "203.0.113.7"}]
    await rome.patch_status(keys.NODE, Key("", "n"), {"addresses": addresses})
    service = {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"]}
    await rome.create(keys.SERVICE, named(keys.SERVICE, Key("default", "kubernetes"), spec=service))
    labels = {keys.REMOTE_CLUSTER_ID: "milan", keys.TENANT_NAMESPACE: "true"}
    space = named(keys.NAMESPACE, Key("", SPACE), metadata={"labels": labels})
    await rome.create(keys.NAMESPACE, space)
    here, there = (Side(cast("ClusterClient", each), Progress()) for each in (rome, milan))
    return PeerClusters(here, there, "rome", "milan")


def announced_tenant(server: str, proxy: str = "") -> Object:
    made = named(keys.TENANT, Key("liqo-tenant-rome", "rome"), spec={"clusterID": "rome"})
    params = {"apiServer": server, "proxyURL": proxy}
    return {**made, "status": {"tenantNamespace": "liqo-tenant-rome", "authParams": params}}


async def stored_secrets(of: PeerClusters) -> list[Object]:
    everything = cast("StoringRome", of.consumer.cluster).everything()
    return [one for (kind, _), one in everything.items() if kind == keys.IDENTITY]


@pytest.mark.parametrize("server", ["https://10.96.0.1:443", "https://10.244.0.3:6443"])
async def test_a_provider_that_announces_another_server_and_proxy_is_refused(server: str) -> None:
    """The row: both servers are named, and nothing is stored."""
    both = await peers()
    evil = announced_tenant(server, "http://169.254.169.254:80")

    with pytest.raises(click.ClickException, match="refused") as refused:
        await auth.sign_in(both, evil, Authentication(wait=False))

    assert server in refused.value.message
    assert KNOWN in refused.value.message
    assert await stored_secrets(both) == []


async def test_without_a_terminal_the_flag_to_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    both, other = await peers(), "https://203.0.113.9:6443"

    with pytest.raises(click.UsageError) as asked:
        await auth.sign_in(both, announced_tenant(other), Authentication(wait=False))

    assert asked.value.exit_code == 2
    assert f"--provider-server={other}" in asked.value.message
    assert KNOWN in asked.value.message
    assert await stored_secrets(both) == []

    named_ = Authentication(wait=False, provider_server=other)
    await auth.sign_in(both, announced_tenant(other), named_)
    await auth.sign_in(both, announced_tenant(other), Authentication(wait=False))  # as before
    assert len(await stored_secrets(both)) == 1


@pytest.mark.parametrize(("said", "count"), [("y", 1), ("n", 0)])
async def test_at_a_terminal_the_administrator_is_asked(
    monkeypatch: pytest.MonkeyPatch, said: str, count: int
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(click, "confirm", lambda _, **__: said == "y" or _abort())
    both = await peers()
    told = announced_tenant("https://203.0.113.9:6443")

    if said == "y":
        await auth.sign_in(both, told, Authentication(wait=False))
    else:
        with pytest.raises(click.Abort):
            await auth.sign_in(both, told, Authentication(wait=False))

    assert len(await stored_secrets(both)) == count


def _abort() -> bool:
    raise click.Abort
