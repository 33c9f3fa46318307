"""The Pod Security Standards, held to the fixtures of the Kubernetes module that evaluates them.

The module is fetched once through the Go module proxy, and not committed. Source: docs/parity.md
SEC-A1.
"""

import os
import random
import secrets
from typing import Final

import pytest
import yaml

from apis import keys, podsecurity
from apis.objects import Object
from sandbox.api import RefusedError
from sandbox.controlplane import Plane
from tests import factories
from tests.conftest import size_of
from tests.webhook.podsecurity import FIXTURES, complaints, fixtures


@pytest.mark.cluster  # needs Go, as clusters do
def test_every_fixture_is_judged_as_the_api_server_does() -> None:
    found = fixtures()

    wrong = [
        f"{level}/{path.name}: {said}"
        for level, passes, path in found
        if bool(said := complaints(yaml.safe_load(path.read_text()), level)) == passes
    ]

    assert wrong == []
    assert len(found) == FIXTURES


@pytest.mark.parametrize("context", [{"runAsNonRoot": False}, {"runAsUser": 0}])
def test_what_the_pod_says_counts_though_every_container_overrides_it(context: Object) -> None:
    own = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec = {"containers": [{"name": "main", "image": "i", "securityContext": own}]}

    assert not list(podsecurity.violations(spec, "restricted"))
    assert list(podsecurity.violations({**spec, "securityContext": context}, "restricted"))


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_a_signal_to_stop_by_is_no_handler(level: str) -> None:
    own = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    main = {"name": "main", "securityContext": own, "lifecycle": {"stopSignal": "SIGUSR1"}}
    probed = {**main, "lifecycle": {"stopSignal": "SIGUSR1", "preStop": {"httpGet": {"host": "a"}}}}

    assert not list(podsecurity.violations({"containers": [main]}, level))
    (found,) = podsecurity.violations({"containers": [probed]}, level)
    assert "lifecycle.preStop.httpGet.host" in found


CONTEXTS: Final[list[Object]] = [
    {"allowPrivilegeEscalation": False},
    {"allowPrivilegeEscalation": True},
    {"appArmorProfile": {"type": "Unconfined"}},
    {"appArmorProfile": {"type": "RuntimeDefault"}},
    {"capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}},
    {"capabilities": {"add": ["CHOWN"], "drop": ["ALL"]}},
    {"capabilities": {"add": ["NET_RAW"]}},
    {"privileged": True},
    {"procMount": "Unmasked"},
    {"runAsNonRoot": False},
    {"runAsNonRoot": True},
    {"runAsUser": 0},
    {"runAsUser": 1000},
    {"seLinuxOptions": {"type": "container_t"}},
    {"seLinuxOptions": {"type": "spc_t"}},
    {"seLinuxOptions": {"user": "system_u"}},
    {"seccompProfile": {"type": "RuntimeDefault"}},
    {"seccompProfile": {"type": "Unconfined"}},
]
OF_CONTAINERS: Final[list[Object]] = [
    {"livenessProbe": {"httpGet": {"port": 80, "host": "10.0.0.1"}}},
    {"lifecycle": {"postStart": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}}},
    {"ports": [{"containerPort": 80, "hostPort": 80}]},
    {"ports": [{"containerPort": 80}]},
]
OF_PODS: Final[list[Object]] = [
    {"hostIPC": True},
    {"hostNetwork": True},
    {"hostPID": True},
    {"hostUsers": False},
    {"hostUsers": True},
    {"volumes": [{"name": "a", "emptyDir": {}}]},
    {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
    {"volumes": [{"name": "a", "nfs": {"server": "s", "path": "/"}}]},
    {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}]},
]
SYSCTLS: Final = (
    "kernel.msgmax", "kernel.shm_rmid_forced", "net.ipv4.tcp_rmem", "net.ipv4.tcp_notsent_lowat",
)  # fmt: skip
STRICTER: Final = {
    "31": ("host must not be set", "procMount must be Default"),
    "37": ("net.ipv4.tcp_notsent_lowat",),
}
"""What the rules of 1.35 refuse and an API server of another minor version does not: 1.34 forbade
hosts of handlers, 1.31 drops procMount, 1.37 calls two more sysctls safe.
Source: k8s.io/pod-security-admission, policy/check_*.go."""
LAXER: Final = {"31": ("net.ipv4.tcp_rmem", "runAsNonRoot != true", "runAsUser=0")}
"""The other way round: 1.32 called two sysctls safe, and 1.33 lets pods with a user namespace of
their own run as root. Twins enforce the standard, so the API server refuses the Pod itself."""
SAFE: Final[Object] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
PROFILES: Final = ("unconfined", "runtime/default", "localhost/mine")
RUNS: Final = size_of("PYLIQO_POD_SECURITY_PODS", 150, 2000)


