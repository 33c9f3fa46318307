"""What a consumer sends into its twins, and what is said to it."""

import asyncio
import json
import time
from typing import Final

from apis import keys, naming
from apis.objects import Key, Object, named
from apis.offloading import MappedNamespace
from apis.providerpolicy import OUTWARD, AllowedReflection
from reflector.kinds.contract import KindReflection, ReflectionContext
from sandbox.kubectl import Kubectl, KubectlError
from tests import factories

PAIR: Final = MappedNamespace("rome", "milan", "shop", "consumed-by-rome")
TWIN: Final = PAIR.remote_namespace
OPEN: Final = MappedNamespace("rome", "milan", "shop", "opened-to-rome")
"""Its provider offers all types of Services."""
CLASSED: Final = "classes-for-rome"
"""So does that of this twin, load balancers of one class."""
_USER: Final = naming.quota_name("milan", "rome")
ROME: Final = (f"--as={_USER}", "--as-group=rome", "--as-group=system:authenticated")
"""A virtual kubelet of rome's, as its certificate says."""
PATIENCE_S: Final = 300


def claim(namespace: str, name: str) -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return named(keys.PERSISTENT_VOLUME_CLAIM, Key(namespace, name), spec=spec)


def merged(obj: Object, changes: Object) -> Object:
    """Return ``obj`` with ``changes`` merged into its dicts; None takes a field away."""
    made = dict(obj)
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(made.get(name), dict):
            made[name] = merged(made[name], value)
        elif value is None:
            made.pop(name, None)
        else:
            made[name] = value
    return made


def dry_create(kubectl: Kubectl, items: list[Object], *who: str) -> str:
    """Return what is said to those who create ``items``; nothing changes."""
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    try:
        kubectl.run("create", "--dry-run=server", "-f", "-", *who, stdin=listed)
    except KubectlError as error:
        return str(error)
    return ""


def forged_twin(forge: KindReflection, original: Object, pair: MappedNamespace = PAIR) -> Object:
    """Return the twin of ``original`` by a reflector that knows what its provider offers."""
    offers = AllowedReflection(OUTWARD) if pair == OPEN else AllowedReflection()
    return forge.twin(original, ReflectionContext(pair, offers=offers))


def twin_of_rome(namespace: str, annotations: dict[str, str]) -> list[Object]:
    metadata = {"labels": {keys.REMOTE_CLUSTER_ID: "rome"}, "annotations": annotations}
    subject = {"kind": "Group", "apiGroup": keys.RBAC_GROUP, "name": "rome"}
    role = {
        "apiGroup": keys.RBAC_GROUP,
        "kind": "ClusterRole",
        "name": keys.VIRTUAL_KUBELET_REMOTE_ROLE,
    }
    binding = named(keys.ROLE_BINDING, Key(namespace, "rome"), subjects=[subject], roleRef=role)
    return [named(keys.NAMESPACE, Key("", namespace), metadata=metadata), binding]


def silver(*, is_default: str = "true") -> Object:
    annotations = {keys.DEFAULT_STORAGE_CLASS: is_default}
    return named(
        keys.STORAGE_CLASS, Key("", "silver"),
        metadata={"annotations": annotations}, provisioner="a.io/b",
    )  # fmt: skip


async def until_in_force(admin: Kubectl) -> None:
    until = time.monotonic() + PATIENCE_S
    while "liqo-consumers" not in dry_create(
        admin, [factories.service(TWIN, externalIPs=["192.0.2.1"])], *ROME
    ):
        assert time.monotonic() < until, "the policy is not in force"
        await asyncio.sleep(0.2)


async def until_refused(provider: Kubectl, obj: Object, told: str) -> None:
    until = time.monotonic() + PATIENCE_S  # as below
    while told not in dry_create(provider, [obj], *ROME):
        assert time.monotonic() < until, told
        await asyncio.sleep(0.2)


async def until_taken(provider: Kubectl, obj: Object) -> None:
    until = time.monotonic() + PATIENCE_S  # the API server learns of the change a moment later
    while said := dry_create(provider, [obj], *ROME):
        assert time.monotonic() < until, said
        await asyncio.sleep(0.2)
