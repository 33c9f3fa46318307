"""The flags and documents of a cluster's components keep its promises."""

import base64
import ipaddress
import json
import tomllib
from pathlib import Path
from typing import Any

from sandbox import documents, flags, layout
from sandbox.allocation import Slot
from tests import factories

SLOT = Slot("0123abcd", "/src", "rome", 3)
SITE = layout.site(SLOT, Path("/src/.sandbox"))
SHIM = Path("/built/containerd-shim-runc-v2")


def rule_for(**request: str) -> dict[str, Any]:
    for rule in documents.audit_policy()["rules"]:
        resources = [name for group in rule.get("resources", []) for name in group["resources"]]
        fits = (
            request.get("resource") in (resources or [request.get("resource")])
            and request.get("group") in rule.get("userGroups", [request.get("group")])
            and request.get("user") in rule.get("users", [request.get("user")])
            and request.get("verb") in rule.get("verbs", [request.get("verb")])
            and "nonResourceURLs" not in rule
        )
        if fits:
            return dict(rule)
    raise AssertionError("no rule fits")


@factories.cases("group, resource, verb, level")
def test_the_audit_log_has_bodies_of_our_writes_and_of_no_secret(
    group: str, resource: str, verb: str, level: str
) -> None:
    assert rule_for(group=group, resource=resource, verb=verb)["level"] == level


def test_each_request_is_logged_once() -> None:
    assert documents.audit_policy()["omitStages"] == ["RequestReceived"]


def test_containerd_keeps_everything_in_folders_of_the_cluster() -> None:
    config = tomllib.loads(documents.containerd(SITE, "localhost/pause:1", SHIM))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    ours = (str(SITE.run), str(SITE.disk))
    assert config["root"].startswith(ours)
    assert config["state"].startswith(ours)
    assert cri["sandbox_image"] == "localhost/pause:1"
    assert cri["netns_mounts_under_state_dir"]
    assert cri["containerd"]["runtimes"]["runc"]["options"]["Root"].startswith(ours)
    assert cri["containerd"]["runtimes"]["runc"]["runtime_path"] == str(SHIM)


def test_socket_paths_are_short() -> None:
    longest = layout.site(Slot("0123abcd", "/src", "c" * 16, 31), Path("/src/.sandbox"))
    sockets = (longest.socket, longest.disk / "kubelet" / "device-plugins" / "kubelet.sock")
    assert max(len(str(path)) for path in sockets) < 100


def test_pods_get_addresses_of_the_cluster() -> None:
    ranges = documents.cni(SITE)["plugins"][0]["ipam"]["ranges"]
    assert ranges[0][0]["subnet"] == SLOT.pod_cidr
    start = ipaddress.ip_address(ranges[0][0]["rangeStart"])
    assert start in ipaddress.ip_network(SLOT.pod_cidr)


def test_the_kubelet_of_a_version_1_machine_starts() -> None:
    kubelet = documents.kubelet(SITE)
    assert kubelet["failCgroupV1"] is False
    assert kubelet["cgroupDriver"] == "cgroupfs"
    assert kubelet["cgroupRoot"].startswith(SITE.cgroup)
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}


def test_the_dns_service_leads_to_the_node() -> None:
    found = {one["kind"]: one for one in documents.dns_objects(SITE)}
    assert found["Service"]["spec"]["clusterIP"] == SLOT.dns_address
    assert documents.kubelet(SITE)["clusterDNS"] == [SLOT.dns_address]
    assert found["EndpointSlice"]["endpoints"][0]["addresses"] == [SLOT.address]
    label = found["EndpointSlice"]["metadata"]["labels"]["kubernetes.io/service-name"]
    assert label == found["Service"]["metadata"]["name"]
    assert f"bind {SLOT.address}" in documents.corefile(SITE)


def test_a_kubeconfig_needs_no_other_file() -> None:
    text = documents.kubeconfig(
        cluster="rome", server="https://a:1", ca=b"CA", user="admin", pair=(b"CERT", b"KEY")
    )
    config = json.loads(text)
    user = config["users"][0]["user"]
    assert base64.b64decode(user["client-key-data"]) == b"KEY"
    assert base64.b64decode(user["client-certificate-data"]) == b"CERT"
    assert config["clusters"][0]["cluster"]["server"] == "https://a:1"
    assert config["current-context"] == config["contexts"][0]["name"]


def test_the_api_server_authorizes_and_aggregates() -> None:
    said = flags.apiserver(SITE.files, SITE.listening)
    assert "--authorization-mode=Node,RBAC" in said
    assert "--enable-aggregator-routing" in said
    assert f"--service-cluster-ip-range={SLOT.service_cidr}" in said
    assert any(flag.startswith("--requestheader-client-ca-file=") for flag in said)
    assert any(flag.startswith("--kubelet-certificate-authority=") for flag in said)


def test_only_benchmarks_and_lone_control_planes_skip_the_disk() -> None:
    assert "--unsafe-no-fsync" not in flags.etcd(SITE.files, SITE.listening)
    assert "--unsafe-no-fsync" in flags.etcd(SITE.files, SITE.listening, unsafe=True)
