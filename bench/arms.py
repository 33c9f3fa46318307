"""The arms: what each needs in the clusters, made before a run and taken away after it.

All arms are there at once and idle until their block comes; each has namespaces of its own. The
arms ``floor`` and ``ideal`` make shadows of a copied definition, which pyliqo does not know.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from apis import keys, naming
from apis.objects import Key, Kind, Object, named
from bench import children, floor, ideal, leftovers, load, waiting
from bench.settings import LIQO, Settings
from bench.stage import CONSUMER, PROVIDER, Stage
from kube import client
from sandbox import components, network, stepper
from sandbox.layout import Site
from sandbox.simulated import NodeKeeper

VIRTUAL_NODE: Final = "bench"
CONST: Final = ("const", "const-patch", "const-python")
"""The webhook with the constant answer: without a patch, with one as ours makes it, and the same in
Python."""
CONST_LABEL: Final = "bench.pyliqo.io/const"
NODES_AGENT: Final = "bench-nodes"
MANAGER: Final = "bench"
"""Field manager of what the run applies."""
_CONST_PATCH: Final = (
    {
        "op": "add",
        "path": "/spec/tolerations/-",  # the API server's own plug-ins have put some there
        "value": {"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists", "effect": "NoExecute"},
    },
    {
        "op": "add",
        "path": "/spec/affinity",
        "value": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": key, "operator": "In", "values": [value]}
                                for key, value in (
                                    (load.PART, "true"), (keys.NODE_TYPE, keys.VIRTUAL_NODE_TYPE)
                                )
                            ]
                        }
                    ]
                }
            }
        },
    },
    {"op": "add", "path": "/metadata/annotations", "value": {keys.PLACEMENT: "x" * 120}},
)  # fmt: skip
_CONST: Final = Path(__file__).parent / "const"
_SHADOW_POD: Final = children.ROOT / "manifests" / "10-crds" / "shadowpod.yaml"
_SIMULATED_PART: Final = "simulated"
_ONLY: Final = f"{load.TAINT}=true:NoSchedule"
_REPLAYED: Final = f"{load.REPLAYED}=true:NoSchedule"
_MARK: Final[Mapping[str, str]] = {load.PART: "true"}


def local_namespace(arm: str) -> str:
    """Return the namespace of an arm in rome."""
    return f"bench-{arm}"


def remote_namespace(arm: str) -> str:
    """Return the namespace of an arm in milan."""
    return naming.default_remote_namespace(local_namespace(arm), CONSUMER)


def scheduling(arm: str) -> Object:
    """Return what the spec of an arm's pods says about where they go."""
    if arm == "vanilla":
        simulated = stepper.taint(stepper.TAINT)["key"]
        return {"nodeSelector": {"type": "simulated"}, "tolerations": load.tolerates(simulated)}
    if arm == "ideal":
        here = {keys.HOSTNAME: ideal.NODE}
        return {"nodeSelector": here, "tolerations": load.tolerates(load.REPLAYED)}
    return {"tolerations": load.tolerates(load.TAINT)} if arm in {"ours", *LIQO} else {}


@contextlib.asynccontextmanager
async def ready(stage: Stage, settings: Settings) -> AsyncIterator[None]:
    """Have every arm that ``settings`` names stand ready; leave nothing of them behind."""
    await leftovers.sweep(stage.rome, stage.milan)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(leftovers.sweep, stage.rome, stage.milan)
        await stack.enter_async_context(_simulated(stage.sites[PROVIDER]))
        await _open_simulated(stage.milan)
        await _namespaces(stage)
        await stack.enter_async_context(_nodes(stage))
        if settings.has("floor") or settings.has("ideal"):
            await define_shadow_pods(stage.milan)
        if answering := [arm for arm in CONST if settings.has(arm)]:
            await stack.enter_async_context(const(stage, answering))
        if settings.has("ideal"):
            await stack.enter_async_context(_ideal(stage))
        if settings.has("ours"):
            await ours(stage)
        yield


async def define_shadow_pods(cluster: client.ClusterClient) -> None:
    """Let ``cluster`` know ShadowPods of a group that no webhook or controller knows."""
    await cluster.create(leftovers.CUSTOM_RESOURCE, _shadow_copy())


async def ours(stage: Stage) -> None:
    """Offload the namespace of the arm ``ours`` to a virtual node of simulated nodes."""
    await virtual_node(stage, VIRTUAL_NODE)
    await offload(stage, local_namespace("ours"))


