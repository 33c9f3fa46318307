"""What consumers may run here.

Source: docs/parity.md § 3.7, 3.8; SEC-A1 to SEC-A3, SEC-A7, SEC-A13.
"""

import copy
from typing import Any

import pytest

from apis import keys, podfields
from apis.objects import Key, Object, named
from apis.offloading import OffloadingPatch
from apis.providerpolicy import AllowedPodFields, ProviderPolicy
from kubelet.pods import shadowpod
from kubelet.pods.shadowpod import Options
from tests import factories
from tests.kubelet.worlds import PAIR
from tests.webhook.reviews import Known, response
from tests.webhook.shadows import (
    CONTEXTS,
    OF_OTHERS,
    OTHER_VOLUMES,
    PASS,
    ROWS,
    SPEC,
    TERMS,
    TOKEN,
    affine,
    ephemeral,
)

TWIN = "shop-rome"
CONSUMER = {keys.ORIGIN: "rome"}


def shadow(spec: Object | None = None, labels: dict[str, str] | None = None) -> Object:
    metadata = {"labels": CONSUMER if labels is None else labels}
    key = Key(TWIN, "web")
    pod = SPEC if spec is None else spec
    return named(keys.SHADOW_POD, key, metadata=metadata, spec={"pod": pod})


def twin(consumer: str = "rome") -> Any:
    labels = {keys.REMOTE_CLUSTER_ID: consumer}
    return keys.NAMESPACE, named(keys.NAMESPACE, Key("", TWIN), metadata={"labels": labels})


def policy(name: str = "default", **spec: Any) -> Any:
    return keys.PROVIDER_POLICY, named(keys.PROVIDER_POLICY, Key("", name), spec=spec)


def quota(status: Object | None = None, user: str = "rome", **spec: Any) -> Any:
    spec = {"user": user, "resources": {"cpu": "4", "memory": "8Gi"}, **spec}
    key = Key("liqo-tenant-rome", "x")
    return keys.QUOTA, named(keys.QUOTA, key, spec=spec, status=status or {})


def reviewed(known: Known, path: str, obj: Object, **request: Any) -> Object:
    request = {"namespace": TWIN, "userInfo": {"username": "rome"}, **request}
    return response(known, path, obj, kind=keys.SHADOW_POD, **request)


def validated(known: Known, obj: Object, **kwargs: Any) -> str:
    found = reviewed(known, "/validate/shadowpods", obj, **kwargs)
    return "" if found["allowed"] else str(found["status"]["message"])


def updated(old: Object, new: Object, *known: Any, **kwargs: Any) -> str:
    return validated(Known(*known), new, operation="UPDATE", oldObject=old, **kwargs)


def completed(obj: Object, user: str = "rome", *, is_enforced: bool = True) -> Object:
    how: Any = {"is_enforced": is_enforced, "userInfo": {"username": user}}
    made: Object = reviewed(Known(), "/mutate/shadowpods", obj, **how)["object"]
    return made


# Who asks -----------------------------------------------------------------------------------------


def test_who_creates_a_shadow_pod_is_what_the_api_server_says() -> None:
    forged = shadow(labels={**CONSUMER, keys.CREATOR_USER: "milan"})

    for obj in (shadow(), forged):
        assert completed(obj, "a:b c")["metadata"]["labels"][keys.CREATOR_USER] == "a-b-c"
    unasked = completed(shadow(), is_enforced=False)
    assert keys.CREATOR_USER not in unasked["metadata"]["labels"]
    claimed = completed(forged, is_enforced=False)
    assert claimed["metadata"]["labels"][keys.CREATOR_USER] == "rome"


@pytest.mark.parametrize("user", ["", "a" * 64])
def test_a_user_whom_no_label_names_is_refused(user: str) -> None:
    user_info = {"username": user}

    found = reviewed(Known(), "/mutate/shadowpods", shadow(), is_enforced=True, userInfo=user_info)

    assert found["allowed"] is False


