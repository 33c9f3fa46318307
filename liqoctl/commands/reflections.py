"""``liqoctl get reflections``."""

from liqoctl import lazy, options
from liqoctl.lazy import Client, Progress
from liqoctl.options import Session, get

EXAMPLES = options.examples(
    "liqoctl get reflections -n shop", "liqoctl get reflections -n shop -o json"
)


@get.command("reflections", epilog=EXAMPLES)
@options.TEXT_OUTPUT
@options.global_flags
def get_reflections(session: Session, output: str) -> None:
    """Show which objects of a namespace are reflected where, and why others are not.

    Reads only. EndpointSlices go as their Services, claims with their first pod.
    """

    async def work(cluster: Client, _progress: Progress) -> None:
        found = await lazy.reflections.reflected(cluster, session.namespace or "default")
        if output == "text":
            lazy.reflections.show(found)
        else:
            lazy.output.dump([lazy.reflections.told(found)], output)

    lazy.clusters.run(session, work)
