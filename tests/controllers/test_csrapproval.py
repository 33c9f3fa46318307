"""Of all requests, one is approved: docs/parity.md SEC-C3."""

import base64
from dataclasses import dataclass, field
from typing import Any

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from certs import pki
from controllers.offloading.csrapproval import forge
from controllers.offloading.csrapproval.reconciler import CsrApprovalReconciler
from kube.cluster import Cluster
from kube.informer import Change
from tests import factories
from tests.controllers import whole
from tests.controllers.support import (
    NOW,
    Ledger,
    Told,
    ensure_namespace,
    manager_of,
    there,
    virtual_node,
)
from tests.fakes import FakeCluster

TENANT = "liqo-tenant-milan"
ACCOUNT = f"system:serviceaccount:{TENANT}:milan"
ADDRESS = "10.0.0.7"


@dataclass
class Asked:
    """What a request says; by default what it should."""

    common_name: str = "system:node:milan"
    organizations: list[str] = field(default_factory=lambda: ["system:nodes"])
    ips: list[str] = field(default_factory=lambda: [ADDRESS])
    username: str = ACCOUNT
    usages: tuple[str, ...] = ("digital signature", "key encipherment", "server auth")
    signer: str = forge.SIGNER
    pod: str = "vk-milan-1"
    pem: bytes | None = None
    dns: list[str] = field(default_factory=list)
    uid: str | None = None
    """That the token tells of the pod; by default its own."""
    more_pods: tuple[str, ...] = ()

    def request(self, pod_uid: str) -> Object:
        names: Any = {"ips": self.ips}
        if self.dns:
            names["dns"] = self.dns
        pem = self.pem or pki.new_csr(
            pki.new_key(), common_name=self.common_name, organizations=self.organizations, **names
        )
        extra = {
            "authentication.kubernetes.io/pod-name": [self.pod, *self.more_pods],
            "authentication.kubernetes.io/pod-uid": [pod_uid if self.uid is None else self.uid],
        }
        spec = {
            "request": base64.b64encode(pem).decode(),
            "signerName": self.signer,
            "usages": list(self.usages),
            "username": self.username,
            "extra": extra,
        }
        return named(keys.CERTIFICATE_SIGNING_REQUEST, Key("", "csr"), spec=spec)


@pytest.fixture
async def rome() -> FakeCluster:
    """A consumer with a virtual node whose virtual kubelet runs."""
    cluster = FakeCluster(strict=True)
    await ensure_namespace(cluster, TENANT)
    await cluster.create(keys.VIRTUAL_NODE, virtual_node(TENANT, "milan", "milan"))
    labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: "milan"}
    await cluster.create(keys.NODE, factories.node("milan", metadata={"labels": labels}))
    for name, own, account in (
        ("vk-milan-1", keys.VIRTUAL_KUBELET, "milan"),
        ("other", "none", "milan"),
        ("theirs", keys.VIRTUAL_KUBELET, "turin"),
    ):
        metadata = {"labels": {keys.COMPONENT: own, keys.VIRTUAL_NODE_LABEL: "milan"}}
        spec = factories.pod_spec(serviceAccountName=account)
        await cluster.create(keys.POD, factories.pod(TENANT, name, spec=spec, metadata=metadata))
        await cluster.patch_status(keys.POD, Key(TENANT, name), {"podIP": ADDRESS})
    return cluster


async def csr_verdict(cluster: FakeCluster, asked: Asked) -> str:
    """Return the type of the condition that the request got, twice looked at."""
    ledger = Ledger(cluster)
    pod = await cluster.get(keys.POD, Key(TENANT, asked.pod))
    request = asked.request(objects.uid(pod) if pod else "gone")
    await cluster.create(keys.CERTIFICATE_SIGNING_REQUEST, request)
    reconciler = CsrApprovalReconciler(
        manager_of(ledger, events=Told(ledger).recorder, clock=lambda: NOW)
    )
    for _ in range(2):
        await reconciler.reconcile(Key("", "csr"))
    found = await there(cluster, keys.CERTIFICATE_SIGNING_REQUEST, Key("", "csr"))
    conditions = (found.get("status") or {}).get("conditions") or []
    assert len(ledger.writes) == len(conditions)
    return conditions[0]["type"] if conditions else ""


