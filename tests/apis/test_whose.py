"""Whose an object is: by its namespace, against whatever it says of itself."""

import ast
from pathlib import Path

import pytest

from apis import keys, whose
from apis.objects import Key, Object, named
from tests import factories

TENANT = {keys.TENANT_NAMESPACE: "true", keys.REMOTE_CLUSTER_ID: "rome"}
TWIN = {keys.REMOTE_CLUSTER_ID: "rome"}
SENT = {keys.REPLICATION: "true", keys.REMOTE_ID: "rome"}
CAME = {keys.REPLICATED: "true", keys.ORIGIN_ID: "rome"}


def marked(labels: dict[str, str], **rest: object) -> Object:
    return named(
        keys.NAMESPACE_MAP, Key("liqo-tenant-rome", "x"), metadata={"labels": labels}, **rest
    )


@pytest.mark.parametrize(
    ("labels", "peer", "consumer"),
    [
        (TENANT, "rome", ""),
        (TWIN, "", "rome"),
        ({keys.TENANT_NAMESPACE: "true"}, "", ""),
        ({keys.TENANT_NAMESPACE: "false", **TWIN}, "", "rome"),
        ({}, "", ""),
    ],
)
def test_what_a_namespace_says(labels: dict[str, str], peer: str, consumer: str) -> None:
    namespace = factories.namespace("x", **labels)

    assert (whose.peer_of(namespace), whose.consumer_of(namespace)) == (peer, consumer)
    assert (whose.peer_of(None), whose.consumer_of(None)) == ("", "")


@pytest.mark.parametrize(
    ("labels", "peer", "origin", "is_for"),
    [
        (SENT, "rome", "", True),
        (SENT, "turin", "", False),
        (SENT, "", "", False),
        (CAME, "rome", "rome", False),
        (CAME, "turin", "", False),
        ({**SENT, **CAME}, "rome", "rome", False),
        ({**SENT, keys.REPLICATED: "false"}, "rome", "", False),
        ({**SENT, keys.ORIGIN_ID: "milan"}, "rome", "", False),
        ({keys.REPLICATED: "true"}, "rome", "", False),
        ({}, "rome", "", False),
    ],
)
def test_one_sign_of_the_peer_is_enough(
    labels: dict[str, str], peer: str, origin: str, *, is_for: bool
) -> None:
    obj = marked(labels)

    assert whose.origin(obj, peer) == origin
    assert whose.is_for(obj, peer) == is_for
    if is_for:
        assert not whose.is_foreign(obj, peer)


def test_signs_that_a_peer_cannot_take_off() -> None:
    held = marked(SENT)
    held["metadata"]["finalizers"] = [keys.NAMESPACE_MAP_FINALIZER]
    asks = marked(SENT, spec={"consumerClusterID": "rome"})

    assert whose.is_foreign(held, "rome")
    assert not whose.is_for(asks, "rome")
    assert not whose.is_foreign(asks, "turin")


def test_marks_that_are_written_are_understood() -> None:
    assert whose.origin(marked(whose.replica("rome")), "rome") == "rome"
    assert whose.is_for(marked(whose.original("rome")), "rome")


SIX = ("REMOTE_CLUSTER_ID", "ORIGIN_ID", "REMOTE_ID", "REPLICATED", "REPLICATION", "ORIGIN")
READ_ELSEWHERE = {
    # the table of what a consumer may say, and what is said of it
    "apis/marks.py": {*SIX},
    "webhook/rules/shadowpods.py": {"ORIGIN"},
    "webhook/rules/resourceslices.py": {"REMOTE_CLUSTER_ID"},
    # twins at a provider, which the consumer's own reflector wrote
    "apis/pairs.py": {"ORIGIN"},
    "reflector/reflection.py": {"ORIGIN"},
    # namespaces and bindings that our controllers make for a consumer
    "controllers/offloading/namespacemap/forge.py": {"REMOTE_CLUSTER_ID"},
    "controllers/authentication/tenant/forge.py": {"REMOTE_CLUSTER_ID"},
    "controllers/authentication/tenantrights/forge.py": {"REMOTE_CLUSTER_ID"},
    "controllers/granting/grants/forge/written.py": {"REMOTE_CLUSTER_ID"},
    "controllers/authentication/issuing/forge.py": {"REMOTE_CLUSTER_ID"},
    "controllers/selections.py": {"REMOTE_CLUSTER_ID"},
    # Tenants, ForeignClusters, Configurations: an administrator's
    "webhook/rules/tenants.py": {"REMOTE_CLUSTER_ID"},
    "webhook/rules/foreignclusters.py": {"REMOTE_CLUSTER_ID"},
    "controllers/peers/foreigncluster/forge.py": {"REMOTE_CLUSTER_ID"},
    "apis/authentication.py": {"REMOTE_CLUSTER_ID"},
    "apis/remap.py": {"REMOTE_CLUSTER_ID"},
    # what stands for a provider at the consumer: nodes, volumes, identities, their Events
    "apis/claims.py": {"REMOTE_CLUSTER_ID"},
    "apis/offloading.py": {"REMOTE_CLUSTER_ID"},
    "apis/tellings.py": {"REMOTE_CLUSTER_ID"},
    "controllers/authentication/identity/forge.py": {"REMOTE_CLUSTER_ID"},
    "controllers/offloading/namespaceoffloading/forge.py": {"REMOTE_CLUSTER_ID"},
    "controllers/granting/resourceslice/forge/consumer.py": {"REMOTE_CLUSTER_ID"},
    "controllers/offloading/virtualnode/forge/deployment.py": {"REMOTE_CLUSTER_ID"},
    "controllers/offloading/virtualnode/forge/lifecycle.py": {"REMOTE_CLUSTER_ID"},
    "controllers/offloading/virtualnode/forge/rights.py": {"REMOTE_CLUSTER_ID"},
    "kubelet/addresses.py": {"REMOTE_CLUSTER_ID"},
    "kubelet/forge/node.py": {"REMOTE_CLUSTER_ID"},
    "reflector/__main__.py": {"REMOTE_CLUSTER_ID"},
    "reflector/namespaces.py": {"REMOTE_CLUSTER_ID"},
    "reflector/forge/persistentvolumeclaim.py": {"REMOTE_CLUSTER_ID"},
    "reflector/forge/shapes.py": {"REMOTE_CLUSTER_ID"},
}
"""No module is added here that reads one of them of what a consumer can write."""
PACKAGES = ("apis", "kube", "certs", "webhook", "controllers", "kubelet", "reflector")
"""Not liqoctl, which shows an administrator what it finds, and acts on what he names."""
ROOT = Path(whose.__file__).parents[1]


def test_the_marks_are_read_here_alone() -> None:
    """Whoever wants to know whose something is asks ``apis.whose``."""
    found: dict[str, set[str]] = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            names = {
                node.attr
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "keys"
            }
            if used := names & {*SIX}:
                found[str(path.relative_to(ROOT))] = used
    del found["apis/whose.py"]

    assert found == READ_ELSEWHERE
