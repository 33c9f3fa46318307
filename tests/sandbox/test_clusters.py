"""A whole cluster of its own: it runs pods, survives crashes of its parts, and leaves nothing."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import allocation, api, cgroups, cluster, clusters, images, locks, nodes, registry
from sandbox.clusters import Sandbox
from sandbox.kubectl import Kubectl, KubectlError
from sandbox.layout import Site
from tests import factories

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="clusters need root"),
]
NAME = "paris"
WHICH: tuple[images.Which, ...] = ("pause", "workload")
UP = """
import sys
import tarfile
from pathlib import Path
from sandbox.clusters import Sandbox
Sandbox(Path(sys.argv[1])).up(["paris"], which=["pause"])
"""


@pytest.fixture(scope="module", name="sandbox")
def make_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    sandbox = Sandbox(tmp_path_factory.mktemp("checkout"))
    try:
        yield sandbox
    finally:
        sandbox.down()


@pytest.fixture(name="kubectl")
def bring_up(sandbox: Sandbox) -> Kubectl:
    kubeconfigs = sandbox.up([NAME], which=WHICH)
    kubectl = Kubectl(kubeconfigs[NAME])
    api.wait_until(lambda: _has_account(kubectl), "the service account", timeout_s=300)
    kubectl.apply([serving_pod(), web_service()])
    kubectl.wait("--for=condition=Ready", "pod/web", "-n", "default")
    return kubectl


def serving_pod() -> dict[str, Any]:
    container = {
        "name": "web",
        "image": images.workload_name(),
        "imagePullPolicy": "Never",
        "command": ["python3", "-m", "http.server", "8080"],
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return factories.pod(spec=spec, metadata={"labels": {"app": "web"}})


def web_service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }


def remains(sandbox: Sandbox) -> dict[str, list[str]]:
    """Return all on this machine that carries the id of the sandbox, kind by kind."""
    mark, cable = sandbox.id, f"pl{sandbox.id[:6]}"
    return {
        "processes": _processes(mark),
        "mounts": _lines(Path("/proc/self/mountinfo").read_text(), mark),
        "namespaces": _lines(_said("ip", "netns"), mark),
        "links": _lines(_said("ip", "link"), cable),
        "routes": _lines(_said("ip", "route"), cable),
        "rules": _lines(_said("iptables-save"), mark),
        "cgroups": [str(path) for path in cgroups.ROOT.glob(f"*/*{mark}*")],
        "folders": [
            str(base / mark) for base in (registry.RUN, registry.DISK) if (base / mark).exists()
        ],
        "state": [str(path) for path in sandbox.directory.iterdir()],
        "slots": [slot.namespace for slot in registry.slots() if slot.id == mark],
    }


def something(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the kinds of which there is something."""
    return {kind: names for kind, names in found.items() if names}


def test_pods_find_services_by_name(kubectl: Kubectl) -> None:
    api.wait_until(lambda: _answers(kubectl, "http://web.default"), "the Service", timeout_s=300)
    found = kubectl.run(
        "exec", "-n", "default", "web", "--", "getent", "hosts", "kubernetes.default.svc"
    )
    assert "kubernetes.default.svc.cluster.local" in found
    logs = ("logs", "-n", "default", "web")
    api.wait_until(lambda: "GET / HTTP" in kubectl.run(*logs), "its line", timeout_s=300)


def test_what_is_up_is_left_alone(sandbox: Sandbox, kubectl: Kubectl) -> None:
    before = _pids(sandbox)
    sandbox.up([NAME], which=WHICH)
    assert _pids(sandbox) == before


def test_pods_survive_a_crash_of_any_part(sandbox: Sandbox, kubectl: Kubectl) -> None:
    uid = kubectl.get("pod", "web", "-n", "default")["metadata"]["uid"]
    for name in ("kube-apiserver", "etcd", "containerd", "kubelet", "kube-proxy", "coredns"):
        sandbox.component(NAME, name).kill()
    assert not cluster.is_ready(sandbox.site(NAME))
    sandbox.up([NAME], which=WHICH)
    found = kubectl.get("pod", "web", "-n", "default")
    assert found["metadata"]["uid"] == uid
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_second_command_is_refused(sandbox: Sandbox, kubectl: Kubectl) -> None:
    with registry.working_on(sandbox.id):
        with pytest.raises(locks.HeldError, match=f"busy with process {os.getpid()}"):
            sandbox.up([NAME], which=WHICH)
        with pytest.raises(locks.HeldError):
            sandbox.down()


