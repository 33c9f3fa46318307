"""What people and controllers do to a pod that runs: it works as on a node of one's own."""

import json
from collections.abc import Mapping
from typing import Final

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from sandbox import images
from tests.journeys import failures, vk, world
from tests.journeys.failures import Wrong
from tests.journeys.tiers import service
from tests.world import is_ready

pytestmark = pytest.mark.journey

GATE = "example.org/in-rotation"
PRESSURE: Final = {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}


def condition(pod: Object, type_: str) -> Object:
    found: list[Object] = pod.get("status", {}).get("conditions") or []
    return next((one for one in found if one["type"] == type_), {})


def container(pod: Object, field: str = "containerStatuses") -> Object:
    found: list[Object] = pod.get("status", {}).get(field) or [{}]
    return found[0]


def rich(namespace: str, image: str) -> Object:
    """Return a pod that uses what a PodSpec has to offer."""
    made = world.pod(
        namespace,
        "rich",
        image,
        "cat /info/labels /etc/hosts /etc/resolv.conf && test -f /work/made && " + world.sleeping(),
        readinessGates=[{"conditionType": GATE}],
        hostAliases=[{"ip": "10.1.2.3", "hostnames": ["alias.example.org"]}],
        dnsConfig={"searches": [f"{namespace}.svc.cluster.local", "example.org"]},
        enableServiceLinks=False,
        terminationGracePeriodSeconds=1,
        tolerations=[{"key": "dedicated", "operator": "Exists"}],
        volumes=[
            {"name": "work", "emptyDir": {}},
            {
                "name": "info",
                "projected": {
                    "sources": [
                        {
                            "downwardAPI": {
                                "items": [
                                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
                                ]
                            }
                        }
                    ]
                },
            },
        ],
    )
    spec = made["spec"]
    small = {"requests": {"cpu": "1m", "memory": "4Mi"}}
    mounts = [{"name": "work", "mountPath": "/work"}]
    spec["containers"][0]["volumeMounts"] = [*mounts, {"name": "info", "mountPath": "/info"}]
    spec["initContainers"] = [
        {
            "name": "sidecar",
            "image": image,
            "command": ["sh", "-c", world.sleeping()],
            "restartPolicy": "Always",
            "resources": small,
        },
        {
            "name": "prepare",
            "image": image,
            "command": ["sh", "-c", "touch /work/made"],
            "volumeMounts": mounts,
            "resources": small,
        },
    ]
    made["metadata"]["labels"] = {"app": "rich"}
    return made


async def test_a_rich_pod_runs_changes_and_ends(both: world.Pair, namespace: str) -> None:
    await both.offload(namespace)
    key, there = Key(namespace, "rich"), Key(both.twin(namespace), "rich")
    await both.rome.create(keys.SERVICE, service(namespace, "rich"))
    await both.rome.create(keys.POD, rich(namespace, both.image))
    running = await world.until_one(
        both.rome,
        keys.POD,
        key,
        lambda pod: condition(pod, "Ready").get("reason") == "ReadinessGatesNotReady",
    )
    assert world.phase(running) == "Running"
    assert [one["name"] for one in running["status"]["initContainerStatuses"]] == [
        "sidecar",
        "prepare",
    ]
    path = f"/api/v1/namespaces/{namespace}/pods/rich/log?container=main"
    space = f"{both.twin(namespace)}.svc"
    await world.until_logged(both.rome, path, 'app="rich"', "alias.example.org", space)

    await set_gate(both, key, "True")
    ready = await world.until_one(both.rome, keys.POD, key, is_ready)
    assert condition(ready, GATE)["status"] == "True"
    await set_gate(both, key, "False")
    await world.until_one(both.rome, keys.POD, key, lambda pod: not is_ready(pod))

    await change(both, key)
    changed = await world.until_one(both.rome, keys.POD, key, is_changed)
    if await world.resizes(both):
        changed = await resize(both, key)
    remote = await both.milan.get(keys.POD, there)
    assert remote
    assert remote["metadata"]["labels"]["tier"] == "front"
    assert remote["metadata"]["annotations"]["note"] == "new"
    assert remote["spec"]["containers"][0]["image"] == images.product_name()
    requested = container_spec(remote)["resources"]["requests"]["cpu"]
    assert requested == container_spec(changed)["resources"]["requests"]["cpu"]
    assert remote["spec"]["activeDeadlineSeconds"] == 3600
    assert PRESSURE in remote["spec"]["tolerations"]
    assert "dedicated" not in {one.get("key") for one in remote["spec"]["tolerations"]}
    await world.until(both.rome, keys.EVENT, namespace, is_told_of_its_tolerations)
    assert changed["metadata"]["uid"] == running["metadata"]["uid"]
    await quarantine(both, key, remote)

    await world.remove(both.rome, keys.POD, key)
    await world.until_gone(both.rome, keys.POD, key)
    assert await both.milan.get_live(keys.POD, there) is None


