"""What consumers ask of a provider's API server with the rights that peering gives them."""

import contextlib
import functools
import http.client
import json
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from apis import allowlist, keys
from apis.objects import Key, Kind, Object, key_of, named
from kube import credentials, wire
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests import factories
from tests.manifests import documents, policytable, twins, users

SPACE: Final = "liqo-tenant-rome"
TWIN: Final = "shop-rome"
PATIENCE_S: Final = 300
OWNER: Final = {"apiVersion": "v1", "kind": "Namespace", "name": TWIN, "uid": "1"}
REPLICA: Final = {keys.REPLICATED: "true", keys.ORIGIN_ID: "rome"}
SPECS: Final[dict[Kind, Object]] = {
    keys.NAMESPACE_MAP: {},
    keys.RESOURCE_SLICE: {},
    keys.RENEW: {"consumerClusterID": "rome", "identityType": "ControlPlane"},
    keys.SHADOW_POD: {"pod": {"containers": [{"name": "a", "image": "a"}]}},
    keys.SHADOW_ENDPOINT_SLICE: {"template": {"addressType": "IPv4", "endpoints": []}},
}


@dataclass(frozen=True)
class User:
    """Who asks; without a name it is the administrator."""

    name: str = ""
    groups: Sequence[str] = ()


ADMINISTRATOR: Final = User()
CONTROL_PLANE: Final = User("rome", ("liqo.io", "system:authenticated"))
EPHEMERAL: Final = User("system:kube-controller-manager", ("system:authenticated",))
"""Who makes the claims of ephemeral volumes."""
KUBELET: Final = User("milan-x", ("rome", "system:authenticated"))


@dataclass(frozen=True)
class Answer:
    """What the API server says: a status, and an object or the reason."""

    status: int
    body: Object

    @property
    def told(self) -> str:
        """Return why it refuses; empty where it does not."""
        is_done = self.status < http.client.BAD_REQUEST
        return "" if is_done else f"{self.status} {self.body.get('message')}"


@dataclass(frozen=True)
class Provider:
    """An API server with the namespaces of rome; nothing changes unless ``for_good``."""

    plane: Plane

    def create(
        self, obj: Object, kind: Kind, *, for_good: bool = False, user: User | None = None
    ) -> str:
        path = wire.collection(kind, key_of(obj).namespace)
        return self.send(
            "POST", path, wire.typed(kind, obj), user or user_of_kind(kind), for_good=for_good
        ).told

    def patch(
        self,
        kind: Kind,
        name: str,
        changes: Object,
        *,
        user: User | None = None,
        for_good: bool = False,
    ) -> str:
        path = wire.path(kind, Key(space_of(kind), name))
        as_ = user or user_of_kind(kind)
        return self.send("PATCH", path, changes, as_, for_good=for_good).told

    def replace(self, kind: Kind, obj: Object, *, user: User | None = None) -> str:
        return self.send("PUT", wire.path(kind, key_of(obj)), obj, user or user_of_kind(kind)).told

    def delete(
        self, kind: Kind, name: str, *, user: User | None = None, for_good: bool = False
    ) -> str:
        path = wire.path(kind, Key(space_of(kind), name))
        return self.send("DELETE", path, None, user or user_of_kind(kind), for_good=for_good).told

    def read(self, kind: Kind, name: str) -> Object | None:
        answer = self.send(
            "GET", wire.path(kind, Key(space_of(kind), name)), None, ADMINISTRATOR, for_good=True
        )
        return None if answer.told else answer.body

    def annotate(self, notes: dict[str, str | None]) -> None:
        """Write annotations of the twin, as the controllers of the provider do."""
        changes = {"metadata": {"annotations": notes}}
        path = wire.path(keys.NAMESPACE, Key("", TWIN))
        assert self.send("PATCH", path, changes, ADMINISTRATOR, for_good=True).told == ""

    def send(
        self, method: str, path: str, body: Any, user: User, *, for_good: bool = False
    ) -> Answer:
        """Ask the API server as ``user``."""
        form = "merge-patch+json" if method == "PATCH" else "json"
        head = [("Content-Type", f"application/{form}")]
        head += [("Impersonate-User", user.name)] if user.name else []
        head += [("Impersonate-Group", group) for group in user.groups]
        query = "" if for_good else "?" + urlencode({"dryRun": "All"})
        connection = http.client.HTTPSConnection(
            urlsplit(self.plane.server).netloc,
            timeout=PATIENCE_S,
            context=_tls(self.plane.files.pki),
        )
        with contextlib.closing(connection):
            connection.putrequest(method, path + query)
            content = b"" if body is None else json.dumps(body).encode()
            for name, value in [*head, ("Content-Length", str(len(content)))]:
                connection.putheader(name, value)
            connection.endheaders(content)
            answer = connection.getresponse()
            text = answer.read()
        return Answer(answer.status, json.loads(text) if text.startswith(b"{") else {})

    def is_judged(self) -> bool:
        """Whether each of the policies refuses by now what it is there for."""
        addressed = made(keys.SERVICE, spec={"externalIPs": ["192.0.2.1"]})
        unmarked = made(keys.RESOURCE_SLICE, metadata={"labels": None})
        told = (
            self.create(addressed, keys.SERVICE),
            self.create(unmarked, keys.RESOURCE_SLICE),
            self.delete(keys.RESOURCE_SLICE, "probe"),
        )
        return all(name in said for name, said in zip(policytable.POLICIES, told, strict=True))


