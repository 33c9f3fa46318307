"""Every process has the rights that its code needs, by the word of the API servers."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from apis import keys
from apis.objects import Key
from sandbox import audit
from tests.journeys import world
from tests.world import is_ready

pytestmark = pytest.mark.journey

FORBIDDEN = 403
OURS = {"liqo", "liqo-tenant-milan", "liqo-tenant-rome", "kube-node-lease", "kube-system"}


async def test_nothing_that_a_life_needs_is_forbidden(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path]
) -> None:
    """A namespace that ends takes nothing new, and rights in it end before it does."""
    logs = [audit.Log(path.with_name(name) / "audit.log") for name, path in kubeconfigs.items()]
    key = Key(namespace, "web")
    await both.offload(namespace)
    await both.rome.create(keys.POD, world.pod(namespace, key.name, both.image))
    await world.until_one(both.rome, keys.POD, key, is_ready)
    await world.remove(both.rome, keys.POD, key)
    await world.until_gone(both.rome, keys.POD, key)
    lived = [call for log in logs for call in log.read()]
    await both.unoffload(namespace)
    ended = [call for log in logs for call in log.read()]

    here = {namespace, both.twin(namespace), *OURS, ""}
    refused = [call for call in lived if is_refused(call) and call.namespace in here]
    assert [call for call in refused if not is_allowed_later(call, lived)] == []
    at_the_end = [
        call for call in ended if is_refused(call) and call.is_write and call.namespace in here
    ]
    others = [call for call in at_the_end if call.resource != "events"]
    assert [call for call in others if "is being terminated" not in call.message] == []


def is_refused(call: audit.Call) -> bool:
    return call.is_ours and call.code == FORBIDDEN


def is_allowed_later(call: audit.Call, calls: Iterable[audit.Call]) -> bool:
    """Whether the right came a moment after it was bound, in the namespace of a tenant.

    Only there the controllers ask at once for what they let themselves do.
    """
    return call.resource in {"secrets", "roles", "resourcequotas"} and any(
        later.code != FORBIDDEN
        and later.completed > call.completed
        and (later.agent, later.verb, later.resource, later.namespace)
        == (call.agent, call.verb, call.resource, call.namespace)
        for later in calls
    )
