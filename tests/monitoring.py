"""The monitors, rules and boards of manifests/monitoring, read."""

import html
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

ROOT: Final = Path(__file__).parents[1]
MONITORING: Final = ROOT / "manifests/monitoring"
_HEAD: Final = (
    "jquery/jquery.min.js", "d3/d3.min.js", "rickshaw/rickshaw.min.js", "js/prom_console.js",
)  # fmt: skip
"""What a console of Prometheus draws with; each is part of its package."""
_UNITS: Final = {"reqps": "requests/s", "ops": "reconciles/s", "s": "s", "short": ""}


class Panel(NamedTuple):
    """One graph of a board: what it is called, asks and calls its lines."""

    title: str
    expr: str
    legend: str
    unit: str


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def monitors() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MONITORING / "monitors.yaml").read_text()))


def boards() -> dict[str, list[Panel]]:
    """Return the panels of each board, by the name of its file."""
    read = {path: json.loads(path.read_text()) for path in MONITORING.glob("boards/*.json")}
    return {path.stem: [_panel(one) for one in board["panels"]] for path, board in read.items()}


def _panel(panel: dict[str, Any]) -> Panel:
    [target] = panel["targets"]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return Panel(panel["title"], target["expr"], target["legendFormat"], unit)


def console(title: str, panels: list[Panel], duration_s: int) -> str:
    """Return a console template of Prometheus that draws ``panels``, two in a row."""
    scripts = "".join(f'<script src="/classic/static/{name}"></script>' for name in _HEAD)
    styles = "".join(
        f'<link rel="stylesheet" href="/classic/static/{name}">'
        for name in ("rickshaw/rickshaw.min.css", "css/prom_console.css")
    )
    own = (
        "body{font:14px sans-serif;margin:1em}main{display:grid;grid-template-columns:1fr 1fr;"
        "gap:1em}h2{font-size:15px;margin:.3em 0}"
    )
    graphs = "".join(_graph(number, panel, duration_s) for number, panel in enumerate(panels))
    return (
        f"<!doctype html><html><head>{styles}<style>{own}</style>"
        f'<script>var PATH_PREFIX = "";</script>{scripts}</head>'
        f"<body><h1>{html.escape(title)}</h1><main>{graphs}</main></body></html>"
    )


def _graph(number: int, panel: Panel, duration_s: int) -> str:
    told = {
        "expr": panel.expr,
        "name": panel.legend.replace("{{", "[[ ").replace("}}", " ]]"),
        "duration": duration_s,
        "width": 520,
        "height": 150,
        "min": "auto",
        "renderer": "line",
        "yUnits": _UNITS[panel.unit],
    }
    params = json.dumps(told).replace("<", "\\u003c")
    return (
        f'<section><h2>{html.escape(panel.title)}</h2><div id="graph{number}"></div>'
        f"<script>new PromConsole.Graph(Object.assign({params},"
        f' {{node: document.getElementById("graph{number}")}}))</script></section>'
    )