async def test_the_request_of_a_virtual_kubelet_is_approved(rome: FakeCluster) -> None:
    assert await csr_verdict(rome, Asked()) == "Approved"


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(Asked(common_name="system:node:turin"), id="another node"),
        pytest.param(Asked(common_name="System:node:milan"), id="another case"),
        pytest.param(Asked(common_name="system:node:milan "), id="a space"),
        pytest.param(Asked(organizations=[]), id="no organization"),
        pytest.param(Asked(organizations=["system:nodes", "system:masters"]), id="two"),
        pytest.param(Asked(organizations=["system:masters"]), id="another organization"),
        pytest.param(Asked(ips=["10.0.0.8"]), id="another address"),
        pytest.param(Asked(ips=[]), id="no address"),
        pytest.param(Asked(ips=[ADDRESS, "10.96.0.1"]), id="one address more"),
        pytest.param(Asked(usages=("digital signature", "client auth")), id="a client"),
        pytest.param(
            Asked(usages=("digital signature", "server auth", "client auth")), id="one usage more"
        ),
        pytest.param(Asked(usages=()), id="no usage"),
        pytest.param(Asked(pod="other"), id="a pod that is no virtual kubelet"),
        pytest.param(Asked(pod="gone"), id="no pod"),
        pytest.param(Asked(pem=b"nonsense"), id="nonsense"),
        pytest.param(Asked(common_name="milan"), id="half a name"),
        pytest.param(Asked(common_name="system:serviceaccount:kube-system:x"), id="an account"),
        pytest.param(Asked(organizations=["system:nodes", "system:nodes"]), id="one twice"),
        pytest.param(Asked(ips=[f"::ffff:{ADDRESS}"]), id="the address in another form"),
        pytest.param(Asked(ips=["127.0.0.1"]), id="the address of everybody"),
        pytest.param(Asked(dns=["milan"]), id="a name of DNS"),
        pytest.param(Asked(dns=["kubernetes.default.svc"], ips=[]), id="the API server's name"),
        pytest.param(Asked(usages=("server auth",)), id="one usage less"),
        pytest.param(Asked(usages=("any",)), id="any usage"),
        pytest.param(Asked(usages=("digital signature", "server auth", "cert sign")), id="a CA"),
        pytest.param(Asked(pod="theirs"), id="a pod of another account"),
        pytest.param(Asked(uid="of an older one"), id="a pod of that name before"),
        pytest.param(Asked(uid=""), id="no UID"),
        pytest.param(Asked(more_pods=("other",)), id="two pods"),
    ],
)
async def test_anything_else_is_denied(rome: FakeCluster, asked: Asked) -> None:
    assert await csr_verdict(rome, asked) == "Denied"


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(Asked(username="system:node:worker"), id="a real kubelet"),
        pytest.param(Asked(username=f"system:serviceaccount:{TENANT}:turin"), id="another account"),
        pytest.param(Asked(username="system:serviceaccount:other:milan"), id="another namespace"),
        pytest.param(Asked(username="system:serviceaccount:milan"), id="half a name"),
        pytest.param(Asked(signer="kubernetes.io/kube-apiserver-client"), id="another signer"),
    ],
)
async def test_what_is_not_ours_is_not_ours_to_decide(rome: FakeCluster, asked: Asked) -> None:
    assert await csr_verdict(rome, asked) == ""


async def test_it_waits_for_the_node(rome: FakeCluster) -> None:
    node = await there(rome, keys.NODE, Key("", "milan"))
    await rome.delete(keys.NODE, Key("", "milan"), uid=objects.uid(node))

    assert await csr_verdict(rome, Asked()) == ""
    async with whole.watching(rome, CsrApprovalReconciler) as loop:
        others = (Change(Key("", "turin"), None, node), Change(Key("", "milan"), node, node))
        assert [whole.woken(loop, keys.NODE, other) for other in others] == [[], []]
        made = Change(Key("", "milan"), None, node)
        assert whole.woken(loop, keys.NODE, made) == [Key("", "csr")]


async def test_a_node_of_somebody_else_is_no_reason_to_approve(rome: FakeCluster) -> None:
    labels = {"metadata": {"labels": {keys.REMOTE_CLUSTER_ID: "turin"}}}
    await rome.patch(keys.NODE, Key("", "milan"), labels)

    assert await csr_verdict(rome, Asked()) == "Denied"


async def test_the_server_takes_the_verdict(cluster: Cluster, namespace: str) -> None:
    request = Asked(common_name=f"system:node:{namespace}").request("uid")
    request["metadata"] = {"name": namespace}
    for field_ in ("username", "extra"):
        del request["spec"][field_]
    made = await cluster.create(keys.CERTIFICATE_SIGNING_REQUEST, request)
    changes = forge.verdict(made, forge.APPROVED, "it may", NOW)

    await cluster.patch(
        keys.CERTIFICATE_SIGNING_REQUEST, Key("", namespace), changes, subresource="approval"
    )

    found = await there(cluster, keys.CERTIFICATE_SIGNING_REQUEST, Key("", namespace))
    assert [each["type"] for each in found["status"]["conditions"]] == ["Approved"]
    assert not forge.is_pending(found)
