"""However large what a consumer sends is, no policy fails for its own cost.

An expression over its budget fails closed, and says so with words that help nobody. So the largest
objects that an API server takes are sent, and ones of twice that size.
Source: Kubernetes, "Resource constraints" of CEL.
"""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from apis import keys
from apis.objects import Kind, Object
from tests.manifests import policytable
from tests.manifests.asking import ADMINISTRATOR, KUBELET, TWIN, Provider, made

pytestmark = pytest.mark.cluster

BUDGET: Final = re.compile(r"budget|cost limit|exceed\w* (the )?(cost|limit)", re.IGNORECASE)
METADATA_BYTES: Final = 240_000
"""Kubernetes takes 256 KiB of annotations."""
OBJECT_BYTES: Final = 1_400_000
"""etcd takes 1.5 MiB by default, and an API server 3 MiB of a request."""
ENTRY: Final = 24


def many(size: int, value: str = "value-value") -> dict[str, str]:
    """Return entries of so many bytes."""
    return {f"a.io/{number:07}": value for number in range(size // ENTRY)}


def few(size: int, value: str = "") -> dict[str, str]:
    """Return long entries of so many bytes in all."""
    return {f"k{number:07}{'x' * 50}": value for number in range(size // 100)}


def host(number: int) -> str:
    return f"h{number}.example.com"


def rule(number: int) -> Object:
    backend = {"service": {"name": "a", "port": {"number": 80}}}
    paths = [{"path": f"/{'x' * 200}", "pathType": "Prefix", "backend": backend}] * 3
    return {"host": host(number), "http": {"paths": paths}}


def container(number: int) -> Object:
    return {"name": f"c{number}", "image": "a", "args": ["x" * 50] * 20}


def specs(size: int) -> dict[Kind, tuple[Object, ...]]:
    """Return, by kind, fields of about so many bytes."""
    count = size // 1000
    tls = [{"hosts": [host(one) for one in range(count * 5)]}]
    endpoints = [{"addresses": ["192.0.2.1"]}] * count * 5
    return {
        keys.CONFIG_MAP: ({"data": few(size, "value")},),
        keys.SECRET: ({"data": few(size, "dmFsdWU=")},),
        keys.SERVICE: ({"spec": {"externalIPs": ["192.0.2.1"] * count * 5}},),
        keys.INGRESS: (
            {"spec": {"rules": [rule(one) for one in range(count)]}}, {"spec": {"tls": tls}},
        ),
        keys.PERSISTENT_VOLUME_CLAIM: ({"spec": {"selector": {"matchLabels": few(size)}}},),
        keys.NAMESPACE_MAP: ({"spec": {"desiredMapping": few(size, "twin")}},),
        keys.RESOURCE_SLICE: ({"spec": {"resources": few(size, "1")}},),
        keys.RENEW: ({"spec": {"CSR": "QUFB" * (size // 4)}},),
        keys.SHADOW_POD: (
            {"spec": {"pod": {"containers": [container(one) for one in range(count)]}}},
        ),
        keys.SHADOW_ENDPOINT_SLICE: (
            {"spec": {"template": {"addressType": "IPv4", "endpoints": endpoints}}},
        ),
    }  # fmt: skip


def large(kind: Kind, times: int) -> Iterator[Object]:
    """Yield changes that make an object of ``kind`` as large as it gets, or larger."""
    size = times * METADATA_BYTES
    owner = {"apiVersion": "v1", "kind": "Namespace"}
    yield {"metadata": {"annotations": many(size)}}
    yield {"metadata": {"labels": many(size)}}
    yield {"metadata": {"labels": many(size, ""), "annotations": many(size, "")}}
    yield {"metadata": {"finalizers": [*many(size)]}}
    owners = [{**owner, "name": f"n{one}", "uid": f"{one}"} for one in range(times * 500)]
    yield {"metadata": {"ownerReferences": owners}}
    yield from specs(times * OBJECT_BYTES)[kind]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", policytable.EVERY, ids=[kind.kind for kind in policytable.EVERY])
def test_no_answer_speaks_of_a_budget(milan: Provider, kind: Kind, times: int) -> None:
    name = f"stands-{times}"
    assert milan.create(made(kind, name), kind, for_good=True) == ""

    for changes in large(kind, times):
        told = (
            milan.create(made(kind, **changes), kind),
            milan.patch(kind, name, changes),
        )
        assert not [said for said in told if BUDGET.search(said)], (list(changes), told)


@pytest.mark.parametrize("times", [1, 2])
def test_namespaces_of_any_size_are_judged(milan: Provider, times: int) -> None:
    """By the policy on marks, which judges anybody who changes a namespace."""
    path = f"/api/v1/namespaces/{TWIN}"
    for user in (ADMINISTRATOR, KUBELET):
        for field in ("annotations", "labels"):
            changes = {"metadata": {field: many(times * METADATA_BYTES)}}
            said = milan.send("PATCH", path, changes, user).told
            assert not BUDGET.search(said), said
