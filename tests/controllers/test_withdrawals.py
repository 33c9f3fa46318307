"""No provider keeps a namespace of the consumer from its end. Source: docs/parity.md H4."""

from datetime import timedelta

from apis import keys, objects
from apis.objects import Key
from controllers.offloading.namespaceoffloading import reconciler
from tests.controllers.rome import Rome
from tests.controllers.support import end, there
from tests.controllers.test_namespaceoffloading import rome  # noqa: F401  # a fixture

EVIL = "\x1b[2J" + 200_000 * "A"


async def test_an_entry_that_nobody_asked_for_counts_for_nothing(rome: Rome) -> None:  # noqa: F811
    await rome.peer("turin", labels={"region": "us"})
    terms = [{"matchExpressions": [{"key": "region", "operator": "DoesNotExist"}]}]
    await rome.offload(clusterSelector={"nodeSelectorTerms": terms})
    await rome.answer("milan", "Accepted")
    await rome.answer("turin", "Terminating", message=EVIL)
    await rome.settle()
    assert await rome.desired("turin") == {}
    told = (await rome.status())["remoteNamespacesConditions"]["turin"]
    assert [one["type"] for one in told] == ["OffloadingRequired"]

    await end(rome.cluster, keys.NAMESPACE_OFFLOADING, rome.key)
    await rome.settle()
    assert await rome.cluster.get_live(keys.NAMESPACE_OFFLOADING, rome.key), "milan has its twin"
    await rome.answer("milan", None)
    await rome.settle()

    assert await rome.cluster.get_live(keys.NAMESPACE_OFFLOADING, rome.key) is None


async def test_a_cluster_that_never_gives_its_twin_up_is_not_waited_for(rome: Rome) -> None:  # noqa: F811
    await rome.offload()
    await rome.answer("milan", "Accepted", message=EVIL)
    await rome.settle()
    assert len(await rome.bound()) == 1
    await end(rome.cluster, keys.NAMESPACE_OFFLOADING, rome.key)
    await rome.settle()
    assert await rome.bound(), "it may still have to end pods"
    assert await rome.reconciler.reconcile(rome.key) == reconciler.REVOKED_S

    rome.now += timedelta(seconds=reconciler.REVOKED_S)
    left_s = await rome.reconciler.reconcile(rome.key)
    assert await rome.bound() == []
    assert left_s == reconciler.LET_GO_S - reconciler.REVOKED_S
    assert await rome.cluster.get_live(keys.NAMESPACE_OFFLOADING, rome.key)

    rome.now += timedelta(seconds=left_s)
    await rome.settle()
    assert await rome.cluster.get_live(keys.NAMESPACE_OFFLOADING, rome.key) is None
    await there(rome.cluster, keys.NAMESPACE_MAP, Key(rome.home("milan"), "milan"))
    assert rome.told.reasons == ["TwinMayBeLeft"]


async def test_a_clock_that_is_set_back_keeps_no_namespace_from_its_end(rome: Rome) -> None:  # noqa: F811
    await rome.offload()
    await rome.answer("milan", "Accepted")
    await rome.settle()
    await end(rome.cluster, keys.NAMESPACE_OFFLOADING, rome.key)
    await rome.settle()

    rome.set_back(3600)
    rome.now += timedelta(seconds=reconciler.REVOKED_S)
    left_s = await rome.reconciler.reconcile(rome.key)
    assert await rome.bound() == []
    assert left_s == reconciler.LET_GO_S - reconciler.REVOKED_S

    rome.now += timedelta(seconds=left_s)
    await rome.settle()
    assert await rome.cluster.get_live(keys.NAMESPACE_OFFLOADING, rome.key) is None


async def test_a_restart_goes_on_counting(rome: Rome) -> None:  # noqa: F811
    await rome.offload()
    await rome.answer("milan", "Accepted")
    await rome.settle()
    await end(rome.cluster, keys.NAMESPACE_OFFLOADING, rome.key)
    await rome.settle()

    rome.now += timedelta(seconds=reconciler.REVOKED_S)
    rome.__post_init__()
    await rome.settle()
    assert await rome.bound() == []
    rome.now += timedelta(seconds=reconciler.LET_GO_S - reconciler.REVOKED_S)
    rome.__post_init__()
    await rome.settle()
    assert await rome.cluster.get_live(keys.NAMESPACE_OFFLOADING, rome.key) is None


async def test_a_cluster_that_is_selected_no_more_keeps_no_rights(rome: Rome) -> None:  # noqa: F811
    await rome.offload()
    await rome.answer("milan", "Accepted")
    await rome.settle()
    terms = [{"matchExpressions": [{"key": "region", "operator": "Exists"}]}]
    spec = {"spec": {"clusterSelector": {"nodeSelectorTerms": terms}}}
    await rome.cluster.patch(keys.NAMESPACE_OFFLOADING, rome.key, spec)
    await rome.settle()
    assert await rome.desired("milan") == {}
    assert await rome.bound()

    rome.now += timedelta(seconds=reconciler.REVOKED_S)
    await rome.settle()
    assert await rome.bound() == []

    rome.now += timedelta(seconds=reconciler.LET_GO_S)
    rome.__post_init__()
    await rome.settle()
    told = (await rome.status())["remoteNamespacesConditions"]["milan"]
    ready = objects.find_condition(told, "Ready") or {}
    assert (ready["status"], ready["reason"]) == ("Unknown", "TwinMayBeLeft")
    assert "ask its administrator whether something is left" in ready["message"]
    await rome.answer("milan", None)
    await rome.settle()
    told = (await rome.status())["remoteNamespacesConditions"]["milan"]
    assert objects.find_condition(told, "Ready") is None


async def test_what_a_cluster_says_is_bounded_and_escaped(rome: Rome) -> None:  # noqa: F811
    await rome.offload()
    await rome.answer("milan", "CreationLoopBackOff", message=EVIL)
    await rome.settle()

    said = str((await rome.status())["remoteNamespacesConditions"])
    assert len(said) < 4096
    assert "\x1b" not in said
