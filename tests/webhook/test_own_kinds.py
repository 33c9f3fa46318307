"""VirtualNodes, Tenants, ResourceSlices, ForeignClusters.

Source: docs/parity.md § 3.3-3.6, 9 #9.
"""

from typing import Any

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from tests import factories
from tests.webhook.reviews import Known, response

TENANT_NS = "liqo-tenant-rome"
LABEL = keys.REMOTE_CLUSTER_ID


def reviewed(known: Known, path: str, kind: Kind, obj: Object, **request: Any) -> Object:
    request = {"namespace": TENANT_NS, "name": "x", **request}
    return response(known, path, obj, kind=kind, **request)


def denial(*args: Any, **kwargs: Any) -> str:
    found = reviewed(*args, **kwargs)
    assert found["allowed"] is False
    message: str = found["status"]["message"]
    assert len(message) <= 256
    return message


def update(old: Object) -> dict[str, Any]:
    return {"operation": "UPDATE", "oldObject": old}


# VirtualNodes -------------------------------------------------------------------------------------

MUTATE, VALIDATE = "/mutate/virtualnodes", "/validate/virtualnodes"


def virtual_node(name: str = "x", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    key = Key(TENANT_NS, name)
    return named(keys.VIRTUAL_NODE, key, metadata={"labels": labels or {}}, spec=spec)


def template(name: str = keys.DEFAULT_VK_OPTIONS_TEMPLATE, **spec: Any) -> tuple[Kind, Object]:
    spec = {"createNode": True, "disableNetworkCheck": False, **spec}
    return keys.VK_OPTIONS_TEMPLATE, named(keys.VK_OPTIONS_TEMPLATE, Key("liqo", name), spec=spec)


def mutated(known: Known, obj: Object) -> Object:
    found = reviewed(known, MUTATE, keys.VIRTUAL_NODE, obj)
    spec: Object = found["object"]["spec"]
    return spec


def test_a_virtual_node_takes_from_the_template_what_it_leaves_open() -> None:
    known = Known(template(labelsNotReflected=["a", "b"], annotationsNotReflected=["c"]))
    patch = {"labelsNotReflected": ["b", "z"], "runtimeClassName": "kata"}

    spec = mutated(known, virtual_node(createNode=False, offloadingPatch=patch))

    assert spec == {
        "createNode": False,
        "disableNetworkCheck": False,
        "offloadingPatch": {
            "labelsNotReflected": ["b", "z", "a"],
            "annotationsNotReflected": ["c"],
            "runtimeClassName": "kata",
        },
    }


def test_filling_in_twice_is_filling_in_once() -> None:
    known = Known(template(labelsNotReflected=["a"]))
    once = virtual_node(**mutated(known, virtual_node()))

    assert "patch" not in reviewed(known, MUTATE, keys.VIRTUAL_NODE, once)


def test_a_virtual_node_without_a_spec_is_filled_in() -> None:
    bare = {"metadata": {"name": "x"}}

    assert mutated(Known(template()), bare) == {"createNode": True, "disableNetworkCheck": False}


def test_the_template_that_is_named_counts() -> None:
    known = Known(template(), template("mine", createNode=False))

    assert (
        mutated(known, virtual_node(vkOptionsTemplateRef={"name": "mine"}))["createNode"] is False
    )


@pytest.mark.parametrize("name", ["mine", keys.DEFAULT_VK_OPTIONS_TEMPLATE])
def test_without_its_template_a_virtual_node_is_refused(name: str) -> None:
    wanted = virtual_node(vkOptionsTemplateRef={"name": name})

    assert f"no VkOptionsTemplate liqo/{name}" in denial(Known(), MUTATE, keys.VIRTUAL_NODE, wanted)


@pytest.mark.parametrize("path", [MUTATE, VALIDATE])
def test_a_template_elsewhere_is_refused(path: str) -> None:
    wanted = virtual_node(vkOptionsTemplateRef={"name": "mine", "namespace": "shop"})

    message = denial(Known(), path, keys.VIRTUAL_NODE, wanted)

    assert "spec.vkOptionsTemplateRef.namespace is 'shop'" in message


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_virtual_node_does_not_say_what_runs(operation: str) -> None:
    wanted = virtual_node(template={"spec": {"replicas": 1}})
    how = update(virtual_node()) if operation == "UPDATE" else {}

    message = denial(Known(), VALIDATE, keys.VIRTUAL_NODE, wanted, **how)

    assert "spec.template is not taken" in message
    assert "VkOptionsTemplate" in message


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(
    ("amount", "why"),
    [
        ("-1", "is below zero"),
        ("NaN", "is no amount"),
        ("1e308", "the exponent 308 is beyond 30"),
        ("1e999999999", "is no amount"),
        ("9" * 10_240, "is too long"),
    ],
)
def test_a_virtual_node_offers_amounts(operation: str, amount: str, why: str) -> None:
    """A Node that says 1e999999999 keeps the API server busy for minutes. Source: A13."""
    wanted = virtual_node(resourceQuota={"hard": {"cpu": "1", "nvidia.com/gpu": amount}})
    how = update(virtual_node()) if operation == "UPDATE" else {}

    message = denial(Known(HOME), VALIDATE, keys.VIRTUAL_NODE, wanted, **how)

    assert "spec.resourceQuota.hard.nvidia.com/gpu " in message
    assert why in message
    assert len(message) < 256


def test_what_is_stored_is_not_judged_again() -> None:
    odd = {"hard": {"cpu": "NaN"}}
    stored = virtual_node(
        template={"spec": {}}, vkOptionsTemplateRef={"namespace": "old"}, resourceQuota=odd
    )
    for changed in (stored, virtual_node(**{**stored["spec"], "createNode": True}), virtual_node()):
        assert reviewed(Known(), VALIDATE, keys.VIRTUAL_NODE, changed, **update(stored))["allowed"]


HOME = (
    keys.NAMESPACE,
    named(keys.NAMESPACE, Key("", TENANT_NS), metadata={"labels": {keys.TENANT_NAMESPACE: "true"}}),
)


@pytest.mark.parametrize("namespace", ["kube-system", "nowhere"])
def test_virtual_nodes_are_in_tenant_namespaces(namespace: str) -> None:
    system = (keys.NAMESPACE, named(keys.NAMESPACE, Key("", "kube-system")))
    found = reviewed(
        Known(HOME, system), VALIDATE, keys.VIRTUAL_NODE, virtual_node(), namespace=namespace
    )

    assert not found["allowed"]
    assert f"lacks the label {keys.TENANT_NAMESPACE}=true" in found["status"]["message"]


def test_no_two_virtual_nodes_have_one_name() -> None:
    other = named(keys.VIRTUAL_NODE, Key("liqo-tenant-other", "x"), spec={"createNode": False})

    known = Known(HOME, (keys.VIRTUAL_NODE, other))

    status = reviewed(known, VALIDATE, keys.VIRTUAL_NODE, virtual_node())["status"]

    refusal = "there is a VirtualNode liqo-tenant-other/x already: choose another name"
    assert refusal in status["message"]
    assert status["code"] == 409


def test_the_name_of_a_node_is_taken() -> None:
    known = Known(HOME, (keys.NODE, named(keys.NODE, Key("", "x"))))

    status = reviewed(known, VALIDATE, keys.VIRTUAL_NODE, virtual_node())["status"]

    assert "there is a node 'x' already" in status["message"]
    assert status["code"] == 409
    assert reviewed(Known(HOME), VALIDATE, keys.VIRTUAL_NODE, virtual_node())["allowed"]


def test_a_name_to_be_generated_collides_with_nothing() -> None:
    known = Known(HOME)
    wanted = {"metadata": {"generateName": "x-"}, "spec": {}}

    assert reviewed(known, VALIDATE, keys.VIRTUAL_NODE, wanted, name="")["allowed"]
    assert [kind for kind, _ in known.asked] == [keys.NAMESPACE]


def test_virtual_nodes_that_promise_more_than_their_slice_has_are_told_so() -> None:
    label = {keys.RESOURCE_SLICE_NAME: "pool"}
    status = {"resources": {"cpu": "4", "memory": "8Gi"}}
    shared = named(keys.RESOURCE_SLICE, Key(TENANT_NS, "pool"), status=status)
    hard = {"hard": {"cpu": "3", "memory": "1Gi", "pods": "10"}}
    other = virtual_node("y", label, resourceQuota=hard)
    known = Known(HOME, (keys.RESOURCE_SLICE, shared), (keys.VIRTUAL_NODE, other))

    found = reviewed(
        known, VALIDATE, keys.VIRTUAL_NODE, virtual_node("x", label, resourceQuota=hard)
    )

    assert found["warnings"] == [
        f"the virtual nodes of resource slice {TENANT_NS}/pool promise 6 of cpu, it has 4"
    ]


# ForeignClusters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [None, {}, {LABEL: "milan", "a": "b"}])
def test_a_foreign_cluster_has_the_label_of_its_id(labels: dict[str, str] | None) -> None:
    obj = {"metadata": {"name": "x", "labels": labels}, "spec": {"clusterID": "rome"}}

    found = reviewed(Known(), "/mutate/foreign-cluster", keys.FOREIGN_CLUSTER, obj)["object"]

    assert found["metadata"]["labels"] == {**(labels or {}), LABEL: "rome"}


# Tenants ------------------------------------------------------------------------------------------

TENANTS = "/validate/tenants"


def tenant(name: str = "x", namespace: str = TENANT_NS, label: str = "rome", **spec: Any) -> Object:
    spec = {"clusterID": "rome", **spec}
    metadata = {"labels": {LABEL: label}} if label else {}
    return named(keys.TENANT, Key(namespace, name), metadata=metadata, spec=spec)


def home(**labels: str) -> tuple[Kind, Object]:
    have = {keys.TENANT_NAMESPACE: "true", LABEL: "rome", **labels}
    return keys.NAMESPACE, named(keys.NAMESPACE, Key("", TENANT_NS), metadata={"labels": have})


def binding(kind: Kind, subject: str, role: str = "edit", who: str = "User") -> tuple[Kind, Object]:
    key = Key("shop" if kind.namespaced else "", "given")
    reference = {"kind": "ClusterRole", "name": role}
    return kind, named(kind, key, roleRef=reference, subjects=[{"kind": who, "name": subject}])


def test_a_tenant_without_a_label_gets_it_and_another_label_stays() -> None:
    for label, expected in (("", "rome"), ("milan", "milan")):
        found = reviewed(Known(), "/mutate/tenants", keys.TENANT, tenant(label=label))["object"]
        assert found["metadata"]["labels"][LABEL] == expected


def test_a_tenant_in_its_namespace_is_admitted() -> None:
    known = Known(
        home(),
        (keys.TENANT, tenant()),
        binding(keys.ROLE_BINDING, "rome", keys.VIRTUAL_KUBELET_REMOTE_ROLE, "Group"),
        binding(keys.CLUSTER_ROLE_BINDING, "rome", keys.REMOTE_CONTROLPLANE_ROLE),
        binding(keys.CLUSTER_ROLE_BINDING, "rome", who="ServiceAccount"),
    )

    assert reviewed(known, TENANTS, keys.TENANT, tenant())["allowed"]


def known_to(row: Object) -> tuple[Kind, Object]:
    ((name, how),) = row.items()
    if name == "tenant":
        return keys.TENANT, tenant(**how)
    return home(**how) if name == "home" else binding(getattr(keys, name), **how)


@factories.cases("known, obj, code, message")
def test_a_tenant_that_is_refused(known: Any, obj: Object, code: int, message: str) -> None:
    """A row has what the webhook may look up, and how the Tenant differs."""
    found = reviewed(Known(*map(known_to, known)), TENANTS, keys.TENANT, tenant(**obj))

    assert found["allowed"] is False
    assert found["status"]["code"] == code
    assert message in found["status"]["message"]


def test_to_close_a_tenant_no_binding_is_listed() -> None:
    """D10: a cluster has tens of thousands, and a review has four seconds."""
    known = Known(home(), (keys.TENANT, tenant()), binding(keys.ROLE_BINDING, "rome"))
    closed = tenant(tenantCondition="Cordoned")

    assert reviewed(known, TENANTS, keys.TENANT, closed, **update(tenant()))["allowed"]

    renamed = reviewed(known, TENANTS, keys.TENANT, closed, **update(tenant(clusterID="other")))
    assert not renamed["allowed"]
    assert "gives rights to" in renamed["status"]["message"]


def test_a_tenants_finalizer_comes_and_goes_unjudged() -> None:
    ending = tenant()
    ending["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []}

    found = reviewed(Known(), TENANTS, keys.TENANT, ending, **update(tenant()))

    assert found["allowed"] is True
    changed = reviewed(Known(), TENANTS, keys.TENANT, tenant(csr="x"), **update(tenant()))
    assert changed["allowed"] is False


# ResourceSlices -----------------------------------------------------------------------------------

SLICES = "/validate/resourceslices"


def resource_slice(namespace: str = TENANT_NS, **labels: str) -> Object:
    return named(keys.RESOURCE_SLICE, Key(namespace, "x"), metadata={"labels": labels})


def test_two_local_slices_of_one_name_would_be_one_node() -> None:
    local = {keys.REPLICATION: "true"}
    known = Known((keys.RESOURCE_SLICE, resource_slice("liqo-tenant-milan", **local)))

    message = denial(known, SLICES, keys.RESOURCE_SLICE, resource_slice(**local))

    assert "liqo-tenant-milan/x has this name" in message
    replica = resource_slice(**{keys.REPLICATED: "true"})
    assert reviewed(known, SLICES, keys.RESOURCE_SLICE, replica)["allowed"]
    assert reviewed(Known(), SLICES, keys.RESOURCE_SLICE, resource_slice(**local))["allowed"]


def test_a_slice_is_not_called_like_a_real_node() -> None:
    real = named(keys.NODE, Key("", "x"))
    virtual = named(
        keys.NODE, Key("", "x"), metadata={"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}}
    )

    message = denial(Known((keys.NODE, real)), SLICES, keys.RESOURCE_SLICE, resource_slice())

    assert "there is a node 'x'" in message
    again = reviewed(Known((keys.NODE, virtual)), SLICES, keys.RESOURCE_SLICE, resource_slice())
    assert again["allowed"]


@factories.cases("annotations, labels, groups, said")
def test_a_slice_of_this_cluster_becomes_a_virtual_node_unless_it_says_otherwise(
    annotations: dict[str, str], labels: dict[str, str], groups: list[str], said: str | None
) -> None:
    asked = resource_slice(**labels)
    asked["metadata"]["annotations"] = annotations
    user = {"username": "somebody", "groups": groups}

    found = reviewed(Known(), "/mutate/resourceslices", keys.RESOURCE_SLICE, asked, userInfo=user)[
        "object"
    ]

    assert found["metadata"]["annotations"].get(keys.CREATE_VIRTUAL_NODE) == said
    again = reviewed(Known(), "/mutate/resourceslices", keys.RESOURCE_SLICE, found, userInfo=user)
    assert again["object"] == found


@pytest.mark.parametrize("groups", [["liqo.io"], ["system:authenticated"]])
@pytest.mark.parametrize(("part", "key"), [("labels", LABEL), ("annotations", "liqo.io/cordon")])
@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("a", None), (None, "a"), ("a", "a")])
def test_consumers_do_not_change_whose_a_slice_is_nor_its_cordon(
    groups: list[str], part: str, key: str, old: str | None, new: str | None
) -> None:
    def made(value: str | None) -> Object:
        return {"metadata": {"name": "x", part: {key: value} if value else {}}}

    user = {"username": "rome", "groups": groups}

    found = reviewed(
        Known(), SLICES, keys.RESOURCE_SLICE, made(new), **update(made(old)), userInfo=user
    )

    assert found["allowed"] is (old == new or groups != ["liqo.io"])


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (MUTATE, keys.VIRTUAL_NODE),
        (VALIDATE, keys.VIRTUAL_NODE),
        ("/mutate/shadowpods", keys.SHADOW_POD),
        ("/validate/shadowpods", keys.SHADOW_POD),
        ("/mutate/tenants", keys.TENANT),
        (TENANTS, keys.TENANT),
        (SLICES, keys.RESOURCE_SLICE),
        ("/mutate/resourceslices", keys.RESOURCE_SLICE),
        ("/mutate/foreign-cluster", keys.FOREIGN_CLUSTER),
    ],
)
@pytest.mark.parametrize(
    "obj",
    [{"a": 1}, {"metadata": []}, {"metadata": {"labels": {"a": 1}}}, {"metadata": {}, "spec": 1}],
)
def test_what_is_no_object_is_malformed(path: str, kind: Kind, obj: Object) -> None:
    found = reviewed(Known(), path, kind, obj, status=400)

    assert found["allowed"] is False
    assert found["status"]["code"] == 400
