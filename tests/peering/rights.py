"""What somebody may do in a cluster, by its own word: every resource, every verb, some places."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from apis import keys
from apis.objects import Key, named
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
    kubeconfig: Path,
    who: list[Somebody],
    namespaces: list[str],
    resources: list[tuple[str, str]],
) -> list[str]:
    gate = asyncio.Semaphore(AT_ONCE)
    async with client.connect(kubeconfig, user_agent="sweep") as server:
        asked = [
            _asked(server, gate, one, namespace, resource, verb)
            for one in who
            for namespace in namespaces
            for resource in dict.fromkeys(resources)
            for verb in VERBS
        ]
        return [line for line in await asyncio.gather(*asked) if line]


async def _asked(  # noqa: PLR0913, PLR0917  # a question has that many parts
    server: ClusterClient, gate: asyncio.Semaphore, who: Somebody, namespace: str,
    resource: tuple[str, str], verb: str,
) -> str:  # fmt: skip
    group, plural = resource
    plural, _, sub = plural.partition("/")
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": plural}
    if sub:
        attributes["subresource"] = sub
    spec = {"user": who.user, "groups": list(who.groups), "resourceAttributes": attributes}
    review = named(keys.SUBJECT_ACCESS_REVIEW, Key("", "x"), spec=spec)
    del review["metadata"]["name"]
    async with gate:
        answer = await server.create(keys.SUBJECT_ACCESS_REVIEW, review)
    if not answer["status"]["allowed"]:
        return ""
    name = f"{plural}/{sub}" if sub else plural
    where = namespace or "the cluster"
    return f"{who.title} may {verb} {name}{'.' if group else ''}{group} in {where}"
