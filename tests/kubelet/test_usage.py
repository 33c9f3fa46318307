"""What pods use: the provider tells it, and is believed only about pods that are here."""

import json

import pytest

from apis import exposition
from apis.objects import Key, Object
from kubelet.forge import usage
from kubelet.forge.usage import Measured, NodeCpu
from tests import factories
from tests.kubelet.rigs import Rig

WEB, DB = Key("shop", "web"), Key("shop", "db")


def text(web: str = "10", db: str = "5", extra: str = "") -> str:
    cpu, memory = usage.CPU, usage.MEMORY
    return f"""\
{cpu}{{container="main",namespace="shop",pod="web"}} {web} 1000
{cpu}{{container="main",namespace="shop",pod="db"}} {db} 1000
{memory}{{container="main",namespace="shop",pod="web"}} 4096 1000
pod_cpu_usage_seconds_total{{namespace="shop",pod="web"}} 11 1000
{extra}"""


def here(*keys: Key) -> dict[Key, Measured]:
    return {key: Measured.of(factories.pod(*key)) for key in keys}


def test_only_pods_that_are_here_are_told_of() -> None:
    strange = (
        f'{usage.CPU}{{container="main",namespace="kube-system",pod="etcd"}} 99 1\n'
        f'{usage.CPU}{{container="other",namespace="shop",pod="web"}} 99 1\n'
        f'{usage.CPU}{{container="main",namespace="shop",pod="web"}} NaN 1\n'
        f'{usage.MEMORY}{{container="main",namespace="shop",pod="web"}} +Inf 99\n'
        f'{usage.MEMORY}{{container="main",namespace="shop",pod="web"}} 99e99 1\n'
        f'{usage.MEMORY}{{container="main",namespace="shop",pod="web"}} 9_9 1\n'
        f'{usage.MEMORY}{{container="main",namespace="shop",pod="web"}} 0x99 1\n'
        f'{usage.MEMORY}{{container="main",namespace="shop",pod="web"}} 1 {"9" * 30}\n'
        "node_cpu_usage_seconds_total 99 1\nscrape_error 1\n"
    )
    told = exposition.text(usage.of_pods(text(extra=strange), here(WEB)))
    assert told.count("\n") == 3
    assert "99" not in told


def node_cpu(cpu: NodeCpu, said: str, *pods: Key) -> str:
    families = usage.of_pods(said, here(*pods))
    [seconds, _] = usage.of_node(families, here(*pods), cpu, 7)
    return str(seconds.samples[0])


def test_the_cpu_of_the_node_never_goes_back() -> None:
    cpu, name = NodeCpu(), "node_cpu_usage_seconds_total{}"
    assert node_cpu(cpu, text(), WEB, DB) == f"{name} 15.0 7"
    assert node_cpu(cpu, text(web="12"), WEB, DB) == f"{name} 17.0 7"
    assert node_cpu(cpu, text(web="13"), WEB) == f"{name} 18.0 7", "db went away"
    assert node_cpu(cpu, text(web="1"), WEB) == f"{name} 19.0 7", "web was restarted"
    assert node_cpu(cpu, "", WEB) == f"{name} 19.0 7", "one answer without it"
    assert node_cpu(cpu, text(web="2"), WEB) == f"{name} 20.0 7", "is not counted anew"


def test_the_memory_of_the_node_is_the_sum() -> None:
    families = usage.of_pods(text(), here(WEB, DB))
    told = exposition.text(usage.of_node(families, here(WEB, DB), NodeCpu(), 7))
    assert "node_memory_working_set_bytes{} 4096 7\n" in told


@pytest.mark.parametrize("said", ["9e18", "-4096"])
def test_the_sum_is_an_amount_whatever_is_said(said: str) -> None:
    more = "".join(
        f'{usage.MEMORY}{{container="main",namespace="shop",pod="{name}"}} {said} 1\n'
        for name in ("web", "db")
    )
    families = usage.of_pods(text(extra=more), here(WEB, DB))
    [_, memory] = usage.of_node(families, here(WEB, DB), NodeCpu(), 7)
    assert 4096 <= int(memory.samples[0].value) < 2**63


def measured(**containers: dict[str, str]) -> Object:
    told = [{"name": name, "usage": amount} for name, amount in containers.items()]
    return {"timestamp": "2026-01-31T12:00:00Z", "containers": told}


BAD: dict[str, Object] = {
    "no number": measured(main={"cpu": "NaN"}),
    "no integer of 64 bits": measured(main={"cpu": "1", "memory": "1e30"}),
    "more than all": measured(main={"cpu": "99999999999"}),
    "no time": {**measured(main={"cpu": "1"}), "timestamp": "yesterday"},
    "no date": {**measured(main={"cpu": "1"}), "timestamp": "2026-02-31T00:00:00Z"},
    "without a time": {**measured(main={"cpu": "1"}), "timestamp": None},
    "a time that is none": {**measured(main={"cpu": "1"}), "timestamp": {"a": 1}},
}


@pytest.mark.parametrize("bad", BAD)
def test_one_bad_pod_never_fails_the_summary(bad: str) -> None:
    pods = here(WEB, DB)
    told = usage.summary(
        "milan",
        "2026-01-01T00:00:00Z",
        pods,
        {
            WEB: measured(main={"cpu": "250m", "memory": "2Mi"}, other={"cpu": "9"}),
            DB: BAD[bad],
            Key("shop", "unknown"): measured(main={"cpu": "9"}),
        },
    )
    [web] = told["pods"]
    assert web["podRef"] == {"namespace": "shop", "name": "web", "uid": pods[WEB].uid}
    assert [one["name"] for one in web["containers"]] == ["main"]
    assert told["node"]["cpu"]["usageNanoCores"] == 250_000_000
    assert told["node"]["memory"]["workingSetBytes"] == 2 * 2**20
    assert told["node"]["nodeName"] == "milan"


@pytest.mark.parametrize(
    "broken", [{}, {"containers": "x"}, {"containers": [1]}, {"containers": [{}]}]
)
def test_what_makes_no_sense_is_passed_over(broken: Object) -> None:
    told = usage.summary("milan", "t", here(WEB), {WEB: broken})
    assert told["node"]["cpu"]["usageNanoCores"] == 0


async def test_metrics_come_from_the_provider(rig: Rig) -> None:
    rig.answer = (200, text())
    status, said = await rig.get("/metrics/resource")
    assert status == 200
    assert f'{usage.CPU}{{container="main",namespace="shop",pod="web"}} 10 1000' in said
    assert "node_cpu_usage_seconds_total{} 10.0 " in said
    assert 'pod="db"' not in said
    assert rig.seen == ["/apis/metrics.liqo.io/v1beta1/scrape/rome/metrics/resource"]
    rig.answer = (404, "the server could not find the requested resource")
    assert (await rig.get("/metrics/resource"))[0] == 404


async def test_the_summary_asks_for_the_twins_of_the_pair(rig: Rig) -> None:
    item = {
        "metadata": {"name": "web", "namespace": "shop-rome"},
        **measured(main={"cpu": "1", "memory": "1Ki"}),
    }
    rig.answer = (200, json.dumps({"metadata": {}, "items": [item]}))
    status, said = await rig.get("/stats/summary")
    assert status == 200
    assert json.loads(said)["pods"][0]["podRef"]["namespace"] == "shop"
    [path] = rig.seen
    assert path.startswith("/apis/metrics.k8s.io/v1beta1/namespaces/shop-rome/pods?")
    rig.answer = (503, "no metrics")
    assert (await rig.get("/stats/summary"))[0] == 502
