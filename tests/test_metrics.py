"""Alerts, boards and documents name metrics that the code registers."""

import itertools
import re
from typing import Final

import yaml

from apis import keys
from controllers.offloading.virtualnode.forge import deployment
from kube import authz
from tests import metrics
from tests.monitoring import MONITORING, ROOT, boards, monitors, rules

OF_THE_WEBHOOK: Final = {
    "ca": {"secret": {"name": keys.WEBHOOK_CERTS_SECRET, "key": "ca.crt"}},
    "serverName": f"{keys.WEBHOOK_SERVICE}.{keys.LIQO_NAMESPACE}.svc",
}
UNKNOWN: Final = {"insecureSkipVerify": True}
"""The certificate was made at the start, and no authority vouches for it."""


def named(text: str) -> set[str]:
    return set(re.findall(r"\bpyliqo_\w+", text))


def test_every_metric_has_our_prefix_and_is_in_the_docs() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")

    assert all(name.startswith("pyliqo_") for name in metrics.families())
    assert metrics.written_metrics(page) == page


def test_alerts_ask_for_metrics_that_are_registered_and_have_a_page() -> None:
    pages = {path.stem for path in (ROOT / "docs/runbooks").glob("*.md")}

    assert len(rules()) == 8
    assert pages == {rule["alert"] for rule in rules()}
    for rule in rules():
        assert named(rule["expr"])
        assert named(rule["expr"]) <= metrics.series(), rule["alert"]
        page = (ROOT / rule["annotations"]["runbook"]).read_text(encoding="utf-8")
        assert f"`{rule['expr']}`" in page
        assert "## What to do" in page
        assert named(page) <= metrics.series() | set(metrics.families())


def test_boards_show_metrics_that_are_registered() -> None:
    kustomization = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())
    [made] = kustomization["configMapGenerator"]

    assert [f"boards/{name}.json" for name in sorted(boards())] == made["files"]
    assert len(boards()) == 2
    for panel in itertools.chain.from_iterable(boards().values()):
        assert named(panel.expr)
        assert named(panel.expr) <= metrics.series(), panel.title


def ports() -> dict[str, set[str]]:
    """Return the names of the ports of each of our processes, by the label of its pods."""
    deployments = [
        obj
        for path in ROOT.glob("manifests/*/deployment.yaml")
        for obj in yaml.safe_load_all(path.read_text())
        if obj["kind"] == "Deployment"
    ]
    found = {
        obj["metadata"]["name"]: {
            port["name"]
            for container in obj["spec"]["template"]["spec"]["containers"]
            for port in container["ports"]
        }
        for obj in deployments
    }
    return {**found, keys.VIRTUAL_KUBELET: set(deployment.METRICS_PORTS.values())}


def test_what_is_scraped_are_ports_of_all_processes() -> None:
    scraped = set()
    for monitor in monitors():
        selector = monitor["spec"]["selector"]
        [[*names]] = (
            [list(selector["matchLabels"].values())]
            if "matchLabels" in selector
            else [selector["matchExpressions"][0]["values"]]
        )
        for name in names:
            for endpoint in monitor["spec"]["podMetricsEndpoints"]:
                assert endpoint["port"] in ports()[name]
            scraped.add(name)
    assert scraped == set(ports())


def test_who_scrapes_shows_the_token_of_an_account_that_may_and_by_tls_alone() -> None:
    reader = {
        obj["kind"]: obj for obj in yaml.safe_load_all((MONITORING / "reader.yaml").read_text())
    }
    secret = reader["Secret"]["metadata"]
    account = reader["ServiceAccount"]["metadata"]
    binding = reader["ClusterRoleBinding"]

    for monitor in monitors():
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            assert (endpoint["scheme"], endpoint["path"]) == ("https", authz.METRICS_PATH)
            token = {"name": secret["name"], "key": "token"}
            assert endpoint["authorization"] == {"credentials": token}
            is_webhook = monitor["metadata"]["name"] == keys.WEBHOOK_SERVICE
            assert endpoint["tlsConfig"] == (OF_THE_WEBHOOK if is_webhook else UNKNOWN)
    assert secret["annotations"] == {"kubernetes.io/service-account.name": account["name"]}
    assert binding["roleRef"]["name"] == keys.METRICS_READER_ROLE
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]
