"""The webhook as a process in front of a real API server.

Source: docs/parity.md A-14, A-20 to A-22, A-28 to A-29, A-32; § 3.1-3.2; F-30.
"""

import asyncio
import json
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apis import keys
from apis.nodeselector import Term
from apis.objects import Key, Object
from apis.offloading import PodOffloadingStrategy as Strategy
from kube import client
from kube.client import ClusterClient
from kube.errors import KubeError
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl, KubectlError
from tests.factories import pod, pod_spec
from tests.webhook.hooked import Hooked, start, tolerates
from tests.webhook.podtable import TABLE
from tests.webhook.reviews import REFUSED, offloading, wait_until, wrong_offloading

pytestmark = pytest.mark.cluster

Case = tuple[Strategy, tuple[Term, ...], tuple[Term, ...], tuple[Term, ...]]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(scope="module")
def hooked(plane: Plane, crds: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooked]:
    directory = tmp_path_factory.mktemp("webhook")
    found = start(plane.kubeconfig, directory)
    try:
        wait_until(found.is_ready)
        asyncio.run(_installed(plane.kubeconfig, found))
        yield found
    finally:
        found.process.kill()
        found.process.wait()


async def _installed(kubeconfig: Path, found: Hooked) -> None:
    async with client.connect(kubeconfig) as cluster:
        await found.install(cluster)


async def test_what_comes_right_after_its_offloading_is_offloaded(
    cluster: ClusterClient, hooked: Hooked
) -> None:
    async def one_file() -> bool:
        space = await hooked.space(cluster)
        await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space))
        return tolerates(await cluster.create(keys.POD, pod(space)))

    assert [await one_file() for _ in range(20)] == [True] * 20


async def test_a_labelled_namespace_refuses_until_it_is_known_how(
    cluster: ClusterClient, hooked: Hooked
) -> None:
    space = await hooked.space(cluster)

    with pytest.raises(KubeError, match=f"namespace {space} has the label.*create or correct"):
        await cluster.create(keys.POD, pod(space))

    await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space))
    assert tolerates(await cluster.create(keys.POD, pod(space)))


async def test_a_pod_outside_is_untouched(cluster: ClusterClient, hooked: Hooked) -> None:
    space = await hooked.space(cluster, is_labelled=False)

    made = await cluster.create(keys.POD, pod(space))

    assert not tolerates(made)
    assert "nodeAffinity" not in (made["spec"].get("affinity") or {})


async def test_the_audit_log_has_the_verdict_on_every_pod(
    cluster: ClusterClient, hooked: Hooked, plane: Plane
) -> None:
    labelled, offloaded = [await hooked.space(cluster) for _ in range(2)]
    begin = plane.audit_log.stat().st_size
    await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(offloaded))
    with pytest.raises(KubeError):
        await cluster.create(keys.POD, pod(labelled))
    await cluster.create(keys.POD, pod(offloaded))
    hook = "pod.mutate.liqo.io"

    def told(space: str) -> Object:
        with plane.audit_log.open("rb") as log:
            log.seek(begin)
            lines = log.read().decode(errors="replace").split("\n")[:-1]
        events = [json.loads(line) for line in lines if f'"{space}"' in line and '"pods"' in line]
        found = [event.get("annotations") or {} for event in events]
        return {name: text for one in found for name, text in one.items() if ".mutate." in name}

    await asyncio.to_thread(wait_until, lambda: all(map(told, (labelled, offloaded))))
    assert told(labelled)[f"{hook}/verdict"] == "denied"
    assert "create or correct" in told(labelled)[f"{hook}/reason"]
    assert told(offloaded)[f"{hook}/verdict"] == "offloaded: LocalAndRemote"


async def test_a_dry_run_shows_what_the_pod_would_get_and_changes_nothing(
    cluster: ClusterClient, hooked: Hooked, plane: Plane
) -> None:
    space = await hooked.space(cluster)
    spec = {"podOffloadingStrategy": "Remote"}
    await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space, **spec))
    kubectl = Kubectl(plane.kubeconfig)
    arguments = ("apply", "--dry-run=server", "-o", "json", "-f", "-")

    shown = await asyncio.to_thread(kubectl.run, *arguments, stdin=json.dumps(pod(space)))

    made = json.loads(shown)
    assert tolerates(made)
    words = 'nodes="liqo.io/type In virtual-node"'
    note = f"strategy=Remote generation=1 added=toleration,nodeAffinity {words}"
    assert made["metadata"]["annotations"][keys.PLACEMENT] == note
    assert await cluster.get_live(keys.POD, Key(space, "web")) is None


async def test_a_strategy_reaches_the_stored_pod(cluster: ClusterClient, hooked: Hooked) -> None:
    space = await hooked.space(cluster)
    spec = {"podOffloadingStrategy": "Remote"}
    await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space, **spec))

    made = await cluster.create(keys.POD, pod(space))

    required = made["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    (term,) = required["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "liqo.io/type", "operator": "In", "values": ["virtual-node"]}
    ]


