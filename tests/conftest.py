"""Clusters for all tests: a fake and a real API server, held to each other by the same tests."""

import asyncio
import faulthandler
import os
import secrets
import signal
import ssl
import sys
from asyncio import sslproto
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from hypothesis import HealthCheck, settings

from apis import keys
from apis.objects import Key, Kind, Object, named
from kube import client, errors, process, transport
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from kube.slim import Partial
from sandbox import controlplane, install, pair
from sandbox.clusters import Sandbox
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests.fakes import FakeCluster
from tests.journeys import three as third
from tests.kube.running import Gate

pytest_plugins = ["tests.shown"]
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what is to run beside it
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # or no process of a test is interrupted
settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("other", parent=settings.get_profile("same"), derandomize=False)
settings.load_profile(os.environ.get("PYLIQO_EXAMPLES", "same"))
"""Which examples hypothesis tries: the same in every run, or ``other`` ones to find more."""
CRDS = Path(__file__).parent.parent / "manifests" / "10-crds"
CRD = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)

N = TypeVar("N", bool, int, float, str)


def size_of(variable: str, small: N, full: N) -> N:
    """Return how large a test is: what ``variable`` says, else ``full`` in `make test-full`."""
    return type(small)(os.environ.get(variable) or (full if IS_FULL else small))


IS_FULL = os.environ.get("PYLIQO_FULL") == "1"
BOUND_S = float(os.environ.get("PYLIQO_TEST_BOUND_S") or (36_000 if IS_FULL else 900))
"""How long a test with its fixtures may take: the longest takes 210 s. For full sizes more."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    """Fail a test that hangs, and show where its threads and tasks wait.

    The signal comes again each minute: what follows may hang for the same reason.
    """

    def hangs(*_: object) -> None:
        faulthandler.dump_traceback(sys.stderr.fileno())
        loop = asyncio._get_running_loop()  # noqa: SLF001  the public one raises
        tasks = asyncio.all_tasks(loop) if loop else ()
        waits = "\n".join("\n  ".join((task.get_name(), *_awaited(task))) for task in tasks)
        pytest.fail(f"{item.nodeid} has run for {BOUND_S:.0f} s and more. Its tasks wait:\n{waits}")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, BOUND_S, 60)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _awaited(task: asyncio.Task[Any]) -> Iterator[str]:
    """Yield where ``task`` waits, the innermost last; its own stack has the outermost only."""
    inner: Any = task.get_coro()
    while frame := getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None):
        yield f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)


@pytest.fixture(autouse=True)
def patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections to real API servers take long, on a machine with much else to do."""
    if any(map(request.node.get_closest_marker, ("cluster", "journey"))):
        monkeypatch.setattr(transport, "CONNECT_S", 60.0)


@pytest.fixture(scope="session", autouse=True)
def strict() -> Iterator[None]:
    """Let TLS ask for key identifiers, as it does from Python 3.13 on, on every Python.

    The clusters of tests have authorities without them, as EKS does. A connection takes as much
    memory as one of our processes.
    """
    make = ssl.create_default_context

    def made(*args: Any, **rest: Any) -> ssl.SSLContext:
        context = make(*args, **rest)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ssl, "create_default_context", made)
        patched.setattr(sslproto.SSLProtocol, "max_size", process.TLS_BUFFER)
        yield


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Yield an API server for the whole run; a test that stops it starts it again."""
    with controlplane.start(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture
async def gate(plane: Plane) -> AsyncIterator[Gate]:
    """Yield an open way to the API server, which a test can break."""
    async with Gate(plane.listening.port) as gate:
        yield gate


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Yield a control plane of a module's own, since a scheduler binds whatever waits."""
    flags = ["--disable-admission-plugins=TaintNodesByCondition"]  # nobody makes nodes ready here
    with controlplane.start(tmp_path_factory.mktemp("scheduled"), flags=flags) as plane:
        plane.start_scheduler()
        yield plane


@pytest.fixture
async def scheduled_cluster(scheduled: Plane) -> AsyncIterator[ClusterClient]:
    """Yield a client of it."""
    async with client.connect(scheduled.kubeconfig) as real:
        yield real


