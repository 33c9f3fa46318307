"""A slice on its way: completed here, certified there, turned into a virtual node here."""

import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from apis import keys, naming, objects, slices
from apis.objects import Key, Object, named
from apis.offloading import VirtualNode
from certs import identity, pki, requests
from controllers.authentication.issuing.issuer import LOOK_S
from controllers.granting.resourceslice import forge
from controllers.granting.resourceslice.reconciler import LocalSliceReconciler, ReplicaReconciler
from kube import errors
from kube.cluster import Cluster, Selection
from tests import factories, signers
from tests.controllers.support import LATER, Ledger, Told, end, make, manager_of, settle, there
from tests.fakes import FakeCluster

KEY = identity.new_key()
OTHER_KEY = identity.new_key()
CA = pki.new_ca("ca", now=LATER, lifetime=timedelta(days=10))
ACCEPTED = {"status": "Accepted", "reason": "Yes", "message": ""}


class Consumer:
    """Rome, that asks milan; a namespace of the test's own is the tenant namespace."""

    def __init__(self, cluster: Cluster, unique: str) -> None:
        self.cluster = Ledger(cluster)
        self.milan = f"milan-{unique}"
        self.where = Key(naming.tenant_namespace(self.milan), "mypool")
        self.told = Told(cluster)
        self.loop = LocalSliceReconciler(
            manager_of(self.cluster, cluster_id="rome", private_key=KEY, events=self.told.recorder)
        )

    async def ask(self, spec: Object | None = None, **metadata: Any) -> None:
        made = named(keys.RESOURCE_SLICE, self.where, metadata=metadata, spec=spec or {})
        await self.cluster.create(keys.RESOURCE_SLICE, made)

    async def settle(self) -> Object:
        await settle(self.loop, self.where, self.cluster)
        return await there(self.cluster, keys.RESOURCE_SLICE, self.where)

    async def answer(self, **status: Any) -> None:
        """Write the status that replication brings home."""
        said = [
            {"type": type_, "lastTransitionTime": "2025-01-01T00:00:00Z", **ACCEPTED}
            for type_ in ("Authentication", "Resources")
        ]
        await self.cluster.patch_status(
            keys.RESOURCE_SLICE, self.where, {"conditions": said, **status}
        )

    async def sign_in(self) -> None:
        """Put the Identity there that its own controllers make."""
        name = naming.resourceslice_identity(self.where.name)
        spec = {"clusterID": self.milan, "type": "ResourceSlice"}
        obj = named(keys.IDENTITY, Key(self.where.namespace, name), spec=spec)
        status = {"kubeconfigSecretRef": {"name": naming.kubeconfig_secret(name)}}
        await make(self.cluster, keys.IDENTITY, obj, status=status)

    async def node(self) -> Object | None:
        return await self.cluster.get_live(keys.VIRTUAL_NODE, self.where)


@pytest.fixture
async def consumer(cluster: Cluster, namespace: str) -> Consumer:
    made = Consumer(cluster, namespace)
    await cluster.create(
        keys.NAMESPACE, factories.tenant_namespace(made.where.namespace, made.milan)
    )
    return made


async def test_a_slice_written_by_hand_gets_all_that_it_needs_to_be_sent(
    consumer: Consumer,
) -> None:
    await consumer.ask({"class": "gold"})

    obj = await consumer.settle()

    labels = objects.labels(obj)
    assert (labels[keys.REPLICATION], labels[keys.REMOTE_ID]) == ("true", consumer.milan)
    assert labels[keys.REMOTE_CLUSTER_ID] == consumer.milan
    assert obj["spec"]["consumerClusterID"] == "rome"
    assert obj["spec"]["providerClusterID"] == consumer.milan
    request = base64.b64decode(obj["spec"]["csr"])
    user = naming.quota_name("mypool", "rome")
    assert requests.problems(request, common_name=user, organization="rome") == []
    assert identity.is_key_of(request, pki.public_key(KEY))
    before = len(consumer.cluster.writes)
    await consumer.loop.reconcile(consumer.where)
    assert len(consumer.cluster.writes) == before


