"""Tokens of service accounts for pods that run on the provider: asked for here, mounted there.

Source: behaviour.md 5.5.3, 6.8; security.md C1.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol

from apis import keys, objects
from apis.objects import Key, Kind, Object
from apis.pairs import Pair
from kube import errors
from kube.cluster import Cluster
from kubelet.forge import accounts
from kubelet.forge.accounts import ApiServer, Token

logger = logging.getLogger(__name__)

RETRY_S: Final = 10.0
FAILED: Final = "FailedSATokensReflection"


class Recorder(Protocol):
    """Tells users."""

    def event(
        self,
        kind: Kind,
        obj: Object,
        type_: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        """Record an Event about ``obj``."""
        ...


@dataclass(frozen=True)
class _Due:
    """When the tokens of a pod are looked at again."""

    uid: str
    at: datetime


class Tokens:
    """Keeps the Secret with the tokens of each pod; what went wrong is told and tried again."""

    def __init__(
        self,
        local: Cluster,
        remote: Cluster,
        *,
        server: ApiServer,
        recorder: Recorder,
        clock: Callable[[], datetime],
    ) -> None:
        self._local, self._remote = local, remote
        self._server, self._recorder, self._clock = server, recorder, clock
        self._due: dict[Key, _Due] = {}

    async def begin(self, local: Object, shadow: Object, pair: Pair) -> None:
        """Provide the tokens of a pod whose ShadowPod was just created."""
        if wanted := accounts.tokens(local, self._server):
            await self._keep(local, shadow, pair, wanted, is_new=True)

    async def keep(self, local: Object, shadow: Object, pair: Pair) -> float | None:
        """Provide what is missing or grows old; return when to come back, None for no tokens."""
        wanted = accounts.tokens(local, self._server)
        if not wanted:
            return None
        due = self._due.get(objects.key_of(local))
        if due is None or due.uid != objects.uid(local) or due.at <= self._clock():
            await self._keep(local, shadow, pair, wanted)
        at = self._due[objects.key_of(local)].at
        return max(1.0, (at - self._clock()).total_seconds())

    def forget(self, key: Key) -> None:
        """Forget the local pod; its Secret goes with its ShadowPod."""
        self._due.pop(key, None)

    async def _keep(
        self,
        local: Object,
        shadow: Object,
        pair: Pair,
        wanted: list[Token],
        *,
        is_new: bool = False,
    ) -> None:
        try:
            in_s = await self._ensured(local, shadow, pair, wanted, is_new=is_new)
        except errors.KubeError as error:
            message = f"tokens of service account {accounts.account(local).name}: {error}"
            self._recorder.event(keys.POD, local, "Warning", FAILED, message)
            in_s = RETRY_S
        at = self._clock() + timedelta(seconds=max(in_s, 1.0))
        self._due[objects.key_of(local)] = _Due(objects.uid(local), at)

    async def _ensured(
        self, local: Object, shadow: Object, pair: Pair, wanted: list[Token], *, is_new: bool
    ) -> float:
        key = accounts.secret_key(objects.key_of(shadow))
        found = None if is_new else await self._remote.get_live(keys.SECRET, key)
        if found is not None and accounts.is_of(found, local):
            in_s = accounts.refresh_in_s(found, wanted, self._clock())
            if in_s > 0:
                return in_s
        made = await self._write(key, found, await self._forged(local, shadow, pair, wanted))
        logger.info("Provided tokens", extra={"secret": str(key)})
        return accounts.refresh_in_s(made, wanted, self._clock())

    async def _forged(
        self, local: Object, shadow: Object, pair: Pair, wanted: list[Token]
    ) -> Object:
        account = accounts.account(local)
        requests = [
            self._local.post(
                keys.SERVICE_ACCOUNT, account, "token", accounts.token_request(local, token)
            )
            for token in wanted
        ]
        answers = await asyncio.gather(*requests)
        issued = {
            token.key: answer["status"] for token, answer in zip(wanted, answers, strict=True)
        }
        return accounts.secret(local, shadow, pair, issued)

    async def _write(self, key: Key, found: Object | None, secret: Object) -> Object:
        if found is None:
            try:
                return await self._remote.create(keys.SECRET, secret)
            except errors.AlreadyExistsError:
                found = await self._remote.get_live(keys.SECRET, key)
        if found is None or not accounts.is_token_secret(found):
            raise errors.ConflictError(f"secret {key} is there and not ours: remove or rename it")
        changes = {name: secret[name] for name in ("metadata", "stringData")}
        changes["metadata"] = {**changes["metadata"], "uid": objects.uid(found)}
        return await self._remote.patch(keys.SECRET, key, changes)
