"""An API server with all of the manifests, beside the one that has our kinds only."""

import asyncio
import json
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from apis import keys
from sandbox import controlplane
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl, KubectlError
from tests.manifests import asking, documents, policies, twins

WITHIN_S = 300
SEED = int(os.environ.get("PYLIQO_TEST_ORDER", "20251123"))


@pytest.fixture(scope="package")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """Yield kubectl towards an API server on which everything was applied in a random order."""
    folder = tmp_path_factory.mktemp("manifests")
    with controlplane.start(folder, flags=policies.flags(os.environ)) as installed:
        kubectl = Kubectl(installed.kubeconfig)
        objects = list(documents.everything())
        random.Random(SEED).shuffle(objects)  # noqa: S311  # any order will do
        converge(kubectl, objects)
        yield kubectl


@pytest.fixture(scope="package")
def kinds(plane: Plane, crds: None) -> Kubectl:
    """Return kubectl towards the API server that has our kinds, and no webhooks."""
    return Kubectl(plane.kubeconfig)


@pytest.fixture(scope="module")
def provider(admin: Kubectl) -> Kubectl:
    """Return kubectl towards milan with a twin of rome, once the policy is in force."""
    classes = {keys.OFFERED_STORAGE_CLASSES: "silver,bronze", keys.OFFERED_INGRESS_CLASSES: "outer"}
    outward = {keys.OFFERED_SERVICE_TYPES: "LoadBalancer,NodePort"}
    of_class = {**outward, keys.OFFERED_LOAD_BALANCER_CLASSES: "a.io/b"}
    admin.apply(
        [
            *twins.twin_of_rome(twins.OPEN.remote_namespace, outward),
            *twins.twin_of_rome(twins.CLASSED, of_class),
        ]
    )
    admin.apply([*twins.twin_of_rome(twins.TWIN, classes), twins.silver()])
    asyncio.run(twins.until_in_force(admin))
    asyncio.run(twins.until_taken(admin, twins.claim(twins.TWIN, "of-the-default-class")))
    return admin


@pytest.fixture(scope="module")
def milan(own_plane: Plane) -> asking.Provider:
    """Return an API server that judges what rome asks of it, and nobody else."""
    return asking.judged_provider(own_plane)


def converge(kubectl: Kubectl, objects: list[dict[str, Any]]) -> None:
    """Apply ``objects`` in this order, again and again while some are refused."""
    documents_ = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    refusals = []
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        try:
            kubectl.run("apply", "-f", "-", stdin=documents_)
        except KubectlError as error:
            refusals.append(str(error))
        else:
            return
    raise AssertionError(f"seed {SEED}: {refusals}")