async def offload(stage: Stage, namespace: str) -> None:
    """Offload all pods of a namespace of rome to the run's virtual nodes; wait until it is so."""
    term = {"key": load.PART, "operator": "In", "values": ["true"]}
    spec = {
        "podOffloadingStrategy": "Remote",
        "clusterSelector": {"nodeSelectorTerms": [{"matchExpressions": [term]}]},
    }
    key = Key(namespace, keys.OFFLOADING_NAME)
    made = named(keys.NAMESPACE_OFFLOADING, key, spec=spec)
    await stage.rome.apply(keys.NAMESPACE_OFFLOADING, made, manager=MANAGER)
    await until(
        stage.rome, keys.NAMESPACE_OFFLOADING, key,
        lambda found: found.get("status", {}).get("offloadingPhase") == "Ready",
    )  # fmt: skip


async def virtual_node(stage: Stage, name: str) -> None:
    """Make a virtual node whose pods go to the simulated nodes of milan; wait for it."""
    stage.say(f"waiting for the virtual node {name}")
    tenant = naming.tenant_namespace(PROVIDER)
    peered = await stage.rome.get_live(keys.VIRTUAL_NODE, Key(tenant, PROVIDER))
    spec = virtual_node_spec((peered or {})["spec"]["kubeconfigSecretRef"]["name"])
    key = Key(tenant, name)
    made = named(keys.VIRTUAL_NODE, key, metadata={"labels": dict(_MARK)}, spec=spec)
    await stage.rome.create(keys.VIRTUAL_NODE, made)
    await until(stage.rome, keys.NODE, Key("", name), is_ready)


def virtual_node_spec(secret: str) -> Object:
    """Return what a virtual node of any arm is; ``secret`` has the way to milan."""
    simulated = stepper.taint(stepper.TAINT)["key"]
    return {
        "clusterID": PROVIDER,
        "kubeconfigSecretRef": {"name": secret},
        "resourceQuota": {"hard": {"cpu": "1000", "memory": "4Ti", "pods": "10000"}},
        "labels": dict(_MARK),
        "taints": [stepper.taint(_ONLY)],  # nobody else's pods go where no container runs
        "offloadingPatch": {
            "nodeSelector": {"type": "simulated"},
            "tolerations": load.tolerates(simulated),
        },
    }


@contextlib.asynccontextmanager
async def const(stage: Stage, chosen: Sequence[str]) -> AsyncIterator[None]:
    """Run the webhooks with the constant answer and register each for its namespace."""
    stage.say("building the webhook with the constant answer")
    binary, host, patch = str(await _built()), stage.sites[CONSUMER].slot.gateway, _CONST_PATCH
    commands = {
        "const": (binary, f"-address={host}"),
        "const-patch": (binary, f"-address={host}", f"-patch={json.dumps(patch)}"),
        "const-python": (sys.executable, "-m", "bench.constant", host, json.dumps(patch)),
    }
    async with contextlib.AsyncExitStack() as stack:
        webhooks = [
            _const_webhook(arm, await stack.enter_async_context(_answering(stage, commands[arm])))
            for arm in chosen
        ]
        key = Key("", "bench-const")
        metadata = {"labels": dict(_MARK)}
        made = named(keys.MUTATING_WEBHOOKS, key, metadata=metadata, webhooks=webhooks)
        await stage.rome.create(keys.MUTATING_WEBHOOKS, made)
        stack.push_async_callback(leftovers.remove, stage.rome, keys.MUTATING_WEBHOOKS, key)
        yield


@contextlib.asynccontextmanager
async def _answering(stage: Stage, command: Sequence[str]) -> AsyncIterator[Object]:
    """Run a webhook; return the clientConfig by which the API server finds it."""
    async with children.running(*command) as process:
        stage.others[process.pid] = "const"
        url = f"https://{await children.line(process)}/"
        lines = [await children.line(process)]
        while "-----END" not in lines[-1]:
            lines.append(await children.line(process))
        yield {"url": url, "caBundle": load.told(keys.SECRET, "\n".join(lines) + "\n")}
        stage.others.pop(process.pid, None)


@contextlib.asynccontextmanager
async def _ideal(stage: Stage) -> AsyncIterator[None]:
    files = [str(stage.sites[name].files.kubeconfig) for name in (CONSUMER, PROVIDER)]
    places = [local_namespace("ideal"), remote_namespace("ideal")]
    command = [sys.executable, "-m", "bench.ideal", *files, *places]
    from_home = network.inside(stage.sites[CONSUMER].slot, command)  # as a virtual kubelet does
    async with children.running(*from_home) as process:
        stage.others[process.pid] = "ideal"
        await children.line(process)
        yield
        stage.others.pop(process.pid, None)


