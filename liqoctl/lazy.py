"""The modules that do the work of a command, imported when it runs: ``lazy.why.pod(...)``.

With them comes the client of API servers, which takes longer to import than a TAB may wait.
Source: PEP 562.
"""

# ruff: noqa: F401

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from liqoctl.peer import PeerClusters

else:
    PeerClusters = Side = object  # what annotations say

    def __getattr__(name: str) -> ModuleType:
        if name.startswith("__"):
            raise AttributeError(name)
        return importlib.import_module(f"liqoctl.{name}")
