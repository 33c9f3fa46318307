"""What a provider refuses is told to the user whose object it was, where he looks for it.

The provider is real, with all its policies and the webhook; the virtual kubelet and the reflector
send by a certificate of their own, and write what they tell beside the user's object.
Source: docs/parity.md SEC-A1, SEC-A16, SEC-A17; § 5.5.4, 6.1.
"""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from apis.offloading import MappedNamespace
from apis.podaffinity import REQUIRED
from controllers.offloading.shadowpod import forge
from kube import client, errors
from kube.cache import CachedCluster
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.events import EventRecorder
from kubelet.pods.mapping import MappingState, NamespaceMapping
from liqoctl import why
from liqoctl.forge import why as answers
from reflector.kinds import networking, storage
from reflector.kinds.contract import KindReflection, ReflectionContext, RemoteObjectOptions
from reflector.reflection import Reflection, ReflectionClients
from tests import factories
from tests.fakes import FakeCluster
from tests.kube.running import running, until
from tests.kubelet import worlds
from tests.kubelet.worlds import World
from tests.reflector import looks
from tests.reflector.looks import Seen
from tests.webhook import reviews
from tests.webhook.guarded import KUBELET, kubeconfig
from tests.webhook.installed import CONSUMER, Installed, path_of

pytestmark = pytest.mark.cluster

HOME: Final = "shop"
OFFERS: Final = {
    keys.OFFERED_STORAGE_CLASSES: "silver",
    keys.OFFERED_INGRESS_HOSTS: "[a-z]+[.]rome[.]example",
}
"""What the ProviderPolicy says, as its controller writes it on the twin."""


@pytest.fixture(scope="module")
def refused_twin(provider: Installed) -> str:
    """Return a twin whose policy offers one class and one domain of hosts."""
    name = provider.twin()
    path = path_of(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
    body = {"metadata": {"annotations": OFFERS}}
    assert provider.send("PATCH", path, body, form="merge-patch+json").is_done
    outside = factories.ingress(name, host="shop.example")
    reviews.wait_until(
        lambda: (
            "hosts" in provider.create(keys.INGRESS, outside, dryRun="All", user=KUBELET).message
        )
    )
    return name


@pytest.fixture
async def milan(provider: Installed, tmp_path: Path) -> AsyncIterator[ClusterClient]:
    """Yield a client with the identity of a virtual kubelet."""
    async with client.connect(kubeconfig(provider, KUBELET, tmp_path)) as real:
        yield real


@pytest.fixture
async def consumer_fake() -> FakeCluster:
    """Return the consumer's cluster, with its virtual node and the offloaded namespace."""
    made = FakeCluster()
    await made.create(keys.NAMESPACE, factories.namespace(HOME))
    labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: "milan"}
    node = named(keys.NODE, Key("", worlds.NODE), metadata={"labels": labels})
    await made.create(keys.NODE, node)
    await made.create(keys.NAMESPACE_OFFLOADING, factories.offloading(HOME))
    return made


async def the_one_warning(rome: FakeCluster, recorder: EventRecorder, kind: Kind) -> str:
    """Return the one Warning about the user's object ``web``."""
    async with running(recorder.run()):
        await until(lambda: not recorder.waiting)
    events = (await rome.list(Selection(keys.EVENT, Object, HOME))).items.values()
    (found,) = (
        event["message"]
        for event in events
        if event["type"] == "Warning"
        and (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (kind.kind, "web")
    )
    return str(found)


class Refused(NamedTuple):
    """A pod that is not taken as it is, and what of it is told."""

    spec: Object
    says: str
    annotations: Mapping[str, str] = MappingProxyType({})


def volume(**source: Object) -> Object:
    return {"volumes": [{"name": "data", **source}]}


STATIC: Final = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
    "storageClassName": "",
}
APART: Final = {
    "labelSelector": {"matchLabels": {"app": "web"}},
    "topologyKey": keys.HOSTNAME,
    "namespaces": ["bank"],
}
PODS: Final = {
    "the type of a volume": Refused(
        volume(nfs={"server": "192.0.2.1", "path": "/"}), "spec.pod.volumes[0].nfs names storage"
    ),
    "a claim of no class": Refused(
        volume(ephemeral={"volumeClaimTemplate": {"spec": STATIC}}), "storageClassName '' would"
    ),
    "a term of affinity": Refused(
        {"affinity": {"podAntiAffinity": {REQUIRED: [APART]}}},
        "names bank, not offloaded",
        {keys.ANTI_AFFINITY_PRESET: "propagate"},
    ),
}


