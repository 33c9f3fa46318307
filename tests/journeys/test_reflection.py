"""ConfigMaps, Secrets and Services follow their originals into the twin namespace."""

import asyncio
import base64
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from kube.cluster import Selection
from tests import factories
from tests.conftest import size_of
from tests.journeys import vk, world

pytestmark = pytest.mark.journey
NEW_PODS: Final = size_of("PYLIQO_NEW_PODS", 5, 200)
OTHERS: Final = size_of("PYLIQO_OTHERS", 100, 150)
"""ConfigMaps that change just before each new pod reads another one."""


def secret(namespace: str, name: str, value: str, **rest: object) -> Object:
    data = {"value": encoded(value)}
    return named(keys.SECRET, Key(namespace, name), data=data, **rest)


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


class Copied(NamedTuple):
    """An original, a field of it, and its values: as made, as changed, as spoiled if it is."""

    kind: Kind
    original: Object
    field: tuple[str, ...]
    values: tuple[Any, Any, Any]

    def patch(self, value: Any) -> Object:
        for name in reversed(self.field):
            value = {name: value}
        return dict(value)

    def is_so(self, found: Object, value: Any) -> bool:
        for name in self.field:
            found = found[name]
        return bool(found == value)


def copied(namespace: str) -> list[Copied]:
    ports = [[{"name": "web", "port": number, "targetPort": 8080}] for number in (80, 81)]
    for each in ports:
        each[0]["protocol"] = "TCP"
    spec = {"ports": ports[0], "selector": {"app": "web"}}
    service = named(keys.SERVICE, Key(namespace, "web"), spec=spec)
    values = (encoded("sesame"), encoded("poppy"), encoded("theirs"))
    password = secret(namespace, "password", "sesame")
    return [
        Copied(keys.CONFIG_MAP, config(namespace, "one"), ("data", "colour"), COLOURS),
        Copied(keys.SECRET, password, ("data", "value"), values),
        Copied(keys.SERVICE, service, ("spec", "ports"), (ports[0], ports[1], None)),
    ]


COLOURS = ("red", "blue", "grey")


async def test_twins_are_made_follow_and_go(both: world.Pair, namespace: str) -> None:
    """What the provider changes is put right again, and what home deletes goes."""
    await both.offload(namespace)
    for kind, original, *_ in copied(namespace):
        await both.rome.create(kind, original)

    for each in copied(namespace):
        await follows_and_goes(both, each)


async def follows_and_goes(both: world.Pair, each: Copied) -> None:
    made, changed, spoiled = each.values
    here = objects.key_of(each.original)
    there = Key(both.twin(here.namespace), here.name)
    twin = await world.until_one(
        both.milan, each.kind, there, lambda found: each.is_so(found, made)
    )
    assert twin["metadata"]["labels"][keys.ORIGIN] == "rome"
    assert twin["metadata"]["labels"][keys.DESTINATION] == "milan"

    await both.rome.patch(each.kind, here, each.patch(changed))
    await world.until_one(both.milan, each.kind, there, lambda found: each.is_so(found, changed))

    if spoiled is not None:
        await both.milan.patch(each.kind, there, each.patch(spoiled))
        await world.until_one(
            both.milan, each.kind, there, lambda found: each.is_so(found, changed)
        )

    await world.remove(both.rome, each.kind, here)
    await world.until_gone(both.milan, each.kind, there)


