"""``liqoctl get reflections``."""

from liqoctl import late, options
from liqoctl.commands.groups import get
from liqoctl.late import Client, Progress
from liqoctl.sessions import Session

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
        found = await late.reflections.reflected(cluster, session.namespace or "default")
        if output == "text":
            late.reflections.show(found)
        else:
            late.output.dump([late.reflections.told(found)], output)

    late.session.run(session, work)
