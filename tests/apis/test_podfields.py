"""Every field of a PodSpec has its row, in the code and in the docs."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from apis import keys, podfields, podvolumes
from apis.podfields import CONTAINER_FIELDS, FIELDS, PodField, PodFieldFate
from kube import client
from sandbox.controlplane import Plane
from tests import factories

CHAPTER = Path(__file__).parents[2] / "docs" / "pod-fields.md"
OF_OTHER_VERSIONS = {"workloadRef", "schedulingGroup", "evictionResponders"}
"""Of Kubernetes 1.35 alone, since 1.36, since 1.37."""


def documented_rows(fields: Mapping[str, PodField]) -> Iterator[str]:
    """Yield the rows of the table in the docs."""
    for name, field in sorted(fields.items()):
        yield f"| `{name}` | {field.fate.value} | {field.note} |"


def test_the_docs_have_the_tables_of_the_code() -> None:
    written = [line for line in CHAPTER.read_text().splitlines() if line.startswith("| `")]

    assert written == [*documented_rows(FIELDS), *documented_rows(CONTAINER_FIELDS)]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("judged", "types"),
    [(FIELDS, ("PodSpec",)), (CONTAINER_FIELDS, ("Container", "EphemeralContainer"))],
)
async def test_every_field_of_the_api_server_has_a_row(
    plane: Plane, judged: Mapping[str, PodField], types: tuple[str, ...]
) -> None:
    async with client.connect(plane.kubeconfig) as real:
        published = json.loads(await real.get_text("/openapi/v3/api/v1"))["components"]["schemas"]

    names = {
        name for type_ in types for name in published[f"io.k8s.api.core.v1.{type_}"]["properties"]
    }
    assert names <= set(judged)
    assert set(judged) - names <= OF_OTHER_VERSIONS


@factories.cases("name, value")
def test_what_is_refused_says_what_to_do(name: str, value: Any) -> None:
    assert FIELDS[name].fate is PodFieldFate.REFUSED
    said = podfields.refusal({"containers": [], name: value})
    assert said == f"spec.{name} does not work on virtual nodes: {FIELDS[name].note}"


@pytest.mark.parametrize(
    "spec",
    [
        {"hostUsers": True, "resources": {}, "resourceClaims": [], "hostnameOverride": ""},
        {"hostNetwork": True, "priority": 1000, "fromTheFuture": True},
    ],
)
def test_the_rest_is_not_refused(spec: dict[str, Any]) -> None:
    assert podfields.refusal(spec) == ""


@pytest.mark.parametrize("name", ["hostIPC", "hostNetwork", "hostPID"])
def test_what_no_pod_gets_at_a_provider_is_told(name: str) -> None:
    assert f"spec.{name} does not work on virtual nodes" in podfields.unheeded({name: True})
    assert podfields.unheeded({name: False, "containers": []}) == ""


@pytest.mark.parametrize(
    ("how", "says"), [("", "milan"), ("disabled", "milan, turin"), ("remote", "")]
)
def test_a_token_that_it_may_not_have_is_told(how: str, says: str) -> None:
    asked = {"serviceAccountToken": {"path": "id-token", "audience": "vault"}}
    volumes = [
        {"name": name, "projected": {"sources": [asked]}} for name in ("kube-api-access-1", "vault")
    ]
    notes = {"annotations": {keys.API_SERVER_SUPPORT: how}} if how else {}
    serves = {"annotations": {keys.API_SERVER_SUPPORTED: "true"}}
    nodes = [factories.node("milan"), factories.node("turin", metadata=serves)]
    said = podfields.tokenless({"metadata": notes, "spec": {"volumes": volumes}}, nodes)
    asks = "spec.volumes[vault] serviceAccountToken id-token"
    told = f"{asks}: a pod on {says} runs without that file: {podfields.TOKEN_CURE}"
    assert said == (told if says else "")


def test_only_what_says_something_is_news() -> None:
    spec = {"containers": [], "later": {"a": 1}, "empty": {}, "off": False, "none": None}
    assert podfields.unknown(spec) == ["later"]
    assert {"activeDeadlineSeconds", "ephemeralContainers", "tolerations"} == podfields.FOLLOWED


def test_what_is_sent_is_not_refused_over_there() -> None:
    sent = {PodFieldFate.SENT, PodFieldFate.CHANGED, PodFieldFate.MADE}
    for name, field in FIELDS.items():
        if field.fate in sent and name != "serviceAccount":
            assert field.provider.verdict != "refused", name


def test_annotations_that_no_claim_of_a_template_is_made_with_are_left_out() -> None:
    template = {"metadata": {"annotations": {"liqo.io/a": "", "example.com/b": ""}}}
    spec = {"volumes": [{"ephemeral": {"volumeClaimTemplate": template}}, {"name": "b"}]}

    assert podvolumes.left_out(spec) == {"liqo.io/a", "example.com/b"}
    assert podvolumes.left_out(spec, ["example.com"]) == {"liqo.io/a"}
