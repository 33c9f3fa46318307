"""What the webhook that is installed adds to a pod, and what of it stays as its user wrote it.

Source: docs/parity.md A-15, A-16, A-19, A-20.
"""

import copy
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Object
from tests.factories import pod
from tests.webhook.installed import Installed

pytestmark = pytest.mark.cluster

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
SSD: Final = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]}
GPU: Final = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
VIRTUAL: Final = {"key": keys.NODE_TYPE, "operator": "In", "values": [keys.VIRTUAL_NODE_TYPE]}
RICH: Final[Object] = {
    "containers": [
        {
            "name": name,
            "image": "i",
            "env": [{"name": one, "value": one} for one in ("Z", "A", "M")],
            "volumeMounts": [{"name": "z", "mountPath": "/z"}, {"name": "a", "mountPath": "/a"}],
        }
        for name in ("second", "first")
    ],
    "volumes": [{"name": "z", "emptyDir": {}}, {"name": "a", "emptyDir": {}}],
    "tolerations": [{"key": "z", "operator": "Exists"}, {"key": "a", "operator": "Exists"}],
    "nodeSelector": {"zone": "z1"},
    "affinity": {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [SSD, GPU]},
            PREFERRED: [{"weight": 7, "preference": SSD}, {"weight": 3, "preference": GPU}],
        },
        "podAntiAffinity": {
            REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}]
        },
        "podAffinity": {PREFERRED: []},
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": {"app": "web"}}},
    ],
    "automountServiceAccountToken": False,
}  # fmt: skip


def stored(live: Installed, namespace: str) -> Object:
    """Return the pod as the server keeps it, without what is of each alone."""
    labels = {"labels": {"app": "web", "z": "1", "a": "2"}, "annotations": {"note": "mine"}}
    obj = pod(namespace, spec=copy.deepcopy(RICH), metadata=labels)
    assert live.create(keys.POD, obj).is_done
    found = live.read(keys.POD, obj) or {}
    metadata = {part: found["metadata"].get(part) for part in ("labels", "annotations")}
    return {"metadata": metadata, "spec": found["spec"]}


def test_what_is_needed_is_added_and_all_else_is_as_it_was_sent(live: Installed) -> None:
    """As the same pod is kept in a namespace that is not offloaded, in each list its order too."""
    alone = stored(live, live.space())

    made = stored(live, live.offloaded(podOffloadingStrategy="Remote"))

    del made["metadata"]["annotations"][keys.PLACEMENT]
    tolerations = made["spec"]["tolerations"]
    ours = [one for one in tolerations if one.get("key") == keys.VIRTUAL_NODE_TAINT]
    assert len(ours) == 1
    tolerations.remove(ours[0])
    terms = made["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    own = alone["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert own == [SSD, GPU]
    for term, before in zip(terms, own, strict=True):
        term["matchExpressions"].remove(VIRTUAL)
        assert term == before
    assert made == alone


def numbered(count: int, name: str) -> list[Object]:
    return [
        {"matchExpressions": [{"key": f"{name}-{number}", "operator": "Exists"}]}
        for number in range(count)
    ]


@pytest.mark.parametrize(("own", "selected"), [(10, 10), (11, 10), (2, 51), (101, 1)])
def test_a_pod_has_a_hundred_terms_at_most(live: Installed, own: int, selected: int) -> None:
    selector = {"nodeSelectorTerms": numbered(selected, "region")}
    space = live.offloaded(podOffloadingStrategy="Remote", clusterSelector=selector)
    required = {REQUIRED: {"nodeSelectorTerms": numbered(own, "disk")}}
    spec = {**RICH, "affinity": {"nodeAffinity": required}}

    found = live.create(keys.POD, pod(space, spec=spec))

    assert found.is_done == (own * selected <= 100), found.message
    if not found.is_done:
        assert "more than 100" in found.message
        assert live.read(keys.POD, pod(space)) is None


def test_a_name_may_be_generated_and_the_namespace_is_that_of_the_request(live: Installed) -> None:
    space = live.offloaded(podOffloadingStrategy="Remote")
    obj: dict[str, Any] = pod(space)
    obj["metadata"] = {"generateName": "web-"}

    made = [live.send("POST", f"/api/v1/namespaces/{space}/pods", obj).body for _ in range(2)]

    assert len({one["metadata"]["name"] for one in made}) == 2
    for one in made:
        assert one["metadata"]["namespace"] == space
        assert one["metadata"]["name"].startswith("web-")
        terms = one["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert terms == [{"matchExpressions": [VIRTUAL]}]