@contextlib.asynccontextmanager
async def _simulated(site: Site) -> AsyncIterator[None]:
    part = components.Component(site, _SIMULATED_PART)
    was_there = part.is_alive()
    if not was_there:
        components.simulate(site, 1)
    try:
        yield
    finally:
        if not was_there:
            part.stop()


async def _open_simulated(milan: client.ClusterClient) -> None:
    """Let rome's pods tolerate the taint of the simulated nodes."""
    tolerated = load.tolerates(stepper.taint(stepper.TAINT)["key"])
    spec = {"allowedPodFields": {"tolerations": tolerated}}
    metadata = {"labels": dict(_MARK)}
    policy = named(keys.PROVIDER_POLICY, Key("", CONSUMER), metadata=metadata, spec=spec)
    await milan.apply(keys.PROVIDER_POLICY, policy, manager=MANAGER)


@contextlib.asynccontextmanager
async def _nodes(stage: Stage) -> AsyncIterator[None]:
    """Keep the nodes to which ``floor`` and ``ideal`` bind pods; nothing steps their pods."""
    async with (
        client.connect(stage.sites[CONSUMER].files.kubeconfig, user_agent=NODES_AGENT) as rome,
        client.connect(stage.sites[PROVIDER].files.kubeconfig, user_agent=NODES_AGENT) as milan,
    ):
        keepers = {cluster: NodeKeeper(cluster, [_REPLAYED]) for cluster in (rome, milan)}
        wanted = [(rome, floor.NODE), (rome, ideal.NODE), (milan, floor.NODE)]
        tasks = [asyncio.create_task(keepers[cluster].keep(name)) for cluster, name in wanted]
        try:
            for cluster, name in wanted:
                await until(cluster, keys.NODE, Key("", name), is_ready)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _namespaces(stage: Stage) -> None:
    wanted = [
        (stage.rome, local_namespace(arm))
        for arm in ("bare", *CONST, "plain", "floor", "ideal", "ours")
    ] + [
        (stage.milan, remote_namespace(arm)) for arm in ("vanilla", "bare", "floor", "ideal")
    ]  # fmt: skip
    for cluster, name in wanted:
        metadata = {"labels": _labels(name)}
        await cluster.create(
            keys.NAMESPACE, named(keys.NAMESPACE, Key("", name), metadata=metadata)
        )
    for cluster, name in wanted:
        await until(cluster, keys.SERVICE_ACCOUNT, Key(name, "default"), bool)


def _labels(namespace: str) -> dict[str, str]:
    """Return the labels of a namespace, by which every arm meets its own webhook or none."""
    if namespace in {local_namespace("ours"), local_namespace("plain")}:
        return dict(_MARK)
    # As a namespace that another cluster fills: pyliqo's webhook does not look at its pods.
    labels = {**_MARK, keys.REMOTE_CLUSTER_ID: "bench"}
    named_by = {local_namespace(arm): {CONST_LABEL: arm} for arm in CONST}
    return labels | named_by.get(namespace, {})


async def _built() -> Path:
    """Return the webhook with the constant answer; Go's own cache makes it quick."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    binary = cache / "pyliqo" / "bench" / "const"
    process = await asyncio.create_subprocess_exec(
        "go", "build", "-o", str(binary), ".", cwd=_CONST, env={**os.environ, "CGO_ENABLED": "0"}
    )
    if await process.wait():
        raise RuntimeError("the webhook with the constant answer could not be built")
    return binary


def _const_webhook(arm: str, client_config: Object) -> Object:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods"]}  # fmt: skip
    return {
        "name": f"{arm}.bench.pyliqo.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "clientConfig": client_config,
        "namespaceSelector": {"matchLabels": {CONST_LABEL: arm}},
        "rules": [rule],
    }


def _shadow_copy() -> Object:
    """Return the ShadowPod's definition in a group that nobody knows."""
    made: Object = yaml.safe_load(_SHADOW_POD.read_text(encoding="utf-8"))
    group = floor.SHADOW.group
    made["metadata"] = {"name": f"{floor.SHADOW.plural}.{group}", "labels": dict(_MARK)}
    made["spec"]["group"] = group
    for name in ("shortNames", "categories"):
        made["spec"]["names"].pop(name, None)
    return made


def is_ready(node: Object) -> bool:
    """Whether the node says that it is ready."""
    conditions: list[dict[str, Any]] = node.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def until(
    cluster: client.ClusterClient, kind: Kind, key: Key, holds: Callable[[Object], bool]
) -> None:
    """Return once what is under ``key`` is there and ``holds``.

    Raises:
        RuntimeError: it never does.
    """
    await waiting.until(
        lambda: cluster.get_live(kind, key),
        lambda found: found is not None and holds(found),
        what=f"{kind} {key} ready",
    )
