"""What honest users of a consumer send by default passes all that judges consumers.

Each object goes the way of the product: completed by the API server of its user, forged by the
virtual kubelet or the reflector, sent as a virtual kubelet to a provider with the policies and the
webhook. Source: docs/parity.md SEC-A1, SEC-A16, SEC-A17; § 5.5.2, 6.5, 6.9.
"""

from pathlib import Path
from typing import Final, NamedTuple

import pytest
import yaml

from apis import keys, podfields, podvolumes, providerpolicy
from apis.objects import Key, Kind, Object, named
from apis.offloading import MappedNamespace, OffloadingPatch
from apis.providerpolicy import AllowedPodFields, AllowedReflection, ProviderPolicy
from kubelet.pods import shadowpod
from kubelet.pods.shadowpod import Options
from reflector.kinds import networking, storage
from reflector.kinds.contract import ReflectionContext, RemoteObjectOptions
from tests import factories
from tests.manifests.test_consumer_services import SERVICES
from tests.manifests.twins import silver
from tests.webhook import reviews
from tests.webhook.guarded import KUBELET, guarded_space
from tests.webhook.installed import CONSUMER, Answer, Installed, User, path_of
from tests.webhook.podsecurity import FIXTURES, complaints, fixtures

pytestmark = pytest.mark.cluster

HOME: Final = "shop"
STRICT: Final = "turin"
"""A consumer whose ProviderPolicy has the level ``restricted``, and all types of volumes open."""
SENT_AS_FALSE: Final = "hostnamespaces"
"""Begins the names of fixtures whose host namespaces the virtual kubelet sends as false."""
WINDOWS: Final = "base_windows.yaml"
"""A pod whose ``os`` is not sent, so that the fields of Linux are missing in it."""


class Side(NamedTuple):
    """A consumer, its twin, and its virtual kubelet."""

    consumer: str
    twin: str
    kubelet: User

    @property
    def pair(self) -> MappedNamespace:
        return MappedNamespace(self.consumer, "milan", HOME, self.twin)


@pytest.fixture(scope="module")
def sides(provider: Installed) -> dict[str, Side]:
    """Return by level of the Pod Security Standards who is held to it."""
    assert provider.apply(keys.NAMESPACE, named(keys.NAMESPACE, Key("", HOME))).is_done
    assert provider.apply(keys.STORAGE_CLASS, silver()).is_done
    strict = User(f"{STRICT}-0123456789ab", [STRICT, "system:authenticated"])
    fields = {"volumeTypes": sorted(podvolumes.OPENED)}
    closed = guarded_space(provider, STRICT, podSecurityLevel="restricted", allowedPodFields=fields)
    found = {
        "baseline": Side(CONSUMER, provider.twin(), KUBELET),
        "restricted": Side(STRICT, closed, strict),
    }
    lax = honest_shadow(provider, found["restricted"], factories.pod_spec())
    reviews.wait_until(
        lambda: not sent_by(provider, found["restricted"], keys.SHADOW_POD, lax).is_done
    )
    return found


def whole(provider: Installed, kind: Kind, local: Object) -> Object:
    """Return what a user made, as an API server completes it; as it is if none would take it."""
    found = provider.create(kind, local, dryRun="All")
    return found.body if found.is_done else local


def honest_shadow(
    provider: Installed, side: Side, spec: Object, annotations: Object | None = None
) -> Object:
    metadata = {"annotations": annotations or {}}
    local = whole(provider, keys.POD, factories.pod(HOME, spec=spec, metadata=metadata))
    return shadowpod.shadow(local, side.pair, Options("milan", OffloadingPatch()))


def sent_by(provider: Installed, side: Side, kind: Kind, obj: Object) -> Answer:
    """Return the answer to the side's virtual kubelet; nothing changes."""
    return provider.create(kind, obj, user=side.kubelet, dryRun="All")


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_every_fixture_is_sent_and_judged_by_its_level(
    provider: Installed, sides: dict[str, Side], level: str
) -> None:
    everything = fixtures()
    assert len(everything) == FIXTURES
    wrong = [
        f"{path.name}: {told}"
        for of, passes, path in everything
        if of == level and (told := mistaken(provider, sides[level], level, path, passes=passes))
    ]

    assert wrong == []


