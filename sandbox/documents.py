"""The configuration documents of a cluster's components, as plain values."""

import base64
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox.layout import Site

Document = dict[str, Any]

CNI_BINARIES = "/usr/lib/cni"
MAX_PODS = 220
# Whose writes are logged with their bodies: the tests read what pyliqo really sent.
OBSERVED_CLUSTERS = ("rome", "milan", "cool-firefly")


def kubeconfig(
    *, cluster: str, server: str, ca: bytes, user: str, pair: tuple[bytes, bytes]
) -> str:
    """Return a kubeconfig that needs no other file."""
    certificate, key = pair
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": cluster,
                    "cluster": {"server": server, "certificate-authority-data": _base64(ca)},
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": _base64(certificate),
                        "client-key-data": _base64(key),
                    },
                }
            ],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
            "current-context": cluster,
        },
        indent=2,
    )


def audit_policy() -> Document:
    """Return what the audit log keeps: who did what, and the bodies of pyliqo's writes.

    Secrets and tokens come first, so that no rule keeps a body of theirs.
    """
    observed = ["system:serviceaccounts:liqo", "liqo.io"]
    for name in OBSERVED_CLUSTERS:
        observed += [name, f"system:serviceaccounts:liqo-tenant-{name}"]
    writes = ["create", "update", "patch", "delete", "deletecollection"]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [
            {
                "level": "Metadata",
                "resources": [
                    {"group": "", "resources": ["secrets", "serviceaccounts/token"]},
                    {"group": "authentication.k8s.io", "resources": ["tokenreviews"]},
                ],
            },
            {"level": "RequestResponse", "userGroups": observed, "verbs": writes},
            {"level": "None", "users": ["system:apiserver"]},
            {"level": "None", "nonResourceURLs": ["/healthz*", "/readyz*", "/livez*", "/version"]},
            {
                "level": "None",
                "userGroups": ["system:nodes"],
                "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
            },
            {"level": "Metadata"},
        ],
    }


def kubelet(site: Site) -> Document:
    """Return the kubelet's configuration."""
    pki, slot = site.files.pki, site.slot
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": slot.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"{site.cgroup}/pods",
        "clusterDNS": [slot.dns_address],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{site.socket}",
        "enforceNodeAllocatable": [],
        "evictionHard": dict.fromkeys(
            ("memory.available", "nodefs.available", "imagefs.available"), "0%"
        ),
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "maxPods": MAX_PODS,
        "oomScoreAdj": 0,
        "podLogsDir": str(site.disk / "pod-logs"),
        "readOnlyPort": 0,
        "resolvConf": "",
        "serializeImagePulls": False,
        "tlsCertFile": str(pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(pki / "kubelet.key"),
        "volumePluginDir": str(site.disk / "volume-plugins"),
    }


def proxy(site: Site) -> Document:
    """Return kube-proxy's configuration: iptables, and no kernel setting touched."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(site.files.identity("kube-proxy"))},
        "hostnameOverride": site.slot.node,
        "clusterCIDR": site.slot.pod_cidr,
        "detectLocalMode": "ClusterCIDR",
        "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def containerd(site: Site, pause: str, shim: Path) -> str:
    """Return containerd's configuration, which keeps everything in the cluster's own folders.

    Why the shim is named: containerd finds it by PATH, where another release's may lie.
    """
    return f"""version = 2
root = "{site.disk}/containerd"
state = "{site.run}/containerd"
[grpc]
  address = "{site.socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{site.disk}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_BINARIES}"
    conf_dir = "{site.files.config}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{shim}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "{site.run}/runc"
"""


def cni(site: Site) -> Document:
    """Return the pod network: a cable a pod, so that each packet meets kube-proxy's rules.

    Why not a bridge: between two pods of one bridge the way back would pass by those rules, unless
    the machine has br_netfilter.
    """
    ranges = [[{"subnet": site.slot.pod_cidr, "rangeStart": _first_pod(site)}]]
    return {
        "cniVersion": "0.4.0",
        "name": site.slot.namespace,
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(site.disk / "addresses"),
                    "ranges": ranges,
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def corefile(site: Site) -> str:
    """Return CoreDNS's configuration; names outside the cluster are refused: no way leads out."""
    return f"""cluster.local in-addr.arpa ip6.arpa {{
    bind {site.slot.address}
    errors
    health 127.0.0.1:8080
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {site.files.identity("coredns")}
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 5
    }}
    cache 5
}}
"""


def dns_objects(site: Site) -> Sequence[Document]:
    """Return what makes CoreDNS, a process on the node, the Service ``kube-dns``."""
    return [*_dns_rights(), *_dns_service(site)]


def _dns_rights() -> Sequence[Document]:
    group, name = "rbac.authorization.k8s.io", "system:coredns"
    kind = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    reads = {"verbs": ["list", "watch"]}
    core = {"apiGroups": [""], "resources": ["services", "pods", "namespaces", "endpoints"]}
    slices = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"]}
    return [
        {**kind, "kind": "ClusterRole", "rules": [core | reads, slices | reads]},
        {
            **kind,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
        },
    ]


def _dns_service(site: Site) -> Sequence[Document]:
    slot, namespace = site.slot, "kube-system"
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    labels = {
        "kubernetes.io/service-name": "kube-dns",
        "endpointslice.kubernetes.io/managed-by": "sandbox",
    }
    node = {"addresses": [slot.address], "conditions": {"ready": True}, "nodeName": slot.node}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": namespace},
            "spec": {"clusterIP": slot.dns_address, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "kube-dns-node", "namespace": namespace, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [node],
            "ports": ports,
        },
    ]


def _first_pod(site: Site) -> str:
    return str(ipaddress.ip_network(site.slot.pod_cidr)[2])


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
