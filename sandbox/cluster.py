"""One cluster: bringing it up from whatever is there, and removing whatever is there."""

import contextlib
import datetime as dt
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from sandbox import (
    api,
    cgroups,
    components,
    credentials,
    documents,
    network,
    nodes,
    processes,
    registry,
)
from sandbox.images import PAUSE, Image
from sandbox.layout import Site

READY_S: Final = 90.0
CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
_ATTEMPTS: Final = 3
_LOG_LINKS: Final = Path("/var/log/containers")
_CNI_RESULTS: Final = Path("/var/lib/cni/results")


def start(
    site: Site, images: Iterable[Image], *, now: dt.datetime, say: Callable[[str], None]
) -> None:
    """Bring the cluster up: what runs already is left alone, what is missing is made."""
    say("network and certificates")
    if not _is_made(site):
        remove(site)
        _make(site, now)
    if not network.is_complete(site.slot):
        cgroups.remove(site.cgroup)  # what ran in a network that is gone
    network.create(site.slot)
    cgroups.create(site.cgroup)
    _start_components(site, tuple(images), say)
    say("node")
    what = f"cluster {site.slot.cluster}"
    try:
        api.wait_until(lambda: is_ready(site), what, timeout_s=READY_S)
    except api.NotYetError as error:
        raise api.NotYetError(f"{error}: {hindrance(site)} (logs: {site.files.logs})") from None
    _mark_control_plane(site)


def _mark_control_plane(site: Site) -> None:
    """Say by a label, as kubeadm does, that the API server is at the address of the node."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": site.slot.node, "labels": {CONTROL_PLANE: ""}},
    }
    admin(site).apply(f"/api/v1/nodes/{site.slot.node}", node)


def is_ready(site: Site) -> bool:
    """Whether the node is Ready, and nothing of the cluster is missing."""
    return not hindrance(site)


def hindrance(site: Site) -> str:
    """Return what keeps the cluster from being ready, or an empty string."""
    stopped = [part.name for part in components.of(site).values() if not part.is_alive()]
    if stopped:
        return f"{', '.join(stopped)} stopped"
    try:
        node = admin(site).request("GET", f"/api/v1/nodes/{site.slot.node}")
    except (OSError, api.RefusedError) as error:
        return f"the API server answers {error}"
    said = {each["type"]: each for each in node["status"].get("conditions") or []}
    ready = said.get("Ready", {"status": "Unknown", "message": "no word of the kubelet"})
    return "" if ready["status"] == "True" else f"the node says: {ready['message']}"


def admin(site: Site) -> api.Api:
    """Return the cluster's API server as its administrator sees it."""
    return api.of(site.files, site.listening)


def remove(site: Site) -> None:
    """Remove all there is of the cluster, however little: processes first, files last."""
    elsewhere = leftovers(site)
    lose_power(site)
    for mount in _mounts_below(site.run, site.disk):
        command = ["umount", "--lazy", mount]
        subprocess.run(command, check=False, capture_output=True)
    network.remove(site.slot)
    for path in elsewhere:
        path.unlink(missing_ok=True)
    registry.remove_folders(site.slot)
    shutil.rmtree(site.files.state, ignore_errors=True)
    site.files.kubeconfig.unlink(missing_ok=True)


def lose_power(site: Site) -> None:
    """End every process of the cluster at once, those in its pods too; ``start`` brings it back."""
    for component in components.of(site).values():
        processes.kill(component.pid_file)
    cgroups.remove(site.cgroup)


def leftovers(site: Site) -> list[Path]:
    """Return the files of this cluster that programs keep in places which they share."""
    return [*_shim_sockets(site), *_cni_results(site), *_links(site)]


def _is_made(site: Site) -> bool:
    try:
        return bool(json.loads(_marker(site).read_text()) == asdict(site.slot))
    except (FileNotFoundError, ValueError):
        return False


def _make(site: Site, now: dt.datetime) -> None:
    for folder in (site.run, site.disk):
        registry.make_folder(folder)
    authorities = credentials.create(site.files, site.listening, name=site.slot.cluster, now=now)
    credentials.create_components(site, authorities)
    _marker(site).write_text(json.dumps(asdict(site.slot)))


def _marker(site: Site) -> Path:
    return site.files.state / "slot.json"


def _start_components(site: Site, images: tuple[Image, ...], say: Callable[[str], None]) -> None:
    for folder in (site.run, site.disk):
        registry.make_folder(folder)
    components.configure(site, PAUSE)
    all_of_it = components.of(site)
    say("API server")
    _start_control_plane(site)
    all_of_it["containerd"].start()
    say("images")
    api.wait_until(
        lambda: nodes.answers(site), _where(site, "containerd", "containerd"), timeout_s=READY_S
    )
    loaded = nodes.load(site, [image for image in images if image.name == PAUSE])
    say(f"images: {len(loaded)} loaded")
    for component in all_of_it.values():
        component.start()
    apply_dns(site)
    nodes.load(site, images)


def _start_control_plane(site: Site) -> None:
    server = components.Component(site, "kube-apiserver")
    for _ in range(_ATTEMPTS):
        components.Component(site, "etcd").start()
        server.start()
        with contextlib.suppress(api.NotYetError):
            api.wait_until(
                lambda: admin(site).is_ready() or not server.is_alive(),
                _where(site, "API server", server.name), timeout_s=READY_S,
            )  # fmt: skip
        if admin(site).is_ready():
            return
    raise api.NotYetError(f"{_where(site, 'API server', server.name)}: does not become ready")


def apply_dns(site: Site) -> None:
    """Make the CoreDNS of the cluster known to its pods."""
    paths = {
        "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "Service": "/api/v1/namespaces/kube-system/services",
        "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices",
    }
    for document in documents.dns_objects(site):
        path = f"{paths[document['kind']]}/{document['metadata']['name']}"
        admin(site).apply(path, document)


def _where(site: Site, what: str, component: str) -> str:
    return f"{what} of {site.slot.cluster} (its log: {site.files.log(component)})"


def _shim_sockets(site: Site) -> Iterator[Path]:
    tasks = site.run / "containerd" / "io.containerd.runtime.v2.task"
    for address in tasks.glob("*/*/address"):
        with contextlib.suppress(OSError):
            yield Path(address.read_text().strip().removeprefix("unix://"))


def _cni_results(site: Site) -> Iterator[Path]:
    """Yield what the plugins noted about its pods, whose names end with pod and interface."""
    cri = Path("containerd", "io.containerd.grpc.v1.cri", "sandboxes")
    folders = [base / cri for base in (site.run, site.disk)]
    pods = {pod.name for folder in folders for pod in folder.glob("*")}
    for result in _CNI_RESULTS.glob("*-*-*"):
        network_name, pod, _ = result.name.rsplit("-", 2)
        if network_name == site.slot.namespace or pod in pods:
            yield result


def _links(site: Site) -> Iterator[Path]:
    if _LOG_LINKS.is_dir():
        for link in _LOG_LINKS.iterdir():
            if link.is_symlink() and str(link.readlink()).startswith(f"{site.disk}/"):
                yield link


def _mounts_below(*folders: Path) -> list[str]:
    """Return the mount points below ``folders``, the innermost first."""
    points = [
        os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1"))
        for line in Path("/proc/self/mountinfo").read_bytes().splitlines()
    ]
    prefixes = tuple(f"{folder}/" for folder in folders)
    return [point for point in reversed(points) if point.startswith(prefixes)]
