"""The modules that do the work of a command, imported when it runs: ``lazy.why.pod(...)``.

With them comes the client of API servers, which takes longer to import than a TAB may wait.
Source: PEP 562.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = [
    "Client",
    "PeerClusters",
    "Progress",
    "Side",
    "backup",
    "candidates",
    "clusters",
    "dashboard",
    "identity",
    "info",
    "install",
    "move",
    "offload",
    "output",
    "peer",
    "provider",
    "reflections",
    "resourceslice",
    "uninstall",
    "virtualnode",
    "why",
]

if TYPE_CHECKING:
    from kube.client import ClusterClient as Client
    from liqoctl import (
        backup,
        candidates,
        clusters,
        dashboard,
        identity,
        info,
        install,
        move,
        offload,
        output,
        peer,
        provider,
        reflections,
        resourceslice,
        uninstall,
        virtualnode,
        why,
    )
    from liqoctl.clusters import Side
    from liqoctl.output import Progress
    from liqoctl.peer import PeerClusters

else:
    Client = PeerClusters = Progress = Side = object  # what annotations say

    def __getattr__(name: str) -> ModuleType:
        if name not in __all__:
            raise AttributeError(name)
        return importlib.import_module(f"liqoctl.{name}")
