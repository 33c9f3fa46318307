"""The page on offloading a namespace, command by command, in its order.

Source: the page "Namespace offloading". rome has two providers here, milan and cool-firefly.
"""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from sandbox import images
from tests.documents.terminal import OBJECTS, Terminal
from tests.journeys import world
from tests.journeys.three import Three

pytestmark = pytest.mark.journey

OFFLOAD = "liqoctl offload namespace foo"
UNOFFLOAD = "liqoctl unoffload namespace foo"
SHOWN = "kubectl get namespaceoffloadings.offloading.liqo.io -n foo"
HEADING = "NAME NAMESPACEMAPPINGSTRATEGY PODOFFLOADINGSTRATEGY OFFLOADINGPHASE AGE"
NAMESPACES = "kubectl get namespaces"
PODS = "kubectl get pods -n foo"
PLACES = f"{PODS} -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,PHASE:.status.phase"
BOTH = {"milan", "cool-firefly"}


@pytest.fixture
async def foo(consumer: Terminal) -> AsyncIterator[None]:
    await consumer.types("kubectl create namespace foo")
    yield
    await consumer.types("kubectl delete namespace foo")


@pytest.fixture
async def selectable(consumer: Terminal) -> AsyncIterator[None]:
    """Label the nodes as the page has them; nothing of it is left."""
    await consumer.types("kubectl label node milan region=europe staging=true")
    await consumer.types("kubectl label node cool-firefly region=africa")
    yield
    await consumer.types("kubectl label node milan cool-firefly region- staging-")


async def chosen(consumer: Terminal, *clusters: str) -> None:
    """Wait until these clusters, and no others, have a twin, by the status of the offloading."""
    async for found in offloading(consumer):
        answers = answers_of(found)
        wanted = {name: "True" if name in clusters else "False" for name in BOTH}
        is_ready = {name for name in clusters if answers[name].get("Ready") == "True"}
        required = {name: answers[name].get("OffloadingRequired") for name in answers}
        if required == wanted and is_ready == set(clusters):
            return


async def offloading(consumer: Terminal) -> AsyncIterator[Any]:
    """Yield the NamespaceOffloading again and again, within the patience of journeys."""
    for _ in range(3 * world.PATIENCE_S):
        yield json.loads(await consumer.prints(f"{SHOWN} offloading -o json"))
    raise AssertionError("the status is not as it should be")


def answers_of(found: Any) -> Mapping[str, Mapping[str, str]]:
    said = found.get("status", {}).get("remoteNamespacesConditions", {})
    return {
        cluster: {one["type"]: one["status"] for one in said.get(cluster, ())} for cluster in BOTH
    }


async def has_web(consumer: Terminal, **spec: str) -> str:
    """Make a Deployment in foo; return the row of its pod once that runs."""
    made = world.deployment("foo", "web", images.workload_name(), 1)
    made["spec"]["template"]["spec"] |= spec
    await consumer.types("kubectl apply -f -", json.dumps(made))
    return await web(consumer)


async def web(consumer: Terminal, *, besides: str = "") -> str:
    """Return the row of the pod of the Deployment that runs, another than ``besides``."""
    for _ in range(3 * world.PATIENCE_S):
        for row in await consumer.rows(PLACES):
            if row.startswith("web-") and row.endswith(" Running") and row != besides:
                return row
    raise AssertionError(f"no pod of web runs: {await consumer.rows(PLACES)}")


async def test_it_is_offloaded_by_default_updated_and_taken_back(
    consumer: Terminal, provider: Terminal, foo: None
) -> None:
    await consumer.types(OFFLOAD)
    await consumer.sees(SHOWN, HEADING, "offloading DefaultName LocalAndRemote Ready AGE")
    await chosen(consumer, *BOTH)
    await provider.sees(NAMESPACES, "NAME STATUS AGE", "foo-rome Active AGE")

    await consumer.types(f"{OFFLOAD} --pod-offloading-strategy Remote")
    await consumer.sees(SHOWN, HEADING, "offloading DefaultName Remote Ready AGE")
    there = await has_web(consumer)
    assert there.split()[1] in BOTH

    said = await consumer.types(f"{OFFLOAD} --pod-offloading-strategy Local")
    assert "stricter than the current one" in said
    assert "are not evicted" in said
    await consumer.sees(SHOWN, HEADING, "offloading DefaultName Local Ready AGE")
    await runs_where_its_class_says(consumer)
    assert await web(consumer) == there, "the document: violators are not evicted"
    told = json.loads(await consumer.prints(f"{SHOWN} offloading -o json"))["status"]["conditions"]
    (placed,) = [one for one in told if one["type"] == "PodsPlaced"]
    assert placed["status"] == "False"
    assert there.split()[0] in placed["message"]

    await provider.types("kubectl create configmap by-hand -n foo-rome")
    said = await consumer.types(UNOFFLOAD, "y\n")
    assert "namespace foo-rome on cool-firefly goes, with everything in it" in said
    await provider.sees_no_more(NAMESPACES, "foo-rome")
    assert await consumer.rows(SHOWN) == []
    assert (await web(consumer, besides=there)).split()[1] == "rome-1"


