"""Certificates made and read in a process that ends: ``python -m certs.childprocess``.

``cryptography`` takes 8 MiB as long as a process lives; a virtual kubelet, a worker of the webhook
and the metric agent need it for a moment in months. Private keys go through pipes only.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
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


async def expiry(certificate: bytes) -> datetime:
    """Return when the PEM ``certificate`` ends (aware, UTC).

    Raises:
        OSError: the process failed, or the certificate cannot be read.
    """
    return datetime.fromisoformat((await _ask({"certificate": certificate.decode()}))["expiry"])


async def authority(
    name: str, server: str, now: datetime, life: timedelta
) -> tuple[bytes, Keypair]:
    """Return a new authority's certificate (PEM) and what it issued ``server``; its key is gone.

    Raises:
        OSError: the process failed.
    """
    question = {"authority": name, "server": server, "now": now.isoformat()}
    made = await _ask({**question, "seconds": life.total_seconds()})
    return made["ca"].encode(), Keypair(made["certificate"].encode(), made["key"].encode())


async def merged_bundle(*bundles: bytes, now: datetime) -> bytes:
    """Return what ``pki.merged_bundle`` does.

    Raises:
        OSError: the process failed.
    """
    texts = [bundle.decode("utf-8", "replace") for bundle in bundles]
    made: str = (await _ask({"bundles": texts, "now": now.isoformat()}))["bundle"]
    return made.encode()


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
    {"authority": str, "server": str, "now": ISO 8601, "seconds": float} by that and {"ca": PEM};
    {"bundles": [PEM], "now": ISO 8601} by {"bundle": PEM};
    {"certificate": PEM} by {"expiry": ISO 8601};
    {"certificate": PEM, "key": PEM, "now": ISO 8601} by {"renewal": ISO 8601, or null where the
    key is another}, for a certificate that was issued just now.

    Raises:
        ValueError: an address or a certificate cannot be read.
    """
    # Only here, as they need ``cryptography``.
    from certs import pki, policy, requests  # noqa: PLC0415

    said: dict[str, str | None]
    now = datetime.fromisoformat(question.get("now") or clock.now().isoformat())
    match question:
        case {"node": node, "ips": ips}:
            made = requests.serving_request(node, ips=ips)
            said = {"csr": made.csr.decode(), "key": made.key.decode()}
        case {"authority": name, "server": server, "seconds": seconds}:
            ca, pair = requests.authority(name, server, now=now, life=timedelta(seconds=seconds))
            said = {"ca": ca.decode(), **_told(pair)}
        case {"server": server}:
            said = _told(requests.own_certificate(server, now=now))
        case {"bundles": texts}:
            merged = pki.merged_bundle(*(text.encode() for text in texts), now=now)
            said = {"bundle": merged.decode()}
        case {"certificate": text, "key": key}:
            fits = pki.fits_key(text.encode(), key.encode())
            renewal = policy.renewal(text.encode(), now, now).isoformat() if fits else None
            said = {"renewal": renewal}
        case _:
            said = {"expiry": pki.expiry(question["certificate"].encode()).isoformat()}
    return said


def _told(pair: Keypair) -> dict[str, str | None]:
    return {"certificate": pair.certificate.decode(), "key": pair.key.decode()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(json.loads(sys.stdin.readline()))))
