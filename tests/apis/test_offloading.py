"""Our kinds: what their JSON means, with defaults, and what is refused."""

from typing import Any

import msgspec
import pytest
import yaml
from msgspec import structs

from apis import reflection
from apis.objects import Key, Kind
from apis.offloading import (
    CurrentMapping,
    MappedNamespace,
    MappingPhase,
    MappingStrategy,
    NamespaceMap,
    NamespaceOffloading,
    OfferedClass,
    OffloadingPatch,
    PodOffloadingStrategy,
    ReflectionPolicy,
    ReflectorConfig,
    VirtualNode,
    VkOptionsTemplate,
)
from apis.providerpolicy import ProviderPolicy
from liqoctl.forge import offloading
from tests import factories
from tests.conftest import CRDS

META: dict[str, Any] = {"name": "x", "namespace": "ns"}


@pytest.mark.parametrize("obj", [{}, {"spec": None}, {"spec": {"clusterSelector": None}}])
def test_a_namespace_offloading_has_defaults(obj: dict[str, Any]) -> None:
    assert NamespaceOffloading.parse(obj) == NamespaceOffloading(
        PodOffloadingStrategy.LOCAL_AND_REMOTE, (), MappingStrategy.DEFAULT_NAME, ""
    )


@pytest.mark.parametrize(
    ("strategy", "name"),
    [("EnforceSameName", "foo"), ("DefaultName", "foo-rome"), ("SelectedName", "bar")],
)
def test_the_twin_is_called_as_the_strategy_says(strategy: str, name: str) -> None:
    spec = {"namespaceMappingStrategy": strategy, "remoteNamespaceName": "bar"}

    parsed = NamespaceOffloading.parse({"spec": spec})

    assert parsed.remote_name("foo", "rome") == name


def test_the_selector_is_taken_over() -> None:
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    spec = {"podOffloadingStrategy": "Remote", "clusterSelector": {"nodeSelectorTerms": [term]}}

    parsed = NamespaceOffloading.parse({"spec": spec})

    assert parsed.cluster_selector == (term,)
    assert parsed.strategy is PodOffloadingStrategy.REMOTE


@pytest.mark.parametrize("field", ["podOffloadingStrategy", "namespaceMappingStrategy"])
def test_an_unknown_strategy_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match="Sometimes"):
        NamespaceOffloading.parse({"spec": {field: "Sometimes"}})


def test_an_entry_that_makes_no_sense_leaves_the_others() -> None:
    good = {"remoteNamespace": "foo-rome", "phase": "Accepted"}
    current = {"foo": good, "bar": {"remoteNamespace": "b"}, "baz": {"phase": "New"}, "qux": None}

    parsed = NamespaceMap.parse({"metadata": META, "status": {"currentMapping": current}})

    assert parsed.current == {
        "foo": CurrentMapping("foo-rome", MappingPhase.ACCEPTED),
        "bar": CurrentMapping("b"),
        "baz": CurrentMapping(""),
        "qux": CurrentMapping(""),
    }


def test_a_namespace_map() -> None:
    obj = {
        "metadata": {**META, "labels": {"liqo.io/remote-cluster-id": "milan"}},
        "spec": {"desiredMapping": {"foo": "foo-rome"}},
        "status": {
            "currentMapping": {
                "foo": {"remoteNamespace": "foo-rome", "phase": "Accepted"},
                "bar": {
                    "remoteNamespace": "bar",
                    "phase": "CreationLoopBackOff",
                    "reason": "Taken",
                },
            }
        },
    }

    assert NamespaceMap.parse(obj) == NamespaceMap(
        "milan",
        {"foo": "foo-rome"},
        {
            "foo": CurrentMapping("foo-rome", MappingPhase.ACCEPTED),
            "bar": CurrentMapping("bar", MappingPhase.CREATION_LOOP_BACK_OFF, "Taken"),
        },
    )
    assert NamespaceMap.parse({"metadata": META}) == NamespaceMap("")


def test_a_virtual_node_with_nothing_said() -> None:
    assert VirtualNode.parse({"metadata": META}) == VirtualNode("x", "ns", "")