def test_down_leaves_nothing(sandbox: Sandbox, kubectl: Kubectl) -> None:
    assert all(found for kind, found in remains(sandbox).items()), "the test looks at what exists"
    elsewhere = cluster.leftovers(sandbox.site(NAME))
    assert elsewhere
    sandbox.down()
    assert not something(remains(sandbox))
    assert not [path for path in elsewhere if path.exists() or path.is_symlink()]
    sandbox.down()  # once more does no harm


def test_down_leaves_nothing_after_crashes(sandbox: Sandbox, kubectl: Kubectl) -> None:
    elsewhere = cluster.leftovers(sandbox.site(NAME))
    for name in ("etcd", "containerd", "kubelet", "kube-apiserver"):
        sandbox.component(NAME, name).kill()
    sandbox.down()
    assert not something(remains(sandbox))
    assert not [path for path in elsewhere if path.exists() or path.is_symlink()]


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(lambda site: Path("/run/netns", site.slot.namespace).exists(), id="network"),
        pytest.param(lambda site: (site.pids / "etcd").exists(), id="etcd"),
        pytest.param(lambda site: (site.pids / "kubelet").exists(), id="kubelet"),
    ],
)
def test_down_leaves_nothing_of_a_killed_up(tmp_path: Path, moment: Callable[[Site], bool]) -> None:
    sandbox = Sandbox(tmp_path)
    with subprocess.Popen([sys.executable, "-c", UP, str(tmp_path)]) as up:
        api.wait_until(
            lambda: any(moment(site) for site in sandbox.sites()), "the moment", timeout_s=300
        )
        up.send_signal(signal.SIGKILL)
    assert something(remains(sandbox))
    sandbox.down()
    assert not something(remains(sandbox))


def test_down_all_removes_the_clusters_of_a_checkout_that_is_gone(tmp_path: Path) -> None:
    checkout = tmp_path / "gone"
    checkout.mkdir()
    sandbox = Sandbox(checkout)
    sandbox.up([NAME], which=["pause"])
    shutil.rmtree(checkout)
    clusters.down_all([site.slot for site in sandbox.sites()])
    checkout.mkdir()
    assert not something(remains(sandbox))


def test_an_archive_is_loaded_under_its_names(
    sandbox: Sandbox, kubectl: Kubectl, tmp_path: Path
) -> None:
    (archive,) = images.ensure(["pause"])
    renamed = tmp_path / "renamed.tar"
    with tarfile.open(archive.archive) as old, tarfile.open(renamed, "w") as new:
        for entry in old:
            content = old.extractfile(entry)
            data = content.read() if content else b""
            data = data.replace(b"localhost/pause:1", b"localhost/other:7")
            entry.size = len(data)
            new.addfile(entry, io.BytesIO(data))
    sandbox.load_image(renamed)
    assert "localhost/other:7" in nodes.images(sandbox.site(NAME))


def test_a_killed_up_is_continued(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    try:
        with subprocess.Popen([sys.executable, "-c", UP, str(tmp_path)]) as up:
            api.wait_until(lambda: _has_pid(sandbox, "etcd"), "etcd", timeout_s=300)
            up.send_signal(signal.SIGKILL)
        sandbox.up([NAME], which=["pause"])
        assert cluster.is_ready(sandbox.site(NAME))
    finally:
        sandbox.down()


def test_names_on_the_machine_carry_the_id(sandbox: Sandbox, tmp_path: Path) -> None:
    assert sandbox.id != Sandbox(tmp_path).id
    assert allocation.checkout_id(sandbox.directory) == sandbox.id


def _has_account(kubectl: Kubectl) -> bool:
    return bool(kubectl.items("serviceaccounts", "-n", "default"))


def _answers(kubectl: Kubectl, url: str) -> bool:
    ask = f"import urllib.request as u; print(u.urlopen('{url}', timeout=3).status)"
    with contextlib.suppress(KubectlError):
        said = kubectl.run("exec", "-n", "default", "web", "--", "python3", "-c", ask)
        return said.strip() == "200"
    return False


def _has_pid(sandbox: Sandbox, name: str) -> bool:
    return any((site.pids / name).exists() for site in sandbox.sites())


def _pids(sandbox: Sandbox) -> list[int | None]:
    names = ("etcd", "kube-apiserver", "kubelet", "containerd", "coredns")
    return [sandbox.component(NAME, name).pid for name in names]


def _processes(mark: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "cgroup").read_text() and _is_alive(process):
                found.append(process.name)
    return found


def _is_alive(process: Path) -> bool:
    return (process / "stat").read_text().rpartition(") ")[2][0] not in "ZX"


def _lines(text: str, mark: str) -> list[str]:
    return [line for line in text.splitlines() if mark in line]


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
