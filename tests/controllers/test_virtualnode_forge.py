"""The Deployment, rights and conditions of a virtual node, computed."""

import asyncio
import copy
import re
from typing import Any

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from apis.offloading import ReflectionPolicy, VirtualNode, VkOptionsTemplate
from controllers.manager import Limits
from controllers.offloading.virtualnode.forge import deployment, lifecycle, rights
from controllers.offloading.virtualnode.forge.deployment import LocalCluster
from controllers.offloading.virtualnode.reconciler import VirtualNodeReconciler
from kube import errors
from kubelet import options as options_
from reflector import __main__
from tests import factories
from tests.controllers import whole
from tests.controllers.support import LATER, NOW, virtual_node
from tests.fakes import FakeCluster
from tests.manifests import documents

LOCAL = LocalCluster("rome")


def vnode(**spec: Any) -> Object:
    obj = virtual_node("liqo-tenant-milan", "milan", "milan", **spec)
    obj["metadata"]["uid"] = "u"
    return obj


def template_of_options(**spec: Any) -> VkOptionsTemplate:
    wanted = {
        "containerImage": "pyliqo:1",
        "createNode": True,
        "disableNetworkCheck": False,
        "metricsEnabled": False,
        **spec,
    }
    return VkOptionsTemplate.parse(
        named(keys.VK_OPTIONS_TEMPLATE, Key("liqo", "virtual-kubelet-default"), spec=wanted)
    )


def forged_containers(options: VkOptionsTemplate | None = None, **spec: Any) -> dict[str, Object]:
    """Return the two containers by name."""
    made = deployment.deployment(vnode(**spec), options or template_of_options(), LOCAL)
    return {each["name"]: each for each in made["spec"]["template"]["spec"]["containers"]}


def test_the_deployment_has_the_names_and_labels_of_the_reference() -> None:
    made = deployment.deployment(vnode(), template_of_options(extraLabels={"team": "a"}), LOCAL)

    chosen = {
        "offloading.liqo.io/component": "virtual-kubelet",
        "liqo.io/remote-cluster-id": "milan",
        "liqo.io/virtual-node": "milan",
    }
    assert objects.key_of(made) == Key("liqo-tenant-milan", "vk-milan")
    assert made["spec"]["selector"] == {"matchLabels": chosen}
    assert made["spec"]["template"]["metadata"]["labels"] == {**chosen, "team": "a"}
    assert made["metadata"]["ownerReferences"][0]["kind"] == "VirtualNode"
    assert made["spec"]["template"]["spec"]["serviceAccountName"] == "milan"


def test_the_template_says_where_virtual_kubelets_run() -> None:
    said: Object = {
        "nodeSelector": {"pool": "system"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"key": "pool", "operator": "Exists"}],
        "priorityClassName": "high",
    }
    made = deployment.deployment(vnode(), template_of_options(**said), LOCAL)
    assert {name: made["spec"]["template"]["spec"][name] for name in said} == said


def test_a_virtual_kubelet_has_the_priority_that_is_among_the_manifests() -> None:
    spec = deployment.deployment(vnode(), template_of_options(), LOCAL)["spec"]["template"]["spec"]
    assert documents.named("PriorityClass", spec["priorityClassName"])["value"] > 0
    assert spec.keys().isdisjoint({"nodeSelector", "affinity", "tolerations"})


def test_the_hash_of_no_patch_is_that_of_the_reference() -> None:
    made = deployment.deployment(vnode(), template_of_options(), LOCAL)

    digest = made["spec"]["template"]["metadata"]["annotations"]["liqo.io/offloading-patch-hash"]
    assert digest == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_another_patch_rolls_the_pods_out() -> None:
    first = deployment.deployment(vnode(), template_of_options(), LOCAL)
    second = deployment.deployment(
        vnode(offloadingPatch={"nodeSelector": {"disk": "ssd"}}), template_of_options(), LOCAL
    )

    assert first["spec"]["template"] != second["spec"]["template"]


def test_two_containers_are_of_one_image_and_may_do_nothing() -> None:
    containers = forged_containers()

    assert list(containers) == ["kubelet", "reflector"]
    for name, container in containers.items():
        assert container["image"] == "pyliqo:1"
        assert container["command"] == ["python3", "-m", name]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {each["name"] for each in container["env"]} == {
            "POD_IP",
            "POD_NAME",
            "POD_NAMESPACE",
            "VIRTUALNODE_NAME",
        }


