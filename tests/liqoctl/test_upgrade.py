"""What is taken back at the end of an upgrade, and what is waited for before."""

import asyncio
from typing import Any, Final, cast

import pytest

from apis import keys
from apis.objects import Key, Object, named
from controllers.authentication.tenantrights import forge as tenantrights
from kube.client import ClusterClient
from kube.cluster import Selection
from liqoctl import install
from liqoctl.clusters import Side
from liqoctl.forge import manifests
from liqoctl.output import Progress
from tests import factories
from tests.fakes import FakeCluster

PEER: Final = {keys.REMOTE_CLUSTER_ID: "milan"}
TENANT: Final = {keys.TENANT_NAMESPACE: "true", **PEER}
ROLE: Final = Key("", "liqo-controller-manager")
ACCOUNT: Final = Key(keys.LIQO_NAMESPACE, keys.CONTROLLER_MANAGER)


def rule(*verbs: str) -> Object:
    return {"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)}


def role(*rules: Object) -> Object:
    return {**named(keys.CLUSTER_ROLE, ROLE, rules=list(rules)), "kind": keys.CLUSTER_ROLE.kind}


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        (None, [rule("get")]),
        (role(rule("get")), [rule("get")]),
        (role(rule("create"), rule("get")), [rule("get"), rule("create")]),
    ],
    ids=["new", "same", "narrowed"],
)
async def test_a_role_keeps_what_it_allows_until_nobody_needs_it(
    found: Object | None, allowed: list[Object]
) -> None:
    cluster = FakeCluster()
    if found:
        await cluster.create(keys.CLUSTER_ROLE, found)
    wanted, other = role(rule("get")), factories.config_map()

    applied = await install.widened(cluster, [wanted, other])

    assert applied[0]["rules"] == allowed
    assert (applied[0] is wanted) is (allowed == wanted["rules"])
    assert applied[1] is other


def outdated_namespaces() -> dict[str, Object]:
    twin = factories.namespace("twin", **PEER)
    twin["metadata"]["annotations"] = {keys.MANAGED_BY_NAMESPACE_MAP: "liqo-tenant-milan/rome"}
    return {
        "users": factories.namespace("users"),
        "like a twin": factories.namespace("like-a-twin", **PEER),
        "twin": twin,
        "tenant": factories.namespace("tenant", **TENANT),
    }


@factories.cases("name, is_going, is_opened")
def test_where_the_controllers_need_to_be_bound(
    name: str, *, is_going: bool, is_opened: bool
) -> None:
    space = outdated_namespaces()[name]
    if is_going:
        space["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert manifests.is_opened(space) is is_opened


class Looked(FakeCluster):
    """Tells when somebody has looked at the bindings, and seen none."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = asyncio.Event()

    async def list(self, of: Selection[Any]) -> Any:
        found = await super().list(of)
        if of.kind == keys.ROLE_BINDING:
            self.looked.set()
        return found


async def test_it_waits_until_the_controllers_have_bound_themselves() -> None:
    cluster = Looked()
    space = await cluster.create(keys.NAMESPACE, outdated_namespaces()["tenant"])
    waiting = asyncio.create_task(
        install.until_bound(Side(cast("ClusterClient", cluster), Progress()))
    )
    await cluster.looked.wait()
    assert not waiting.done()

    await cluster.create(keys.ROLE_BINDING, tenantrights.binding(space, ACCOUNT))

    await asyncio.wait_for(waiting, 300)


async def test_where_they_are_refused_it_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "BOUND_S", 0.01)
    cluster = FakeCluster()
    await cluster.create(keys.NAMESPACE, outdated_namespaces()["twin"])

    await install.until_bound(Side(cast("ClusterClient", cluster), Progress()))

    said = " ".join("".join(capsys.readouterr()).split())
    assert "the controllers have no rights in these namespaces: twin" in said