async def runs_where_its_class_says(consumer: Terminal) -> None:
    """Local as strategy, and the pod of RuntimeClass liqo runs on a virtual node all the same."""
    pod = (OBJECTS / "pod.yaml").read_text().replace("IMAGE", images.workload_name())
    await consumer.types("kubectl apply -n foo -f -", pod)
    await consumer.types("kubectl wait -n foo pod forced --for=condition=Ready --timeout=300s")
    (row,) = [row for row in await consumer.rows(PLACES) if row.startswith("forced ")]
    assert row.split()[1] in BOTH
    await consumer.types("kubectl delete pod forced -n foo")


async def test_what_is_printed_is_applied(
    consumer: Terminal, provider: Terminal, foo: None
) -> None:
    for output in ("yaml", "json"):
        printed = await consumer.prints(f"{OFFLOAD} --output {output}")
        assert await consumer.rows(SHOWN) == [], "nothing is written by printing"
        await consumer.types("kubectl apply -f -", printed)
        await consumer.sees(SHOWN, HEADING, "offloading DefaultName LocalAndRemote Ready AGE")
        await provider.sees(NAMESPACES, "NAME STATUS AGE", "foo-rome Active AGE")
        await consumer.types(UNOFFLOAD, "y\n")
        await provider.sees_no_more(NAMESPACES, "foo-rome")


async def test_the_twin_is_called_as_the_strategy_says_until_it_is_taken_back(
    consumer: Terminal, provider: Terminal, foo: None
) -> None:
    strategy = f"{OFFLOAD} --namespace-mapping-strategy"
    await consumer.types(OFFLOAD)
    said = await consumer.types(f"{strategy} EnforceSameName", fails=True)
    assert "cannot be changed" in said
    await provider.sees(NAMESPACES, "NAME STATUS AGE", "foo-rome Active AGE")
    await consumer.types(f"{OFFLOAD} --remote-namespace-name bar")  # which is ignored
    await provider.sees(NAMESPACES, "NAME STATUS AGE", "foo-rome Active AGE")
    assert not [row for row in await provider.rows(NAMESPACES) if row.startswith("bar ")]
    twin = "foo-rome"
    for command, name in (
        (f"{strategy} EnforceSameName", "foo"),
        (f"{strategy} SelectedName --remote-namespace-name bar", "bar"),
    ):
        await consumer.types(UNOFFLOAD, "y\n")
        await provider.sees_no_more(NAMESPACES, twin)
        await consumer.types(command)
        await provider.sees(NAMESPACES, "NAME STATUS AGE", f"{name} Active AGE")
        twin = name
    await consumer.types(UNOFFLOAD, "y\n")
    await provider.sees_no_more(NAMESPACES, twin)


async def test_selectors_choose_clusters_by_labels_of_nodes_that_come_and_go(
    consumer: Terminal, three: Three, foo: None, selectable: None
) -> None:
    """One is of Europe, but for staging; the other is for no staging, but not of Europe."""
    twins = {name: Terminal(three.kubeconfigs[name]) for name in BOTH}
    await consumer.types(f"{OFFLOAD} --selector 'region in (europe,us-west), !staging'")
    await chosen(consumer)
    await consumer.types(f"{OFFLOAD} --selector 'region in (europe,us-west)' --selector '!staging'")
    await chosen(consumer, *BOTH)

    await consumer.types("kubectl label node cool-firefly staging=true")
    await chosen(consumer, "milan")
    await twins["cool-firefly"].sees_no_more(NAMESPACES, "foo-rome")
    await consumer.types(f"{OFFLOAD} --selector 'region in (europe,us-west), !staging'")
    await chosen(consumer)
    await consumer.types("kubectl label node cool-firefly region=us-west staging- --overwrite")
    await chosen(consumer, "cool-firefly")
    await twins["milan"].sees_no_more(NAMESPACES, "foo-rome")
    await twins["cool-firefly"].sees(NAMESPACES, "NAME STATUS AGE", "foo-rome Active AGE")
    await consumer.types(UNOFFLOAD, "y\n")
