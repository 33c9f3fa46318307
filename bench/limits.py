"""Controller managers and schedulers without the brakes of their clients, for the time of a run.

By default a ReplicaSet makes 20 pods a second, and every arm would be measured by that.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from bench import counters
from sandbox import binaries, cgroups, flags, network, processes
from sandbox.components import Component
from sandbox.layout import Site

RAISED: Final = ("--kube-api-qps=1000", "--kube-api-burst=2000")
_LIMITED: Final[dict[str, Callable[[Site], list[str]]]] = {
    "kube-controller-manager": flags.controller_manager,
    "kube-scheduler": flags.scheduler,
}


@contextlib.contextmanager
def raised(sites: Iterable[Site]) -> Iterator[None]:
    """Start those that are limited anew without limits; at the end as they were."""
    limited = [
        part for site in sites for name in _LIMITED if is_limited(part := Component(site, name))
    ]
    try:
        for part in limited:
            _restart(part)
        yield
    finally:
        for part in limited:
            part.stop()
            part.start()


def is_limited(part: Component) -> bool:
    """Whether the process runs with the limits that its client has by default."""
    return not any(flag.startswith("--kube-api-qps=") for flag in counters.argv(part.pid or 0))


def _restart(part: Component) -> None:
    argv = [str(binaries.program(part.name)), *_LIMITED[part.name](part.site), *RAISED]
    part.stop()
    processes.launch(
        network.inside(part.site.slot, argv),
        pid_file=part.pid_file, log=part.log, joins=cgroups.joins(part.site.cgroup),
    )  # fmt: skip