def mistaken(provider: Installed, side: Side, level: str, path: Path, *, passes: bool) -> str:
    """Return how the answer to a fixture differs from what its level says of what is sent."""
    pod = yaml.safe_load(path.read_text())
    made = honest_shadow(provider, side, pod["spec"], pod["metadata"].get("annotations"))
    found = sent_by(provider, side, keys.SHADOW_POD, made)
    forged = {"metadata": made["metadata"], "spec": made["spec"]["pod"]}
    rules = [*complaints(forged, level), *never(forged["spec"])]
    is_other = path.name.startswith(SENT_AS_FALSE) or path.name == WINDOWS
    expected = not rules if is_other or podfields.refusal(pod["spec"]) else passes
    if found.is_done != expected:
        return found.message or "it passes"
    is_told = any(rule in found.message for rule in rules)
    return "" if is_told or found.is_done else f"{found.message} is none of {rules}"


def never(spec: Object) -> list[str]:
    """Return the volumes that no level and no ProviderPolicy allows."""
    is_open = ProviderPolicy(allowed=AllowedPodFields(volume_types=podvolumes.OPENED))
    return list(podvolumes.complaints("volumes", spec.get("volumes"), spec, is_open))


TOKEN: Final = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
ROOT_CA: Final = {"configMap": {"name": "kube-root-ca.crt"}}
FIELD: Final = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
CLAIM: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
VOLUMES: Final[dict[str, Object]] = {
    "configMap": {"name": "settings"},
    "downwardAPI": {"items": [FIELD]},
    "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"},
    "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}},
    "image": {"reference": "registry.example/data:1"},
    "persistentVolumeClaim": {"claimName": "data"},
    "projected": {
        "sources": [
            TOKEN, ROOT_CA, {"secret": {"name": "token"}}, {"downwardAPI": {"items": [FIELD]}}
        ]
    },
    "secret": {"secretName": "token"},
}  # fmt: skip


@pytest.mark.parametrize("type_", sorted(podvolumes.DEFAULT))
def test_each_volume_of_the_default_list_passes(
    provider: Installed, sides: dict[str, Side], type_: str
) -> None:
    side, name = sides["baseline"], "kube-api-access-x" if type_ == "projected" else "data"
    made = honest_shadow(provider, side, mounted(name, {type_: VOLUMES[type_]}))

    assert type_ in made["spec"]["pod"]["volumes"][0]
    assert sent_by(provider, side, keys.SHADOW_POD, made).message == ""


def mounted(name: str, volume: Object) -> Object:
    """Return the spec of a pod whose container has the volume."""
    spec = factories.pod_spec(volumes=[{"name": name, **volume}])
    (main,) = spec["containers"]
    return {**spec, "containers": [{**main, "volumeMounts": [{"name": name, "mountPath": "/x"}]}]}


def test_a_claim_of_the_default_class_passes(provider: Installed, sides: dict[str, Side]) -> None:
    side, spec = sides["baseline"], {**CLAIM, "storageClassName": keys.VIRTUAL_STORAGE_CLASS}
    claim = named(keys.PERSISTENT_VOLUME_CLAIM, Key(HOME, "data"), spec=spec)
    local = whole(provider, keys.PERSISTENT_VOLUME_CLAIM, claim)

    made = storage.remote_claim(
        local, ReflectionContext(side.pair, settings=RemoteObjectOptions(enable_storage=True))
    )
    found = sent_by(provider, side, keys.PERSISTENT_VOLUME_CLAIM, made)

    assert found.message == ""
    assert "storageClassName" not in made["spec"]
    assert found.body["spec"]["storageClassName"] == "silver"


def test_a_service_of_each_type_passes_where_its_policy_opens_it(
    provider: Installed, sides: dict[str, Side]
) -> None:
    side = sides["baseline"]
    policy = ProviderPolicy(service_types=frozenset(providerpolicy.OUTWARD))
    space = named(keys.NAMESPACE, Key("", side.twin))
    change = {"metadata": {"annotations": dict(providerpolicy.offer_annotations(policy))}}
    taken = AllowedReflection.parse(providerpolicy.shown_offers(policy))
    outward = factories.service(side.twin, type="NodePort")
    assert not sent_by(provider, side, keys.SERVICE, outward).is_done

    path = path_of(keys.NAMESPACE, space)
    assert provider.send("PATCH", path, change, form="merge-patch+json").is_done

    reviews.wait_until(lambda: sent_by(provider, side, keys.SERVICE, outward).is_done)
    for name, (says, _, _) in SERVICES.items():
        local = whole(provider, keys.SERVICE, factories.service(HOME, name, **says))
        made = networking.SERVICE_REFLECTION.twin(local, ReflectionContext(side.pair, offers=taken))
        assert made["spec"].get("type") == local["spec"]["type"]
        assert sent_by(provider, side, keys.SERVICE, made).message == "", name
