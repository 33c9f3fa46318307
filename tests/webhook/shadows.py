"""ShadowPods, and what becomes of them."""

from typing import Any

from apis import keys, podaffinity
from apis.objects import Object
from apis.podaffinity import PREFERRED, REQUIRED
from tests import factories

SPEC: Object = factories.pod_spec()
TOKEN: Object = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}


PASS, REFUSED = "pass", "refused"


TERMS = [(kind, when) for kind in podaffinity.KINDS for when in (REQUIRED, PREFERRED)]


def affine(kind: str, when: str, **term: Any) -> Object:
    term = {"topologyKey": "kubernetes.io/os", "labelSelector": {}, **term}
    item = term if when == REQUIRED else {"weight": 1, "podAffinityTerm": term}
    return {kind: {when: [item]}}


CLAIM: Object = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
    "volumeMode": "Filesystem",
}
DEFAULT_VOLUMES: dict[str, Object] = {
    "configMap": {"name": "settings"},
    "downwardAPI": {"items": []},
    "emptyDir": {"medium": "Memory"},
    "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}},
    "image": {"reference": "quay.io/a/b:c"},
    "persistentVolumeClaim": {"claimName": "data"},
    "projected": {"sources": [{"configMap": {"name": "settings"}}]},
    "secret": {"secretName": "keys"},
}
OTHER_VOLUMES: dict[str, Object] = {
    "awsElasticBlockStore": {"volumeID": "v"},
    "azureDisk": {"diskName": "d", "diskURI": "u"},
    "azureFile": {"secretName": "s", "shareName": "a"},
    "cephfs": {"monitors": ["m"]},
    "cinder": {"volumeID": "v"},
    "csi": {"driver": "secrets-store.csi.k8s.io"},
    "fc": {"wwids": ["w"], "lun": 0},
    "flexVolume": {"driver": "d"},
    "flocker": {"datasetName": "d"},
    "gcePersistentDisk": {"pdName": "p"},
    "glusterfs": {"endpoints": "e", "path": "p"},
    "iscsi": {"targetPortal": "t", "iqn": "i", "lun": 0},
    "nfs": {"server": "s", "path": "/"},
    "photonPersistentDisk": {"pdID": "p"},
    "portworxVolume": {"volumeID": "v"},
    "quobyte": {"registry": "r", "volume": "v"},
    "rbd": {"monitors": ["m"], "image": "i"},
    "scaleIO": {"gateway": "g", "system": "s", "secretRef": {"name": "n"}},
    "storageos": {"volumeName": "v"},
    "vsphereVolume": {"volumePath": "p"},
}
ROWS: dict[str, list[tuple[Any, str]]] = {
    "affinity": [
        ({"nodeAffinity": {PREFERRED: []}, "podAffinity": None}, PASS),
        *((affine(kind, when), PASS) for kind, when in TERMS),
        *((affine(kind, when, namespaces=[]), PASS) for kind, when in TERMS),
        *((affine(kind, when, namespaces=["other"]), REFUSED) for kind, when in TERMS),
        *((affine(kind, when, namespaceSelector={}), REFUSED) for kind, when in TERMS),
        (affine("podAffinity", REQUIRED, fromTheFuture=1), REFUSED),
        (affine("podAffinity", REQUIRED, namespaces=[f"n{n}" for n in range(17)]), REFUSED),
        ({"fromTheFuture": {}}, REFUSED),
    ],
    "automountServiceAccountToken": [(False, PASS), (True, PASS), ("yes", REFUSED)],
    "ephemeralContainers": [([], PASS), ([{"name": "debug"}], REFUSED)],
    "evictionResponders": [([{"name": "acme.io/slow", "priority": 10000}], REFUSED)],
    "terminationGracePeriodSeconds": [(3600, PASS), (3601, REFUSED), (-1, REFUSED), ("1", REFUSED)],
    "hostIPC": [(False, PASS), (True, REFUSED)],
    "hostNetwork": [(False, PASS), (True, REFUSED)],
    "hostPID": [(False, PASS), (True, REFUSED), ("false", REFUSED)],
    "hostUsers": [(True, REFUSED), (False, REFUSED)],
    "hostnameOverride": [("a", REFUSED)],
    "nodeName": [("", PASS), ("master", REFUSED)],
    "os": [({"name": "linux"}, REFUSED)],
    "overhead": [({"cpu": "1"}, REFUSED)],
    "preemptionPolicy": [("Never", REFUSED)],
    "priority": [(0, REFUSED), (10, REFUSED)],
    "priorityClassName": [("", PASS), ("system-node-critical", REFUSED)],
    "resourceClaims": [([{"name": "gpu"}], REFUSED)],
    "resources": [({"requests": {"cpu": "1"}}, REFUSED)],
    "runtimeClassName": [("kata", PASS), (1, REFUSED)],
    "schedulerName": [("default-scheduler", PASS), ("mine", REFUSED)],
    "schedulingGates": [([{"name": "wait"}], REFUSED)],
    "schedulingGroup": [({"podGroupName": "a"}, REFUSED)],
    "serviceAccount": [("robot", REFUSED)],
    "serviceAccountName": [("", PASS), ("default", PASS), ("robot", REFUSED)],
    "tolerations": [
        ([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}], PASS),
        ([{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}], PASS),
        ([{"key": "gpu", "operator": "Exists"}], REFUSED),
        ([{"key": "dedicated", "value": "a", "effect": "NoSchedule"}], REFUSED),
        ([{"key": "CriticalAddonsOnly", "operator": "Exists"}], REFUSED),
        ([{"key": "node.kubernetes.io/out-of-service", "operator": "Exists"}], REFUSED),
        ([{"key": "karpenter.sh/disrupted", "operator": "Exists"}], REFUSED),
        ([{"key": "ToBeDeletedByClusterAutoscaler", "operator": "Exists"}], REFUSED),
        ([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true"}], REFUSED),
        ([{"operator": "Exists"}], REFUSED),
        ([{"key": "", "operator": "Exists", "effect": "NoExecute"}], REFUSED),
        ([{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}], REFUSED),
        ([{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}], REFUSED),
        ([{"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists"}], REFUSED),
        ([{"key": "virtual-node.liqo.io/any", "value": "true"}], REFUSED),
        (["all"], REFUSED),
    ],
    "volumes": [
        ([{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {}}], PASS),
        ([{"name": "a", "projected": {"sources": [{"configMap": {}}]}}], PASS),
        ([{"name": "a", "hostPath": {"path": "/"}}], REFUSED),
        ([{"name": "a", "gitRepo": {}}], REFUSED),
        ([{"name": "a", "fromTheFuture": {}}], REFUSED),
        ([{"name": "a", "projected": {"sources": [TOKEN]}}], REFUSED),
        ([{"name": "a", "projected": {"sources": [{"fromTheFuture": {}}]}}], REFUSED),
        *(([{"name": "a", type_: value}], PASS) for type_, value in DEFAULT_VOLUMES.items()),
        *(([{"name": "a", type_: value}], REFUSED) for type_, value in OTHER_VOLUMES.items()),
    ],
    "workloadRef": [({"name": "a"}, REFUSED)],
    "fromTheFuture": [("", REFUSED), (1, REFUSED)],
}
CONTEXTS: list[Object] = [
    {"privileged": True},
    {"capabilities": {"add": ["SYS_ADMIN"]}},
    {"capabilities": {"add": ["ALL"]}},
    {"procMount": "Unmasked"},
    {"seccompProfile": {"type": "Unconfined"}},
    {"appArmorProfile": {"type": "Unconfined"}},
    {"seLinuxOptions": {"type": "spc_t"}},
    {"seLinuxOptions": {"user": "root"}},
    {"seLinuxOptions": {"role": "root"}},
    {"windowsOptions": {"hostProcess": True}},
    {"fromTheFuture": True},
]


def ephemeral(metadata: Object | None = None, **claim: Any) -> Object:
    template = {"metadata": metadata or {}, "spec": {**CLAIM, **claim}}
    return {**SPEC, "volumes": [{"name": "a", "ephemeral": {"volumeClaimTemplate": template}}]}


OF_OTHERS: dict[str, Object] = {
    "spec.volumeName": ephemeral(volumeName="pv-1"),
    "spec.selector": ephemeral(selector={}),
    "spec.dataSource": ephemeral(dataSource={"kind": "PersistentVolumeClaim", "name": "x"}),
    "spec.dataSourceRef": ephemeral(
        dataSourceRef={"kind": "PersistentVolumeClaim", "name": "x", "namespace": "y"}
    ),
    "spec.storageClassName": ephemeral(storageClassName=""),
    "spec.volumeAttributesClassName": ephemeral(volumeAttributesClassName="fast"),
    "metadata.finalizers": ephemeral({"finalizers": ["example.org/keep"]}),
    "metadata.ownerReferences": ephemeral({"ownerReferences": [{"name": "worker"}]}),
    "metadata.namespace": ephemeral({"namespace": "other"}),
    "metadata.labels": ephemeral({"labels": {keys.REMOTE_CLUSTER_ID: "milan"}}),
}
"""What a consumer may write into no claim. Source: docs/parity.md SEC-A17."""
