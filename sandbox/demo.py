"""The main job, told step by step with what a user would type; every step is checked."""

import io
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from apis import keys, naming
from sandbox import images, install
from sandbox.errors import ProgramError
from sandbox.kubectl import Kubectl, KubectlError

CONSUMER, PROVIDER = "rome", "milan"
NAMESPACE = "demo"
WIDTH = 120
"""Columns of the picture."""
SECRET_LENGTH = len("not-to-be-printed")


class NotShownError(Exception):
    """A step did not hold; the message says what was seen instead."""


@dataclass
class Story:
    """The two clusters and what was shown so far."""

    kubeconfigs: Mapping[str, Path]
    console: Console = field(default_factory=Console)
    picture: Console = field(
        default_factory=lambda: Console(record=True, file=io.StringIO(), width=WIDTH)
    )
    """Records what the console shows, as wide as a page."""
    consoles: Sequence[Console] = ()
    """Those that show what is said now."""
    shown: list[tuple[str, str, float]] = field(default_factory=list)

    @property
    def consumer(self) -> Kubectl:
        return Kubectl(self.kubeconfigs[CONSUMER])

    @property
    def provider(self) -> Kubectl:
        return Kubectl(self.kubeconfigs[PROVIDER])

    @property
    def twin(self) -> str:
        """Return the namespace on the provider."""
        return naming.default_remote_namespace(NAMESPACE, CONSUMER)

    def tell(self, step: "Step") -> None:
        """Run one step, and show it as it goes."""
        self.consoles = (self.console, self.picture) if step.is_drawn else (self.console,)
        for console in self.consoles:
            console.rule(f"[bold]{step.title}", align="left")
        begun = time.monotonic()
        seen = step.run(self)
        self.shown.append((step.title, seen, time.monotonic() - begun))

    def say(self, text: str, **how: Any) -> None:
        """Show ``text``, as it is."""
        for console in self.consoles:
            console.print(text, highlight=False, markup=False, **how)

    def kubectl(self, cluster: str, *args: str, stdin: str | None = None) -> str:
        """Type a kubectl command, show it with its output, and return the output."""
        self._prompt(cluster, "kubectl", *args)
        said = Kubectl(self.kubeconfigs[cluster]).run(*args, stdin=stdin, timeout_s=200)
        self.say(said.rstrip(), soft_wrap=True)
        return said

    def liqoctl(self, *args: str | Path, cluster: str = CONSUMER) -> None:
        """Type a liqoctl command, and show what it says as it says it."""
        self._prompt(cluster, "liqoctl", *args)
        command = install.liqoctl(self.kubeconfigs[cluster], *args)
        merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, text=True, **merged) as process:  # type: ignore[call-overload]
            for line in process.stdout:
                self.say(line.rstrip(), soft_wrap=True)
        expect(process.returncode == 0, f"liqoctl {args[0]} exited with {process.returncode}")

    def _prompt(self, cluster: str, *command: str | Path) -> None:
        words = [word.name if isinstance(word, Path) else word for word in command]
        self.say(f"{cluster}$ {shlex.join(words)}", style="cyan")


def expect(holds: bool, otherwise: str) -> None:  # noqa: FBT001  # reads like a sentence
    """Raise NotShownError with ``otherwise`` unless it holds."""
    if not holds:
        raise NotShownError(otherwise)


def tell(kubeconfigs: Mapping[str, Path], picture: Path | None = None) -> int:
    """Tell the whole story on the two running clusters; return the exit status.

    ``picture`` is the SVG file to write of it.
    """
    story = Story(kubeconfigs)
    error = ""
    try:
        for step in STEPS:
            story.tell(step)
    except (NotShownError, KubectlError, ProgramError) as failure:
        error = str(failure)
    _conclude(story, error)
    if picture and not error:
        picture.write_text(_drawn(story), encoding="utf-8")
    return 1 if error else 0


def _drawn(story: Story) -> str:
    """Return the picture without what would be fetched from elsewhere to show it."""
    drawn = story.picture.export_svg(title="make demo", unique_id="demo")
    return re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)


def _install(story: Story) -> str:
    for cluster in (PROVIDER, CONSUMER):
        story.liqoctl(*install.command(cluster), cluster=cluster)
    return f"{len(install.DEPLOYMENTS)} Deployments available in each cluster"


def _peer(story: Story) -> str:
    story.liqoctl("peer", "--remote-kubeconfig", story.kubeconfigs[PROVIDER], "--cpu", "4")
    story.consumer.wait("--for=condition=Ready", f"node/{PROVIDER}")
    listing = story.kubectl(CONSUMER, "get", "nodes")
    expect(PROVIDER in listing, "the virtual node does not appear")
    return f"node {PROVIDER} is Ready in {CONSUMER}"


def _info(story: Story) -> str:
    story.liqoctl("info", "peer", PROVIDER)
    told = install.run(story.kubeconfigs[CONSUMER], "info", "peer", "--get", "offloading.status")
    expect(told.strip() == "Healthy", f"offloading to {PROVIDER} is {told.strip()}")
    return "authentication and offloading are Healthy"


