"""Two control planes, on each of them our controllers with the rights of the manifests."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from click.testing import CliRunner, Result

from apis import keys, naming, objects
from apis.objects import Key, Kind, Object
from liqoctl.options import cli
from sandbox import controlplane
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl, KubectlError
from tests.manifests import documents

T = TypeVar("T")
MANIFESTS = Path(__file__).parents[2] / "manifests"
PATIENCE_S = 300
SPACE = naming.tenant_namespace("rome")
TWIN = "shop-rome"


@dataclass
class Member:
    """One cluster, and the process of its controllers."""

    name: str
    plane: Plane
    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(self.plane.kubeconfig)

    def get(self, *args: str) -> list[dict[str, Any]]:
        """Return what ``kubectl get ARGS`` lists; nothing where the kind or namespace is not."""
        return list(json.loads(self.kubectl.run("get", *args, "-o", "json"))["items"])

    def prepare(self) -> None:
        """Install the kinds, the rights and the policies, without what needs a pod."""
        kubectl = self.kubectl
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "liqo"}}
        lease = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}}
        kubectl.apply([space, lease])
        kubectl.run("apply", "--server-side", "-k", str(MANIFESTS / "10-crds"))
        for folder in ("20-rbac", "70-policies"):
            kubectl.run("apply", "--server-side", "-f", str(MANIFESTS / folder))
        identity = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "clusterid-configmap",
                "namespace": "liqo",
                "labels": {keys.APP_NAME: keys.CLUSTER_ID_CONFIG_MAP},
            },
            "data": {"CLUSTER_ID": self.name},
        }
        kubectl.apply([identity])
        account = ("liqo-controller-manager", "-n", "liqo")
        token = kubectl.run("create", "token", *account, "--duration=2h").strip()
        config = yaml.safe_load(self.plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        self.kubeconfig.write_text(json.dumps(_inline(config, self.plane.kubeconfig.parent)))

    @property
    def kubeconfig(self) -> Path:
        """That of the controllers' own account."""
        return self.directory / "controllers.kubeconfig"

    def start(self, *flags: str) -> None:
        address = self.plane.server.removeprefix("https://")
        command = [
            sys.executable, "-m", "controllers", f"--kubeconfig={self.kubeconfig}",
            "--liqo-namespace=liqo", f"--health-port={self.port}", "--no-leader-elect",
            f"--api-server-address-override={address}", *flags,
        ]  # fmt: skip
        with (self.directory / "controllers.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """End the controllers as a crash would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)
        sys.stdout.write(self.log())

    def log(self) -> str:
        return (self.directory / "controllers.log").read_text()

    @contextlib.contextmanager
    def without(self, resource: str) -> Iterator[None]:
        """Take from the controllers, for a while, every right about ``resource``."""
        role = ("clusterrole", "liqo-controller-manager")
        rules = self.kubectl.get(*role)["rules"]
        left = [rule for rule in rules if resource not in rule["resources"]]
        assert left != rules
        self._give(role, left)
        try:
            yield
        finally:
            self._give(role, rules)

    @contextlib.contextmanager
    def lacking(self, crd: str) -> Iterator[None]:
        """Take a kind, and all of its objects, from the cluster for a while."""
        named = documents.of_kind("CustomResourceDefinition")
        manifest = next(obj for obj in named if obj["metadata"]["name"] == crd)
        self.kubectl.run("delete", "crd", crd)
        try:
            yield
        finally:
            self.kubectl.apply([manifest])
            self.kubectl.wait("--for=condition=Established", "crd", crd)

    def _give(self, role: tuple[str, str], rules: list[Object]) -> None:
        changes = json.dumps([{"op": "replace", "path": "/rules", "value": rules}])
        self.kubectl.run("patch", *role, "--type=json", "-p", changes)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def is_ending(self) -> bool:
        return any("deletionTimestamp" in one["metadata"] for one in self.get("namespaces"))

    def secret(self, namespace: str, name: str, key: str) -> bytes:
        found = self.kubectl.get("secret", name, "-n", namespace)
        return base64.b64decode(found["data"][key])