def test_a_virtual_node() -> None:
    spec: dict[str, Any] = {
        "clusterID": "milan",
        "createNode": False,
        "kubeconfigSecretRef": {"name": "kubeconfig-milan"},
        "resourceQuota": {"hard": {"cpu": 4, "memory": "8Gi"}},
        "labels": {"a": "1"},
        "storageClasses": [{"storageClassName": "fast", "default": True}],
        "ingressClasses": [{"ingressClassName": "nginx"}],
        "loadBalancerClasses": [{"loadBalancerClassName": "public"}],
        "offloadingPatch": {
            "nodeSelector": {"zone": "b"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {"x": 1}},
            "runtimeClassName": "gvisor",
            "labelsNotReflected": ["l"],
            "annotationsNotReflected": ["a"],
        },
        "vkOptionsTemplateRef": {"name": "mine", "namespace": "liqo"},
    }

    assert VirtualNode.parse({"metadata": META, "spec": spec}) == VirtualNode(
        "x",
        "ns",
        "milan",
        kubeconfig_secret="kubeconfig-milan",  # noqa: S106  # a name
        create_node=False,
        hard={"cpu": "4", "memory": "8Gi"},
        labels={"a": "1"},
        storage_classes=(OfferedClass("fast", is_default=True),),
        ingress_classes=(OfferedClass("nginx"),),
        load_balancer_classes=(OfferedClass("public"),),
        offloading_patch=OffloadingPatch(
            {"zone": "b"}, ({"operator": "Exists"},), {"x": 1}, "gvisor", ("l",), ("a",)
        ),
        vk_options_template_ref=Key("liqo", "mine"),
    )


def test_a_template_reference_without_namespace_is_in_the_namespace_of_liqo() -> None:
    obj = {"metadata": META, "spec": {"vkOptionsTemplateRef": {"name": "mine"}}}

    assert VirtualNode.parse(obj).vk_options_template_ref == Key("liqo", "mine")


def test_a_template_has_the_defaults_of_its_documents() -> None:
    assert VkOptionsTemplate.parse({"metadata": META}) == VkOptionsTemplate("")


def test_a_template() -> None:
    spec: dict[str, Any] = {
        "containerImage": "pyliqo:1",
        "createNode": False,
        "disableNetworkCheck": True,
        "metricsEnabled": True,
        "metricsAddress": ":9000",
        "replicas": 0,
        "reflectorsConfig": {
            "secret": {"workers": 5, "type": "Referenced"},
            "event": {"workers": 0},
        },
        "extraArgs": ["--x=y"],
        "pullPolicy": "Always",
        "imagePullSecrets": [{"name": "s"}],
    }

    assert VkOptionsTemplate.parse({"metadata": META, "spec": spec}) == VkOptionsTemplate(
        "pyliqo:1",
        create_node=False,
        disable_network_check=True,
        metrics_enabled=True,
        metrics_address=":9000",
        replicas=0,
        reflectors={
            "secret": ReflectorConfig(5, ReflectionPolicy.REFERENCED),
            "event": ReflectorConfig(0),
        },
        extra_args=("--x=y",),
        pull_policy="Always",
        image_pull_secrets=({"name": "s"},),
    )


@pytest.mark.parametrize("kind", reflection.NEVER, ids=str)
def test_a_template_names_no_kind_that_would_change_or_refuse_remote_pods(kind: Kind) -> None:
    part = {
        "group": kind.group,
        "version": kind.version,
        "kind": kind.kind,
        "resource": kind.plural,
    }

    with pytest.raises(ValueError, match=f"{kind.plural} cannot be reflected"):
        VkOptionsTemplate.parse({"metadata": META, "spec": {"customResources": [part]}})


@pytest.mark.parametrize(
    ("crd", "kind", "elsewhere"),
    [
        ("providerpolicy", ProviderPolicy, ()),
        ("virtualnode", VirtualNode, ("kubeconfigSecretRef", "resourceQuota", "template")),
        (
            "vkoptionstemplate",
            VkOptionsTemplate,
            ("drainTimeout", "nodeLabels", "reflectorsConfig"),
        ),
    ],
)
def test_each_field_of_a_schema_is_one_of_its_struct(
    crd: str, kind: type[msgspec.Struct], elsewhere: tuple[str, ...]
) -> None:
    """A field takes two edits; those ``elsewhere`` have another shape there, or none."""
    read = {field.encode_name for field in structs.fields(kind)}

    for version in yaml.safe_load((CRDS / f"{crd}.yaml").read_text())["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        assert schema["properties"].keys() - read == {*elsewhere}


# Twins: where they are and how they are known.


PAIR = MappedNamespace("rome", "milan", "foo", "foo-rome")


def test_twins_have_the_same_name_in_the_other_namespace() -> None:
    original = Key("foo", "web")

    assert PAIR.twin_of(original) == Key("foo-rome", "web")
    assert PAIR.original_of(PAIR.twin_of(original)) == original


@factories.cases("labels, expected")
def test_only_its_own_objects_are_reflected(labels: dict[str, str] | None, expected: bool) -> None:  # noqa: FBT001  # a table
    assert PAIR.reflects({"metadata": {"name": "web", "labels": labels}}) == expected
    assert offloading.matches(offloading.parse(PAIR.selector()), labels or {}) == expected


def test_what_carries_its_labels_is_reflected() -> None:
    assert PAIR.reflects({"metadata": {"name": "web", "labels": {**PAIR.labels(), "app": "web"}}})
