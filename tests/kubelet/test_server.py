"""The kubelet API, through real TLS, before a provider that is a web server."""

import asyncio
import base64
import datetime as dt
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import pytest

from apis import keys, objects
from apis.objects import Key, Object
from certs import pki
from kube import errors
from kube.authz import Authorizer
from kubelet.api import usage
from kubelet.api.certificate import CertificateReconciler
from kubelet.api.server import AT_ONCE, PodLookups
from kubelet.pods import containers
from kubelet.pods.mapping import MappingState, NamespaceMapping
from kubelet.pods.state import NodePod
from tests import factories, flood
from tests.factories import pod
from tests.fakes import FakeCluster
from tests.kubelet.rigs import DAY, Rig, now
from tests.kubelet.worlds import NODE, NOW, TWIN, WEB, Namespaces
from tests.world import existing, holds

LOGS = "/containerLogs/shop/web/main"


async def test_logs_come_from_the_provider(rig: Rig) -> None:
    query = "?follow=true&tailLines=0&timestamps=true&previous=false&sinceSeconds=5&stream=All"
    assert await rig.get(LOGS + query) == (200, "one\ntwo\n")
    path = "/api/v1/namespaces/shop-rome/pods/web/log?container=main"
    assert rig.seen == [f"{path}&{query[1:]}"]


@pytest.mark.parametrize(
    "option",
    ["stream=both", "tailLines=-1", "tailLines=a", "follow=yes", "sinceTime=now", "limitBytes=1e9"],
)
async def test_an_option_that_makes_no_sense_is_refused(rig: Rig, option: str) -> None:
    assert (await rig.get(f"{LOGS}?{option}"))[0] == 400
    assert rig.seen == []


async def test_an_option_nobody_knows_is_not_passed_on(rig: Rig) -> None:
    await rig.get(f"{LOGS}?insecureSkipTLSVerifyBackend=true&container=other")
    assert rig.seen == ["/api/v1/namespaces/shop-rome/pods/web/log?container=main"]


@pytest.mark.parametrize(
    ("status", "expected"), [(400, 400), (404, 404), (401, 502), (403, 502), (500, 502)]
)
async def test_a_refusal_of_the_provider_is_told(rig: Rig, status: int, expected: int) -> None:
    rig.answer = (status, "container is waiting to start")
    code, text = await rig.get(LOGS)
    assert code == expected
    told = "container is waiting to start"
    plain = {400: f"{told}\n", 404: f"{told}\n"}
    assert text == plain.get(status, f"the provider says: {told} ({status})\n")


async def test_what_the_provider_says_forges_nothing(rig: Rig) -> None:
    rig.answer = (404, "\x1b[2Jgone\r" + "x" * 10_000)
    code, text = await rig.get(LOGS)
    assert (code, text[:20], len(text)) == (404, "\\u001b[2Jgone\\u000dx", 1025)


@pytest.mark.parametrize("path", [LOGS, "/pods", "/exec/shop/web/main", "/nothing", "/metrics"])
@pytest.mark.parametrize(
    ("who", "token", "expected"),
    [(None, "", 401), (None, "bad", 401), (None, "weak", 403), ("mallory", "", 403)],
)
async def test_who_may_not(rig: Rig, path: str, who: str, token: str, expected: int) -> None:
    assert (await rig.get(path, who, token=token))[0] == expected
    assert rig.seen == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [(LOGS, 200), ("/pods", 200), ("/exec/shop/web/main", 400), ("/nothing", 404),
     ("/attach/a/b/c", 404), ("/portForward/a/b", 404)],
)  # fmt: skip
async def test_what_there_is(rig: Rig, path: str, expected: int) -> None:
    assert (await rig.get(path))[0] == expected
    assert (await rig.get(path, None, token="good"))[0] == expected  # noqa: S106  # of the test


async def test_the_pods_of_the_node_are_a_list_of_whole_pods(rig: Rig) -> None:
    status, said = await rig.get("/pods")
    told = json.loads(said)
    assert (status, told["kind"], told["apiVersion"]) == (200, "PodList", "v1")
    assert told["items"] == [await rig.local.get(keys.POD, WEB)]


LARGE: Final = [{"name": f"SETTING_{number}", "value": "x" * 90} for number in range(350)]


