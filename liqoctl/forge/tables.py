"""Tables as kubectl prints them, and what may reach a terminal. Pure.

Much of what is told others wrote, providers among them: a sequence of theirs could hide what was
said, or pretend that something else was.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from apis import keys, objects, slices, texts
from apis.objects import Kind, Object
from liqoctl.forge import resourceslice

Row = tuple[str, ...]
_UNITS: Final = (
    ("s", timedelta(seconds=1), timedelta(minutes=2)),
    ("m", timedelta(minutes=1), timedelta(hours=3)),
    ("h", timedelta(hours=1), timedelta(days=2)),
    ("d", timedelta(days=1), timedelta.max),
)
"""Each unit is used up to an age. Source: apimachinery, ``duration.HumanDuration``, shortened."""


class Table(NamedTuple):
    """The columns of a kind; ``more`` are those that only ``-o wide`` shows."""

    header: Row
    row: Callable[[Object], Row]
    more: Row
    more_row: Callable[[Object], Row]
    has_namespace: bool = False
    """Whether the namespace is among the columns."""


def rows(
    kind: Kind,
    found: Sequence[Object],
    now: datetime,
    *,
    is_wide: bool = False,
    in_all: bool = False,
) -> list[Row]:
    """Return the table of ``found``, its header first.

    ``in_all`` has the namespace first, as kubectl's ``-A`` does.
    """
    table = TABLES[kind]
    names_it = in_all and not table.has_namespace

    def row(namespace: str, cells: Row, more: Row) -> Row:
        return (*((namespace,) if names_it else ()), *cells, *(more if is_wide else ()))

    header = row("NAMESPACE", table.header, (*table.more, "AGE"))
    shown = (
        row(
            obj["metadata"].get("namespace", ""),
            table.row(obj),
            (*table.more_row(obj), age(obj, now)),
        )
        for obj in found
    )
    return [header, *shown]


def age(obj: Object, now: datetime) -> str:
    """Return how old the object is, such as ``5m`` or ``12d``."""
    made = objects.parse_time(str(obj["metadata"].get("creationTimestamp", "")))
    if made is None:
        return "<unknown>"
    old = max(now - made, timedelta())
    unit, length, _ = next(each for each in _UNITS if old < each[2])
    return f"{old // length}{unit}"


def _tenant(obj: Object) -> Row:
    spec, ready = objects.spec(obj), objects.condition(obj, "Ready")
    return (
        obj["metadata"]["name"],
        obj["metadata"]["namespace"],
        str(spec.get("tenantCondition") or "Active"),
        str(ready.get("status") or "Unknown"),
        str(ready.get("reason") or ""),
    )


def _identity(obj: Object) -> Row:
    spec, status = objects.spec(obj), objects.status(obj)
    return (
        obj["metadata"]["name"],
        obj["metadata"]["namespace"],
        str(spec.get("clusterID") or ""),
        str(spec.get("type") or ""),
        str((status.get("kubeconfigSecretRef") or {}).get("name") or ""),
    )


def _tenant_more(obj: Object) -> Row:
    ready = objects.condition(obj, "Ready")
    return (objects.spec(obj).get("clusterID") or "", str(ready.get("message") or ""))


def _identity_more(obj: Object) -> Row:
    params = objects.spec(obj).get("authParams") or {}
    proxy = texts.without_userinfo(str(params.get("proxyURL") or ""))
    return (str(params.get("apiServer") or ""), proxy)


def _slice_more(obj: Object) -> Row:
    said = (
        resourceslice.answer(obj, type_)[1] for type_ in (slices.AUTHENTICATION, slices.RESOURCES)
    )
    return ("; ".join(text for text in said if text),)


def _node_more(obj: Object) -> Row:
    spec = objects.spec(obj)
    return (str((spec.get("kubeconfigSecretRef") or {}).get("name") or ""),)


TABLES: Final[Mapping[Kind, Table]] = {
    keys.TENANT: Table(
        ("NAME", "NAMESPACE", "CONDITION", "READY", "REASON"), _tenant,
        ("CONSUMER", "MESSAGE"), _tenant_more, has_namespace=True,
    ),
    keys.IDENTITY: Table(
        ("NAME", "NAMESPACE", "PROVIDER", "TYPE", "KUBECONFIG"), _identity,
        ("SERVER", "PROXY"), _identity_more, has_namespace=True,
    ),
    keys.RESOURCE_SLICE: Table(resourceslice.HEADER, resourceslice.row, ("MESSAGE",), _slice_more),
    keys.VIRTUAL_NODE: Table(
        resourceslice.NODE_HEADER, resourceslice.node_row, ("KUBECONFIG",), _node_more
    ),
}  # fmt: skip


# What may reach a terminal ------------------------------------------------------------------------


def printable(text: str) -> str:
    """Return ``text`` with a space for each character that cannot be printed; lines stay lines."""
    return "\n".join(
        "".join(char if char.isprintable() else " " for char in line) for line in text.split("\n")
    )


def one_line(text: str) -> str:
    """Return ``text`` as ``printable``, in one line."""
    return printable(text).replace("\n", " ")
