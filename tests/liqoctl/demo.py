"""A small consumer for the picture of the dashboard."""

import base64
from datetime import timedelta

from apis import keys
from apis.objects import Key, Kind, Object, key_of, named
from certs import pki
from kube import clock
from kube.cluster import Cluster
from tests import factories

TENANT = "liqo-tenant-milan"


def _conditions(*types: str, status: str) -> list[Object]:
    return [{"type": type_, "status": status} for type_ in types]


def _certificate() -> str:
    now = clock.now()
    made = pki.new_ca("rome", now=now, lifetime=timedelta(hours=21))
    return base64.b64encode(made.certificate).decode()


async def _put(cluster: Cluster, kind: Kind, obj: Object) -> None:
    status = obj.pop("status", None)
    await cluster.create(kind, obj)
    if status:
        await cluster.patch_status(kind, key_of(obj), status)


async def fill_board(cluster: Cluster, evil: str) -> None:
    """Put a peer, its virtual node, a namespace and pods into ``cluster``; one says ``evil``."""
    await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", "shop")))
    modules = {
        "authentication": {"enabled": True, "conditions": _conditions("Auth", status="Ready")},
        "offloading": {"enabled": True, "conditions": _conditions("Nodes", status="Ready")},
    }
    await _put(
        cluster,
        keys.FOREIGN_CLUSTER,
        named(
            keys.FOREIGN_CLUSTER, Key("", "milan"), spec={"clusterID": "milan"},
            status={
                "role": "Provider", "modules": modules, "version": "0.1.0",
                "apiServerUrl": "https://milan.example:6443",
                "conditions": _conditions("APIServerStatus", status="Established"),
            },
        ),
    )  # fmt: skip
    labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: "milan"}
    ready = {"conditions": _conditions("Ready", status="True")}
    node = named(keys.NODE, Key("", "milan"), metadata={"labels": labels}, spec={}, status=ready)
    await _put(cluster, keys.NODE, node)
    hard = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    await _put(
        cluster,
        keys.VIRTUAL_NODE,
        named(
            keys.VIRTUAL_NODE, Key(TENANT, "milan"),
            spec={"clusterID": "milan", "resourceQuota": {"hard": hard}},
            status={"conditions": _conditions("Node", "VirtualKubelet", status="Running")},
        ),
    )  # fmt: skip
    answered = _conditions("Authentication", "Resources", status="Accepted")
    await _put(
        cluster,
        keys.RESOURCE_SLICE,
        named(
            keys.RESOURCE_SLICE, Key(TENANT, "milan"),
            spec={"class": "default", "providerClusterID": "milan"},
            status={
                "conditions": answered, "resources": hard,
                "authParams": {"signedCRT": _certificate()},
            },
        ),
    )  # fmt: skip
    accepted = [
        {"type": "OffloadingRequired", "status": "True", "reason": "ClusterSelected"},
        {"type": "Ready", "status": "True", "reason": "NamespaceCreated"},
    ]
    await _put(
        cluster,
        keys.NAMESPACE_OFFLOADING,
        named(
            keys.NAMESPACE_OFFLOADING, Key("shop", keys.OFFLOADING_NAME),
            spec={"podOffloadingStrategy": "LocalAndRemote"},
            status={
                "offloadingPhase": "Ready", "remoteNamespaceName": "shop-rome",
                "remoteNamespacesConditions": {"milan": accepted},
            },
        ),
    )  # fmt: skip
    refused = {
        "type": keys.OFFLOADED_CONDITION, "status": "False",
        "reason": keys.FAILED_REFLECTION, "message": f"quota exceeded {evil}",
    }  # fmt: skip
    pods = {"web-7d9f": [], "web-8x2k": [], "import-1": [refused]}
    for name, more in pods.items():
        phase = "Pending" if more else "Running"
        spec = {**factories.pod_spec(), "nodeName": "milan"}
        status = {"phase": phase, "conditions": more}
        await _put(cluster, keys.POD, factories.pod("shop", name, spec=spec, status=status))
