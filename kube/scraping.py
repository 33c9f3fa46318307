"""Who may read the metrics of a process: whom the API server lets ``get /metrics``.

Source: docs/parity.md SEC-I7, SEC-E3.
"""

from typing import Final

from apis import keys
from kube.gate import Gate, NotAllowedError, Right, UnauthenticatedError

PATH: Final = "/metrics"
SCRAPE: Final = Right("get", path=PATH)


async def check(gate: Gate, authorization: str) -> None:
    """Return if who sends the header ``authorization`` may read the metrics.

    Raises:
        UnauthenticatedError: nobody we know: answer 401.
        NotAllowedError: somebody who may not: answer 403.
    """
    try:
        user = await gate.user(None, authorization)
        await gate.check(user, [SCRAPE])
    except UnauthenticatedError as error:
        raise UnauthenticatedError(
            f"{error}: send 'Authorization: Bearer TOKEN' of an account that may get {PATH}"
        ) from error
    except NotAllowedError as error:
        raise NotAllowedError(
            f"{error}: bind the ClusterRole {keys.METRICS_READER_ROLE} to it"
        ) from error