async def grow(rig: Rig) -> Object:
    """Let the pod have more than a cache keeps."""
    listed = [{"name": "main", "image": "nginx", "env": LARGE}]
    pod = await existing(rig.local, keys.POD, WEB)
    large = {**pod, "spec": {**pod["spec"], "containers": listed}}
    await rig.local.delete(keys.POD, WEB, uid=objects.uid(pod), grace_s=0)
    made = await rig.local.create(keys.POD, large)
    rig.pods[WEB] = NodePod.cached(made)
    assert rig.pods[WEB].is_outline
    return made


async def test_a_large_pod_is_in_the_list_with_all_that_it_has(rig: Rig) -> None:
    small = rig.pods[WEB]
    made = await grow(rig)
    rig.pods[Key("shop", "gone")] = rig.pods[WEB]
    rig.pods[Key("shop", "zoo")] = small

    status, said = await rig.get("/pods")

    assert status == 200
    first, second = json.loads(said)["items"]
    assert first == made
    assert second == small.whole()
    rig.pods.clear()
    assert json.loads((await rig.get("/pods"))[1])["items"] == []


async def test_a_list_that_home_cannot_go_on_with_has_no_end(rig: Rig) -> None:
    await grow(rig)
    rig.local.fail("get", errors.NotReachableError("GET https://home/x: no answer in time"))

    with pytest.raises(aiohttp.ClientError):
        await rig.get("/pods")


async def test_a_large_pod_has_its_metrics(rig: Rig) -> None:
    await grow(rig)
    rig.answer = (200, f'{usage.CPU}{{container="main",namespace="shop",pod="web"}} 10\n')

    _, said = await rig.get("/metrics/resource")

    assert rig.answer[1] in said


async def test_health_is_for_who_may_know_as_on_every_kubelet(rig: Rig) -> None:
    assert await rig.get("/healthz") == (200, "ok")
    assert (await rig.get("/healthz", None))[0] == 401
    assert (await rig.get("/healthz", "mallory"))[0] == 403


async def test_that_home_does_not_say_where_a_namespace_goes_is_told(rig: Rig) -> None:
    rig.namespaces.error = errors.NotReachableError("GET https://home/x: no answer in time")
    status, text = await rig.get(LOGS)
    assert status == 503
    assert text == (
        "whether namespace shop is offloaded is not known now: "
        "GET https://home/x: no answer in time\n"
    )
    status, text = await rig.get("/stats/summary")
    assert (status, json.loads(text)["pods"]) == (200, [])


async def test_a_certificate_of_another_authority_opens_nothing(rig: Rig) -> None:
    other = pki.new_ca("other", now=now(), lifetime=DAY)
    context = rig.context("admin", other)
    url = f"https://127.0.0.1:{rig.server.port}{LOGS}"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            async with session.get(url, ssl=context):
                pass
    assert rig.seen == []


@pytest.mark.parametrize(
    "path",
    [
        "/containerLogs/shop/..%2f..%2fsecrets/main",
        "/containerLogs/shop/%2e%2e/main",
        "/containerLogs/shop/web%00/main",
        "/containerLogs/shop/web%252f/main",
        "/containerLogs/shop/web/main%3fx",
        "/containerLogs/SHOP/web/main",
        "/containerLogs/shop/web/" + "a" * 64,
        "/containerLogs//web/main",
        "/containerLogs/shop/web\\x/main",
        "/containerLogs/shop/web;x/main",
    ],
)
async def test_a_tricky_path_reaches_nothing(rig: Rig, path: str) -> None:
    assert (await rig.get(path))[0] in {400, 404}
    assert rig.seen == []


async def test_only_the_very_pod_bound_here_is_ours(rig: Rig) -> None:
    assert (await rig.get("/containerLogs/shop/other/main"))[0] == 404
    assert (await rig.get("/containerLogs/shop/web/side"))[0] == 404
    spec = {**factories.pod_spec(), "nodeName": "physical"}
    await rig.local.create(keys.POD, factories.pod("shop", "there", spec=spec))
    assert (await rig.get("/containerLogs/shop/there/main"))[0] == 404
    old = {"annotations": {keys.LOCAL_POD_UID: "of an older one"}}
    await rig.remote.patch(keys.POD, TWIN, {"metadata": old})
    assert (await rig.get(LOGS))[0] == 400
    assert rig.seen == []


async def test_who_asks_of_a_container_that_the_provider_refuses_reads_why(rig: Rig) -> None:
    debug = {"name": "debug", "image": "busybox"}
    added = {"spec": {"ephemeralContainers": [debug]}}
    await rig.local.patch(keys.POD, WEB, added, subresource="ephemeralcontainers")
    told = containers.refused(debug, "no SYS_PTRACE", NOW)
    await rig.local.patch_status(keys.POD, WEB, {"ephemeralContainerStatuses": [told]})

    said = "container debug of pod shop/web does not run: no SYS_PTRACE\n"
    assert await rig.get("/containerLogs/shop/web/debug") == (400, said)
    assert rig.seen == []


