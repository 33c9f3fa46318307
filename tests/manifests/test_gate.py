"""What no consumer may write into the metadata of any kind, or do to what is not its own.

Source: docs/parity.md SEC-A7, SEC-A16, SEC-A17, SEC-A20.
"""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from apis import allowlist, apply, keys, podvolumes
from apis.allowlist import AllowedValue
from apis.objects import Kind, Object, owner_reference
from apis.offloading import MappedNamespace
from apis.providerpolicy import AllowedReflection, ProviderPolicy
from reflector.kinds import configuration, storage
from reflector.kinds.contract import ReflectionContext
from tests.manifests import celtables, documents, policytable
from tests.manifests.asking import (
    ADMINISTRATOR,
    EPHEMERAL,
    KUBELET,
    OWNER,
    TWIN,
    Provider,
    made,
    wait_until,
)

pytestmark = pytest.mark.cluster

PAIR: Final = MappedNamespace("rome", "milan", "shop", TWIN)
FORGES: Final = {
    keys.CONFIG_MAP: configuration.CONFIG_MAP_REFLECTION,
    keys.SECRET: configuration.SECRET_REFLECTION,
    keys.PERSISTENT_VOLUME_CLAIM: storage.CLAIM_REFLECTION,
}
PROTECTION: Final = "kubernetes.io/pvc-protection"
CLEANUP: Final = "service.kubernetes.io/load-balancer-cleanup"


