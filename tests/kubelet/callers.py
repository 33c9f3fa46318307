"""Who calls the kubelet API, and what each may."""

import asyncio
import contextlib
import datetime as dt
import itertools
import re
import ssl
from dataclasses import dataclass
from typing import Final

from apis import keys
from certs import listener, pki
from kubelet.pods.mapping import MappingState, NamespaceMapping
from tests import factories
from tests.kubelet.rigs import DAY, Rig, now
from tests.kubelet.worlds import TWIN
from tests.world import existing

ROUTES: Final = (
    "GET /healthz",
    "GET /pods",
    "GET /runningpods/",
    "GET /containerLogs/shop/web/main",
    "GET /exec/shop/web/main?command=ls",
    "POST /exec/shop/web/main?command=ls",
    "GET /attach/shop/web/main",
    "POST /portForward/shop/web",
    "POST /run/shop/web/main",
    "POST /checkpoint/shop/web/main",
    "GET /stats/summary",
    "GET /metrics/cadvisor",
    "GET /metrics/resource",
    "GET /nothing",
)


# 400 of exec, attach and portForward: let in, and told that it asked for no upgrade. 501 and 404:
# let in, and told that there is no such thing. 0: no TLS connection, so nothing was asked.
EVERYTHING: Final = (200, 200, 200, 200, 400, 400, 400, 400, 501, 501, 200, 200, 200, 404)
NOBODY: Final = (401,) * 14
NO_RIGHT: Final = (403,) * 14
NO_CONNECTION: Final = (0,) * 14
GRANTED: Final[dict[str, set[tuple[str, str]]]] = {
    "kube-apiserver-kubelet-client": {
        (verb, part) for verb in ("get", "create") for part in ("proxy", "stats", "metrics")
    },
    "reader": {("get", "proxy")},
    "metrics-server": {("get", "metrics")},
    "lister": {("get", "pods")},
    "stats": {("get", "stats")},
    "creator": {("create", "proxy")},
}
TOKENS: Final = {"t-reader": "reader", "t-metrics": "metrics-server", "t-none": "somebody"}


@dataclass(frozen=True)
class Credential:
    """How somebody comes: by which certificate, with which headers, in which protocol."""

    common_name: str = ""
    groups: tuple[str, ...] = ()
    authority: str = "home"
    ends_after: dt.timedelta = DAY
    headers: str = ""
    protocol: str = "HTTP/1.1"


TABLE: Final[dict[str, tuple[Credential, tuple[int, ...]]]] = {
    "nothing": (Credential(), NOBODY),
    "API server": (Credential("kube-apiserver-kubelet-client", ("system:masters",)), EVERYTHING),
    "certificate of itself": (Credential("admin", authority="self"), NO_CONNECTION),
    "certificate of another authority": (Credential("admin", authority="other"), NO_CONNECTION),
    "certificate that ended": (Credential("admin", ends_after=-DAY / 48), NO_CONNECTION),
    "token that is empty": (Credential(headers="Authorization: Bearer "), NOBODY),
    "another node": (Credential("system:node:other", ("system:nodes",)), NO_RIGHT),
    "a word that is no token": (Credential(headers="Authorization: Bearer nonsense"), NOBODY),
    "password": (Credential(headers="Authorization: Basic YWRtaW46YWRtaW4="), NOBODY),
    "headers of a proxy": (
        Credential(headers="X-Remote-User: kube-apiserver-kubelet-client"), NOBODY,
    ),
    "impersonation": (
        Credential("somebody", headers="Impersonate-User: kube-apiserver-kubelet-client"), NO_RIGHT,
    ),
    "token without a right": (Credential(headers="Authorization: Bearer t-none"), NO_RIGHT),
    "token for metrics": (
        Credential(headers="Authorization: Bearer t-metrics"),
        (403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 200, 200, 403),
    ),
    "token that may get": (
        Credential(headers="Authorization: Bearer t-reader"),
        (200, 200, 200, 200, 403, 403, 403, 403, 403, 403, 403, 403, 403, 404),
    ),
    "certificate that may create": (
        Credential("creator"),
        (403, 403, 403, 403, 400, 400, 400, 400, 501, 501, 403, 403, 403, 403),
    ),
    "certificate for pods": (
        Credential("lister"),
        (403, 200, 200, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403),
    ),
    "certificate for stats": (
        Credential("stats"),
        (403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 200, 403, 403, 403),
    ),
    "HTTP/1.0": (Credential(protocol="HTTP/1.0"), NOBODY),
    "API server, HTTP/1.0": (
        Credential("kube-apiserver-kubelet-client", protocol="HTTP/1.0"), EVERYTHING,
    ),
    "HTTP/2": (Credential("kube-apiserver-kubelet-client", protocol="HTTP/2.0"), (400,) * 14),
}  # fmt: skip


def tls_context(rig: Rig, by: Credential) -> ssl.SSLContext:
    made = ssl.create_default_context(cadata=rig.ca.certificate.decode())
    if by.protocol == "HTTP/2.0":
        made.set_alpn_protocols(["h2"])
    if by.common_name or by.groups:
        other = pki.new_ca(by.authority, now=now(), lifetime=DAY)
        listener.load(
            made,
            pki.issue(
                rig.ca if by.authority == "home" else other,
                common_name=by.common_name, organizations=by.groups, client=True,
                now=now(), lifetime=by.ends_after,
            ),
        )  # fmt: skip
    return made