@pytest.fixture(scope="session")
def crds(plane: Plane) -> None:
    """Install our kinds on the API server."""
    _install_crds(plane)


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Yield a control plane of a module's own, with our kinds.

    For anybody who runs a daemon that acts on all it finds, or says something of all there is: on
    the one of the whole run there is what other tests left.
    """
    with controlplane.start(tmp_path_factory.mktemp("own")) as plane:
        _install_crds(plane)
        yield plane


@pytest.fixture
async def server(plane: Plane, crds: None) -> AsyncIterator[ClusterClient]:
    """Yield a client of the API server of the whole run."""
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as real:
        yield real


@pytest.fixture
async def own_server(own_plane: Plane) -> AsyncIterator[ClusterClient]:
    """Yield a client of the module's own."""
    async with client.connect(own_plane.kubeconfig, user_agent="pyliqo-tests") as real:
        yield real


@pytest.fixture(scope="session")
def kubeconfigs() -> Iterator[Mapping[str, Path]]:
    """Start rome and milan unless they run, install this tree, peer them: once for the run.

    What ran before is left running.
    """
    sandbox = Sandbox()
    were_up = bool(sandbox.sites())
    yield pair.ensure()
    if not were_up:
        sandbox.down()


@pytest.hookimpl(tryfirst=True)  # before any is deselected by its marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of three clusters, and let them come last: the third runs for them alone."""
    for item in items:
        if "three_kubeconfigs" in getattr(item, "fixturenames", ()):
            item.add_marker("three")
    items.sort(key=lambda item: item.get_closest_marker("three") is not None)


@pytest.fixture(scope="session")
def three_kubeconfigs(kubeconfigs: Mapping[str, Path]) -> Iterator[Mapping[str, Path]]:
    """Start a third cluster beside the pair, and peer it: a second provider, which consumes too."""
    sandbox = Sandbox()
    was_up = third.THIRD in {site.slot.cluster for site in sandbox.sites()}
    found = {**kubeconfigs, **sandbox.up([third.THIRD])}
    enforced = "--enable-resource-enforcement"  # which a test switches off
    install.run(found[third.THIRD], *install.command(third.THIRD), enforced)
    Kubectl(found[third.THIRD]).apply([pair.storage_class()])
    for consumer, provider in third.PEERINGS:
        pair.peer(consumer, provider, found)
    yield found
    if not was_up:
        for consumer, provider in third.PEERINGS:
            remote = f"--remote-kubeconfig={found[provider]}"
            install.run(found[consumer], "unpeer", remote, "--skip-confirm", "--delete-namespaces")
        sandbox.down([third.THIRD])


@pytest.fixture
async def three(three_kubeconfigs: Mapping[str, Path]) -> AsyncIterator[third.Three]:
    """Yield clients of the three clusters."""
    async with third.connected(three_kubeconfigs) as clusters:
        yield clusters


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Yield a cluster: once the fake, once the real one with our CRDs."""
    if request.param == "fake":
        yield FakeCluster(strict=True)
        return
    plane, _ = map(request.getfixturevalue, ("plane", "crds"))
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as real:
        yield real


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    """Return a namespace of this test's own."""
    name = f"test-{secrets.token_hex(4)}"
    await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
    return name


def _install_crds(plane: Plane) -> None:
    with ThreadPoolExecutor() as pool:  # anybody who asks may be inside an event loop
        pool.submit(lambda: asyncio.run(install_crds(plane.kubeconfig))).result()


async def install_crds(kubeconfig: Path) -> None:
    """Install our kinds, and wait until they are served."""
    async with client.connect(kubeconfig, user_agent="pyliqo-tests") as real:
        for path in sorted(CRDS.glob("*.yaml")):
            for crd in yaml.safe_load_all(path.read_text()):
                if crd and crd["kind"] == CRD.kind:
                    await real.apply(CRD, crd, manager="tests")
                    await established(real, Key("", crd["metadata"]["name"]))


def definition(kind: Kind) -> Object:
    """Return a CRD of ``kind`` with a status, its schema being nobody's matter here."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()}
    spec = {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]}
    approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return named(CRD, Key("", kind.resource), metadata={"annotations": approved}, spec=spec)


async def established(cluster: Cluster, key: Key) -> None:
    """Wait until a CRD is served: its condition says so a moment before."""
    async with asyncio.timeout(300):
        while True:
            crd = await cluster.get_live(CRD, key) or {}
            if _is_established(crd) and await _is_served(cluster, crd["spec"]):
                return
            await asyncio.sleep(0.05)


def _is_established(crd: Object) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


async def _is_served(cluster: Cluster, spec: Object) -> bool:
    version = next(each["name"] for each in spec["versions"] if each["served"])
    kind = Kind(spec["group"], version, spec["names"]["kind"], spec["names"]["plural"])
    try:
        await cluster.list(Selection(kind, Partial))
    except errors.NotFoundError:
        return False
    return True
