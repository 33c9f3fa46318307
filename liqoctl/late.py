"""The modules of ``liqoctl.work``, imported when a command runs: ``late.slices.create(...)``.

With them comes the client of API servers, which takes longer to import than a TAB may wait.
Source: PEP 562.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["cli", "dashboardcli", "peercli", "provider", "slices", "suggesting"]

if TYPE_CHECKING:
    from liqoctl.work import cli, dashboardcli, peercli, provider, slices, suggesting

else:

    def __getattr__(name: str) -> ModuleType:
        return importlib.import_module(f"liqoctl.work.{name}")
