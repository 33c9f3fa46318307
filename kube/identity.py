"""Who we are to an API server, and the connection in that name: another one when that changes."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from kube import errors
from kube.access import Access
from kube.connection import BUFFER, Connection

logger = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 10.0
"""How often credentials are looked at, whether they are outdated."""


class Identity:
    """Follows ``access`` as its credentials are renewed; connections of before end in peace."""

    def __init__(
        self,
        access: Access,
        user_agent: str,
        on_change: Callable[[], None] = lambda: None,
        *,
        buffer: int = BUFFER,
    ) -> None:
        """``on_change`` is called when we have become somebody else."""
        self.user_agent, self._buffer = user_agent, buffer
        self._on_change = on_change
        self.connection = Connection(access, user_agent, buffer=buffer)
        """The one for what is new; anybody who waited meanwhile asks ``current``."""
        self._retiring: set[asyncio.Task[None]] = set()
        self._renewing = asyncio.Lock()
        self._looked = time.monotonic()

    @property
    def access(self) -> Access:
        """Return who we are now."""
        return self.connection.access

    async def close(self) -> None:
        """Close all connections now."""
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await self.connection.close()

    def replace(self, access: Access) -> None:
        """Go on as ``access``: watches open again, other requests finish as who they began."""
        old = self.connection
        self.connection = Connection(access, self.user_agent, buffer=self._buffer)
        task = asyncio.get_running_loop().create_task(old.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        self._tell(old.access)

    async def current(self) -> Connection:
        """Return the connection; every ten seconds look first whether we are outdated."""
        now = time.monotonic()
        if now - self._looked > LOOK_AGAIN_S:
            self._looked = now
            if self.access.is_outdated():
                async with self._renewing:
                    await self._renew()
        return self.connection

    async def renew_after(self, refused: Access) -> bool:
        """Whether we are somebody else than who was refused, once our identity was read again."""
        async with self._renewing:  # one reading for all that were refused together
            return self.access is not refused or await self._renew()

    async def _renew(self) -> bool:
        old = self.access
        if old.renew is None:
            return False
        try:
            new = await old.renew()
        except (errors.KubeError, ValueError, OSError) as error:
            logger.warning("kept credentials that may be outdated", extra={"error": str(error)})
            return False
        if new.digest != old.digest:
            self.replace(new)
        else:
            self.connection.access = new
            self._tell(old)
        return _who(new) != _who(old)

    def _tell(self, old: Access) -> None:
        if _who(self.access) != _who(old):
            self._on_change()


def _who(someone: Access) -> tuple[str, str]:
    return someone.digest, someone.authorization
