"""What is reflected where, and what would be: judged as the reflector does."""

import pytest
from click import ClickException

from apis import keys, objects, reflection
from apis.objects import Key, Kind, Object, named
from kube import errors
from liqoctl import reflections
from liqoctl.forge import offloading as forge
from tests import factories
from tests.fakes import FakeCluster

ALLOWED = {"workers": 3, "type": "AllowList"}
SKIP = {"annotations": {keys.SKIP_REFLECTION: "true"}}
ROUTE = Kind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")


async def reflecting_cluster(
    policy: str = "DenyList",
    *,
    opted_in: tuple[Kind, ...] = (),
    annotations: dict[str, str] | None = None,
) -> FakeCluster:
    cluster = FakeCluster()
    await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", "shop")))
    if annotations is not None:
        offloading = factories.offloading("shop", annotations)
        await cluster.create(keys.NAMESPACE_OFFLOADING, offloading)
    labels = {keys.APP_NAME: keys.CLUSTER_ID_CONFIG_MAP}
    own = named(
        keys.CONFIG_MAP,
        Key("liqo", "clusterid-configmap"),
        metadata={"labels": labels},
        data={"CLUSTER_ID": "rome"},
    )
    await cluster.create(keys.CONFIG_MAP, own)
    config = {name: {"workers": 3, "type": policy} for name in ("secret", "configmap")}
    template = named(
        keys.VK_OPTIONS_TEMPLATE,
        Key("liqo", "virtual-kubelet-default"),
        spec={
            "containerImage": "x",
            "reflectorsConfig": {**config, "ingress": {"workers": 0}},
            "customResources": [
                {
                    "group": kind.group,
                    "version": kind.version,
                    "kind": kind.kind,
                    "resource": kind.plural,
                }
                for kind in opted_in
            ],
        },
    )
    await cluster.create(keys.VK_OPTIONS_TEMPLATE, template)
    for name in ("milan", "turin"):
        node_labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: name}
        metadata = {"labels": {**node_labels, "region": name}}
        await cluster.create(keys.NODE, named(keys.NODE, Key("", name), metadata=metadata))
        spec = {"clusterID": name}
        key = Key(f"liqo-tenant-{name}", name)
        await cluster.create(keys.VIRTUAL_NODE, named(keys.VIRTUAL_NODE, key, spec=spec))
    await fill_namespace(cluster)
    return cluster


async def fill_namespace(cluster: FakeCluster) -> None:
    secrets: dict[str, Object] = {
        "plain": {},
        "skipped": {"metadata": {"name": "skipped", "namespace": "shop", **SKIP}},
        "token": {"type": "kubernetes.io/service-account-token"},
    }
    for name, rest in secrets.items():
        await cluster.create(keys.SECRET, {**factories.secret("shop", name), **rest})
    taken = await cluster.create(keys.CONFIG_MAP, factories.config_map("shop", "taken"))
    await cluster.create(keys.SERVICE, factories.service("shop", "web"))
    await cluster.create(keys.INGRESS, factories.ingress("shop", "web"))
    volumes = [{"secret": {"secretName": "plain"}}]
    pod = factories.pod("shop", "web", spec={"nodeName": "milan", "volumes": volumes})
    await cluster.create(keys.POD, pod)
    text = "configmap shop-rome/taken exists on milan and is not ours"
    await cluster.create(keys.EVENT, note(("configmap", "milan"), taken, text))


def note(
    by: tuple[str, str],
    about: Object,
    message: str,
    *,
    minute: int = 0,
    reason: str = keys.FAILED_REFLECTION,
) -> Object:
    """Return an Event of the reflector ``by`` kind and provider."""
    row, provider = by
    metadata = about["metadata"]
    involved = {"kind": about["kind"], "name": metadata["name"], "uid": metadata.get("uid", "")}
    return named(
        keys.EVENT,
        Key("shop", f"{metadata['name']}.{row}.{provider}.{minute}"),
        metadata={"labels": {keys.REMOTE_CLUSTER_ID: provider}},
        involvedObject=involved,
        reason=reason,
        message=message,
        reportingComponent=f"liqo-{row}-reflection",
        lastTimestamp=f"2025-01-31T12:{minute:02}:00Z",
    )


async def offload_to(cluster: FakeCluster, *providers: str) -> None:
    """Say that ``providers`` made the twin namespace, by default milan alone."""
    for name in providers or ("milan",):
        key = Key(f"liqo-tenant-{name}", name)
        metadata = {"labels": {keys.REMOTE_CLUSTER_ID: name, keys.REPLICATION: "true"}}
        made = named(keys.NAMESPACE_MAP, key, metadata=metadata, spec={})
        await cluster.create(keys.NAMESPACE_MAP, made)
        current = {"shop": {"remoteNamespace": "shop-rome", "phase": "Accepted"}}
        await cluster.patch_status(keys.NAMESPACE_MAP, key, {"currentMapping": current})


