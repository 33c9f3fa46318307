"""What a ProviderPolicy may say, and that what the page prints opens what it says."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from apis import keys, providerpolicy
from apis.objects import Key, Kind, Object, named
from apis.providerpolicy import ProviderPolicy
from tests.manifests.asking import ADMINISTRATOR, KUBELET, Provider, made, wait_until
from tests.manifests.twins import merged

PAGE: Final = Path(__file__).parents[2] / "docs" / "sharing.md"
CLAIM: Final = keys.PERSISTENT_VOLUME_CLAIM
PATTERNS: Final = {
    "": True,
    "shop-.*": True,
    "istio-system|.*-rome": True,
    r"(?:a|b)[0-9]{1,3}-\d+": True,
    "a(": False,
    "(?=a)b": False,
    "(?i)a": False,
    "a++": False,
    r"\pL+": False,
    r"a\z": False,
    r"\x{61}": False,
    "[[:alpha:]]+": False,
}


def policy(name: str, **spec: Any) -> Object:
    return named(keys.PROVIDER_POLICY, Key("", name), spec=spec)


def printed_policies() -> list[Object]:
    """Return the ProviderPolicies that the page prints."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = [obj for block in blocks for obj in yaml.safe_load_all(block)]
    return [obj for obj in found if obj["kind"] == keys.PROVIDER_POLICY.kind]


@pytest.mark.cluster
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_of_names_is_checked_when_it_is_written(milan: Provider, pattern: str) -> None:
    kind, obj = keys.PROVIDER_POLICY, policy("patterns", remoteNamespaces={"pattern": pattern})

    said = milan.create(obj, kind, user=ADMINISTRATOR)

    assert (said == "") == PATTERNS[pattern], said
    if PATTERNS[pattern]:
        assert ProviderPolicy.parse(obj).remote_namespaces.pattern == pattern
    else:
        assert "spec.remoteNamespaces.pattern" in said


@pytest.mark.cluster
def test_each_policy_that_the_page_prints_is_stored_as_it_stands(milan: Provider) -> None:
    assert len(printed_policies()) >= 4
    for obj in printed_policies():
        answer = milan.send("POST", "/apis/pyliqo.io/v1alpha1/providerpolicies", obj, ADMINISTRATOR)
        assert answer.told == ""
        assert merged(answer.body["spec"], obj["spec"]) == answer.body["spec"], "nothing is dropped"
        ProviderPolicy.parse(obj)


def annotated(kind: Kind, name: str) -> tuple[Kind, Object]:
    return kind, {"metadata": {"annotations": {name: "x"}}}


OPENED: Final[dict[str, tuple[Kind, Object]]] = {
    "static-volume": (CLAIM, {"spec": {"storageClassName": ""}}),
    "certificate": annotated(keys.INGRESS, "cert-manager.io/cluster-issuer"),
    "copy": annotated(keys.SECRET, "replicator.v1.mittwald.de/replicate-to"),
    "balancer": (keys.SERVICE, {"spec": {"type": "LoadBalancer"}}),
}
"""What is refused without the policy that the page prints, and taken with it."""
NARROWED: Final[dict[str, tuple[Kind, Object]]] = {
    "class": (CLAIM, {"spec": {"storageClassName": "gold"}}),
    "host": (keys.INGRESS, {"spec": {"rules": [{"host": "console.example"}]}}),
}
"""What is taken without it."""
HOST: Final[Object] = {"spec": {"rules": [{"host": "shop.rome.example"}], "tls": None}}


@pytest.mark.cluster
def test_the_policy_that_the_page_prints_opens_and_narrows_what_it_says(milan: Provider) -> None:
    (example,) = (obj for obj in printed_policies() if "ingressHosts" in obj["spec"])
    notes = dict(providerpolicy.offer_annotations(ProviderPolicy.parse(example)))

    def told(rows: dict[str, tuple[Kind, Object]]) -> dict[str, bool]:
        asked = {
            name: made(kind, name, **(merged(HOST, changes) if kind == keys.INGRESS else changes))
            for name, (kind, changes) in rows.items()
        }
        return {
            name: bool(milan.create(obj, rows[name][0], user=KUBELET))
            for name, obj in asked.items()
        }

    assert told(OPENED) == dict.fromkeys(OPENED, True)
    assert told(NARROWED) == dict.fromkeys(NARROWED, False)
    milan.annotate(notes)
    wait_until(lambda: told(OPENED) == dict.fromkeys(OPENED, False))
    assert told(NARROWED) == dict.fromkeys(NARROWED, True)
    archive = made(CLAIM, "archive", spec={"storageClassName": "archive"})
    assert milan.create(archive, CLAIM) == ""
    milan.annotate(dict.fromkeys(notes))
    wait_until(lambda: all(told(OPENED).values()))
