"""Our kinds on a real API server: defaults, what is refused and why, what kubectl shows."""

import json
import re
import secrets
from collections.abc import Iterator
from typing import Any, Final

import pytest

from apis import keys, objects, reflection
from apis.objects import Key, Kind
from sandbox.kubectl import Kubectl, KubectlError
from tests import factories
from tests.manifests import documents

pytestmark = pytest.mark.cluster


MADE_HERE: Final = {"made-by": f"schemas-{secrets.token_hex(4)}"}
OURS: Final = ",".join(
    crd["metadata"]["name"] for crd in documents.of_kind("CustomResourceDefinition")
)


@pytest.fixture(scope="module", autouse=True)
def leaves_nothing(kinds: Kubectl) -> Iterator[None]:
    """Delete at the end what was created here: controllers of other tests would act on it."""
    yield
    chosen = ",".join(f"{name}={value}" for name, value in MADE_HERE.items())
    kinds.run("delete", OURS, "--all-namespaces", "-l", chosen, "--wait=false")
    assert not kinds.run("get", OURS, "--all-namespaces", "-l", chosen, "-o", "name")


@pytest.fixture
def namespace(kinds: Kubectl) -> str:
    name = f"test-{secrets.token_hex(4)}"
    kinds.apply([objects.named(keys.NAMESPACE, Key("", name))])
    return name


def sample(kind: Kind, namespace: str, name: str = "x", **parts: Any) -> dict[str, Any]:
    where = Key(namespace if kind.namespaced else "", name)
    return objects.named(kind, where, **parts)


def sample_offloading(namespace: str, **spec: Any) -> dict[str, Any]:
    return sample(keys.NAMESPACE_OFFLOADING, namespace, "offloading", spec=spec)


def create(kinds: Kubectl, obj: dict[str, Any]) -> dict[str, Any]:
    """Return what ``obj`` became; it goes with this module."""
    obj["metadata"]["labels"] = {**obj["metadata"].get("labels", {}), **MADE_HERE}
    made = kinds.run("create", "-o", "json", "-f", "-", stdin=json.dumps(obj))
    return json.loads(made)  # type: ignore[no-any-return]  # JSON


def patch(kinds: Kubectl, obj: dict[str, Any], changes: dict[str, Any], *more: str) -> None:
    group, _, _ = obj["apiVersion"].partition("/")
    what = f"{obj['kind'].lower()}.{group}"  # Kubernetes has a ResourceSlice, too
    where = ["-n", obj["metadata"]["namespace"]] if "namespace" in obj["metadata"] else []
    content = json.dumps(changes)
    kinds.run("patch", what, obj["metadata"]["name"], *where, *more, "--type=merge", "-p", content)


def test_defaults_are_filled_in(kinds: Kubectl, namespace: str) -> None:
    made = create(kinds, sample_offloading(namespace))
    tenant = create(kinds, sample(keys.TENANT, namespace, spec={"clusterID": "rome"}))
    node = create(kinds, sample(keys.VIRTUAL_NODE, namespace, spec={"kubeconfigSecretRef": {}}))
    shadow = create(kinds, sample(keys.SHADOW_POD, namespace, spec={"pod": {"containers": []}}))
    patch(kinds, shadow, {"status": {"conditions": []}}, "--subresource=status")

    assert made["spec"] == {
        "namespaceMappingStrategy": "DefaultName",
        "podOffloadingStrategy": "LocalAndRemote",
    }
    assert tenant["spec"]["authzPolicy"] == "KeysExchange"
    assert tenant["spec"]["tenantCondition"] == "Active"
    assert node["spec"]["kubeconfigSecretRef"] == {"name": ""}
    found = kinds.get(f"shadowpod.{keys.SHADOW_POD.group}", "x", "-n", namespace)
    assert found["status"]["phase"] == "Unknown"


def test_what_a_pod_spec_will_have_one_day_is_kept(kinds: Kubectl, namespace: str) -> None:
    spec = {"pod": {"containers": [{"name": "c", "fromTheFuture": {"a": [1]}}], "alsoNew": 1.5}}

    made = create(kinds, sample(keys.SHADOW_POD, namespace, spec=spec))

    assert made["spec"] == spec


