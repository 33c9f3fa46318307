"""What consumers with Liqo's own programs sent, sent again to a provider with all that judges.

The bodies were recorded from the audit log of a provider (``tests/peering/recording.py``), by
version of Liqo; behind the consumer's replicator they are whole updates too. Source:
docs/parity.md SEC-A7, SEC-A20; § 2.1.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from apis import keys, naming
from apis.objects import Key, Kind, Object, named
from tests.peering.recording import CONSUMER
from tests.webhook import reviews
from tests.webhook.installed import Answer, Installed, User, path_of

pytestmark = pytest.mark.cluster

RECORDED: Final = Path(__file__).parents[1] / "manifests" / "liqo"
FILES: Final = sorted(RECORDED.glob("*/*.json"))
VERSIONS: Final = {"1.0.1", "557c199"}
SENT: Final = {
    "configmaps", "namespacemaps", "renews", "resourceslices", "secrets", "services",
    "shadowendpointslices", "shadowpods",
}  # fmt: skip
"""What a consumer sends."""
TENANT: Final = naming.tenant_namespace(CONSUMER)
TWIN: Final = naming.default_remote_namespace("shop", CONSUMER)
USERS: Final = {
    "control plane": User(CONSUMER, ["liqo.io", "system:authenticated"]),
    "virtual kubelet": User(f"{CONSUMER}-c34af51dd912", [CONSUMER, "system:authenticated"]),
}
FORMS: Final = {"create": "POST", "update": "PUT", "patch": "PATCH"}


@pytest.fixture(scope="module")
def liqo(provider: Installed) -> Installed:
    """Return the provider with the namespaces and the rights of the consumer."""
    of_tenants = {keys.TENANT_NAMESPACE: "true"}
    for name, more in ((TENANT, of_tenants), (TWIN, {})):
        labels = {"judged": provider.run, keys.REMOTE_CLUSTER_ID: CONSUMER, **more}
        space = named(keys.NAMESPACE, Key("", name), metadata={"labels": labels})
        assert provider.create(keys.NAMESPACE, space).is_done
    provider.grant(TENANT, keys.REMOTE_CONTROLPLANE_ROLE, "User", CONSUMER)
    provider.grant(TWIN, keys.VIRTUAL_KUBELET_REMOTE_ROLE, "Group", CONSUMER)
    may_list(provider, keys.NAMESPACE_MAP, TENANT, USERS["control plane"])
    may_list(provider, keys.SHADOW_POD, TWIN, USERS["virtual kubelet"])
    return provider


def may_list(provider: Installed, kind: Kind, space: str, user: User) -> None:
    """Return once the rights of the user are known."""
    path = path_of(kind, named(kind, Key(space, "x")), is_list=True)
    reviews.wait_until(lambda: provider.send("GET", path, user=user).is_done)


def test_each_version_has_each_kind() -> None:
    found = {(path.parent.name, read(path)["resource"]) for path in FILES}

    assert found >= {(version, kind) for version in VERSIONS for kind in SENT}


def read(path: Path) -> Object:
    found: Object = json.loads(path.read_text(encoding="utf-8"))
    return found


def kind_of(sent: Object) -> Kind:
    name = sent["body"].get("kind", "")
    return Kind(sent["group"], sent["version"], name, sent["resource"])


def send(provider: Installed, sent: Object, body: Object, verb: str, **how: Any) -> Answer:
    """Send ``body`` as the consumer does, in the way of ``verb``."""
    kind, user = kind_of(sent), USERS[sent["who"]]
    if verb == "patch":
        return provider.apply(kind, body, user=user, **how)
    path = path_of(kind, body, is_list=verb == "create")
    return provider.send(FORMS[verb], path, body, user=user, **how)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_liqo_sent_passes_and_its_whole_update_too(liqo: Installed, path: Path) -> None:
    sent = read(path)
    kind, body = kind_of(sent), sent["body"]

    if sent["verb"] == "update":  # it holds what the provider's controllers had written there
        assert liqo.create(kind, body).is_done
    else:
        assert send(liqo, sent, body, sent["verb"]).message == ""
    live = liqo.read(kind, body)
    assert live
    live["metadata"].setdefault("annotations", {})["note"] = "x"
    live["metadata"]["labels"] |= {"team": "web"}
    assert send(liqo, sent, live, "update").message == ""

    let_go: Object = {
        "metadata": {"finalizers": None}
    }  # the provider's, which no controller removes
    assert liqo.send("PATCH", path_of(kind, body), let_go, form="merge-patch+json").is_done
    assert liqo.send("DELETE", path_of(kind, body)).is_done
    reviews.wait_until(lambda: liqo.read(kind, body) is None)
