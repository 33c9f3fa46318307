"""Where the pods of a namespace go, by the NamespaceMap.

A transient is no verdict: only a NamespaceMap that is there and does not ask for a namespace says
that it is not offloaded. What is asked for and not accepted (yet) is waited for.

Source: behaviour.md 1.2, 5.5.4; faults.md F21, F22.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from apis.offloading import MappingPhase, NamespaceMap
from apis.pairs import Pair


class State(Enum):
    """What a NamespaceMap says about a namespace."""

    OFFLOADED = auto()
    WAITING = auto()
    """Not yet, or not now: nothing may be concluded."""
    WITHDRAWN = auto()
    """It is not offloaded, or no more."""


@dataclass(frozen=True)
class Place:
    """``pair`` is None when nothing of the namespace can be left on the provider."""

    state: State
    pair: Pair | None = None


@dataclass(frozen=True)
class Peers:
    """The two clusters: ``origin`` is home, ``destination`` the provider."""

    origin: str
    destination: str

    def pair(self, namespace: str, remote_namespace: str) -> Pair:
        """Return the pair of two namespaces."""
        return Pair(self.origin, self.destination, namespace, remote_namespace)


def place(found: NamespaceMap | None, namespace: str, peers: Peers) -> Place:
    """Return where the pods of ``namespace`` go; None is a NamespaceMap that is not there."""
    if found is None:
        return Place(State.WAITING)
    current = found.current.get(namespace)
    known = current is not None and current.phase is not MappingPhase.CREATION_LOOP_BACK_OFF
    pair = peers.pair(namespace, current.remote_namespace) if current and known else None
    if namespace not in found.desired:
        return Place(State.WITHDRAWN, pair)
    if current and current.phase is MappingPhase.ACCEPTED:
        return Place(State.OFFLOADED, pair)
    return Place(State.WAITING, pair)


def accepted(found: NamespaceMap, peers: Peers) -> Mapping[str, Pair]:
    """Return the pair of each namespace whose pods are offloaded."""
    places = {namespace: place(found, namespace, peers) for namespace in found.current}
    return {
        namespace: there.pair
        for namespace, there in places.items()
        if there.state is State.OFFLOADED and there.pair
    }
