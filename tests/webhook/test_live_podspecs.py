"""What a consumer may run, asked of a real API server as that consumer would.

Source: docs/parity.md SEC-A1, SEC-A2; A-27, A-29; § 3.8.
"""

import secrets
from collections.abc import Mapping
from typing import Any, Final

import pytest

from apis import keys, podaffinity, podfields, podvolumes
from apis.objects import Key, Object, named
from apis.podaffinity import REQUIRED
from tests import factories
from tests.webhook.installed import CONSUMER, Answer, Installed, User
from tests.webhook.shadows import CONTEXTS, OF_OTHERS, PASS, REFUSED, ROWS, SPEC, affine

pytestmark = pytest.mark.cluster

POD_SPEC: Final = "io.k8s.api.core.v1.PodSpec"
KUBELET: Final = User(f"{CONSUMER}-c34af51dd912", [CONSUMER, "system:authenticated"])


@pytest.fixture(scope="module")
def schemas(live: Installed) -> Mapping[str, Object]:
    """Return the types of the core group, as this API server publishes them."""
    found = live.send("GET", "/openapi/v3/api/v1")
    assert found.is_done
    return found.body["components"]["schemas"]  # type: ignore[no-any-return]  # JSON


@pytest.fixture(scope="module")
def twin(live: Installed) -> str:
    return live.twin()


def podspec_fields(live: Installed, twin: str, spec: Object) -> Answer:
    """Return the answer to the consumer that creates a ShadowPod of ``spec``."""
    key = Key(twin, f"s-{secrets.token_hex(4)}")
    labels = {keys.ORIGIN: CONSUMER}
    shadow = named(keys.SHADOW_POD, key, metadata={"labels": labels}, spec={"pod": spec})
    found = live.create(keys.SHADOW_POD, shadow, user=KUBELET)
    assert found.is_done == (live.read(keys.SHADOW_POD, shadow) is not None)
    return found


def names(schemas: Mapping[str, Object], type_: str) -> set[str]:
    return set(schemas[f"io.k8s.api.core.v1.{type_}"]["properties"])


def test_every_field_of_the_api_server_was_judged(schemas: Mapping[str, Object]) -> None:
    published = names(schemas, "PodSpec")

    assert published - podfields.FIELDS.keys() == set()
    gone = podfields.FIELDS.keys() - published
    assert {podfields.FIELDS[name].provider.verdict for name in gone} <= {"refused"}


@pytest.mark.parametrize(
    ("type_", "judged", "refused"),
    [
        ("Container", podfields.CONTAINER, set()),
        ("SecurityContext", podfields.CONTAINER_CONTEXT, set()),
        ("PodSecurityContext", podfields.POD_CONTEXT, set()),
        ("Volume", podvolumes.VOLUMES | {"name"}, {"gitRepo"}),
        ("Affinity", podaffinity.FIELDS, set()),
        ("PodAffinityTerm", podaffinity.TERM, set()),
        ("VolumeProjection", podvolumes.SOURCES, {"podCertificate"}),
    ],
)
def test_so_was_every_part(
    schemas: Mapping[str, Object], type_: str, judged: frozenset[str], refused: set[str]
) -> None:
    """A newer API server has fields that are refused, and listed here once somebody judged them."""
    assert names(schemas, type_) - judged == refused


def example(schemas: Mapping[str, Object], schema: Object) -> Any:
    """Return a value that fits ``schema`` and is not empty."""
    if "allOf" in schema:
        (reference,) = schema["allOf"]
        return example(schemas, reference)
    if "$ref" in schema:
        return example(schemas, schemas[schema["$ref"].rpartition("/")[2]])
    if schema.get("type") == "array":
        return [example(schemas, schema["items"])]
    if schema.get("type") == "object":
        parts = schema.get("properties") or {"a": {"type": "string"}}
        wanted = schema.get("required") or list(parts)[:1]
        return {name: example(schemas, parts[name]) for name in wanted}
    return {"boolean": True, "integer": 1}.get(schema.get("type", ""), "a")


