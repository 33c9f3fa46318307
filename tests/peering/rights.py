"""What somebody may do in a cluster, by its own word: every resource, every verb, some places."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from apis import keys
from apis.objects import Key, Object, named
from kube import client
from kube.client import ClusterClient
from sandbox.kubectl import Kubectl

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
MORE = (
    ("", "pods/exec"), ("", "pods/attach"), ("", "pods/portforward"), ("", "pods/log"),
    ("", "pods/status"), ("", "pods/eviction"), ("", "serviceaccounts/token"), ("", "nodes/proxy"),
    ("authentication.liqo.io", "resourceslices/status"),
    ("authentication.liqo.io", "renews/status"),
    ("authentication.liqo.io", "tenants/status"), ("offloading.liqo.io", "namespacemaps/status"),
    ("offloading.liqo.io", "quotas/status"), ("offloading.liqo.io", "shadowpods/status"),
    ("metrics.liqo.io", "scrape/metrics"), ("metrics.k8s.io", "pods"),
    ("certificates.k8s.io", "certificatesigningrequests/approval"),
)  # fmt: skip
"""What discovery does not list, or not under a verb that RBAC knows."""
ASKED = (
    ("impersonate", "", "users"), ("impersonate", "", "groups"),
    ("impersonate", "", "serviceaccounts"), ("impersonate", "authentication.k8s.io", "uids"),
    ("impersonate", "authentication.k8s.io", "userextras/scopes"),
    *(
        (verb, "rbac.authorization.k8s.io", plural)
        for verb in ("bind", "escalate") for plural in ("roles", "clusterroles")
    ),
    *((verb, "certificates.k8s.io", "signers") for verb in ("approve", "sign", "attest")),
    ("proxy", "", "services"), ("use", "policy", "podsecuritypolicies"), ("*", "*", "*"),
)  # fmt: skip
"""Verbs that only some resources know: each by its own."""
PATHS = (
    "/", "/api", "/apis", "/version", "/healthz", "/livez", "/readyz", "/metrics", "/metrics/slis",
    "/logs", "/openapi/v2", "/openapi/v3", "/debug/pprof/heap", "/configz", "/flagz", "/statusz",
    "/.well-known/openid-configuration", "/openid/v1/jwks", "/apis/metrics.liqo.io/v1beta1",
)  # fmt: skip
"""URLs of no resource; what everybody who is authenticated may get of them is left out."""
AT_ONCE = 48


@dataclass(frozen=True)
class Somebody:
    """A user as its certificate says; ``system:authenticated`` is left out: everybody is that."""

    title: str
    user: str
    groups: tuple[str, ...]


def sweep(kubeconfig: Path, who: Iterable[Somebody], namespaces: Iterable[str]) -> list[str]:
    """Return what is allowed, a sorted line each."""
    resources = [*_discovered(Kubectl(kubeconfig)), *MORE]
    return sorted(asyncio.run(_sweep(kubeconfig, list(who), list(namespaces), resources)))


def _discovered(kubectl: Kubectl) -> list[tuple[str, str]]:
    found = kubectl.run("api-resources", "-o", "name", "--no-headers").split()
    return [(group, plural) for plural, _, group in (name.partition(".") for name in found)]


async def _sweep(
    kubeconfig: Path, who: list[Somebody], namespaces: list[str], resources: list[tuple[str, str]]
) -> list[str]:
    gate = asyncio.Semaphore(AT_ONCE)
    questions = dict(_questions(namespaces, resources))
    async with client.connect(kubeconfig, user_agent="sweep") as server:
        asked = [
            _asked(server, gate, one, line, attributes)
            for one in who
            for line, attributes in questions.items()
        ]
        return [line for line in await asyncio.gather(*asked) if line]


def _questions(
    namespaces: list[str], resources: list[tuple[str, str]]
) -> Iterator[tuple[str, Object]]:
    """Yield each thing that somebody might do, and how an API server is asked about it."""
    every = [(verb, group, plural) for group, plural in resources for verb in VERBS]
    for namespace, (verb, group, name) in itertools.product(namespaces, [*every, *ASKED]):
        plural, _, sub = name.partition("/")
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": plural}
        if sub:
            attributes["subresource"] = sub
        where = namespace or "the cluster"
        line = f"{verb} {name}{'.' if group else ''}{group} in {where}"
        yield line, {"resourceAttributes": attributes}
    for path, verb in itertools.product(PATHS, ("get", "post", "*")):
        yield f"{verb} {path}", {"nonResourceAttributes": {"path": path, "verb": verb}}


async def _asked(
    server: ClusterClient, gate: asyncio.Semaphore, who: Somebody, line: str, attributes: Object
) -> str:
    spec = {"user": who.user, "groups": list(who.groups), **attributes}
    review = named(keys.SUBJECT_ACCESS_REVIEW, Key("", "x"), spec=spec)
    del review["metadata"]["name"]
    async with gate:
        answer = await server.create(keys.SUBJECT_ACCESS_REVIEW, review)
    return f"{who.title} may {line}" if answer["status"]["allowed"] else ""