@pytest.mark.parametrize("case", [pytest.param(one.values, id=one.id) for one in TABLE])
async def test_the_truth_table_is_what_the_server_stores(
    cluster: ClusterClient, hooked: Hooked, case: Case
) -> None:
    strategy, selector, own, expected = case
    space = await hooked.space(cluster)
    spec: Object = {
        "podOffloadingStrategy": strategy.value,
        "clusterSelector": {"nodeSelectorTerms": list(selector)},
    }
    await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space, **spec))
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(own)}}} if own else {}

    made = await cluster.create(keys.POD, pod(space, spec=pod_spec(affinity=affinity)))

    stored = (made["spec"]["affinity"].get("nodeAffinity") or {}).get(REQUIRED) or {}
    assert stored.get("nodeSelectorTerms", []) == list(expected)
    assert tolerates(made)


@pytest.mark.parametrize(
    "row", [row for row in REFUSED.values() if "namespace" not in row], ids=lambda row: row["says"]
)
async def test_a_wrong_offloading_is_refused(
    cluster: ClusterClient, hooked: Hooked, row: Object
) -> None:
    space = await hooked.space(cluster)

    message = re.escape(str(row.get("schema", row["says"])))
    with pytest.raises(KubeError, match=message):
        await cluster.create(keys.NAMESPACE_OFFLOADING, wrong_offloading(row, space))

    key = Key(space, row.get("name", "offloading"))
    assert await cluster.get_live(keys.NAMESPACE_OFFLOADING, key) is None


async def test_two_namespaces_never_share_a_twin(cluster: ClusterClient, hooked: Hooked) -> None:
    twin = f"twin-{secrets.token_hex(4)}"
    spec = {"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": twin}
    first, second = [await hooked.space(cluster) for _ in range(2)]
    await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(first, **spec))

    with pytest.raises(KubeError, match=f"already that of {first}"):
        await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(second, **spec))


def by_patch(kind: str, change: Object | list[Object]) -> list[str]:
    body = json.dumps(change)
    return ["patch", "namespaceoffloading", "offloading", "--type", kind, "--patch", body]


def by_file(*verb: str) -> list[str]:
    return [*verb, "-f", "-"]


FIXED = {"namespaceMappingStrategy": "EnforceSameName", "remoteNamespaceName": "other"}
WAYS: dict[str, Callable[[str, str], list[str]]] = {
    "json": lambda name, value: by_patch(
        "json", [{"op": "add", "path": f"/spec/{name}", "value": value}]
    ),
    "merge": lambda name, value: by_patch("merge", {"spec": {name: value}}),
    "strategic": lambda name, value: by_patch("strategic", {"spec": {name: value}}),
    "apply": lambda *_: by_file("apply"),
    "server-side": lambda *_: by_file("apply", "--server-side", "--force-conflicts"),
    "replace": lambda *_: by_file("replace"),
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("field", FIXED)
async def test_immutable_fields_stay_on_every_path(
    cluster: ClusterClient, hooked: Hooked, plane: Plane, how: str, field: str
) -> None:
    kubectl = Kubectl(plane.kubeconfig)
    space = await hooked.space(cluster)
    chosen = {"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": f"{space}-there"}
    made = await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space, **chosen))
    wanted = offloading(space, **{**made["spec"], field: FIXED[field]})
    arguments, changed = WAYS[how](field, FIXED[field]), json.dumps(wanted)

    with pytest.raises(KubectlError, match=f"{field}|UnsupportedMediaType|not supported"):
        await asyncio.to_thread(kubectl.run, "-n", space, *arguments, stdin=changed)

    key = Key(space, "offloading")
    found = await cluster.get_live(keys.NAMESPACE_OFFLOADING, key)
    assert found is not None
    assert found["spec"] == made["spec"]
    allowed = {"spec": {"podOffloadingStrategy": "Remote"}}
    await cluster.patch(keys.NAMESPACE_OFFLOADING, key, allowed)


@pytest.mark.parametrize("how", ["json", "merge", "apply", "server-side", "replace"])
async def test_a_remote_name_is_ignored_on_every_path_without_selected_name(
    cluster: ClusterClient, hooked: Hooked, plane: Plane, how: str
) -> None:
    kubectl = Kubectl(plane.kubeconfig)
    space = await hooked.space(cluster)
    made = await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space))
    changed = json.dumps(offloading(space, **made["spec"], remoteNamespaceName="other"))
    arguments = WAYS[how]("remoteNamespaceName", "other")

    await asyncio.to_thread(kubectl.run, "-n", space, *arguments, stdin=changed)

    found = await cluster.get_live(keys.NAMESPACE_OFFLOADING, Key(space, "offloading"))
    assert found is not None
    assert found["spec"] == {**made["spec"], "remoteNamespaceName": "other"}


async def test_without_a_webhook_only_labelled_namespaces_wait(
    cluster: ClusterClient, plane: Plane, crds: None, tmp_path: Path
) -> None:
    gone = start(plane.kubeconfig, tmp_path)
    try:
        wait_until(gone.is_ready)
        await gone.install(cluster)
    finally:
        gone.process.kill()
        gone.process.wait()
    labelled = await gone.space(cluster)
    other = await gone.space(cluster, is_labelled=False)

    with pytest.raises(KubeError, match=r"pod\.mutate\.liqo\.io"):
        await cluster.create(keys.POD, pod(labelled))
    assert not tolerates(await cluster.create(keys.POD, pod(other)))