def test_each_field_gets_its_verdict_as_it_comes(
    live: Installed, twin: str, schemas: Mapping[str, Object]
) -> None:
    """One ShadowPod for each field that the API server publishes, with any value that fits."""
    wrong = {}
    for name, schema in schemas[POD_SPEC]["properties"].items():
        value = example(schemas, schema)
        found = podspec_fields(live, twin, {**SPEC, name: value})
        verdict = podfields.FIELDS[name].provider.verdict
        rows = [row for sent, row in ROWS.get(name, []) if sent == value]
        expected = rows or ([REFUSED] if verdict == "refused" else [PASS, REFUSED])
        told = PASS if found.is_done else REFUSED
        if told not in expected or not (found.is_done or f"spec.pod.{name}" in found.message):
            wrong[name] = (value, found)
        if verdict == "allowed" and not found.is_done:
            wrong[name] = (value, found)
    assert wrong == {}


@pytest.mark.parametrize(
    ("field", "value", "verdict"),
    [(field, value, verdict) for field, rows in ROWS.items() for value, verdict in rows],
)
def test_the_verdict_on_a_field(
    live: Installed, twin: str, field: str, value: Any, verdict: str
) -> None:
    found = podspec_fields(live, twin, {**SPEC, field: value})

    assert found.is_done is (verdict == PASS), found
    if not found.is_done:
        assert found.status == 403 or "must be" in found.message
        assert f"spec.pod.{field}" in found.message


def test_terms_reach_over_the_twins_of_the_same_consumer_alone(live: Installed, twin: str) -> None:
    own, others = live.twin(), live.twin("milan")

    def asks(name: str) -> Answer:
        affinity = affine("podAntiAffinity", REQUIRED, namespaces=[twin, name])
        return podspec_fields(live, twin, {**SPEC, "affinity": affinity})

    assert asks(own).is_done
    for name in (others, "kube-system", "nowhere"):
        found = asks(name)
        assert found.status == 403
        assert f"namespaces {name!r} reaches over pods of others" in found.message


@pytest.mark.parametrize("field", OF_OTHERS)
def test_no_claim_is_made_of_what_a_consumer_may_write_into_none(
    live: Installed, twin: str, field: str
) -> None:
    found = podspec_fields(live, twin, OF_OTHERS[field])

    assert found.status == 403
    assert f"ephemeral.volumeClaimTemplate.{field}" in found.message


CONTAINER_KINDS: Final = ("containers", "initContainers", "ephemeralContainers")
IN_A_CONTAINER: Final[list[Object]] = [
    *({"securityContext": context} for context in CONTEXTS),
    {"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}},
    {"securityContext": {"capabilities": {"add": ["NET_RAW"]}}},
    {"securityContext": {"seLinuxOptions": {"type": "container_t", "user": "u"}}},
    {"ports": [{"containerPort": 80, "hostPort": 80}]},
    {"livenessProbe": {"httpGet": {"port": 80, "host": "169.254.169.254"}}},
    {"startupProbe": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}},
    {"lifecycle": {"preStop": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}},
    {"lifecycle": {"postStart": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}}},
]
IN_A_POD: Final[list[Object]] = [
    {"hostNetwork": True},
    {"hostPID": True},
    {"hostIPC": True},
    {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
    {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
    {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
    {"securityContext": {"windowsOptions": {"hostProcess": True}}},
    {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
]
ATTACKS: Final[list[tuple[str, Object]]] = [
    *(
        (kind, {kind: [{"name": "c", "image": "i"}, {"name": "d", "image": "i", **part}]})
        for kind in CONTAINER_KINDS
        for part in IN_A_CONTAINER
    ),
    *((next(iter(part)), part) for part in IN_A_POD),
]


@pytest.mark.parametrize(("field", "part"), ATTACKS)
def test_what_the_pod_security_standards_forbid(
    live: Installed, twin: str, field: str, part: Object
) -> None:
    found = podspec_fields(live, twin, {**SPEC, **part})

    assert found.status == 403
    assert f"spec.pod.{field}" in found.message
    plain = factories.pod(twin, "plain", spec={**SPEC, **part})
    assert live.create(keys.POD, plain, user=KUBELET).status == 403


def test_none_of_it_left_a_pod(live: Installed, twin: str) -> None:
    found = live.send("GET", f"/api/v1/namespaces/{twin}/pods")

    assert found.body["items"] == []