@pytest.mark.parametrize("row", PODS)
async def test_a_refused_pod_says_so_by_event_condition_and_why(
    consumer_fake: FakeCluster, milan: ClusterClient, refused_twin: str, row: str
) -> None:
    spec, says, annotations = PODS[row]
    world = World(consumer_fake, milan, MappedNamespace(CONSUMER, "milan", HOME, refused_twin))
    recorder = EventRecorder(consumer_fake, "vk", "vk-0")
    world.recorder = recorder  # type: ignore[assignment]  # the real one
    world.restart()
    world.namespaces.others["bank"] = NamespaceMapping(MappingState.WITHDRAWN)
    await world.bound(spec=spec, metadata={"annotations": dict(annotations)})

    await world.reconcile()

    assert says in await the_one_warning(consumer_fake, recorder, keys.POD)
    condition = worlds.named_condition(await world.status(), keys.OFFLOADED_CONDITION)
    assert condition["status"] == "False"
    assert says in condition["message"]
    page = answers.lines(await why.pod(consumer_fake, world.web))
    assert says in "\n".join(page)


async def test_a_pod_that_a_narrowed_policy_refuses_says_so_too(
    provider: Installed, consumer_fake: FakeCluster, milan: ClusterClient, refused_twin: str
) -> None:
    """The provider's controller writes why into the ShadowPod that stands there."""
    world = World(consumer_fake, milan, MappedNamespace(CONSUMER, "milan", HOME, refused_twin))
    recorder = EventRecorder(consumer_fake, "vk", "vk-0")
    world.recorder = recorder  # type: ignore[assignment]  # the real one
    world.restart()
    await world.bound()
    await world.reconcile()
    says = "spec.pod.priorityClassName 'high' is not offered"
    shadow = named(keys.SHADOW_POD, world.twin)
    status = forge.refused(shadow, forge.NOT_ALLOWED, says, worlds.NOW)
    path = path_of(keys.SHADOW_POD, shadow, part="status")
    done = provider.send("PATCH", path, {"status": status}, form="merge-patch+json")
    assert done.is_done, done

    await world.reconcile()

    assert says in await the_one_warning(consumer_fake, recorder, keys.POD)
    condition = worlds.named_condition(await world.status(), keys.OFFLOADED_CONDITION)
    assert (condition["status"], condition["message"]) == ("False", says)
    assert says in "\n".join(answers.lines(await why.pod(consumer_fake, world.web)))


CLAIM: Final = named(
    keys.PERSISTENT_VOLUME_CLAIM, Key(HOME, "web"),
    metadata={
        "annotations": {
            keys.REMOTE_STORAGE_CLASS: "gold",
            keys.SELECTED_NODE: worlds.NODE,
            keys.STORAGE_PROVISIONERS[0]: keys.STORAGE_PROVISIONER,
        }
    },
    spec={**STATIC, "storageClassName": keys.VIRTUAL_STORAGE_CLASS},
)  # fmt: skip
REFLECTED: Final[dict[str, tuple[KindReflection, Object, str]]] = {
    "a storage class": (storage.CLAIM_REFLECTION, CLAIM, "class gold is not offered"),
    "the host of an Ingress": (
        networking.INGRESS_REFLECTION, factories.ingress(HOME), "not all of its hosts",
    ),
    "a type of Services": (
        networking.SERVICE_REFLECTION, factories.service(HOME, type="NodePort"),
        "spec.type NodePort is not",
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", REFLECTED)
async def test_what_is_refused_of_the_reflected_is_told_on_the_original(
    consumer_fake: FakeCluster, milan: ClusterClient, refused_twin: str, row: str
) -> None:
    forge_, original, says = REFLECTED[row]
    kind = forge_.row.kind
    await consumer_fake.create(kind, original)
    recorder = EventRecorder(consumer_fake, "vk", "vk-0")

    def tell(obj: Object, type_: Literal["Normal", "Warning"], reason: str, text: str) -> None:
        recorder.event(kind, obj, type_, reason, text)

    context = ReflectionContext(
        MappedNamespace(CONSUMER, "milan", HOME, refused_twin),
        settings=RemoteObjectOptions(enable_storage=True, enable_ingress=True),
        lister=Seen(nodes=[looks.listed_node(worlds.NODE, "milan")]),
    )
    ends = ReflectionClients(CachedCluster(consumer_fake), CachedCluster(milan), tell)

    with pytest.raises(errors.ForbiddenError):  # the runner tries it again
        await Reflection(forge_, context, ends).reconcile(objects.key_of(original))

    assert says in await the_one_warning(consumer_fake, recorder, kind)
    if kind == keys.PERSISTENT_VOLUME_CLAIM:  # of the others no pod waits
        mounts = volume(persistentVolumeClaim={"claimName": "web"})
        unbound = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        waits = factories.pod(HOME, "waits", spec=factories.pod_spec(**mounts))
        await consumer_fake.create(keys.POD, waits)
        status = {"phase": "Pending", "conditions": [unbound]}
        await consumer_fake.patch_status(keys.POD, Key(HOME, "waits"), status)
        await consumer_fake.patch_status(kind, Key(HOME, "web"), {"phase": "Pending"})
        assert says in "\n".join(answers.lines(await why.pod(consumer_fake, Key(HOME, "waits"))))