FOREIGN: tuple[dict[str, Any], ...] = (
    {"labels": {keys.REPLICATED: "true", keys.ORIGIN_ID: "milan"}},
    {"labels": {keys.REPLICATED: "false"}},
    {"labels": {keys.ORIGIN_ID: "turin", keys.REPLICATION: "true"}},
    {},
)


@pytest.mark.parametrize("metadata", FOREIGN)
async def test_a_slice_of_the_peer_is_not_taken_for_ours(
    consumer: Consumer, metadata: dict[str, Any]
) -> None:
    """Nothing is signed in its name with our key, and no node is made of it."""
    await consumer.ask({} if metadata else {"consumerClusterID": consumer.milan}, **metadata)
    asked = await there(consumer.cluster, keys.RESOURCE_SLICE, consumer.where)

    assert await consumer.settle() == asked
    assert await consumer.node() is None


async def test_a_request_by_a_key_that_is_not_ours_any_more_is_made_anew(
    consumer: Consumer,
) -> None:
    old = pki.new_csr(
        OTHER_KEY, common_name=naming.quota_name("mypool", "rome"), organizations=["rome"]
    )
    await consumer.ask({"csr": base64.b64encode(old).decode()})

    obj = await consumer.settle()

    assert identity.is_key_of(base64.b64decode(obj["spec"]["csr"]), pki.public_key(KEY))


async def test_a_slice_for_somebody_else_is_not_sent(consumer: Consumer) -> None:
    await consumer.ask({"providerClusterID": "turin"})

    obj = await consumer.settle()

    assert keys.REPLICATION not in objects.labels(obj)
    assert consumer.told.reasons == ["WrongNamespace"]


async def test_a_slice_in_a_namespace_of_no_peering_is_told_so(consumer: Consumer) -> None:
    unlabelled = {"metadata": {"labels": {keys.TENANT_NAMESPACE: None}}}
    await consumer.cluster.patch(keys.NAMESPACE, Key("", consumer.where.namespace), unlabelled)
    await consumer.ask()

    obj = await consumer.settle()

    assert keys.REPLICATION not in objects.labels(obj)
    assert consumer.told.reasons == ["WrongNamespace"]


def test_of_a_class_of_its_own_it_is_told_who_grants_it() -> None:
    assert "controller of class gold" in forge.asked({"spec": {"class": "gold"}}, "milan")
    assert forge.asked({"spec": {}}, "milan") == "asks cluster milan"


async def test_nothing_is_made_of_it_before_it_is_granted_and_asked_for(consumer: Consumer) -> None:
    await consumer.ask(annotations={keys.CREATE_VIRTUAL_NODE: "false"})
    await consumer.settle()
    await consumer.sign_in()
    await consumer.settle()
    assert await consumer.node() is None

    await consumer.answer(resources={"cpu": "4"})
    await consumer.settle()

    assert await consumer.node() is None


async def test_a_virtual_node_is_made_of_what_was_granted_and_follows_it(
    consumer: Consumer,
) -> None:
    await consumer.ask(annotations={keys.CREATE_VIRTUAL_NODE: "true"})
    await consumer.settle()
    await consumer.sign_in()
    await consumer.answer(
        resources={"cpu": "4", "memory": "8Gi"},
        storageClasses=[{"storageClassName": "fast", "default": True}],
        nodeLabels={"topology.kubernetes.io/region": "lombardy", "liqo.io/type": "physical"},
        nodeSelector={"pool": "a"},
    )
    await consumer.settle()

    made = await consumer.node()
    assert made is not None
    node = VirtualNode.parse(made)
    assert (node.cluster_id, node.kubeconfig_secret) == (
        consumer.milan,
        "kubeconfig-resourceslice-mypool",
    )
    assert node.hard == {"cpu": "4", "memory": "8Gi"}
    assert [one.name for one in node.storage_classes] == ["fast"]
    assert node.offloading_patch.node_selector == {"pool": "a"}
    assert node.labels == {
        "topology.kubernetes.io/region": "lombardy",
        keys.REMOTE_CLUSTER_ID: consumer.milan,
    }
    assert objects.labels(made)[keys.RESOURCE_SLICE_NAME] == "mypool"
    assert "VirtualNodeCreated" in consumer.told.reasons

    mine = {"spec": {"labels": {"team": "blue"}, "createNode": False}}
    await consumer.cluster.patch(keys.VIRTUAL_NODE, consumer.where, mine)
    await consumer.answer(resources={"cpu": "6", "memory": None})
    await consumer.settle()

    node = VirtualNode.parse(await consumer.node() or {})
    assert node.hard == {"cpu": "6"}
    assert (node.labels["team"], node.create_node) == ("blue", False)


