"""Offloaded pods reach the API server of their own cluster with tokens of their own account."""

import asyncio
import base64
import datetime as dt
from typing import Any, Final

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Object
from kube import clock, errors
from kube.cluster import Cluster
from kubelet.forge import accounts
from kubelet.forge.accounts import ApiServer
from tests import factories
from tests.fakes import FakeCluster
from tests.kubelet.worlds import World, named_condition, running

TOKEN: Final = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
OTHER: Final = {"serviceAccountToken": {"path": "vault", "audience": "vault"}}
ROOT_CA: Final = {"configMap": {"name": "kube-root-ca.crt"}}
SPACE: Final = {
    "downwardAPI": {
        "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
    }
}
VOLUME: Final = {"name": "api", "projected": {"sources": [TOKEN, ROOT_CA, SPACE]}}
SECRET: Final = Key("shop-rome", "web-token")


@pytest.fixture
async def served(fake_world: World) -> World:
    fake_world.api_server = ApiServer(is_supported=True, host="api.rome", port=6443)
    fake_world.restart()
    account = objects.named(keys.SERVICE_ACCOUNT, Key("shop", "robot"))
    await fake_world.local.create(keys.SERVICE_ACCOUNT, account)
    return fake_world


def spec(**rest: Any) -> Object:
    return {"serviceAccountName": "robot", "volumes": [VOLUME], **rest}


async def secret(world: World) -> Object:
    found = await world.remote.get(keys.SECRET, SECRET)
    assert found
    return found


async def test_tokens_lie_on_the_provider_and_are_mounted_there(served: World) -> None:
    await served.bound(spec=spec())
    await served.reconcile()

    shadow = await served.shadow()
    assert shadow
    sources = shadow["spec"]["pod"]["volumes"][0]["projected"]["sources"]
    items = [one["secret"] for one in sources if "secret" in one]
    assert [one["name"] for one in items] == ["web-token", "web-token"]
    assert [one["items"][0]["path"] for one in items] == ["token", "namespace"]
    assert sources[1]["configMap"]["name"] == "kube-root-ca.crt.rome"
    made = await secret(served)
    assert made["stringData"][items[0]["items"][0]["key"]].startswith("token-of-shop-robot")
    assert made["stringData"]["namespace"] == "shop"
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"]) == ("ShadowPod", objects.uid(shadow))
    env = {one["name"]: one["value"] for one in shadow["spec"]["pod"]["containers"][0]["env"]}
    assert env["KUBERNETES_SERVICE_HOST"] == "api.rome"
    assert env["KUBERNETES_PORT_6443_TCP"] == "tcp://api.rome:6443"
    assert shadow["spec"]["pod"]["automountServiceAccountToken"] is False
    assert served.writes() == (1, 2), "a token here, a ShadowPod and a Secret there"


async def test_a_container_says_itself_where_its_api_server_is(served: World) -> None:
    own = {"name": "KUBERNETES_SERVICE_HOST", "value": "mine"}
    account = {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}}
    main = {"name": "main", "image": "nginx", "env": [own, account]}
    await served.bound(spec=spec(containers=[main]))
    await served.reconcile()

    shadow = await served.shadow()
    assert shadow
    env = shadow["spec"]["pod"]["containers"][0]["env"]
    assert env[:2] == [own, {"name": "WHO", "value": "robot"}]
    assert [one["name"] for one in env].count("KUBERNETES_SERVICE_HOST") == 1


async def test_without_a_host_that_all_know_the_api_server_is_found_through_the_fabric(
    served: World,
) -> None:
    served.api_server = ApiServer(is_supported=True, addresses=("10.70.0.1",))
    own = {"ip": "10.1.2.3", "hostnames": ["mine"]}
    await served.bound(spec=spec(hostAliases=[own]))
    await served.reconcile()

    shadow = await served.shadow()
    assert shadow
    names = ["kubernetes.default", "kubernetes.default.svc"]
    made = shadow["spec"]["pod"]
    assert made["hostAliases"] == [own, {"ip": "10.70.0.1", "hostnames": names}]
    env = {one["name"]: one["value"] for one in made["containers"][0]["env"]}
    assert env["KUBERNETES_SERVICE_HOST"] == "kubernetes.default"
    assert env["KUBERNETES_PORT_443_TCP"] == "tcp://kubernetes.default:443"


async def test_each_token_is_asked_for_with_its_audience_and_bound_to_the_pod(
    served: World,
) -> None:
    both = {"name": "api", "projected": {"sources": [TOKEN, OTHER]}}
    asked: list[Object] = []
    post = served.local.post

    async def noted(kind: Any, key: Key, subresource: str, body: Object) -> Object:
        asked.append(body["spec"])
        return await post(kind, key, subresource, body)

    served.local.post = noted  # type: ignore[method-assign]  # to look at what is asked
    local = await served.bound(spec=spec(volumes=[both]))
    await served.reconcile()

    audiences = [one.get("audiences") for one in asked]  # side by side, in any order
    assert sorted(audiences, key=bool) == [None, ["vault"]]
    assert {one["boundObjectRef"]["uid"] for one in asked} == {objects.uid(local)}
    assert len((await secret(served))["stringData"]) == 3


async def test_tokens_are_asked_for_anew_before_they_expire(served: World) -> None:
    assert isinstance(served.local, FakeCluster)
    served.now = dt.datetime.now(dt.UTC)  # noqa: TID251  # as the fake, which dates tokens
    await served.offloaded(spec=spec())
    first = await secret(served)
    again_s = await served.reconcile()
    assert again_s is not None
    assert 2700 < again_s < 3000
    assert served.local.requests["post", "serviceaccounts"] == 1

    served.restart()
    await served.reconcile()
    assert served.local.requests["post", "serviceaccounts"] == 1, "the Secret says when"

    served.now += dt.timedelta(seconds=again_s + 1)
    await served.reconcile()
    second = await secret(served)
    assert first["stringData"] != second["stringData"]
    assert served.local.requests["post", "serviceaccounts"] == 2