@pytest.mark.parametrize(("sent", "stored"), [(None, False), (False, False), (True, True)])
def test_no_token_is_mounted_unasked(*, sent: bool | None, stored: bool) -> None:
    spec = {**SPEC, "automountServiceAccountToken": sent}

    found = completed(shadow(spec))["spec"]["pod"]["automountServiceAccountToken"]

    assert found is stored


@pytest.mark.parametrize(
    ("known", "labels", "message"),
    [
        (Known(twin()), {}, "offloading.liqo.io/origin is missing"),
        (Known(), CONSUMER, "the namespace does not exist"),
        (Known(twin("milan")), CONSUMER, "not one of that cluster"),
        (Known(twin()), {keys.ORIGIN: "milan"}, "not one of that cluster"),
    ],
)
def test_a_consumer_stays_in_its_own_namespaces(
    known: Known, labels: dict[str, str], message: str
) -> None:
    assert message in validated(known, shadow(labels=labels))
    assert validated(Known(twin()), shadow()) == ""


APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/main"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "kept", "uid": "1"}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"finalizers": ["example.org/keep"]}, "metadata.finalizers"),
        ({"ownerReferences": [OWNER]}, "metadata.ownerReferences"),
        ({"annotations": {APP_ARMOR: "unconfined"}}, APP_ARMOR),
        ({"annotations": {APP_ARMOR: "runtime/default"}}, ""),
        ({"annotations": {APP_ARMOR: "localhost/mine"}}, ""),
    ],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_what_a_consumer_hangs_on_a_shadow_pod_is_judged(
    metadata: Object, message: str, operation: str
) -> None:
    made = shadow()
    made["metadata"] |= metadata

    found = updated(shadow(), made) if operation == "UPDATE" else validated(Known(twin()), made)

    assert message in found
    assert bool(found) is bool(message)


# What it asks for ---------------------------------------------------------------------------------

FORGED: list[tuple[Object, dict[str, str]]] = [
    ({}, {}),
    ({"volumes": [{"name": "t", "projected": {"sources": [TOKEN]}}]}, {}),
    (
        {
            "volumes": [{"name": "t", "projected": {"sources": [TOKEN]}}],
            "serviceAccountName": "robot",
            "serviceAccount": "robot",
            "automountServiceAccountToken": True,
        },
        {keys.API_SERVER_SUPPORT: "remote"},
    ),
    (
        {
            "nodeName": "milan",
            "schedulerName": "default-scheduler",
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "runtimeClassName": "kata",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
            "securityContext": {"runAsUser": 1, "sysctls": []},
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "restartPolicy": "Always",
        },
        {keys.ANTI_AFFINITY_PRESET: "hard"},
    ),
]


@pytest.mark.parametrize(("spec", "annotations"), FORGED)
def test_what_the_virtual_kubelet_forges_passes(spec: Object, annotations: dict[str, str]) -> None:
    local = factories.pod(
        "shop",
        "web",
        spec={**factories.pod_spec(), **spec},
        metadata={"annotations": annotations, "labels": {"app": "web"}, "uid": "1"},
    )
    patch = OffloadingPatch(
        node_selector={"a": "b"},
        tolerations=({"key": "gpu", "operator": "Exists"},),
        node_affinity={"preferredDuringSchedulingIgnoredDuringExecution": []},
        runtime_class="kata",
    )

    made = shadowpod.shadow(local, PAIR, Options("milan", patch))

    origin = made["metadata"]["labels"][keys.ORIGIN]
    assert completed(made, is_enforced=False) == made
    assert validated(Known(twin(origin)), made) == ""


@pytest.mark.parametrize(
    ("field", "value", "verdict"),
    [(field, value, verdict) for field, rows in ROWS.items() for value, verdict in rows],
)
def test_the_verdict_on_a_field(field: str, value: Any, verdict: str) -> None:
    message = validated(Known(twin()), shadow({**SPEC, field: value}))

    assert (message == "") is (verdict == PASS)
    assert message == "" or message.startswith(f"shadowpod {TWIN}/web: spec.pod.{field}")


