"""Which peers send more than is kept of them: one loop sees it, another tells it on the object."""

from collections.abc import Callable


class Excess:
    """What was said of each peer that is over its bound, by cluster ID. Of one process."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        self._tell: Callable[[str], object] = lambda _: None

    def say(self, cluster_id: str, what: str) -> None:
        """Note ``what`` a peer sends too much of; empty: nothing any longer."""
        if self._said.get(cluster_id, "") == what:
            return
        self._said[cluster_id] = what
        self._tell(cluster_id)

    def of(self, cluster_id: str) -> str:
        """Return what that peer sends too much of; empty if nothing."""
        return self._said.get(cluster_id, "")

    def tell(self, whom: Callable[[str], object]) -> None:
        """From now on call ``whom``, and nobody else, with the cluster ID when this changes."""
        self._tell = whom