@functools.cache
def _tls(pki: Path) -> ssl.SSLContext:
    context = credentials.trusting((pki / "ca.crt").read_bytes())
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return context


def user_of_kind(kind: Kind) -> User:
    """Return who of a consumer writes ``kind``."""
    return CONTROL_PLANE if kind in allowlist.REPLICAS else KUBELET


def space_of(kind: Kind) -> str:
    """Return in which namespace of rome ``kind`` lies."""
    return SPACE if kind in allowlist.REPLICAS else TWIN


def made(kind: Kind, name: str = "x", /, **changes: Any) -> Object:
    """Return an object as a consumer may send it, with ``changes`` merged into it."""
    if kind not in SPECS:
        return twins.merged(_REFLECTED[kind](TWIN, name), changes)
    labels = REPLICA if kind in allowlist.REPLICAS else {keys.ORIGIN: "rome"}
    key = Key(space_of(kind), name)
    obj = named(kind, key, metadata={"labels": labels}, spec=SPECS[kind])
    return twins.merged(obj, changes)


_REFLECTED: Final[dict[Kind, Callable[[str, str], Object]]] = {
    keys.CONFIG_MAP: factories.config_map,
    keys.SECRET: factories.secret,
    keys.SERVICE: factories.service,
    keys.INGRESS: factories.ingress,
    keys.PERSISTENT_VOLUME_CLAIM: twins.claim,
}
ROLES: Final = (keys.REMOTE_CONTROLPLANE_ROLE, keys.VIRTUAL_KUBELET_REMOTE_ROLE)


def judged_provider(plane: Plane) -> Provider:
    """Return ``plane`` as a provider with rome's namespaces and rights, judged by the policies."""
    kubectl = Kubectl(plane.kubeconfig)
    of_tenants = {keys.TENANT_NAMESPACE: "true", keys.REMOTE_CLUSTER_ID: "rome"}
    spaces = [
        factories.namespace(SPACE, **of_tenants),
        factories.namespace(TWIN, **{keys.REMOTE_CLUSTER_ID: "rome"}),
    ]
    roles = [documents.named("ClusterRole", role) for role in ROLES]
    claims = users.rights(_CLAIMS, user=EPHEMERAL.name)
    kubectl.apply([*spaces, *roles, *bindings(), *claims, twins.silver()])
    kubectl.apply(
        [obj for obj in documents.everything() if obj["metadata"]["name"] in policytable.POLICIES]
    )
    provider = Provider(plane)
    kubectl.apply([local_one(keys.RESOURCE_SLICE, "probe")])
    wait_until(provider.is_judged)
    return provider


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end


def local_one(kind: Kind, name: str) -> Object:
    """Return what the provider itself replicates to rome, where both offload to each other."""
    labels = {keys.REPLICATION: "true", keys.REMOTE_ID: "rome", keys.REMOTE_CLUSTER_ID: "rome"}
    key = Key(SPACE, name)
    return named(kind, key, metadata={"labels": labels}, spec={**SPECS[kind], **_OF_ITS_OWN[kind]})


_OF_ITS_OWN: Final[dict[Kind, Object]] = {
    keys.NAMESPACE_MAP: {"desiredMapping": {"shop": "shop-milan"}},
    keys.RESOURCE_SLICE: {"resources": {"cpu": "1"}},
    keys.RENEW: {"consumerClusterID": "milan"},
}


_CLAIMS: Final = {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["create"]}


def bindings() -> list[Object]:
    subjects = ({"kind": "User", "name": "rome"}, {"kind": "Group", "name": "rome"})
    rows = zip((SPACE, TWIN), ROLES, subjects, strict=True)
    return [
        named(
            keys.ROLE_BINDING,
            Key(space, "rome"),
            subjects=[{**subject, "apiGroup": keys.RBAC_GROUP}],
            roleRef={"apiGroup": keys.RBAC_GROUP, "kind": "ClusterRole", "name": role},
        )
        for space, role, subject in rows
    ]
