"""What the consumer of a peering sends to its provider, kept as files for other tests.

With ``PYLIQO_TEST_LIQO_RECORD=tests/manifests/liqo/VERSION``, ``test_liqo.py`` writes there what a
consumer with the programs of ``PYLIQO_TEST_LIQO_BIN`` sent: of each kind and verb the last body
that our provider took. Keys and certificates are replaced by others of their shape.
"""

import base64
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

from apis.objects import Object
from sandbox import documents

VARIABLE: Final = "PYLIQO_TEST_LIQO_RECORD"
CONSUMER: Final = "milan"
GROUPS: Final = {"liqo.io": "control plane", CONSUMER: "virtual kubelet"}
"""Who sends, by a group of the user."""
_KEPT: Final = frozenset({"create", "update", "patch"})
_SERVERS: Final = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
_SECRET: Final = {"csr": "CERTIFICATE REQUEST", "publicKey": "PUBLIC KEY"}


@contextlib.contextmanager
def audited() -> Iterator[None]:
    """Let API servers that start now keep bodies of Secrets too, if they are to be recorded."""
    whole = documents.audit_policy()
    policy = {**whole, "rules": whole["rules"][1:]}
    given = (lambda: policy) if os.environ.get(VARIABLE) else documents.audit_policy
    with mock.patch.object(documents, "audit_policy", given):
        yield


def keep(log: Path) -> None:
    """Write what the audit log has of the consumer, where the variable says so."""
    if folder := os.environ.get(VARIABLE):
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, sent in recorded_bodies(log).items():
            text = json.dumps(sent, indent=1, sort_keys=True)
            (Path(folder) / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def recorded_bodies(log: Path) -> dict[str, Object]:
    """Return by name of the file who sent which body how."""
    made: dict[str, Object] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if (who := _sender(event)) and _is_kept(event):
            target, verb = event["objectRef"], event["verb"]
            resource = "-".join(filter(None, (target["resource"], target.get("subresource"))))
            made[f"{resource}-{verb}"] = {
                "who": who, "verb": verb, "resource": target["resource"],
                "group": target.get("apiGroup", ""), "version": target["apiVersion"],
                "subresource": target.get("subresource", ""),
                "body": _cleaned(event["requestObject"]),
            }  # fmt: skip
    return made


def _sender(event: Object) -> str:
    groups = event.get("user", {}).get("groups") or []
    return next((who for group, who in GROUPS.items() if group in groups), "")


def _is_kept(event: Object) -> bool:
    target = event.get("objectRef") or {}
    is_done = event.get("responseStatus", {}).get("code", 500) < 300  # HTTP
    is_ours = target.get("resource") not in ("events", "leases")
    return is_done and is_ours and event["verb"] in _KEPT and bool(event.get("requestObject"))


def _cleaned(body: Any) -> Any:
    """Return ``body`` without what a server wrote, and with other keys."""
    if isinstance(body, list):
        return [_cleaned(one) for one in body]
    if not isinstance(body, dict):
        return body
    made = {name: _cleaned(value) for name, value in body.items() if name not in _SERVERS}
    return {name: _other(name, value) for name, value in made.items()}


def _other(name: str, value: Any) -> Any:
    if name not in _SECRET or not isinstance(value, str):
        return value
    kind = _SECRET[name]
    text = f"-----BEGIN {kind}-----\nZHVtbXk=\n-----END {kind}-----\n"
    return base64.b64encode(text.encode()).decode()
