"""Every process has the rights that its code needs, by the word of the API servers."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from apis import keys
from apis.objects import Key, named
from sandbox import audit
from tests import scraping
from tests.controllers.managing import inline
from tests.journeys import world
from tests.journeys.kubectl import Kubectl
from tests.world import is_ready

pytestmark = pytest.mark.journey

FORBIDDEN = 403
OURS = {"liqo", "liqo-tenant-milan", "liqo-tenant-rome", "kube-node-lease", "kube-system"}


async def test_nothing_that_a_life_needs_is_forbidden(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path]
) -> None:
    """A namespace that ends takes nothing new, and rights in it end before it does."""
    logs = [audit.Log(path.with_name(name) / "audit.log") for name, path in kubeconfigs.items()]
    key = Key(namespace, "web")
    await both.offload(namespace)
    await both.rome.create(keys.POD, world.pod(namespace, key.name, both.image))
    await world.until_one(both.rome, keys.POD, key, is_ready)
    await world.remove(both.rome, keys.POD, key)
    await world.until_gone(both.rome, keys.POD, key)
    lived = [call for log in logs for call in log.read()]
    await both.unoffload(namespace)
    ended = [call for log in logs for call in log.read()]

    here = {namespace, both.twin(namespace), *OURS, ""}
    refused = [call for call in lived if is_refused(call) and call.namespace in here]
    assert [call for call in refused if not is_allowed_later(call, lived)] == []
    at_the_end = [
        call for call in ended if is_refused(call) and call.is_write and call.namespace in here
    ]
    others = [call for call in at_the_end if call.resource != "events"]
    assert [call for call in others if "is being terminated" not in call.message] == []


def is_refused(call: audit.Call) -> bool:
    return call.is_ours and call.code == FORBIDDEN


def is_allowed_later(call: audit.Call, calls: Iterable[audit.Call]) -> bool:
    """Whether the right came a moment after it was bound, in the namespace of a tenant.

    Only there the controllers ask at once for what they let themselves do.
    """
    return call.resource in {"secrets", "roles", "resourcequotas"} and any(
        later.code != FORBIDDEN
        and later.completed > call.completed
        and (later.agent, later.verb, later.resource, later.namespace)
        == (call.agent, call.verb, call.resource, call.namespace)
        for later in calls
    )


async def test_an_admin_of_a_namespace_offloads_it_and_who_views_it_sees_that(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path], tmp_path: Path
) -> None:
    """By the roles that Kubernetes has for users, bound in that namespace alone."""
    admin, viewer = [
        await user_with(both, namespace, role, kubeconfigs["rome"], tmp_path)
        for role in ("admin", "view")
    ]
    pod = world.pod(namespace, "web", both.image, "echo hello;", world.sleeping())
    region = ("--pod-offloading-strategy", "Remote", "-l", "topology.kubernetes.io/region=lombardy")

    refused = await world.liqoctl(viewer, "offload", "namespace", namespace)
    assert refused.code == 1
    assert 'cannot create resource "namespaceoffloadings"' in refused.err
    offloaded = await world.liqoctl(admin, "offload", "namespace", namespace, *region)
    assert offloaded.code == 0, offloaded.err
    await Kubectl(admin, namespace).out("create", "-f", "-", stdin=json.dumps(pod).encode())
    await world.until_one(both.rome, keys.POD, Key(namespace, "web"), is_ready)

    for user in (admin, viewer):
        kubectl = Kubectl(user, namespace)
        assert b"Remote" in await kubectl.out("get", "namespaceoffloadings", "-o", "yaml")
        assert b"hello" in await kubectl.out("logs", "web")
        for asked in (("namespace", namespace), ("pod", "web", "-n", namespace)):
            why = await world.liqoctl(user, "why", *asked)
            assert why.code == 0, why.err
        elsewhere = await kubectl.run("get", "namespaceoffloadings", "-A")
        assert "Forbidden" in elsewhere.err
    gone = await world.liqoctl(admin, "unoffload", "namespace", namespace)
    assert gone.code == 0, gone.err


async def user_with(
    both: world.Pair, namespace: str, role: str, kubeconfig: Path, folder: Path
) -> Path:
    """Return the kubeconfig of a user who has one of Kubernetes' roles in one namespace."""
    config = json.loads(inline(kubeconfig))
    token = await scraping.token(both.rome, Key(namespace, role))
    config["users"][0]["user"] = {"token": token}
    subject = {"kind": "ServiceAccount", "name": role, "namespace": namespace}
    what = {"apiGroup": keys.RBAC_GROUP, "kind": "ClusterRole", "name": role}
    made = named(keys.ROLE_BINDING, Key(namespace, role), subjects=[subject], roleRef=what)
    await both.rome.create(keys.ROLE_BINDING, made)
    file = folder / role
    file.write_text(json.dumps(config))
    return file
