"""Certificates made and judged in a process that ends: ``python -m certs.childprocess``.

``cryptography`` takes 8 MiB as long as a process lives; a virtual kubelet needs it for a moment
in months. Private keys go through pipes only.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from certs.keypair import Keypair, ServingRequest
from kube import clock

DEADLINE_S: Final = 60.0


async def request(node: str, *, ips: Sequence[str]) -> ServingRequest:
    """Return a new key and the request for the certificate with which ``node`` serves its API.

    Raises:
        OSError: the process failed.
    """
    made = await _ask({"node": node, "ips": list(ips)})
    return ServingRequest(made["csr"].encode(), made["key"].encode())


async def own(server: str) -> Keypair:
    """Return a new key and certificate for ``server``, which no authority vouches for.

    Raises:
        OSError: the process failed.
    """
    made = await _ask({"server": server})
    return Keypair(made["certificate"].encode(), made["key"].encode())


async def renewal(pair: Keypair, now: datetime) -> datetime | None:
    """Return when what was issued ``now`` is to be renewed; None where the key is not its own.

    Raises:
        OSError: the process failed, or the certificate cannot be read.
    """
    told = await _ask(
        {
            "certificate": pair.certificate.decode(),
            "key": pair.key.decode(),
            "now": now.isoformat(),
        }
    )
    return datetime.fromisoformat(told["renewal"]) if told["renewal"] else None


async def _ask(question: dict[str, Any]) -> Any:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "certs.childprocess", stdin=pipe, stdout=pipe
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            said, _ = await process.communicate(json.dumps(question).encode() + b"\n")
    except TimeoutError as error:
        raise OSError("certs.childprocess gave no answer") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise OSError(f"certs.childprocess ended with {process.returncode}")
    return json.loads(said)


# In the process that ends: it reads one line of JSON ----------------------------------------------


def answer(question: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the answer to one question.

    Shape: {"node": str, "ips": [str]} is answered by {"csr": PEM, "key": PEM};
    {"server": str} by {"certificate": PEM, "key": PEM};
    {"certificate": PEM, "key": PEM, "now": ISO 8601} by {"renewal": ISO 8601, or null where the
    key is another}, for a certificate that was issued just now.

    Raises:
        ValueError: an address or a certificate cannot be read.
    """
    from certs import pki, policy, requests  # noqa: PLC0415  # they need ``cryptography``

    if "node" in question:
        made = requests.serving_request(question["node"], ips=question["ips"])
        return {"csr": made.csr.decode(), "key": made.key.decode()}
    if "server" in question:
        pair = requests.own_certificate(question["server"], now=clock.now())
        return {"certificate": pair.certificate.decode(), "key": pair.key.decode()}
    certificate, key = (question[name].encode() for name in ("certificate", "key"))
    if not pki.fits_key(certificate, key):
        return {"renewal": None}
    now = datetime.fromisoformat(question["now"])
    return {"renewal": policy.renewal(certificate, now, now).isoformat()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(json.loads(sys.stdin.readline()))))
