"""What a Pod takes once it is admitted: as a real API server's LimitRanger and RuntimeClass say."""

import asyncio
import itertools
import secrets
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Key, Object, named
from apis.quotas import Demand
from controllers.offloading.quota.forge import completed
from kube.cluster import Cluster, Selection
from tests import factories

RANGES: Final[list[Object]] = [
    {"type": "Container", "defaultRequest": {"cpu": "250m"}},
    {"type": "Container", "default": {"memory": "64Mi"}},
    {"type": "Container", "max": {"ephemeral-storage": "1Gi"}},
    {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
]
GPU: Final = {"example.com/gpu": "1"}
HEAVY: Final = {"cpu": "500m", "memory": "32Mi"}


def sized(requests: Object | None = None, limits: Object | None = None, **more: Any) -> Object:
    declared = {"requests": requests or {}, "limits": limits or {}}
    return {"name": secrets.token_hex(4), "image": "nginx", "resources": declared, **more}


SILENT: Final = sized()
SIDECAR: Final = sized(restartPolicy="Always")
SAYS_NOTHING: Final = "nothing said"
ROWS: Final[dict[str, Object]] = {
    SAYS_NOTHING: {"containers": [SILENT]},
    "two of them": {"containers": [SILENT, sized()]},
    "all said": {"containers": [sized({"cpu": "1", "memory": "16Mi"})]},
    "nothing is an amount": {"containers": [sized({"cpu": "0"})]},
    "one said": {"containers": [sized({"cpu": "100m"})]},
    "a limit is a request": {"containers": [sized(None, {"memory": "128Mi"})]},
    "another resource": {"containers": [sized(GPU, GPU)]},
    "an init container": {"containers": [sized({"cpu": "1m"})], "initContainers": [SILENT]},
    "a sidecar": {"containers": [SILENT], "initContainers": [SIDECAR, sized()]},
    "a heavy class": {"containers": [SILENT], "runtimeClassName": "HEAVY"},
    "a light class": {"containers": [SILENT], "runtimeClassName": "LIGHT"},
}  # fmt: skip


async def in_force(cluster: Cluster, namespace: str, foreseen: Demand) -> None:
    """Wait until the API server's own watch has told it of every range."""
    spec = factories.pod_spec(**ROWS[SAYS_NOTHING])
    async with asyncio.timeout(300):
        for number in itertools.count():
            probe = factories.pod(namespace, f"probe-{number}", spec=spec)
            stored = await cluster.create(keys.POD, probe)
            if Demand.of(stored["spec"]).usage == foreseen.usage:
                return


@pytest.mark.cluster
@pytest.mark.parametrize("cluster", ["real"], indirect=True)
@pytest.mark.parametrize("count", range(len(RANGES) + 1))
async def test_a_pod_takes_what_was_foreseen(cluster: Cluster, namespace: str, count: int) -> None:
    account = named(keys.SERVICE_ACCOUNT, Key(namespace, "default"))
    await cluster.create(keys.SERVICE_ACCOUNT, account)
    for number, limit in enumerate(RANGES[:count]):
        made = named(keys.LIMIT_RANGE, Key(namespace, f"r{number}"), spec={"limits": [limit]})
        await cluster.create(keys.LIMIT_RANGE, made)
    names = {"HEAVY": f"heavy-{namespace}", "LIGHT": f"light-{namespace}"}
    for name, overhead in (("HEAVY", {"overhead": {"podFixed": HEAVY}}), ("LIGHT", {})):
        made = named(keys.RUNTIME_CLASSES, Key("", names[name]), handler="h", **overhead)
        await cluster.create(keys.RUNTIME_CLASSES, made)
    ranges = (await cluster.list(Selection(keys.LIMIT_RANGE, dict, namespace))).items.values()

    await in_force(
        cluster, namespace, completed(factories.pod_spec(**ROWS[SAYS_NOTHING]), ranges, None)
    )
    for row, said in ROWS.items():
        chosen = {"runtimeClassName": names.get(said.get("runtimeClassName", ""))}
        spec = factories.pod_spec(**{**said, **chosen})
        name = chosen["runtimeClassName"] or "none"
        runtime_class = await cluster.get_live(keys.RUNTIME_CLASSES, Key("", name))
        foreseen = completed(spec, ranges, runtime_class).usage
        name = row.replace(" ", "-")
        stored = await cluster.create(keys.POD, factories.pod(namespace, name, spec=spec))
        assert foreseen == Demand.of(stored["spec"]).usage, row
