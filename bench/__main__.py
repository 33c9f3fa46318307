"""``python -m bench [SUITE...]`` measures; the commands beneath are other tools."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench import (
    arms,
    check,
    goals,
    growth,
    hostile,
    liqo,
    machine,
    observe,
    plots,
    report,
    show,
    takeover,
    writes,
)
from bench.plan import Plan
from bench.result import Run
from bench.settings import Settings, parse
from bench.stage import CONSUMER, PROVIDER, Stage
from bench.suites import admission, burst, idle, memory, offload, reflection
from kube import client
from kube.errors import KubeError
from sandbox import install, pair, progress
from sandbox.api import NotYetError, RefusedError
from sandbox.clusters import Sandbox
from sandbox.errors import MissingError
from sandbox.kubectl import KubectlError
from sandbox.layout import Site
from sandbox.locks import HeldError

_COMMANDS: Final[dict[str, Callable[[Sequence[str]], int]]] = {
    "check": check.main,
    "growth": growth.main,
    "hostile": hostile.main,
    "show": show.main,
    "writes": writes.main,
}
_INTERRUPTED: Final = 130
_FAILURES: Final = (
    RuntimeError, KubeError, KubectlError, MissingError, HeldError, NotYetError, RefusedError,
    OSError,
)  # fmt: skip
"""What keeps a run from its end: clusters that do not start, a server that does not answer."""
AGENT: Final = "bench-load"
_SUITES: Final[dict[str, Callable[[Stage, Settings], Awaitable[None]]]] = {
    "admission": admission.run,
    "offload": offload.run,
    "reflection": reflection.run,
    "memory": memory.run,
    "idle": idle.run,
    "burst": burst.run,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, tell and keep it; return 0 if the run is valid, 130 when it was interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in _COMMANDS:
        return _COMMANDS[words[0]](words[1:])
    settings = parse(words, os.environ)
    try:
        _check(settings)
        run = asyncio.run(_until_stopped(settings))
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.stderr.write("bench: interrupted; everything it made was removed\n")
        return _INTERRUPTED
    except _FAILURES as error:
        sys.stderr.write(f"bench: {told(error)}\n")
        return 2
    file = report.keep(run, settings.output)
    plots.draw(run, settings.output)
    report.show(run, file)
    return 1 if run.violations else 0


def _check(settings: Settings) -> None:
    if settings.liqo_arms and settings.liqo:
        liqo.complete(settings.liqo)
        if not settings.install:
            raise RuntimeError(
                "--no-install does not go with Liqo's arms, which leave this tree's pyliqo "
                "installed: leave out one of them"
            )


def told(error: BaseException) -> str:
    """Return what went wrong first; what then went wrong with the cleanup is told behind it."""
    said = str(error) or type(error).__name__
    first = error.__cause__ or error
    while first.__context__ is not None:
        first, last = first.__context__, first
        if isinstance(first, _FAILURES) and first is not last.__cause__:
            return f"{told(first)}; then: {said}"
    return said


async def _until_stopped(settings: Settings) -> Run:
    task = asyncio.create_task(_measure(settings))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


async def _measure(settings: Settings) -> Run:
    is_installing = (settings.install and settings.has("ours")) or bool(settings.liqo_arms)
    await asyncio.to_thread(pair.ensure if is_installing else _up)
    sandbox = Sandbox()
    sites = {name: sandbox.site(name) for name in (CONSUMER, PROVIDER)}
    with progress.step("waiting for pods of another version to end"):
        for site in sites.values():
            await asyncio.to_thread(install.wait_for_leaving, site.files.kubeconfig)
    with progress.step("measuring") as step:
        plan = Plan(settings.minutes, settings.suites)
        async with _stage(sites, plan, step.update) as stage:
            versions = await machine.versions(stage, settings)
            said = machine.settings(stage, settings)
            run = Run(machine.describe(), versions, said, stage.blocks)
            try:
                async with arms.ready(stage, settings), takeover.cast(stage, settings):
                    for name in settings.suites:
                        plan.enter(name)
                        await _SUITES[name](stage, settings)
            except BaseException:
                report.show(run, report.keep(run, settings.output / "unfinished"))
                raise
            said |= machine.afterwards(stage)
            return replace(run, settings=said, goals=goals.judge(stage.blocks))


def _up() -> None:
    Sandbox().up((CONSUMER, PROVIDER))


@contextlib.asynccontextmanager
async def _stage(
    sites: dict[str, Site], plan: Plan, tell: Callable[[str], None]
) -> AsyncIterator[Stage]:
    kubeconfigs = {name: site.files.kubeconfig for name, site in sites.items()}
    with tempfile.TemporaryDirectory(prefix="pyliqo-bench-") as folder:
        async with (
            client.connect(kubeconfigs[CONSUMER], user_agent=AGENT) as rome,
            client.connect(kubeconfigs[PROVIDER], user_agent=AGENT) as milan,
            observe.watching(Path(folder) / "seen", kubeconfigs) as observer,
        ):
            stage = Stage(rome, milan, sites, observer, plan, tell)
            stage.others[observer.pid] = "observer"
            yield stage


if __name__ == "__main__":
    sys.exit(main())