async def test_a_new_pod_reads_what_was_there_when_it_was_bound(
    both: world.Pair, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await both.offload(namespace)
    with capsys.disabled():
        ended = await upgraded(both, namespace, [both.node])

    assert ended == {"Succeeded": NEW_PODS}


async def test_new_pods_of_two_virtual_nodes_read_it_too(
    both: world.Pair,
    namespace: str,
    kubeconfigs: Mapping[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One of four reflectors leads for both nodes, so it is mostly another pod's."""
    await both.offload(namespace)
    async with vk.second_node(both, kubeconfigs["rome"], replicas=2) as second:
        with capsys.disabled():
            ended = await upgraded(both, namespace, [both.node, second])

        assert ended == {"Succeeded": NEW_PODS}


async def upgraded(both: world.Pair, namespace: str, nodes: Sequence[str]) -> Mapping[str, int]:
    """Replace many ConfigMaps, and pods that read one of them, at once; return how pods ended."""
    names = [f"other-{number}" for number in range(OTHERS)]
    for name in (*names, "settings"):
        await both.rome.create(keys.CONFIG_MAP, config(namespace, name))
    took = []
    for turn in range(NEW_PODS):
        value = {"data": {"colour": f"turn-{turn}"}}
        changed = [Key(namespace, name) for name in (*names, "settings")]
        await asyncio.gather(*(both.rome.patch(keys.CONFIG_MAP, key, value) for key in changed))
        made = world.pod(
            namespace, f"reads-{turn}", both.image, f"echo $colour; test $colour = turn-{turn}"
        )
        made["spec"]["restartPolicy"] = "Never"
        made["spec"]["nodeSelector"] = {keys.HOSTNAME: nodes[turn % len(nodes)]}
        made["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "settings"}}]
        began = time.monotonic()
        await both.rome.create(keys.POD, made)
        key = objects.key_of(made)
        await world.until_one(both.rome, keys.POD, key, objects.is_finished)
        took.append(time.monotonic() - began)
    pods = (await both.rome.list(Selection(keys.POD, Object, namespace))).items.values()
    ended = Counter(world.phase(pod) for pod in pods)
    sys.stdout.write(
        f"\n{NEW_PODS} new pods beside {OTHERS} changed ConfigMaps: {dict(ended)}, "
        f"ended after {statistics.median(took):.2f} s (median), {max(took):.2f} s at most\n"
    )
    return ended


async def test_what_is_the_providers_own_is_left_alone(both: world.Pair, namespace: str) -> None:
    twin = both.twin(namespace)
    await both.offload(namespace)
    theirs = await both.milan.create(keys.CONFIG_MAP, config(twin, "taken", colour="theirs"))

    await both.rome.create(keys.CONFIG_MAP, config(namespace, "taken"))
    await both.rome.create(keys.CONFIG_MAP, config(namespace, "free"))

    await world.until_one(both.milan, keys.CONFIG_MAP, Key(twin, "free"), lambda found: True)
    events = await world.until(
        both.rome, keys.EVENT, namespace, lambda seen: any(map(is_failed_reflection, seen.values()))
    )
    left = await both.milan.get_live(keys.CONFIG_MAP, Key(twin, "taken"))
    assert left
    assert left["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]
    assert any(is_failed_reflection(event) for event in events.values())


async def test_protected_secrets_never_leave(both: world.Pair, namespace: str) -> None:
    twin = both.twin(namespace)
    await both.offload(namespace)
    token = named(
        keys.SECRET,
        Key(namespace, "token"),
        metadata={"annotations": {"kubernetes.io/service-account.name": "default"}},
        type="kubernetes.io/service-account-token",
    )
    await both.rome.create(keys.SECRET, token)
    release = secret(namespace, "release", "canary", type="helm.sh/release.v1")
    await both.rome.create(keys.SECRET, release)
    await both.rome.create(keys.SECRET, secret(namespace, "ordinary", "sesame"))

    await world.until_one(both.milan, keys.SECRET, Key(twin, "ordinary"), lambda found: True)

    reflected = await world.until(both.milan, keys.SECRET, twin, lambda seen: True)
    assert {key.name for key in reflected} == {"ordinary"}


KINDS = (
    keys.CONFIG_MAP, keys.SECRET, keys.SERVICE, keys.SHADOW_ENDPOINT_SLICE, keys.INGRESS,
    keys.PERSISTENT_VOLUME_CLAIM,
)  # fmt: skip
LEAVE = {
    ("ConfigMap", "one"),
    ("Secret", "ordinary"),
    ("Secret", "registry"),
    ("Service", "web"),
    ("ShadowEndpointSlice", "outside"),
    ("Ingress", "web"),
}
STAY = {
    ("Secret", "release"): "protected",
    ("Secret", "token"): "protected",
    ("Secret", "bootstrap-token-abcdef"): "protected",
    ("ConfigMap", "skipped"): "annotation",
    ("Service", "elsewhere"): "failed",
    ("Ingress", "all"): "failed",
    ("PersistentVolumeClaim", "ours"): "its class is ours",
    ("PersistentVolumeClaim", "waiting"): "nobody has asked",
}
"""As docs/what-is-reflected.md lists it."""
TOLD = {
    ("ConfigMap", "skipped", keys.REFLECTION_DISABLED),
    ("Service", "elsewhere", keys.FAILED_REFLECTION),
    ("Ingress", "all", keys.FAILED_REFLECTION),
    ("PersistentVolumeClaim", "ours", keys.REFLECTION_DISABLED),
    ("ConfigMap", "one", keys.REFLECTED_IN_PART),
    ("Service", "web", keys.REFLECTED_IN_PART),
    ("Ingress", "web", keys.REFLECTED_IN_PART),
}
OBEYED, NOTED = "prometheus.io/scrape", "kubectl.kubernetes.io/restartedAt"
"""An annotation that is left out, and one that goes."""


async def test_all_of_these_kinds_leaves_but_what_the_page_lists_and_that_is_told(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path]
) -> None:
    await both.offload(namespace)
    volume = await both.rome.create(keys.PERSISTENT_VOLUME, disk(namespace, "ours"))
    for kind, obj in everything(namespace):
        if (kind.kind, obj["metadata"]["name"], keys.REFLECTED_IN_PART) in TOLD:
            obj["metadata"]["annotations"] = {OBEYED: "true", NOTED: "today"}
        await both.rome.create(kind, obj)

    twin, found = both.twin(namespace), set[tuple[str, str]]()
    for kind in KINDS:
        wanted = {name for kind_, name in LEAVE if kind_ == kind.kind}
        seen = await world.until(both.milan, kind, twin, has(wanted))
        found |= {(kind.kind, name) for name in of(seen)}
    events = await world.until(both.rome, keys.EVENT, namespace, lambda now: told(now) >= TOLD)

    for kind, name in ((keys.CONFIG_MAP, "one"), (keys.SERVICE, "web"), (keys.INGRESS, "web")):
        reflected = await world.until_one(both.milan, kind, Key(twin, name), lambda _: True)
        assert objects.annotations(reflected).keys() & {OBEYED, NOTED} == {NOTED}
    assert {one for one in found if not one[1].startswith("kube-root-ca.crt")} == LEAVE
    assert told(events) == TOLD
    listed = await world.liqoctl(kubeconfigs["rome"], "get", "reflections", "-n", namespace)
    lines = [" ".join(line.split()) for line in listed.out.splitlines()]
    for (kind_, name), why in STAY.items():
        (line,) = [one for one in lines if f" {kind_} {name} " in one]
        assert why in line
    key = Key(namespace, "ours")
    await world.until_one(both.rome, keys.PERSISTENT_VOLUME_CLAIM, key, is_bound)
    volumes = (await both.milan.list(Selection(keys.PERSISTENT_VOLUME, Object))).items
    assert objects.key_of(volume) not in volumes
    assert [obj for obj in volumes.values() if is_of(obj, twin)] == []
    await is_told_of_a_pod_that_mentions_them(both, namespace, kubeconfigs["rome"])
    await world.remove(both.rome, keys.PERSISTENT_VOLUME_CLAIM, key)
    await world.remove(both.rome, keys.PERSISTENT_VOLUME, objects.key_of(volume))


async def is_told_of_a_pod_that_mentions_them(
    both: world.Pair, namespace: str, kubeconfig: Path
) -> None:
    sources: list[Object] = [
        {"secret": {"secretName": "token"}},
        {"secret": {"secretName": "ordinary"}},
        {"persistentVolumeClaim": {"claimName": "ours"}},
    ]
    made = world.pod(namespace, "mentions", both.image)
    made["metadata"]["annotations"] = {OBEYED: "true", NOTED: "today"}
    made["spec"]["volumes"] = [
        {"name": f"v{number}", **source} for number, source in enumerate(sources)
    ]
    key = Key(namespace, "mentions")
    await both.rome.create(keys.POD, made)
    await world.until_one(
        both.rome, keys.POD, key, lambda pod: bool(pod["spec"].get("nodeName") == "milan")
    )
    said = await world.liqoctl(kubeconfig, "why", "pod", "mentions", "-n", namespace, "-o", "json")
    staying = json.loads(said.out)["staying"]
    assert {(one["kind"], one["name"]) for one in staying} == {
        ("Secret", "token"),
        ("PersistentVolumeClaim", "ours"),
    }
    for one in staying:
        assert STAY[one["kind"], one["name"]] in one["reason"]
    remote = Key(both.twin(namespace), "mentions")
    found = await world.until_one(both.milan, keys.POD, remote, lambda _: True)
    assert objects.annotations(found).keys() & {OBEYED, NOTED} == {NOTED}
    await world.remove(both.rome, keys.POD, key)
    await world.until_gone(both.rome, keys.POD, key)


def disk(namespace: str, claim: str) -> Object:
    """Return a volume of this cluster that is kept for ``claim``, as of a class of its own."""
    spec = {
        "storageClassName": claim,
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": namespace, "name": claim},
        "hostPath": {"path": f"/nowhere/{namespace}"},
    }
    return named(keys.PERSISTENT_VOLUME, Key("", f"{namespace}-{claim}"), spec=spec)


def is_bound(claim: Object) -> bool:
    return bool((claim.get("status") or {}).get("phase") == "Bound")


def is_of(volume: Object, twin: str) -> bool:
    """Whether rome has sent the volume, or it stands for a claim of the twin namespace."""
    sent = objects.labels(volume).get(keys.ORIGIN) == "rome"
    claim = volume["spec"].get("claimRef") or {}
    return sent or claim.get("namespace") == twin


def everything(namespace: str) -> list[tuple[Kind, Object]]:
    """Return objects of all kinds that are reflected, of each shape that the page speaks of."""
    account = {"annotations": {"kubernetes.io/service-account.name": "default"}}
    skipped = {"annotations": {keys.SKIP_REFLECTION: "true"}}
    registry = {".dockerconfigjson": base64.b64encode(b'{"auths":{}}').decode()}
    helm, token = "helm.sh/release.v1", "kubernetes.io/service-account-token"
    key = {
        name: Key(namespace, name) for name in ("registry", "token", "outside", "all", "skipped")
    }
    return [
        (keys.CONFIG_MAP, config(namespace, "one")),
        (keys.CONFIG_MAP, named(keys.CONFIG_MAP, key["skipped"], metadata=skipped)),
        (keys.SECRET, secret(namespace, "ordinary", "sesame")),
        (
            keys.SECRET,
            named(
                keys.SECRET, key["registry"], data=registry, type="kubernetes.io/dockerconfigjson"
            ),
        ),
        (keys.SECRET, secret(namespace, "release", "canary", type=helm)),
        (keys.SECRET, named(keys.SECRET, key["token"], metadata=account, type=token)),
        (keys.SECRET, bootstrap_token(namespace)),
        (keys.SERVICE, factories.service(namespace, "web", ports=[{"port": 80}])),
        (
            keys.SERVICE,
            factories.service(
                namespace,
                "elsewhere",
                type="ExternalName",
                externalName="kubernetes.default.svc.cluster.local",
            ),
        ),
        (
            keys.ENDPOINT_SLICE,
            named(
                keys.ENDPOINT_SLICE,
                key["outside"],
                metadata={"labels": {keys.SERVICE_NAME: "web"}},
                addressType="IPv4",
                endpoints=[{"addresses": ["198.51.100.7"]}],
                ports=[{"port": 80}],
            ),
        ),
        (keys.INGRESS, factories.ingress(namespace)),
        (
            keys.INGRESS,
            named(
                keys.INGRESS,
                key["all"],
                spec={"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}},
            ),
        ),
        (keys.PERSISTENT_VOLUME_CLAIM, claim(namespace, "ours", "ours")),
        (keys.PERSISTENT_VOLUME_CLAIM, claim(namespace, "waiting", keys.VIRTUAL_STORAGE_CLASS)),
    ]


def bootstrap_token(namespace: str) -> Object:
    data = {
        "token-id": encoded("abcdef"),
        "token-secret": encoded("0123456789abcdef"),
        "expiration": encoded("2020-01-01T00:00:00Z"),
    }
    key = Key(namespace, "bootstrap-token-abcdef")
    return named(keys.SECRET, key, data=data, type="bootstrap.kubernetes.io/token")


def claim(namespace: str, name: str, class_: str) -> Object:
    spec = {
        "storageClassName": class_,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return named(keys.PERSISTENT_VOLUME_CLAIM, Key(namespace, name), spec=spec)


def of(twins: world.World) -> set[str]:
    """Return the names of what rome has sent."""
    return {
        key.name for key, obj in twins.items() if objects.labels(obj).get(keys.ORIGIN) == "rome"
    }


def has(names: set[str]) -> Callable[[world.World], bool]:
    return lambda twins: names <= of(twins)


def told(events: world.World) -> set[tuple[str, str, str]]:
    reasons = {keys.REFLECTION_DISABLED, keys.FAILED_REFLECTION, keys.REFLECTED_IN_PART}
    return {
        (one["involvedObject"]["kind"], one["involvedObject"]["name"], one["reason"])
        for one in events.values()
        if one["reason"] in reasons
    }


def config(namespace: str, name: str, colour: str = "red") -> Object:
    return named(keys.CONFIG_MAP, Key(namespace, name), data={"colour": colour})


def is_failed_reflection(event: Object) -> bool:
    return bool(
        event["reason"] == "FailedReflection" and event["involvedObject"]["name"] == "taken"
    )