def some(chance: random.Random, parts: list[Object]) -> Object:
    """Return one of ``parts``, mostly none."""
    return dict(chance.choice(parts)) if chance.random() < 0.25 else {}


def drawn_container(chance: random.Random, name: str) -> Object:
    context = {**(SAFE if chance.random() < 0.85 else {}), **some(chance, CONTEXTS)}
    return {"name": name, "image": "i", "securityContext": context, **some(chance, OF_CONTAINERS)}


def any_pod(chance: random.Random) -> Object:
    """Return a pod that is safe but for a few things."""
    common = [one for one in CONTEXTS if not one.keys() & OWN_OF_CONTAINERS]
    context = {**(SAFE_POD if chance.random() < 0.3 else {}), **some(chance, common)}
    context |= some(chance, [{"sysctls": [{"name": name, "value": "1"}]} for name in SYSCTLS])
    spec = {"containers": [drawn_container(chance, "main")], "securityContext": context}
    if chance.random() < 0.3:
        spec["initContainers"] = [drawn_container(chance, "first")]
    prefix = "container.apparmor.security.beta.kubernetes.io/main"
    annotations = {prefix: chance.choice(PROFILES)} if chance.random() < 0.1 else {}
    metadata = {"annotations": annotations}
    return factories.pod("", spec={**spec, **some(chance, OF_PODS)}, metadata=metadata)


OWN_OF_CONTAINERS: Final = {"allowPrivilegeEscalation", "capabilities", "privileged", "procMount"}
SAFE_POD: Final = {name: value for name, value in SAFE.items() if name not in OWN_OF_CONTAINERS}


@pytest.mark.cluster
@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_any_pod_is_judged_as_by_the_api_server(plane: Plane, level: str) -> None:
    seed = int(os.environ.get("PYLIQO_POD_SECURITY_SEED", "20251123"))
    chance = random.Random(seed)  # noqa: S311  # no secret
    space = f"secure-{secrets.token_hex(4)}"
    labels = {keys.POD_SECURITY_ENFORCE: level}
    minor = str(plane.api.request("GET", "/version")["minor"]).rstrip("+")
    stricter, laxer = STRICTER.get(minor, ()), LAXER.get(minor, ())
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space, "labels": labels}}
    plane.api.request("POST", "/api/v1/namespaces", made)
    judged = passed = 0
    for number in range(RUNS):
        sent = any_pod(chance)
        refusal = refused_by_kubernetes(plane, space, sent)
        if refusal is not None:
            judged, passed = judged + 1, passed + (refusal == "")
            said = complaints(sent, level)
            if refusal == "":
                stays = [one for one in said if not any(word in one for word in stricter)]
                assert stays == [], (seed, number, sent)
            elif not said:
                assert any(word in refusal for word in laxer), (seed, number, sent, refusal)
    assert judged > RUNS / 2
    assert judged / 3 < passed < judged, "else too little was tried of one verdict"


def refused_by_kubernetes(plane: Plane, space: str, sent: Object) -> str | None:
    """Return why the API server's own evaluation refuses it, "" if not; None for no valid pod."""
    try:
        plane.api.request("POST", f"/api/v1/namespaces/{space}/pods?dryRun=All", sent)
    except RefusedError as error:
        return str(error) if "violates PodSecurity" in str(error) else None
    return ""
