"""The page on ResourceSlices and VirtualNodes, command by command, in its order.

Source: the page "Offloading in depth"; its objects stand in ``objects``, field by field.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import images
from tests.documents.terminal import OBJECTS, Terminal
from tests.journeys import world

pytestmark = pytest.mark.journey

TENANT = "liqo-tenant-cool-firefly"
SLICES = "kubectl get resourceslices.authentication.liqo.io -A"
QUOTAS = "kubectl get quotas.offloading.liqo.io -A"
VIRTUAL_NODES = "kubectl get virtualnodes.offloading.liqo.io -A"
NODES = "kubectl get node"
CREATE = "liqoctl create resourceslice mypool --remote-cluster-id cool-firefly"
CREATE_NODE = "liqoctl create virtualnode --remote-cluster-id cool-firefly"
DELETE_SLICE = f"kubectl delete resourceslices.authentication.liqo.io mypool -n {TENANT}"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
RUN = """
import sys, pathlib, gold_class
from controllers.granting import customclass
customclass.run("custom-class", gold_class.allocate, kubeconfig=pathlib.Path(sys.argv[1]))
"""
DELETE_NODE = f"kubectl delete virtualnode mynode -n {TENANT}"


async def sees_what_a_slice_makes(consumer: Terminal, provider: Terminal) -> None:
    """The slice is accepted, limited over there, and a node here: by four listings."""
    await consumer.sees(
        SLICES,
        "NAMESPACE NAME AUTHENTICATION RESOURCES AGE",
        f"{TENANT} mypool Accepted Accepted AGE",
    )
    await provider.sees(
        QUOTAS, "NAMESPACE NAME ENFORCEMENT CORDONED AGE",
        "liqo-tenant-rome mypool-[0-9a-f]{12} None AGE",
    )  # fmt: skip
    await consumer.sees(
        VIRTUAL_NODES, "NAMESPACE NAME CLUSTERID CREATE NODE AGE",
        f"{TENANT} mypool cool-firefly true AGE",
    )  # fmt: skip
    await sees_node(consumer, "mypool")


async def sees_node(consumer: Terminal, name: str) -> None:
    """The node is ready, of role agent, and of the version of the cluster it is in."""
    (version,) = {
        row.split()[-1] for row in await consumer.rows(NODES) if row.startswith("rome-1 ")
    }
    await consumer.sees(NODES, "NAME STATUS ROLES AGE VERSION", f"{name} Ready agent AGE {version}")


async def sees_nothing_of_it(consumer: Terminal, provider: Terminal) -> None:
    for terminal, listing in (
        (consumer, SLICES), (consumer, VIRTUAL_NODES), (consumer, NODES), (provider, QUOTAS),
    ):  # fmt: skip
        await terminal.sees_no_more(listing, "mypool")
    assert not [row for row in await provider.rows(QUOTAS) if " mypool-" in row]


async def has(consumer: Terminal, node: str, **amounts: str) -> None:
    """Wait until a node has these amounts, capacity and allocatable alike."""
    wanted = {name.replace("_", "-"): amount for name, amount in amounts.items()}
    await consumer.types(
        f"kubectl wait node {node} --timeout=300s"
        f" --for=jsonpath='{{.status.allocatable.cpu}}'={wanted['cpu']}"
    )
    status = json.loads(await consumer.prints(f"kubectl get node {node} -o json"))["status"]
    assert status["allocatable"] == status["capacity"] == wanted


@pytest.fixture
async def foo(consumer: Terminal) -> AsyncIterator[str]:
    """Offload a namespace, in which pods may be told where to run."""
    await consumer.types("kubectl create namespace foo")
    await consumer.types("liqoctl offload namespace foo")
    yield "foo"
    await consumer.types("liqoctl unoffload namespace foo", "y\n")
    await consumer.types("kubectl delete namespace foo")


async def runs(consumer: Terminal, namespace: str, node: str) -> None:
    """A pod runs on a node."""
    made = world.pod(namespace, f"on-{node}", images.workload_name())
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    await consumer.types(f"kubectl apply -n {namespace} -f -", json.dumps(made))
    await consumer.types(
        f"kubectl wait -n {namespace} pod on-{node} --for=condition=Ready --timeout=300s"
    )


def printed(name: str) -> Any:
    return yaml.safe_load((OBJECTS / name).read_text())


async def test_a_resource_slice_is_all_that_a_node_takes(
    consumer: Terminal, provider: Terminal
) -> None:
    await consumer.types(CREATE)
    await sees_what_a_slice_makes(consumer, provider)
    await has(consumer, "mypool", cpu="4", memory="8Gi", pods="110", ephemeral_storage="20Gi")
    await is_deleted_as_printed_or_by_its_group(consumer)
    await sees_nothing_of_it(consumer, provider)

    await consumer.types("kubectl apply -f mypool.yaml")
    await sees_what_a_slice_makes(consumer, provider)
    await is_printed_edited_and_applied(consumer)
    await consumer.types(DELETE_SLICE)
    await sees_nothing_of_it(consumer, provider)

    await consumer.types(f"{CREATE} --cpu 3 --memory 6Gi --pods 30")
    await sees_what_a_slice_makes(consumer, provider)
    await has(consumer, "mypool", cpu="3", memory="6Gi", pods="30", ephemeral_storage="20Gi")
    await consumer.types("liqoctl delete resourceslice mypool", "y\n")
    await sees_nothing_of_it(consumer, provider)


async def is_deleted_as_printed_or_by_its_group(consumer: Terminal) -> None:
    """Where Kubernetes has a kind of this plural, kubectl takes that one; then the group helps."""
    line = f"kubectl delete resourceslice mypool -n {TENANT}"
    has_another = "resource.k8s.io" in await consumer.prints("kubectl api-versions")
    said = await consumer.types(line, fails=has_another)
    if has_another:
        assert 'resourceslices.resource.k8s.io "mypool" not found' in said
        await consumer.types(DELETE_SLICE)


async def is_printed_edited_and_applied(consumer: Terminal) -> None:
    """What the command prints is the object of the page; resources of any name are added to it."""
    made = next(yaml.safe_load_all(await consumer.prints(f"{CREATE} -o yaml")))
    assert {**made, "metadata": {**made["metadata"], "creationTimestamp": None}, "status": {}} == (
        printed("mypool.yaml")
    )
    made["spec"]["resources"] = {"cpu": "2", "ephemeral-storage": "5Gi", "nvidia.com/gpu": "2"}
    await consumer.types("kubectl apply -f -", json.dumps(made))
    amounts = {"cpu": "2", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "2"}
    await has(consumer, "mypool", **amounts, ephemeral_storage="5Gi")


async def test_a_class_of_ones_own_decides_what_quota_and_node_have(
    consumer: Terminal, provider: Terminal
) -> None:
    """The object is applied as it is printed; then the class is named by the flag."""
    async with controller_of_the_class(provider):
        await consumer.types("kubectl apply -f custom.yaml")
        await sees_what_a_slice_makes(consumer, provider)
        await has(consumer, "mypool", cpu="4", memory="16Gi", pods="100")
        await consumer.types(DELETE_SLICE)
        await sees_nothing_of_it(consumer, provider)
        await consumer.types(f"{CREATE} --class custom-class --cpu 2")
        await sees_what_a_slice_makes(consumer, provider)
        await has(consumer, "mypool", cpu="2", memory="16Gi", pods="100")
    await consumer.types(DELETE_SLICE)
    await sees_nothing_of_it(consumer, provider)


@contextlib.asynccontextmanager
async def controller_of_the_class(provider: Terminal) -> AsyncIterator[None]:
    """Run the controller that our documentation prints, for the class of theirs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUN, str(provider.kubeconfig), cwd=EXAMPLES
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def test_virtual_nodes_are_made_of_a_slice_or_of_a_secret(
    consumer: Terminal, provider: Terminal, foo: str
) -> None:
    await consumer.types(CREATE)
    await sees_what_a_slice_makes(consumer, provider)

    await consumer.types(f"{CREATE_NODE} --resource-slice-name mypool mynode")
    await sees_node(consumer, "mynode")
    await has(consumer, "mynode", cpu="4", memory="8Gi", pods="110", ephemeral_storage="20Gi")
    await node_is_deleted(consumer)

    await consumer.types("kubectl apply -f mynode.yaml")
    await sees_node(consumer, "mynode")
    await has(consumer, "mynode", cpu="4", memory="8Gi", pods="110", ephemeral_storage="20Gi")
    labels = "kubectl get node -l liqo.io/provider=kubeadm,liqo.io/remote-cluster-id=cool-firefly"
    assert [row.split()[0] for row in await consumer.rows(labels)] == ["mynode"]
    await runs(consumer, foo, "mynode")
    await node_is_deleted(consumer)

    by_secret = f"{CREATE_NODE} --kubeconfig-secret-name kubeconfig-resourceslice-mypool mynode"
    await consumer.types(by_secret)
    await sees_node(consumer, "mynode")
    await has(consumer, "mynode", cpu="2", memory="4Gi", pods="110")
    told = await consumer.prints("liqoctl info peer cool-firefly")
    assert "mynode" in told
    assert "mypool" in told
    await node_is_deleted(consumer)

    await secret_is_applied_as_printed(consumer)
    await consumer.types("kubectl apply -f mynode-of-a-secret.yaml")
    await sees_node(consumer, "mynode")
    await has(consumer, "mynode", cpu="2", memory="4Gi", pods="110")
    await runs(consumer, foo, "mynode")
    await node_is_deleted(consumer)
    await consumer.types(DELETE_SLICE)
    await sees_nothing_of_it(consumer, provider)


async def node_is_deleted(consumer: Terminal) -> None:
    await consumer.types(DELETE_NODE)
    await consumer.sees_no_more(VIRTUAL_NODES, "mynode")
    await consumer.sees_no_more(NODES, "mynode")


async def secret_is_applied_as_printed(consumer: Terminal) -> None:
    """The Secret is in the namespace of the VirtualNode, of the layout that is printed."""
    where = f"kubectl get secret kubeconfig-resourceslice-mypool -n {TENANT} -o json"
    found = json.loads(await consumer.prints(where))
    made = printed("kubeconfig.yaml")
    assert found["type"] == made["type"]
    made["data"] = found["data"]
    await consumer.types("kubectl apply -f -", json.dumps(made))