def test_every_field_has_a_verdict_and_those_without_a_row_are_allowed() -> None:
    for name, field in podfields.FIELDS.items():
        assert name in ROWS or field.provider.verdict.startswith("allowed")


def test_a_token_for_another_audience_is_refused_in_mode_remote_too() -> None:
    other = {"serviceAccountToken": {"path": "token", "audience": "vault"}}
    for source, is_allowed in ((TOKEN, True), (other, False)):
        volumes = [{"name": "a", "projected": {"sources": [source]}}]
        spec = {**SPEC, "automountServiceAccountToken": True, "volumes": volumes}
        assert (validated(Known(twin()), shadow(spec)) == "") is is_allowed


FORBIDDEN: list[Object] = [
    *({"securityContext": context} for context in CONTEXTS),
    {"ports": [{"containerPort": 80, "hostPort": 80}]},
    {"livenessProbe": {"httpGet": {"host": "169.254.169.254"}}},
    {"lifecycle": {"preStop": {"tcpSocket": {"host": "10.0.0.1"}}}},
    {"fromTheFuture": 1},
    {"securityContext": []},
]


@pytest.mark.parametrize("field", ["containers", "initContainers"])
@pytest.mark.parametrize("part", FORBIDDEN)
def test_baseline_holds_for_each_container(field: str, part: Object) -> None:
    spec = {**SPEC, field: [{"name": "c", "image": "i"}, {"name": "d", "image": "i", **part}]}

    assert f"{field}[1]." in validated(Known(twin()), shadow(spec))


@pytest.mark.parametrize(
    "context",
    [
        *(CONTEXTS[index] for index in (4, 5, 6, 7, 8, 9, 10)),
        {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]},
        {"sysctls": 1},
        1,
    ],
)
def test_baseline_holds_for_the_pod(context: Any) -> None:
    assert validated(Known(twin()), shadow({**SPEC, "securityContext": context}))


