"""Settings that an installation keeps: what may be said, and what it makes of the manifests."""

from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from apis.objects import Object
from liqoctl.forge import values
from liqoctl.options import cli
from tests import factories
from tests.liqoctl import valuespage

DIGEST = "registry.example/pyliqo@sha256:" + "0" * 64
PAGE = Path(__file__).parents[2] / "docs/values.md"


def printed_for(said: str, *flags: str) -> Result:
    return CliRunner().invoke(cli, ["install", "-o", "yaml", "-f", "-", *flags], input=said)


def made(said: Any, *flags: str) -> dict[str, Object]:
    result = printed_for(yaml.dump(said), *flags)
    assert result.exit_code == 0, result.stderr
    found = [obj for obj in yaml.safe_load_all(result.stdout) if obj]
    return {f"{obj['kind']} {obj['metadata']['name']}": obj for obj in found}


def pod_of(found: dict[str, Object], name: str) -> Object:
    spec: Object = found[f"Deployment {name}"]["spec"]["template"]["spec"]
    return spec


def test_each_setting_is_in_the_deployment_that_it_is_for() -> None:
    placed: dict[str, Any] = {
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
    }
    said = {
        "image": DIGEST,
        "imagePullSecrets": ["registry"],
        "labels": {"team": "platform"},
        "proxy": {"httpsProxy": "http://proxy.example:3128", "noProxy": ["10.0.0.0/8"]},
        "webhook": {"replicas": 3, "labels": {"tier": "front"}},
        "controllerManager": {
            **placed,
            "args": ["--workers=4", "--no-enable-resource-enforcement"],
            "resources": {"limits": {"memory": "1Gi"}},
        },
    }
    found = made(said)

    controllers, webhook = (
        pod_of(found, "liqo-controller-manager"),
        found["Deployment liqo-webhook"],
    )
    assert {name: controllers[name] for name in placed} == placed
    [container] = controllers["containers"]
    assert container["args"] == [
        "--health-port=8081", "--metrics-address=:8082", "--workers=4",
        "--no-enable-resource-enforcement",
    ]  # fmt: skip
    assert container["resources"] == {
        "requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"},
    }  # fmt: skip
    assert container["image"] == DIGEST
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["HTTPS_PROXY"] == "http://proxy.example:3128"
    assert env["NO_PROXY"] == "10.0.0.0/8"
    assert controllers["imagePullSecrets"] == [{"name": "registry"}]
    assert webhook["spec"]["replicas"] == 3
    for labels in (
        webhook["metadata"]["labels"],
        webhook["spec"]["template"]["metadata"]["labels"],
    ):
        assert labels.items() >= {"team": "platform", "tier": "front"}.items()
    assert yaml.safe_load(found["ConfigMap liqo-values"]["data"]["values.yaml"]) == said


def test_a_proxy_with_a_password_is_named_by_a_secret() -> None:
    refused = printed_for("proxy: {httpsProxy: 'http://rome:canary@proxy.example:3128'}")

    assert refused.exit_code == 2
    assert "name that Secret in proxy.secretName" in " ".join(refused.stderr.split())
    assert "canary" not in refused.output
    [container] = pod_of(made({"proxy": {"secretName": "proxy"}}), "liqo-certs")["containers"]
    sources = [each["valueFrom"]["secretKeyRef"] for each in container["env"][-2:]]
    assert sources == [
        {"name": "proxy", "key": "HTTPS_PROXY", "optional": False},
        {"name": "proxy", "key": "NO_PROXY", "optional": True},
    ]


def test_peers_are_told_where_the_api_server_of_a_managed_cluster_is(tmp_path: Path) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
    ca = tmp_path / "ca.crt"
    ca.write_text(pem)
    flags = ("--api-server-url", "https://rome.example:443", "--api-server-ca", str(ca))
    found = made({}, *flags)

    pod = pod_of(found, "liqo-controller-manager")
    [container], [volume] = pod["containers"], pod["volumes"]
    [item] = volume["configMap"]["items"]
    assert "--api-server-address-override=https://rome.example:443" in container["args"]
    assert f"--ca-override=/etc/liqo/api-server-ca/{item['path']}" in container["args"]
    assert found[f"ConfigMap {volume['configMap']['name']}"]["data"] == {item["key"]: pem}
    ca.write_text(pem.replace("MA==", "MB=="))
    [other] = pod_of(made({}, *flags), "liqo-controller-manager")["volumes"]
    assert other != volume, "another authority starts the controllers again"
    trusted = made({"apiServer": {"url": "https://rome.example", "publiclyTrusted": True}})
    [container] = pod_of(trusted, "liqo-controller-manager")["containers"]
    assert "--trusted-ca" in container["args"]


@factories.cases("said, expected")
def test_what_cannot_be_is_refused_with_the_field_and_what_to_do(said: str, expected: str) -> None:
    refused = printed_for(said)

    assert refused.exit_code == 2
    assert expected in refused.stderr


def test_later_settings_win_key_by_key_and_null_takes_back(tmp_path: Path) -> None:
    older = {"webhook": {"replicas": 3, "args": ["--a=1"]}, "labels": {"team": "x"}}
    newer = {"webhook": {"args": ["--b=2"], "replicas": None}, "labels": {"tier": "y"}}

    assert values.merged(older, newer) == {
        "webhook": {"args": ["--b=2"]}, "labels": {"team": "x", "tier": "y"},
    }  # fmt: skip
    assert values.merged({}, {"a": None}) == {}


def test_metrics_are_read_from_every_namespace_or_from_those_that_are_named() -> None:
    labels = {"team": "monitoring"}
    for said, expected in (({}, {}), ({"scrapedFrom": labels}, {"matchLabels": labels})):
        spec = made(said)["NetworkPolicy liqo-metrics"]["spec"]
        metrics, api_servers = spec["ingress"]
        assert metrics["from"] == [{"namespaceSelector": expected}]
        assert metrics["ports"][0]["port"] == 8082
        assert "from" not in api_servers, "they call from outside of any pod"


def test_a_flag_replaces_the_flag_of_that_name_alone() -> None:
    own = ["--port=9443", "--enable-resource-enforcement", "--tls-dir=/x"]

    assert values.with_arguments(own, ["--port=1"]) == [*own[1:], "--port=1"]
    assert values.with_arguments(own, []) == own


def test_the_page_lists_all_settings_as_they_are() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert valuespage.written_values(text) == text
    [example] = [one for one in text.split("```") if one.startswith("yaml\n")]
    assert values.parsed(yaml.safe_load(example.removeprefix("yaml\n"))).webhook.replicas == 3
