"""Who may read the metrics, asked in the reader's loop: see ``kube.authz``."""

from kube import authz
from kube.authz import Authorizer
from kube.cluster import Cluster
from webhook.reader import CachedReader


class Scrapers:
    """Asks, in the reader's loop, by the token that a scraper sends."""

    def __init__(self, reader: CachedReader) -> None:
        self._reader = reader
        self._gate: Authorizer | None = None

    def check(self, authorization: str) -> None:
        """Return if who sends the header ``authorization`` may read the metrics.

        Raises:
            UnauthenticatedError: nobody we know: answer 401.
            DeniedError: somebody who may not: answer 403.
            KubeError: no API server to ask.
        """

        async def asked(cluster: Cluster) -> None:
            self._gate = self._gate or Authorizer(cluster)
            await authz.check_scraper(self._gate, authorization)

        self._reader.call(asked)
