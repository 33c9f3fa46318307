"""Where the pods are whom a pod of here wants to be near, or far from."""

from collections.abc import Mapping

from apis.objects import Object
from kubelet.contract import Namespaces
from kubelet.forge import antiaffinity
from kubelet.forge.mapping import MappingState


async def twins_of(local: Object, namespaces: Namespaces) -> Mapping[str, str]:
    """Return the twins of the namespaces that the pod's terms of affinity name."""
    names = sorted(antiaffinity.named(local))
    found = [(name, await namespaces.mapping(name)) for name in names]
    return {
        name: there.pair.remote_namespace
        for name, there in found
        if there.state is MappingState.OFFLOADED and there.pair
    }
