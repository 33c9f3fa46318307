"""What pods use: the provider tells it, and is believed only about pods that are here."""

import json
from collections import Counter

import pytest

from apis import prometheus
from apis.objects import Key, Object
from kubelet.api import usage
from kubelet.api.usage import Measured, NodeCpu
from tests import factories
from tests.kubelet.rigs import Rig
from tests.kubelet.worlds import NOW

WEB, DB = Key("shop", "web"), Key("shop", "db")


def usage_text(web: str = "10", db: str = "5", extra: str = "") -> str:
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
    told = prometheus.text(usage.of_pods(usage_text(extra=strange), here(WEB)))
    assert told.count("\n") == 3
    assert "99" not in told


def test_a_provider_invents_no_metric_and_no_label() -> None:
    """Who scrapes kubelets takes what they say for anybody's. Source: docs/parity.md H6."""
    of_web = 'namespace="shop",pod="web"'
    invented = (
        f'kube_deployment_spec_replicas{{{of_web},deployment="pay"}} 0\n'
        f"http_requests_total{{{of_web}}} 9e17\n"
        f'kubelet_volume_stats_used_bytes{{{of_web},persistentvolumeclaim="db"}} 9e17\n'
        f'ALERTS{{{of_web},alertname="Down"}} 1\n'
        f'{usage.CPU}{{container="main",{of_web},deployment="pay"}} 9\n'
        f"# HELP ALERTS {'x' * 1000}\n# TYPE invented gauge\n"
    )

    told = prometheus.text(usage.of_pods(usage_text(extra=invented), here(WEB)))

    assert told == prometheus.text(usage.of_pods(usage_text(), here(WEB)))


@pytest.mark.parametrize(
    ("name", "is_theirs"),
    [
        (usage.CPU, True),
        ("kubelet_volume_stats_used_bytes", True),
        ("kubelet_running_pods", False),
        ("ALERTS", False),
    ],
)
def test_a_metric_of_pods_is_known_by_its_name(name: str, *, is_theirs: bool) -> None:
    assert usage.is_of_kubelets(name) is is_theirs