async def test_labels_that_are_suggested_follow_and_those_of_an_administrator_win(
    consumer: Consumer,
) -> None:
    await consumer.ask(annotations={keys.CREATE_VIRTUAL_NODE: "true"})
    await consumer.settle()
    await consumer.sign_in()
    granted = {"cpu": "4"}
    await consumer.answer(resources=granted, nodeLabels={"region": "po", "tier": "gold"})
    await consumer.settle()
    mine = {"spec": {"labels": {"tier": "ours", "team": "blue"}}}
    await consumer.cluster.patch(keys.VIRTUAL_NODE, consumer.where, mine)
    await consumer.answer(resources=granted, nodeLabels={"region": "po", "tier": "iron", "x": "1"})
    await consumer.settle()

    more = VirtualNode.parse(await consumer.node() or {}).labels
    await consumer.answer(resources=granted, nodeLabels={"region": None, "tier": None, "x": "2"})
    await consumer.settle()
    less = VirtualNode.parse(await consumer.node() or {}).labels

    kept = {"tier": "ours", "team": "blue", keys.REMOTE_CLUSTER_ID: consumer.milan}
    assert more == {"region": "po", "x": "1", **kept}
    assert less == {"x": "2", **kept}


async def test_the_largest_pod_goes_to_the_virtual_node_and_is_never_more_than_was_granted(
    consumer: Consumer,
) -> None:
    await consumer.ask(annotations={keys.CREATE_VIRTUAL_NODE: "true"})
    await consumer.settle()
    await consumer.sign_in()
    await consumer.answer(resources={"cpu": "4", "memory": "8Gi"})
    await consumer.settle()
    assert VirtualNode.parse(await consumer.node() or {}).largest_pod == {}

    said = {"cpu": "1500m", "memory": "1Ti", "gpu": "7"}
    await consumer.answer(resources={"cpu": "4", "memory": "8Gi"}, largestPod=said)
    await consumer.settle()
    shown = VirtualNode.parse(await consumer.node() or {}).largest_pod
    assert shown == {"cpu": "1500m", "memory": "8Gi"}

    await consumer.answer(resources={"cpu": "4", "memory": "8Gi"}, largestPod=None)
    await consumer.settle()
    assert VirtualNode.parse(await consumer.node() or {}).largest_pod == {}


async def test_a_slice_that_waits_for_a_kubeconfig_does_not_depend_on_news_of_its_identity(
    consumer: Consumer,
) -> None:
    await consumer.ask(annotations={keys.CREATE_VIRTUAL_NODE: "true"})
    await consumer.settle()
    await consumer.answer(resources={"cpu": "4"})

    waits_s = await consumer.loop.reconcile(consumer.where)
    await consumer.sign_in()
    is_done = await consumer.loop.reconcile(consumer.where) is None

    assert waits_s
    assert is_done
    assert await consumer.node() is not None