def is_told_of_its_tolerations(events: Mapping[Key, Object]) -> bool:
    said = [one for one in events.values() if one["reason"] == "TolerationsNotSent"]
    return any("tolerations of dedicated did not go" in one["message"] for one in said)


async def quarantine(both: world.Pair, key: Key, remote: Object) -> None:
    """Take the pod out of its Service, as ``kubectl label pod rich app-`` does: it runs on."""
    there = objects.key_of(remote)
    await world.until(both.milan, keys.ENDPOINT_SLICE, there.namespace, serves)
    taken = {"labels": {"app": None}, "annotations": {"note": None}}
    await both.rome.patch(keys.POD, key, {"metadata": taken})

    await world.until(
        both.milan, keys.ENDPOINT_SLICE, there.namespace, lambda seen: not serves(seen)
    )
    left = await both.milan.get_live(keys.POD, there)
    assert left
    assert left["metadata"]["uid"] == remote["metadata"]["uid"]
    assert "note" not in left["metadata"]["annotations"]
    assert left["metadata"]["labels"]["tier"] == "front"


def serves(slices: Mapping[Key, Object]) -> bool:
    """Whether a pod stands behind a Service."""
    return any(one.get("endpoints") for one in slices.values())


async def set_gate(both: world.Pair, key: Key, status: str) -> None:
    said = {"type": GATE, "status": status}
    await both.rome.patch_status(keys.POD, key, {"conditions": [said]})


async def change(both: world.Pair, key: Key) -> None:
    """Change all that Kubernetes lets change in a pod that runs."""
    pod = await both.rome.get_live(keys.POD, key)
    assert pod
    main = {**pod["spec"]["containers"][0], "image": images.product_name()}
    tolerations = [*pod["spec"]["tolerations"], PRESSURE]
    spec = {"containers": [main], "tolerations": tolerations, "activeDeadlineSeconds": 3600}
    metadata = {"labels": {"tier": "front"}, "annotations": {"note": "new"}}
    await both.rome.patch(keys.POD, key, {"metadata": metadata, "spec": spec})
    debug = {
        "name": "debug",
        "image": both.image,
        "command": ["sh", "-c", world.sleeping()],
        "targetContainerName": "main",
    }
    await both.rome.patch(
        keys.POD, key, {"spec": {"ephemeralContainers": [debug]}}, subresource="ephemeralcontainers"
    )


async def resize(both: world.Pair, key: Key) -> Object:
    """Make the pod smaller as it runs, and return it when it is."""
    pod = await both.rome.get_live(keys.POD, key)
    assert pod
    resources = {"requests": {"cpu": "4m", "memory": "8Mi"}}
    smaller = {"spec": {"containers": [{**container_spec(pod), "resources": resources}]}}
    await both.rome.patch(keys.POD, key, smaller, subresource="resize")
    return await world.until_one(both.rome, keys.POD, key, is_resized)


def container_spec(pod: Object) -> Object:
    main: Object = pod["spec"]["containers"][0]
    return main


def is_changed(pod: Object) -> bool:
    main = container(pod)
    return (
        "running" in container(pod, "ephemeralContainerStatuses").get("state", {})
        and main.get("restartCount") == 1
        and "running" in main.get("state", {})
    )


def is_resized(pod: Object) -> bool:
    return bool(
        container(pod).get("resources", {}).get("requests", {}).get("cpu") == "4m"
        and pod["status"].get("observedGeneration") == pod["metadata"].get("generation")
    )