def test_what_baseline_allows_passes() -> None:
    context = {
        "capabilities": {"add": ["CHOWN"], "drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
        "procMount": "Default",
        "seLinuxOptions": {"type": "container_t", "level": "s0"},
    }
    container = {"name": "c", "securityContext": context, "ports": [{"containerPort": 80}]}
    sysctls = [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]

    spec = {**SPEC, "containers": [container], "securityContext": {"sysctls": sysctls}}

    assert validated(Known(twin()), shadow(spec)) == ""


def test_a_policy_widens_and_narrows() -> None:
    privileged = {"hostNetwork": True, "volumes": [{"name": "a", "hostPath": {"path": "/"}}]}
    widened = {
        **SPEC,
        **privileged,
        "priorityClassName": "high",
        "tolerations": [{"operator": "Exists"}],
    }
    allowed = {"priorityClassNames": ["high"], "tolerations": [{"operator": "Exists"}]}
    wide = policy(podSecurityLevel="privileged", allowedPodFields=allowed)
    narrow = policy(
        allowedPodFields={
            "runtimeClassNames": ["gvisor"],
            "serviceAccountNames": ["robot"],
            "maxTerminationGracePeriodSeconds": 60,
        }
    )

    assert validated(Known(twin(), wide), shadow(widened)) == ""
    assert validated(Known(twin(), wide, policy("rome")), shadow(widened)) != ""
    assert (
        validated(Known(twin(), policy(), policy("rome", **wide[1]["spec"])), shadow(widened)) == ""
    )
    remote = {**SPEC, "automountServiceAccountToken": True}
    for spec, is_allowed in (
        ({**SPEC, "runtimeClassName": "kata"}, False),
        ({**SPEC, "runtimeClassName": "gvisor"}, True),
        ({**SPEC, "terminationGracePeriodSeconds": 60}, True),
        ({**SPEC, "terminationGracePeriodSeconds": 61}, False),
        (remote, False),
        ({**remote, "serviceAccountName": "robot"}, True),
        ({**remote, "serviceAccountName": "admin"}, False),
        (SPEC, True),
    ):
        assert (validated(Known(twin(), narrow), shadow(spec)) == "") is is_allowed


@pytest.mark.parametrize("type_", OTHER_VOLUMES)
def test_a_policy_opens_a_type_of_volume(type_: str) -> None:
    spec = {**SPEC, "volumes": [{"name": "a", type_: OTHER_VOLUMES[type_]}]}

    def told(**fields: Any) -> str:
        return validated(Known(twin(), policy(**fields)), shadow(spec))

    assert told(allowedPodFields={"volumeTypes": [type_]}) == ""
    assert told(podSecurityLevel="privileged") == ""
    others = [one for one in OTHER_VOLUMES if one != type_]
    assert f"volumes[0].{type_}" in told(allowedPodFields={"volumeTypes": others})
    assert "volumeTypes" in told()


@pytest.mark.parametrize(("kind", "when"), TERMS)
def test_terms_of_affinity_reach_over_own_twins_and_what_a_policy_opens(
    kind: str, when: str
) -> None:
    others = named(keys.NAMESPACE, Key("", "db-milan"), metadata={"labels": {}})
    own = named(keys.NAMESPACE, Key("", "db-rome"), metadata=twin()[1]["metadata"])
    own["metadata"] = {**own["metadata"], "name": "db-rome"}
    spaces = [(keys.NAMESPACE, others), (keys.NAMESPACE, own)]

    def told(*opened: str, **term: Any) -> str:
        given = policy(allowedPodFields={"affinityNamespaces": [*opened]})
        known = Known(twin(), *spaces, given)
        return validated(known, shadow({**SPEC, "affinity": affine(kind, when, **term)}))

    assert told(namespaces=[TWIN, "db-rome"]) == ""
    for foreign in ("db-milan", "kube-system"):
        assert f"namespaces {foreign!r} reaches over pods of others" in told(
            namespaces=["db-rome", foreign]
        )
        assert told(foreign, namespaces=[foreign]) == ""
    assert "namespaceSelector" in told("db-milan", namespaceSelector={"matchLabels": {}})
    assert told("*", namespaceSelector={}) == ""
    assert told("*", namespaces=[f"n{number}" for number in range(16)]) == ""
    changed = shadow({**SPEC, "affinity": affine(kind, when, namespaces=["db-rome"])})
    pod = changed["spec"]["pod"]
    with_image = shadow({**pod, "containers": [{**CONTAINER, "image": "nginx:2"}]})
    assert updated(changed, with_image, twin(), *spaces) == ""
    assert "db-rome" in updated(changed, with_image, twin())


@pytest.mark.parametrize("field", OF_OTHERS)
def test_what_no_claim_may_say_no_template_of_one_may_say(field: str) -> None:
    for known in (Known(twin()), Known(twin(), policy(podSecurityLevel="privileged"))):
        message = validated(known, shadow(OF_OTHERS[field]))
        assert f"spec.pod.volumes[0].ephemeral.volumeClaimTemplate.{field}" in message


@factories.cases("offered, named, is_allowed")
def test_the_class_of_a_template_is_one_that_is_offered(
    offered: list[str] | None, named: Object, *, is_allowed: bool
) -> None:
    """A class called ``usual`` is the default here."""
    classes = [{"storageClassName": one, "default": one == "usual"} for one in offered or ()]
    given = [] if offered is None else [policy(storageClasses=classes)]

    message = validated(Known(twin(), *given), shadow(ephemeral(**named)))

    assert (message == "") is is_allowed
    assert is_allowed or "volumeClaimTemplate.spec.storageClassName" in message


def test_an_empty_class_is_opened_for_templates_as_for_claims() -> None:
    wanted = shadow(ephemeral(storageClassName=""))

    assert validated(Known(twin(), policy(staticVolumes=True)), wanted) == ""
    assert "staticVolumes" in validated(Known(twin(), policy()), wanted)


def test_a_template_as_api_servers_store_it_passes() -> None:
    metadata = {"creationTimestamp": None, "labels": {"app.kubernetes.io/name": "web"}}
    notes = {"example.org/why": "scratch", "pv.kubernetes.io/bind-completed": "yes"}
    spec = ephemeral({**metadata, "annotations": notes})

    assert validated(Known(twin()), shadow(spec)) == "", "annotations are left out of the Pod"


def test_restricted_is_stricter() -> None:
    context = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "c", "securityContext": context}
    strict = ProviderPolicy(
        pod_security_level="restricted", allowed=AllowedPodFields(volume_types=frozenset({"nfs"}))
    )

    assert not [*podfields.complaints({"containers": [container]}, strict)]
    for name in context:
        less = {key: value for key, value in context.items() if key != name}
        spec = {"containers": [{"name": "c", "securityContext": less}]}
        assert [*podfields.complaints(spec, strict)]
        assert not [*podfields.complaints(spec, ProviderPolicy())]
    volumes = [{"name": "a", "nfs": {}}]
    assert [*podfields.complaints({"containers": [container], "volumes": volumes}, strict)]


