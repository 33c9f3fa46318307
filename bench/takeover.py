"""One system at a time: pyliqo leaves the clusters before Liqo's own binaries come, and returns.

Both speak of the same kinds and would reconcile each other's objects. So pyliqo's Deployments and
webhook registrations are deleted while an arm of Liqo is on, and installed anew afterwards.
"""

import asyncio
import contextlib
import datetime as dt
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from apis import keys, naming, slices
from apis.objects import Key, Kind, Object, named
from bench import arms, children, leftovers, liqo, load, waiting
from bench.liqo import Command
from bench.settings import LIQO, Settings
from bench.stage import CONSUMER, PROVIDER, Stage
from certs import pki
from controllers.metricagent import forge as metrics
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.slim import Partial
from sandbox import install, network, pair

_LIFETIME: Final = dt.timedelta(days=1)
_CERTIFIED: Final = "liqo.io/webhook=true"
"""Secrets and registrations of webhooks; Liqo's webhook would write into those of pyliqo."""
_POLICY_BINDINGS: Final = Kind(
    "admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings", namespaced=False,
)  # fmt: skip
_INSTALLED: Final = "app.kubernetes.io/part-of=liqo"
"""What pyliqo's manifests make, its policies among them: Liqo has none, and cannot do what they ask
for."""
_METRICS: Final = Key("", f"{metrics.VERSION}.{metrics.GROUP}")
"""Without its agent no namespace of that cluster ends: nobody could say what is left of its API."""
_POD_OF: Final = {arm: f"proof-{arm}" for arm in LIQO}


@contextlib.asynccontextmanager
async def cast(stage: Stage, settings: Settings) -> AsyncIterator[None]:
    """Let ``stage`` change the system with the arm; have pyliqo back at the end."""
    system = Cast(stage, settings)
    stage.enter = system.enter
    if settings.liqo_arms and settings.liqo:
        await _prepare(stage, liqo.definitions(settings.liqo))
    try:
        yield
    finally:
        await system.leave()