async def test_without_a_token_the_pod_runs_all_the_same_and_says_so(served: World) -> None:
    assert isinstance(served.local, FakeCluster)
    served.local.fail("post", errors.ForbiddenError("no tokens for you"), times=9)

    await served.offloaded(running(), spec=spec())

    assert named_condition(await served.status(), "Ready")["status"] == "True"
    assert ("Warning", "FailedSATokensReflection") in served.recorder.told
    served.local.heal()
    served.now += dt.timedelta(seconds=60)
    await served.reconcile()
    assert await secret(served)
    assert served.recorder.told.count(("Normal", "SuccessfulSATokensReflection")) == 1


@pytest.mark.parametrize("granted_s", [600, 3600, 86400])
def test_what_was_granted_says_when_and_pods_do_not_come_together(granted_s: int) -> None:
    now = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    expires = now + dt.timedelta(seconds=granted_s)
    pods = [factories.pod("shop", f"web-{n}", metadata={"uid": f"{n}"}) for n in range(50)]

    shares = [(accounts.renewed_from(pod, expires, now) - now).total_seconds() for pod in pods]

    assert all(abs(share - 0.8 * granted_s) <= 30 for share in shares)
    assert len(set(shares)) > len(pods) / 2


async def test_a_secret_that_went_is_made_anew_with_the_pod_on_the_provider(served: World) -> None:
    served.now = dt.datetime.now(dt.UTC)  # noqa: TID251  # as the fake, which dates tokens
    await served.offloaded(running(), spec=spec())
    await served.reconcile()
    found, pod = await secret(served), await served.remote_pod()
    assert pod
    await served.remote.delete(keys.SECRET, SECRET, uid=objects.uid(found))
    await served.remote.delete(keys.POD, served.twin, uid=objects.uid(pod), grace_s=0)
    await served.run_remotely(running())
    await served.reconcile()

    assert objects.uid(await secret(served)) != objects.uid(found)


@pytest.mark.parametrize("mode", ["disabled", "remote"])
async def test_who_wants_no_token_of_home_gets_none(served: World, mode: str) -> None:
    metadata = {"annotations": {keys.API_SERVER_SUPPORT: mode}}
    await served.bound(spec=spec(), metadata=metadata)
    await served.reconcile(2)

    assert await served.remote.get(keys.SECRET, SECRET) is None


async def test_a_secret_of_somebody_else_is_left_alone(served: World) -> None:
    theirs = objects.named(keys.SECRET, SECRET, data={"a": base64.b64encode(b"x").decode()})
    made = await served.remote.create(keys.SECRET, theirs)

    await served.offloaded(spec=spec())

    assert await secret(served) == made
    assert ("Warning", "FailedSATokensReflection") in served.recorder.told


async def whose(cluster: Cluster, token: str, *audiences: str) -> Object:
    """Return what the API server says of ``token``."""
    asked = {"token": token, "audiences": list(audiences)}
    review = objects.named(keys.TOKEN_REVIEW, Key("", ""), spec=asked)
    made = await cluster.create(keys.TOKEN_REVIEW, review)
    status: Object = made["status"]
    return status


def decoded(found: Object) -> dict[str, str]:
    return {name: base64.b64decode(text).decode() for name, text in found["data"].items()}


@pytest.mark.parametrize(
    "cluster", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True
)
async def test_a_real_api_server_knows_its_tokens_and_they_end_with_the_pod(world: World) -> None:
    world.api_server, world.now = ApiServer(is_supported=True), clock.now()
    world.restart()
    account = Key(world.web.namespace, "robot")
    both = {"name": "api", "projected": {"sources": [TOKEN, OTHER]}}
    await world.offloaded(running(), spec=spec(volumes=[both]))
    where = Key(world.twin.namespace, "web-token")
    assert await world.remote.get_live(keys.SECRET, where) is None
    told = [one for one in world.recorder.messages if "service account robot" in one]
    assert told, "an account that is not there is told"

    await world.local.create(keys.SERVICE_ACCOUNT, objects.named(keys.SERVICE_ACCOUNT, account))
    world.now += dt.timedelta(seconds=60)
    again_s = await world.reconcile()
    first = await world.remote.get_live(keys.SECRET, where)
    assert first
    assert again_s
    world.now += dt.timedelta(hours=1)
    await world.reconcile()
    second = await world.remote.get_live(keys.SECRET, where)
    assert second

    old, new = decoded(first), decoded(second)
    assert objects.uid(first) == objects.uid(second)
    assert old.keys() == new.keys()
    assert {name for name in old if old[name] == new[name]} == {"namespace"}
    ours, vault = (naming.token_key("api", path) for path in ("token", "vault"))
    for token, audience in ((new[ours], []), (new[vault], ["vault"])):
        said = await whose(world.local, token, *audience)
        assert said["authenticated"], said
        user = f"system:serviceaccount:{account.namespace}:robot"
        assert said["user"]["username"] == user
        assert said["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["web"]
    assert not (await whose(world.local, new[vault])).get("authenticated"), "of another audience"
    pod = await world.pod()
    assert pod
    await world.local.delete(keys.POD, world.web, uid=objects.uid(pod), grace_s=0)
    async with asyncio.timeout(300):  # not at once: the API server looks into a cache
        while (await whose(world.local, old[ours])).get("authenticated"):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