@dataclass(frozen=True)
class World:
    """Rome and milan, each of them consumer and provider."""

    members: dict[str, Member]

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def liqoctl(self, name: str, *args: str) -> Result:
        flags = ("--kubeconfig", str(self[name].plane.kubeconfig))
        return CliRunner().invoke(cli, [*flags, *args])

    def between(self, verb: str, consumer: str, provider: str, *args: str) -> Result:
        remote = ("--remote-kubeconfig", str(self[provider].plane.kubeconfig))
        return self.liqoctl(consumer, verb, *remote, f"--timeout={PATIENCE_S}s", *args)

    def peer(self, consumer: str, provider: str, *args: str) -> None:
        """Peer, without a virtual node: nothing would run its kubelet."""
        done = self.between("peer", consumer, provider, "--no-create-virtual-node", *args)
        assert done.exit_code == 0, done.output

    def unpeer(self, consumer: str, provider: str, *args: str) -> None:
        done = self.between("unpeer", consumer, provider, "--skip-confirm", *args)
        assert done.exit_code == 0, done.output
        for member in self.members.values():  # so that the next test finds nothing of this one
            wait(lambda member=member: not member.is_ending(), "namespaces to go")

    def identity(self, consumer: str, provider: str, name: str = "") -> Kubectl:
        """Return kubectl by an identity that ``provider`` gave: that of the control plane."""
        secret = naming.kubeconfig_secret(name or naming.controlplane_identity(provider))
        text = self[consumer].secret(naming.tenant_namespace(provider), secret, "kubeconfig")
        path = self[consumer].directory / f"as-{secret}"
        path.touch(mode=0o600)
        path.write_bytes(text)
        return Kubectl(path)

    def make_twin(self, name: str) -> None:
        """Map a namespace, as a virtual node of rome's would have it."""
        labels = {
            keys.REPLICATION: "true",
            keys.REMOTE_ID: "milan",
            keys.REMOTE_CLUSTER_ID: "milan",
        }
        key = Key(naming.tenant_namespace("milan"), "milan")
        spec = {"desiredMapping": {"shop": name}}
        made = objects.named(keys.NAMESPACE_MAP, key, metadata={"labels": labels}, spec=spec)
        rome, milan = self["rome"].kubectl, self["milan"].kubectl
        rome.apply([made])
        wait(lambda: not refusal(milan, "get", "rolebinding", "-n", name, SPACE), "a twin")

        def is_known() -> bool:
            found = rome.get("namespacemap", key.name, "-n", key.namespace).get("status") or {}
            current = (found.get("currentMapping") or {}).get("shop") or {}
            return str(current.get("phase")) == "Accepted"

        wait(is_known, "rome to know of the twin")
        may = (
            "auth",
            "can-i",
            "create",
            "configmaps",
            "-n",
            name,
            "-q",
            "--as=x",
            "--as-group=rome",
        )
        wait(lambda: not refusal(milan, *may), "rome's rights in the twin")


def replica(kind: Kind, name: str, **rest: Any) -> Object:
    """Return an object as rome's replicator makes it on milan."""
    labels = {
        keys.REPLICATED: "true",
        keys.REPLICATION: "false",
        keys.ORIGIN_ID: "rome",
        keys.REMOTE_CLUSTER_ID: "rome",
        keys.REMOTE_ID: "milan",
    }
    return objects.named(kind, Key(SPACE, name), metadata={"labels": labels}, **rest)


@contextlib.contextmanager
def two_clusters(
    directory: Path, *, lifetime: str = "", milan: type[Member] = Member, others: Sequence[str] = ()
) -> Iterator[World]:
    """Yield both clusters, of which ``milan`` may be another's, and ``others``.

    Certificates live ``lifetime``.
    """
    with contextlib.ExitStack() as stack:
        members = {}
        kinds: dict[str, type[Member]] = {
            "rome": Member,
            "milan": milan,
            **dict.fromkeys(others, Member),
        }
        for name, kind in kinds.items():
            own = directory / name
            own.mkdir()
            plane = stack.enter_context(controlplane.start(own))
            plane.start_signer(lifetime)
            (port,) = controlplane.free_ports(1)
            member = kind(name, plane, own, port)
            member.prepare()
            member.start()
            stack.callback(member.stop)
            members[name] = member
        for member in members.values():
            wait(member.is_ready, f"the controllers of {member.name}")
        yield World(members)


LOOK_S: Final = 0.3
"""A look mostly runs kubectl, which takes half of that in CPU."""


def wait(holds: Any, what: str, patience_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, f"not within {patience_s} s: {what}"
        os.sched_yield()
        time.sleep(LOOK_S)  # noqa: TID251  # a test that is not async


def settled(look: Callable[[], T], wanted: object) -> T:
    """Return what ``look`` shows: what is wanted, or what it is instead after a long while."""
    with contextlib.suppress(AssertionError):
        wait(lambda: look() == wanted, "")
    return look()


def refusal(kubectl: Kubectl, *args: str, stdin: str | None = None) -> str:
    """Return why kubectl was refused; empty where it was not."""
    try:
        kubectl.run(*args, stdin=stdin)
    except KubectlError as error:
        return str(error)
    return ""


def _inline(config: dict[str, Any], directory: Path) -> dict[str, Any]:
    cluster = config["clusters"][0]["cluster"]
    if path := cluster.pop("certificate-authority", None):
        content = (directory / path).read_bytes()
        cluster["certificate-authority-data"] = base64.b64encode(content).decode()
    return config
