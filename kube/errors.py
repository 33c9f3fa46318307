"""Why an API server said no, or nothing.

KubeError
  NotReachableError      no answer in time: retry
  ExhaustedError         this process cannot connect to anybody now: retry, the server is well
  BusyError              429 or 5xx: retry, not before ``retry_after_s``
  NotFoundError          a write to what is gone: start over from a read
  AlreadyExistsError     somebody created it first: read it, adopt it only if it is ours by record
  ConflictError          somebody else was faster: retry from a fresh read, silently
  ExpiredError           410: list again
  ForbiddenError         our rights are wrong, or the kind goes: retry slowly, say which
  InvalidError           the server refuses the object: terminal, our bug or the user's input
    UnknownFieldError    its kind has no such field there: the CRD is older than the object
"""

import re

from apis import texts
from apis.objects import Object


class KubeError(Exception):
    """An API server did not do what was asked; ``status`` is its HTTP code, 0 for none.

    ``said`` is its own message and nothing else.
    """

    status: int = 0
    said: str = ""


class NotReachableError(KubeError):
    """Nothing was answered in time; the outcome of a write is unknown: retry."""


class LargerError(NotReachableError):
    """An answer is larger than is read of one: ask for less at once."""


class UnreadableError(NotReachableError):
    """The server is there, and what it answers cannot be read."""


class SlowError(NotReachableError):
    """An answer came in part, and the rest of it not in time: less can be asked for at once."""


class UnansweredError(NotReachableError):
    """No answer came in time: the server is away, or takes so long for as much as was asked."""


class ExhaustedError(KubeError):
    """This process has nothing left to connect with: that says nothing of the server."""


class BusyError(KubeError):
    """The server cannot now: retry, not before ``retry_after_s``."""

    retry_after_s: float = 1.0


class TooMuchError(KubeError):
    """A server says more than is kept of it; what was known before is kept."""


class NotFoundError(KubeError):
    """A write to what is gone: start over from a read."""


class AlreadyExistsError(KubeError):
    """Somebody created it first: read it, adopt it only if it is ours by record."""


class ConflictError(KubeError):
    """Somebody else was faster: retry from a fresh read, silently."""


class ExpiredError(KubeError):
    """The version is too old to go on from: list again."""


class ForbiddenError(KubeError):
    """The rights do not suffice, or admission refused: the message says which."""


class InvalidError(KubeError):
    """The server refuses the object itself: retrying the same cannot help."""


class UnknownFieldError(InvalidError):
    """The kind has no such field on this server, whose CRD is older than the object."""


class UnauthorizedError(KubeError):
    """The credentials are not, or no longer, valid."""


_WITHHELD = (ForbiddenError, NotFoundError, UnauthorizedError, BusyError, ExhaustedError)
_SERVER_ERROR = 500
_CODES = range(100, 600)
_UNKNOWN_FIELD = "field not declared in schema"
"""What server-side apply says of it, with the code 500."""
_ADMISSION = re.compile(r'admission webhook "[^"]*" denied the request')
"""How an API server begins what a webhook says."""
_TOO_LARGE = re.compile("too large|larger than max|Too long")
"""What an API server, or etcd behind it, says of an object that has no room for what is added."""
_GATEWAY = frozenset({502, 503, 504})
_BY_STATUS: dict[int, type[KubeError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    405: ForbiddenError,  # of a kind whose CRD is about to go: nothing is created any more
    409: ConflictError,
    410: ExpiredError,
    413: InvalidError,
    422: InvalidError,
    429: BusyError,
}


def refusal(status: int, answer: Object, *, retry_after_s: float | None = None) -> KubeError:
    """Return the error that a ``Status`` answer means.

    Shape: ``answer`` is {"code": int, "reason": str, "message": str}, all optional.
    Units: ``status`` 0 takes the code of the answer (an ERROR event of a watch has no other).
    """
    code = status or _code(answer.get("code"))
    kind = _BY_STATUS.get(code, BusyError if code >= _SERVER_ERROR else InvalidError)
    if answer.get("reason") == "AlreadyExists":
        kind = AlreadyExistsError
    if answer.get("reason") == "Expired":
        kind = ExpiredError
    told = answer.get("message") or answer.get("reason")
    if kind is ConflictError and _ADMISSION.match(str(told)):
        kind = ForbiddenError  # whatever code the webhook chose: reading again changes nothing
    said = texts.clamp(told if isinstance(told, str) else str(told or "")) or "no message"
    if _UNKNOWN_FIELD in said:
        kind = UnknownFieldError
    error = kind(f"{said} ({code})")
    error.status, error.said = code, said
    if isinstance(error, BusyError) and retry_after_s is not None:
        error.retry_after_s = retry_after_s
    return error


def _code(told: object) -> int:
    """Return the code that an answer tells of itself; any other is a failure of the server."""
    return told if isinstance(told, int) and told in _CODES else _SERVER_ERROR


def is_withheld(error: BaseException) -> bool:
    """Whether ``error``, or each one of a group, is no fault of an object: others have it, too.

    A right or a kind is missing, credentials have ended, or the server cannot now, or we cannot.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_withheld, error.exceptions))
    return isinstance(error, _WITHHELD)


def is_too_large(error: BaseException) -> bool:
    """Whether ``error`` says that an object with what was to be written is larger than may be."""
    refused = isinstance(error, BusyError | InvalidError)
    return refused and bool(_TOO_LARGE.search(str(error)))


def alone(error: KubeError) -> KubeError:
    """Return ``error`` without the frames that it came through, and what they hold.

    For one that is kept while somebody waits: a frame may hold the whole answer. What it rests on
    loses its frames, too: an answer that breaks off keeps its own error, which refers to the frame
    that reads the answer, until the collector finds the circle.
    """
    chain: list[BaseException] = [error]
    for one in chain:
        chain += [each for each in (one.__cause__, one.__context__) if each and each not in chain]
        one.__traceback__ = None
    error.__cause__ = error.__context__ = None
    return error


def is_away(error: BaseException) -> bool:
    """Whether ``error``, or each one of a group, only says that a server does not answer now."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_away, error.exceptions))
    if isinstance(error, BusyError):  # the word of who stands before a server that is down
        return error.status in _GATEWAY
    is_there = isinstance(error, UnreadableError | LargerError)
    return isinstance(error, NotReachableError) and not is_there
