"""What ``liqoctl get`` shows of tenants and identities, a line each. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from apis import conditions, keys
from apis.objects import Kind, Object
from liqoctl.forge.printed import one_line

Row = tuple[str, ...]


def _tenant(obj: Object) -> Row:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    ready = conditions.find(status.get("conditions"), "Ready") or {}
    return (
        obj["metadata"]["name"],
        obj["metadata"]["namespace"],
        str(spec.get("tenantCondition") or "Active"),
        str(ready.get("status") or "Unknown"),
        str(ready.get("reason") or ""),
    )


def _identity(obj: Object) -> Row:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return (
        obj["metadata"]["name"],
        obj["metadata"]["namespace"],
        str(spec.get("clusterID") or ""),
        str(spec.get("type") or ""),
        str((status.get("kubeconfigSecretRef") or {}).get("name") or ""),
    )


_TABLES: Final[Mapping[Kind, tuple[Row, Callable[[Object], Row]]]] = {
    keys.TENANT: (("NAME", "NAMESPACE", "CONDITION", "READY", "REASON"), _tenant),
    keys.IDENTITY: (("NAME", "NAMESPACE", "PROVIDER", "TYPE", "KUBECONFIG"), _identity),
}


def lines(kind: Kind, found: Sequence[Object]) -> list[str]:
    """Return the table of ``found``, its head first; only printable characters."""
    head, row = _TABLES[kind]
    rows = [head, *(row(obj) for obj in found)]
    widths = [max(len(one[column]) for one in rows) for column in range(len(head))]
    padded = (
        "   ".join(cell.ljust(width) for cell, width in zip(one, widths, strict=True)).rstrip()
        for one in rows
    )
    return [one_line(line) for line in padded]