REFUSED_TO_CREATE: Final = [
    (keys.NAMESPACE_OFFLOADING, "other", {}, "the name must be offloading"),
    (
        keys.NAMESPACE_OFFLOADING,
        "offloading",
        {"namespaceMappingStrategy": "SelectedName"},
        "spec.remoteNamespaceName: Invalid value.*SelectedName needs a remoteNamespaceName",
    ),
    (
        keys.NAMESPACE_OFFLOADING,
        "offloading",
        {"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": "Foo_"},
        "spec.remoteNamespaceName: Invalid value.*must be a namespace name",
    ),
    (
        keys.NAMESPACE_OFFLOADING,
        "offloading",
        {"remoteNamespaceName": "a" * 64},
        "spec.remoteNamespaceName: Too long: may not be more than 63",
    ),
    (
        keys.NAMESPACE_OFFLOADING,
        "offloading",
        {"podOffloadingStrategy": "Sometimes"},
        'supported values: "Local", "Remote", "LocalAndRemote"',
    ),
    (
        keys.NAMESPACE_OFFLOADING,
        "offloading",
        {"namespaceMappingStrategy": "SameName"},
        'supported values: "EnforceSameName", "DefaultName", "SelectedName"',
    ),
    (
        keys.NAMESPACE_OFFLOADING,
        "offloading",
        {"clusterSelector": {}},
        "nodeSelectorTerms: Required",
    ),
    (keys.VIRTUAL_NODE, "a" * 64, {}, "at most 63 characters"),
    (keys.VIRTUAL_NODE, "x", {"clusterID": "Rome"}, "spec.clusterID: Invalid value"),
    (
        keys.VIRTUAL_NODE,
        "x",
        {"resourceQuota": {"hard": {"cpu": "lots"}}},
        "spec.resourceQuota.hard.cpu: Invalid value",
    ),
    (keys.VK_OPTIONS_TEMPLATE, "x", {}, "spec.containerImage: Required value"),
    *(
        (
            keys.VK_OPTIONS_TEMPLATE,
            "x",
            {
                "containerImage": "x",
                "createNode": True,
                "disableNetworkCheck": False,
                "metricsEnabled": False,
                "customResources": [
                    {"group": "", "version": "v1", "kind": kind.kind, "resource": kind.plural}
                ],
            },
            r"spec.customResources\[0\].group: Invalid value.*LimitRange and ResourceQuota would",
        )
        for kind in reflection.NEVER
    ),
    (keys.QUOTA, "x", {"user": "", "resources": {}}, "spec.user: Invalid value"),
    (keys.QUOTA, "x", {"user": "u"}, "spec.resources: Required value"),
    *(
        (
            keys.QUOTA,
            "x",
            {"user": "u", "resources": {"cpu": amount}},
            "spec.resources.cpu: Invalid",
        )
        for amount in ("-1", "-100m", -1)
    ),
    *(
        (keys.NAMESPACE_MAP, "x", {"desiredMapping": mapping}, message)
        for mapping, message in (
            ({f"n{n}": "x" for n in range(2001)}, "desiredMapping: Too many"),
            ({"x": "y" * 64}, "desiredMapping.x: Too long"),
            ({"x" * 64: "y"}, "names of namespaces have at most 63 characters"),
        )
    ),
    *(
        (keys.RESOURCE_SLICE, "x", spec, message)
        for spec, message in (
            ({"resources": {f"x/{n}": "1" for n in range(65)}}, "resources: Too many"),
            ({"resources": {"x" * 318: "1"}}, "at most 317 characters"),
            ({"resources": {"cpu": "1" * 65}}, "resources.cpu: Too long"),
            ({"class": "x" * 254}, "class: Too long"),
            ({"csr": "A" * 16388}, "csr: Too long"),
            ({"consumerClusterID": "x" * 64}, "consumerClusterID: Too long"),
            ({"providerClusterID": "x" * 64}, "providerClusterID: Too long"),
        )
    ),
    *(
        (keys.RENEW, "x", {"consumerClusterID": "a", **spec}, f"{name}: Too long")
        for name, spec in (
            ("csr", {"csr": "A" * 16388}),
            ("publicKey", {"publicKey": "A" * 16388}),
            ("identityType", {"identityType": "x" * 64}),
            ("resourceSliceRef.name", {"resourceSliceRef": {"name": "x" * 254}}),
        )
    ),
    *(
        (keys.SHADOW_ENDPOINT_SLICE, "x", {"template": template}, message)
        for template, message in (
            ({"endpoints": [{"addresses": ["10.0.0.1"] * 101}]}, "addresses: Too many"),
            ({"endpoints": [{"addresses": ["x" * 254]}]}, "addresses.*Too long"),
        )
    ),
    (keys.FOREIGN_CLUSTER, "x", {}, "spec.clusterID: Required value"),
    (keys.PROVIDER_POLICY, "x", {"sharing": {"percentage": 101}}, "less than or equal to 100"),
]


