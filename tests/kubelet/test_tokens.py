"""Offloaded pods reach the API server of their own cluster with tokens of their own account."""

import asyncio
import base64
import datetime as dt
import json
from typing import Any, Final

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Object
from kube import clock, errors
from kube.cluster import Cluster
from kubelet.pods import apiserver
from kubelet.pods.apiserver import ApiServer
from tests import factories
from tests.fakes import FakeCluster
from tests.kubelet.worlds import World, ended, named_condition, running
from tests.world import existing

TOKEN: Final = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
OTHER: Final = {"serviceAccountToken": {"path": "vault", "audience": "vault"}}
ROOT_CA: Final = {"configMap": {"name": "kube-root-ca.crt"}}
SPACE: Final = {
    "downwardAPI": {
        "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
    }
}
VOLUME: Final = {"name": "api", "projected": {"sources": [TOKEN, ROOT_CA, SPACE]}}
SLACK_S: Final = 10
"""Between what a token says of when it was issued and of when it ends."""
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


async def token_secret(world: World) -> Object:
    return await existing(world.remote, keys.SECRET, SECRET)


async def test_tokens_lie_on_the_provider_and_are_mounted_there(served: World) -> None:
    await served.bound(spec=spec())
    await served.reconcile()

    shadow = await served.shadow()
    sources = shadow["spec"]["pod"]["volumes"][0]["projected"]["sources"]
    items = [one["secret"] for one in sources if "secret" in one]
    assert [one["name"] for one in items] == ["web-token", "web-token"]
    assert [one["items"][0]["path"] for one in items] == ["token", "namespace"]
    assert sources[1]["configMap"]["name"] == "kube-root-ca.crt.rome"
    made = await token_secret(served)
    assert made["stringData"][items[0]["items"][0]["key"]].startswith("token-of-shop-robot")
    assert made["stringData"]["namespace"] == "shop"
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"]) == ("ShadowPod", objects.uid(shadow))
    env = {one["name"]: one["value"] for one in shadow["spec"]["pod"]["containers"][0]["env"]}
    assert env["KUBERNETES_SERVICE_HOST"] == "api.rome"
    assert env["KUBERNETES_PORT_6443_TCP"] == "tcp://api.rome:6443"
    assert shadow["spec"]["pod"]["automountServiceAccountToken"] is False
    assert served.writes() == (1, 2), "a token here, a ShadowPod and a Secret there"


async def test_what_it_reads_of_itself_beside_a_token_holds_at_home(served: World) -> None:
    def field(path: str) -> Object:
        return {"fieldRef": {"fieldPath": path}}

    names = ("metadata.uid", "spec.nodeName", "metadata.namespace", "metadata.name")
    env = [{"name": name, "valueFrom": field(name)} for name in names]
    main = {"name": "main", "image": "nginx", "env": env}
    uid = {"path": "uid", **field("metadata.uid")}
    space = {"path": "namespace", **field("metadata.namespace")}
    beside = {
        "name": "api",
        "projected": {"sources": [TOKEN, {"downwardAPI": {"items": [uid, space]}}]},
    }
    alone = {"name": "me", "downwardAPI": {"items": [uid, space]}}
    local = await served.bound(spec=spec(containers=[main], volumes=[beside, alone]))
    await served.reconcile(2)

    shadow = await served.shadow()
    made = shadow["spec"]["pod"]
    read = {one["name"]: one for one in made["containers"][0]["env"]}
    assert read["metadata.uid"] == {"name": "metadata.uid", "value": objects.uid(local)}
    assert read["spec.nodeName"] == {"name": "spec.nodeName", "value": "milan"}
    assert [read[name] for name in names[2:]] == env[2:], "these are the remote Pod's"
    noted = {"path": "uid", **field("metadata.annotations['pyliqo.io/local-pod-uid']")}
    assert shadow["metadata"]["annotations"]["pyliqo.io/local-pod-uid"] == objects.uid(local)
    assert made["volumes"][0]["projected"]["sources"][1:] == [
        {"downwardAPI": {"items": [noted]}},
        {"secret": {"name": "web-token", "items": [{"key": "namespace", "path": "namespace"}]}},
    ]
    assert made["volumes"][1]["downwardAPI"]["items"] == [noted, space]
    assert served.writes() == (1, 2), "as without"