def test_each_container_understands_its_arguments() -> None:
    reflectors = {
        kind: {"workers": 2, "type": "DenyList"}
        for kind in ("pod", "configmap", "secret", "service", "ingress", "event")
    }
    reflectors["secret"]["type"] = "Referenced"
    extra = [f"--{flag}=5s" for flag in ("node-ping-interval", "node-ping-timeout")]
    options = template_of_options(
        reflectorsConfig=reflectors,
        extraArgs=[*extra, "--secret-reflection-workers=7", "--enable-apiserver-support=true"],
        nodeExtraLabels={"a": "b", "c": "d"},
        nodeExtraAnnotations={"e": "f"},
        labelsNotReflected=["x"],
        annotationsNotReflected=["y"],
    )
    containers = forged_containers(
        options,
        loadBalancerClasses=[
            {"loadBalancerClassName": "a"},
            {"loadBalancerClassName": "b", "default": True},
        ],
        ingressClasses=[{"ingressClassName": "theirs"}],
        storageClasses=[{"storageClassName": "disk"}],
    )
    made = {
        name: [each.replace("$(POD_IP)", "10.0.0.1") for each in container["args"]]
        for name, container in containers.items()
    }

    kubelet = options_.parse(made["kubelet"])
    reflector = __main__.parse(made["reflector"], instance="")

    assert kubelet.node_name == reflector.node_name == "milan"
    assert {"kubeconfig-milan"} == {kubelet.kubeconfig_secret, reflector.kubeconfig_secret}
    assert (kubelet.health_port, reflector.health_port) == (8090, 8091)
    assert kubelet.extra_labels == {"a": "b", "c": "d"}
    assert reflector.workers["secret"] == 7
    assert reflector.policies["secret"] is ReflectionPolicy.REFERENCED
    assert reflector.policies["configmap"] is ReflectionPolicy.DENY_LIST
    assert reflector.load_balancer_class == "b"
    assert reflector.ingress_class == "theirs"
    assert reflector.storage_class == "disk"
    assert reflector.enable_load_balancer
    assert reflector.enable_ingress
    assert reflector.enable_storage


def test_the_classes_of_all_virtual_nodes_of_a_provider_hold_for_its_services_and_ingresses() -> (
    None
):
    """One reflector leads for all of them, whichever it is."""
    plain, offering, default = (
        VirtualNode.parse(virtual_node("liqo-tenant-milan", name, "milan", **spec))
        for name, spec in (
            ("a", {}),
            ("b", {"ingressClasses": [{"ingressClassName": "b"}]}),
            ("c", {"ingressClasses": [{"ingressClassName": "c", "default": True}]}),
        )
    )
    nodes = [plain, offering, default]
    cluster = LocalCluster("rome", siblings=nodes)
    options = template_of_options()

    told = [deployment.reflector_arguments(node, options, cluster) for node in nodes]

    for each in told:
        assert "--enable-ingress=true" in each
        assert "--remote-real-ingress-class-name=c" in each


@pytest.mark.parametrize("name", ["kubelet", "reflector"])
def test_every_extra_argument_is_one_that_its_container_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_.parse(["--help"]) if name == "kubelet" else __main__.parse(["--help"], instance="")
    taken = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))

    assert {f"--{flag}" for flag in deployment.EXTRA_OF[name]} <= taken


def test_arguments_that_nobody_takes_are_left_out_and_named() -> None:
    extra = ["--enable-storage", "--node-ping-interval=5s"]
    containers = forged_containers(template_of_options(extraArgs=extra))

    assert deployment.unknown_arguments(extra) == ["--enable-storage"]
    assert "--node-ping-interval=5s" in containers["kubelet"]["args"]
    assert "--enable-storage" not in [
        *containers["kubelet"]["args"],
        *containers["reflector"]["args"],
    ]


