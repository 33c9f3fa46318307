"""Who may read the metrics: whom the API server lets ``get /metrics``. Source: security.md I7."""

from typing import Final

from kube.cluster import Cluster
from kube.gate import Gate, Right
from webhook.reader import CachedReader

_METRICS: Final = Right("get", path="/metrics")


class Scrapers:
    """Asks, in the reader's loop, by the token that a scraper sends."""

    def __init__(self, reader: CachedReader) -> None:
        self._reader = reader
        self._gate: Gate | None = None

    def check(self, authorization: str) -> None:
        """Return if who sends the header ``authorization`` may read the metrics.

        Raises:
            UnauthenticatedError: nobody we know: answer 401.
            DeniedError: somebody who may not: answer 403.
            KubeError: no API server to ask.
        """

        async def asked(cluster: Cluster) -> None:
            self._gate = self._gate or Gate(cluster)
            user = await self._gate.user(None, authorization)
            await self._gate.check(user, [_METRICS])

        self._reader.call(asked)
