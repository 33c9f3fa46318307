"""Annotations that steer the remote side ask for no more than the provider's policy allows.

What the virtual kubelet forges of a pod is held to what the provider's webhook lets in.
Source: docs/parity.md SEC-D7; § 0.4, 2.2, 3.8, 5.5.3.
"""

from typing import Any, Final

import pytest

from apis import keys, podfields
from apis.providerpolicy import PodPolicy
from tests.kubelet.test_shadowpod import forged

REMOTE: Final = {keys.API_SERVER_SUPPORT: "remote"}
AS_ADMIN: Final = {**REMOTE, keys.REMOTE_SERVICE_ACCOUNT_NAME: "admin"}
IN_SANDBOX: Final = {keys.REMOTE_RUNTIME_CLASS_NAME: "gvisor"}


def refused(annotations: dict[str, str], allowed: dict[str, Any] | None, **spec: Any) -> list[str]:
    """Return what a provider that allows ``allowed`` says to what becomes of such a pod."""
    policy = PodPolicy.parse({"spec": {"allowedPodFields": allowed or {}}})
    return list(podfields.complaints(forged(spec, annotations), policy))


@pytest.mark.parametrize(
    ("annotations", "field", "spec"),
    [
        (REMOTE, "serviceAccountNames", {}),
        (REMOTE, "serviceAccountNames", {"serviceAccountName": "deployer"}),
        (AS_ADMIN, "serviceAccountNames", {}),
        ({**REMOTE, keys.API_SERVER_SUPPORT: "Remote"}, "serviceAccountNames", {}),
        (IN_SANDBOX, "runtimeClassNames", {}),
        (IN_SANDBOX, "runtimeClassNames", {"runtimeClassName": keys.RUNTIME_CLASS}),
    ],
)
def test_what_an_annotation_asks_for_the_policy_can_refuse(
    annotations: dict[str, str], field: str, spec: dict[str, Any]
) -> None:
    assert refused(annotations, {field: ["another"]}, **spec) != []
    assert refused(annotations, {field: []}, **spec) != []
    assert refused(annotations, {field: ["default", "deployer", "admin", "gvisor"]}, **spec) == []
    assert refused(annotations, None, **spec) == []


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {keys.API_SERVER_SUPPORT: "disabled"},
        {keys.API_SERVER_SUPPORT: "everything"},
        {keys.REMOTE_SERVICE_ACCOUNT_NAME: "admin"},
        {keys.REMOTE_RUNTIME_CLASS_NAME: ""},
        {keys.ANTI_AFFINITY_PRESET: "hard"},
    ],
)
def test_what_asks_for_nothing_passes_the_narrowest_policy(annotations: dict[str, str]) -> None:
    nothing: dict[str, Any] = {"serviceAccountNames": [], "runtimeClassNames": []}

    assert refused(annotations, nothing, serviceAccountName="deployer") == []