async def test_another_certificate_is_served_at_once(rig: Rig) -> None:
    port = rig.server.port
    other = pki.new_ca("next", now=now(), lifetime=DAY)
    made = pki.issue(
        other, common_name="n", ips=["127.0.0.1"], server=True, now=now(), lifetime=DAY
    )

    await rig.apart.run(rig.server.certify(made))

    assert rig.server.port == port
    context = ssl.create_default_context(cadata=other.certificate.decode())
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://127.0.0.1:{port}/healthz", ssl=context) as answer,
    ):
        assert answer.status == 401


async def test_another_authority_of_clients_replaces_the_first(rig: Rig) -> None:
    await rig.apart.run(rig.server.trust(""))
    assert (await rig.get(LOGS))[0] == 401
    assert (await rig.get("/healthz", None))[0] == 401


# The serving certificate -------------------------------------------------------------------------

HOUR: Final = dt.timedelta(hours=1)


@dataclass
class Signing:
    """A reconciler of the certificate, and the authority that may sign."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    installed: list[pki.Keypair] = field(default_factory=list)
    now: dt.datetime = NOW
    set_back: dt.timedelta = dt.timedelta()
    life: dt.timedelta = 3 * DAY

    def __post_init__(self) -> None:
        self.ca = pki.new_ca("home", now=NOW, lifetime=10 * DAY)
        self.reconciler = CertificateReconciler(
            self.cluster, node="milan", address="10.0.0.9", install=self._install,
            clock=lambda: self.now, monotonic=self.monotonic,
        )  # fmt: skip

    def monotonic(self) -> float:
        return (self.now + self.set_back).timestamp()

    async def _install(self, pair: pki.Keypair) -> None:
        self.installed.append(pair)

    async def reconcile(self) -> float:
        again = await self.reconciler.reconcile(Key("", "milan"))
        assert again is not None
        return again

    def requests(self) -> list[Object]:
        everything = self.cluster.everything().items()
        return [obj for (kind, _), obj in everything if kind == keys.CERTIFICATE_SIGNING_REQUEST]

    def at(self, since: dt.timedelta, off: dt.timedelta) -> None:
        """Set the clock to so long after the beginning, and ``off``."""
        self.now, self.set_back = NOW + since + off, -off

    async def sign(self) -> None:
        """Sign the last request by the right clock."""
        request = self.requests()[-1]
        csr = base64.b64decode(request["spec"]["request"])
        right = self.now + self.set_back
        made = pki.sign(self.ca, csr, server=True, now=right, lifetime=self.life)
        status = {"certificate": base64.b64encode(made).decode()}
        key = objects.key_of(request)
        await self.cluster.patch_status(keys.CERTIFICATE_SIGNING_REQUEST, key, status)


async def test_a_certificate_is_asked_for_waited_for_and_renewed_in_time() -> None:
    signing = Signing()

    await signing.reconcile()
    await signing.reconcile()
    assert (len(signing.requests()), signing.installed) == (1, [])
    spec = signing.requests()[0]["spec"]
    assert spec["signerName"] == "kubernetes.io/kubelet-serving"
    assert spec["usages"] == ["digital signature", "server auth"]

    await signing.sign()
    assert await signing.reconcile() == pytest.approx(2 * DAY.total_seconds(), rel=0.01)
    subject = pki.subject(signing.installed[0].certificate)
    assert (subject.common_name, subject.organizations) == ("system:node:milan", ("system:nodes",))
    assert subject.ips == ("10.0.0.9",)

    await signing.reconcile()
    assert len(signing.requests()) == 1
    signing.now += 2 * DAY + dt.timedelta(minutes=1)
    await signing.reconcile()
    assert len(signing.requests()) == 2


async def test_a_certificate_is_renewed_in_time_though_the_clock_is_set_back() -> None:
    signing = Signing()
    await signing.reconcile()
    await signing.sign()
    again_s = await signing.reconcile()

    signing.at(dt.timedelta(seconds=again_s), -DAY)
    await signing.reconcile()

    assert len(signing.requests()) == 2


@pytest.mark.parametrize("off", [DAY, -2 * HOUR])
async def test_a_clock_that_is_wrong_while_it_is_issued_leaves_no_certificate_to_end(
    off: dt.timedelta,
) -> None:
    signing, since = Signing(life=6 * HOUR), dt.timedelta()
    while since < 12 * HOUR:
        signing.at(since, off if since < HOUR else dt.timedelta())
        again_s = await signing.reconcile()
        assert not signing.installed or holds(signing.installed[-1].certificate, NOW + since)
        if len(signing.requests()) > len(signing.installed):
            await signing.sign()
        since += dt.timedelta(seconds=again_s)
        assert len(signing.requests()) <= 12 / 4 + 2 + 3, "at most three while the clock is wrong"


async def test_a_certificate_that_ended_while_its_signer_was_away_is_renewed_by_the_next() -> None:
    signing, since = Signing(life=DAY), dt.timedelta()
    await signing.reconcile()
    await signing.sign()
    while since < 2 * DAY:
        signing.at(since, dt.timedelta())
        since += dt.timedelta(seconds=await signing.reconcile())
    assert [holds(one.certificate, signing.now) for one in signing.installed] == [False], (
        "served on"
    )
    assert len(signing.requests()) <= 10, "one that nobody answers is made again in four hours"

    signing.ca = pki.new_ca("next", now=signing.now, lifetime=10 * DAY)
    await signing.sign()
    await signing.reconcile()

    assert holds(signing.installed[-1].certificate, signing.now)
    assert pki.is_signed_by(signing.installed[-1].certificate, signing.ca.certificate)


async def test_a_request_or_a_key_that_is_gone_is_made_again() -> None:
    """The key is in the memory of the process alone."""
    signing = Signing()
    await signing.reconcile()
    (asked,) = signing.requests()
    kind, key = keys.CERTIFICATE_SIGNING_REQUEST, objects.key_of(asked)
    await signing.cluster.delete(kind, key, uid=objects.uid(asked))

    await signing.reconcile()
    await signing.reconcile()
    await signing.sign()
    await signing.reconcile()
    signing.__post_init__()
    await signing.reconcile()
    await signing.sign()
    await signing.reconcile()

    assert len(signing.installed) == len(signing.requests()) == 2


async def test_a_denied_request_is_made_again_later() -> None:
    signing = Signing()
    await signing.reconcile()
    key = objects.key_of(signing.requests()[0])
    denied = {"conditions": [{"type": "Denied", "status": "True", "reason": "No"}]}
    await signing.cluster.patch_status(keys.CERTIFICATE_SIGNING_REQUEST, key, denied)

    assert await signing.reconcile() == 300
    await signing.reconcile()

    assert len(signing.requests()) == 2


async def test_half_open_and_slow_connections_keep_nobody_out(rig: Rig) -> None:
    async with flood.held_connections(rig.server.port):
        assert await rig.get(LOGS) == (200, "one\ntwo\n")


@pytest.mark.parametrize("who", ["admin", None])
async def test_no_request_makes_it_fail(
    rig: Rig, who: str | None, record_property: Callable[[str, object], None]
) -> None:
    paths = [LOGS, *(LOGS.replace("containerLogs", name) for name in ("exec", "attach"))]
    paths += ["/portForward/shop/web", "/pods", "/stats/summary", "/metrics/resource", "/run/x"]
    found, tls = set(), rig.context(who)
    requests = flood.requests(paths, flood.REQUESTS if who else flood.REQUESTS // 10)
    async for status, said in flood.answers(rig.server.port, tls, requests, record_property):
        assert status < 500 or status == 501, said[:400]
        assert b"Traceback" not in said
        found.add(status)

    assert found >= ({200, 400, 404} if who else {400, 401})
    assert await rig.get(LOGS) == (200, "one\ntwo\n")


# What many pods use costs nobody else the loop ----------------------------------------------------

WAITING = Namespaces(NamespaceMapping(MappingState.WAITING))


async def test_what_is_decoded_for_metrics_lets_others_in_between() -> None:
    pods = {Key("shop", f"web-{n}"): NodePod.cached(pod("shop", f"web-{n}")) for n in range(1000)}
    lookups = lookups_of(pods)
    turns = 0

    async def lease() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(lease())
    assert len(await lookups.measured()) == len(await lookups.pods()) == 1000
    other.cancel()
    assert turns >= 2 * 1000 / AT_ONCE


def lookups_of(pods: Mapping[Key, NodePod]) -> PodLookups:
    home = FakeCluster()
    return PodLookups(NODE, home, FakeCluster(), WAITING, lambda: pods, Authorizer(home, NODE))