async def test_a_virtual_node_of_somebody_else_is_left_alone(consumer: Consumer) -> None:
    theirs = named(keys.VIRTUAL_NODE, consumer.where, spec={"clusterID": consumer.milan})
    await consumer.cluster.create(keys.VIRTUAL_NODE, theirs)
    await consumer.ask(annotations={keys.CREATE_VIRTUAL_NODE: "true"})
    await consumer.settle()
    await consumer.sign_in()
    await consumer.answer(resources={"cpu": "4"})

    await consumer.settle()

    assert VirtualNode.parse(await consumer.node() or {}).hard == {}
    assert "NameTaken" in consumer.told.reasons


async def test_a_virtual_node_that_admission_refuses_is_told_of_on_the_slice(
    namespace: str,
) -> None:
    fake = FakeCluster()
    consumer = Consumer(fake, namespace)
    await fake.create(
        keys.NAMESPACE, factories.tenant_namespace(consumer.where.namespace, consumer.milan)
    )
    await consumer.ask(annotations={keys.CREATE_VIRTUAL_NODE: "true"})
    await consumer.settle()
    await consumer.sign_in()
    await consumer.answer(resources={"cpu": "4"})
    said = 'admission webhook "x" denied the request: there is a node'
    refused = errors.refusal(409, {"reason": "Conflict", "message": said})
    fake.fail("create", refused, kind=keys.VIRTUAL_NODE)

    with pytest.raises(errors.ForbiddenError):
        await consumer.loop.reconcile(consumer.where)

    assert "NameTaken" in consumer.told.reasons
    lost = errors.refusal(409, {"reason": "Conflict", "message": "the object has been modified"})
    assert isinstance(lost, errors.ConflictError)


async def test_all_virtual_nodes_of_a_slice_go_before_it_does(consumer: Consumer) -> None:
    await consumer.ask(annotations={keys.CREATE_VIRTUAL_NODE: "true"})
    await consumer.settle()
    await consumer.sign_in()
    await consumer.answer(resources={"cpu": "4"})
    await consumer.settle()
    second = Key(consumer.where.namespace, "second")
    labels = {keys.RESOURCE_SLICE_NAME: "mypool"}
    spec = {"clusterID": consumer.milan}
    held = {"labels": labels, "finalizers": ["example.com/drains"]}
    obj = named(keys.VIRTUAL_NODE, second, metadata=held, spec=spec)
    await consumer.cluster.create(keys.VIRTUAL_NODE, obj)

    await end(consumer.cluster, keys.RESOURCE_SLICE, consumer.where)
    for _ in range(2):
        await consumer.loop.reconcile(consumer.where)

    assert await consumer.node() is None
    assert await consumer.cluster.get_live(keys.RESOURCE_SLICE, consumer.where) is not None
    await consumer.cluster.patch(keys.VIRTUAL_NODE, second, {"metadata": {"finalizers": []}})
    for _ in range(2):
        await consumer.loop.reconcile(consumer.where)
    assert await consumer.cluster.get_live(keys.RESOURCE_SLICE, consumer.where) is None


async def test_a_virtual_node_that_cannot_be_deleted_keeps_no_other(consumer: Consumer) -> None:
    await consumer.ask()
    await consumer.settle()
    nodes = [Key(consumer.where.namespace, f"node-{number}") for number in range(3)]
    for key in nodes:
        metadata = {"labels": {keys.RESOURCE_SLICE_NAME: "mypool"}}
        spec = {"clusterID": consumer.milan}
        made = named(keys.VIRTUAL_NODE, key, metadata=metadata, spec=spec)
        await consumer.cluster.create(keys.VIRTUAL_NODE, made)
    refused = errors.BusyError("etcdserver: request is too large")
    consumer.cluster.refuses["delete", str(keys.VIRTUAL_NODE), nodes[1]] = refused
    await end(consumer.cluster, keys.RESOURCE_SLICE, consumer.where)

    with pytest.raises(errors.BusyError):
        await consumer.loop.reconcile(consumer.where)

    left = [await consumer.cluster.get_live(keys.VIRTUAL_NODE, key) for key in nodes]
    assert [one is not None for one in left] == [False, True, False]
    assert await consumer.cluster.get_live(keys.RESOURCE_SLICE, consumer.where) is not None