async def test_each_object_says_where_it_is_and_why_not() -> None:
    cluster = await reflecting_cluster()
    await offload_to(cluster)

    lines = await reflections.reflected(cluster, "shop")

    states = {(line.kind, line.name): line.state for line in lines}
    assert states == {
        ("Secret", "plain"): "reflected",
        ("Secret", "skipped"): "stays",
        ("Secret", "token"): "stays",
        ("ConfigMap", "taken"): "failed",
        ("Service", "web"): "reflected",
        ("Ingress", "web"): "off",
    }
    reasons = {line.name: line.reason for line in lines if line.reason}
    assert "not ours" in reasons["taken"]
    assert keys.SKIP_REFLECTION in reasons["skipped"]
    assert {(line.cluster, line.remote_namespace) for line in lines} == {("milan", "shop-rome")}


async def test_rights_that_are_missing_for_a_kind_are_told_of_it_and_its_objects() -> None:
    cluster = await reflecting_cluster(opted_in=(ROUTE,))
    await offload_to(cluster)
    await cluster.create(ROUTE, named(ROUTE, Key("shop", "web"), spec={}))
    offloading = named(keys.NAMESPACE_OFFLOADING, Key("shop", "offloading"))
    withheld = note((ROUTE.resource, "milan"), offloading, "on rome: httproutes is forbidden")
    await cluster.create(keys.EVENT, withheld)

    lines = await reflections.reflected(cluster, "shop")

    routes = {line.name: (line.state, line.reason) for line in lines if line.kind == "HTTPRoute"}
    assert routes == dict.fromkeys(["", "web"], ("failed", "on rome: httproutes is forbidden"))
    others = {line.name: line.state for line in lines if line.kind == "Service"}
    assert others == {"web": "reflected"}


async def test_each_provider_has_its_own_failures() -> None:
    cluster = await reflecting_cluster()
    await offload_to(cluster, "milan", "turin")
    web = await cluster.get(keys.SERVICE, Key("shop", "web"))
    taken = await cluster.get(keys.CONFIG_MAP, Key("shop", "taken"))
    assert web
    assert taken
    late = note(("configmap", "turin"), taken, "", minute=1, reason="SuccessfulReflection")
    withheld = named(keys.NAMESPACE_OFFLOADING, Key("shop", "offloading"))
    for event in (
        late,
        note(("service", "turin"), web, "service shop-rome/web exists on turin"),
        note(("secret", "turin"), withheld, "on turin: secrets is forbidden"),
    ):
        await cluster.create(keys.EVENT, event)

    lines = await reflections.reflected(cluster, "shop")

    failed = {(line.cluster, line.kind, line.name) for line in lines if line.state == "failed"}
    assert failed == {
        ("milan", "ConfigMap", "taken"),
        ("turin", "Service", "web"),
        ("turin", "Secret", ""),
        ("turin", "Secret", "plain"),
    }


def endpoints(name: str, node: str) -> Object:
    metadata = {"labels": {keys.SERVICE_NAME: "web"}}
    found = [{"addresses": ["192.0.2.7"], "nodeName": node}]
    key = Key("shop", name)
    return named(keys.ENDPOINT_SLICE, key, metadata=metadata, endpoints=found, addressType="IPv4")


def claim(name: str, class_: str = "liqo", volume: str = "", **annotations: str) -> Object:
    spec = {"storageClassName": class_, **({"volumeName": volume} if volume else {})}
    metadata = {"annotations": annotations}
    return named(keys.PERSISTENT_VOLUME_CLAIM, Key("shop", name), metadata=metadata, spec=spec)


