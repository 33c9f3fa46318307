"""Kubeconfigs that we write can be read by the strict reader."""

import base64
import datetime as dt
import json

import pytest

from certs import pki
from certs.pki import KubeconfigIdentity
from kube import kubeconfig as reader

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
CA = pki.new_ca("ca", now=NOW, lifetime=dt.timedelta(days=1))
LEAF = pki.issue(CA, common_name="rome", client=True, now=NOW, lifetime=dt.timedelta(hours=1))


def identity(**rest: str) -> KubeconfigIdentity:
    return KubeconfigIdentity(
        name="controlplane-milan",
        cluster_id="milan",
        server="https://10.0.0.1:6443",
        ca=CA.certificate,
        certificate=LEAF.certificate,
        key=LEAF.key,
        **rest,
    )


def test_the_layout_is_that_of_the_documents() -> None:
    found = json.loads(pki.kubeconfig(identity(namespace="liqo-tenant-rome")))

    assert found["current-context"] == "default-context"
    (context,) = found["contexts"]
    assert context == {
        "name": "default-context",
        "context": {
            "cluster": "milan",
            "user": "controlplane-milan",
            "namespace": "liqo-tenant-rome",
        },
    }
    (cluster,) = found["clusters"]
    assert cluster["name"] == "milan"
    assert sorted(cluster["cluster"]) == ["certificate-authority-data", "server"]
    (user,) = found["users"]
    assert base64.b64decode(user["user"]["client-key-data"]) == LEAF.key


@pytest.mark.parametrize("rest", [{}, {"namespace": "x"}, {"proxy_url": "http://10.0.0.9:8080"}])
def test_the_strict_reader_takes_it(rest: dict[str, str]) -> None:
    found = reader.parse(pki.kubeconfig(identity(**rest)))

    assert found.server == "https://10.0.0.1:6443"
    assert (found.ca, found.certificate, found.key) == (CA.certificate, LEAF.certificate, LEAF.key)
    assert found.namespace == rest.get("namespace", "")


def test_the_key_is_not_shown() -> None:
    assert "PRIVATE" not in repr(identity())
