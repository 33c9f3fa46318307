"""When a peer does not come back: the one verdict that everything asks which waits for a peer.

Source: docs/parity.md § 2.2, 4.3 (2), 4.12.
"""

from typing import Final

from apis import keys, objects
from apis.objects import Object

API_SERVER_STATUS: Final = "APIServerStatus"
ESTABLISHED: Final = "Established"


def is_gone(foreign_cluster: Object | None) -> bool:
    """Whether the peer is gone for good: an administrator says so, and it does not answer.

    A ForeignCluster that is missing says nothing: deleting needs more proof than that.
    """
    if foreign_cluster is None:
        return False
    given_up = objects.annotations(foreign_cluster).get(keys.PERMANENTLY_UNREACHABLE, "")
    status = objects.status(foreign_cluster)
    answers = objects.find_condition(status.get("conditions"), API_SERVER_STATUS)
    return given_up.lower() == "true" and (answers or {}).get("status") != ESTABLISHED