@factories.cases("of_pod, of_namespace, is_local")
async def test_its_namespace_is_the_consumers_if_pod_or_namespace_says_so(
    fake_world: World, of_pod: str, of_namespace: str, *, is_local: bool
) -> None:
    def notes(said: str) -> Object:
        return {"annotations": {keys.DOWNWARD_NAMESPACE: said}} if said else {}

    fake_world.offloading = {"metadata": notes(of_namespace)}
    reference = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    main = {"name": "main", "image": "nginx", "env": [{"name": "NS", "valueFrom": reference}]}
    files = {"name": "me", "downwardAPI": {"items": [{"path": "ns", **reference}]}}
    plain = {"containers": [main], "volumes": [files, VOLUME]}
    await fake_world.bound(spec=plain, metadata=notes(of_pod))
    await fake_world.reconcile(2)

    shadow = await fake_world.shadow()
    made, noted = shadow["spec"]["pod"], "metadata.annotations['pyliqo.io/local-namespace']"
    value = {"value": "shop"} if is_local else {"valueFrom": reference}
    path = noted if is_local else "metadata.namespace"
    assert made["containers"][0]["env"] == [{"name": "NS", **value}]
    assert made["volumes"][0]["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"] == path
    assert SPACE in made["volumes"][1]["projected"]["sources"], "that of the account stays"
    assert shadow["metadata"]["annotations"]["pyliqo.io/local-namespace"] == "shop"
    assert fake_world.writes()[1] == 1


@pytest.mark.parametrize(
    ("name", "annotation", "told"),
    [
        ("mine", "", [("Warning", "TokenNotSent")]),
        ("kube-api-access-x", "", []),
        ("mine", "remote", []),
    ],
)
async def test_a_token_that_it_asks_for_and_does_not_have_is_told(
    fake_world: World, name: str, annotation: str, told: list[tuple[str, str]]
) -> None:
    notes = {keys.API_SERVER_SUPPORT: annotation} if annotation else {}
    volume = {"name": name, "projected": {"sources": [OTHER]}}
    await fake_world.bound(spec={"volumes": [volume]}, metadata={"annotations": notes})
    await fake_world.reconcile(2)

    assert fake_world.recorder.told == told
    assert all(
        "spec.volumes[mine] serviceAccountToken vault" in one
        for one in fake_world.recorder.messages
    )


async def test_an_ipv6_address_stands_in_brackets_where_kubernetes_writes_them(
    served: World,
) -> None:
    served.api_server = ApiServer(is_supported=True, host="fd00::1", port=443)
    await served.bound(spec=spec())
    await served.reconcile()

    shadow = await served.shadow()
    env = {one["name"]: one["value"] for one in shadow["spec"]["pod"]["containers"][0]["env"]}
    assert env["KUBERNETES_SERVICE_HOST"] == env["KUBERNETES_PORT_443_TCP_ADDR"] == "fd00::1"
    assert env["KUBERNETES_PORT"] == env["KUBERNETES_PORT_443_TCP"] == "tcp://[fd00::1]:443"
    assert env["KUBERNETES_SERVICE_PORT_HTTPS"] == "443"


async def test_a_container_says_itself_where_its_api_server_is(served: World) -> None:
    own = {"name": "KUBERNETES_SERVICE_HOST", "value": "mine"}
    account = {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}}
    main = {"name": "main", "image": "nginx", "env": [own, account]}
    await served.bound(spec=spec(containers=[main]))
    await served.reconcile()

    shadow = await served.shadow()
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

    assert [one.get("audiences") for one in asked] == [None, ["vault"]]
    assert {one["boundObjectRef"]["uid"] for one in asked} == {objects.uid(local)}
    assert len((await token_secret(served))["stringData"]) == 3


async def test_tokens_are_asked_for_anew_before_they_expire(served: World) -> None:
    assert isinstance(served.local, FakeCluster)
    served.now = dt.datetime.now(dt.UTC)  # noqa: TID251  # as the fake, which dates tokens
    await served.offloaded(spec=spec())
    first = await token_secret(served)
    again_s = await served.reconcile()
    assert again_s is not None
    assert 2700 < again_s < 3000
    assert served.local.requests["post", "serviceaccounts"] == 1

    served.restart()
    await served.reconcile()
    assert served.local.requests["post", "serviceaccounts"] == 1, "the Secret says when"

    served.now += dt.timedelta(seconds=again_s + 1)
    await served.reconcile()
    second = await token_secret(served)
    assert first["stringData"] != second["stringData"]
    assert served.local.requests["post", "serviceaccounts"] == 2


