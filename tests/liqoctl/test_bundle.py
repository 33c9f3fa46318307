"""The archive for a maintainer holds what there is, and no secret."""

import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from apis import keys, objects
from apis.objects import Key, Object
from liqoctl.forge import backup
from liqoctl.options import cli
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests import factories

CANARY = "canary-7f3a"
PEM = f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    "said",
    [
        f"key {PEM} end",
        f"-----BEGIN CERTIFICATE-----{CANARY}",
        f"Authorization: Bearer {CANARY}",
        f"proxy http://rome:{CANARY}@proxy.example:3128 refused",
        f"token eyJhbGciOi.eyJ{CANARY}.{CANARY}",
    ],
)
def test_a_log_loses_credentials_and_nothing_else(said: str) -> None:
    assert CANARY not in backup.without_credentials(said)
    assert backup.HIDDEN in backup.without_credentials(said)
    assert (
        backup.without_credentials("reconciled tenant rome: 3 objects")
        == "reconciled tenant rome: 3 objects"
    )


def test_fields_that_may_hold_secrets_are_left_out_at_any_depth() -> None:
    found: Object = {
        "metadata": {"name": "x", "annotations": {"a": CANARY}, "managedFields": []},
        "spec": {
            "authParams": {"ca": CANARY},
            "pod": {"containers": [{"name": "c", "env": [{"value": CANARY}], "args": [CANARY]}]},
        },
        "status": {"conditions": [{"message": f"said {PEM}"}]},
    }
    made = backup.without_secrets(found)

    assert CANARY not in json.dumps(made)
    assert made["spec"]["pod"]["containers"][0]["name"] == "c"
    assert made["metadata"] == {"name": "x", "annotations": backup.HIDDEN}


def test_no_secrets_are_read() -> None:
    assert keys.SECRET not in (*backup.BUNDLED, *backup.BUNDLED_OF_PYLIQO)


@pytest.mark.cluster
@pytest.mark.usefixtures("crds")
def test_the_archive_of_a_cluster_has_no_canary(plane: Plane, tmp_path: Path) -> None:
    space = factories.namespace("liqo-tenant-bundle", **{keys.TENANT_NAMESPACE: "true"})
    where, config = Key("liqo-tenant-bundle", "kept"), {"password": CANARY}
    kubectl, path = Kubectl(plane.kubeconfig), tmp_path / "out.tar.gz"
    path.write_text("older")
    path.chmod(0o644)
    pod = factories.pod(where.namespace, "vk", spec=factories.pod_spec())
    (first,) = pod["spec"]["containers"]
    pod["spec"]["containers"].append({**first, "name": "second"})
    kubectl.apply([space])
    kubectl.apply(
        [
            objects.named(keys.SECRET, where, stringData=config),
            objects.named(keys.CONFIG_MAP, where, data=config),
            objects.named(keys.SERVICE_ACCOUNT, Key(where.namespace, "default")),
            pod,
        ]
    )

    done = CliRunner().invoke(
        cli, ["--kubeconfig", str(plane.kubeconfig), "bundle", "--file", str(path)]
    )

    assert done.exit_code == 0, done.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        held = {
            member.name: file.read().decode()
            for member in archive
            if (file := archive.extractfile(member))
        }
    assert CANARY not in "".join(held.values())
    maps = json.loads(held["pyliqo/objects/configmaps.core.json"])
    assert {"kept"} <= {one["metadata"]["name"] for one in maps}
    assert "gitVersion" not in held["pyliqo/versions.json"]
    assert json.loads(held["pyliqo/versions.json"])["server"].startswith("v1.")
    assert not [name for name in held if "secret" in name]
    for name in (first["name"], "second"):  # which no node runs
        assert f"pyliqo/logs/{where.namespace}/vk/{name}.log" in held
    kubectl.run("delete", "namespace", "liqo-tenant-bundle", "--wait=false")