async def test_endpoints_go_as_their_service_and_claims_with_their_data() -> None:
    cluster = await reflecting_cluster()
    await offload_to(cluster, "milan", "turin")
    for name, node in (("at-home", "rome-1"), ("at-milan", "milan")):
        await cluster.create(keys.ENDPOINT_SLICE, endpoints(name, node))
    odd = await cluster.create(keys.ENDPOINT_SLICE, endpoints("unreached", "rome-1"))
    why = "address 192.0.2.7 is of no pod here"
    await cluster.create(keys.EVENT, note(("endpointslice", "turin"), odd, why))
    metadata = {
        "labels": {keys.REMOTE_CLUSTER_ID: "milan"},
        "annotations": {keys.PROVISIONED_BY: keys.STORAGE_PROVISIONER},
    }
    bound = {Key("", "there"): metadata, Key("", "here"): {}}
    for key, more in bound.items():
        made = named(keys.PERSISTENT_VOLUME, key, metadata=more, spec={})
        await cluster.create(keys.PERSISTENT_VOLUME, made)
    asked = {keys.STORAGE_PROVISIONERS[0]: keys.STORAGE_PROVISIONER, keys.SELECTED_NODE: "turin"}
    for one in (
        claim("at-milan", volume="there"),
        claim("at-home", volume="here"),
        claim("lost", volume="gone"),
        claim("of-another-class", "fast"),
        claim("new"),
        claim("without-storage", **asked),
    ):
        made = await cluster.create(keys.PERSISTENT_VOLUME_CLAIM, one)
        if (volume := Key("", made["spec"].get("volumeName", ""))) in bound:
            ref: Object = {"spec": {"claimRef": {"uid": objects.uid(made)}}}
            await cluster.patch(keys.PERSISTENT_VOLUME, volume, ref)

    lines = await reflections.reflected(cluster, "shop")

    def of(kind: str, cluster_id: str) -> dict[str, tuple[str, str]]:
        mine = (line for line in lines if (line.kind, line.cluster) == (kind, cluster_id))
        return {line.name: (line.state, line.reason) for line in mine}

    there = ("stays", "all its endpoints are on the provider")
    sent = ("reflected", "")
    assert of("EndpointSlice", "milan") == {"at-home": sent, "at-milan": there, "unreached": sent}
    assert of("EndpointSlice", "turin") == {
        "at-home": sent,
        "at-milan": sent,
        "unreached": ("failed", why),
    }

    def stays(cluster_id: str) -> dict[str, tuple[str, str]]:
        why_another = (
            "its class is fast, not liqo, so it stays here: pods on {0} use the claim of this name "
            "there, which only the administrator of {0} makes"
        )
        return {**staying, "of-another-class": ("stays", why_another.format(cluster_id))}

    staying = {
        "at-home": ("stays", "its volume is not on the provider"),
        "lost": ("stays", "persistentvolume gone of the claim is not there"),
        "new": ("stays", "nobody has asked for its volume yet"),
    }
    elsewhere = ("stays", "its first pod does not go to the provider")
    assert of("PersistentVolumeClaim", "milan") == {
        **stays("milan"),
        "at-milan": sent,
        "without-storage": elsewhere,
    }
    assert of("PersistentVolumeClaim", "turin") == {
        **stays("turin"),
        "at-milan": ("stays", "its volume is not on the provider"),
        "without-storage": ("stays", "virtual node turin offers no storage"),
    }


async def test_what_is_over_and_what_an_object_before_it_was_told_is_no_failure() -> None:
    cluster = await reflecting_cluster()
    await offload_to(cluster)
    taken = await cluster.get(keys.CONFIG_MAP, Key("shop", "taken"))
    assert taken
    over = note(("configmap", "milan"), taken, "", minute=1, reason="SuccessfulReflection")
    await cluster.create(keys.EVENT, over)
    before = named(keys.SERVICE, Key("shop", "web"), metadata={"uid": "before"})
    await cluster.create(keys.EVENT, note(("service", "milan"), before, "is taken"))
    others = note(("service", "milan"), before, "no reflector's", minute=1)
    del others["metadata"]["labels"]
    await cluster.create(keys.EVENT, others)

    lines = await reflections.reflected(cluster, "shop")

    assert [line for line in lines if line.state == "failed"] == []


@factories.cases("template, offloading, expected")
async def test_what_no_offloaded_pod_mentions_stays_when_so_asked(
    template: str, offloading: dict[str, str] | None, expected: str
) -> None:
    cluster = await reflecting_cluster(template, annotations=offloading)
    await offload_to(cluster)

    lines = await reflections.reflected(cluster, "shop")

    states = {(line.kind, line.name): line.state for line in lines}
    assert states["Secret", "plain"] == "reflected"
    assert states["ConfigMap", "taken"] == expected
    assert states["Service", "web"] == "reflected"


async def test_before_offloading_it_is_told_what_would_be() -> None:
    cluster = await reflecting_cluster()
    before = cluster.everything()
    wanted = forge.manifest("shop", forge.OffloadOptions(selectors=["region=turin"]))

    lines = await reflections.would_be(cluster, wanted)

    assert {(line.cluster, line.remote_namespace) for line in lines} == {("turin", "shop-rome")}
    assert {line.name for line in lines if line.state == "stays"} == {"skipped", "token"}
    assert cluster.everything() == before