class Cast:
    """Which system is on: pyliqo, as at the start and at the end, or an arm of Liqo."""

    def __init__(self, stage: Stage, settings: Settings) -> None:
        self._stage, self._settings = stage, settings
        self._on = ""
        self._processes = contextlib.AsyncExitStack()
        self._started: list[Process] = []
        self._without_keys: list[ClusterClient] = []
        self._slices: list[Key] = []
        """Of which pyliqo makes virtual nodes, and nobody else may meanwhile."""

    async def enter(self, arm: str, *, anew: bool = False) -> None:
        """Have the system on that ``arm`` needs; start Liqo's processes ``anew`` if asked to."""
        wanted = arm if arm in LIQO else ""
        if wanted == self._on and not (wanted and anew):
            return
        if wanted and not self._on:
            await self._take_over()
        if wanted:
            await self._play(wanted)
        else:
            await self.leave()
            if self._settings.has("ours"):
                await arms.ours(self._stage)

    async def leave(self) -> None:
        """Have pyliqo back, if it is not there."""
        if not self._on:
            return
        self._on = ""
        try:
            await self._give_back()
        finally:
            await self._processes.aclose()
            await _delete(self._stage.rome, keys.NODE, Key("", liqo.NODE))  # else pods go there
            await _abandoned(self._stage.rome)
            await asyncio.to_thread(pair.ensure)

    async def _take_over(self) -> None:
        self._stage.say("taking pyliqo away")
        await _refuse_foreign(self._stage.rome)
        self._on = "nobody"
        for cluster in (self._stage.rome, self._stage.milan):
            if await cluster.get_live(keys.SECRET, liqo.AUTHENTICATION) is None:
                self._without_keys.append(cluster)
        self._slices = await _slices_with_nodes(self._stage.rome)
        await _mark(self._stage.rome, self._slices, makes_node=False)
        await _retire(self._stage)

    async def _play(self, arm: str) -> None:
        """Start Liqo's processes with the limits of ``arm``, and see that they offload a pod."""
        await self._processes.aclose()
        self._on = arm
        self._stage.say(f"starting Liqo's binaries: {arm}")
        home = Path(self._processes.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        addresses = {name: site.slot.address for name, site in self._stage.sites.items()}
        authority = _certify(home, addresses)
        for command in liqo.commands(arm, addresses, home):
            await self._start(command)
        for address in addresses.values():
            await waiting.until(
                partial(self._answers, address), bool, what=f"Liqo's webhook at {address} listens"
            )
        await self._register(addresses, authority)
        await _until_listed(self._stage.rome, keys.FOREIGN_CLUSTER)
        await self._start(liqo.kubelet(arm, addresses, home))
        await arms.until(self._stage.rome, keys.NODE, Key("", liqo.NODE), arms.is_ready)
        for one in LIQO:
            await arms.offload(self._stage, arms.local_namespace(one))
            await _prove(self._stage, one)

    async def _start(self, command: Command) -> None:
        site = self._stage.sites[command.cluster]
        argv = [str(self._folder() / command.binary), *command.arguments]
        process = await self._processes.enter_async_context(
            children.logging(
                network.inside(site.slot, argv),
                environment={**command.environment, "KUBECONFIG": str(site.files.kubeconfig)},
                log=site.files.log(command.component),
            )
        )
        self._stage.others[process.pid] = command.component
        self._started.append(process)
        self._processes.callback(self._stage.others.pop, process.pid, None)
        self._processes.callback(self._started.remove, process)

    async def _answers(self, address: str) -> bool:
        """Whether the webhook at ``address`` accepts connections.

        Raises:
            RuntimeError: a process of Liqo ended instead of starting.
        """
        ended = [self._stage.others[one.pid] for one in self._started if one.returncode is not None]
        if ended:
            raise RuntimeError(f"{', '.join(ended)} ended: see its log among those of the clusters")
        try:
            _, writer = await asyncio.open_connection(address, liqo.PORT)
        except OSError:
            return False
        writer.close()
        return True

    async def _register(self, addresses: dict[str, str], authority: bytes) -> None:
        """Make what Liqo's processes work with; what is there already stays."""
        rome = self._stage.rome
        clusters = {CONSUMER: rome, PROVIDER: self._stage.milan}
        for name, cluster in clusters.items():
            for kind, made in liqo.webhooks(addresses[name], authority).items():
                await cluster.apply(kind, made, manager=arms.MANAGER)
        kubeconfig = self._stage.sites[PROVIDER].files.kubeconfig.read_text(encoding="utf-8")
        await rome.apply(keys.SECRET, liqo.secret(kubeconfig), manager=arms.MANAGER)
        node = liqo.virtual_node(arms.virtual_node_spec(liqo.SECRET))
        await rome.apply(keys.VIRTUAL_NODE, node, manager=arms.MANAGER)

    async def _give_back(self) -> None:
        """Take away what Liqo's processes work with, while they are there to agree."""
        self._stage.say("taking Liqo away")
        rome, milan = self._stage.rome, self._stage.milan
        tenant = naming.tenant_namespace(PROVIDER)
        for arm in LIQO:
            await leftovers.unoffload(rome, arms.local_namespace(arm))
        await _delete(rome, keys.VIRTUAL_NODE, Key(tenant, liqo.NODE))
        for cluster in (rome, milan):
            await _until_none(cluster, keys.NAMESPACE_MAP)
            for kind in (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS):
                await _delete(cluster, kind, Key("", liqo.WEBHOOKS))
        for cluster in self._without_keys:
            await _delete(cluster, keys.SECRET, liqo.AUTHENTICATION)
        self._without_keys.clear()
        await _delete(rome, keys.SECRET, Key(tenant, liqo.SECRET))
        await _mark(rome, self._slices, makes_node=True)

    def _folder(self) -> Path:
        if self._settings.liqo is None:
            raise RuntimeError("no folder of Liqo's binaries was given")
        return self._settings.liqo


async def _prepare(stage: Stage, definitions: Sequence[Object]) -> None:
    """Make what disturbs nobody, and stays to the end: namespaces, and kinds that Liqo needs."""
    for arm in LIQO:
        namespace = Key("", arms.local_namespace(arm))
        made = named(keys.NAMESPACE, namespace, metadata={"labels": {load.PART: "true"}})
        await stage.rome.create(keys.NAMESPACE, made)
    for cluster in (stage.rome, stage.milan):
        for definition in definitions:
            await cluster.apply(leftovers.CUSTOM_RESOURCE, definition, manager=arms.MANAGER)
    for cluster in (stage.rome, stage.milan):
        for definition in definitions:
            key = Key("", definition["metadata"]["name"])
            await arms.until(cluster, leftovers.CUSTOM_RESOURCE, key, _is_established)


async def _refuse_foreign(rome: ClusterClient) -> None:
    """Stop where somebody else offloads: Liqo would take those namespaces, too.

    Raises:
        RuntimeError: somebody does.
    """
    found = (await rome.list(Selection(keys.NAMESPACE_OFFLOADING, Partial))).items
    foreign = sorted(key.namespace for key in found if not key.namespace.startswith("bench-"))
    if foreign:
        raise RuntimeError(
            f"the arms of Liqo take the clusters over, but {', '.join(foreign)} is offloaded: "
            "delete its NamespaceOffloading, or leave these arms out"
        )


async def _slices_with_nodes(rome: ClusterClient) -> list[Key]:
    """Return the slices of which pyliqo makes a virtual node."""
    of = Selection(keys.RESOURCE_SLICE, Object, naming.tenant_namespace(PROVIDER))
    found = (await rome.list(of)).items
    return [key for key, one in found.items() if slices.makes_virtual_node(one)]


async def _mark(rome: ClusterClient, of: Sequence[Key], *, makes_node: bool) -> None:
    """Say of slices whether a virtual node is made of them.

    Liqo, too, makes one of a slice that says so, and takes a second one for its own.
    """
    said = {"metadata": {"annotations": {keys.CREATE_VIRTUAL_NODE: str(makes_node).lower()}}}
    for key in of:
        await rome.patch(keys.RESOURCE_SLICE, key, said)


async def _retire(stage: Stage) -> None:
    """Take pyliqo away: first what it has to agree to, then its processes and registrations."""
    rome, milan = stage.rome, stage.milan
    await leftovers.unoffload(rome, arms.local_namespace("ours"))
    tenant = naming.tenant_namespace(PROVIDER)
    await leftovers.everything(rome, Selection(keys.VIRTUAL_NODE, Partial, tenant))
    for cluster in (rome, milan):
        await _until_none(cluster, keys.NAMESPACE_MAP)
    for cluster in (rome, milan):
        await _delete(cluster, keys.API_SERVICE, _METRICS)
        for name in install.DEPLOYMENTS:
            await _delete(cluster, keys.DEPLOYMENT, Key(keys.LIQO_NAMESPACE, name))
        await _until_none(cluster, keys.POD, keys.LIQO_NAMESPACE)
        registered = (
            (keys.MUTATING_WEBHOOKS, _CERTIFIED), (keys.VALIDATING_WEBHOOKS, _CERTIFIED),
            (_POLICY_BINDINGS, _INSTALLED),
        )  # fmt: skip
        for kind, labels in registered:
            await leftovers.everything(cluster, Selection(kind, Partial, labels=labels))
        certified = Selection(keys.SECRET, Partial, keys.LIQO_NAMESPACE, labels=_CERTIFIED)
        await leftovers.everything(cluster, certified)  # pyliqo makes new ones
        await _abandoned(cluster)  # of a run that was cut off


async def _abandoned(cluster: ClusterClient) -> None:
    """Remove ForeignClusters: Liqo makes them anew while it runs, and then nobody lets them go."""
    of = Selection(keys.FOREIGN_CLUSTER, Partial)
    for key in await leftovers.names(cluster, of):
        await cluster.patch(keys.FOREIGN_CLUSTER, key, {"metadata": {"finalizers": None}})
    await leftovers.everything(cluster, of)


def _certify(home: Path, addresses: dict[str, str]) -> bytes:
    """Write a certificate for the webhook of each cluster; return the authority's."""
    now = dt.datetime.now(dt.UTC)  # certificates begin now
    authority = pki.new_ca("bench", now=now, lifetime=_LIFETIME)
    for cluster, address in addresses.items():
        folder = liqo.certificates(home, cluster)
        folder.mkdir(parents=True)
        leaf = pki.issue(authority, common_name=cluster, ips=[address], server=True,
                         now=now, lifetime=_LIFETIME)  # fmt: skip
        (folder / "tls.crt").write_bytes(leaf.certificate)
        (folder / "tls.key").write_bytes(leaf.key)
    return authority.certificate


async def _prove(stage: Stage, arm: str) -> None:
    """Offload a pod and remove it: all processes are at work, and connections are open."""
    key = Key(arms.local_namespace(arm), _POD_OF[arm])
    pod = load.pod(*key, **arms.scheduling(arm))
    pod["metadata"]["labels"] = {"app": "proof"}  # not observed
    await stage.rome.create(keys.POD, pod)
    await arms.until(stage.rome, keys.POD, key, _is_running)
    await _delete(stage.rome, keys.POD, key)


def _is_established(definition: Object) -> bool:
    conditions = definition.get("status", {}).get("conditions", [])
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _is_running(pod: Object) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


async def _until_none(cluster: ClusterClient, kind: Kind, namespace: str = "") -> None:
    look = partial(leftovers.names, cluster, Selection(kind, Partial, namespace))
    await waiting.until(look, lambda found: not found, what=f"no {kind.plural} {namespace}")


async def _until_listed(cluster: ClusterClient, kind: Kind) -> None:
    look = partial(leftovers.names, cluster, Selection(kind, Partial))
    await waiting.until(look, bool, what=f"{kind.plural} there")


async def _delete(cluster: ClusterClient, kind: Kind, key: Key) -> None:
    await leftovers.remove(cluster, kind, key)
    await leftovers.gone(cluster, kind, key)