@pytest.mark.parametrize(("secret", "stays"), [("mypool", False), ("other", True)])
async def test_a_virtual_node_by_hand_goes_with_the_slice_whose_kubeconfig_it_uses(
    consumer: Consumer,
    secret: str,
    stays: bool,  # noqa: FBT001
) -> None:
    await consumer.ask()
    await consumer.settle()
    by_hand = Key(consumer.where.namespace, "mynode")
    reference = {"name": f"kubeconfig-resourceslice-{secret}"}
    spec = {"clusterID": consumer.milan, "kubeconfigSecretRef": reference}
    await consumer.cluster.create(keys.VIRTUAL_NODE, named(keys.VIRTUAL_NODE, by_hand, spec=spec))

    await end(consumer.cluster, keys.RESOURCE_SLICE, consumer.where)
    for _ in range(2):
        await consumer.loop.reconcile(consumer.where)

    left = await consumer.cluster.get_live(keys.VIRTUAL_NODE, by_hand)
    assert (left is not None) is stays
    assert await consumer.cluster.get_live(keys.RESOURCE_SLICE, consumer.where) is None


@factories.cases("name, value, may")
def test_what_a_provider_may_say_about_a_node_of_ours(name: str, value: str, may: bool) -> None:  # noqa: FBT001
    assert bool(slices.suggested({name: value})) is may


@factories.cases("name, may")
def test_a_template_says_what_a_provider_may_suggest(name: str, *, may: bool) -> None:
    allowed = ["example.com", "env", "topology.kubernetes.io/zone", "node-role.kubernetes.io"]

    assert bool(slices.suggested({name: "x"}, allowed)) is may
    assert slices.suggested({name: "x"}, []) == {}


async def test_which_labels_are_not_taken_stands_in_the_status(consumer: Consumer) -> None:
    """And which stay although the template does not allow them any more."""
    await consumer.ask(annotations={keys.CREATE_VIRTUAL_NODE: "true"})
    await consumer.settle()
    await consumer.sign_in()
    said = {"env": "prod", "karpenter.sh/nodepool": "x", "b\x1bad!": "y"}
    await consumer.answer(resources={"cpu": "4"}, nodeLabels=said)
    await consumer.settle()
    await consumer.settle()
    node = await consumer.node() or {}
    told = node["status"]["suggestedLabels"]
    assert told == {"refused": ["b\\u001bad!", "karpenter.sh/nodepool"]}
    assert consumer.told.reasons.count("LabelsNotTaken") == 1

    assert forge.labels_apart({"status": {"nodeLabels": said}}, node, []) == {
        "refused": told["refused"],
        "kept": ["env"],
    }


@pytest.mark.parametrize("first", [{}, {"trust": "low"}], ids=["administrator", "provider"])
async def test_a_suggestion_is_never_taken_for_what_an_administrator_gave(
    consumer: Consumer, first: dict[str, str]
) -> None:
    """Not even if both once said the same, and the provider said it ``first``."""
    await consumer.ask(annotations={keys.CREATE_VIRTUAL_NODE: "true"})
    await consumer.settle()
    await consumer.sign_in()
    granted = {"cpu": "4"}
    await consumer.answer(resources=granted, nodeLabels=first)
    await consumer.settle()
    mine = {"spec": {"labels": {"trust": "low"}}}
    await consumer.cluster.patch(keys.VIRTUAL_NODE, consumer.where, mine)

    for said in ("low", "high", None):
        await consumer.answer(resources=granted, nodeLabels={"trust": said})
        await consumer.settle()
        node = VirtualNode.parse(await consumer.node() or {})
        assert node.labels["trust"] == "low"
        assert node.suggested == frozenset()


def test_a_provider_suggests_no_more_labels_than_anybody_reads() -> None:
    labels = {f"l{number}": "x" for number in range(10_000)}

    assert len(slices.suggested(labels)) == slices.MOST_LABELS


