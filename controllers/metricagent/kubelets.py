"""What the kubelets of this cluster say, asked seldom however many ask us."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from typing import Final

import aiohttp
import yarl

from apis import keys
from apis.listening import Address
from apis.objects import Object
from controllers.metricagent import forge
from kube import errors, wire
from kube.client import ClusterClient
from kube.door.reading import Door

logger = logging.getLogger(__name__)

FRESH_S: Final = 5.0
ASK_S: Final = 8.0
MAX_ANSWER: Final = 32 * 2**20
AT_ONCE: Final = 16


class Kubelets:
    """Asks every physical node; one that does not answer is left out, and said in the log."""

    def __init__(
        self,
        client: ClusterClient,
        nodes: Callable[[], Iterable[Object]],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._client, self._nodes, self._tls = client, nodes, tls
        self._turn: dict[str, asyncio.Lock] = {path: asyncio.Lock() for path in keys.SCRAPED}
        self._said: dict[str, list[str]] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def say(self, path: str) -> list[str]:
        """Return what each kubelet says at ``path``, at most 5 s old."""
        async with self._turn[path]:
            if path not in self._said:
                self._said[path] = await self._ask_all(path)
                asyncio.get_running_loop().call_later(FRESH_S, self._said.pop, path)
            return self._said[path]

    async def _ask_all(self, path: str) -> list[str]:
        where = [found for node in self._nodes() if (found := forge.address(node))]
        async with aiohttp.ClientSession(trust_env=False, auto_decompress=False) as session:
            texts = await asyncio.gather(*(self._ask(session, *one, path) for one in where))
        return [text for text in texts if text is not None]

    async def _ask(
        self, session: aiohttp.ClientSession, host: str, port: int, path: str
    ) -> str | None:
        url = yarl.URL.build(scheme="https", host=host, port=port, path=path)
        authorization = self._client.access.authorization
        headers = {"Authorization": authorization, "Accept-Encoding": "identity"}
        tls = self._tls or self._client.access.tls or True
        try:
            async with (
                self._at_once,
                asyncio.timeout(ASK_S),
                session.get(url, ssl=tls, headers=headers, allow_redirects=False) as answer,
            ):
                answer.raise_for_status()
                said = await wire.whole(answer, most=MAX_ANSWER)
                return Door().text(said)
        except (aiohttp.ClientError, errors.KubeError, OSError, ValueError) as error:
            fields = {"kubelet": str(Address(host, port)), "error": repr(error)}
            logger.warning("A kubelet gave no metrics", extra=fields)
            return None
