"""Files of Go modules, fetched once through the Go module proxy and never committed."""

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest


@functools.cache
def fetched(module: str) -> Path:
    """Return the folder of ``module``, such as ``sigs.k8s.io/mcs-api@v0.3.0``."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not on this machine, which fetches the module")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyliqo" / "gomod"
    environment = {**os.environ, "GOMODCACHE": str(cache), "GOFLAGS": "-mod=mod"}
    command = [go, "mod", "download", "-json", module]
    found = subprocess.run(
        command, env=environment, check=False, capture_output=True, cwd=Path("/")
    )
    told: dict[str, Any] = json.loads(found.stdout or b"{}")
    assert not told.get("Error"), told["Error"]
    return Path(told["Dir"])
