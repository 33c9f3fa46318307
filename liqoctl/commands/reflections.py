"""``liqoctl get reflections``."""

from liqoctl import lazy, options
from liqoctl.lazy import Side
from liqoctl.options import get

EXAMPLES = options.examples(
    "liqoctl get reflections -n shop", "liqoctl get reflections -n shop -o json"
)


@get.command("reflections", epilog=EXAMPLES)
@options.TEXT_OUTPUT
@options.on_cluster()
async def get_reflections(side: Side, output: str) -> None:
    """Show which objects of a namespace are reflected where, and why others are not.

    Reads only. EndpointSlices go as their Services, claims with their first pod.
    """
    found = await lazy.reflections.reflected(side.cluster, side.session.namespace or "default")
    if output == "text":
        lazy.reflections.show(found)
    else:
        lazy.output.dump([lazy.reflections.told(found)], output)
