"""A real API server behind a certificate that proves nothing hears nothing. Source: B11."""

import asyncio
import datetime as dt
import secrets
import ssl
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key
from certs import listener, pki
from kube import client, clock, errors
from sandbox import audit
from sandbox.controlplane import Plane
from tests.kube.test_tls import proof
from tests.kubelet.toll import Toll, authority

pytestmark = pytest.mark.cluster

DAY: Final = dt.timedelta(days=1)


class Front(Toll):
    """It passes on to the API server whatever is said to it, by a certificate of its own."""

    def __init__(self, plane: Plane, pair: pki.Keypair) -> None:
        super().__init__(plane, lambda: None, is_whole=False)
        self._pair = pair

    def _tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        listener.load(context, self._pair)
        return context


async def ask_with_client(plane: Plane, pair: pki.Keypair, directory: Path, namespace: str) -> None:
    """Ask for a ConfigMap by a kubeconfig that trusts the authority of the API server."""
    front, path = Front(plane, pair), directory / "front.kubeconfig"
    async with front.open():
        path.write_text(front.kubeconfig())
        async with client.connect(path, user_agent="pyliqo-tests") as cluster:
            await cluster.get_live(keys.CONFIG_MAP, Key(namespace, "any"))


async def test_who_proves_nothing_hears_nothing(plane: Plane, tmp_path: Path) -> None:
    ca, now = authority(plane), clock.now()
    other = pki.new_ca("kubernetes", now=now, lifetime=DAY)
    rows = {
        "right": proof(ca),
        "another name": proof(ca, dns=["milan.example"]),
        "another address": proof(ca, ips=["127.0.0.2"]),
        "no name but the common one": proof(ca, dns=[]),
        "another authority": proof(other),
        "of itself": other,
        "expired": proof(ca, now=now - 3 * DAY),
        "not valid yet": proof(ca, now=now + 3 * DAY),
    }
    log, mark = audit.Log(plane.audit_log), secrets.token_hex(4)
    refused = []
    for number, (row, pair) in enumerate(rows.items()):
        try:
            await ask_with_client(plane, pair, tmp_path, f"{mark}-{number}")
        except errors.NotReachableError:
            refused.append(row)
    calls = await asyncio.to_thread(log.settled, plane.api)

    assert refused == list(rows)[1:]
    heard = {call.namespace for call in calls if call.namespace.startswith(mark)}
    assert heard == {f"{mark}-0"}
