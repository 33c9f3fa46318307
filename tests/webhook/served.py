"""A webhook with a certificate of its own, as tests start it, and what clients send it."""

import contextlib
import datetime as dt
import http.client
import socket
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from apis import keys
from apis.objects import Object
from certs import pki
from certs.pki import Keypair
from kube import clock
from tests.webhook.reviews import body

DAY = dt.timedelta(days=1)
POD = {"metadata": {"name": "web"}, "spec": {"containers": []}}
ANSWERED = "/mutate/tenants"
"""Where any review has an answer, if only that it belongs elsewhere, without an API server."""
CA = pki.new_ca("test", now=clock.now(), lifetime=DAY)
DOOR = "0123456789abcdef" * 2
"""What ends the path of the webhook that labels."""


def leaf() -> Keypair:
    return pki.issue(
        CA,
        common_name="webhook",
        dns=["localhost", f"{keys.WEBHOOK_SERVICE}.{keys.LIQO_NAMESPACE}.svc"],
        ips=["127.0.0.1"],
        server=True,
        now=clock.now(),
        lifetime=DAY,
    )


def store(directory: Path, pair: Keypair) -> None:
    """Replace all files as a Secret volume does: all at once, by a link."""
    version = directory / pair.certificate[-60:-30].hex()
    version.mkdir(parents=True)
    (version / "tls.crt").write_bytes(pair.certificate)
    (version / "tls.key").write_bytes(pair.key)
    (version / keys.LABELLING_DOOR).write_text(DOOR)
    new, current = directory / "new", directory / "current"
    new.symlink_to(version)
    new.replace(current)


def address(hook: Object, port: int) -> str:
    """Return where ``hook`` of the manifests is called: one is told its path by liqo-certs."""
    path = hook["clientConfig"]["service"].get("path", f"{keys.LABELLING_PATH}/{DOOR}")
    return f"https://127.0.0.1:{port}{path}"


@dataclass
class Served:
    """A webhook that runs, and how to talk to it."""

    process: subprocess.Popen[bytes]
    port: int
    tls: Path
    log: Path

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=CA.certificate.decode())

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=120, context=self.context()
        )

    def ask(self, method: str, path: str, sent: bytes | None = None) -> tuple[int, bytes]:
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            found = connection.getresponse()
            return found.status, found.read()

    def worker(self) -> int:
        """Return the process that answers; gunicorn's own only looks after it."""
        pid = self.process.pid
        (found,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(found)

    def handshake(self, source: str = "127.0.0.1") -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), 120, (source, 0))
        return self.context().wrap_socket(plain, server_hostname="127.0.0.1")

    def certificate(self) -> bytes:
        with self.handshake() as found:
            return ssl.DER_cert_to_PEM_cert(found.getpeercert(binary_form=True) or b"").encode()


def envelope(value: str) -> bytes:
    """Return a review whose pod holds ``value``, as it is."""
    return body({**POD, "x": "HERE"}).replace(b'"HERE"', value.encode("utf-8", "surrogatepass"))


HOSTILE = {
    "nothing": b"",
    "no JSON": b"hello",
    "half": body(POD)[:100],
    "more behind": body(POD) + b"{}",
    "a list": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "deep lists": b"[" * 100_000,
    "closed deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep in a pod": envelope("[" * 50_000 + "]" * 50_000),
    "NaN": envelope("NaN"),
    "Infinity": envelope("-Infinity"),
    "out of range": envelope("1e999999"),
    "5000 digits": envelope("9" * 5000),
    "a key twice": envelope('{"a":1,"a":2}'),
    "a request twice": body(POD)[:-1] + b',"request":{}}',
    "a lone surrogate": envelope('"\\ud800"'),
    "raw surrogate": envelope('"\ud800"'),
    "byte-order mark": b"\xef\xbb\xbf" + body(POD),
    "UTF-16": body(POD).decode().encode("utf-16"),
    "UTF-32": body(POD).decode().encode("utf-32"),
    "zeros": bytes(1000),
    "latin-1": body({**POD, "x": "HERE"}).replace(b"HERE", b"\xe9"),
    "a million keys": envelope("{" + ",".join(f'"k{n}":0' for n in range(300_000)) + "}"),
    "a control character": envelope('"\x01"'),
    "single quotes": b"{'apiVersion': 1}",
    "a trailing comma": b'{"apiVersion":"x",}',
    "a comment": b"/* x */ {}",
    "uid a number": body(POD).replace(b'"705ab4f5-6393-11e8-b7cc-42010a800002"', b"7"),
    "operation a list": body(POD).replace(b'"CREATE"', b"[]"),
    "object a string": body(None).replace(b'"object": null', b'"object": "x"'),
}
