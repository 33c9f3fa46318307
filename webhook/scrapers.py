"""Who may read the metrics, asked in the reader's loop: see ``kube.scraping``."""

from kube import scraping
from kube.cluster import Cluster
from kube.gate import Gate
from webhook.reader import CachedReader


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
            await scraping.check(self._gate, authorization)

        self._reader.call(asked)