async def test_before_offloading_the_policy_that_would_be_asked_for_counts() -> None:
    cluster = await reflecting_cluster()
    wanted = forge.manifest("shop", forge.OffloadOptions(reflection="Referenced"))

    lines = await reflections.would_be(cluster, wanted)

    states = {line.cluster: line.state for line in lines if line.name == "plain"}
    assert states == {"milan": "reflected", "turin": "stays"}


@pytest.mark.parametrize(
    ("holder", "state"),
    [("vk-milan-5c-x", "reflected"), ("vk-milan-2-5c-y", "stays"), ("", "reflected")],
)
async def test_of_several_virtual_nodes_the_template_of_the_one_that_reflects_counts(
    holder: str, state: str
) -> None:
    cluster = await reflecting_cluster()
    await offload_to(cluster)
    where, template = Key("liqo-tenant-milan", "milan-2"), Key("liqo", "narrow")
    narrow = {"containerImage": "x", "reflectorsConfig": {"service": ALLOWED}}
    chosen = {"name": template.name, "namespace": template.namespace}
    spec = {"clusterID": "milan", "vkOptionsTemplateRef": chosen}
    lease = Key(where.namespace, keys.REFLECTOR_LEASE)
    for kind, key, body in (
        (keys.VK_OPTIONS_TEMPLATE, template, narrow),
        (keys.VIRTUAL_NODE, where, spec),
        (keys.LEASE, lease, {"holderIdentity": holder}),
    ):
        await cluster.create(kind, named(kind, key, spec=body))

    lines = await reflections.reflected(cluster, "shop")

    assert {line.state for line in lines if line.kind == "Service"} == {state}


async def test_a_namespace_that_is_nowhere_else_says_so() -> None:
    with pytest.raises(ClickException, match="why namespace shop"):
        await reflections.reflected(await reflecting_cluster(), "shop")


async def test_the_table_has_a_line_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = await reflecting_cluster()
    await offload_to(cluster)

    reflections.show(await reflections.reflected(cluster, "shop"))

    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["CLUSTER", "REMOTE", "NAMESPACE"]
    assert len(rows) == 6
    assert any(row.split()[2:5] == ["Secret", "plain", "reflected"] for row in rows)


@pytest.mark.parametrize("is_known", [True, False])
async def test_kinds_that_were_opted_in_are_shown_and_said_to_be_unknown(*, is_known: bool) -> None:
    cluster = await reflecting_cluster(opted_in=(ROUTE,))
    await offload_to(cluster)
    await cluster.create(ROUTE, named(ROUTE, Key("shop", "main")))
    if not is_known:
        cluster.fail("list", errors.NotFoundError("404 page not found"), kind=ROUTE)

    lines = await reflections.reflected(cluster, "shop")

    shown = [(line.name, line.state) for line in lines if line.kind == "HTTPRoute"]
    assert shown == [("main", "reflected") if is_known else ("", "unknown")]
    assert len({line.kind for line in lines}) == 5


POLICIES = {
    keys.NETWORK_POLICY: {"podSelector": {}},
    keys.POD_DISRUPTION_BUDGET: {"minAvailable": 1},
    keys.LIMIT_RANGE: {"limits": []},
    keys.RESOURCE_QUOTA: {"hard": {"pods": "1"}},
}


@pytest.mark.parametrize("opted_in", [(), reflection.OPTIONAL])
async def test_policies_stay_unless_they_are_opted_in(opted_in: tuple[Kind, ...]) -> None:
    cluster = await reflecting_cluster(opted_in=opted_in)
    await offload_to(cluster)
    for kind, spec in POLICIES.items():
        await cluster.create(kind, named(kind, Key("shop", "all"), spec=spec))

    lines = await reflections.reflected(cluster, "shop")
    here = await reflections.policies(cluster, "shop")

    policies = {line.kind: line for line in lines if line.name == "all"}
    assert {kind.kind for kind in POLICIES} == policies.keys()
    reflected = {kind for kind, line in policies.items() if line.state == "reflected"}
    assert reflected == {kind.kind for kind in opted_in}
    assert here == sorted((kind, "all") for kind in policies.keys() - reflected)
    assert "would change or refuse" in policies["LimitRange"].reason
    if not opted_in:
        why = "does not name networkpolicies.networking.k8s.io"
        assert why in policies["NetworkPolicy"].reason


async def test_who_may_not_look_at_policies_or_nodes_is_told_nothing_of_them() -> None:
    cluster = await reflecting_cluster()
    await offload_to(cluster)
    cluster.fail("list", errors.ForbiddenError("no"), kind=keys.RESOURCE_QUOTA)

    assert await reflections.policies(cluster, "shop") == []