def test_a_node_shows_no_more_than_was_asked_for() -> None:
    obj = {
        "spec": {"resources": {"cpu": "4"}},
        "status": {"resources": {"cpu": "1E", "memory": "-1", "x": "1e999", "pods": "10"}},
    }

    assert slices.granted(obj) == {"cpu": "4", "pods": "10"}


def test_of_what_was_not_asked_for_amounts_are_bounded_and_names_are_names() -> None:
    gpus = {f"vendor.example/gpu-{number}": "1" for number in range(10_000)}
    odd = {"pods": "9e30", "bad name!!": "1", "ephemeral-storage": "9e30", "nvidia.com/gpu": "2"}
    obj = {
        "spec": {"resources": {"cpu": "4", "memory": "8Gi"}},
        "status": {"resources": {**gpus, **odd, "cpu": "9000", "memory": "8Gi"}},
    }

    found = slices.granted(obj)
    assert {name: found[name] for name in ("cpu", "memory")} == {"cpu": "4", "memory": "8Gi"}
    assert "bad name!!" not in found
    assert len(found) == slices.MOST_RESOURCES
    del obj["status"]["resources"]
    obj["status"]["resources"] = odd
    most = str(2**53)
    assert slices.granted(obj) == {"ephemeral-storage": most, "nvidia.com/gpu": "2", "pods": most}


# The provider's half ------------------------------------------------------------------------------


class SliceProvider:
    """Milan, where rome is a tenant with ``KEY``."""

    def __init__(self) -> None:
        self.cluster = Ledger(FakeCluster())
        self.now = LATER
        self.where = Key(naming.tenant_namespace("rome"), "mypool")
        self.told = Told(self.cluster)

        manager = manager_of(self.cluster, events=self.told.recorder, clock=lambda: self.now)
        self.loop = ReplicaReconciler(manager)

    async def prepare(self, *, is_let_in: bool = True, **spec: Any) -> None:
        await self.cluster.create(
            keys.NAMESPACE, factories.tenant_namespace(self.where.namespace, "rome")
        )
        public = base64.b64encode(pki.public_key(KEY)).decode()
        body = {"clusterID": "rome", "publicKey": public, **spec}
        tenant = named(keys.TENANT, Key(self.where.namespace, "rome"), spec=body)
        ready = {"type": "Ready", "status": str(is_let_in), "reason": "", "message": ""}
        await make(self.cluster, keys.TENANT, tenant, status={"conditions": [ready]})

    async def receive(
        self,
        *,
        key: bytes = KEY,
        user: str = naming.quota_name("mypool", "rome"),
        organization: str = "rome",
        **spec: Any,
    ) -> None:
        request = pki.new_csr(key, common_name=user, organizations=[organization])
        labels = {keys.REPLICATED: "true", keys.ORIGIN_ID: "rome"}
        encoded = base64.b64encode(request).decode()
        body = {"consumerClusterID": "rome", "csr": encoded, **spec}
        obj = named(keys.RESOURCE_SLICE, self.where, metadata={"labels": labels}, spec=body)
        await self.cluster.create(keys.RESOURCE_SLICE, obj)

    async def answer(self) -> tuple[str, str]:
        await settle(self.loop, self.where, self.cluster)
        obj = await there(self.cluster, keys.RESOURCE_SLICE, self.where)
        listed = obj.get("status", {}).get("conditions")
        found = objects.find_condition(listed, "Authentication") or {}
        return found.get("status", ""), found.get("message", "")


@pytest.fixture
async def provider() -> AsyncIterator[SliceProvider]:
    made = SliceProvider()
    async with signers.signing(made.cluster, CA, lambda: made.now):
        yield made