WRONG = {
    "large": Wrong(
        {"resources": {"requests": {"cpu": "7", "memory": "8Mi"}}},
        lambda pod: "Insufficient cpu" in condition(pod, "PodScheduled").get("message", ""),
        "FailedScheduling",
        "Insufficient cpu",
    ),
    "no-image": Wrong(
        {"image": "localhost/nowhere:none"},
        lambda pod: "Image" in container(pod).get("state", {}).get("waiting", {}).get("reason", ""),
        "FailedImagePull",
        "nowhere",
    ),
    "privileged": Wrong(
        {"securityContext": {"privileged": True}},
        lambda pod: "privileged" in condition(pod, keys.OFFLOADED_CONDITION).get("message", ""),
        keys.FAILED_REFLECTION,
        "privileged",
        is_made=False,
    ),
    "over-quota": Wrong(
        {"resources": {"requests": {"cpu": "5m", "memory": "1Gi"}}},
        lambda pod: "exceeded quota" in condition(pod, keys.OFFLOADED_CONDITION).get("message", ""),
        keys.FAILED_REFLECTION,
        "exceeded quota",
        is_made=False,
    ),
}


QUOTA: Final = Kind("", "v1", "ResourceQuota", "resourcequotas")
MEMORY: Final = "512Mi"
"""More no pods of the twin may ask for together, as somebody there decided."""


async def limit(both: world.Pair, twin: str) -> None:
    """Limit the twin as any administrator does, and wait until that holds."""
    key = Key(twin, "tight")
    hard = {"requests.memory": MEMORY}
    await both.milan.create(QUOTA, named(QUOTA, key, spec={"hard": hard}))
    await world.until_one(
        both.milan, QUOTA, key, lambda found: found.get("status", {}).get("hard") == hard
    )


async def test_what_goes_wrong_over_there_is_told_here(both: world.Pair, namespace: str) -> None:
    await both.offload(namespace)
    await limit(both, both.twin(namespace))

    took = [
        await failures.fails(both, namespace, kind, WRONG[kind])
        for kind in list(WRONG) * failures.FAILURES
    ]

    print(f"told at home after: {', '.join(took)}")  # noqa: T201


FOUND = (
    "env; cat /proc/mounts; at='/var /run /etc /tmp /root'; find $at -name '*token*'; "
    "grep -rls eyJhbGciOi $at; echo that is all; "
)
"""Shows where a token may be; each begins like this, for that is ``{"alg":`` in base64."""