@pytest.mark.parametrize("case", REFUSED_TO_CREATE)
def test_what_cannot_be_created(kinds: Kubectl, namespace: str, case: tuple[Any, ...]) -> None:
    kind, name, spec, message = case

    with pytest.raises(KubectlError, match=f"(?s){message}"):
        create(kinds, sample(kind, namespace, name, spec=spec))


SELECTED: Final = {"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": "twin"}


@factories.cases("case")
def test_what_cannot_be_changed(kinds: Kubectl, namespace: str, case: tuple[Any, ...]) -> None:
    constant, spec, changes, message = case
    kind = getattr(keys, constant)
    name = "offloading" if kind is keys.NAMESPACE_OFFLOADING else f"x-{secrets.token_hex(4)}"
    made = create(kinds, sample(kind, namespace, name, spec=spec))

    with pytest.raises(KubectlError, match=f"(?s){message}"):
        patch(kinds, made, {"spec": changes})


def test_what_may_be_changed(kinds: Kubectl, namespace: str) -> None:
    made = create(kinds, sample_offloading(namespace, **SELECTED))
    expression = {"key": "a", "operator": "Exists"}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}

    patch(kinds, made, {"spec": {"podOffloadingStrategy": "Local", "clusterSelector": selector}})
    node = create(kinds, sample(keys.VIRTUAL_NODE, namespace, spec={}))
    patch(kinds, node, {"spec": {"clusterID": "milan"}})

    found = kinds.get("nsoff", "offloading", "-n", namespace)
    assert found["spec"]["clusterSelector"] == selector


def test_a_remote_name_is_kept_only_where_it_is_used(kinds: Kubectl, namespace: str) -> None:
    made = create(kinds, sample_offloading(namespace, remoteNamespaceName="No_Name"))

    for name in ("other", "No.Name", None):
        patch(kinds, made, {"spec": {"remoteNamespaceName": name}})

    assert "remoteNamespaceName" not in kinds.get("nsoff", "offloading", "-n", namespace)["spec"]


AGE: Final = re.compile(r"(\d{1,2}m)?\d+s|\d{1,2}m")
"""Of up to an hour; the amounts below have three digits before an m."""
TIME: Final = "2026-01-01T00:00:00Z"


@factories.cases("case")
def test_what_kubectl_shows(kinds: Kubectl, namespace: str, case: tuple[Any, ...]) -> None:
    constant, parts, options, header, row = case
    kind = getattr(keys, constant)
    name = "offloading" if kind is keys.NAMESPACE_OFFLOADING else "x"
    made = create(kinds, sample(kind, namespace, name, **parts))
    if "status" in parts:
        patch(kinds, made, {"status": parts["status"]}, "--subresource=status")

    shown = kinds.run("get", kind.resource, "-n", namespace, *options).splitlines()

    assert " ".join(shown[0].split()) == header
    words = shown[1].split()
    assert (
        " ".join(
            "AGE" if re.fullmatch(r"(\d{1,2}m)?\d+s|\d{1,2}m", word) else word for word in words
        )
        == row
    )


def test_a_quota_that_is_not_cordoned_shows_an_empty_column(kinds: Kubectl, namespace: str) -> None:
    specs: dict[str, dict[str, Any]] = {"a": {}, "b": {"cordoned": None}, "c": {"cordoned": True}}
    for name, spec in specs.items():
        create(
            kinds, sample(keys.QUOTA, namespace, name, spec={"user": "u", "resources": {}, **spec})
        )

    header, *rows = kinds.run("get", "quotas", "-n", namespace).splitlines()

    begin = header.index("CORDONED")
    assert [row[begin : begin + 8].strip() for row in rows] == ["", "", "true"]


def test_all_kinds_are_found_by_category_and_short_names(kinds: Kubectl, namespace: str) -> None:
    create(kinds, sample_offloading(namespace))
    create(kinds, sample(keys.QUOTA, namespace, spec={"user": "u", "resources": {}}))

    found = kinds.run("get", "liqo", "-n", namespace, "-o", "name").split()

    without_namespace = ("foreigncluster.", "providerpolicy.")  # other tests' may be there
    assert {name for name in found if not name.startswith(without_namespace)} == {
        "namespaceoffloading.offloading.liqo.io/offloading",
        "quota.offloading.liqo.io/x",
    }
    for short in ("nso", "nsof", "nsoff", "nsoffloading", "qt"):
        assert kinds.run("get", short, "-n", namespace, "-o", "name")
