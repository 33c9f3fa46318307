"""The webhook with the constant answer, in Python, as an API server would ask it."""

import base64
import json
import ssl
import sys

import aiohttp

from bench import children
from tests.webhook.reviews import body

PATCH = '[{"op": "add", "path": "/spec/affinity", "value": {}}]'


async def test_it_allows_what_it_is_asked_with_the_patch() -> None:
    command = (sys.executable, "-m", "bench.constant", "127.0.0.1", PATCH)
    async with children.running(*command) as process, aiohttp.ClientSession() as session:
        address, certificate = await children.line(process), [await children.line(process)]
        while "-----END" not in certificate[-1]:
            certificate.append(await children.line(process))
        trusted = ssl.create_default_context(cadata="\n".join(certificate))

        async with session.post(f"https://{address}/", data=body({}), ssl=trusted) as answered:
            answer = await answered.json()

    assert answer["response"]["uid"] == json.loads(body({}))["request"]["uid"]
    assert answer["response"]["allowed"] is True
    assert base64.b64decode(answer["response"]["patch"]).decode() == PATCH
