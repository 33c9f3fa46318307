"""The monitors and rules of manifests/monitoring, read."""

from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
MONITORING: Final = ROOT / "manifests/monitoring"


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def monitors() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MONITORING / "monitors.yaml").read_text()))