async def test_a_tenant_gets_a_certificate_for_its_slice(provider: SliceProvider) -> None:
    await provider.prepare()
    await provider.receive()

    assert (await provider.answer())[0] == "Accepted"

    obj = await there(provider.cluster, keys.RESOURCE_SLICE, provider.where)
    params = obj["status"]["authParams"]
    assert params["apiServer"] == "https://milan.example:6443"
    certificate = base64.b64decode(params["signedCRT"])
    user = naming.quota_name("mypool", "rome")
    assert pki.subject(certificate) == pki.Subject(user, ("rome",))
    secret = Key(provider.where.namespace, "liqo-remote-certificate-mypool")
    await there(provider.cluster, keys.SECRET, secret)


async def test_it_is_renewed_at_two_thirds(provider: SliceProvider) -> None:
    await provider.prepare()
    await provider.receive()
    await provider.answer()
    first = (await there(provider.cluster, keys.RESOURCE_SLICE, provider.where))["status"]

    assert await provider.loop.reconcile(provider.where) == LOOK_S
    provider.now += timedelta(hours=17)
    await provider.answer()

    second = (await there(provider.cluster, keys.RESOURCE_SLICE, provider.where))["status"]
    assert second["authParams"]["signedCRT"] != first["authParams"]["signedCRT"]
    assert "CertificateRenewed" in provider.told.reasons


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"user": "mypool"}, "its CN is ['mypool'], not 'mypool-a8a4c692b93b'"),
        ({"organization": "turin"}, "its O is ['turin'], not ['rome']"),
        ({"organization": "system:masters"}, "its O is ['system:masters'], not ['rome']"),
        ({"key": OTHER_KEY}, "its key is not the one that the tenant proved to have"),
        ({"consumerClusterID": "turin"}, "spec.consumerClusterID 'turin' is not rome"),
        ({"csr": "bm8="}, "it has to be one PEM block CERTIFICATE REQUEST"),
    ],
)
async def test_who_asks_for_anything_else_is_denied(
    provider: SliceProvider, wrong: dict[str, Any], message: str
) -> None:
    await provider.prepare()
    await provider.receive(**wrong)

    status, said = await provider.answer()

    assert status == "Denied"
    assert message in said
    found = (await provider.cluster.list(Selection(keys.SECRET, dict))).items
    assert not found


async def test_nothing_is_signed_for_a_tenant_that_is_not_let_in(provider: SliceProvider) -> None:
    await provider.prepare(is_let_in=False)
    await provider.receive()

    assert await provider.answer() == ("", "")


async def test_nothing_is_signed_outside_of_tenant_namespaces(provider: SliceProvider) -> None:
    await provider.receive()

    assert await provider.answer() == ("", "")


async def test_a_tenant_without_a_handshake_may_use_any_key(provider: SliceProvider) -> None:
    await provider.prepare(authzPolicy="TolerateNoHandshake")
    await provider.receive(key=OTHER_KEY)

    assert (await provider.answer())[0] == "Accepted"


async def test_the_certificate_goes_with_the_slice(provider: SliceProvider) -> None:
    await provider.prepare()
    await provider.receive()
    await provider.answer()

    await end(provider.cluster, keys.RESOURCE_SLICE, provider.where)
    await settle(provider.loop, provider.where, provider.cluster)

    secret = Key(provider.where.namespace, "liqo-remote-certificate-mypool")
    assert await provider.cluster.get_live(keys.SECRET, secret) is None


async def test_what_was_granted_meanwhile_stays(provider: SliceProvider) -> None:
    await provider.prepare()
    await provider.receive()
    granted = {"type": "Resources", "lastTransitionTime": "2025-01-01T00:00:00Z", **ACCEPTED}
    status = {"conditions": [granted], "resources": {"cpu": "4"}}
    await provider.cluster.patch_status(keys.RESOURCE_SLICE, provider.where, status)

    await provider.answer()

    obj = await there(provider.cluster, keys.RESOURCE_SLICE, provider.where)
    assert obj["status"]["resources"] == {"cpu": "4"}
    assert {one["type"] for one in obj["status"]["conditions"]} == {"Authentication", "Resources"}