async def test_a_pod_holds_no_token_of_the_provider(both: world.Pair, namespace: str) -> None:
    """A3, by what is in a container that runs."""
    await both.offload(namespace)
    key = Key(namespace, "bare")
    asked = {"serviceAccountToken": {"path": "id", "audience": "vault"}}
    volumes = [{"name": "vault", "projected": {"sources": [asked]}}]
    pod = world.pod(namespace, "bare", both.image, FOUND + world.sleeping(), volumes=volumes)
    await both.rome.create(keys.POD, pod)
    await world.until_one(both.rome, keys.POD, key, lambda pod: world.phase(pod) == "Running")

    log = f"/api/v1/namespaces/{both.twin(namespace)}/pods/bare/log"
    told = await world.until_logged(both.milan, log, "that is all")

    assert "HOSTNAME=" in told
    assert "/run/secrets/kubernetes.io/serviceaccount " in told  # mounted, as at home
    assert [line for line in told.splitlines() if "token" in line.lower()] == []
    assert "eyJhbGciOi" not in told
    remote = await both.milan.get_live(keys.POD, Key(both.twin(namespace), "bare"))
    assert remote
    assert remote["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountToken" not in json.dumps(remote["spec"].get("volumes"))
    await world.until(both.rome, keys.EVENT, namespace, is_told_of_its_token)


def is_told_of_its_token(events: Mapping[Key, Object]) -> bool:
    said = [one for one in events.values() if one["reason"] == keys.TOKEN_NOT_SENT]
    return any(
        "spec.volumes[vault] serviceAccountToken id did not go" in one["message"] for one in said
    )


ASK = """\
import json, os, ssl, urllib.request
at = '/var/run/secrets/kubernetes.io/serviceaccount/'
read = lambda name: open(at + name).read()
url = 'https://%s:%s/api/v1/namespaces/%s/pods/%s' % (
    os.environ['KUBERNETES_SERVICE_HOST'], os.environ['KUBERNETES_SERVICE_PORT'],
    read('namespace'), os.environ['HOSTNAME'])
asked = urllib.request.Request(url, headers={'Authorization': 'Bearer ' + read('token')})
trusted = ssl.create_default_context(cafile=at + 'ca.crt')
trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT
print('of itself', os.environ['UID'], os.environ['NODE'], open('/etc/me/uid').read())
try:
    urllib.request.urlopen(asked, context=trusted)
except urllib.error.HTTPError as error:
    print(json.load(error)['message'])
"""


async def test_a_pod_reaches_the_api_server_of_its_own_cluster(
    both: world.Pair, namespace: str
) -> None:
    async with vk.supporting_api_servers(both):
        await both.offload(namespace)
        pod = world.pod(namespace, "asks", both.image, restartPolicy="Never")
        reads_itself(pod)
        pod["spec"]["containers"][0]["command"] = ["python3", "-c", ASK]
        uid = objects.uid(await both.rome.create(keys.POD, pod))
        key = Key(namespace, "asks")
        await world.until_one(both.rome, keys.POD, key, lambda one: world.phase(one) == "Succeeded")

        log = await both.rome.get_text(f"/api/v1/namespaces/{namespace}/pods/asks/log")

        assert f"system:serviceaccount:{namespace}:default" in log
        assert f"of itself {uid} {both.node} {uid}" in log
        assert "cannot get resource" in log
        secret = Key(both.twin(namespace), "asks-token")
        await world.until_gone(both.milan, keys.SECRET, secret)  # with the end of the pod
        await world.remove(both.rome, keys.POD, key)
        await keeps_tokens_to_its_end(both, namespace)


def reads_itself(pod: Object) -> None:
    """Let ``pod`` have its UID and node in variables, and its UID in a file."""

    def field(path: str) -> Object:
        return {"fieldRef": {"fieldPath": path}}

    items = [{"path": "uid", **field("metadata.uid")}]
    (main,) = pod["spec"]["containers"]
    main["env"] = [
        {"name": "UID", "valueFrom": field("metadata.uid")},
        {"name": "NODE", "valueFrom": field("spec.nodeName")},
    ]
    main["volumeMounts"] = [{"name": "me", "mountPath": "/etc/me"}]
    pod["spec"]["volumes"] = [{"name": "me", "downwardAPI": {"items": items}}]


async def keeps_tokens_to_its_end(both: world.Pair, namespace: str) -> None:
    """The garbage collector leaves them alone while a pod that is deleted takes its time."""
    key, there = Key(namespace, "drains"), Key(both.twin(namespace), "drains")
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    long = {"terminationGracePeriodSeconds": 600}
    await both.rome.create(keys.POD, world.pod(namespace, key.name, both.image, stubborn, **long))
    await world.until_one(both.rome, keys.POD, key, lambda one: world.phase(one) == "Running")
    shadow = await both.milan.get_live(keys.SHADOW_POD, there)
    assert shadow
    owners = {"ownerReferences": [objects.owner_reference(keys.SHADOW_POD, shadow)]}
    collected = named(keys.CONFIG_MAP, there, metadata=owners)
    await both.milan.create(keys.CONFIG_MAP, collected)

    await world.remove(both.rome, keys.POD, key)
    await world.until_gone(both.milan, keys.CONFIG_MAP, there)

    secret, remote = (
        Key(there.namespace, "drains-token"),
        await both.milan.get_live(keys.POD, there),
    )
    kept = await both.milan.get_live(keys.SECRET, secret)
    assert kept
    assert remote
    assert [one["kind"] for one in kept["metadata"]["ownerReferences"]] == ["Pod"]
    await both.milan.delete(keys.POD, there, uid=objects.uid(remote), grace_s=0)
    await world.until_gone(both.milan, keys.SECRET, secret)
    await world.until_gone(both.rome, keys.POD, key)
