"""The real Prometheus reads our rules, fires our alerts, and scrapes as our monitors say."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from apis import keys
from kube import client
from kube.client import ClusterClient
from sandbox.controlplane import Plane
from tests import prometheus, scraping
from tests.monitoring import MONITORING, monitors, rules
from tests.prometheus import PROMTOOL
from tests.webhook import hooked
from tests.webhook.reviews import wait_until
from tests.webhook.served import CA

pytestmark = [pytest.mark.cluster, prometheus.NEEDS]

DAY: Final = 86400
HOUR: Final = 60
"""Minutes: a sample is taken each."""


class AlertCase(NamedTuple):
    """Series by their text, and their values in promtool's notation: of trouble, and of none."""

    alert: str
    wrong: dict[str, str]
    right: dict[str, str]
    labels: dict[str, str]
    """Of the alert, besides its severity."""


def still(value: float) -> str:
    return f"{value}x{HOUR}"


def rising(by: float) -> str:
    return f"0+{by}x{HOUR}"


def reviews(le_half: float) -> dict[str, str]:
    name = "pyliqo_webhook_review_seconds_bucket"
    return {
        f'{name}{{le="0.5",path="/mutate/pod"}}': rising(le_half),
        f'{name}{{le="1",path="/mutate/pod"}}': rising(60),
        f'{name}{{le="+Inf",path="/mutate/pod"}}': rising(60),
    }


CASES: Final = (
    AlertCase(
        "PyliqoCertificateEnds",
        {"pyliqo_webhook_certificate_expiry_timestamp_seconds": still(8 * DAY)},
        {"pyliqo_webhook_certificate_expiry_timestamp_seconds": still(30 * DAY)},
        {},
    ),
    AlertCase(
        "PyliqoWebhookDenies",
        {'pyliqo_webhook_reviews_total{verdict="unavailable"}': rising(60)},
        {'pyliqo_webhook_reviews_total{verdict="denied"}': rising(60)},
        {},
    ),
    AlertCase("PyliqoWebhookSlow", reviews(0), reviews(60), {"path": "/mutate/pod"}),
    AlertCase(
        "PyliqoNoLeader",
        {'pyliqo_leader{lease="a",pod="1"}': still(0), 'pyliqo_leader{lease="b"}': still(1)},
        {'pyliqo_leader{lease="a",pod="1"}': still(0), 'pyliqo_leader{lease="a"}': still(1)},
        {"lease": "a"},
    ),
    AlertCase(
        "PyliqoQueueStuck",
        {'pyliqo_queue_oldest_seconds{queue="tenant"}': still(400)},
        {'pyliqo_queue_oldest_seconds{queue="tenant"}': still(200)},
        {"queue": "tenant"},
    ),
    AlertCase(
        "PyliqoReconcileErrors",
        {'pyliqo_reconciles_total{controller="tenant",outcome="error"}': rising(6)},
        {'pyliqo_reconciles_total{controller="tenant",outcome="busy"}': rising(6)},
        {"controller": "tenant"},
    ),
    AlertCase(
        "PyliqoApiServerUnreachable",
        {'pyliqo_requests_total{code="0",pod="web"}': rising(60)},
        {'pyliqo_requests_total{code="500",pod="web"}': rising(60)},
        {"pod": "web"},
    ),
    AlertCase(
        "PyliqoWatchSilent",
        {'pyliqo_informer_last_sign_of_life_timestamp_seconds{resource="pods"}': still(0)},
        {'pyliqo_informer_last_sign_of_life_timestamp_seconds{resource="pods"}': rising(60)},
        {"resource": "pods"},
    ),
)


@pytest.fixture
def rule_file(tmp_path: Path) -> Path:
    """Return the rules as Prometheus reads them: what its operator takes out of the object."""
    file = tmp_path / "rules.yaml"
    spec = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))["spec"]
    file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    return file


def promtool(*words: str | Path) -> None:
    done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_prometheus_reads_the_rules(rule_file: Path) -> None:
    promtool("check", "rules", "--lint-fatal", rule_file)


def test_there_is_a_case_of_each_alert() -> None:
    assert [case.alert for case in CASES] == [rule["alert"] for rule in rules()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_each_alert_fires_in_trouble_and_not_else(case: AlertCase, rule_file: Path) -> None:
    [rule] = [one for one in rules() if one["alert"] == case.alert]
    labels = {**case.labels, **rule["labels"]}
    fires = {"exp_labels": labels, "exp_annotations": rule["annotations"]}
    tests = [_test(case, case.wrong, [fires]), _test(case, case.right, [])]
    file = rule_file.with_name("test.yaml")
    file.write_text(yaml.safe_dump({"rule_files": [rule_file.name], "tests": tests}))

    promtool("test", "rules", file)


def _test(case: AlertCase, series: dict[str, str], alerts: list[Any]) -> dict[str, Any]:
    given = [{"series": name, "values": values} for name, values in series.items()]
    asked = {"eval_time": "45m", "alertname": case.alert, "exp_alerts": alerts}
    return {"interval": "1m", "input_series": given, "alert_rule_test": [asked]}


@pytest.fixture
async def cluster(plane: Plane, crds: None) -> AsyncIterator[ClusterClient]:
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as found:
        yield found


async def test_prometheus_scrapes_the_webhook_as_its_monitor_says(
    cluster: ClusterClient, plane: Plane, tmp_path: Path, rule_file: Path
) -> None:
    [monitor] = [one for one in monitors() if one["metadata"]["name"] == keys.WEBHOOK_SERVICE]
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    authority = tmp_path / "ca.crt"
    authority.write_bytes(CA.certificate)
    webhook = hooked.start(plane.kubeconfig, tmp_path)
    try:
        await asyncio.to_thread(wait_until, webhook.is_ready)
        token = await scraping.reader(cluster)
        job = prometheus.job(endpoint, "webhook", token, authority)
        job["static_configs"] = [{"targets": [f"127.0.0.1:{webhook.port}"]}]
        with prometheus.running(tmp_path, [job], [rule_file]) as server:
            await asyncio.to_thread(wait_until, lambda: server.values("up") == [1])
            [ends] = server.values("pyliqo_webhook_certificate_expiry_timestamp_seconds")
            assert ends > 0
            groups = server.asked("/api/v1/rules")["groups"]
    finally:
        webhook.process.kill()
        webhook.process.wait()
    read = [rule for group in groups for rule in group["rules"]]
    assert [(rule["name"], rule["lastError"]) for rule in read if rule.get("lastError")] == []
    assert len(read) == len(CASES)
