"""Our kinds as CRDs: every name, column and subresource of the documents (docs/parity.md § 1)."""

from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Kind
from tests.manifests import documents

AGE: Final = ("Age", ".metadata.creationTimestamp", "date", 0)


def text(name: str, path: str, priority: int = 0) -> tuple[str, str, str, int]:
    return name, path, "string", priority


def condition(name: str, priority: int = 0) -> tuple[str, str, str, int]:
    return text(name, f'.status.conditions[?(@.type=="{name}")].status', priority)


KINDS: Final[dict[Kind, tuple[str, list[tuple[str, str, str, int]]]]] = {
    keys.NAMESPACE_OFFLOADING: (
        "nso nsof nsoff nsoffloading",
        [
            text("NamespaceMappingStrategy", ".spec.namespaceMappingStrategy"),
            text("PodOffloadingStrategy", ".spec.podOffloadingStrategy"),
            text("OffloadingPhase", ".status.offloadingPhase"),
            text("RemoteNamespaceName", ".status.remoteNamespaceName", 10),
            AGE,
        ],
    ),
    keys.NAMESPACE_MAP: (
        "nm nsmap",
        [text("Local", ".metadata.labels.liqo\\.io/replication"), AGE],
    ),
    keys.VIRTUAL_NODE: (
        "vn vnode virno vno",
        [
            text("ClusterID", ".spec.clusterID"),
            ("Create Node", ".spec.createNode", "boolean", 0),
            AGE,
            condition("Node", 1),
            condition("VirtualKubelet", 1),
        ],
    ),
    keys.VK_OPTIONS_TEMPLATE: ("vkot vkopt", [AGE]),
    keys.SHADOW_POD: ("shp shpod", [text("Status", ".status.phase"), AGE]),
    keys.SHADOW_ENDPOINT_SLICE: ("shes sheps seps", []),
    keys.QUOTA: (
        "qt",
        [
            text("Enforcement", ".spec.limitsEnforcement"),
            ("Cordoned", ".spec.cordoned", "boolean", 0),
            AGE,
            text("User", ".spec.user", 1),
            *(
                text(name, f"{path}.{resource}", 1)
                for resource, shown in (("cpu", "CPU"), ("memory", "Memory"), ("pods", "Pods"))
                for name, path in ((f"Used{shown}", ".status.used"), (shown, ".spec.resources"))
            ),
        ],
    ),
    keys.RESOURCE_SLICE: ("rslice", [condition("Authentication"), condition("Resources"), AGE]),
    keys.IDENTITY: (
        "id",
        [
            text("Type", ".spec.type"),
            text("KubeconfigSecret", ".status.kubeconfigSecretRef.name", 1),
            AGE,
        ],
    ),
    keys.TENANT: ("tn", [text("Condition", ".spec.tenantCondition"), AGE]),
    keys.RENEW: ("", [AGE]),
    keys.FOREIGN_CLUSTER: (
        "fc",
        [text("Role", ".status.role"), text("ClusterID", ".spec.clusterID", 1), AGE],
    ),
    keys.PROVIDER_POLICY: ("", [("Sharing", ".spec.sharing.percentage", "integer", 0), AGE]),
}
WITHOUT_STATUS: Final = {keys.VK_OPTIONS_TEMPLATE, keys.SHADOW_ENDPOINT_SLICE}
QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


def crd(kind: Kind) -> dict[str, Any]:
    return documents.named("CustomResourceDefinition", kind.resource)["spec"]  # type: ignore[no-any-return]  # YAML


def test_there_is_one_crd_for_each_kind() -> None:
    names = {found["metadata"]["name"] for found in documents.of_kind("CustomResourceDefinition")}

    assert names == {kind.resource for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_names_and_columns_are_those_of_the_documents(kind: Kind) -> None:
    short, columns = KINDS[kind]
    spec = crd(kind)
    (version,) = spec["versions"]

    found = [
        (column["name"], column["jsonPath"], column["type"], column.get("priority", 0))
        for column in version.get("additionalPrinterColumns", [])
    ]

    assert found == columns
    assert spec["names"].get("shortNames", []) == short.split()
    assert spec["names"]["categories"] == ["liqo"]
    assert (spec["group"], version["name"]) == (kind.group, kind.version)
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (kind.kind, kind.plural)
    assert spec["scope"] == ("Namespaced" if kind.namespaced else "Cluster")
    assert ("status" in version.get("subresources", {})) == (kind not in WITHOUT_STATUS)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_amounts_have_the_pattern_of_kubernetes(kind: Kind) -> None:
    for part in parts(crd(kind)["versions"][0]["schema"]["openAPIV3Schema"]):
        if part.get("x-kubernetes-int-or-string"):
            is_unsigned = part.get("minimum") == 0
            expected = QUANTITY.replace(r"^(\+|-)?", r"^\+?", 1) if is_unsigned else QUANTITY
            assert part["pattern"] == expected
            assert part["anyOf"] == [{"type": "integer"}, {"type": "string"}]


def parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    below = [
        *schema.get("properties", {}).values(),
        *([schema["items"]] if "items" in schema else []),
        *([schema["additionalProperties"]] if "additionalProperties" in schema else []),
    ]
    return [schema, *(part for child in below for part in parts(child))]


@pytest.mark.parametrize("path", sorted((documents.ROOT / "10-crds").glob("*.yaml")), ids=str)
def test_a_crd_fits_the_annotation_of_kubectl_apply(path: Any) -> None:
    assert path.stat().st_size < 256 * 1024