async def ask(rig: Rig, tls: ssl.SSLContext, request: str) -> int:
    """Send the head of a request, and return the status of the answer; 0 for no connection."""
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", rig.server.port, ssl=tls, server_hostname="127.0.0.1"
        )
    except OSError:
        return 0
    try:
        writer.write(request.encode("latin-1"))
        found = re.match(rb"HTTP/1\.[01] (\d+) ", await reader.readline())
        return int(found[1]) if found else 0
    except OSError:
        return 0
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            writer.close()


async def opens_its_routes_and_no_other(
    judged: Rig, by: Credential, expected: tuple[int, ...]
) -> None:
    """Ask for every route."""
    tls, before = tls_context(judged, by), len(judged.seen)
    heads = [
        f"{route} {by.protocol}\r\nHost: me\r\nConnection: close\r\n{by.headers}"
        + ("\r\n" if by.headers else "")
        + "\r\n"
        for route in ROUTES
    ]
    if by.protocol == "HTTP/2.0":
        heads = ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] * len(ROUTES)

    got = [await ask(judged, tls, head) for head in heads]

    assert dict(zip(ROUTES, got, strict=True)) == dict(zip(ROUTES, expected, strict=True))
    if expected in (NOBODY, NO_RIGHT, NO_CONNECTION):
        assert len(judged.seen) == before


TRICKS: Final = (
    "..", ".", "%2e%2e", "%2e", "%2f", "%252f", "..;", ";x=1", "\\", "%5c", "%00", "%0d%0aX:1",
    "%20", "+", "*", "web%2f..%2fother", "WEB", "a" * 254, "a" * 8192, "-", "web-", "web.", ".web",
    "web..x", "w%65b%3f", "web%23", "web?x", "web%3Fcommand=rm", "%c0%ae", "%E2%80%AE", "web@host",
    "http:", "%", "%zz", "web,web", "web&x", "'", "%22", "<", "${x}", "{{x}}", "",
)  # fmt: skip


SHAPES: Final = (
    "/containerLogs/{}/web/main", "/containerLogs/shop/{}/main", "/containerLogs/shop/web/{}",
    "/exec/{}/web/main", "/exec/shop/{}/main", "/exec/shop/web/{}", "/attach/shop/{}/main",
    "/portForward/{}/web", "/portForward/shop/{}", "/containerLogs/shop/web/main/{}",
    "/stats/{}", "/metrics/{}", "/metrics/resource/{}",
)  # fmt: skip


EXACT: Final = re.compile(
    r"/api/v1/namespaces/shop-rome/pods/web/(log|exec|attach|portforward)(\?[^/]*)?"
    r"|/apis/metrics.liqo.io/v1beta1/scrape/rome/metrics(/(cadvisor|probes|resource))?"
)


async def leads_nowhere_else(judged: Rig) -> None:
    """Try every trick in every place of a path."""
    corpus = [shape.format(trick) for shape, trick in itertools.product(SHAPES, TRICKS)]
    assert len(corpus) >= 500
    tls = tls_context(judged, Credential("kube-apiserver-kubelet-client"))
    upgrade = "Host: me\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
    for path in corpus:
        status = await ask(judged, tls, f"GET {path} HTTP/1.1\r\n{upgrade}")
        assert status in {101, 200, 400, 403, 404, 501}, path
    for uri in (
        "https://evil/exec/shop/web/main",
        "//exec/shop/web/main",
        "*",
        "exec/shop/web/main",
    ):
        assert await ask(judged, tls, f"GET {uri} HTTP/1.1\r\n{upgrade}") in {101, 400, 404}, uri
    wrong = [url for url in judged.seen if not EXACT.fullmatch(url)]
    assert wrong == []


async def only_the_very_pod_is_reached(rig: Rig, path: str) -> None:
    """Let the pod be another one in every way that there is."""

    async def status(pod: str = "web") -> int:
        return (await rig.get(path.format(pod)))[0]

    async def is_reached() -> bool:
        told, text = await rig.get(path.format("web"))
        assert told in {200, 400}, text
        return "does not run" not in text and "is not offloaded" not in text

    assert await is_reached(), "it is ours"
    assert await status("other") == 404, "there is none"
    for name, node in (("there", "physical"), ("unbound", None)):
        spec = {**factories.pod_spec(), "nodeName": node}
        await rig.local.create(keys.POD, factories.pod("shop", name, spec=spec))
        assert await status(name) == 404, node
    remote = await existing(rig.remote, keys.POD, TWIN)
    for change in (
        {"annotations": {keys.LOCAL_POD_UID: "of an older one"}},
        {"labels": {keys.ORIGIN: "turin"}},
        {"labels": {keys.DESTINATION: "turin"}},
    ):
        await rig.remote.patch(keys.POD, TWIN, {"metadata": change})
        assert not await is_reached(), change
        back = {part: remote["metadata"][part] for part in change}
        await rig.remote.patch(keys.POD, TWIN, {"metadata": back})
    assert await is_reached()
    mapped = rig.namespaces.now
    for state in (MappingState.WAITING, MappingState.WITHDRAWN):
        rig.namespaces.now = NamespaceMapping(state, mapped.pair)
        assert not await is_reached(), state
    rig.namespaces.now = mapped
    assert await is_reached()
    await rig.remote.delete(keys.POD, TWIN, uid=remote["metadata"]["uid"])
    assert not await is_reached(), "it does not run there"
