"""A slice is answered once its cluster is authenticated over there, by whichever way.

Source: docs/parity.md § 7.4, 4.9.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from apis import naming
from tests import factories
from tests.peering import world
from tests.peering.typed import type_in, typed_blocks
from tests.peering.world import SPACE, World

pytestmark = pytest.mark.cluster

HERE = naming.tenant_namespace("milan")
SLICES = "resourceslices.authentication.liqo.io"


def by_command(both: World, _: Path) -> None:
    done = both.between("authenticate", "rome", "milan")
    assert done.exit_code == 0, done.output


def by_hand(both: World, directory: Path) -> None:
    """As docs/peering.md has it."""
    steps, _ = typed_blocks()
    type_in(both, steps, directory)


def quotas(both: World, name: str) -> list[tuple[str, str]]:
    """Return namespace and CPUs of that slice's Quota; nobody collects those of others."""
    found = [
        (one["metadata"]["namespace"], one["spec"])
        for one in both["milan"].get("quotas.offloading.liqo.io", "-A")
    ]
    user = naming.quota_name(name, "rome")
    return [(space, spec["resources"]["cpu"]) for space, spec in found if spec["user"] == user]


@pytest.mark.parametrize(("name", "authenticate"), [("mypool", by_command), ("byhand", by_hand)])
def test_a_slice_gets_nothing_before_its_cluster_is_authenticated_and_its_amounts_after(
    both: World, tmp_path: Path, name: str, authenticate: Callable[[World, Path], None]
) -> None:
    rome, milan = both["rome"].kubectl, both["milan"]
    rome.apply([factories.tenant_namespace(HERE, "milan")])
    secret = ("secret", naming.kubeconfig_secret(naming.resourceslice_identity(name)), "-n", HERE)
    create = ("create", "resourceslice", name, "--remote-cluster-id=milan", "--no-virtual-node")

    told = both.liqoctl("rome", *create, "--timeout=5s")

    assert told.exit_code == 1
    assert "liqoctl authenticate" in " ".join(told.output.split())
    assert milan.get(SLICES, "-A") == []
    assert quotas(both, name) == []
    assert world.refusal(rome, "get", *secret)

    authenticate(both, tmp_path)

    again = both.liqoctl("rome", *create, f"--timeout={world.PATIENCE_S}s")
    assert again.exit_code == 0, again.output
    status = rome.get(SLICES, name, "-n", HERE)["status"]
    assert {one["type"]: one["status"] for one in status["conditions"]} == {
        "Authentication": "Accepted",
        "Resources": "Accepted",
    }
    assert status["resources"]["cpu"] == "4"
    world.wait(lambda: not world.refusal(rome, "get", *secret), "its kubeconfig")
    world.wait(lambda: quotas(both, name) == [(SPACE, "4")], "its Quota")
    gone = both.liqoctl("rome", "delete", "resourceslice", name, "--skip-confirm")
    assert gone.exit_code == 0, gone.output
    both.unpeer("rome", "milan")