async def test_tokens_are_renewed_in_time_though_the_clock_is_set_back(served: World) -> None:
    assert isinstance(served.local, FakeCluster)
    served.now = dt.datetime.now(dt.UTC)  # noqa: TID251  # as the fake, which dates tokens
    await served.offloaded(spec=spec())
    again_s = await served.reconcile()
    assert again_s
    served.set_back(3600)
    assert await served.reconcile() == pytest.approx(again_s)

    served.now += dt.timedelta(seconds=again_s + 1)
    await served.reconcile()
    assert served.local.requests["post", "serviceaccounts"] == 2, "whatever the Secret says"

    served.set_back(3600)
    served.restart()
    await served.reconcile()
    assert served.local.requests["post", "serviceaccounts"] == 3, "none lives as long as it says"


async def test_tokens_that_could_not_be_renewed_are_due_though_the_clock_is_set_back(
    served: World,
) -> None:
    assert isinstance(served.local, FakeCluster)
    served.now = dt.datetime.now(dt.UTC)  # noqa: TID251  # as the fake, which dates tokens
    await served.offloaded(spec=spec())
    again_s = await served.reconcile()
    assert again_s
    served.set_back(1800)
    served.now += dt.timedelta(seconds=again_s + 1)
    served.local.fail("post", errors.ForbiddenError("no tokens for you"), times=1)
    retry_s = await served.reconcile()
    assert retry_s == 2

    served.now += dt.timedelta(seconds=retry_s)
    await served.reconcile()
    assert served.local.requests["post", "serviceaccounts"] == 3


async def test_without_a_token_the_pod_runs_all_the_same_and_says_so(served: World) -> None:
    assert isinstance(served.local, FakeCluster)
    served.local.fail("post", errors.ForbiddenError("no tokens for you"), times=9)

    await served.offloaded(running(), spec=spec())

    assert named_condition(await served.status(), "Ready")["status"] == "True"
    assert ("Warning", "FailedSATokensReflection") in served.recorder.told
    served.local.heal()
    served.now += dt.timedelta(seconds=60)
    await served.reconcile()
    assert await token_secret(served)
    assert served.recorder.told.count(("Normal", "SuccessfulSATokensReflection")) == 1


@pytest.mark.parametrize("granted_s", [600, 3600, 86400])
def test_what_was_granted_says_when_and_pods_do_not_come_together(granted_s: int) -> None:
    now = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    expires = now + dt.timedelta(seconds=granted_s)
    pods = [factories.pod("shop", f"web-{n}", metadata={"uid": f"{n}"}) for n in range(50)]

    shares = [(apiserver.renewed_from(pod, expires, now) - now).total_seconds() for pod in pods]

    assert all(abs(share - 0.8 * granted_s) <= 30 for share in shares)
    assert len(set(shares)) > len(pods) / 2


async def test_a_secret_that_went_is_made_anew_with_the_pod_on_the_provider(served: World) -> None:
    served.now = dt.datetime.now(dt.UTC)  # noqa: TID251  # as the fake, which dates tokens
    await served.offloaded(running(), spec=spec())
    await served.reconcile()
    found, pod = await token_secret(served), await served.remote_pod()
    await served.remote.delete(keys.SECRET, SECRET, uid=objects.uid(found))
    await served.remote.delete(keys.POD, served.twin, uid=objects.uid(pod), grace_s=0)
    await served.run_remotely(running())
    await served.reconcile()

    assert objects.uid(await token_secret(served)) != objects.uid(found)


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

    assert await token_secret(served) == made
    assert ("Warning", "FailedSATokensReflection") in served.recorder.told


# Bounds ------------------------------------------------------------------------------------------


def many(count: int) -> Object:
    sources = [
        {"serviceAccountToken": {"path": f"t{n}", "audience": f"a{n}"}} for n in range(count)
    ]
    return {"name": "api", "projected": {"sources": sources}}


async def test_a_pod_of_many_tokens_is_refused_and_costs_no_other(served: World) -> None:
    assert isinstance(served.local, FakeCluster)
    await served.bound(spec=spec(volumes=[many(10_000)]))
    await served.reconcile(3)

    said = named_condition(await served.status(), keys.OFFLOADED_CONDITION)
    assert said["status"] == "False"
    assert "10000 sources serviceAccountToken" in said["message"]
    assert "at most 32" in said["message"]
    assert served.local.requests["post", "serviceaccounts"] == 0
    assert not await served.has_shadow()

    pod = factories.pod("shop", "other", spec={**spec(), "nodeName": "milan"})
    pod["spec"]["containers"] = factories.pod_spec()["containers"]
    await served.local.create(keys.POD, pod)
    await served.reconciler.reconcile(Key("shop", "other"))
    assert await served.remote.get(keys.SECRET, Key("shop-rome", "other-token"))