def _offload(story: Story) -> str:
    story.kubectl(CONSUMER, "create", "namespace", NAMESPACE)
    story.liqoctl("offload", "namespace", NAMESPACE, "--pod-offloading-strategy", "Remote")
    story.kubectl(CONSUMER, "get", "namespaceoffloadings", "-n", NAMESPACE)
    story.kubectl(PROVIDER, "get", "namespace", story.twin)
    return f"namespace {story.twin} in {PROVIDER}"


def _deploy(story: Story) -> str:
    text = Path(__file__).with_name("demo.yaml").read_text(encoding="utf-8")
    manifest = text.replace("image: workload", f"image: {images.workload_name()}")
    story.kubectl(CONSUMER, "apply", "-n", NAMESPACE, "-f", "-", stdin=manifest)
    story.kubectl(CONSUMER, "rollout", "status", "deployment/web", "-n", NAMESPACE)
    story.kubectl(CONSUMER, "get", "pods", "-n", NAMESPACE, "-o", "wide")
    story.kubectl(PROVIDER, "get", "pods", "-n", story.twin, "-o", "wide")
    here, there = _pods(story)
    expect(len(here) == len(there) == 3, f"{len(here)} pods here, {len(there)} there")  # noqa: PLR2004
    nodes = {pod["spec"]["nodeName"] for pod in here.values()}
    expect(nodes == {PROVIDER}, f"pods are on {nodes}")
    return f"3 pods Running on {_nodes(there)}, shown Running on {PROVIDER}"


def _logs(story: Story) -> str:
    pod = min(_pods(story)[0])
    logs = story.kubectl(CONSUMER, "logs", "-n", NAMESPACE, pod)
    expected = f"ciao da roma, a secret of {SECRET_LENGTH} characters, pod {pod}"
    expect(expected in logs, f"the log is {logs!r}")
    return "the log names the ConfigMap's text and the Secret's length"


def _scale(story: Story) -> str:
    for replicas in (5, 1):
        story.kubectl(
            CONSUMER, "scale", "deployment/web", "-n", NAMESPACE, f"--replicas={replicas}"
        )
        story.kubectl(CONSUMER, "rollout", "status", "deployment/web", "-n", NAMESPACE)
        _until(story, replicas)
        story.kubectl(PROVIDER, "get", "pods", "-n", story.twin)
    return "5 pods, then 1, on both sides"


def _delete(story: Story) -> str:
    story.kubectl(CONSUMER, "delete", "deployment", "web", "-n", NAMESPACE)
    _until(story, 0)
    story.kubectl(PROVIDER, "get", "pods,shadowpods", "-n", story.twin)
    return "no pod left on either side"


def _unoffload(story: Story) -> str:
    story.liqoctl("unoffload", "namespace", NAMESPACE, "--skip-confirm")
    listing = story.provider.run("get", "namespaces", "-o", "name")
    expect(f"namespace/{story.twin}\n" not in listing, f"{story.twin} is still there")
    label = story.consumer.get("namespace", NAMESPACE)["metadata"].get("labels", {})
    expect(keys.SCHEDULING_ENABLED not in label, "the namespace is still labelled")
    story.kubectl(CONSUMER, "delete", "namespace", NAMESPACE)
    return f"namespace {story.twin} is gone from {PROVIDER}"


class Step(NamedTuple):
    """A part of the story; what it returns is what was seen."""

    title: str
    run: Callable[[Story], str]
    is_drawn: bool = False
    """Whether it is in the picture, which shows the way there and not the way back."""


STEPS: Final = (
    Step("Install pyliqo on both clusters", _install, is_drawn=True),
    Step("Peer: milan appears in rome as a node", _peer, is_drawn=True),
    Step("How it stands with milan", _info),
    Step("Offload a namespace", _offload, is_drawn=True),
    Step("Deploy: 3 replicas with a ConfigMap and a Secret", _deploy, is_drawn=True),
    Step("Logs come back", _logs, is_drawn=True),
    Step("Scaling follows", _scale),
    Step("Deletion follows", _delete),
    Step("Unoffload cleans up", _unoffload),
)


def _pods(story: Story) -> tuple[dict[str, Any], dict[str, Any]]:
    here = story.consumer.items("pods", "-n", NAMESPACE)
    there = story.provider.items("pods", "-n", story.twin)
    by_name = [{pod["metadata"]["name"]: pod for pod in side} for side in (here, there)]
    return by_name[0], by_name[1]


def _nodes(pods: Mapping[str, Any]) -> str:
    return ", ".join(sorted({pod["spec"]["nodeName"] for pod in pods.values()}))


def _until(story: Story, pods: int, *, timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while (seen := [len(side) for side in _pods(story)]) != [pods, pods]:
        late = f"{seen} pods here and there, not {pods}, after {timeout_s:.0f} s"
        expect(time.monotonic() < deadline, late)
        time.sleep(0.5)


def _conclude(story: Story, error: str) -> None:
    table = Table("step", "seen", "s", title="What was shown")
    for title, seen, seconds in story.shown:
        table.add_row(title, seen, f"{seconds:.0f}")
    if error:
        table.add_row(STEPS[len(story.shown)].title, f"did not hold: {error}", "", style="red")
    story.console.print(table)
    story.console.print(
        "Go on by hand: `make up`, then `export KUBECONFIG=$PWD/.sandbox/rome.kubeconfig` and "
        "`kubectl get nodes,pods -A`; `make down` ends it.",
        highlight=False,
    )
