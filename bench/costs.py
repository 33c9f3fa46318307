"""What blocks cost in requests and CPU, and what a pod or a virtual node adds to it; pure."""

from collections.abc import Callable, Sequence
from typing import Final

from bench import counters, figures, result
from bench.figures import Line
from bench.result import Block, Request
from bench.suites import burst, idle

_EVENTS: Final = "events"


def of_a_pod(blocks: Sequence[Block], arm: str) -> dict[str, Line | None]:
    """Return what a pod costs in a burst of ``arm``, fitted over the sizes."""
    of_arm = result.chosen(blocks, burst.SUITE, arm)
    costs_of: dict[str, Callable[[Block], float]] = {
        "CPU-seconds of the servers": servers_s,
        "CPU-seconds of the system": system_s,
        "bytes between the clusters": lambda block: sum(
            count for name, count in block.wire.items() if name.endswith("/uplink")
        ),
        "requests": lambda block: sum(request.count for request in block.requests),
        "requests of the system": requests,
    }
    return {
        name: figures.fit([(block.size, cost(block)) for block in of_arm])
        for name, cost in costs_of.items()
    }


def of_a_virtual_node(blocks: Sequence[Block]) -> dict[str, Line | None]:
    """Return what a virtual node costs at rest, fitted over their number."""
    resting = result.chosen(blocks, idle.SUITE, idle.ARM)
    costs_of: dict[str, Callable[[Block], float]] = {
        "PSS of our processes, MiB": lambda block: block.figures.get("pss_mib", 0.0),
        "CPU of our processes, % of a core": lambda block: system_s(block) / block.seconds * 100,
        "requests of ours a second": requests_a_second,
    }
    return {
        name: figures.fit([(block.figures["virtual_nodes"], cost(block)) for block in resting])
        for name, cost in costs_of.items()
    }


def writes(block: Block, *, with_events: bool = True) -> int:
    """Return the writes of what offloads in a block; leases are no part of any pod's cost."""
    return sum(
        one.count
        for one in _requests(block)
        if counters.is_write(one)
        and one.resource not in {"leases", "nodes/status"}
        and (with_events or one.resource != _EVENTS)
    )


def requests(block: Block) -> int:
    """Return the requests of what offloads in a block."""
    return sum(one.count for one in _requests(block))


def requests_a_second(block: Block) -> float:
    """Return how often what offloads asks the API servers for something."""
    return requests(block) / block.seconds


def lists(block: Block) -> int:
    """Return the LISTs of what offloads."""
    return sum(one.count for one in _requests(block) if one.verb == "list")


def _requests(block: Block) -> list[Request]:
    return [one for one in block.requests if counters.is_of_system(one.agent)]


def servers_s(block: Block) -> float:
    """Return the CPU-seconds of API servers and etcds."""
    return sum(block.cpu_s.get(name, 0.0) for name in counters.SERVERS)


def system_s(block: Block) -> float:
    """Return the CPU-seconds of what offloads."""
    return sum(block.cpu_s.get(name, 0.0) for name in counters.SYSTEM)
