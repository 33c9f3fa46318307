"""A control plane alone: a real API server in seconds, to be stopped and made to forget."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import audit, controlplane
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl

pytestmark = pytest.mark.cluster
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module", name="plane")
def start_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with controlplane.start(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


def post_config_map(plane: Plane, name: str) -> Any:
    return plane.api.request("POST", CONFIG_MAPS, {"metadata": {"name": name}})


def test_kubectl_speaks_to_it(plane: Plane) -> None:
    assert plane.api.is_ready()
    assert Kubectl(plane.kubeconfig).get("namespace", "default")["metadata"]["name"] == "default"


def test_after_compaction_old_versions_are_gone(plane: Plane) -> None:
    old = post_config_map(plane, "first")["metadata"]["resourceVersion"]
    post_config_map(plane, "second")
    plane.compact()
    query = f"?watch=1&timeoutSeconds=1&resourceVersion={old}"
    event = plane.api.request("GET", CONFIG_MAPS + query)
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410


@pytest.mark.parametrize("how", ["stop_apiserver", "kill_apiserver"])
def test_what_was_stored_survives_the_api_server(plane: Plane, how: str) -> None:
    name = how.replace("_", "-")
    post_config_map(plane, name)
    getattr(plane, how)()
    assert not plane.api.is_ready()
    plane.start_apiserver()
    assert plane.api.request("GET", f"{CONFIG_MAPS}/{name}")["metadata"]["name"] == name


def test_a_pod_needs_no_service_account(plane: Plane) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = plane.api.request("POST", "/api/v1/namespaces/default/pods", pod)
    assert made["status"]["phase"] == "Pending"


def test_requests_are_audited(plane: Plane) -> None:
    log = audit.Log(plane.audit_log)
    post_config_map(plane, "audited")
    assert "audited" in {call.name for call in log.settled(plane.api)}


def test_nothing_runs_after_it(tmp_path: Path) -> None:
    with contextlib.suppress(ZeroDivisionError), controlplane.start(tmp_path) as plane:
        api = plane.api
        raise ZeroDivisionError
    assert not api.is_ready()
    assert not [
        process
        for process in Path("/proc").glob("[0-9]*/cmdline")
        if str(tmp_path).encode() in _read(process)
    ]


def _read(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""
