"""Tokens of service accounts for pods that run on the provider: asked for here, mounted there.

Source: docs/parity.md § 5.5.3, 6.8; SEC-C1.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object
from apis.offloading import MappedNamespace
from kube import errors
from kube.clock import Deadline
from kube.cluster import Cluster
from kubelet.pods import apiserver
from kubelet.pods.apiserver import ApiServer, Issued, Owner, Token
from kubelet.pods.state import Due, Granted, PodStates, Recorder

logger = logging.getLogger(__name__)

RETRY_S: Final = 2.0
MAX_RETRY_S: Final = 600.0
MOST_AT_ONCE: Final = 4
"""So many tokens are asked for at once, those of all pods together: each has to be signed."""
FAILED: Final = "FailedSATokensReflection"
SUCCESSFUL: Final = "SuccessfulSATokensReflection"
"""After a failure: that all went well is no news, and an Event is a write."""


class Tokens:
    """Keeps the Secret with the tokens of each pod; what went wrong is reported and tried again."""

    def __init__(  # noqa: PLR0913  # two clusters, who remembers and tells, and two clocks
        self,
        local: Cluster,
        remote: Cluster,
        memories: PodStates,
        *,
        server: ApiServer,
        recorder: Recorder,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._local, self._remote, self._memories = local, remote, memories
        self._server, self._recorder = server, recorder
        self._clock, self._monotonic = clock, monotonic
        self._turn = asyncio.Semaphore(MOST_AT_ONCE)

    async def begin(self, local: Object, shadow: Object, pair: MappedNamespace) -> None:
        """Provide the tokens of a pod whose ShadowPod was just created."""
        if wanted := apiserver.tokens(local, self._server):
            await self._keep(local, Owner(keys.SHADOW_POD, shadow), pair, wanted, is_new=True)

    async def leave_to(self, local: Object, remote: Object) -> None:
        """Let the tokens stay with the Pod ``remote`` of a terminating pod that ends late.

        Their ShadowPod is about to go. A provider may not allow that.
        """
        memory = self._memories.of(local)
        is_needed = apiserver.ends_late(local) and apiserver.tokens(local, self._server)
        if memory.has_left_tokens or not is_needed:
            return
        key = apiserver.secret_key(objects.key_of(remote))
        found = await self._remote.get_live(keys.SECRET, key)
        if found is not None and apiserver.is_of(found, local):
            owner = Owner(keys.POD, remote).reference()
            metadata = {"uid": objects.uid(found), "ownerReferences": [owner]}
            try:
                await self._remote.patch(keys.SECRET, key, {"metadata": metadata})
            except (errors.ForbiddenError, errors.InvalidError) as error:
                fields = {"secret": str(key), "error": str(error)}
                logger.warning("Tokens go before their pod", extra=fields)
        memory.has_left_tokens = True

    async def keep(
        self,
        local: Object,
        owner: Owner,
        remote: Object | None,
        pair: MappedNamespace,
        wanted: list[Token],
    ) -> float:
        """Provide what is missing of ``wanted``, or grows old; return when to come back."""
        memory = self._memories.of(local)
        due = memory.tokens
        if due is None or self._left_s(due.at) <= 0 or _anew(due, remote):
            due = await self._keep(local, owner, pair, wanted)
        if remote is not None:
            due = memory.tokens = replace(due, remote_uid=objects.uid(remote))
        return max(1.0, self._left_s(due.at))

    async def end(self, local: Object, pair: MappedNamespace) -> None:
        """Take the tokens of a pod that has ended from the provider; it is given no others."""
        memory = self._memories.of(local)
        if memory.has_no_tokens or not apiserver.tokens(local, self._server):
            return
        key = apiserver.secret_key(pair.twin_of(objects.key_of(local)))
        found = await self._remote.get_live(keys.SECRET, key)
        if found is not None and apiserver.is_of(found, local):
            await self._remote.delete(keys.SECRET, key, uid=objects.uid(found))
            logger.info("Deleted tokens", extra={"secret": str(key)})
        memory.has_no_tokens = True
        memory.granted.clear()

    async def _keep(
        self,
        local: Object,
        owner: Owner,
        pair: MappedNamespace,
        wanted: list[Token],
        *,
        is_new: bool = False,
    ) -> Due:
        memory = self._memories.of(local)
        before = memory.tokens
        failures, renewal = (before.failures, before.renewal) if before else (0, None)
        account = apiserver.account(local).name
        try:
            renewal = await self._ensured(local, owner, pair, wanted, is_new=is_new)
        except errors.KubeError as error:
            message = f"tokens of service account {account}: {error}"
            self._recorder.event(keys.POD, local, "Warning", FAILED, message)
            in_s, failures = min(RETRY_S * 2.0**failures, MAX_RETRY_S), min(failures + 1, 16)
        else:
            if failures:
                message = f"tokens of service account {account} are provided"
                self._recorder.event(keys.POD, local, "Normal", SUCCESSFUL, message)
            in_s, failures = self._left_s(renewal), 0
        due = memory.tokens = Due(self._in(max(in_s, RETRY_S)), renewal, failures=failures)
        return due

    def _in(self, seconds: float) -> Deadline:
        now = self._clock()
        return Deadline.noted(now + timedelta(seconds=seconds), now, self._monotonic())

    def _left_s(self, deadline: Deadline) -> float:
        return deadline.left_s(self._clock(), self._monotonic())

    async def _ensured(
        self,
        local: Object,
        owner: Owner,
        pair: MappedNamespace,
        wanted: list[Token],
        *,
        is_new: bool,
    ) -> Deadline:
        key = apiserver.secret_key(objects.key_of(owner.obj))
        found = None if is_new else await self._remote.get_live(keys.SECRET, key)
        if found is not None and apiserver.is_of(found, local):
            renewal = self._renewal(local, found)
            if self._left_s(renewal) > 0:
                return renewal
        issued, renewal = await self._issued(local, wanted)
        secret = apiserver.secret(local, owner, pair, issued)
        await self._write(key, found, secret)
        self._memories.of(local).granted.clear()
        logger.info("Provided tokens", extra={"secret": str(key)})
        return renewal

    def _renewal(self, local: Object, found: Object) -> Deadline:
        """Return when the tokens in ``found`` are asked for again: as it says, or as was known."""
        said = self._in(apiserver.refresh_in_s(found, self._clock()))
        due = self._memories.of(local).tokens
        known = due.renewal if due and due.renewal else said
        return said._replace(by=min(said.by, known.by))

    async def _issued(
        self, local: Object, wanted: list[Token]
    ) -> tuple[dict[str, Issued], Deadline]:
        """Return the tokens by key, and when the first is asked for again.

        One is asked for after another; what was issued is kept.
        """
        granted = self._memories.of(local).granted
        for token in wanted:
            if token not in granted or self._left_s(granted[token].renewal) <= 0:
                async with self._turn:
                    granted[token] = await self._ask(local, token)
        renewals = [granted[token].renewal for token in wanted]
        first = Deadline(min(each.at for each in renewals), min(each.by for each in renewals))
        return {token.key: granted[token].issued for token in wanted}, first

    async def _ask(self, local: Object, token: Token) -> Granted:
        request = apiserver.token_request(local, token)
        account = apiserver.account(local)
        answer = await self._local.post(keys.SERVICE_ACCOUNT, account, "token", request)
        now = self._clock()
        issued = apiserver.issued(local, answer, now)
        return Granted(issued, Deadline.noted(issued.renewed, now, self._monotonic()))

    async def _write(self, key: Key, found: Object | None, secret: Object) -> None:
        found = found or await self._create(key, secret)
        if found is None:
            return
        if not apiserver.is_token_secret(found):
            raise errors.ConflictError(f"secret {key} is there and not ours: remove or rename it")
        changes = {name: secret[name] for name in ("metadata", "stringData")}
        changes["metadata"] = {**changes["metadata"], "uid": objects.uid(found)}
        await self._remote.patch(keys.SECRET, key, changes)

    async def _create(self, key: Key, secret: Object) -> Object | None:
        """Create ``secret``; return what is in its way."""
        try:
            await self._remote.create(keys.SECRET, secret)
        except errors.AlreadyExistsError:
            return await self._remote.get_live(keys.SECRET, key)
        return None


def _anew(due: Due, remote: Object | None) -> bool:
    """Whether another Pod runs on the provider than when it was looked last."""
    return bool(due.remote_uid and remote and due.remote_uid != objects.uid(remote))
