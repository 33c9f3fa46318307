"""The tables of ``liqoctl dashboard``, a page of rows at a time. Pure.

Others write what is shown, providers among them: the page shows it as text, never as markup.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from apis import keys, objects, ownership
from apis.objects import Kind, Object, key_of
from liqoctl.forge import info, resourceslice, whypod
from liqoctl.forge.findings import Facts
from liqoctl.forge.tables import one_line

MOST: Final = 100
"""Rows of one answer."""
MOST_CELL: Final = 500
"""Characters of one cell."""
SOON: Final = timedelta(hours=2)
Row = tuple[str, ...]


class Certificate(NamedTuple):
    """One that was signed for somebody, and when it ends (aware, UTC)."""

    of: str
    name: str
    ends: datetime


@dataclass(frozen=True)
class BoardState:
    """What the cluster said; of a kind in ``denied`` nothing may be read."""

    now: datetime
    objects: Mapping[Kind, Sequence[Object]] = field(default_factory=dict)
    denied: frozenset[Kind] = frozenset()
    certificates: Sequence[Certificate] = ()

    def of(self, kind: Kind) -> Sequence[Object]:
        return self.objects.get(kind, ())


@dataclass(frozen=True)
class Panel:
    """One table: of which kinds it is made, and how."""

    title: str
    head: Row
    needs: tuple[Kind, ...]
    rows: Callable[[BoardState], Iterable[Row]]
    last: Callable[[BoardState, Row], str] | None = None
    """Makes the last cell, of the rows that are shown only."""


def page(name: str, seen: BoardState, query: str = "", start: int = 0) -> Object:
    """Return the rows of a panel in which ``query`` occurs, from number ``start``.

    Shape: {title, head, rows: [{cells, tone}], total, start, note}; ``tone`` is good, bad or empty.

    Raises:
        KeyError: there is no such panel.
    """
    panel = PANELS[name]
    wanted = query.casefold()
    found = [row for row in panel.rows(seen) if wanted in "\n".join(row).casefold()]
    start = max(0, min(start, len(found) - 1))
    shown = found[start : start + MOST]
    if panel.last is not None:
        shown = [(*row, panel.last(seen, row)) for row in shown]
    return {
        "title": panel.title,
        "head": panel.head,
        "rows": [{"cells": [_cell(cell) for cell in row], "tone": _tone(row)} for row in shown],
        "total": len(found),
        "start": start,
        "note": _note(panel, seen),
    }


def panels_of(kind: Kind) -> frozenset[str]:
    return frozenset(name for name, panel in PANELS.items() if kind in panel.needs)


def _cell(text: str) -> str:
    return one_line(text)[:MOST_CELL]


def _tone(row: Row) -> str:
    if any(cell in _BAD for cell in row):
        return "bad"
    return "good" if any(cell in _GOOD for cell in row) else ""


def _note(panel: Panel, seen: BoardState) -> str:
    denied = [kind.resource for kind in panel.needs if kind in seen.denied]
    if not denied:
        return ""
    return f"you may not list {', '.join(denied)}, or the cluster does not have them"


def _peers(seen: BoardState) -> Iterator[Row]:
    for each in seen.of(keys.FOREIGN_CLUSTER):
        told = info.peer(each, info.Around())
        modules = [told[name] for name in ("authentication", "offloading")]
        listed = objects.status(each).get("conditions") or []
        silent = [str(one.get("message", "")) for one in listed if one["status"] != _ESTABLISHED]
        alerts = [*silent, *(alert for module in modules for alert in module["alerts"])]
        yield (
            told["info"]["clusterID"],
            told["info"]["role"],
            *(module["status"] for module in modules),
            told["authentication"]["APIServerAddr"],
            told["info"]["version"],
            "; ".join(alerts),
        )


def _quotas(seen: BoardState) -> Iterator[Row]:
    for each in seen.of(keys.QUOTA):
        key, spec, status = key_of(each), objects.spec(each), objects.status(each)
        is_cordoned = "cordoned" if spec.get("cordoned") else "open"
        amounts = (spec.get("resources"), status.get("booked"), status.get("used"))
        yield (key.name, key.namespace, is_cordoned, *map(_amounts, amounts))


def _amounts(found: Object | None) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted((found or {}).items()))


def _namespaces(seen: BoardState) -> Iterator[Row]:
    for each in seen.of(keys.NAMESPACE_OFFLOADING):
        spec, status = objects.spec(each), objects.status(each)
        clusters = status.get("remoteNamespacesConditions") or {}
        yield (
            key_of(each).namespace,
            str(spec.get("podOffloadingStrategy") or ""),
            str(status.get("remoteNamespaceName") or ""),
            str(status.get("offloadingPhase") or ""),
            "; ".join(_said(name, told) for name, told in sorted(clusters.items())),
        )


def _said(cluster: str, told: Iterable[Object]) -> str:
    ready = (
        objects.find_condition(told, "Ready")
        or objects.find_condition(told, "OffloadingRequired")
        or {}
    )
    return f"{cluster}: {ready.get('reason', 'Unknown')}"


def _pods(seen: BoardState) -> list[Row]:
    rows = [
        (key.namespace, key.name, str(phase), str(objects.spec(each).get("nodeName") or ""))
        for each in seen.of(keys.POD)
        for key in [key_of(each)]
        for phase in [objects.status(each).get("phase", "")]
    ]
    return sorted(rows, key=lambda row: (row[2] in _DULL, row))


def _why(seen: BoardState, row: Row) -> str:
    namespace, name, *_ = row
    found = (one for one in seen.of(keys.POD) if key_of(one) == (namespace, name))
    offloadings = {key_of(one).namespace: one for one in seen.of(keys.NAMESPACE_OFFLOADING)}
    nodes = None if keys.NODE in seen.denied else seen.of(keys.NODE)
    is_known = keys.NAMESPACE_OFFLOADING not in seen.denied
    facts = Facts(
        namespace,
        offloading=offloadings.get(namespace),
        is_offloading_known=is_known,
        nodes=nodes,
        pod=next(found),
    )
    return whypod.judge(facts).clause


def _certificates(seen: BoardState) -> Iterator[Row]:
    for each in sorted(seen.certificates, key=lambda one: one.ends):
        left = each.ends - seen.now
        state = "Ended" if left <= timedelta(0) else "Ends soon" if left < SOON else "Valid"
        hours, rest = divmod(max(0, int(left.total_seconds())), 3600)
        yield (
            each.of, each.name, each.ends.strftime("%Y-%m-%d %H:%M:%SZ"),
            f"{hours} h {rest // 60} min", state,
        )  # fmt: skip


def _slices(seen: BoardState) -> list[Row]:
    return [resourceslice.row(one) for one in seen.of(keys.RESOURCE_SLICE)]


def _virtual_nodes(seen: BoardState) -> list[Row]:
    return [resourceslice.node_row(one) for one in seen.of(keys.VIRTUAL_NODE)]


def signed(found: Mapping[Kind, Sequence[Object]]) -> Iterator[tuple[str, str, str]]:
    """Yield what has a certificate in its status: of which peer, its name, and base64 of the PEM.

    Those are public; the keys are in Secrets, which nobody reads for this.
    """
    for kind in (keys.TENANT, keys.RESOURCE_SLICE):
        for each in found.get(kind, ()):
            params = objects.status(each).get("authParams") or {}
            if text := params.get("signedCRT"):
                spec = objects.spec(each)
                peer = (
                    ownership.named_by(each)
                    or spec.get("clusterID")
                    or spec.get("providerClusterID")
                )
                yield str(peer or ""), f"{kind.kind} {key_of(each).name}", str(text)


_ESTABLISHED: Final = "Established"
_GOOD: Final = frozenset({"Ready", "Running", "Succeeded", "Accepted", "Valid", info.HEALTHY})
_BAD: Final = frozenset(
    {"Failed", "Denied", "AllFailed", "SomeFailed", "Ended", "Ends soon", "Error", info.UNHEALTHY}
)
_DULL: Final = frozenset({"Running", "Succeeded"})
"""Phases of pods that nobody has to look at first."""
PANELS: Final[Mapping[str, Panel]] = {
    "peers": Panel(
        "Peers",
        ("PEER", "ROLE", "AUTHENTICATION", "OFFLOADING", "API SERVER", "VERSION", "WHAT IS AMISS"),
        (keys.FOREIGN_CLUSTER,),
        _peers,
    ),
    "nodes": Panel(
        "Virtual nodes", resourceslice.NODE_HEADER, (keys.VIRTUAL_NODE,), _virtual_nodes
    ),
    "namespaces": Panel(
        "Offloaded namespaces",
        ("NAMESPACE", "STRATEGY", "REMOTE NAMESPACE", "PHASE", "CLUSTERS"),
        (keys.NAMESPACE_OFFLOADING,),
        _namespaces,
    ),
    "pods": Panel(
        "Pods of offloaded namespaces",
        ("NAMESPACE", "NAME", "PHASE", "NODE", "WHY"),
        (keys.POD, keys.NODE, keys.NAMESPACE_OFFLOADING),
        _pods,
        _why,
    ),
    "slices": Panel("Resource slices", resourceslice.HEADER, (keys.RESOURCE_SLICE,), _slices),
    "quotas": Panel(
        "Quotas of consumers",
        ("NAME", "NAMESPACE", "STATE", "GRANTED", "BOOKED", "USED"),
        (keys.QUOTA,),
        _quotas,
    ),
    "certificates": Panel(
        "Certificates",
        ("PEER", "OF", "ENDS", "LEFT", "STATE"),
        (keys.TENANT, keys.RESOURCE_SLICE),
        _certificates,
    ),
}


def names(found: Iterable[Object]) -> frozenset[str]:
    return frozenset(objects.key_of(one).namespace for one in found)