async def test_what_was_issued_is_not_asked_for_again(served: World) -> None:
    assert isinstance(served.local, FakeCluster)
    assert isinstance(served.remote, FakeCluster)
    served.now = dt.datetime.now(dt.UTC)  # noqa: TID251  # as the fake, which dates tokens
    served.remote.fail("create", errors.InvalidError("too long"), kind=keys.SECRET, times=99)
    await served.bound(spec=spec(volumes=[many(32)]))
    await served.reconcile()
    assert served.local.requests["post", "serviceaccounts"] == 32

    pauses = []
    for _ in range(12):
        again_s = await served.reconcile()
        assert again_s
        pauses.append(again_s)
        served.now += dt.timedelta(seconds=min(again_s, 60))
    assert served.local.requests["post", "serviceaccounts"] == 32, "in 12 minutes"

    served.remote.heal()
    for _ in range(12):
        served.now += dt.timedelta(seconds=60)
        await served.reconcile()
    assert len((await token_secret(served))["stringData"]) == 33
    assert served.local.requests["post", "serviceaccounts"] == 32


async def test_a_failure_is_tried_again_after_ten_minutes_at_most(served: World) -> None:
    assert isinstance(served.local, FakeCluster)
    served.local.fail("post", errors.ForbiddenError("no tokens for you"), times=99)
    await served.bound(spec=spec())
    await served.reconcile()

    pauses = []
    for _ in range(11):
        served.now += dt.timedelta(seconds=600)
        await served.reconcile()
        due = served.reconciler._memories.of(await served.pod()).tokens  # noqa: SLF001
        assert due
        pauses.append(due.at.left_s(served.now, served.seconds()))

    assert pauses[:3] == [4, 8, 16]
    assert pauses[-3:] == [600, 600, 600]


@pytest.mark.parametrize("audience", ["", "vault"])
@pytest.mark.parametrize(
    ("said", "asked"),
    [(None, 3600), (60, 600), (600, 600), (1800, 1800), (3600, 3600), (3607, 3600), (2**40, 3600)],
)
def test_no_token_outlives_an_hour(said: int | None, asked: int, audience: str) -> None:
    source = {"path": "token", "expirationSeconds": said, "audience": audience}
    volume = {"name": "api", "projected": {"sources": [{"serviceAccountToken": source}]}}
    (token,) = apiserver.tokens(
        factories.pod("shop", "web", spec=spec(volumes=[volume])), ApiServer(is_supported=True)
    )
    assert token.expiration_s == asked


# After the end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_the_tokens_of_a_pod_that_has_ended_go_once(
    served: World, *, is_restarted: bool
) -> None:
    assert isinstance(served.local, FakeCluster)
    await served.offloaded(spec=spec(restartPolicy="Never"))
    assert await token_secret(served)
    await served.runs(ended("Succeeded", 0))
    await served.reconcile()
    if is_restarted:
        served.restart()
    asked = served.local.requests["post", "serviceaccounts"]

    await served.reconcile()
    assert await served.remote.get(keys.SECRET, SECRET) is None
    theirs = await served.remote.create(keys.SECRET, objects.named(keys.SECRET, SECRET))
    served.now += dt.timedelta(hours=2)
    await served.reconcile(3)

    assert await token_secret(served) == theirs, "of somebody who came after"
    assert served.local.requests["post", "serviceaccounts"] == asked


async def test_a_pod_that_ends_before_it_has_tokens_is_given_none(served: World) -> None:
    assert isinstance(served.local, FakeCluster)
    served.local.fail("post", errors.ForbiddenError("no tokens for you"))
    await served.bound(spec=spec(restartPolicy="Never"))
    await served.reconcile()
    await served.run_remotely(ended("Failed", 1))
    served.now += dt.timedelta(hours=2)
    await served.reconcile(3)

    assert (await served.status())["phase"] == "Failed"
    assert await served.remote.get(keys.SECRET, SECRET) is None


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_pod_that_ends_late_has_good_tokens_to_its_end(
    served: World, *, is_restarted: bool
) -> None:
    assert isinstance(served.local, FakeCluster)
    served.now = dt.datetime.now(dt.UTC)  # noqa: TID251  # as the fake, which dates tokens
    await served.offloaded(running(), spec=spec(terminationGracePeriodSeconds=7200))
    body = {"target": {"kind": "Node", "name": "worker"}, "metadata": {"name": served.twin.name}}
    await served.remote.post(keys.POD, served.twin, "binding", body)
    first, pod = await token_secret(served), await served.remote_pod()
    await served.delete_locally()
    await served.reconcile()
    assert not await served.has_shadow()
    kept = await token_secret(served)
    assert objects.uid(kept) == objects.uid(first)
    assert [one["uid"] for one in kept["metadata"]["ownerReferences"]] == [objects.uid(pod)]
    await served.remote.delete(keys.POD, served.twin, uid=objects.uid(pod), grace_s=7200)
    if is_restarted:
        served.restart()
        await served.reconcile()

    served.now += dt.timedelta(minutes=70)
    assert await served.reconcile(), "another look is due"

    second = await token_secret(served)
    assert first["stringData"] != second["stringData"]
    owner = second["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"]) == ("Pod", objects.uid(pod))
    asked = served.local.requests["post", "serviceaccounts"]
    assert asked == 2
    await served.runs(ended("Succeeded", 0))
    served.now += dt.timedelta(minutes=70)
    await served.reconcile(2)
    assert served.local.requests["post", "serviceaccounts"] == asked


