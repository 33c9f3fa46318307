"""The webhook of ``bench/const``, in Python: what any costs that changes pods, in this language.

``python -m bench.constant ADDRESS PATCH`` allows everything and changes it by that JSON Patch:
aiohttp reads and answers, with no rule, metric or framework in between. It signs its own
certificate and prints it, for the caBundle.
"""

import asyncio
import base64
import datetime as dt
import json
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from certs import pki
from kube import clock

_LIFETIME: Final = dt.timedelta(days=1)


class _Asked(msgspec.Struct):
    uid: str


class _Review(msgspec.Struct):
    request: _Asked


async def main(address: str, patch: str) -> None:
    """Answer until the process is ended."""
    ca = pki.new_ca("bench", now=clock.now(), lifetime=_LIFETIME)
    decoder = msgspec.json.Decoder(_Review)
    rest = f'"patchType":"JSONPatch","patch":"{base64.b64encode(patch.encode()).decode()}"'

    async def answer(request: web.BaseRequest) -> web.Response:
        uid = json.dumps(decoder.decode(await request.read()).request.uid)
        text = (
            '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",'
            f'"response":{{"uid":{uid},"allowed":true,{rest}}}}}'
        )
        return web.Response(text=text, content_type="application/json")

    server = await asyncio.get_running_loop().create_server(
        web.Server(answer, access_log=None), address, 0, ssl=_context(ca, address)
    )
    host, port = server.sockets[0].getsockname()
    sys.stdout.write(f"{host}:{port}\n{ca.certificate.decode()}")
    sys.stdout.flush()
    await server.serve_forever()


def _context(ca: pki.Keypair, address: str) -> ssl.SSLContext:
    leaf = pki.issue(
        ca, common_name="const", ips=[address], server=True, now=clock.now(), lifetime=_LIFETIME
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_bytes(leaf.certificate)
        key.write_bytes(leaf.key)
        context.load_cert_chain(certificate, key)
    return context


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
