"""The clusters of one checkout."""

import contextlib
import datetime as dt
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sandbox import (
    allocation,
    binaries,
    cluster,
    components,
    images,
    layout,
    locks,
    nodes,
    packages,
    progress,
    registry,
)
from sandbox.allocation import Slot
from sandbox.components import Component
from sandbox.errors import MissingError
from sandbox.images import Image
from sandbox.layout import Site

CHECKOUT: Final = Path(__file__).resolve().parents[1]
DEFAULT: Final = ("rome", "milan")


DIRECTORY: Final = CHECKOUT / os.environ.get("PYLIQO_SANDBOX", "")
"""Another folder of the checkout has clusters of its own, of the same names, at the same time."""


@dataclass(frozen=True)
class Sandbox:
    """The clusters that belong to ``directory``; its state lies in ``.sandbox`` there."""

    directory: Path = field(default=DIRECTORY)

    @property
    def state(self) -> Path:
        """The folder of kubeconfigs, logs and audit logs."""
        return self.directory / ".sandbox"

    @property
    def id(self) -> str:
        """What names, addresses and lock files of this checkout carry."""
        return allocation.checkout_id(self.directory)

    def up(
        self, clusters: Sequence[str] = DEFAULT, *, which: Sequence[images.Which] | None = None
    ) -> Mapping[str, Path]:
        """Start what is missing of ``clusters`` and return their kubeconfigs.

        Raises:
            MissingError: the machine lacks something; nothing was started.
            HeldError: another command is at work on the clusters of this checkout.
        """
        check_root(os.geteuid())
        wanted = prepare(which)
        with self._working():
            sites = [self._site(slot) for slot in registry.take(self.directory, clusters)]
            with (
                progress.step(f"starting {', '.join(clusters)}") as step,
                ThreadPoolExecutor(len(sites)) as pool,
            ):
                now = dt.datetime.now(dt.UTC)
                jobs = [
                    pool.submit(cluster.start, site, wanted, now=now, say=_says(step, site))
                    for site in sites
                ]
                for job in jobs:
                    job.result()
        return {site.slot.cluster: site.files.kubeconfig for site in sites}

    def down(self, clusters: Sequence[str] | None = None) -> None:
        """Remove the clusters of this checkout, or ``clusters`` of them, and all that is theirs."""
        check_root(os.geteuid())
        with self._working():
            for site in self.sites():
                if clusters is None or site.slot.cluster in clusters:
                    with progress.step(f"removing {site.slot.cluster}"):
                        cluster.remove(site)
                        registry.give_back(site.slot)
            if not self.sites():
                shutil.rmtree(self.state, ignore_errors=True)

    def sites(self) -> list[Site]:
        """Return the clusters of this checkout, running or not."""
        return [self._site(slot) for slot in registry.slots() if slot.id == self.id]

    def site(self, name: str) -> Site:
        """Return the cluster ``name``.

        Raises:
            KeyError: there is none.
        """
        return {site.slot.cluster: site for site in self.sites()}[name]

    def component(self, name: str, component: str) -> Component:
        """Return a component of the cluster ``name``, such as its "kube-apiserver"."""
        return components.of(self.site(name))[component]

    def kubeconfigs(self) -> dict[str, Path]:
        """Return the administrators' kubeconfigs of the clusters that there are."""
        return {site.slot.cluster: site.files.kubeconfig for site in self.sites()}

    def simulate(self, nodes: int) -> None:
        """Keep that many simulated nodes in each cluster."""
        with self._working():
            for site in self.sites():
                components.simulate(site, nodes)

    def load_image(self, archive: Path) -> None:
        """Import a docker or OCI archive into the node of each cluster."""
        for site in self.sites():
            with progress.step(f"loading {archive.name} into {site.slot.cluster}"):
                nodes.import_archive(site, archive)

    def _site(self, slot: Slot) -> Site:
        return layout.site(slot, self.state)

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        with registry.working_on(self.id):
            yield


def prepare(which: Sequence[images.Which] | None = None) -> tuple[Image, ...]:
    """Have everything that clusters need on this machine; return the images for their nodes.

    Raises:
        MissingError: something is not there and cannot be had.
    """
    packages.ensure()
    binaries.ensure()
    components.check()
    return images.ensure() if which is None else images.ensure(which)


def down_all(slots: Iterable[Slot]) -> None:
    """Remove the clusters of each checkout that ``slots`` name, be the checkout gone or not.

    Raises:
        HeldError: a command is at work on one of them; the others are removed.
    """
    check_root(os.geteuid())
    busy: list[locks.HeldError] = []
    for directory in sorted({slot.directory for slot in slots}):
        try:
            Sandbox(Path(directory)).down()
        except locks.HeldError as error:
            busy.append(locks.HeldError(f"{directory}: {error}"))
    if busy:
        raise busy[0]


def check_root(uid: int) -> None:
    """Stop where the kernel would.

    Raises:
        MissingError: this is not root.
    """
    if uid != 0:
        raise MissingError(
            "clusters need network namespaces, mounts and control groups, which only root may "
            "make: run this as root (sudo)"
        )


def component(name: str, component_name: str) -> Component:
    """Return a component of a cluster of this checkout."""
    return Sandbox().component(name, component_name)


def _says(step: progress.Step, site: Site) -> Callable[[str], None]:
    return lambda detail: step.update(f"{site.slot.cluster}: {detail}")