def test_the_volumes_of_claims_that_pods_mount_are_told_of() -> None:
    """And of no other claim, with no further label, and with few samples a claim."""
    pod = factories.pod("shop", "db")
    pod["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "db"}},
        {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
    ]
    used = "kubelet_volume_stats_used_bytes"
    told = [
        f'{used}{{namespace="shop",persistentvolumeclaim="{name}"}} 7' for name in ("db", "db-tmp")
    ]
    invented = [
        f'{used}{{namespace="shop",persistentvolumeclaim="other"}} 7',
        f'{used}{{namespace="bank",persistentvolumeclaim="db"}} 7',
        f'{used}{{namespace="shop",persistentvolumeclaim="db"}} 9e99',
        f'{used}{{namespace="shop",persistentvolumeclaim="db",team="a"}} 7',
    ]
    said = "\n".join([*told, *invented])
    found = usage.of_pods(said, {DB: Measured.of(pod)})
    assert prometheus.text(found).splitlines() == told

    many = usage.of_pods("\n".join(told[:1] * 100), {DB: Measured.of(pod)})
    assert len(many[0].samples) == usage.MOST_OF_CLAIM


def test_of_a_pod_with_very_many_names_none_are_kept() -> None:
    pod = factories.pod("shop", "db")
    assert Measured.bounded(pod) == Measured.of(pod)
    pod["spec"]["containers"] = [{"name": f"{number:063}"} for number in range(300)]
    assert Measured.bounded(pod) is None


def test_a_pod_has_so_many_samples_and_costs_no_other_its_own() -> None:
    many = "".join(
        f'container_x{{namespace="shop",pod="web",container="{container}",id="{number}"}} 1\n'
        for container in ("main", "")
        for number in range(1000)
    )
    told = usage.of_pods(many + usage_text(), here(WEB, DB))

    counts = Counter(
        (sample.labels["pod"], sample.labels.get("container", ""))
        for family in told
        for sample in family.samples
    )
    assert counts[("web", "main")] == usage.MOST_OF_CONTAINER
    assert counts[("web", "")] == usage.MOST_OF_POD
    assert counts[("db", "main")] == 1


def node_cpu(cpu: NodeCpu, said: str, *pods: Key) -> str:
    families = usage.of_pods(said, here(*pods))
    [seconds, _] = usage.of_node(families, here(*pods), cpu, 7)
    return str(seconds.samples[0])


def test_the_cpu_of_the_node_never_goes_back() -> None:
    cpu, name = NodeCpu(), "node_cpu_usage_seconds_total{}"
    assert node_cpu(cpu, usage_text(), WEB, DB) == f"{name} 15.0 7"
    assert node_cpu(cpu, usage_text(web="12"), WEB, DB) == f"{name} 17.0 7"
    assert node_cpu(cpu, usage_text(web="13"), WEB) == f"{name} 18.0 7", "db went away"
    assert node_cpu(cpu, usage_text(web="1"), WEB) == f"{name} 19.0 7", "web was restarted"
    assert node_cpu(cpu, "", WEB) == f"{name} 19.0 7", "one answer without it"
    assert node_cpu(cpu, usage_text(web="2"), WEB) == f"{name} 20.0 7", "is not counted again"


def test_the_memory_of_the_node_is_the_sum() -> None:
    families = usage.of_pods(usage_text(), here(WEB, DB))
    told = prometheus.text(usage.of_node(families, here(WEB, DB), NodeCpu(), 7))
    assert "node_memory_working_set_bytes{} 4096 7\n" in told


@pytest.mark.parametrize("said", ["9e18", "-4096"])
def test_the_sum_is_an_amount_whatever_is_said(said: str) -> None:
    more = "".join(
        f'{usage.MEMORY}{{container="main",namespace="shop",pod="{name}"}} {said} 1\n'
        for name in ("web", "db")
    )
    families = usage.of_pods(usage_text(extra=more), here(WEB, DB))
    [_, memory] = usage.of_node(families, here(WEB, DB), NodeCpu(), 7)
    assert 4096 <= int(memory.samples[0].value) < 2**63


AT_MS = int(NOW.timestamp() * 1000)


def used(container: str, pod: Key, seconds: str, at_ms: int | str, memory: str = "4096") -> str:
    about = f'container="{container}",namespace="{pod.namespace}",pod="{pod.name}"'
    return f"{usage.CPU}{{{about}}} {seconds} {at_ms}\n{usage.MEMORY}{{{about}}} {memory} {at_ms}\n"


@pytest.mark.parametrize(
    ("at_ms", "kept"),
    [(AT_MS, True), (AT_MS - 299_000, True), (AT_MS + 299_000, True),
     (AT_MS - 301_000, False), (AT_MS + 301_000, False), (1, False), (10**18 - 1, False)],
)  # fmt: skip
def test_a_sample_is_of_these_minutes_or_of_no_time(at_ms: int, *, kept: bool) -> None:
    """Source: docs/parity.md H6."""
    families = usage.of_pods(used("main", WEB, "1", at_ms), here(WEB))
    [family, _] = usage.timely(families, AT_MS)
    assert family.samples[0].at == (str(at_ms) if kept else "")


def summary(said: str, *pods: Key, cpu: NodeCpu | None = None) -> Object:
    about = {"nodeName": "milan", "startTime": "2026-01-01T00:00:00Z"}
    families = usage.of_pods(said, here(*pods))
    return usage.summary(about, here(*pods), families, cpu or NodeCpu(), NOW)


def test_of_what_a_pod_uses_now_nothing_is_said_before_there_are_two_readings() -> None:
    cpu = NodeCpu()
    [web] = summary(used("main", WEB, "10", AT_MS - 10_000), WEB, cpu=cpu)["pods"]
    at = {"time": "2026-01-31T11:59:50Z"}
    assert web["cpu"] == {**at, "usageCoreNanoSeconds": 10 * 10**9}
    assert web["memory"] == {**at, "usageBytes": 4096, "workingSetBytes": 4096}

    said = used("main", WEB, "12.5", AT_MS) + used("main", DB, "1", AT_MS)
    for _ in range(2):  # and the same again
        told = summary(said, WEB, DB, cpu=cpu)
        [db, web] = told["pods"]
        at = {"time": "2026-01-31T12:00:00Z"}
        rate = {"usageNanoCores": 250_000_000}
        assert web["cpu"] == {**at, "usageCoreNanoSeconds": 12_500_000_000, **rate}
        assert web["containers"][0]["cpu"] == web["cpu"]
        assert db["cpu"] == {**at, "usageCoreNanoSeconds": 10**9}
        assert told["node"]["cpu"] == {**at, "usageCoreNanoSeconds": 13_500_000_000, **rate}
        assert told["node"]["memory"]["workingSetBytes"] == 2 * 4096

    [web] = summary(used("main", WEB, "1", AT_MS + 1000), WEB, cpu=cpu)["pods"]
    assert "usageNanoCores" not in web["cpu"], "it was restarted"


def test_the_summary_counts_on_from_what_was_scraped() -> None:
    cpu = NodeCpu()
    families = usage.of_pods(used("main", WEB, "10", AT_MS - 10_000), here(WEB))
    usage.of_node(families, here(WEB), cpu, AT_MS)
    told = summary(used("main", WEB, "20", AT_MS), WEB, cpu=cpu)
    assert told["node"]["cpu"]["usageNanoCores"] == 10**9


def test_no_more_is_kept_than_a_reading_of_each_container_that_is_here() -> None:
    cpu = NodeCpu()
    many = "".join(used(f"other-{n}", WEB, "1", AT_MS) for n in range(100))
    summary(many + used("main", WEB, "1", AT_MS) + used("main", DB, "1", AT_MS), WEB, DB, cpu=cpu)
    assert cpu.last(DB, "main")
    summary("", WEB, cpu=cpu)
    assert cpu.last(WEB, "main")
    assert cpu.last(DB, "main") is None
    assert cpu.last(WEB, "other-1") is None


BAD = {
    "no number": used("main", DB, "NaN", AT_MS),
    "no integer of 64 bits": used("main", DB, "1e30", AT_MS),
    "no time": used("main", DB, "1", "yesterday"),
    "of long ago": used("main", DB, "1", 1),
    "of before all time": used("main", DB, "1", "-" + "9" * 18),
    "of the end of time": used("main", DB, "1", "9" * 18),
    "of another container": used("other", DB, "1", AT_MS),
    "of none": used("", DB, "1", AT_MS),
    "of memory only": f'{usage.MEMORY}{{container="main",namespace="shop",pod="db"}} 1 {AT_MS}\n',
    "of another pod": used("main", Key("shop", "unknown"), "1", AT_MS),
    "no sample": "<html>\n",
}


@pytest.mark.parametrize("bad", BAD)
def test_one_bad_pod_never_fails_the_summary(bad: str) -> None:
    told = summary(BAD[bad] + used("main", WEB, "2", AT_MS), WEB, DB)
    [web] = told["pods"]
    assert web["podRef"] == {"namespace": "shop", "name": "web", "uid": here(WEB)[WEB].uid}
    assert [one["name"] for one in web["containers"]] == ["main"]
    assert told["node"]["nodeName"] == "milan"


def test_amounts_are_integers_of_64_bits_whatever_is_said() -> None:
    cpu = NodeCpu()
    summary(used("main", WEB, "0", AT_MS - 1), WEB, cpu=cpu)
    told = summary(used("main", WEB, "9e18", AT_MS, "9.2e18") * 2, WEB, DB, cpu=cpu)
    for part in (told["node"], *told["pods"]):
        amounts = {**part["cpu"], **part["memory"]}
        assert all(0 <= n < 2**63 for n in amounts.values() if isinstance(n, int))


async def test_metrics_come_from_the_provider(rig: Rig) -> None:
    rig.answer = (200, usage_text())
    status, said = await rig.get("/metrics/resource")
    assert status == 200
    assert f'{usage.CPU}{{container="main",namespace="shop",pod="web"}} 10\n' in said
    assert "node_cpu_usage_seconds_total{} 10.0 " in said
    assert 'pod="db"' not in said
    assert rig.seen == ["/apis/metrics.liqo.io/v1beta1/scrape/rome/metrics/resource"]
    rig.answer = (404, "the server could not find the requested resource")
    assert (await rig.get("/metrics/resource"))[0] == 404


async def test_the_summary_is_of_what_the_metric_agent_reads(rig: Rig) -> None:
    rig.answer = (200, used("main", WEB, "10", AT_MS))
    status, said = await rig.get("/stats/summary")
    assert status == 200
    assert json.loads(said)["pods"][0]["podRef"]["namespace"] == "shop"
    assert rig.seen == ["/apis/metrics.liqo.io/v1beta1/scrape/rome/metrics/resource"]
    rig.answer = (503, "no metrics")
    assert (await rig.get("/stats/summary"))[0] == 502
