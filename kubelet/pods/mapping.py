"""Where the pods of a namespace go, by the NamespaceMap.

A transient is no verdict: only a NamespaceMap that is there and does not ask for a namespace says
that it is not offloaded. What is asked for and not accepted (yet) is waited for.

Source: docs/parity.md § 1.2, 5.5.4; F-21, F-22.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from apis.offloading import MappedNamespace, MappingPhase, NamespaceMap


class MappingState(Enum):
    """What a NamespaceMap says about a namespace."""

    OFFLOADED = auto()
    WAITING = auto()
    """Not yet, or not now: nothing may be concluded."""
    WITHDRAWN = auto()
    """It is not offloaded, or no longer."""


@dataclass(frozen=True)
class NamespaceMapping:
    """``pair`` is None when nothing of the namespace can be left on the provider."""

    state: MappingState
    pair: MappedNamespace | None = None
    is_ending: bool = False
    """Whether the twin namespace is being deleted: nothing is made in it any more."""


@dataclass(frozen=True)
class HomeAndProvider:
    """The two clusters: ``origin`` is home, ``destination`` the provider."""

    origin: str
    destination: str

    def pair(self, namespace: str, remote_namespace: str) -> MappedNamespace:
        return MappedNamespace(self.origin, self.destination, namespace, remote_namespace)


def of(found: NamespaceMap | None, namespace: str, clusters: HomeAndProvider) -> NamespaceMapping:
    """Return where the pods of ``namespace`` go; None is a NamespaceMap that is not there."""
    if found is None:
        return NamespaceMapping(MappingState.WAITING)
    current = found.current.get(namespace)
    known = current is not None and current.phase is not MappingPhase.CREATION_LOOP_BACK_OFF
    pair = clusters.pair(namespace, current.remote_namespace) if current and known else None
    if namespace not in found.desired:
        is_ending = current is not None and current.phase is MappingPhase.TERMINATING
        return NamespaceMapping(MappingState.WITHDRAWN, pair, is_ending)
    if current and current.phase is MappingPhase.ACCEPTED:
        return NamespaceMapping(MappingState.OFFLOADED, pair)
    return NamespaceMapping(MappingState.WAITING, pair)


def known(found: NamespaceMap, clusters: HomeAndProvider) -> Mapping[str, MappedNamespace]:
    """Return the mapping of each namespace of which something may be on the provider."""
    mappings = {namespace: of(found, namespace, clusters) for namespace in found.current}
    return {namespace: there.pair for namespace, there in mappings.items() if there.pair}


def is_unclear(found: NamespaceMap, namespace: str) -> bool:
    """Whether the entry of a ``namespace`` that is asked for has no phase that makes sense."""
    current = found.current.get(namespace)
    return namespace in found.desired and current is not None and current.phase is None


def accepted(found: NamespaceMap, clusters: HomeAndProvider) -> Mapping[str, MappedNamespace]:
    """Return the mapping of each namespace whose pods are offloaded."""
    mappings = {namespace: of(found, namespace, clusters) for namespace in found.current}
    return {
        namespace: there.pair
        for namespace, there in mappings.items()
        if there.state is MappingState.OFFLOADED and there.pair
    }
