"""Who may use what we serve: a client certificate or token says who asks, the server whether.

Source: docs/parity.md SEC-D1, SEC-I7; Kubernetes, "Kubelet authentication/authorization".
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from apis import keys, objects
from apis.objects import Kind, Object
from kube import errors
from kube.cluster import Cluster

T = TypeVar("T")

ALLOW_S: Final = 120.0
DENY_S: Final = 30.0
MAX_REMEMBERED: Final = 4096
REVIEWS_AT_ONCE: Final = 8
"""Token reviews that run at once: all others wait."""
_BEARER: Final = "Bearer "


class User(NamedTuple):
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


@dataclass(frozen=True)
class Right:
    """One right: a verb named by the effect, on a subresource of the node or on a path."""

    verb: str
    subresource: str = ""
    path: str = ""
    """Of no resource, such as ``/metrics``."""

    def __str__(self) -> str:
        return f"{self.verb} {self.path or f'nodes/{self.subresource}'}"

    def attributes(self, node: str) -> Object:
        if self.path:
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}
        asked = {"resource": "nodes", "subresource": self.subresource, "name": node}
        return {"resourceAttributes": {"verb": self.verb, "version": "v1", **asked}}


class UnauthenticatedError(Exception):
    """Nobody we know: answer 401."""


class NotAuthorizedError(Exception):
    """Somebody who may not: answer 403."""


class Authorizer:
    """Asks the API server, and remembers for a while what it said; fails closed."""

    def __init__(
        self, cluster: Cluster, node: str = "", *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster, self._node, self._clock = cluster, node, clock
        self._users: _Memory[User | None] = _Memory(clock)
        self._verdicts: _Memory[bool] = _Memory(clock)
        self._turn = asyncio.Semaphore(REVIEWS_AT_ONCE)
        self._flights: dict[Hashable, asyncio.Task[Any]] = {}
        """What is being asked now: anybody who wants to know the same waits for the same answer."""

    async def user(self, certificate: Mapping[str, Any] | None, authorization: str) -> User:
        """Return who asks: of a verified ``certificate`` (as ssl decodes it), or of a token.

        Raises:
            UnauthenticatedError: neither says who it is.
        """
        if certificate:
            return subject(certificate)
        if not authorization.startswith(_BEARER):
            raise UnauthenticatedError("neither a client certificate nor a bearer token was sent")
        token = authorization.removeprefix(_BEARER).strip()
        found = await self._by_token(token) if token else None
        if found is None:
            raise UnauthenticatedError("the token is not valid")
        return found

    async def check(self, user: User, rights: Sequence[Right]) -> None:
        """Return if ``user`` has one of ``rights``.

        Raises:
            NotAllowedError: it has none, or nobody can say.
        """
        for right in rights:
            if await self._has(user, right):
                return
        wanted = " or ".join(map(str, rights))
        where = f" on node {self._node}" if self._node else ""
        raise NotAuthorizedError(f"user {user.name!r} needs {wanted}{where}")

    async def _by_token(self, token: str) -> User | None:
        digest = hashlib.sha256(token.encode()).digest()
        known, user = self._users.get(digest)
        return user if known else await self._once(digest, self._review_token, digest, token)

    async def _review_token(self, digest: bytes, token: str) -> User | None:
        review = _review(keys.TOKEN_REVIEW.api_version, "TokenReview", {"token": token})
        async with self._turn:
            answer = await self._ask(keys.TOKEN_REVIEW, review, UnauthenticatedError)
        user = _token_user(objects.status(answer))
        self._users.put(digest, user, ALLOW_S if user else DENY_S)
        return user

    async def _has(self, user: User, right: Right) -> bool:
        known, verdict = self._verdicts.get((user, right))
        if known:
            return bool(verdict)
        return await self._once((user, right), self._review_access, user, right)

    async def _review_access(self, user: User, right: Right) -> bool:
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            "uid": user.uid,
            **right.attributes(self._node),
        }
        kind = keys.SUBJECT_ACCESS_REVIEW
        answer = await self._ask(
            kind, _review(kind.api_version, kind.kind, spec), NotAuthorizedError
        )
        status: Object = objects.status(answer)
        allowed = status.get("allowed") is True and status.get("denied") is not True
        self._verdicts.put((user, right), allowed, ALLOW_S if allowed else DENY_S)
        return allowed

    async def _once(
        self, question: Hashable, ask: Callable[..., Coroutine[Any, Any, T]], *about: Any
    ) -> T:
        """Return what ``ask`` gives of ``about``, once for all who want to know that meanwhile.

        Who gives up does not take the answer from the others.
        """
        flight: asyncio.Task[T] | None = self._flights.get(question)
        if flight is None:
            flight = self._flights[question] = asyncio.create_task(ask(*about))
            flight.add_done_callback(lambda done: self._landed(question, done))
        return await asyncio.shield(flight)

    def _landed(self, question: Hashable, flight: asyncio.Task[Any]) -> None:
        del self._flights[question]
        if not flight.cancelled():
            flight.exception()  # told to the one who waits; there may be nobody left

    async def _ask(self, kind: Kind, review: Object, refusal: type[Exception]) -> Object:
        try:
            return await self._cluster.create(kind, review)
        except errors.KubeError as error:
            raise refusal("the API server cannot be asked who may do this") from error


def subject(certificate: Mapping[str, Any]) -> User:
    """Return the user that a certificate names: CN, and its O as groups.

    Shape: as ``ssl.SSLSocket.getpeercert`` gives it.

    Raises:
        UnauthenticatedError: it has not exactly one common name.
    """
    fields = [field for part in certificate.get("subject", ()) for field in part]
    names = [value for name, value in fields if name == "commonName"]
    if len(names) != 1 or not names[0]:
        raise UnauthenticatedError("the client certificate has no common name")
    groups = tuple(value for name, value in fields if name == "organizationName")
    return User(names[0], (*groups, "system:authenticated"))


def _token_user(status: Object) -> User | None:
    user: Object = status.get("user") or {}
    if status.get("authenticated") is not True or not user.get("username"):
        return None
    return User(user["username"], tuple(user.get("groups") or ()), user.get("uid", ""))


def _review(api_version: str, kind: str, spec: Object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec}


class _Memory(Generic[T]):
    """Answers that are believed for a while; bounded, the oldest goes first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable) -> tuple[bool, T | None]:
        """Return whether an answer is known, and it."""
        until, value = self._entries.get(key, (0.0, None))
        return (True, value) if self._clock() < until else (False, None)

    def put(self, key: Hashable, value: T, seconds: float) -> None:
        self._entries.pop(key, None)
        self._entries[key] = (self._clock() + seconds, value)
        while len(self._entries) > MAX_REMEMBERED:
            del self._entries[next(iter(self._entries))]


# Who may read the metrics of a process ------------------------------------------------------------

METRICS_PATH: Final = "/metrics"
SCRAPE: Final = Right("get", path=METRICS_PATH)


async def check_scraper(authorizer: Authorizer, authorization: str) -> None:
    """Return if who sends the header ``authorization`` may read the metrics.

    Raises:
        UnauthenticatedError: nobody we know: answer 401.
        NotAllowedError: somebody who may not: answer 403.
    """
    try:
        user = await authorizer.user(None, authorization)
        await authorizer.check(user, [SCRAPE])
    except UnauthenticatedError as error:
        raise UnauthenticatedError(
            f"{error}: send 'Authorization: Bearer TOKEN' of an account that may get {METRICS_PATH}"
        ) from error
    except NotAuthorizedError as error:
        raise NotAuthorizedError(
            f"{error}: bind the ClusterRole {keys.METRICS_READER_ROLE} to it"
        ) from error