async def test_a_provider_that_lets_no_tokens_stay_holds_no_deletion_up(served: World) -> None:
    assert isinstance(served.remote, FakeCluster)
    await served.offloaded(running(), spec=spec(terminationGracePeriodSeconds=7200))
    await served.delete_locally()
    served.remote.fail("patch", errors.ForbiddenError("ownerReferences are not yours"))

    await served.reconcile()

    assert not await served.has_shadow()


async def test_the_tokens_of_a_pod_that_ends_soon_cost_no_request_more(served: World) -> None:
    assert isinstance(served.remote, FakeCluster)
    await served.offloaded(running(), spec=spec())
    await served.delete_locally()
    before = served.remote.requests["get", "secrets"]

    await served.reconcile()

    assert served.remote.requests["get", "secrets"] == before
    assert served.remote.requests["patch", "secrets"] == 0


async def whose(cluster: Cluster, token: str, *audiences: str) -> Object:
    asked = {"token": token, "audiences": list(audiences)}
    review = objects.named(keys.TOKEN_REVIEW, Key("", ""), spec=asked)
    made = await cluster.create(keys.TOKEN_REVIEW, review)
    status: Object = made["status"]
    return status


def lasts_s(token: str) -> float:
    """Return for how long the token, as its signature says, is good."""
    claims = token.split(".")[1]
    said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    return float(said["exp"] - said["iat"])


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
    first = await existing(world.remote, keys.SECRET, where)
    assert again_s
    world.now += dt.timedelta(hours=1)
    await world.reconcile()
    second = await existing(world.remote, keys.SECRET, where)

    old, new = decoded(first), decoded(second)
    assert objects.uid(first) == objects.uid(second)
    assert old.keys() == new.keys()
    assert {name for name in old if old[name] == new[name]} == {"namespace"}
    ours, vault = (naming.token_key("api", path) for path in ("token", "vault"))
    for token in (old[ours], new[vault]):
        assert lasts_s(token) <= 3600 + SLACK_S
    for token, audience in ((new[ours], []), (new[vault], ["vault"])):
        said = await whose(world.local, token, *audience)
        assert said["authenticated"], said
        user = f"system:serviceaccount:{account.namespace}:robot"
        assert said["user"]["username"] == user
        assert said["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["web"]
    assert not (await whose(world.local, new[vault])).get("authenticated"), "of another audience"
    pod = await world.pod()
    await world.local.delete(keys.POD, world.web, uid=objects.uid(pod), grace_s=0)
    async with asyncio.timeout(300):  # not at once: the API server looks into a cache
        while (await whose(world.local, old[ours])).get("authenticated"):  # noqa: ASYNC110
            await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    "cluster", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True
)
async def test_on_a_real_provider_the_tokens_go_with_the_end_of_the_pod(world: World) -> None:
    world.api_server, world.now = ApiServer(is_supported=True), clock.now()
    world.restart()
    account = Key(world.web.namespace, "robot")
    await world.local.create(keys.SERVICE_ACCOUNT, objects.named(keys.SERVICE_ACCOUNT, account))
    await world.offloaded(running(), spec=spec(restartPolicy="Never"))
    where = Key(world.twin.namespace, "web-token")
    assert await world.remote.get_live(keys.SECRET, where)

    await world.runs(ended("Succeeded", 0))
    await world.reconcile(2)

    assert (await world.status())["phase"] == "Succeeded"
    assert await world.remote.get_live(keys.SECRET, where) is None
