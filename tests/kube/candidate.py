"""``python -m tests.kube.candidate KUBECONFIG NAMESPACE WHO SKEW_S``: one that wants to lead.

It writes a line for each moment at which it may write: its term, and when by the clock that all
processes of a machine share and that goes on while one is frozen. Its other clock, which goes into
the Lease, is wrong by so many seconds.
"""

import asyncio
import datetime as dt
import sys
import time
from pathlib import Path

from apis.objects import Key
from kube import client, clock
from kube.lease import Election

DURATION_S, RENEW_S, EVERY_S, ATTEMPT_S, RETRY_S = 1.5, 1.0, 0.5, 0.25, 0.2
"""A tenth of those by default."""
_EVERY_S = 0.002


async def main(kubeconfig: Path, namespace: str, who: str, skew_s: float) -> None:
    skew = dt.timedelta(seconds=skew_s)
    async with client.connect(kubeconfig, user_agent=f"candidate-{who}") as cluster:
        election = Election(
            cluster,
            Key(namespace, "leader"),
            who,
            duration_s=DURATION_S,
            renew_s=RENEW_S,
            every_s=EVERY_S,
            attempt_s=ATTEMPT_S,
            retry_s=RETRY_S,
            now=lambda: clock.now() + skew,
        )
        terms = 0

        async def work() -> None:
            nonlocal terms
            terms += 1
            while True:
                now = time.monotonic()  # before it is asked: what holds then held now
                if election.is_leader:
                    sys.stdout.write(f"{terms} {now!r}\n")
                    sys.stdout.flush()
                await asyncio.sleep(_EVERY_S)

        await election.lead(work)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])))
