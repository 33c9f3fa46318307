"""Certificates made and judged in a process that ends: see ``certs.helper``."""

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from certs.plain import KeyPair, ServingRequest

DEADLINE_S: Final = 60.0


async def request(node: str, *, ips: Sequence[str]) -> ServingRequest:
    """Return a new key and the request for the certificate with which ``node`` serves its API.

    Raises:
        OSError: the process failed.
    """
    made = await _ask({"node": node, "ips": list(ips)})
    return ServingRequest(made["csr"].encode(), made["key"].encode())


async def own(server: str) -> KeyPair:
    """Return a new key and certificate for ``server``, which no authority vouches for.

    Raises:
        OSError: the process failed.
    """
    made = await _ask({"server": server})
    return KeyPair(made["certificate"].encode(), made["key"].encode())


async def renewal(pair: KeyPair, now: datetime) -> datetime | None:
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
        sys.executable, "-m", "certs.helper", stdin=pipe, stdout=pipe
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            said, _ = await process.communicate(json.dumps(question).encode() + b"\n")
    except TimeoutError as error:
        raise OSError("certs.helper gave no answer") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise OSError(f"certs.helper ended with {process.returncode}")
    return json.loads(said)