@pytest.mark.parametrize("value", [1, "x", [], {}, True, [1], ["x"], [[]], {"a": 1}, [{"a": 1}]])
def test_no_shape_is_an_error_of_ours(value: Any) -> None:
    for field in podfields.FIELDS:
        validated(Known(twin()), shadow({**SPEC, field: value}))
    for field in ("securityContext", "ports", "lifecycle", "livenessProbe", "resources"):
        container = {"name": "c", field: value}
        spec = {**SPEC, "containers": [container], "initContainers": [container]}
        validated(Known(twin(), quota()), shadow(spec, OWNED), is_enforced=True)


# What changes -------------------------------------------------------------------------------------


@factories.cases("change, is_allowed")
def test_what_may_change_later(change: Object, *, is_allowed: bool) -> None:
    message = updated(shadow(), shadow({**SPEC, **change}))

    assert (message == "") is is_allowed
    assert message == "" or message.startswith(f"shadowpod {TWIN}/web: spec.pod.")


DEDICATED: Object = {"key": "dedicated", "operator": "Exists"}


@factories.cases("change, is_allowed")
def test_what_a_shadow_pod_tolerates_since_it_came_it_may_keep(
    change: Object, *, is_allowed: bool
) -> None:
    """Also where a policy allowed that once, or a version without this rule."""
    before = {**SPEC, "tolerations": [DEDICATED]}
    message = updated(shadow(before), shadow({**before, **change}))

    assert (message == "") is is_allowed
    assert message == "" or "which keeps nodes for others" in message


@pytest.mark.parametrize(
    ("said", "is_allowed"),
    [("1", True), ("3600", True), ("0", False), ("3601", False), ("-1", False), ("1e3", False)],
)
def test_in_what_time_a_pod_ends_is_judged_as_its_spec_is(said: str, *, is_allowed: bool) -> None:
    new = shadow()
    new["metadata"]["annotations"] = {keys.DELETION_GRACE: said}

    message = updated(shadow(), new)

    assert (message == "") is is_allowed
    assert is_allowed or "give it from 1 to 3600 seconds" in message
    allowed = {"maxTerminationGracePeriodSeconds": 1}
    assert (updated(shadow(), new, policy(allowedPodFields=allowed)) == "") is (said == "1")


def test_an_origin_is_for_life() -> None:
    for labels in ({}, {keys.ORIGIN: "milan"}):
        assert "origin cannot be changed" in updated(shadow(), shadow(labels=labels))
    assert updated(shadow(), shadow(labels={**CONSUMER, "app": "web"})) == ""