@pytest.mark.parametrize(
    ("own", "common", "expected"),
    [(None, True, "true"), (None, False, "false"), (False, True, "false"), (True, False, "true")],
)
def test_create_node_is_the_virtual_nodes_word_first(
    *, own: bool | None, common: bool, expected: str
) -> None:
    obj = vnode(createNode=own)
    made = deployment.deployment(obj, template_of_options(createNode=common), LOCAL)

    said = made["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--create-node={expected}" in said


@factories.cases("spec, by_template, is_checked")
def test_the_network_is_checked_as_the_virtual_node_or_else_the_template_says(
    spec: Object,
    by_template: bool,  # noqa: FBT001
    is_checked: str,
) -> None:
    containers = forged_containers(template_of_options(disableNetworkCheck=by_template), **spec)

    given = [each for one in containers.values() for each in one["args"] if "network=" in each]
    assert f"--node-check-network={is_checked}" in given


def test_rights_name_one_account_and_one_secret() -> None:
    virtual = VirtualNode.parse(vnode())

    grants = {
        (kind.kind, str(objects.key_of(each))): each for kind, each in rights.at_home(virtual)
    }

    assert sorted(grants) == [
        ("ClusterRoleBinding", "liqo-node-milan"),
        ("Role", "kube-node-lease/liqo-node-milan"),
        ("Role", "liqo-tenant-milan/liqo-node-milan-kubeconfig"),
        ("RoleBinding", "kube-node-lease/liqo-node-milan"),
        ("RoleBinding", "kube-system/liqo-node-milan"),
        ("RoleBinding", "liqo-tenant-milan/liqo-node-milan"),
        ("RoleBinding", "liqo-tenant-milan/liqo-node-milan-kubeconfig"),
    ]
    rules = grants["Role", "liqo-tenant-milan/liqo-node-milan-kubeconfig"]["rules"]
    assert [each["resourceNames"] for each in rules] == [["kubeconfig-milan"]]
    for (kind, _), grant in grants.items():
        if kind.endswith("Binding"):
            account = {"kind": "ServiceAccount", "namespace": "liqo-tenant-milan", "name": "milan"}
            assert grant["subjects"] == [account]


def test_a_binding_for_somebody_else_is_not_ours() -> None:
    virtual = VirtualNode.parse(vnode())
    binding = rights.offloaded_namespace(virtual, "foo")
    other = copy.deepcopy(binding)
    other["metadata"]["labels"][keys.REMOTE_CLUSTER_ID] = "turin"

    assert rights.is_of(virtual)(binding)
    assert not rights.is_of(virtual)(other)
    assert rights.is_for_offloading(binding)
    binding["roleRef"]["name"] = keys.VIRTUAL_KUBELET_TENANT_ROLE
    assert not rights.is_for_offloading(binding), "of the same kubelet, for something else"


def state(status: str) -> tuple[str, str, str]:
    return status, f"{status}Reason", f"{status} message"


@factories.cases("before, after, expected")
def test_which_condition_may_follow_which(before: str, after: str, expected: str) -> None:
    first = lifecycle.status({}, {lifecycle.NODE: state(before)}, NOW)

    second = lifecycle.status({"status": first}, {lifecycle.NODE: state(after)}, LATER)

    [condition] = second["conditions"]
    moved = expected != before
    assert condition["status"] == expected
    assert (
        condition["lastTransitionTime"] == first["conditions"][0]["lastTransitionTime"]
    ) != moved


def test_a_type_occurs_once_and_each_is_set() -> None:
    doubled = {"conditions": [{"type": "Node", "status": "Creating"}] * 2}
    states = {lifecycle.NODE: state("Running"), lifecycle.VIRTUAL_KUBELET: state("Running")}

    status = lifecycle.status({"status": doubled}, states, NOW)

    assert [(each["type"], each["status"]) for each in status["conditions"]] == [
        ("Node", "Running"),
        ("VirtualKubelet", "Running"),
    ]


@factories.cases("generation, status, expected")
def test_running_means_available(generation: int, status: Object | None, expected: str) -> None:
    found = {"metadata": {"generation": generation}, "status": status}

    assert lifecycle.kubelet_state(found)[0] == expected


def test_a_virtual_kubelet_that_gets_no_pod_says_why() -> None:
    failed = {"type": "ReplicaFailure", "status": "True", "message": "insufficient quota"}

    _, reason, message = lifecycle.kubelet_state(
        {"metadata": {"generation": 1}, "status": {"conditions": [failed]}}
    )

    assert reason == "DeploymentUnavailable"
    assert message == "the virtual kubelet gets no pod: insufficient quota"


def test_a_kubeconfig_that_is_missing_is_named() -> None:
    status, reason, message = lifecycle.kubelet_state({"metadata": {}}, Key("tenant", "none"))

    assert (status, reason) == ("Creating", "KubeconfigMissing")
    assert "secret tenant/none does not exist: create it" in message


@factories.cases("changes, expected")
def test_who_has_to_leave(changes: Object, *, expected: bool) -> None:
    metadata = {"labels": {keys.SHADOW_POD_LABEL: "true"}, **changes}

    assert lifecycle.has_to_leave(factories.pod(metadata=metadata)) is expected


def test_of_an_ip_fabric_both_containers_are_told_what_it_says_of_this_cluster() -> None:
    networks = [
        named(keys.NETWORK, Key("liqo", "pods"), spec={"cidr": "10.244.0.0/16"}),
        named(keys.NETWORK, Key("liqo", "empty"), spec={}),
    ]
    servers = [
        named(keys.IP, Key("liqo", "api"), spec={"ip": "10.96.0.1"}, status={"ip": "10.70.0.1"}),
        named(keys.IP, Key("liqo", "new"), spec={"ip": "10.96.0.2"}),
    ]
    known = deployment.fabric(networks, servers)
    local = LocalCluster("rome", fabric=known)

    made = deployment.deployment(vnode(), template_of_options(), local)

    told = {
        each["name"]: [one.replace("$(POD_IP)", "10.0.0.1") for one in each["args"]]
        for each in made["spec"]["template"]["spec"]["containers"]
    }
    kubelet = options_.parse(told["kubelet"])
    reflector = __main__.parse(told["reflector"], instance="")
    assert kubelet.has_fabric
    assert kubelet.api_server.addresses == ("10.70.0.1",)
    assert [str(each) for each in reflector.remote_objects.local_pods] == ["10.244.0.0/16"]
    assert not any("fabric" in one for each in forged_containers().values() for one in each["args"])


async def test_networks_that_appear_reach_the_deployment_also_where_nobody_knew_the_kind() -> None:
    cluster = await with_virtual_node()
    cluster.fail("list", errors.NotFoundError("404 page not found"), kind=keys.NETWORK, times=3)

    async with whole.controlling(cluster, VirtualNodeReconciler.setup, Limits(has_fabric=True)):
        await is_told(cluster, "--ip-fabric=true")
        labels = {keys.NETWORK_TYPE: keys.POD_CIDR}
        metadata, network = {"labels": labels}, {"cidr": "10.244.0.0/16"}
        await cluster.create(
            keys.NETWORK, named(keys.NETWORK, Key("liqo", "pods"), metadata=metadata, spec=network)
        )
        await is_told(cluster, "--local-podcidr=10.244.0.0/16")


async def test_classes_of_another_virtual_node_of_the_provider_reach_the_deployment() -> None:
    cluster = await with_virtual_node()
    classes = [{"ingressClassName": "theirs"}]

    async with whole.controlling(cluster, VirtualNodeReconciler.setup):
        await is_told(cluster, "--nodename=milan")
        other = virtual_node("liqo-tenant-milan", "other", "milan", ingressClasses=classes)
        await cluster.create(keys.VIRTUAL_NODE, other)
        await is_told(cluster, "--remote-real-ingress-class-name=theirs")


async def with_virtual_node() -> FakeCluster:
    cluster = FakeCluster()
    spec = {"containerImage": "pyliqo:1", "createNode": True}
    where = Key("liqo", keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    await cluster.create(
        keys.VK_OPTIONS_TEMPLATE, named(keys.VK_OPTIONS_TEMPLATE, where, spec=spec)
    )
    await cluster.create(keys.VIRTUAL_NODE, virtual_node("liqo-tenant-milan", "milan", "milan"))
    return cluster


async def is_told(cluster: FakeCluster, argument: str) -> None:
    """Wait until the virtual kubelet ``milan`` has ``argument``."""
    async with asyncio.timeout(300):
        while True:  # a cluster in a dict has no event to await
            key = Key("liqo-tenant-milan", "vk-milan")
            found = await cluster.get(keys.DEPLOYMENT, key)
            containers = found["spec"]["template"]["spec"]["containers"] if found else []
            if any(argument in each["args"] for each in containers):
                return
            await asyncio.sleep(0.005)


def metrics_of(**spec: Any) -> dict[str, tuple[list[str], list[int]]]:
    """Return, by container, what is said of metrics: the arguments and the ports."""
    return {
        name: (
            [each for each in container["args"] if each.startswith("--metrics")],
            [each["containerPort"] for each in container["ports"] if "metrics" in each["name"]],
        )
        for name, container in forged_containers(template_of_options(**spec)).items()
    }


@pytest.mark.parametrize(
    ("spec", "kubelet", "reflector"),
    [
        ({}, "", ""),
        ({"metricsAddress": ":9000"}, "", ""),
        ({"metricsEnabled": True, "metricsAddress": "0"}, "", ""),
        ({"metricsEnabled": True}, ":8082", ":8083"),
        ({"metricsEnabled": True, "metricsAddress": ":8080"}, ":8080", ":8081"),
        ({"metricsEnabled": True, "metricsAddress": "1.2.3.4:90"}, "1.2.3.4:90", "1.2.3.4:91"),
        ({"metricsEnabled": True, "metricsAddress": "[::1]:9000"}, "[::1]:9000", "[::1]:9001"),
    ],
)  # fmt: skip
def test_metrics_are_served_where_the_template_says(
    spec: dict[str, Any], kubelet: str, reflector: str
) -> None:
    def said(address: str) -> tuple[list[str], list[int]]:
        port = address.rpartition(":")[2]
        return ([f"--metrics-address={address}"], [int(port)]) if address else ([], [])

    assert metrics_of(**spec) == {"kubelet": said(kubelet), "reflector": said(reflector)}


@pytest.mark.parametrize(
    "address", [":8089", ":8090", ":10249", ":10250", ":65535", ":0", "8082", "a b:1", ":99999"]
)
def test_an_address_of_metrics_that_cannot_be_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=address):
        metrics_of(metricsEnabled=True, metricsAddress=address)
    assert metrics_of(metricsAddress=address)["kubelet"] == ([], [])