def by_kind(kinds: tuple[Kind, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=[kind.kind for kind in kinds])


@by_kind(policytable.EVERY)
def test_a_consumer_sets_no_finalizer(milan: Provider, kind: Kind) -> None:
    for finalizer in ("a.io/b", CLEANUP, keys.NAMESPACE_MAP_FINALIZER):
        said = milan.create(made(kind, metadata={"finalizers": [finalizer]}), kind)
        assert "metadata.finalizers" in said, finalizer


@by_kind(policytable.EVERY)
def test_the_finalizer_of_claims_is_for_claims_alone(milan: Provider, kind: Kind) -> None:
    """Nobody takes it off anything else, whose twin would never end."""
    said = milan.create(made(kind, metadata={"finalizers": [PROTECTION]}), kind)

    assert ("metadata.finalizers" in said) == (kind != keys.PERSISTENT_VOLUME_CLAIM), said


@by_kind(policytable.EVERY)
def test_a_consumer_removes_and_adds_no_finalizer_later(milan: Provider, kind: Kind) -> None:
    held = made(kind, "held", metadata={"finalizers": [CLEANUP]})
    assert milan.create(held, kind, user=ADMINISTRATOR, for_good=True) == ""

    for finalizers in ([], [CLEANUP, "a.io/b"], ["a.io/b"]):
        said = milan.patch(kind, "held", {"metadata": {"finalizers": finalizers}})
        assert "metadata.finalizers" in said, finalizers
    assert milan.patch(kind, "held", {"metadata": {"annotations": {"a": "b"}}}) == ""
    assert milan.patch(kind, "held", {"metadata": {"finalizers": []}}, user=ADMINISTRATOR) == ""


@by_kind(policytable.EVERY)
def test_a_consumer_names_no_owner(milan: Provider, kind: Kind) -> None:
    owned = made(kind, "owned", metadata={"ownerReferences": [OWNER]})
    assert "metadata.ownerReferences" in milan.create(owned, kind)
    assert milan.create(owned, kind, user=ADMINISTRATOR, for_good=True) == ""

    for owners in ([], [OWNER, {**OWNER, "uid": "2"}], [{**OWNER, "uid": "2"}]):
        said = milan.patch(kind, "owned", {"metadata": {"ownerReferences": owners}})
        assert "metadata.ownerReferences" in said, owners
    assert milan.patch(kind, "owned", {"metadata": {"annotations": {"a": "b"}}}) == ""


def test_a_secret_goes_with_its_shadowpod_and_holds_nothing(milan: Provider) -> None:
    """As the virtual kubelet has it for tokens; a ShadowPod that is made again is another one."""
    shadow = made(keys.SHADOW_POD)
    owners = [
        owner_reference(
            keys.SHADOW_POD, {"metadata": {**shadow["metadata"], "uid": uid}}, block=False
        )
        for uid in ("1", "2")
    ]
    for kind in (keys.SECRET, keys.CONFIG_MAP):
        said = milan.create(made(kind, metadata={"ownerReferences": [owners[0]]}), kind)
        assert ("metadata.ownerReferences" in said) == (kind == keys.CONFIG_MAP)
    kept = made(keys.SECRET, "kept", metadata={"ownerReferences": [owners[0]]})
    assert milan.create(kept, keys.SECRET, for_good=True) == ""
    for again in ([owners[1]], []):
        change = {"metadata": {"ownerReferences": again}}
        assert milan.patch(keys.SECRET, "kept", change) == ""
    blocking = {**owners[0], "blockOwnerDeletion": True}
    said = milan.create(made(keys.SECRET, metadata={"ownerReferences": [blocking]}), keys.SECRET)
    assert "metadata.ownerReferences" in said


@by_kind(allowlist.REPLICAS)
def test_a_replica_that_the_provider_holds_ends_once_it_lets_go(
    milan: Provider, kind: Kind
) -> None:
    name = f"held-{kind.resource.lower()}"
    held = made(kind, name, metadata={"finalizers": [keys.NAMESPACE_MAP_FINALIZER]})
    assert milan.create(held, kind, user=ADMINISTRATOR, for_good=True) == ""

    assert milan.delete(kind, name, for_good=True) == ""
    stands = milan.read(kind, name)
    assert stands is not None
    assert stands["metadata"]["deletionTimestamp"]
    let_go: Object = {"metadata": {"finalizers": []}}
    assert milan.patch(kind, name, let_go, user=ADMINISTRATOR, for_good=True) == ""
    assert milan.read(kind, name) is None


# Orders to programs of the provider ---------------------------------------------------------------

DATA: Final = (keys.CONFIG_MAP, keys.SECRET, keys.PERSISTENT_VOLUME_CLAIM)
ORDERS: Final[dict[str, tuple[Kind, ...]]] = {
    "replicator.v1.mittwald.de/replicate-to": DATA,
    "reflector.v1.k8s.emberstack.com/reflection-auto-enabled": DATA,
    "cert-manager.io/allow-direct-injection": DATA,
    "vault.security.banzaicloud.io/vault-role": DATA,
    "k8s.io/CloneRequest": DATA[2:],
    "cdi.kubevirt.io/storage.import.endpoint": DATA[2:],
    "storage.kubevirt.io/x": DATA[2:],
    "volume.kubernetes.io/selected-node": DATA[2:],
    "trident.netapp.io/cloneFromPVC": DATA[2:],
    "kubectl.kubernetes.io/restartedAt": (),
    "app.kubernetes.io/part-of": (),
    "team.example.org/owner": (),
    "note": (),
}
"""Annotations, and which kinds are refused with them."""


@by_kind(DATA)
def test_data_and_claims_carry_no_orders(milan: Provider, kind: Kind) -> None:
    assert milan.create(made(kind, "ordered"), kind, for_good=True) == ""
    for name, kinds in ORDERS.items():
        noted = {"metadata": {"annotations": {name: "x"}}}
        for said in (milan.create(made(kind, **noted), kind), milan.patch(kind, "ordered", noted)):
            assert (f"annotation {name}" in said) == (kind in kinds), (name, said)
            assert bool(said) == (kind in kinds), (name, said)


@by_kind((*DATA, keys.SERVICE))
def test_data_and_claims_carry_no_label_that_programs_look_for(milan: Provider, kind: Kind) -> None:
    assert milan.create(made(kind, "labelled"), kind, for_good=True) == ""
    for name in {*allowlist.LABELS, *allowlist.INJECTED}:
        labelled = {"metadata": {"labels": {name: "1"}}}
        for said in (
            milan.create(made(kind, **labelled), kind),
            milan.patch(kind, "labelled", labelled),
        ):
            assert (f"label {name}" in said) == (name in allowlist.LABELLED[kind]), (name, said)


@by_kind(DATA)
def test_what_a_reflector_sends_of_it_is_taken(milan: Provider, kind: Kind) -> None:
    notes = dict.fromkeys(ORDERS, "x") | {f"a{n}": "" for n in range(200)}
    labels = dict.fromkeys(allowlist.LABELS, "1") | {"app": "web"}
    local = made(
        kind, "x", metadata={"annotations": notes, "labels": labels, "finalizers": ["a.io/b"]}
    )
    forge, context = FORGES[kind], ReflectionContext(PAIR, offers=AllowedReflection())

    twin = apply.stamped(forge.twin(local, context))
    told = forge.lacks(local, context)

    assert milan.create(twin, kind) == ""
    assert twin["metadata"]["labels"]["app"] == "web"
    assert "annotations " in told
    assert "labels argocd.argoproj.io/secret-type, grafana_alert" in told
    assert forge.lacks(made(kind), context) == ""


@by_kind(DATA)
def test_a_domain_that_is_opened_passes(milan: Provider, kind: Kind) -> None:
    opened = "replicator.v1.mittwald.de,argocd.argoproj.io"
    noted = made(
        kind,
        metadata={
            "annotations": {"replicator.v1.mittwald.de/replicate-to": "x"},
            "labels": {"argocd.argoproj.io/secret-type": "cluster"},
        },
    )
    assert milan.create(noted, kind)

    milan.annotate({keys.OFFERED_ANNOTATION_DOMAINS: opened})
    wait_until(lambda: milan.create(noted, kind) == "")
    milan.annotate({keys.OFFERED_ANNOTATION_DOMAINS: None})
    wait_until(lambda: milan.create(noted, kind) != "")


SOURCE: Final = {"kind": "PersistentVolumeClaim", "name": "theirs"}
FIELDS: Final[dict[str, Object]] = {
    "volumeName": {"volumeName": "theirs"},
    "selector": {"selector": {"matchLabels": {"a": "b"}}},
    "dataSource": {"dataSource": SOURCE},
    "dataSourceRef": {"dataSourceRef": SOURCE},
    "volumeAttributesClassName": {"volumeAttributesClassName": "gold"},
}
BOTH: Final[dict[str, Object]] = {
    **{f"spec.{name}": {"spec": spec} for name, spec in FIELDS.items()},
    **{
        f"annotation {name}": {"metadata": {"annotations": {name: "x"}}}
        for name, kinds in ORDERS.items()
        if keys.PERSISTENT_VOLUME_CLAIM in kinds
    },
    "label grafana_alert": {"metadata": {"labels": {"grafana_alert": "x"}}},
}


@pytest.mark.parametrize("told", BOTH)
def test_a_claim_and_the_template_of_one_are_judged_alike(milan: Provider, told: str) -> None:
    kind = keys.PERSISTENT_VOLUME_CLAIM
    obj = made(kind, **BOTH[told])
    for user in (KUBELET, EPHEMERAL):
        assert told in milan.create(obj, kind, user=user)
    template = {**obj, "metadata": {**obj["metadata"], "name": None, "namespace": None}}
    template = {name: template[name] for name in ("metadata", "spec")}
    volume = {"name": "a", "ephemeral": {"volumeClaimTemplate": template}}

    said = [*podvolumes.template_complaints(volume, "volumes[0]", ProviderPolicy())]

    field = told.rpartition(" ")[2].removeprefix("spec.")
    if told.startswith("annotation "):
        assert podvolumes.left_out({"volumes": [volume]}) == {field}, "no pod is refused for it"
        return
    assert any(field in one for one in said), said


def test_a_claim_keeps_what_the_provider_added_to_it(milan: Provider) -> None:
    kind = keys.PERSISTENT_VOLUME_CLAIM
    assert milan.create(made(kind, "kept"), kind, for_good=True) == ""
    bound = {"spec": {"volumeName": "pv-1"}, "metadata": {"annotations": {"k8s.io/x": "y"}}}
    assert milan.patch(kind, "kept", bound, user=ADMINISTRATOR, for_good=True) == ""

    assert milan.patch(kind, "kept", {"metadata": {"labels": {"a": "b"}}}) == ""


def test_policies_have_what_is_made_of_the_tables() -> None:
    for path, text in celtables.files().items():
        assert path.read_text() == text, f"{path.name}: run python3 -m tests.manifests.celtables"


def listed(policy: str) -> list[list[str]]:
    """Return the lists of texts in the expressions of ``policy``."""
    text = " ".join((documents.ROOT / "70-policies" / policy).read_text().split())
    return [
        re.findall(r"'([^']+)'", one) for one in re.findall(r"\[('[^']+'(?:, '[^']+')*)\]", text)
    ]


def test_policy_and_code_have_the_same_lists() -> None:
    text = (documents.ROOT / "70-policies" / "consumers.yaml").read_text()
    lists = listed("consumers.yaml")
    for known in (
        allowlist.LABELS,
        allowlist.INJECTED,
        podvolumes.TEMPLATE_FIELDS,
        *allowlist.NOTED.values(),
    ):
        assert [*known] in lists
    for expression in (*allowlist.OF_KIND.values(), allowlist.PLAIN):
        assert f"'{expression}'" in text
    assert f"variables.newAnnotations.size() <= {allowlist.MOST_ANNOTATIONS}" in text


def test_the_policy_on_marks_has_the_lists_of_the_table() -> None:
    """Each list there is is one of these, so none is forgotten."""
    text = (documents.ROOT / "70-policies" / "consumer-marks.yaml").read_text()
    expected = [
        {"system:masters", "system:serviceaccounts"},
        {kind.plural for kind in allowlist.SHADOWS},
        {mark.key for mark in allowlist.SHADOW_LABELS},
        {keys.ORIGIN},
        {mark.key for mark in allowlist.SHADOW_LABELS} - {keys.ORIGIN},
        *(
            {mark.key for mark in table if mark.says is says}
            for table, says in (
                (allowlist.SHADOW_LABELS, AllowedValue.CONSUMER),
                *(
                    (allowlist.REPLICA_LABELS, says)
                    for says in AllowedValue
                    if says is not AllowedValue.NOTHING
                ),
            )
        ),
        {mark.key for mark in allowlist.REPLICA_LABELS if mark.is_needed},
        {mark.key for mark in allowlist.REPLICA_ANNOTATIONS if mark.says is AllowedValue.ANYTHING},
    ]

    found = [{*one} for one in listed("consumer-marks.yaml")]

    assert [one for one in found if one not in expected] == []
    assert [one for one in expected if one not in found] == []
    assert text.count(f"size() > {policytable.MOST_NOTES}") == 2
    assert text.count(f"labels.size() <= {policytable.MOST_LABELS} ") == 1
    assert f"size() <= {policytable.MOST_ENDPOINTS} && " in text
    assert f"size() <= {policytable.MOST_PORTS})" in text


# However large what a consumer sends is, no policy fails for its own cost.
# An expression over its budget fails closed, and says so with words that help nobody. So the
# largest objects that an API server takes are sent, and ones of twice that size.
# Source: Kubernetes, "Resource constraints" of CEL.


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


def large_container(number: int) -> Object:
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
            {"spec": {"pod": {"containers": [large_container(one) for one in range(count)]}}},
        ),
        keys.SHADOW_ENDPOINT_SLICE: (
            {"spec": {"template": {"addressType": "IPv4", "endpoints": endpoints}}},
        ),
    }  # fmt: skip


def large_changes(kind: Kind, times: int) -> Iterator[Object]:
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

    for changes in large_changes(kind, times):
        told = (milan.create(made(kind, **changes), kind), milan.patch(kind, name, changes))
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