@pytest.mark.parametrize("part", [{"hostNetwork": True}, {"volumes": [{"name": "a", "nfs": {}}]}])
def test_one_that_was_stored_before_is_not_stuck(part: Object) -> None:
    old = shadow({**SPEC, **part})
    ended = copy.deepcopy(old)
    ended["metadata"]["annotations"] = {keys.FINISHED: "Succeeded", keys.DELETION_GRACE: "1"}

    assert updated(old, shadow(old["spec"]["pod"], {**CONSUMER, "app": "web"})) == ""
    assert updated(old, ended) == ""


# Quota --------------------------------------------------------------------------------------------

OWNED = {**CONSUMER, keys.CREATOR_USER: "rome"}


def sized(cpu: str = "1", memory: str = "1Gi", **resources: Any) -> Object:
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": "main", "resources": {"requests": requests, **resources}}
    return {**SPEC, "containers": [container]}


def quota_message(given: Any, spec: Object, labels: dict[str, str] | None = None) -> str:
    known = Known(twin(), *([given] if given else []))
    return validated(known, shadow(spec, labels or OWNED), is_enforced=True)


@factories.cases("given, spec, message")
def test_what_plainly_does_not_fit_is_refused(
    given: Object | None, spec: Object | None, message: str
) -> None:
    """A row has how a Quota differs, if there is one, and what a pod asks for, if it says so."""
    enforced = None if given is None else quota(**given)

    found = quota_message(enforced, SPEC if spec is None else sized(**spec))

    assert (found == "") is (message == "")
    assert message in found


def test_a_quota_counts_only_where_it_is_enforced() -> None:
    assert validated(Known(twin()), shadow(sized())) == ""
    assert "creator-user is missing" in quota_message(quota(), sized(), CONSUMER)


def test_only_its_creator_changes_a_shadow_pod_while_quotas_are_enforced() -> None:
    old = shadow(labels=OWNED)
    new = shadow(labels={**OWNED, "app": "web"})
    freed = copy.deepcopy(old)
    freed["metadata"]["finalizers"] = ["x"]
    other: Any = {"is_enforced": True, "userInfo": {"username": "milan"}}

    assert updated(old, new, is_enforced=True) == ""
    assert "let its creator change it" in updated(old, new, **other)
    ours: Any = {"userInfo": {"username": "gc", "groups": ["system:serviceaccounts"]}}
    assert "finalizers are for the provider" in updated(old, freed, **other)
    assert updated(old, freed, is_enforced=True, **ours) == ""
    taken = shadow(labels={**OWNED, keys.CREATOR_USER: "milan"})
    assert "cannot be changed" in updated(old, taken, is_enforced=True)


def test_who_is_refused_by_the_cache_is_judged_by_what_is_true_now() -> None:
    class Behind(Known):
        def all(self, kind: Any) -> Any:
            found = super().all(kind)
            return {} if kind == keys.QUOTA else found

        def list_live(self, kind: Any) -> Any:
            return super().all(kind)

    assert validated(Behind(twin(), quota()), shadow(sized(), OWNED), is_enforced=True) == ""


HUGE = "1e999999999"
CONTAINER: Object = SPEC["containers"][0]
DIVIDED: Object = {
    "name": "A",
    "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": HUGE}},
}


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"containers": [{**CONTAINER, "resources": {"requests": {"cpu": HUGE}}}]}, "requests.cpu"),
        ({"containers": [{**CONTAINER, "resources": {"limits": {"a.b/c": HUGE}}}]}, "limits.a.b/c"),
        ({"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "-1"}}}]}, "below zero"),
        ({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": HUGE}}]}, "emptyDir.sizeLimit"),
        ({"containers": [{**CONTAINER, "env": [DIVIDED]}]}, "resourceFieldRef.divisor"),
    ],
)
def test_an_amount_that_is_none_is_refused_before_an_api_server_computes_it(
    part: Object, field: str
) -> None:
    """A13: whether a quota counts it or not."""
    found = validated(Known(twin()), shadow({**SPEC, **part}))

    assert field in found
