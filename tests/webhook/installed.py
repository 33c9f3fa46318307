"""A webhook in front of a real API server, registered as the manifests say, for one run's objects.

What carries the label ``judged: <run>`` is judged, so that tests of others are left alone.
"""

import base64
import contextlib
import functools
import http.client
import json
import secrets
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from apis import keys
from apis.objects import Key, Kind, Object, named
from kube import credentials
from sandbox.controlplane import Plane
from tests.factories import pod, pod_spec
from tests.manifests import documents, policies
from tests.webhook import reviews
from tests.webhook.hooked import Hooked, start
from tests.webhook.reviews import wait_until
from tests.webhook.served import CA, address

CONSUMER: Final = "rome"
EXEMPT: Final = "system:masters"
"""The group that may do everything, so that only admission says no."""
MANAGER: Final = "tests"


POLICIES: Final = {
    kind: Kind("admissionregistration.k8s.io", "v1", kind, plural, namespaced=False)
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
}


@dataclass(frozen=True)
class User:
    """Who asks; without a name it is the administrator."""

    name: str = ""
    groups: Sequence[str] = ()


ADMINISTRATOR: Final = User()


@dataclass(frozen=True)
class Answer:
    """What the API server said: an HTTP status, and an object or a Status."""

    status: int
    body: Object

    @property
    def is_done(self) -> bool:
        return self.status < http.client.BAD_REQUEST

    @property
    def message(self) -> str:
        return "" if self.is_done else str(self.body.get("message"))


@dataclass
class Installed:
    """The API server and the webhook; ``milan`` is a virtual node in eu, ``boston`` one in us."""

    plane: Plane
    hooked: Hooked
    milan: str
    boston: str
    _context: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def run(self) -> str:
        return self.hooked.run

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        form: str = "json",
        user: User = ADMINISTRATOR,
        **query: str,
    ) -> Answer:
        """Ask the API server, as its administrator or as ``user``."""
        head = [("Content-Type", f"application/{form}")]
        head += [("Impersonate-User", user.name)] if user.name else []
        head += [("Impersonate-Group", group) for group in user.groups]
        host = urlsplit(self.plane.server).netloc
        connection = http.client.HTTPSConnection(host, timeout=300, context=self._tls())
        with contextlib.closing(connection):
            connection.putrequest(method, f"{path}?{urlencode(query)}")
            content = b"" if body is None else json.dumps(body).encode()
            for name, value in [*head, ("Content-Length", str(len(content)))]:
                connection.putheader(name, value)
            connection.endheaders(content)
            answer = connection.getresponse()
            text = answer.read()
        return Answer(answer.status, json.loads(text) if text.startswith(b"{") else {})

    def create(self, kind: Kind, obj: Object, **how: Any) -> Answer:
        return self.send("POST", path_of(kind, obj, is_list=True), obj, **how)

    def apply(self, kind: Kind, obj: Object, **how: Any) -> Answer:
        how = {"fieldManager": MANAGER, "force": "true", **how}
        return self.send("PATCH", path_of(kind, obj), obj, form="apply-patch+yaml", **how)

    def read(self, kind: Kind, obj: Object) -> Object | None:
        found = self.send("GET", path_of(kind, obj))
        assert found.status in (200, 404), found
        return found.body if found.is_done else None

    def space(self, labels: dict[str, str] | None = None) -> str:
        """Make a namespace whose objects are judged."""
        name = f"live-{secrets.token_hex(4)}"
        metadata = {"labels": {"judged": self.run, **(labels or {})}}
        made = self.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name), metadata=metadata))
        assert made.is_done, made
        return name

    def twin(self, consumer: str = CONSUMER) -> str:
        """Make a namespace in which the consumer may do what virtual kubelets do, by now."""
        name = self.space({keys.REMOTE_CLUSTER_ID: consumer})
        self.grant(name, keys.VIRTUAL_KUBELET_REMOTE_ROLE, "Group", consumer)
        user = User("anybody", [consumer])
        path = path_of(keys.SHADOW_POD, named(keys.SHADOW_POD, Key(name, "any")), is_list=True)
        reviews.wait_until(lambda: self.send("GET", path, user=user).is_done)
        return name

    def offloaded(self, *, label: str = "true", **spec: Any) -> str:
        """Make a namespace that is offloaded as ``spec`` says, and labelled as pyliqo does."""
        name = self.space({keys.SCHEDULING_ENABLED: label})
        made = self.create(keys.NAMESPACE_OFFLOADING, reviews.offloading(name, **spec))
        assert made.is_done, made
        return name

    @functools.cached_property
    def scraper(self) -> str:
        """Make an account that may read metrics; return its token once that is known."""
        space, name = self.space(), "scraper"
        account = named(keys.SERVICE_ACCOUNT, Key(space, name))
        assert self.create(keys.SERVICE_ACCOUNT, account).is_done
        role = {"apiGroup": keys.RBAC_GROUP, "kind": "ClusterRole", "name": "system:monitoring"}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": space}
        binding = named(keys.CLUSTER_ROLE_BINDING, Key("", space), roleRef=role, subjects=[subject])
        assert self.create(keys.CLUSTER_ROLE_BINDING, binding).is_done
        user = User(f"system:serviceaccount:{space}:{name}")
        reviews.wait_until(lambda: self.send("GET", "/metrics", user=user).is_done)
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = self.send("POST", path_of(keys.SERVICE_ACCOUNT, account, part="token"), asked)
        return str(made.body["status"]["token"])

    def grant(self, namespace: str, role: str, kind: str, subject: str) -> None:
        """Bind ``role``, a ClusterRole, in the namespace."""
        path = f"/apis/{keys.RBAC_GROUP}/v1/namespaces/{namespace}/rolebindings"
        binding = {
            "apiVersion": f"{keys.RBAC_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": keys.RBAC_GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": keys.RBAC_GROUP, "kind": kind, "name": subject}],
        }
        assert self.send("POST", path, binding).is_done

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            pki = self.plane.files.pki
            self._context = credentials.trusting((pki / "ca.crt").read_bytes())
            self._context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        return self._context


def path_of(kind: Kind, obj: Object, *, is_list: bool = False, part: str = "") -> str:
    """Return the path of ``obj``, or of the list that it is in."""
    metadata = obj["metadata"]
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    where = f"/namespaces/{metadata['namespace']}" if kind.namespaced else ""
    whole = f"{root}{where}/{kind.plural}"
    return whole if is_list else "/".join(filter(None, (whole, metadata["name"], part)))


@contextlib.contextmanager
def installed(plane: Plane, directory: Path, *flags: str) -> Iterator[Installed]:
    """Yield it once all that is registered is called; take the registration away at the end."""
    hooked = start(plane.kubeconfig, directory, *flags)
    mark = hooked.run.removeprefix("run-")
    found = Installed(plane, hooked, f"milan-{mark}", f"boston-{mark}")
    made: list[tuple[Kind, Object]] = []
    try:
        _prepare(found)
        for name, region in ((found.milan, "eu"), (found.boston, "us")):
            labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, "region": region}
            made.append((keys.NODE, named(keys.NODE, Key("", name), metadata={"labels": labels})))
        for kind in (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS):
            hooks = [_own(hook, hooked) for hook in _registered(kind)]
            made.append((kind, named(kind, Key("", hooked.run), webhooks=hooks)))
        made += [(POLICIES[obj["kind"]], obj) for obj in policies.of_namespaces(hooked.run)]
        for kind, obj in made:
            assert found.create(kind, obj).is_done
        wait_until(hooked.is_ready)
        wait_until(lambda: _is_called(found))
        yield found
    finally:
        for kind, obj in reversed(made):
            found.send("DELETE", path_of(kind, obj))
        hooked.process.kill()
        hooked.process.wait()


def _registered(kind: Kind) -> list[Object]:
    return list(documents.named(kind.kind, keys.WEBHOOK_CONFIGURATION)["webhooks"])


def _own(hook: Object, hooked: Hooked) -> Object:
    """Return ``hook`` as registered, but for where it is, how long it may take, whom it judges."""
    client = {
        "url": address(hook, hooked.port),
        "caBundle": base64.b64encode(CA.certificate).decode(),
    }
    field_ = "namespaceSelector" if hook["rules"][0]["scope"] == "Namespaced" else "objectSelector"
    selector = hook.get(field_) or {}
    wanted = {"key": "judged", "operator": "In", "values": [hooked.run]}
    selector = {
        **selector, "matchExpressions": [*selector.get("matchExpressions", []), wanted]
    }  # fmt: skip
    return {**hook, "clientConfig": client, "timeoutSeconds": 30, field_: selector}


def _prepare(found: Installed) -> None:
    """Make what the rules refer to, and what other tests may have made already."""
    roles = [
        role
        for role in documents.of_kind("ClusterRole")
        if role["metadata"]["name"]
        in (keys.VIRTUAL_KUBELET_REMOTE_ROLE, keys.REMOTE_CONTROLPLANE_ROLE)
    ]
    for role in roles:
        path = f"/apis/{keys.RBAC_GROUP}/v1/clusterroles/{role['metadata']['name']}"
        assert _applied(found, path, role)
    space = named(keys.NAMESPACE, Key("", keys.LIQO_NAMESPACE))
    assert _applied(found, path_of(keys.NAMESPACE, space), space)
    runtime = documents.named("RuntimeClass", keys.RUNTIME_CLASS)
    assert _applied(found, path_of(keys.RUNTIME_CLASSES, runtime), runtime)
    spec = {
        "containerImage": "i",
        "createNode": True,
        "disableNetworkCheck": False,
        "metricsEnabled": False,
        "labelsNotReflected": ["secret"],
    }
    template = named(keys.VK_OPTIONS_TEMPLATE, Key(keys.LIQO_NAMESPACE, found.run), spec=spec)
    assert _applied(found, path_of(keys.VK_OPTIONS_TEMPLATE, template), template)


def _applied(found: Installed, path: str, obj: Object) -> bool:
    how: Any = {"fieldManager": MANAGER, "force": "true"}
    return found.send("PATCH", path, obj, form="apply-patch+yaml", **how).is_done


def _is_called(found: Installed) -> bool:
    """Whether the API server knows both configurations, and the webhook both nodes."""
    space = found.space({keys.SCHEDULING_ENABLED: "true"})
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}
    wrong = reviews.offloading(space, clusterSelector={"nodeSelectorTerms": [term]})
    local = found.offloaded(podOffloadingStrategy="Local")
    refused = [
        *(
            found.create(keys.POD, pod(local, name, spec=pod_spec(nodeName=name)))
            for name in (found.milan, found.boston)
        ),
        found.create(keys.POD, pod(space)),
        found.create(keys.NAMESPACE_OFFLOADING, wrong),
    ]
    return not any(answer.is_done for answer in refused)
